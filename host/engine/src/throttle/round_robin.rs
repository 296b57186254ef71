//! [`RoundRobin`]: turns among those that wait, whoever they are at the time.

/// The order of turns: ascending from the one that had the latest turn, and then from the first again.
#[derive(Debug)]
pub struct RoundRobin<T> {
    latest: Option<T>,
}

impl<T> Default for RoundRobin<T> {
    fn default() -> Self {
        Self { latest: None }
    }
}

impl<T: Ord> RoundRobin<T> {
    /// Sorts those that wait, the one whose turn it is first.
    pub fn sort(&self, waiting: &mut [T]) {
        waiting.sort_unstable();
        let had_theirs = waiting.partition_point(|of| self.latest.as_ref().is_some_and(|latest| of <= latest));
        waiting.rotate_left(had_theirs);
    }

    /// Records a turn.
    pub fn took(&mut self, turn: T) {
        self.latest = Some(turn);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Between two turns of one, no other that waits has more than one.
        #[test]
        fn whoever_waits_has_a_turn_before_another_has_two(rounds in prop::collection::vec(any::<u8>(), 1..100)) {
            let (mut turns, mut since) = (RoundRobin::default(), BTreeMap::<u8, BTreeMap<u8, usize>>::new());
            for round in rounds {
                let mut waiting: Vec<u8> = (0..8).filter(|of| round & 1 << of != 0).collect();
                since.retain(|of, _| waiting.contains(of));
                waiting.iter().for_each(|of| _ = since.entry(*of).or_default());
                turns.sort(&mut waiting);
                let Some(next) = waiting.first().copied() else { continue };
                since.remove(&next);
                for (of, others) in &mut since {
                    let count = others.entry(next).or_default();
                    *count += 1;
                    prop_assert!(*count <= 1, "{} waits, and {} had {} turns", of, next, count);
                }
                turns.took(next);
            }
        }
    }
}
