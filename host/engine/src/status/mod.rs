//! Counters and times by plugin, as plain data. Metrics, the demo's table and tests read it.

mod histogram;
mod load;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

pub use histogram::Histogram;
pub use load::{LoadState, PluginState};
use parking_lot::{Mutex, RwLock};
use podium_pods::model::{EventResult, PluginId, WriteReport, WriteResult};

use crate::ports::{Failure, FailureKind, Outcome};

/// All plugins that are loaded or were.
#[derive(Debug, Default)]
pub struct Status {
    plugins: RwLock<BTreeMap<PluginId, Arc<PluginStatus>>>,
    loads: RwLock<BTreeMap<PluginId, Load>>,
}

/// A [`PluginState`] without its key.
#[derive(Debug, Default)]
struct Load {
    state: LoadState,
    runs: bool,
}

impl Status {
    /// The plugin's entry, made at first sight: zeros from the start, so that a rate has a beginning.
    pub fn plugin(&self, id: &PluginId) -> Arc<PluginStatus> {
        if let Some(status) = self.plugins.read().get(id) {
            return status.clone();
        }
        self.plugins.write().entry(id.clone()).or_default().clone()
    }

    /// Forgets a plugin that was unloaded: its figures and its load state.
    pub fn remove(&self, id: &PluginId) {
        self.plugins.write().remove(id);
        self.loads.write().remove(id);
    }

    /// Records the result of an attempt to load a plugin, and whether a version of it runs.
    pub fn set_load(&self, id: &PluginId, state: LoadState, runs: bool) {
        self.loads.write().insert(id.clone(), Load { state, runs });
    }

    /// The load state of every configured plugin, ordered by namespace, then name.
    #[must_use]
    pub fn loads(&self) -> Vec<PluginState> {
        let loads = self.loads.read();
        let state =
            |(id, load): (&PluginId, &Load)| PluginState { id: id.clone(), load: load.state.clone(), runs: load.runs };
        loads.iter().map(state).collect()
    }

    /// Ordered by namespace, then name.
    #[must_use]
    pub fn plugins(&self) -> Vec<(PluginId, Arc<PluginStatus>)> {
        self.plugins.read().iter().map(|(id, status)| (id.clone(), status.clone())).collect()
    }
}

/// The results of a run, as controller-runtime names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunResult {
    /// Settled.
    Success,
    /// Failed.
    Error,
    /// Settled, and to be run again after a time.
    RequeueAfter,
    /// Ended well, but a write did not settle.
    Requeue,
}

impl RunResult {
    /// All results, in the order of the metrics.
    pub const ALL: [Self; 4] = [Self::Success, Self::Error, Self::RequeueAfter, Self::Requeue];

    /// Returns the value of the metrics' label `result`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::RequeueAfter => "requeue_after",
            Self::Requeue => "requeue",
        }
    }
}

/// One plugin's figures since the host started. All of them only grow, but `active`.
#[derive(Debug, Default)]
pub struct PluginStatus {
    results: [AtomicU64; RunResult::ALL.len()],
    failures: Mutex<BTreeMap<&'static str, u64>>,
    panics: AtomicU64,
    retries: AtomicU64,
    adds: AtomicU64,
    active: AtomicI64,
    writes: Mutex<BTreeMap<&'static str, u64>>,
    events: Mutex<BTreeMap<&'static str, u64>>,
    requests: AtomicU64,
    dropped_states: AtomicU64,
    given_up: AtomicU64,
    log_lines_dropped: AtomicU64,
    last_failure: Mutex<Option<String>>,
    /// From start to end of a run, waiting and writes included.
    pub run_time: Histogram,
    /// From the oldest event that a run answers to the run's start.
    pub queue_time: Histogram,
    /// From the oldest event that a run answers to the API server's answer to its last write; runs that wrote only.
    pub event_to_write: Histogram,
}

impl PluginStatus {
    /// The plugin was woken for so many Pods.
    pub fn added(&self, items: u64) {
        self.adds.fetch_add(items, Relaxed);
    }

    /// A run begins; `waited` since the event.
    pub fn begin(&self, waited: Duration, attempt: u32) {
        self.active.fetch_add(1, Relaxed);
        self.queue_time.record(waited);
        if attempt > 1 {
            self.retries.fetch_add(1, Relaxed);
        }
    }

    /// Counts a run that ended and whose writes were sent. Returns its result.
    pub fn end(&self, result: &Result<Outcome, Failure>, unsettled: usize, took: Duration) -> RunResult {
        self.active.fetch_sub(1, Relaxed);
        self.run_time.record(took);
        let counted = match result {
            Ok(_) if unsettled > 0 => RunResult::Requeue,
            Ok(Outcome::RequeueAfter(_)) => RunResult::RequeueAfter,
            Ok(Outcome::Settled | Outcome::Stop) => RunResult::Success,
            Err(failure) => {
                *self.failures.lock().entry(failure.kind.name()).or_default() += 1;
                self.panics.fetch_add(failure.kind.is_panic().into(), Relaxed);
                *self.last_failure.lock() = Some(failure.message.clone());
                RunResult::Error
            }
        };
        self.results[counted as usize].fetch_add(1, Relaxed);
        counted
    }

    /// Writes of a run were sent with so many requests.
    pub fn wrote(&self, reports: &[WriteReport], requests: u32) {
        self.requests.fetch_add(requests.into(), Relaxed);
        let mut writes = self.writes.lock();
        for report in reports {
            *writes.entry(report.result.name()).or_default() += 1;
        }
    }

    /// An Event was sent, put off or dropped.
    pub fn event(&self, result: EventResult) {
        *self.events.lock().entry(result.name()).or_default() += 1;
    }

    /// Last states of deleted Pods were dropped. Returns the total where it has reached another power of two: often
    /// enough for a log line, and seldom enough.
    pub fn dropped_states(&self, states: u64) -> Option<u64> {
        grown(&self.dropped_states, states)
    }

    /// Deletions were given up. Returns as [`Self::dropped_states`] does.
    pub fn gave_up(&self, deletions: u64) -> Option<u64> {
        grown(&self.given_up, deletions)
    }

    /// Returns how many last states were dropped because of the bounds.
    #[must_use]
    pub fn states_dropped(&self) -> u64 {
        self.dropped_states.load(Relaxed)
    }
    /// Returns how many deletions were given up because of the bounds or of their age.
    #[must_use]
    pub fn deletions_given_up(&self) -> u64 {
        self.given_up.load(Relaxed)
    }

    /// A line of the plugin's log was dropped because of the rate.
    pub fn dropped_log_line(&self) {
        self.log_lines_dropped.fetch_add(1, Relaxed);
    }
    /// Returns how many lines of the plugin's log were dropped because of the rate.
    #[must_use]
    pub fn log_lines_dropped(&self) -> u64 {
        self.log_lines_dropped.load(Relaxed)
    }

    /// The result is a `RunResult` of [`Self::end`].
    #[must_use]
    pub fn runs_by(&self, result: RunResult) -> u64 {
        self.results[result as usize].load(Relaxed)
    }
    /// Returns how many runs have ended.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.results.iter().map(|count| count.load(Relaxed)).sum()
    }
    /// Failed runs by [`FailureKind::name`]; kinds that never happened are not in it.
    #[must_use]
    pub fn failures(&self) -> BTreeMap<&'static str, u64> {
        self.failures.lock().clone()
    }
    /// Failed runs of one kind.
    #[must_use]
    pub fn failures_by(&self, kind: FailureKind) -> u64 {
        self.failures.lock().get(kind.name()).copied().unwrap_or_default()
    }
    /// Runs whose code did not return.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.panics.load(Relaxed)
    }
    /// Runs that were not a first attempt.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.retries.load(Relaxed)
    }
    /// Wake-ups, those that collapsed into one run included.
    #[must_use]
    pub fn adds(&self) -> u64 {
        self.adds.load(Relaxed)
    }
    /// Returns how many runs are under way.
    #[must_use]
    pub fn active(&self) -> i64 {
        self.active.load(Relaxed)
    }
    /// Writes by [`WriteResult::name`].
    #[must_use]
    pub fn writes(&self) -> BTreeMap<&'static str, u64> {
        self.writes.lock().clone()
    }
    /// Events by [`EventResult::name`].
    #[must_use]
    pub fn events(&self) -> BTreeMap<&'static str, u64> {
        self.events.lock().clone()
    }
    /// Writes that the API server took.
    #[must_use]
    pub fn writes_applied(&self) -> u64 {
        self.writes.lock().get(WriteResult::Applied.name()).copied().unwrap_or_default()
    }
    /// Requests sent to the API server for this plugin's writes.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }
    /// What the latest failed run said.
    #[must_use]
    pub fn last_failure(&self) -> Option<String> {
        self.last_failure.lock().clone()
    }
}

/// Adds, and returns the sum if it has reached another power of two.
fn grown(counter: &AtomicU64, by: u64) -> Option<u64> {
    let before = counter.fetch_add(by, Relaxed);
    (before.checked_ilog2() < (before + by).checked_ilog2()).then_some(before + by)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_whose_write_did_not_settle_counts_neither_as_success_nor_as_error() {
        let status = PluginStatus::default();
        status.begin(Duration::ZERO, 1);
        assert_eq!(status.end(&Ok(Outcome::Settled), 1, Duration::ZERO), RunResult::Requeue);
        assert_eq!((status.runs(), status.active()), (1, 0));
    }

    #[test]
    fn a_trap_is_counted_as_panic_and_remembered() {
        let status = PluginStatus::default();
        status.begin(Duration::ZERO, 2);
        let failure = Failure { kind: FailureKind::Trap, message: "unreachable".into() };
        assert_eq!(status.end(&Err(failure), 0, Duration::ZERO), RunResult::Error);
        assert_eq!((status.panics(), status.retries(), status.failures_by(FailureKind::Trap)), (1, 1, 1));
        assert_eq!(status.last_failure().as_deref(), Some("unreachable"));
    }
}
