//! [`Remembered`]: the lanes and tenants of which the queue has something, so that their numbers stay in use.

use std::{collections::HashSet, hash::Hash};

use foldhash::quality::FixedState;
use tokio::time::Instant;

use super::Turns;

/// The lanes and tenants of which the queue has something.
#[derive(Debug, Clone, Default)]
pub struct Remembered<L> {
    /// Lanes that were not removed, and those whose jobs are not done.
    pub lanes: HashSet<L, FixedState>,
    /// Tenants of these lanes, and those that are in debt or whose tokens were used.
    pub tenants: HashSet<u32, FixedState>,
}

impl<L> Turns<L>
where
    L: Copy + Eq + Hash,
{
    /// Forgets the tenants without lanes and jobs that would begin again as they are now. A tenant whose last plugin is
    /// unloaded and loaded again therefore keeps its debts.
    pub(in super::super) fn remembered(&mut self, now: Instant) -> Remembered<L> {
        let used: HashSet<u32, FixedState> = self.lanes.values().map(|state| state.tenant).collect();
        let present = self.present;
        self.tenants.retain(|number, tenant| {
            let owes = !present.debt(tenant.account).is_zero() || !tenant.tokens.buckets.are_full(now);
            used.contains(number) || tenant.jobs > 0 || owes
        });
        Remembered { lanes: self.lanes.keys().copied().collect(), tenants: self.tenants.keys().copied().collect() }
    }
}
