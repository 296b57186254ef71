//! [`duration`]: a length of time as people write it in an annotation or a configuration.

use std::time::Duration;

use crate::{Error, Result};

/// The units and their seconds, longer names first. Go has no days.
const UNITS: [(&str, f64); 7] =
    [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3_600.0), ("d", 86_400.0)];

/// Parses a duration as Go and `kubectl` write it, such as "90s", "1h30m" or "1.5h", and days such as "7d". "0" needs
/// no unit.
///
/// # Errors
/// Returns a terminal error that names the text if it is none, and for a negative one.
pub fn duration(text: &str) -> Result<Duration> {
    parse(text).ok_or_else(|| {
        let shown: String = text.chars().take(64).collect();
        Error::terminal(format_args!("{shown:?} is no duration, such as 90s, 1h30m or 7d"))
    })
}

fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() || text.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, after) = rest.split_at(end);
        let end = after.find(|letter: char| !letter.is_ascii_lowercase()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        total = total.checked_add(part)?;
        rest = after;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_numbers_with_units_one_after_the_other() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("300ms", 300),
            ("90s", 90_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            (".5s", 500),
            ("2h45m30.5s", 9_930_500),
            ("7d", 604_800_000),
            ("1000us", 1),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn other_texts_are_terminal_errors_that_name_them() {
        for text in [
            "",
            " ",
            "5",
            "s",
            "-1s",
            "1 h",
            "1h ",
            "1H",
            "1w",
            "1.2.3s",
            "1h30",
            "1e9s",
            "inf",
            "1é",
            "99999999999999999999d",
        ] {
            let error = duration(text).unwrap_err();
            assert!(error.is_terminal() && error.message().starts_with(&format!("{text:?} is no duration")), "{error}");
        }
    }
}
