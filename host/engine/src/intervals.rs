//! Intervals of repeated log lines: at once, then after 10 s, 30 s, 1 min, 2 min, and every 5 min. Each line has the
//! number of occurrences since the previous one.
//!
//! Pure: the caller passes the time and writes the line. One [`Intervals`] is for one message about one subject; a
//! caller with many subjects keeps one for each, and bounds their number.
//!
//! ```
//! # use podium_engine::intervals::Intervals;
//! # use tokio::time::Instant;
//! let mut failures = Intervals::new();
//! if let Some(count) = failures.occurred(Instant::now()) {
//!     tracing::warn!(count, "watch failed");
//! }
//! ```

use std::time::Duration;

use tokio::time::Instant;

/// The pauses between log lines. The last one repeats.
const PAUSES: [Duration; 5] = [
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(120),
    Duration::from_secs(300),
];
/// The time without an occurrence after which a new series starts, which is logged at once.
const QUIET: Duration = Duration::from_secs(300);

/// One series of equal log lines.
#[derive(Debug, Clone, Copy, Default)]
pub struct Intervals {
    series: Option<Series>,
}

#[derive(Debug, Clone, Copy)]
struct Series {
    last_occurrence: Instant,
    last_line: Instant,
    /// Index into [`PAUSES`] of the pause that must pass before the next line.
    pause: usize,
    /// Occurrences since the last line.
    unlogged: u64,
}

impl Intervals {
    /// Returns a series without occurrences.
    #[must_use]
    pub const fn new() -> Self {
        Self { series: None }
    }

    /// Records an occurrence. Returns the number of occurrences since the last line, including this one, if a line is
    /// due, and otherwise `None`.
    pub fn occurred(&mut self, now: Instant) -> Option<u64> {
        let Some(series) = self.series.as_mut().filter(|series| now < series.last_occurrence + QUIET) else {
            // Occurrences of an earlier series that were not logged are counted by the first line of the next one.
            let unlogged = self.end() + 1;
            self.series = Some(Series { last_occurrence: now, last_line: now, pause: 0, unlogged: 0 });
            return Some(unlogged);
        };
        series.last_occurrence = now;
        series.unlogged += 1;
        if now < series.last_line + PAUSES[series.pause] {
            return None;
        }
        series.last_line = now;
        series.pause = (series.pause + 1).min(PAUSES.len() - 1);
        Some(std::mem::take(&mut series.unlogged))
    }

    /// Ends the series, because the condition is over: the next occurrence is logged at once. Returns how many
    /// occurrences were not logged.
    pub fn end(&mut self) -> u64 {
        self.series.take().map_or(0, |series| series.unlogged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the seconds at which a line is due and its count, for an occurrence every `every` seconds until
    /// `until`.
    fn lines(intervals: &mut Intervals, begun: Instant, every: u64, until: u64) -> Vec<(u64, u64)> {
        let seconds = (0..=until).step_by(usize::try_from(every).unwrap());
        let due = |second| Some((second, intervals.occurred(begun + Duration::from_secs(second))?));
        seconds.filter_map(due).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn lines_are_due_after_growing_pauses_and_count_occurrences() {
        let mut intervals = Intervals::new();
        let due = lines(&mut intervals, Instant::now(), 1, 1_200);
        assert_eq!(due, [(0, 1), (10, 10), (40, 30), (100, 60), (220, 120), (520, 300), (820, 300), (1_120, 300)]);
        assert_eq!(intervals.end(), 80);
    }

    #[tokio::test(start_paused = true)]
    async fn an_occurrence_after_a_series_or_five_quiet_minutes_is_logged() {
        let begun = Instant::now();
        let at = |second| begun + Duration::from_secs(second);
        let mut intervals = Intervals::new();
        assert_eq!((intervals.occurred(at(0)), intervals.occurred(at(1))), (Some(1), None));
        assert_eq!(intervals.end(), 1);
        assert_eq!((intervals.occurred(at(2)), intervals.occurred(at(3))), (Some(1), None));
        assert_eq!(intervals.occurred(at(303)), Some(2), "the one that was not logged is counted");
        assert_eq!(intervals.occurred(at(304)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn occurrences_five_minutes_apart_are_all_logged() {
        let due = lines(&mut Intervals::new(), Instant::now(), 300, 1_500);
        assert_eq!(due.len(), 6, "{due:?}");
    }
}
