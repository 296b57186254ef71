//! How many effects of a kind are under way: few at a time, fewer of one tenant, and tenants in rotation. So a tenant
//! whose components take all of the compiler's time delays its own.

use std::collections::BTreeMap;

pub use podium_vocabulary::Payer as Taker;
use podium_vocabulary::PluginId;

/// Returns the tenant that waits for a plugin's effects.
#[must_use]
pub fn taker(plugin: &PluginId) -> Taker {
    plugin.payer()
}

/// The effects that are bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// Until the component's compilation has begun, because the component stays in memory until then.
    Fetch,
    /// With 1 or 2 GiB in the compiler's process.
    Compile,
    /// Runs on a few Pods.
    Probe,
}

impl Work {
    pub(crate) const ALL: [Self; 3] = [Self::Probe, Self::Compile, Self::Fetch];
}

/// The most effects of a kind that are under way.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// For all tenants together.
    pub all: usize,
    /// For one tenant.
    pub tenant: usize,
}

/// The effects of one kind that wait or are under way.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    bounds: Bounds,
    /// By the attempts of the effects under way.
    pub(crate) active: BTreeMap<u64, Taker>,
    /// In the order of their attempts, which grow.
    pub(crate) waiting: BTreeMap<u64, PluginId>,
    /// When a tenant that waits was last in turn.
    turns: BTreeMap<Taker, u64>,
    turn: u64,
}

impl Slots {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let (active, waiting, turns) = <_>::default();
        Self { bounds, active, waiting, turns, turn: 0 }
    }

    pub(crate) fn wait(&mut self, attempt: u64, plugin: &PluginId) {
        self.turn += 1;
        self.turns.entry(taker(plugin)).or_insert(self.turn);
        self.waiting.insert(attempt, plugin.clone());
    }

    /// Ends the wait of an effect.
    pub(crate) fn give_up(&mut self, attempt: u64) {
        if let Some(plugin) = self.waiting.remove(&attempt)
            && !self.waiting.values().any(|other| taker(other) == taker(&plugin))
        {
            self.turns.remove(&taker(&plugin));
        }
    }

    /// Ends an effect.
    pub(crate) fn end(&mut self, attempt: u64) {
        if let Some(taker) = self.active.remove(&attempt) {
            self.served(taker);
        }
    }

    /// The tenant's next effect waits behind those of others.
    fn served(&mut self, served: Taker) {
        self.turn += 1;
        if self.waiting.values().any(|plugin| taker(plugin) == served) {
            self.turns.insert(served, self.turn);
        } else {
            self.turns.remove(&served);
        }
    }

    /// Returns the plugin whose effect begins now, with its attempt.
    pub(crate) fn next(&mut self) -> Option<(u64, PluginId)> {
        if self.active.len() >= self.bounds.all {
            return None;
        }
        let of_tenant = |taker: &Taker| self.active.values().filter(|active| *active == taker).count();
        let free = self.waiting.iter().filter(|(_, plugin)| of_tenant(&taker(plugin)) < self.bounds.tenant);
        let (attempt, _) = free.min_by_key(|(_, plugin)| self.turns.get(&taker(plugin)))?;
        let (attempt, plugin) = self.waiting.remove_entry(&attempt.clone())?;
        self.active.insert(attempt, taker(&plugin));
        self.served(taker(&plugin));
        Some((attempt, plugin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(namespace: &str) -> PluginId {
        PluginId { namespace: Some(namespace.into()), name: "tidy".into() }
    }

    #[test]
    fn a_tenant_has_its_slots_and_tenants_take_them_in_rotation() {
        let mut slots = Slots::new(Bounds { all: 2, tenant: 1 });
        for (attempt, namespace) in (1..).zip(["loud", "loud", "loud", "shop", "bank"]) {
            slots.wait(attempt, &plugin(namespace));
        }
        let mut next = |ended: Option<u64>| {
            ended.into_iter().for_each(|attempt| slots.end(attempt));
            slots.next().map(|(attempt, _)| attempt)
        };
        assert_eq!([next(None), next(None), next(None)], [Some(1), Some(4), None], "two slots");
        assert_eq!(next(Some(1)), Some(5), "the second of loud is behind the other tenants");
        assert_eq!(next(Some(4)), Some(2));
        assert_eq!(next(Some(5)), None, "one slot of a tenant");
        slots.give_up(3);
        slots.end(2);
        assert_eq!(slots.next(), None, "the third does not wait any more");
        assert!(slots.active.is_empty() && slots.waiting.is_empty() && slots.turns.is_empty());
    }
}
