//! What is owed to a plugin about one incarnation of a Pod: the last state of one that is gone, and reports of writes
//! that did not settle.
//!
//! In memory: a restart of the host forgets it. That a deletion is owed at all is in the journal.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Lane, gate::Gates, unsettled::Unsettled};
use crate::model::CachedPod;

type Owed<T> = Mutex<HashMap<(Lane, Arc<str>), T>>;

#[derive(Debug, Default)]
pub struct Debts {
    tombstones: Owed<Tombstone>,
    pub(super) unsettled: Unsettled,
    pub(super) gates: Gates,
}

#[derive(Debug)]
struct Tombstone {
    /// None: it went while nobody looked.
    last: Option<Arc<CachedPod>>,
    buried: Instant,
}

impl Debts {
    /// Keeps the last state of a Pod that is gone, until the plugin's run on its deletion has settled.
    pub fn bury(&self, lane: Lane, last: &Arc<CachedPod>, now: Instant) {
        let tombstone = Tombstone { last: Some(last.clone()), buried: now };
        self.tombstones.lock().insert((lane, last.key.uid.clone()), tombstone);
    }

    pub(super) fn tombstone(&self, lane: Lane, uid: &Arc<str>) -> Option<Arc<CachedPod>> {
        self.tombstones.lock().get(&(lane, uid.clone()))?.last.clone()
    }

    /// For how long the Pod has been known to be gone: from now on, if that is news.
    pub(super) fn gone_for(&self, lane: Lane, uid: &Arc<str>, now: Instant) -> Duration {
        let found = Tombstone { last: None, buried: now };
        now - self.tombstones.lock().entry((lane, uid.clone())).or_insert(found).buried
    }

    /// Readers see that the Pod is gone: nobody waits for it any more.
    pub fn seen_gone(&self, uid: &str) {
        self.gates.seen_gone(uid);
    }

    /// The plugin's key has settled: nothing is owed about it.
    pub(super) fn forget(&self, lane: Lane, uid: &Arc<str>) {
        let entry = (lane, uid.clone());
        self.tombstones.lock().remove(&entry);
        self.unsettled.take(lane, uid);
    }

    /// The plugin was unloaded.
    pub fn forget_lane(&self, lane: Lane) {
        self.tombstones.lock().retain(|(of, _), _| *of != lane);
        self.unsettled.forget_lane(lane);
        self.gates.forget_lane(lane);
    }
}
