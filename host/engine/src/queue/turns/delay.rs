//! Whether the due keys of a lane wait for something else than a worker and their turn.

use std::hash::Hash;

use super::{Turns, tenant::Wait};

impl<L> Turns<L>
where
    L: Copy + Eq + Hash,
{
    /// True if the lane waits for tokens or memory. Lanes that would otherwise go after it do not wait for it then.
    pub(in super::super) fn is_delayed(&self, lane: L) -> bool {
        let Some(state) = self.lanes.get(&lane) else { return false };
        let group = self.tenants.get(&state.tenant).and_then(|tenant| tenant.groups.get(&state.bytes));
        let waits_for_memory = state.bytes > self.budget.of_tenant() || group.is_some_and(|it| it.wait != Wait::No);
        state.tokens.is_waiting() || waits_for_memory
    }
}
