//! Log lines about failing lists and watches: each new reason at once, and a repeated reason in growing intervals.

use podium_engine::intervals::Intervals;
use tokio::time::Instant;

/// The most reasons that are distinguished; further ones are logged together.
const MAX_REASONS: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Failures {
    intervals: Intervals,
    reasons: Vec<String>,
}

impl Failures {
    /// Records a failure. Returns the number of failures since the last log line, or `None` if no log line is due.
    pub(super) fn failed(&mut self, reason: &str, now: Instant) -> Option<u64> {
        let is_new = self.reasons.len() < MAX_REASONS && !self.reasons.iter().any(|known| known == reason);
        let unlogged = if is_new { self.intervals.end() } else { 0 };
        if is_new {
            self.reasons.push(reason.to_owned());
        }
        self.intervals.occurred(now).map(|count| count + unlogged)
    }

    /// Records that a watch works. Returns false if there was no failure before.
    pub(super) fn end(&mut self) -> bool {
        self.intervals.end();
        !std::mem::take(&mut self.reasons).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_new_reason_is_logged_at_once_and_a_known_one_rarely() {
        let begun = Instant::now();
        let mut failures = Failures::default();
        let mut at = |reason: &str, second| failures.failed(reason, begun + Duration::from_secs(second));
        assert_eq!([at("refused", 0), at("refused", 1), at("refused", 2)], [Some(1), None, None]);
        assert_eq!([at("403", 3), at("403", 4), at("refused", 5), at("403", 13)], [Some(3), None, None, Some(3)]);
        assert!(failures.end() && !failures.end());
        assert_eq!(failures.failed("refused", begun + Duration::from_secs(14)), Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn reasons_that_are_never_the_same_are_bounded() {
        let mut failures = Failures::default();
        let lines = (0..1_000).filter(|at| failures.failed(&format!("port {at}"), Instant::now()).is_some());
        assert_eq!(lines.count(), MAX_REASONS);
    }
}
