//! What is owed to a plugin about one incarnation of a Pod: the last state of one that is gone, reports of writes that
//! did not settle, and the wait for its own deletion to be seen.
//!
//! In memory: a restart of the host forgets it, as the contract says.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Lane;
use crate::model::{CachedPod, PodKey, PodView, Refused, WriteReport};

/// How long the cache may lag behind a deletion before the API server itself is asked.
const GATE_PATIENCE: Duration = Duration::from_secs(5);

type Owed<T> = Mutex<HashMap<(Lane, Arc<str>), T>>;

#[derive(Debug, Default)]
pub struct Debts {
    tombstones: Owed<Arc<CachedPod>>,
    unsettled: Owed<Vec<WriteReport>>,
    /// Deletions that the API server accepted, and when to ask it whether the Pod is still there.
    deletions: Owed<Instant>,
}

/// Whether a run may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    Open,
    /// The cache does not show yet what the plugin did.
    Wait,
    /// It has not for so long that the API server is to be asked.
    AskLive,
}

impl Debts {
    /// Keeps the last state of a Pod that is gone, until the plugin's run on its deletion has settled.
    pub fn bury(&self, lane: Lane, last: &Arc<CachedPod>) {
        self.tombstones.lock().insert((lane, last.key.uid.clone()), last.clone());
    }

    pub(super) fn tombstone(&self, lane: Lane, uid: &Arc<str>) -> Option<Arc<CachedPod>> {
        self.tombstones.lock().get(&(lane, uid.clone())).cloned()
    }

    pub(super) fn owe_unsettled(&self, lane: Lane, uid: &Arc<str>, reports: Vec<WriteReport>) {
        if !reports.is_empty() {
            self.unsettled.lock().insert((lane, uid.clone()), reports);
        }
    }

    pub(super) fn take_unsettled(&self, lane: Lane, uid: &Arc<str>) -> Vec<WriteReport> {
        self.unsettled.lock().remove(&(lane, uid.clone())).unwrap_or_default()
    }

    pub(super) fn expect_deletions(&self, lane: Lane, keys: &[PodKey], now: Instant) {
        let mut deletions = self.deletions.lock();
        for key in keys {
            deletions.insert((lane, key.uid.clone()), now + GATE_PATIENCE);
        }
    }

    /// A run sees what the plugin last did to the Pod, or does not start. Patches came home with their answer; a
    /// deletion is seen when the Pod is gone or going.
    pub(super) fn gate(&self, lane: Lane, key: &PodKey, view: &dyn PodView, now: Instant) -> Gate {
        let mut deletions = self.deletions.lock();
        let entry = (lane, key.uid.clone());
        let Some(ask) = deletions.get(&entry) else { return Gate::Open };
        let going = |pod: Arc<CachedPod>| pod.lifecycle().is_ok_and(|lifecycle| lifecycle.deletion_timestamp.is_some());
        if view.by_uid(&key.uid).is_none_or(going) {
            deletions.remove(&entry);
            return Gate::Open;
        }
        if now < *ask { Gate::Wait } else { Gate::AskLive }
    }

    /// What a live read said of a deletion that the cache does not show.
    pub(super) fn answer(&self, lane: Lane, key: &PodKey, live: Result<Option<Arc<CachedPod>>, Refused>, now: Instant) {
        let mut deletions = self.deletions.lock();
        let entry = (lane, key.uid.clone());
        let alive = |pod: &CachedPod| {
            pod.key.uid == key.uid && pod.lifecycle().is_ok_and(|lifecycle| lifecycle.deletion_timestamp.is_none())
        };
        match live {
            // It was not deleted after all, so there is nothing to wait for.
            Ok(Some(pod)) if alive(&pod) => drop(deletions.remove(&entry)),
            // It is gone or going, or nobody knows: the cache will show it. The gate never opens by time alone.
            _ => drop(deletions.insert(entry, now + GATE_PATIENCE)),
        }
    }

    /// The deletion has settled.
    pub(super) fn forget(&self, lane: Lane, uid: &Arc<str>) {
        let entry = (lane, uid.clone());
        self.tombstones.lock().remove(&entry);
        self.unsettled.lock().remove(&entry);
        self.deletions.lock().remove(&entry);
    }

    /// The plugin was unloaded.
    pub fn forget_lane(&self, lane: Lane) {
        self.tombstones.lock().retain(|(of, _), _| *of != lane);
        self.unsettled.lock().retain(|(of, _), _| *of != lane);
        self.deletions.lock().retain(|(of, _), _| *of != lane);
    }
}
