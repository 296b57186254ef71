//! Seconds since the epoch as the API writes them, and read back.

use podium_wire::Timestamp;

/// Formats a time; one beyond the year 9999 becomes the nearest one within.
pub(crate) fn format(seconds: i64) -> String {
    Timestamp(seconds.saturating_mul(1000)).to_string()
}

/// Parses a time without its fraction of a second; `None` for any other text.
pub(crate) fn parse(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(|time| time.0.div_euclid(1000))
}
