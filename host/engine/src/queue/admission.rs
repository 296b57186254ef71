//! Memory of jobs: a job starts when the memory that its run may use is free, so no worker waits for memory.
//!
//! What a lane's jobs take is declared, not measured, and decided outside of the queue ([`Claims`]). Of the whole
//! budget the lanes of one tenant hold at most half. A job that does not fit does not hold up smaller ones, until it
//! has waited too long: then nothing starts that would keep it waiting.

use std::{collections::HashMap, fmt::Debug, hash::Hash, sync::Arc, time::Duration};

use tokio::time::Instant;

/// How many jobs of other lanes may start past a lane that waits for memory, and how long it may have waited, before
/// no more do. Runs take a millisecond or so; the time is for those that take seconds.
pub(super) const PATIENCE: (u32, Duration) = (32, Duration::from_secs(1));

/// What one job of a lane takes while it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Claim {
    /// Lanes with the same number share the half of the budget that a tenant may hold.
    pub tenant: u32,
    /// The most memory that the job's run may use.
    pub bytes: u64,
}

/// Names what the jobs of a lane take. Asked each time that a job may start, under the queue's lock.
pub trait Claims<L>: Debug + Send + Sync {
    /// Returns the claim of one job of the lane.
    fn claim(&self, lane: L) -> Claim;
}

/// The memory that all jobs together may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    bytes: u64,
}

impl Budget {
    /// A budget of so many bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self { bytes }
    }

    /// Returns the bytes that the jobs of one tenant may take together: half of the budget, also while no other tenant
    /// has a job, so that other tenants always find the other half. A larger job never starts.
    #[must_use]
    pub const fn of_tenant(self) -> u64 {
        self.bytes / 2
    }
}

/// Counts the memory of the jobs that the queue has given to workers.
#[derive(Debug)]
pub(super) struct Admission<L> {
    budget: Budget,
    claims: Arc<dyn Claims<L>>,
    taken: u64,
    /// Tenants that have something, by number.
    tenants: HashMap<u32, u64>,
    /// Lanes with a due job that did not fit, each once, in the order in which that was found.
    waiting: Vec<Waiting<L>>,
}

#[derive(Debug)]
struct Waiting<L> {
    lane: L,
    since: Instant,
    /// Jobs of other lanes that have started since.
    passed: u32,
}

/// What may not start because another lane has waited too long.
#[derive(Debug, Default)]
pub(super) struct Held {
    all: bool,
    tenants: Vec<u32>,
}

/// What a claim lacks.
enum Lack {
    Nothing,
    /// Its tenant has too much.
    OfTenant,
    OfBudget,
    /// More than its tenant may ever have.
    Forever,
}

impl<L: Copy + Eq + Hash> Admission<L> {
    pub(super) fn new(budget: Budget, claims: Arc<dyn Claims<L>>) -> Self {
        Self { budget, claims, taken: 0, tenants: HashMap::new(), waiting: Vec::new() }
    }

    fn lack(&self, claim: Claim) -> Lack {
        let of_tenant = self.tenants.get(&claim.tenant).copied().unwrap_or(0);
        if claim.bytes > self.budget.of_tenant() {
            Lack::Forever
        } else if of_tenant.saturating_add(claim.bytes) > self.budget.of_tenant() {
            Lack::OfTenant
        } else if self.taken.saturating_add(claim.bytes) > self.budget.bytes {
            Lack::OfBudget
        } else {
            Lack::Nothing
        }
    }

    /// Returns the lanes that have waited too long, the first to wait first.
    pub(super) fn overdue(&self, now: Instant) -> Vec<L> {
        let (passed, waited) = PATIENCE;
        let is_overdue = |of: &&Waiting<L>| of.passed >= passed || now.saturating_duration_since(of.since) >= waited;
        self.waiting.iter().filter(is_overdue).map(|waiting| waiting.lane).collect()
    }

    /// Takes what a job of the lane needs, if it is free and `held` does not keep it for another lane.
    pub(super) fn admit(&mut self, lane: L, held: &Held, now: Instant) -> Option<Claim> {
        let claim = self.claims.claim(lane);
        // A job without memory keeps no other waiting.
        let is_held = claim.bytes > 0 && (held.all || held.tenants.contains(&claim.tenant));
        if is_held || !matches!(self.lack(claim), Lack::Nothing) {
            if !self.waiting.iter().any(|waiting| waiting.lane == lane) {
                self.waiting.push(Waiting { lane, since: now, passed: 0 });
            }
            return None;
        }
        self.taken += claim.bytes;
        *self.tenants.entry(claim.tenant).or_default() += claim.bytes;
        self.waiting.retain(|waiting| waiting.lane != lane);
        for waiting in &mut self.waiting {
            waiting.passed = waiting.passed.saturating_add(1);
        }
        Some(claim)
    }

    /// Keeps free memory for an overdue lane that was not admitted.
    pub(super) fn hold(&self, lane: L, held: &mut Held) {
        let claim = self.claims.claim(lane);
        match self.lack(claim) {
            Lack::OfTenant => held.tenants.push(claim.tenant),
            Lack::OfBudget => held.all = true,
            // Another lane holds it up, or it can never be admitted.
            Lack::Nothing | Lack::Forever => {}
        }
    }

    pub(super) fn release(&mut self, claim: Claim) {
        self.taken -= claim.bytes;
        if let Some(taken) = self.tenants.get_mut(&claim.tenant) {
            *taken -= claim.bytes;
            if *taken == 0 {
                self.tenants.remove(&claim.tenant);
            }
        }
    }

    /// Forgets lanes that have nothing due any more.
    pub(super) fn keep(&mut self, has_due: impl Fn(L) -> bool) {
        self.waiting.retain(|waiting| has_due(waiting.lane));
    }
}

#[cfg(test)]
mod tests;
