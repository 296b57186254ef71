//! Bounds on the deletions and last states that are kept for the plugins of a tenant, and those that exceeded them.

use podium_vocabulary::PodKey;

/// The most deletions and last states of one tenant. Its plugins have equal parts of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Last states of deletions on which a run did not settle. Beyond it the oldest ones are dropped; their deletions
    /// are delivered without.
    pub states: usize,
    /// Last states of deletions on which no run has ended yet. Beyond it the oldest ones are dropped too.
    pub waiting: usize,
    /// Deletions on which a run did not settle. Beyond it the oldest ones are given up.
    pub unsettled: usize,
    /// Deletions, including those that wait for their first run. Beyond it the oldest ones are given up.
    pub all: usize,
}

impl Default for Bounds {
    /// A key takes up to 1,060 bytes with its place in the queue: 265 MB for a tenant that is never done, 40 MB for one
    /// that never settles. A last state takes 460 bytes where the Pod shares its form with others, and twice its JSON
    /// where it shares nothing: 46 MB for 100,000 of the first kind, 23 MB for 5,000 Pods of the second of 2.2 KB.
    /// Plugins that wait for the same Pods share the last states. If a cluster of 150,000 Pods is deleted at once, a
    /// plugin may find 50,000 of them without their last states.
    fn default() -> Self {
        Self { states: 5_000, waiting: 100_000, unsettled: 50_000, all: 250_000 }
    }
}

impl Bounds {
    /// Returns the part of one of the plugins of a tenant.
    pub(super) fn of_one(self, plugins: usize) -> Self {
        let of_one = |bound: usize| (bound / plugins.max(1)).max(1);
        let Self { states, waiting, unsettled, all } = self;
        Self { states: of_one(states), waiting: of_one(waiting), unsettled: of_one(unsettled), all: of_one(all) }
    }
}

/// Deletions and last states that were dropped because they exceeded the [`Bounds`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Excess {
    /// How many last states were dropped.
    pub states: u64,
    /// Deletions that are not delivered any more.
    pub given_up: Vec<PodKey>,
}

impl Excess {
    /// Returns the number of last states and deletions.
    pub(super) fn count(&self) -> usize {
        usize::try_from(self.states).unwrap_or(usize::MAX).saturating_add(self.given_up.len())
    }

    pub(super) fn add(&mut self, other: Self) {
        self.states += other.states;
        self.given_up.extend(other.given_up);
    }
}

/// Tombstones that are kept for one plugin now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Last states of deletions on which a run did not settle.
    pub states: usize,
    /// Last states of deletions on which no run has ended yet.
    pub waiting: usize,
    /// Deletions on which a run did not settle.
    pub unsettled: usize,
    /// Deletions, including those that wait for their first run.
    pub all: usize,
}
