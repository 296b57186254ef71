//! The wait of a plugin for what it did to a Pod itself: it is not run again on the Pod before the cache shows it.
//!
//! In memory: a restart of the host forgets it, and then the cache is listed anew.

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
    model::{CachedPod, PodKey, PodView, Refused},
};

/// How long the cache may lag behind a deletion before the API server itself is asked.
const GATE_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Gates {
    /// By uid, deletions that the API server accepted, and when each plugin asks it whether the Pod is still there.
    deletions: Mutex<HashMap<Arc<str>, BTreeMap<Lane, Instant>>>,
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

impl Gates {
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
    pub(super) fn seen_gone(&self, uid: &str) {
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

    #[cfg(test)]
    pub(super) fn waits(&self) -> usize {
        self.deletions.lock().len()
    }

    /// The plugin was unloaded.
    pub(super) fn forget_lane(&self, lane: Lane) {
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
