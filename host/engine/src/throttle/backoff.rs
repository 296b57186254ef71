//! Waits after consecutive failures: doubled after each one, up to a bound, with jitter from the caller's seed.
//!
//! Pure. Callers count the failures, wait, and handle the API server's Retry-After. No crate is used, because
//! randomness comes from a seed: a simulation repeats its waits.

use std::time::Duration;

use rand::Rng;

/// The bounds of the waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The longest wait after the first failure.
    pub first: Duration,
    /// The longest wait.
    pub most: Duration,
}

impl Default for Backoff {
    /// Returns the bounds for runs: from 30 ms, whose shortest jitter leaves the watch 15 ms to catch up after a
    /// conflict, to 5 min. Whatever the jitter, a key that always fails has at most 10 runs in its first 10 s.
    fn default() -> Self {
        Self { first: Duration::from_millis(30), most: Duration::from_secs(300) }
    }
}

impl Backoff {
    /// Returns the wait after this number of failures in a row: `first` after one failure, doubled by each further one,
    /// at most `most`.
    #[must_use]
    pub fn doubled(&self, failures: u32) -> Duration {
        self.first.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(self.most)
    }

    /// Returns a wait between half of [`Self::doubled`] and all of it, so that clients that failed at the same moment
    /// do not retry at the same moment, even at the longest wait.
    pub fn delay(&self, failures: u32, random: &mut impl Rng) -> Duration {
        let doubled = self.doubled(failures);
        random.random_range(doubled / 2..=doubled)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{SeedableRng, rngs::SmallRng};

    use super::*;

    #[test]
    fn waits_double_up_to_the_bound_after_however_many_failures() {
        let backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(10) };
        let seconds = [0, 1, 2, 3, 4, 5, 33, u32::MAX].map(|failures| backoff.doubled(failures).as_secs());
        assert_eq!(seconds, [1, 1, 2, 4, 8, 10, 10, 10]);
    }

    #[test]
    fn delays_spread_over_half_of_the_wait_and_repeat_with_the_seed() {
        let backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(10) };
        let delays = |seed| {
            let mut random = SmallRng::seed_from_u64(seed);
            (0..1_000).map(|_| backoff.delay(9, &mut random)).collect::<Vec<_>>()
        };
        let least = delays(1).into_iter().min();
        let most = delays(1).into_iter().max();
        assert!((Some(Duration::from_millis(5_000))..Some(Duration::from_millis(5_100))).contains(&least), "{least:?}");
        assert!((Some(Duration::from_millis(9_900))..=Some(Duration::from_secs(10))).contains(&most), "{most:?}");
        assert_eq!(delays(7), delays(7));
        assert_ne!(delays(7), delays(8));
    }

    proptest! {
        #[test]
        fn each_wait_is_between_half_and_all_of_a_doubled_one_that_never_shrinks(
            first in 1..10_000_u64,
            factor in 1..1_000_u64,
            failures in 0..40_u32,
            seed in any::<u64>(),
        ) {
            let millis = Duration::from_millis;
            let backoff = Backoff { first: millis(first), most: millis(first * factor) };
            let doubled = backoff.doubled(failures);
            prop_assert!(backoff.first <= doubled && doubled <= backoff.most);
            prop_assert!(doubled <= backoff.doubled(failures + 1));
            let delay = backoff.delay(failures, &mut SmallRng::seed_from_u64(seed));
            prop_assert!(doubled / 2 <= delay && delay <= doubled);
        }
    }
}
