//! What is owed to a plugin about one incarnation of a Pod: the last state of one that is gone, reports of writes that
//! did not settle, and the wait for its own deletion to be seen.
//!
//! In memory: a restart of the host forgets it. That a deletion is owed at all is in the journal.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Lane;
use crate::{
    cache::Reader,
    model::{CachedPod, PodKey, PodView, Refused, WriteReport},
};

/// How long the cache may lag behind a deletion before the API server itself is asked.
const GATE_PATIENCE: Duration = Duration::from_secs(5);

type Owed<T> = Mutex<HashMap<(Lane, Arc<str>), T>>;

#[derive(Debug, Default)]
pub struct Debts {
    tombstones: Owed<Tombstone>,
    unsettled: Owed<Vec<WriteReport>>,
    /// By uid, deletions that the API server accepted, and when each plugin asks it whether the Pod is still there.
    deletions: Mutex<HashMap<Arc<str>, BTreeMap<Lane, Instant>>>,
}

#[derive(Debug)]
struct Tombstone {
    /// None: it went while nobody looked.
    last: Option<Arc<CachedPod>>,
    buried: Instant,
}

/// Whether the view shows what follows a deletion: the Pod is gone, or says that it is going.
pub(super) fn is_gone_or_going(view: &dyn PodView, key: &PodKey) -> bool {
    view.by_uid(&key.uid).is_none_or(|pod| is_going(&pod))
}

fn is_going(pod: &CachedPod) -> bool {
    pod.lifecycle().is_ok_and(|lifecycle| lifecycle.deletion_timestamp.is_some())
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

    pub(super) fn owe_unsettled(&self, lane: Lane, uid: &Arc<str>, reports: Vec<WriteReport>) {
        if !reports.is_empty() {
            self.unsettled.lock().insert((lane, uid.clone()), reports);
        }
    }

    pub(super) fn take_unsettled(&self, lane: Lane, uid: &Arc<str>) -> Vec<WriteReport> {
        self.unsettled.lock().remove(&(lane, uid.clone())).unwrap_or_default()
    }

    /// The plugin waits for these deletions, but for those that readers see already.
    pub(super) fn expect_deletions(&self, lane: Lane, keys: &[PodKey], reader: &Reader, now: Instant) {
        let mut deletions = self.deletions.lock();
        for key in keys {
            // Asked under the lock, so that `seen_gone` of the same Pod comes before or after, not between.
            if !is_gone_or_going(&*reader.snapshot(), key) {
                deletions.entry(key.uid.clone()).or_default().insert(lane, now + GATE_PATIENCE);
            }
        }
    }

    /// Readers see that the Pod is gone: nobody waits for it any more.
    pub fn seen_gone(&self, uid: &str) {
        self.deletions.lock().remove(uid);
    }

    /// A run sees what the plugin last did to the Pod, or does not start. Patches came home with their answer; a
    /// deletion is seen when the Pod is gone or going.
    pub(super) fn gate(&self, lane: Lane, key: &PodKey, view: &dyn PodView, now: Instant) -> Gate {
        let mut deletions = self.deletions.lock();
        let Some(ask) = deletions.get(&key.uid).and_then(|lanes| lanes.get(&lane)).copied() else { return Gate::Open };
        if is_gone_or_going(view, key) {
            expect_no_more(&mut deletions, lane, &key.uid);
            return Gate::Open;
        }
        if now < ask { Gate::Wait } else { Gate::AskLive }
    }

    /// What a live read said of a deletion that the cache does not show.
    pub(super) fn answer(&self, lane: Lane, key: &PodKey, live: Result<Option<Arc<CachedPod>>, Refused>, now: Instant) {
        let mut deletions = self.deletions.lock();
        match live {
            // It was not deleted after all, so there is nothing to wait for.
            Ok(Some(pod)) if pod.key.uid == key.uid && !is_going(&pod) => {
                expect_no_more(&mut deletions, lane, &key.uid);
            }
            // It is gone or going, or nobody knows: the cache will show it. The gate never opens by time alone.
            _ => {
                if let Some(ask) = deletions.get_mut(&key.uid).and_then(|lanes| lanes.get_mut(&lane)) {
                    *ask = now + GATE_PATIENCE;
                }
            }
        }
    }

    /// The plugin's key has settled: nothing is owed about it.
    pub(super) fn forget(&self, lane: Lane, uid: &Arc<str>) {
        let entry = (lane, uid.clone());
        self.tombstones.lock().remove(&entry);
        self.unsettled.lock().remove(&entry);
    }

    #[cfg(test)]
    pub(super) fn waits(&self) -> usize {
        self.deletions.lock().len()
    }

    /// The plugin was unloaded.
    pub fn forget_lane(&self, lane: Lane) {
        self.tombstones.lock().retain(|(of, _), _| *of != lane);
        self.unsettled.lock().retain(|(of, _), _| *of != lane);
        self.deletions.lock().retain(|_, lanes| {
            lanes.remove(&lane);
            !lanes.is_empty()
        });
    }
}

fn expect_no_more(deletions: &mut HashMap<Arc<str>, BTreeMap<Lane, Instant>>, lane: Lane, uid: &str) {
    if let Some(lanes) = deletions.get_mut(uid) {
        lanes.remove(&lane);
        if lanes.is_empty() {
            deletions.remove(uid);
        }
    }
}
