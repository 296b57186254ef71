//! [`UnderWay`]: a delivery that may be dropped before its result is known.

use podium_vocabulary::PodKey;
use tokio::time::Instant;

use super::{Dispatch, Lane, PodJob, budget::count};
use crate::{
    ports::{Expectation, Sent, Shown, Staged},
    queue::WRITES,
};

/// A delivery under way. If it is dropped without [`UnderWay::end`], each of its writes may have been executed: the
/// plugin's next run on these Pods waits for a live read, and the tenant is charged for all of them.
#[must_use]
pub(super) struct UnderWay<'a> {
    dispatch: &'a Dispatch,
    job: &'a PodJob,
    lane: Lane,
    pods: Vec<PodKey>,
    writes: usize,
}

impl<'a> UnderWay<'a> {
    pub(super) fn new(dispatch: &'a Dispatch, job: &'a PodJob, lane: Lane, staged: &Staged) -> Self {
        let pods = staged.writes.iter().filter_map(|write| write.get().action.pod().cloned()).collect();
        Self { dispatch, job, lane, pods, writes: staged.writes.len() }
    }

    /// Charges the requests that were sent, in place of all writes.
    pub(super) fn charge(&mut self, sent: &Sent) {
        self.writes = 0;
        self.dispatch.charge(self.job, sent);
    }

    pub(super) fn end(mut self) {
        self.pods.clear();
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.dispatch.queue.spend(self.job, WRITES, count(self.writes));
        let unknown = |key: PodKey| Expectation { key, shown: Shown::Unknown };
        let expected: Vec<_> = std::mem::take(&mut self.pods).into_iter().map(unknown).collect();
        // A plugin that was taken out waits for nothing.
        if !expected.is_empty() && self.dispatch.registry.get(self.lane).is_some() {
            let Dispatch { expectations, reader, .. } = self.dispatch;
            expectations.gates.expect(self.lane, &expected, reader, Instant::now());
        }
    }
}
