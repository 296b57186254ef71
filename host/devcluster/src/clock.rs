//! The cluster's time: a start that the caller sets plus tokio's monotonic clock, so that paused time applies to it
//! too. The wall clock is not read here.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// A clock in milliseconds since the epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start_millis: i64,
    started: Instant,
}

impl Clock {
    pub(crate) fn new(start_millis: i64) -> Self {
        Self { start_millis, started: Instant::now() }
    }

    pub(crate) fn now_millis(&self) -> i64 {
        let elapsed = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.start_millis.saturating_add(elapsed)
    }

    /// Returns the instant at which this clock shows `millis`, or the present one if that is past.
    pub(crate) fn instant_of(&self, millis: i64) -> Instant {
        let offset = u64::try_from(millis.saturating_sub(self.start_millis)).unwrap_or(0);
        self.started + Duration::from_millis(offset)
    }

    /// Returns the present time as `metav1.Time`: whole seconds.
    pub(crate) fn now(&self) -> String {
        time(self.now_millis())
    }
}

/// Formats milliseconds since the epoch as `metav1.Time`.
pub(crate) fn time(millis: i64) -> String {
    timestamp(millis).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Parses an RFC 3339 time into milliseconds since the epoch; `None` for any other text.
pub(crate) fn parse(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

fn timestamp(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_kubernetes_writes_them_and_read_back() {
        assert_eq!(time(1_767_225_600_123), "2026-01-01T00:00:00Z");
        assert_eq!(parse("2026-01-01T00:00:00Z"), Some(1_767_225_600_000));
        assert_eq!(parse("yesterday"), None);
    }
}
