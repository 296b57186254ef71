//! State of a plugin about one incarnation of a Pod: the last state of a deleted Pod, reports of writes that did not
//! settle, and the writes that the cache does not show yet.
//!
//! This state is in memory and is lost when the host restarts. The journal records which deletions are pending.

use std::collections::BTreeMap;

use podium_pods::{cache::Reader, pod::PodView};
use podium_vocabulary::Revision;
use tokio::time::Instant;

use super::{
    Excess, Lane, LoadedPlugin, Plan, PodQueue,
    breaker::{Breaker, OpenLoops},
    claims::Claims,
    gate::Gates,
    seen::{self, Seen},
    tombstones::{Bounds, Tombstones},
    unsettled::Unsettled,
};
use crate::ports::Expectation;

/// The expectations, reports and tombstones of all plugins. Shared by dispatch and the ingest loop.
#[derive(Debug, Default)]
pub struct Expectations {
    /// The last states of deleted Pods whose deletions have not settled.
    pub tombstones: Tombstones<Lane>,
    pub(super) unsettled: Unsettled,
    pub(super) gates: Gates,
    pub(super) breaker: Breaker,
    pub(super) claims: Claims,
    /// How far the cache and the queue are.
    pub seen: Seen,
}

impl Expectations {
    /// Returns expectations that keep at most as much as `bounds` permits for each plugin.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self { tombstones: Tombstones::new(bounds), ..Self::default() }
    }

    /// Queues the keys of a plan after its changes were published. Returns the number of queued keys for each lane.
    pub fn queue(&self, queue: &PodQueue, plan: Plan<Lane>) -> BTreeMap<Lane, u64> {
        self.tombstones.queue(queue, plan)
    }

    /// Waits at most 2 s until the changes that these writes made are in the cache and their keys in the queue. Returns
    /// whether all of them were seen. `list` is the revision of the latest list before they were sent.
    pub async fn see(&self, written: &[Expectation], list: Revision) -> bool {
        match seen::newest(written) {
            Some(revision) => self.seen.wait(revision, list).await,
            None => true,
        }
    }

    /// Requests a list if the watch has lost the event of a write of the plugin to the Pod.
    pub(super) fn look_for_lost(&self, lane: Lane, uid: &str, reader: &Reader) {
        let written = self.gates.written(lane, uid).filter(|revision| self.seen.has(*revision));
        let Some(written) = written else { return };
        // It has all that was seen.
        let snapshot = reader.snapshot();
        if snapshot.by_uid(uid).is_some_and(|pod| pod.revision < written) {
            self.seen.lose(uid, snapshot.revision());
        }
    }

    /// Drops the reports of writes for deletions that were given up, and counts and logs these deletions.
    pub(crate) fn exceeded(&self, plugin: &LoadedPlugin, excess: Excess) {
        for key in &excess.given_up {
            self.unsettled.take(plugin.lane, &key.uid);
            self.gates.forget_group(plugin.lane, &key.uid);
        }
        plugin.exceeded(excess);
    }

    /// Readers see that the Pod is gone: no run waits for it any more.
    pub fn seen_gone(&self, uid: &str) {
        self.gates.seen_gone(uid);
        self.breaker.seen_gone(uid);
    }

    /// Returns the Pods whose changes wait or waited within the last minute, because a plugin changed them too often.
    #[must_use]
    pub fn open_loops(&self) -> OpenLoops {
        self.breaker.open(Instant::now())
    }

    /// The plugin was unloaded.
    pub fn forget_lane(&self, lane: Lane) {
        self.tombstones.forget_lane(lane);
        self.unsettled.forget_lane(lane);
        self.gates.forget_lane(lane);
        self.breaker.forget_lane(lane);
    }
}
