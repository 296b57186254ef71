//! How much is kept for a plugin of deletions that do not settle, and what did not fit.

use podium_pods::model::PodKey;

/// How much is kept for one plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Last states of deletions on which a run did not settle. Beyond it the oldest ones are dropped; their deletions
    /// are delivered without.
    pub states: usize,
    /// Deletions on which a run did not settle. Beyond it the oldest ones are given up.
    pub unsettled: usize,
    /// Deletions, including those that wait for their first run. Beyond it the oldest ones are given up.
    pub all: usize,
}

impl Default for Bounds {
    /// About 12 MB of last states and 25 MB of keys for a plugin that never settles. A cluster of 150,000 Pods can be
    /// deleted at once.
    fn default() -> Self {
        Self { states: 5_000, unsettled: 50_000, all: 250_000 }
    }
}

/// What did not fit into the [`Bounds`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Excess {
    /// How many last states were dropped.
    pub states: u64,
    /// Deletions that are not delivered any more.
    pub given_up: Vec<PodKey>,
}

impl Excess {
    pub(super) fn add(&mut self, other: Self) {
        self.states += other.states;
        self.given_up.extend(other.given_up);
    }
}

/// What is kept for one plugin now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// As in [`Bounds`].
    pub states: usize,
    pub unsettled: usize,
    pub all: usize,
}
