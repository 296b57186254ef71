//! The memory, the worker and the place of its tenant that a job holds while its run is under way.
//!
//! The memory of a lane's jobs is declared, not measured, and decided outside of the queue ([`Claims`]), so no worker
//! waits for memory. Of the whole budget the lanes of one tenant hold at most half. A job that does not fit does not
//! hold up smaller ones, until it has waited too long: then nothing starts that would keep it waiting.

use std::{fmt::Debug, time::Duration};

use tokio::time::Instant;

use super::{
    tokens::Demand,
    virtual_time::{CREDIT, nanos},
};

/// How many jobs may start past one that waits for memory, and how long it may have waited, before no more do. Runs
/// take a millisecond or so; the time is for those that take seconds.
pub(super) const PATIENCE: (u32, Duration) = (32, Duration::from_secs(1));
/// A tenant is light while its latest runs held a worker for no longer than this. Ordinary runs of native plugins take
/// less than a millisecond, even when they wait for the processor; a run at the default limit takes 20 ms.
pub(super) const LIGHT: Duration = Duration::from_millis(10);
/// And while they cost no more than [`CREDIT`], of which one part in `DRAIN` of the time that passes is forgiven. With
/// the kept worker a light tenant therefore gets at most 5 % of a processor more than its share.
pub(super) const DRAIN: u64 = 20;

/// The tenant and the memory of one job of a lane while it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Claim {
    /// Lanes with the same number are one tenant: they share its turns, its places and the half of the budget that a
    /// tenant may hold.
    pub tenant: u32,
    /// The most memory that the job's run may use.
    pub bytes: u64,
}

/// The claims of lanes. Read under the queue's lock when a lane begins to wait and when a job starts.
pub trait Claims<L>: Debug + Send + Sync {
    /// Returns the claim of one job of the lane.
    fn claim(&self, lane: L) -> Claim;

    /// Returns the tokens that jobs of the lane need. By default they need none.
    fn demand(&self, _: L) -> Demand {
        Demand::default()
    }

    /// Returns the least time from the start of a job to the next one of the same item. By default there is none.
    fn rest(&self, _: L) -> Duration {
        Duration::ZERO
    }

    /// Returns for how long a run of the lane may hold its worker, apart from its waits. By default for no time.
    fn hold(&self, _: L) -> Duration {
        Duration::ZERO
    }
}

/// The memory that all jobs together may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBudget {
    bytes: u64,
}

impl Default for MemoryBudget {
    fn default() -> Self {
        Self::UNLIMITED
    }
}

impl MemoryBudget {
    /// The budget of a queue that does not count memory.
    pub(super) const UNLIMITED: Self = Self::new(u64::MAX);

    /// A budget of `bytes` bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self { bytes }
    }

    /// Returns the bytes that the jobs of one tenant may take together: half of the budget, even while no other tenant
    /// has a job, so that other tenants always find the other half. A larger job never starts.
    #[must_use]
    pub const fn of_tenant(self) -> u64 {
        self.bytes / 2
    }

    /// Returns the bytes that count for a job that declares this number: 4 MiB, doubled as often as necessary, so that
    /// there are few sizes; but no more than a tenant may take if it declares no more.
    #[must_use]
    pub fn counted(self, declared: u64) -> u64 {
        const LEAST: u64 = 4 << 20;
        let rounded = declared.max(LEAST).checked_next_power_of_two().unwrap_or(declared);
        rounded.min(self.of_tenant()).max(declared)
    }

    pub(super) const fn left(self, taken: u64) -> u64 {
        self.bytes.saturating_sub(taken)
    }

    pub(super) const fn left_of_tenant(self, taken: u64) -> u64 {
        self.of_tenant().saturating_sub(taken)
    }
}

/// How many workers there are, and how many of them one tenant may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occupancy {
    workers: usize,
}

impl Occupancy {
    /// The bounds of a queue that does not count workers.
    pub(super) const UNLIMITED: Self = Self::new(usize::MAX);

    /// The bounds for this number of workers.
    #[must_use]
    pub const fn new(workers: usize) -> Self {
        Self { workers }
    }

    /// Returns how many runs of one tenant are under way at most: a quarter of the workers, and one of fewer than
    /// eight, even while no other tenant has a job. A run may hold its worker for seconds while it waits for the API
    /// server, and other tenants would wait for it, whatever their turn.
    #[must_use]
    pub const fn runs_of_tenant(self) -> usize {
        if self.workers < 8 { 1 } else { self.workers / 4 }
    }

    /// Returns how many jobs of one tenant are under way at most. Beside its runs these are as many deliveries, which
    /// hold no worker.
    #[must_use]
    pub const fn jobs_of_tenant(self) -> usize {
        self.runs_of_tenant().saturating_mul(2)
    }

    /// Returns how many workers run only light tenants' jobs: one, if there is another.
    pub(super) const fn kept(self) -> usize {
        if self.workers < 2 { 0 } else { 1 }
    }

    /// Returns how many workers are idle.
    pub(super) const fn idle(self, running: usize) -> usize {
        self.workers.saturating_sub(running)
    }
}

/// The time for which a tenant's latest runs held a worker, and their cost.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RecentRuns {
    /// The longest of the latest runs: a longer run sets it, and each shorter one reduces it by an eighth. `None`
    /// before the first run.
    held: Option<Duration>,
    /// The cost in nanoseconds at the time `since`; it drains from then on.
    cost: u64,
    since: Option<Instant>,
}

impl RecentRuns {
    pub(super) fn ran(&mut self, held: Duration, cost: u64, now: Instant) {
        self.held = Some(self.held.map_or(held, |longest| held.max(longest - longest / 8)));
        self.cost = self.cost(now).saturating_add(cost);
        self.since = Some(now);
    }

    fn cost(&self, now: Instant) -> u64 {
        let passed = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.cost.saturating_sub(nanos(passed) / DRAIN)
    }

    /// False before the first run: nothing is known.
    pub(super) fn is_light(&self, now: Instant) -> bool {
        self.held.is_some_and(|held| held <= LIGHT) && self.cost(now) <= nanos(CREDIT)
    }
}

#[cfg(test)]
mod tests;
