//! Resyncs: a plugin is run again on every Pod that it watches, once in its interval. The Pods are spread over the
//! interval, so that a resync of many Pods is no burst of runs and requests.

use std::{collections::BTreeMap, time::Duration};

use podium_pods::cache::Snapshot;
use podium_vocabulary::PodKey;
use tokio::time::Instant;

use super::sweep::{SLICE, Sweep};
use crate::dispatch::{Lane, LoadedPlugin};

/// The least time between two slices of a plugin.
const TICK: Duration = Duration::from_millis(100);

/// The resyncs of all plugins that have one, by the time of their next slice.
#[derive(Default)]
pub(super) struct Resyncs(BTreeMap<(Instant, Lane), Resync>);

struct Resync {
    every: Duration,
    /// When the pass over all Pods began.
    began: Instant,
    sweep: Sweep,
}

impl Resyncs {
    /// Begins the first pass of a plugin, if it asks for resyncs.
    pub(super) fn plan(&mut self, loaded: &LoadedPlugin, snapshot: &Snapshot, now: Instant) {
        let Some(every) = loaded.spec.watch.resync else { return };
        let resync = Resync { every, began: now, sweep: Sweep::new(loaded, None) };
        self.0.insert((now + resync.pace(snapshot).1, loaded.lane), resync);
    }

    pub(super) fn retain(&mut self, stays: impl Fn(Lane) -> bool) {
        self.0.retain(|(_, lane), _| stays(*lane));
    }

    /// Returns when the next slice is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.first_key_value().map(|((due, _), _)| *due)
    }

    /// Returns a plugin whose slice is due, and the Pods that it watches of this slice.
    pub(super) fn next(&mut self, snapshot: &Snapshot, now: Instant) -> Option<(Lane, Vec<PodKey>)> {
        let first = self.0.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((_, lane), mut resync) = first.remove_entry();
        let (pods, tick) = resync.pace(snapshot);
        let (keys, last) = resync.sweep.slice(snapshot, pods);
        let from = if last { now.max(resync.began + resync.every) } else { now };
        if last {
            resync.began = from;
        }
        self.0.insert((from + tick, lane), resync);
        Some((lane, keys))
    }
}

impl Resync {
    /// Returns the number of Pods of a slice and the time between two slices, so that a pass takes the interval.
    fn pace(&self, snapshot: &Snapshot) -> (usize, Duration) {
        let pods = self.sweep.count(snapshot).max(1);
        let most = usize::try_from(self.every.as_millis() / TICK.as_millis()).unwrap_or(usize::MAX).max(1);
        let of_slice = pods.div_ceil(most).min(SLICE);
        let slices = u32::try_from(pods.div_ceil(of_slice)).unwrap_or(u32::MAX);
        let tick = self.every / slices;
        (of_slice, tick.max(Duration::from_millis(1)))
    }
}
