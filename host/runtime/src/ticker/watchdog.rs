//! How long the process ran without a tick of the epoch.
//!
//! A process that is throttled by a cgroup, stopped by a signal or suspended with its machine has no ticks either, and
//! the clock continues meanwhile. The watchdog itself makes the difference: where it looks often, the process runs.

use std::time::Duration;

/// The most that passes between two looks of a process that runs. Of a longer time only this much counts: the rest may
/// have been one in which nothing of the process ran.
const STEP: Duration = Duration::from_millis(20);

/// Measures how long the process ran since the last tick. A run that waits for a tick calls [`Watchdog::look`] again
/// and again.
#[derive(Debug, Default)]
pub(super) struct Watchdog {
    /// The last tick that is known.
    tick: Duration,
    /// The last look.
    looked: Duration,
    ran: Duration,
}

impl Watchdog {
    /// Returns for how long at least the process ran since the tick at `tick`, as far as looks have shown. Both times
    /// are of one clock that continues while the process does not run.
    pub(super) fn look(&mut self, now: Duration, tick: Duration) -> Duration {
        if self.tick == tick {
            self.ran += now.saturating_sub(self.looked).min(STEP);
        } else {
            self.tick = tick;
            self.ran = Duration::ZERO;
        }
        self.looked = now;
        self.ran
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn time_in_which_the_process_did_not_run_does_not_count() {
        let mut watchdog = Watchdog::default();
        let tick = millis(1_000);
        assert_eq!(watchdog.look(millis(1_100), tick), millis(0), "the first look after a tick shows nothing");
        assert_eq!(watchdog.look(millis(1_110), tick), millis(10));
        assert_eq!(watchdog.look(millis(3_601_110), tick), millis(30), "an hour of which nothing is known");
        assert_eq!(watchdog.look(millis(3_601_120), tick), millis(40));
        let tick = millis(3_601_121);
        assert_eq!(watchdog.look(millis(7_000_000), tick), millis(0), "after the next tick");
    }

    #[test]
    fn a_process_with_little_processor_time_still_has_ticks() {
        let mut watchdog = Watchdog::default();
        // 10 ms of each 100: a look, later a tick.
        for period in 1..1_000 {
            let begun = millis(100 * period);
            assert_eq!(watchdog.look(begun, begun.saturating_sub(millis(95))), millis(0));
        }
    }

    #[test]
    fn looks_of_several_runs_at_once_do_not_add_up() {
        let mut watchdog = Watchdog::default();
        for look in 0..=1_000 {
            watchdog.look(Duration::from_micros(100 * look), millis(5));
        }
        assert_eq!(watchdog.look(millis(100), millis(5)), millis(100));
    }
}
