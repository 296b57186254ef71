//! Spaces actions on one thing: some at once, then one in a time. Tenants have the actions that are due in rotation.
//! The latest value is never lost. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use podium_engine::throttle::{Bucket, Rate, RoundRobin};
use podium_vocabulary::{Payer, PluginId};
use tokio::time::Instant;

/// Things whose buckets are kept also when they are full again; as many again as were not full, if those are more.
const KEPT: usize = 1_024;

/// A thing of a tenant.
pub(super) trait OfTenant: Ord + Clone {
    fn tenant(&self) -> Payer;
}

impl OfTenant for PluginId {
    fn tenant(&self) -> Payer {
        self.payer()
    }
}

/// How often there is an action on one thing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) at_once: u32,
    /// Those of one action afterwards.
    pub(super) seconds: u32,
}

/// The actions that are due, and those that wait.
pub(super) struct Spaced<K, V> {
    rate: Rate,
    /// The tokens of one action.
    cost: u32,
    buckets: BTreeMap<K, Bucket>,
    /// The number of buckets with which the full ones are dropped: twice those that were left the last time.
    most: usize,
    waiting: BTreeMap<K, (Instant, V)>,
    /// The times of those that wait, by tenant.
    due: BTreeMap<Payer, BTreeSet<(Instant, K)>>,
    turns: RoundRobin<Payer>,
}

impl<K: OfTenant, V> Spaced<K, V> {
    pub(super) fn new(Pace { at_once, seconds }: Pace) -> Self {
        let rate = Rate { per_second: 1, burst: at_once * seconds };
        let buckets = BTreeMap::new();
        let waiting = BTreeMap::new();
        let due = BTreeMap::new();
        Self { rate, cost: seconds, buckets, most: KEPT, waiting, due, turns: RoundRobin::default() }
    }

    /// Adds an action, or replaces the value of one that waits. Returns how long it waits.
    pub(super) fn add(&mut self, key: K, value: V, now: Instant) -> Duration {
        if self.buckets.len() >= self.most {
            self.buckets.retain(|_, bucket| !bucket.wait(bucket.burst(), now).is_zero());
            self.most = KEPT.max(2 * self.buckets.len());
        }
        if let Some((due, held)) = self.waiting.get_mut(&key) {
            *held = value;
            return due.saturating_duration_since(now);
        }
        let bucket = self.buckets.entry(key.clone()).or_insert_with(|| Bucket::full(self.rate, now));
        let wait = bucket.take(self.cost, now);
        self.waiting.insert(key.clone(), (now + wait, value));
        self.due.entry(key.tenant()).or_default().insert((now + wait, key));
        wait
    }

    /// Returns when the next action is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.values().filter_map(BTreeSet::first).map(|(due, _)| *due).min()
    }

    /// Returns an action that is due, of the tenant whose turn it is.
    pub(super) fn due(&mut self, now: Instant) -> Option<(K, V)> {
        let is_due = |waiting: &BTreeSet<(Instant, K)>| waiting.first().is_some_and(|(due, _)| *due <= now);
        let mut tenants: Vec<Payer> =
            self.due.iter().filter(|(_, waiting)| is_due(waiting)).map(|(tenant, _)| tenant.clone()).collect();
        self.turns.sort(&mut tenants);
        let tenant = tenants.into_iter().next()?;
        let waiting = self.due.get_mut(&tenant)?;
        let (_, key) = waiting.pop_first()?;
        if waiting.is_empty() {
            self.due.remove(&tenant);
        }
        self.turns.took(tenant);
        let (_, value) = self.waiting.remove(&key)?;
        Some((key, value))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use podium_vocabulary::Tenant;

    use super::*;

    impl<T: Ord + Clone> OfTenant for (&str, T) {
        fn tenant(&self) -> Payer {
            (Tenant::Namespace(self.0.into()), None)
        }
    }

    const A: (&str, char) = ("shop", 'a');
    const B: (&str, char) = ("shop", 'b');

    #[test]
    fn three_actions_are_due_at_once_and_then_one_every_20_seconds() {
        let mut spaced = Spaced::new(Pace { at_once: 3, seconds: 20 });
        let start = Instant::now();
        for number in 0..3 {
            assert!(spaced.add(A, number, start).is_zero(), "{number}");
            assert_eq!([spaced.due(start), spaced.due(start)], [Some((A, number)), None]);
        }
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(spaced.add(A, 4, start), Duration::from_secs(20));
        assert_eq!(spaced.add(A, 5, after(5)), Duration::from_secs(15), "the same action, with the latest value");
        assert!(spaced.add(B, 6, start).is_zero(), "another thing");
        assert_eq!(
            [spaced.due(start), spaced.due(after(19)), spaced.due(after(20))],
            [Some((B, 6)), None, Some((A, 5))]
        );
        assert_eq!(spaced.add(A, 7, after(20)), Duration::from_secs(20));
    }

    #[test]
    fn buckets_are_looked_through_when_they_have_doubled() {
        let mut spaced = Spaced::new(Pace { at_once: 1, seconds: 10 });
        let start = Instant::now();
        let later = start + Duration::from_secs(100);
        let mut add = |numbers: Range<usize>, at| {
            numbers.for_each(|number| _ = spaced.add(("shop", number), (), at));
            spaced.buckets.len()
        };
        assert_eq!(add(0..KEPT + 1, start), KEPT + 1, "none was full");
        assert_eq!(add(KEPT + 1..2 * KEPT, later), 2 * KEPT, "not with each");
        assert_eq!(add(2 * KEPT..2 * KEPT + 1, later), KEPT, "those of the start are gone");
    }

    #[test]
    fn tenants_have_their_actions_in_rotation() {
        let mut spaced = Spaced::new(Pace { at_once: 3, seconds: 20 });
        let start = Instant::now();
        let later = start + Duration::from_secs(1);
        (0..3).for_each(|number| _ = spaced.add(("loud", number), (), start));
        for (tenant, number) in [("shop", 0), ("bank", 0), ("shop", 1)] {
            spaced.add((tenant, number), (), later);
        }
        let due: Vec<_> = std::iter::from_fn(|| spaced.due(later)).map(|(key, _)| key).collect();
        assert_eq!(due, [("bank", 0), ("loud", 0), ("shop", 0), ("loud", 1), ("shop", 1), ("loud", 2)]);
    }

    #[test]
    fn full_buckets_are_dropped() {
        let mut spaced = Spaced::new(Pace { at_once: 1, seconds: 10 });
        let start = Instant::now();
        (0..KEPT).for_each(|number| _ = spaced.add(("shop", number), (), start));
        spaced.add(("shop", KEPT), (), start + Duration::from_secs(100));
        assert_eq!(spaced.buckets.len(), 1);
    }
}
