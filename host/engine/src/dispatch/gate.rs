//! Expectations: the revision or deletion that the cache has to show before a plugin that wrote to a Pod runs on it
//! again.
//!
//! They are in memory only: after a restart of the host, the first list is newer than every write before it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use foldhash::quality::FixedState;
use parking_lot::Mutex;
use podium_pods::{
    cache::Reader,
    pod::{CachedPod, PodView},
};
use podium_vocabulary::{PodKey, Refused, Revision};
use tokio::time::Instant;

use super::{GATE_PAUSE, Lane};
use crate::{
    ports::{Expectation, Shown},
    throttle::Backoff,
};

/// How long the cache may lag behind an expectation before the API server is asked. A watch that is cut off is back
/// within 5 s where the network is.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long after a live read that failed the next one is tried, where only a live read can determine the state;
/// elsewhere it is [`PATIENCE`]. Doubles with each further one, up to [`MAX_PATIENCE`]: a Pod that cannot be decoded
/// stays so for long.
const READ_AGAIN: Duration = Duration::from_secs(1);
const MAX_PATIENCE: Duration = Duration::from_secs(300);
/// The longest pause of a run that waits; it begins with [`GATE_PAUSE`] and doubles with each live read that failed.
const MAX_PAUSE: Duration = Duration::from_secs(8);

/// The expectations of all plugins.
#[derive(Debug, Default)]
pub(super) struct Gates {
    expected: Mutex<All>,
    /// By plugin and group, the Pods that runs for the group wrote to and that the cache was not seen to show. The next
    /// run for the group waits for them: it may read each of them, and none has runs of its own.
    unseen: Mutex<ByGroup>,
}

type ByGroup = BTreeMap<(Lane, Arc<str>), Vec<PodKey>>;

#[derive(Debug, Default)]
struct All {
    /// By uid and plugin. An entry goes when a delivery or a run of the plugin finds it fulfilled, when the Pod is
    /// gone, and when the plugin is unloaded.
    by_uid: HashMap<Arc<str>, BTreeMap<Lane, Expected>, FixedState>,
    /// The Pods of each plugin that has any.
    by_lane: BTreeMap<Lane, HashSet<Arc<str>, FixedState>>,
}

/// All that one plugin's writes to one Pod made the plugin expect.
#[derive(Debug)]
struct Expected {
    revision: Revision,
    /// The Pod has a deletionTimestamp.
    deletion: bool,
    gone: bool,
    /// The result of a write is not known.
    unknown: bool,
    /// When the API server is asked, if the cache does not show it by then.
    ask: Instant,
    /// [`PATIENCE`] after the latest write that was answered with a revision.
    until: Instant,
    /// Live reads that failed in a row.
    failures: u32,
}

/// The decision whether a run may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    Open,
    /// The cache does not show yet what the plugin wrote.
    Wait,
    /// Only a live read can determine what the cache has to show.
    ReadLive,
}

impl Expected {
    fn new(now: Instant) -> Self {
        let ask = now + PATIENCE;
        Self { revision: Revision(0), deletion: false, gone: false, unknown: false, ask, until: now, failures: 0 }
    }

    fn add(&mut self, shown: Shown, now: Instant) {
        match shown {
            Shown::Revision(revision) => {
                // After so long an earlier revision means that the API server's history was set back.
                let earlier = if now < self.until { self.revision } else { Revision(0) };
                self.revision = earlier.max(revision);
                self.until = now + PATIENCE;
            }
            Shown::Deletion => self.deletion = true,
            Shown::Gone => self.gone = true,
            Shown::Unknown => (self.unknown, self.ask) = (true, now),
        }
    }

    /// Plans the next live read after one that failed.
    fn read_failed(&mut self, now: Instant) {
        let first = if self.unknown { READ_AGAIN } else { PATIENCE };
        self.failures = self.failures.saturating_add(1);
        self.ask = now + Backoff { first, most: MAX_PATIENCE }.doubled(self.failures);
    }

    /// How soon a run that waits looks again. A state that only a live read can determine is not looked at before.
    fn pause(&self, now: Instant) -> Duration {
        if self.unknown {
            self.ask.saturating_duration_since(now).max(GATE_PAUSE)
        } else {
            Backoff { first: GATE_PAUSE, most: MAX_PAUSE }.doubled(self.failures.saturating_add(1))
        }
    }

    /// A Pod that is gone fulfils everything.
    fn is_shown_by(&self, view: &dyn PodView, uid: &str) -> bool {
        view.by_uid(uid).is_none_or(|pod| {
            !self.unknown && !self.gone && pod.revision >= self.revision && (!self.deletion || is_going(&pod))
        })
    }
}

/// Returns true if the Pod is being deleted.
pub(super) fn is_going(pod: &CachedPod) -> bool {
    pod.lifecycle().is_ok_and(|lifecycle| lifecycle.deletion_timestamp.is_some())
}

impl Gates {
    /// Adds the expectations that `reader` does not fulfil already.
    pub(super) fn expect(&self, lane: Lane, expectations: &[Expectation], reader: &Reader, now: Instant) {
        let mut expected = self.expected.lock();
        for Expectation { key, shown } in expectations {
            expected.by_lane.entry(lane).or_default().insert(key.uid.clone());
            let lanes = expected.by_uid.entry(key.uid.clone()).or_default();
            let entry = lanes.entry(lane).or_insert_with(|| Expected::new(now));
            entry.add(*shown, now);
            // Read under the lock, so that `seen_gone` of the same Pod comes before or after, not between.
            if entry.is_shown_by(&*reader.snapshot(), &key.uid) {
                expected.remove(lane, &key.uid);
            }
        }
    }

    /// Adds Pods that the next run for a group has to see, and forgets those that are seen.
    pub(super) fn add_unseen(&self, lane: Lane, group: &Arc<str>, written: &[Expectation], view: &dyn PodView) {
        let mut pods = self.unseen.lock().remove(&(lane, group.clone())).unwrap_or_default();
        pods.extend(written.iter().map(|expectation| expectation.key.clone()));
        pods.sort_unstable();
        pods.dedup();
        pods.retain(|pod| self.gate(lane, pod, view, Instant::now()) != Gate::Open);
        if !pods.is_empty() {
            self.unseen.lock().insert((lane, group.clone()), pods);
        }
    }

    /// Returns the Pods that the next run for a group has to see.
    pub(super) fn unseen_of(&self, lane: Lane, group: &Arc<str>) -> Vec<PodKey> {
        self.unseen.lock().get(&(lane, group.clone())).cloned().unwrap_or_default()
    }

    /// Forgets the Pods that the next run for a group has to see: the group has ended.
    pub(super) fn forget_group(&self, lane: Lane, group: &Arc<str>) {
        self.unseen.lock().remove(&(lane, group.clone()));
    }

    /// Forgets a Pod that readers see to be gone.
    pub(super) fn seen_gone(&self, uid: &str) {
        let mut expected = self.expected.lock();
        let lanes = expected.by_uid.remove(uid).unwrap_or_default();
        lanes.keys().for_each(|lane| expected.remove(*lane, uid));
    }

    /// Compares a snapshot with the revision that the plugin's writes to the Pod require.
    pub(super) fn gate(&self, lane: Lane, key: &PodKey, view: &dyn PodView, now: Instant) -> Gate {
        let mut expected = self.expected.lock();
        let Some(entry) = expected.get(lane, &key.uid) else { return Gate::Open };
        if entry.is_shown_by(view, &key.uid) {
            expected.remove(lane, &key.uid);
            return Gate::Open;
        }
        if now < entry.ask { Gate::Wait } else { Gate::ReadLive }
    }

    /// Returns the revision of the plugin's writes to the Pod, if the cache was not seen to have it.
    pub(super) fn written(&self, lane: Lane, uid: &str) -> Option<Revision> {
        self.expected.lock().get(lane, uid).map(|entry| entry.revision)
    }

    /// How soon a run for which the gate is shut looks again. An event looks at once.
    pub(super) fn pause(&self, lane: Lane, uid: &str, now: Instant) -> Duration {
        let expected = self.expected.lock();
        expected.get(lane, uid).map_or(GATE_PAUSE, |entry| entry.pause(now))
    }

    /// Returns how soon a write to the Pod is tried again, if the view does not show the revision of an earlier one.
    /// The pauses double, and end [`PATIENCE`] after that: no run on another Pod asks the API server about this one.
    pub(super) fn unseen(&self, lane: Lane, uid: &str, view: &dyn PodView, now: Instant) -> Option<Duration> {
        let expected = self.expected.lock();
        let entry = expected.get(lane, uid)?;
        view.by_uid(uid).filter(|pod| pod.revision < entry.revision)?;
        let left = entry.until.checked_duration_since(now).filter(|left| !left.is_zero())?;
        Some((PATIENCE - left).max(GATE_PAUSE).min(left))
    }

    /// Applies the answer of a live read that [`Gate::ReadLive`] asked for. The gate stays shut if the read failed: the
    /// passing of time never opens it.
    pub(super) fn answer(
        &self,
        lane: Lane,
        key: &PodKey,
        live: &Result<Option<Arc<CachedPod>>, Refused>,
        now: Instant,
    ) {
        let mut expected = self.expected.lock();
        let Some(entry) = expected.by_uid.get_mut(&key.uid).and_then(|lanes| lanes.get_mut(&lane)) else { return };
        let Ok(pod) = live else {
            entry.read_failed(now);
            return;
        };
        entry.ask = now + PATIENCE;
        entry.failures = 0;
        match pod {
            Some(pod) if pod.key.uid == key.uid => {
                // An older revision than that of a write means that the API server's history was set back.
                if entry.unknown || entry.gone || pod.revision < entry.revision {
                    entry.revision = pod.revision;
                }
                entry.deletion &= is_going(pod);
                entry.unknown = false;
                entry.gone = false;
            }
            _ => (entry.unknown, entry.gone) = (false, entry.gone || entry.unknown),
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let expected = self.expected.lock();
        let of_lanes: usize = expected.by_lane.values().map(HashSet::len).sum();
        assert_eq!(of_lanes, expected.by_uid.values().map(BTreeMap::len).sum::<usize>());
        expected.by_uid.len()
    }

    /// Forgets a plugin that was unloaded.
    pub(super) fn forget_lane(&self, lane: Lane) {
        self.unseen.lock().retain(|(of, _), _| *of != lane);
        let mut expected = self.expected.lock();
        for uid in expected.by_lane.remove(&lane).unwrap_or_default() {
            expected.remove(lane, &uid);
        }
    }
}

impl All {
    fn get(&self, lane: Lane, uid: &str) -> Option<&Expected> {
        self.by_uid.get(uid)?.get(&lane)
    }

    fn remove(&mut self, lane: Lane, uid: &str) {
        if let Some(lanes) = self.by_uid.get_mut(uid) {
            lanes.remove(&lane);
            if lanes.is_empty() {
                self.by_uid.remove(uid);
            }
        }
        if let Some(uids) = self.by_lane.get_mut(&lane) {
            uids.remove(uid);
            if uids.is_empty() {
                self.by_lane.remove(&lane);
            }
        }
    }
}
