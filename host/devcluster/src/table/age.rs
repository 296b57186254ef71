//! Durations in kubectl's format.

use crate::clock;

/// Formats the time from `start` (RFC 3339) to now.
pub(super) fn since(start: &str, now_millis: i64) -> String {
    match clock::parse(start) {
        Some(start) => human((now_millis - start).max(0) / 1000),
        None => "<unknown>".into(),
    }
}

/// Formats seconds like client-go's `HumanDuration`: two units while the first is small.
pub(super) fn human(seconds: i64) -> String {
    let minutes = seconds / 60;
    let hours = seconds / 3600;
    let days = seconds / 86_400;
    let pair = |big: i64, unit: char, small: i64, smaller: char| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{smaller}") }
    };
    match seconds {
        ..=119 => format!("{seconds}s"),
        120..600 => pair(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => pair(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_prints_them() {
        for (seconds, text) in [
            (5, "5s"),
            (119, "119s"),
            (125, "2m5s"),
            (660, "11m"),
            (3 * 3600 + 60, "3h1m"),
            (10 * 3600, "10h"),
            (2 * 86_400, "2d"),
            (30 * 86_400, "30d"),
        ] {
            assert_eq!(human(seconds), text);
        }
    }
}
