//! `metav1.Time` (RFC 3339 in UTC with whole seconds) to and from seconds since the epoch.

/// Formats seconds since the epoch, by the civil calendar.
pub(crate) fn format(seconds: i64) -> String {
    let day = seconds.div_euclid(86_400);
    let second = seconds.rem_euclid(86_400);
    // Days since 0000-03-01, so that a leap day is the last of its year; eras have 400 years.
    let day = day.saturating_add(719_468);
    let era = day.div_euclid(146_097);
    let of_era = day.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let date = of_year - (153 * shifted + 2) / 5 + 1;
    format!("{year:04}-{month:02}-{date:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Parses a time into seconds since the epoch; `None` for any other text.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let field = |range: std::ops::Range<usize>, most: i64| {
        let digits = text.get(range).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        digits.parse::<i64>().ok().filter(|number| *number <= most)
    };
    let (year, month, date) = (field(0..4, 9999)?, field(5..7, 12)?, field(8..10, 31)?);
    let (hour, minute, second) = (field(11..13, 23)?, field(14..16, 59)?, field(17..19, 60)?);
    if month == 0 || date == 0 || !text.ends_with('Z') {
        return None;
    }
    let year = year - i64::from(month <= 2);
    let shifted = (month + 9) % 12;
    let of_year = (153 * shifted + 2) / 5 + date - 1;
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let day = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(day * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_and_read_back_also_around_leap_days() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_767_225_600, "2026-01-01T00:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(format(seconds), text);
            assert_eq!(parse(text), Some(seconds));
        }
        for wrong in ["", "yesterday", "2026-13-01T00:00:00Z", "2026-01-01", "2026-01-01T00:00:00+01:00", "+026-01-01T"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
