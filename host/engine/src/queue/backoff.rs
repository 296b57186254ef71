//! How long to wait after failures in a row.

use std::time::Duration;

use rand::Rng;

/// Doubles from `first` to `most`, with jitter: client-go's shape, with a jitter that spreads a herd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub most: Duration,
}

impl Default for Backoff {
    /// From 20 ms, which is enough for the watch to catch up with a conflict, to 5 min. Whatever the jitter, an item
    /// that always fails has at most 10 runs in its first 10 s.
    fn default() -> Self {
        Self { first: Duration::from_millis(20), most: Duration::from_secs(300) }
    }
}

impl Backoff {
    /// The delay after the given number of failures, at least one: 75 % to 125 % of the doubled value, at most `most`.
    pub(super) fn delay(&self, failures: u32, random: &mut impl Rng) -> Duration {
        let doubled = self.first.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
        doubled.min(self.most).mul_f64(random.random_range(0.75..1.25)).min(self.most)
    }
}
