//! The time of day for all modules below `app`: the start in epoch milliseconds, plus tokio's clock, plus the
//! corrections that `app` sets when the system clock was set.
//!
//! Under paused time this clock is paused too.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use tokio::time::Instant;

/// The difference from the system clock that is ignored. Reading both clocks takes a moment, and conditions and
/// Events have whole seconds.
const TOLERANCE_MILLIS: i64 = 100;

/// A clock. All clones show the same time.
#[derive(Debug, Clone)]
pub struct Clock {
    start_millis: u64,
    start: Instant,
    /// Added to both, in milliseconds. Shared by all clones.
    correction: Arc<AtomicI64>,
}

impl Clock {
    /// Returns a clock that shows `start_millis` now.
    #[must_use]
    pub fn starting_at(start_millis: u64) -> Self {
        Self { start_millis, start: Instant::now(), correction: Arc::default() }
    }

    /// Returns epoch milliseconds.
    #[must_use]
    pub fn now_millis(&self) -> u64 {
        self.uncorrected().saturating_add_signed(self.correction.load(Relaxed))
    }

    /// Sets all clones to the present time of the system clock. Returns the change in milliseconds, which is 0 for a
    /// difference of up to 100 ms.
    ///
    /// The system clock and tokio's differ after the former was set, and after the machine was suspended, when
    /// tokio's clock stops.
    pub fn set(&self, now_millis: u64) -> i64 {
        let difference = |one: u64, other: u64| i64::try_from(i128::from(one) - i128::from(other)).unwrap_or_default();
        let change = difference(now_millis, self.now_millis());
        if change.abs() <= TOLERANCE_MILLIS {
            return 0;
        }
        self.correction.store(difference(now_millis, self.uncorrected()), Relaxed);
        change
    }

    fn uncorrected(&self) -> u64 {
        // This overflows after 584 million years.
        self.start_millis.saturating_add(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn every_clone_follows_a_clock_that_was_set() {
        let clock = Clock::starting_at(1_000_000);
        let other = clock.clone();
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!((clock.set(9_000_000), other.now_millis()), (7_995_000, 9_000_000));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(other.now_millis(), 9_001_000);
        assert_eq!((other.set(2_000), clock.now_millis()), (-8_999_000, 2_000));
        assert_eq!((clock.set(0), clock.now_millis()), (-2_000, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_difference_within_the_cost_of_reading_changes_nothing() {
        let clock = Clock::starting_at(1_000_000);
        assert_eq!((clock.set(1_000_100), clock.set(999_900), clock.now_millis()), (0, 0, 1_000_000));
        assert_eq!((clock.set(1_000_101), clock.now_millis()), (101, 1_000_101));
    }
}
