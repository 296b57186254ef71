//! Counters and times by plugin, as plain data. Metrics, the demo's table and tests read it.

mod active;
mod health;
mod histogram;
mod load;
mod used;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

pub use active::{ActiveRun, Panic};
pub(crate) use health::{ATTEMPTS, is_refusal, without_pod};
pub use health::{FORGET, Failing, Health, VersionId};
pub use histogram::Histogram;
pub use load::{LoadState, PluginState};
use parking_lot::{Mutex, RwLock};
use podium_vocabulary::{EventResult, Limits, PluginId, PodKey, WriteReport, WriteResult};
use tokio::time::Instant;
use used::Uses;
pub use used::{Limit, Used};

use crate::ports::{Failure, FailureKind, Outcome, Usage};

/// The most senders of other values that a plugin's loops are counted by; each is a series of a metric.
const MAX_COUNTERPARTS: usize = 16;

/// The figures of all plugins that are or were loaded.
#[derive(Debug, Default)]
pub struct Status {
    plugins: RwLock<BTreeMap<PluginId, Arc<PluginStatus>>>,
    loads: RwLock<BTreeMap<PluginId, PluginState>>,
}

impl Status {
    /// Returns the plugin's figures, and creates them at the first call, so that counters start at zero.
    pub fn plugin(&self, id: &PluginId) -> Arc<PluginStatus> {
        if let Some(status) = self.plugins.read().get(id) {
            return status.clone();
        }
        self.plugins.write().entry(id.clone()).or_default().clone()
    }

    /// Returns the plugin's figures, if there are some.
    #[must_use]
    pub fn get(&self, id: &PluginId) -> Option<Arc<PluginStatus>> {
        self.plugins.read().get(id).cloned()
    }

    /// Removes the figures and the load state of an unloaded plugin.
    pub fn remove(&self, id: &PluginId) {
        self.plugins.write().remove(id);
        self.loads.write().remove(id);
    }

    /// Records the result of an attempt to load a plugin, and whether a version of it runs.
    pub fn set_load(&self, id: &PluginId, state: LoadState, runs: bool) {
        self.loads.write().insert(id.clone(), PluginState { id: id.clone(), load: state, runs });
    }

    /// Returns the load state of every configured plugin, ordered by namespace, then name.
    #[must_use]
    pub fn loads(&self) -> Vec<PluginState> {
        self.loads.read().values().cloned().collect()
    }

    /// Returns all plugins, ordered by namespace, then name.
    #[must_use]
    pub fn plugins(&self) -> Vec<(PluginId, Arc<PluginStatus>)> {
        self.plugins.read().iter().map(|(id, status)| (id.clone(), status.clone())).collect()
    }
}

/// The results of a run, named as in controller-runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunResult {
    /// The run settled.
    Success,
    /// The run failed.
    Error,
    /// The run settled and asked for another run after a time.
    RequeueAfter,
    /// The run did not fail, but a write did not settle.
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

/// One plugin's figures since the host started. All of them only grow, except the runs under way and the uses of
/// limits.
#[derive(Debug, Default)]
pub struct PluginStatus {
    results: [AtomicU64; RunResult::ALL.len()],
    failures: Mutex<BTreeMap<&'static str, u64>>,
    /// Runs that were begun.
    begun: AtomicU64,
    /// Runs that were not a first attempt.
    pub retries: Counter,
    /// Wake-ups, including those that were merged into one run.
    pub adds: Counter,
    /// Runs under way, by number. There are at most as many as workers.
    active: Mutex<BTreeMap<u64, ActiveRun>>,
    writes: Mutex<BTreeMap<&'static str, u64>>,
    events: Mutex<BTreeMap<&'static str, u64>>,
    /// Requests that were sent for this plugin's writes.
    pub requests: Counter,
    /// Nanoseconds.
    cpu: AtomicU64,
    /// Last states of deleted Pods that were dropped because of the bounds.
    pub states_dropped: Counter,
    /// Deletions that were given up because of the bounds or of their age.
    pub deletions_given_up: Counter,
    /// Lines of the plugin's log that were dropped because of the rate.
    pub log_lines_dropped: Counter,
    loops: Mutex<BTreeMap<(&'static str, String), u64>>,
    /// Writes that were not sent because values of their fields wait.
    pub writes_withheld: Counter,
    /// How often writes of one kind were stopped for a time because the account has no right to them.
    pub closings: Counter,
    last_failure: Mutex<Option<String>>,
    /// That of the version that was installed last.
    health: Mutex<Arc<Health>>,
    last_panic: Mutex<Option<Panic>>,
    uses: Uses,
    /// Time from start to end of a run, including waits and writes.
    pub run_time: Histogram,
    /// Time from the oldest event that a run handles to the run's start.
    pub queue_time: Histogram,
    /// Time from the oldest event that a run handles to the API server's response to its last write; only for runs
    /// that wrote.
    pub event_to_write: Histogram,
    /// Time from the API server's response to the last of a run's writes to Pods until the cache shows them; 0 if it
    /// did before.
    pub write_to_seen: Histogram,
}

impl PluginStatus {
    /// Records the start of a run on a Pod; `waited` is the time since the event. Returns the number of the run, of the
    /// plugin's own: a number of all runs would show plugins how much the others run.
    pub fn begin(&self, waited: Duration, attempt: u32, pod: &PodKey) -> u64 {
        self.queue_time.record(waited);
        if attempt > 1 {
            self.retries.add(1);
        }
        let run = self.begun.fetch_add(1, Relaxed);
        self.active.lock().insert(run, ActiveRun { pod: pod.clone(), since: Instant::now() });
        run
    }

    /// Records that the code of a run has ended. Its writes may still have to be sent.
    pub fn left(&self, run: u64) {
        self.active.lock().remove(&run);
    }

    /// Counts a run that ended and whose writes were sent. Returns its result.
    pub fn end(&self, result: &Result<Outcome, Failure>, unsettled: usize, took: Duration) -> RunResult {
        self.run_time.record(took);
        let counted = match result {
            Ok(_) if unsettled > 0 => RunResult::Requeue,
            Ok(Outcome::RequeueAfter(_)) => RunResult::RequeueAfter,
            Ok(Outcome::Settled | Outcome::Stop) => RunResult::Success,
            Err(failure) => {
                *self.failures.lock().entry(failure.kind.name()).or_default() += 1;
                if failure.kind.is_panic() || failure.kind == FailureKind::Host {
                    let message = failure.message.clone();
                    *self.last_panic.lock() = Some(Panic { kind: failure.kind.name(), message, at: Instant::now() });
                }
                *self.last_failure.lock() = Some(failure.message.clone());
                RunResult::Error
            }
        };
        self.results[counted as usize].fetch_add(1, Relaxed);
        counted
    }

    /// Returns the runs under way, in the order in which they started.
    #[must_use]
    pub fn active_runs(&self) -> Vec<ActiveRun> {
        self.active.lock().values().cloned().collect()
    }

    /// Returns the latest run whose code did not return, or that ended by a panic of the host.
    #[must_use]
    pub fn last_panic(&self) -> Option<Panic> {
        self.last_panic.lock().clone()
    }

    /// Records what a run used of its limits.
    pub fn used(&self, usage: &Usage, limits: &Limits) {
        self.uses.record(usage, limits);
    }

    /// Returns the limits of which a run used anything, in the order of the configuration.
    #[must_use]
    pub fn uses(&self) -> Vec<Used> {
        self.uses.used()
    }

    /// Records the processor time that the tenant is charged for a run.
    pub fn charged(&self, cost: Duration) {
        self.cpu.fetch_add(u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }
    /// Returns the processor time that the tenant was charged for the plugin's runs.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        Duration::from_nanos(self.cpu.load(Relaxed))
    }

    /// Records the results of a run's writes and the number of requests.
    pub fn wrote(&self, reports: &[WriteReport], requests: u32) {
        self.requests.add(requests.into());
        let mut writes = self.writes.lock();
        for report in reports {
            *writes.entry(report.result.name()).or_default() += 1;
        }
    }

    /// Records the result of an Event.
    pub fn event(&self, result: EventResult) {
        *self.events.lock().entry(result.name()).or_default() += 1;
    }

    /// Records that values of a kind of field wait because too many were sent, and who sent the values between them:
    /// one of the first 16 senders, or `others`.
    pub fn looped(&self, field: &'static str, counterpart: &str) {
        let mut loops = self.loops.lock();
        let names: BTreeSet<&str> = loops.keys().map(|(_, name)| &**name).collect();
        let is_named = names.len() < MAX_COUNTERPARTS || names.contains(counterpart);
        let name = if is_named { counterpart } else { "others" };
        *loops.entry((field, name.to_owned())).or_default() += 1;
    }
    /// Returns how often values of a field began to wait, by the kind of field and the sender of the other values.
    #[must_use]
    pub fn loops(&self) -> BTreeMap<(&'static str, String), u64> {
        self.loops.lock().clone()
    }

    /// Returns the failures of the version that was installed last.
    pub fn health(&self) -> Arc<Health> {
        self.health.lock().clone()
    }
    /// Records that a version is installed. Its failures begin with none, unless it was installed before it.
    pub fn installed(&self, version: VersionId) {
        let mut health = self.health.lock();
        if *health.version() != version {
            let is_first = *health.version() == VersionId::default();
            *health = Arc::new(Health::new(version, is_first));
        }
    }
    /// Returns how many failures of the version were not listed, because there were too many others.
    #[must_use]
    pub fn failures_unlisted(&self) -> u64 {
        self.health().unlisted()
    }

    /// Returns the number of runs with this result.
    #[must_use]
    pub fn runs_by(&self, result: RunResult) -> u64 {
        self.results[result as usize].load(Relaxed)
    }
    /// Returns how many runs have ended.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.results.iter().map(|count| count.load(Relaxed)).sum()
    }
    /// Returns the number of failed runs by [`FailureKind::name`], without kinds that never occurred.
    #[must_use]
    pub fn failures(&self) -> BTreeMap<&'static str, u64> {
        self.failures.lock().clone()
    }
    /// Returns the number of failed runs of one kind.
    #[must_use]
    pub fn failures_by(&self, kind: FailureKind) -> u64 {
        self.failures.lock().get(kind.name()).copied().unwrap_or_default()
    }
    /// Returns the number of runs whose code did not return.
    #[must_use]
    pub fn panics(&self) -> u64 {
        let panics = FailureKind::ALL.into_iter().filter(|kind| kind.is_panic());
        panics.map(|kind| self.failures_by(kind)).sum()
    }
    /// Returns how many runs are under way.
    #[must_use]
    pub fn active(&self) -> usize {
        self.active.lock().len()
    }
    /// Returns the number of writes by [`WriteResult::name`].
    #[must_use]
    pub fn writes(&self) -> BTreeMap<&'static str, u64> {
        self.writes.lock().clone()
    }
    /// Returns the number of Events by [`EventResult::name`].
    #[must_use]
    pub fn events(&self) -> BTreeMap<&'static str, u64> {
        self.events.lock().clone()
    }
    /// Returns the number of writes that the API server applied.
    #[must_use]
    pub fn writes_applied(&self) -> u64 {
        self.writes.lock().get(WriteResult::Applied.name()).copied().unwrap_or_default()
    }
    /// Returns the message of the latest failed run.
    #[must_use]
    pub fn last_failure(&self) -> Option<String> {
        self.last_failure.lock().clone()
    }
}

/// Something that is counted.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts more.
    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Relaxed);
    }

    /// Counts more. Returns the sum if it has passed a power of two, so that the number of log lines stays small.
    pub fn grow(&self, by: u64) -> Option<u64> {
        let before = self.0.fetch_add(by, Relaxed);
        (before.checked_ilog2() < (before + by).checked_ilog2()).then_some(before + by)
    }

    /// Returns the sum.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsettled_run_counts_neither_as_success_nor_as_error() {
        let status = PluginStatus::default();
        let run = status.begin(Duration::ZERO, 1, &PodKey::new("shop", "cart-0", "u1"));
        assert_eq!(status.active(), 1);
        status.left(run);
        assert_eq!((status.runs(), status.active()), (0, 0), "its writes are being sent");
        assert_eq!(status.end(&Ok(Outcome::Settled), 1, Duration::ZERO), RunResult::Requeue);
        assert_eq!(status.runs(), 1);
    }

    #[test]
    fn loops_are_counted_by_at_most_16_senders_and_the_others() {
        let status = PluginStatus::default();
        for number in 0..1_000 {
            status.looped("label", &format!("shop/p{number}"));
            status.looped("label", "shop/p0");
            status.looped("condition", "shop/p0");
        }
        let loops = status.loops();
        assert_eq!(loops.len(), 16 + 1 + 1);
        let of = |field, name: &str| loops.get(&(field, name.to_owned())).copied();
        assert_eq!(of("label", "shop/p0"), Some(1_001));
        assert_eq!((of("condition", "shop/p0"), of("label", "others")), (Some(1_000), Some(1_000 - 16)));
    }

    #[test]
    fn a_trap_is_counted_as_panic_and_remembered() {
        let status = PluginStatus::default();
        status.begin(Duration::ZERO, 2, &PodKey::new("shop", "cart-0", "u1"));
        let failure = |kind, message: &str| Err(Failure { kind, message: message.into() });
        assert_eq!(status.end(&failure(FailureKind::Trap, "unreachable"), 0, Duration::ZERO), RunResult::Error);
        assert_eq!((status.panics(), status.retries.get(), status.failures_by(FailureKind::Trap)), (1, 1, 1));
        assert_eq!(status.last_failure().as_deref(), Some("unreachable"));
        let _ = status.end(&failure(FailureKind::Retry, "later"), 0, Duration::ZERO);
        assert_eq!(status.last_failure().as_deref(), Some("later"));
        assert_eq!(status.last_panic().map(|panic| (panic.kind, panic.message)), Some(("trap", "unreachable".into())));
    }
}
