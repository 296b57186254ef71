//! Spaces actions on one thing: some at once, then one in a time. The latest value is never lost. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use podium_engine::throttle::{Bucket, Rate};
use tokio::time::Instant;

/// Things whose buckets are kept also when they are full again.
const KEPT: usize = 1_024;

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
    waiting: BTreeMap<K, (Instant, V)>,
    due: BTreeSet<(Instant, K)>,
}

impl<K: Ord + Clone, V> Spaced<K, V> {
    pub(super) fn new(Pace { at_once, seconds }: Pace) -> Self {
        let rate = Rate { per_second: 1, burst: at_once * seconds };
        Self { rate, cost: seconds, buckets: BTreeMap::new(), waiting: BTreeMap::new(), due: BTreeSet::new() }
    }

    /// Adds an action, or replaces the value of one that waits. Returns how long it waits.
    pub(super) fn add(&mut self, key: K, value: V, now: Instant) -> Duration {
        if self.buckets.len() >= KEPT {
            self.buckets.retain(|_, bucket| !bucket.wait(bucket.burst(), now).is_zero());
        }
        if let Some((due, held)) = self.waiting.get_mut(&key) {
            *held = value;
            return due.saturating_duration_since(now);
        }
        let bucket = self.buckets.entry(key.clone()).or_insert_with(|| Bucket::full(self.rate, now));
        let wait = bucket.take(self.cost, now);
        self.waiting.insert(key.clone(), (now + wait, value));
        self.due.insert((now + wait, key));
        wait
    }

    /// Returns when the next action is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Returns an action that is due.
    pub(super) fn due(&mut self, now: Instant) -> Option<(K, V)> {
        if self.next()? > now {
            return None;
        }
        let (_, key) = self.due.pop_first()?;
        let (_, value) = self.waiting.remove(&key)?;
        Some((key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_actions_are_due_at_once_and_then_one_every_20_seconds() {
        let mut spaced = Spaced::new(Pace { at_once: 3, seconds: 20 });
        let start = Instant::now();
        for number in 0..3 {
            assert!(spaced.add("a", number, start).is_zero(), "{number}");
            assert_eq!([spaced.due(start), spaced.due(start)], [Some(("a", number)), None]);
        }
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(spaced.add("a", 4, start), Duration::from_secs(20));
        assert_eq!(spaced.add("a", 5, after(5)), Duration::from_secs(15), "the same action, with the latest value");
        assert!(spaced.add("b", 6, start).is_zero(), "another thing");
        assert_eq!(
            [spaced.due(start), spaced.due(after(19)), spaced.due(after(20))],
            [Some(("b", 6)), None, Some(("a", 5))]
        );
        assert_eq!(spaced.add("a", 7, after(20)), Duration::from_secs(20));
    }

    #[test]
    fn full_buckets_are_dropped() {
        let mut spaced = Spaced::new(Pace { at_once: 1, seconds: 10 });
        let start = Instant::now();
        (0..KEPT).for_each(|number| _ = spaced.add(number, (), start));
        spaced.add(KEPT, (), start + Duration::from_secs(100));
        assert_eq!(spaced.buckets.len(), 1);
    }
}
