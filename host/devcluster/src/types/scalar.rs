//! The types with their own JSON decoders in Go: times, quantities and base64.

use jiff::Timestamp;

/// The layout of RFC 3339 with Go's names of its elements and their digits.
const LAYOUT: [(&str, usize); 11] = [
    ("2006", 4),
    ("-", 0),
    ("01", 2),
    ("-", 0),
    ("02", 2),
    ("T", 0),
    ("15", 2),
    (":", 0),
    ("04", 2),
    (":", 0),
    ("05", 2),
];
pub(super) const QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Formats a time like Go: in UTC, in seconds or microseconds.
pub(super) fn time(text: &str, micro: bool) -> Result<String, String> {
    let layout = if micro { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
    match unparsed(text, micro) {
        Some(Unparsed::Text(rest, element)) => {
            return Err(format!("parsing time \"{text}\" as \"{layout}\": cannot parse \"{rest}\" as \"{element}\""));
        }
        Some(Unparsed::Range(what)) => return Err(format!("parsing time \"{text}\": {what} out of range")),
        None => {}
    }
    let time: Timestamp = text.parse().map_err(|_| format!("parsing time \"{text}\": day out of range"))?;
    let form = if micro { "%Y-%m-%dT%H:%M:%S%.6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Ok(time.strftime(form).to_string())
}

/// Why a text is not a time.
enum Unparsed<'a> {
    /// The text does not match the layout: the text from the mismatch on, and the element of the layout expected there.
    Text(&'a str, &'static str),
    /// A number out of range.
    Range(&'static str),
}

fn unparsed(text: &str, micro: bool) -> Option<Unparsed<'_>> {
    let mut rest = text;
    for (element, digits) in LAYOUT {
        let fits = match digits {
            0 => rest.strip_prefix(element),
            digits => {
                rest.get(..digits).filter(|part| part.bytes().all(|b| b.is_ascii_digit())).map(|_| &rest[digits..])
            }
        };
        let Some(left) = fits else { return Some(Unparsed::Text(rest, element)) };
        let number: u32 = rest.get(..digits).and_then(|digits| digits.parse().ok()).unwrap_or_default();
        match element {
            "01" if !(1..=12).contains(&number) => return Some(Unparsed::Range("month")),
            "15" if number > 23 => return Some(Unparsed::Range("hour")),
            "04" if number > 59 => return Some(Unparsed::Range("minute")),
            "05" if number > 59 => return Some(Unparsed::Range("second")),
            _ => rest = left,
        }
    }
    let fraction = rest.strip_prefix('.').map_or(0, |rest| rest.bytes().take_while(u8::is_ascii_digit).count());
    if micro && fraction != 6 {
        return Some(Unparsed::Text(rest, ".000000"));
    }
    let zone = if fraction == 0 { rest } else { &rest[fraction + 1..] };
    let offset = zone.strip_prefix(['+', '-']).is_some_and(|zone| {
        zone.len() == 5 && zone.bytes().enumerate().all(|(i, b)| if i == 2 { b == b':' } else { b.is_ascii_digit() })
    });
    (zone != "Z" && !offset).then_some(Unparsed::Text(zone, "Z07:00"))
}

/// Returns an error if the text is not a quantity.
pub(super) fn quantity(text: &str) -> Result<(), String> {
    let number = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
    let (digits, suffix) = number.split_at(end);
    if digits.matches('.').count() > 1 || !digits.contains(|c: char| c.is_ascii_digit()) {
        return Err(QUANTITY.into());
    }
    let exponent = suffix.strip_prefix(['e', 'E']).map(|e| e.strip_prefix(['+', '-']).unwrap_or(e));
    let scaled = exponent.is_some_and(|e| !e.is_empty() && e.bytes().all(|b| b.is_ascii_digit()));
    let known = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if scaled || known.contains(&suffix) {
        return Ok(());
    }
    let letters = suffix.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
    let fits = letters.strip_prefix(['+', '-']).unwrap_or(letters).bytes().all(|b| b.is_ascii_digit());
    Err(if fits { "unable to parse quantity's suffix".into() } else { QUANTITY.into() })
}

/// Returns an error if the text is not base64 with padding. Line breaks are ignored, as in Go.
pub(super) fn base64(text: &str) -> Result<(), String> {
    let corrupt = |at: usize| Err(format!("illegal base64 data at input byte {at}"));
    let mut place = 0_usize;
    let mut padding = 0_usize;
    for (at, byte) in text.bytes().enumerate().filter(|(_, byte)| !matches!(byte, b'\r' | b'\n')) {
        match byte {
            b'=' if place % 4 >= 2 => padding += 1,
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' if padding == 0 => {}
            _ => return corrupt(at),
        }
        if padding > 2 {
            return corrupt(at);
        }
        place += 1;
    }
    if place.is_multiple_of(4) { Ok(()) } else { corrupt(text.len() - place % 4) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc_and_errors_have_the_words_of_go() {
        assert_eq!(time("2026-01-01T02:00:00.5+02:00", false).unwrap(), "2026-01-01T00:00:00Z");
        assert_eq!(time("2026-01-01T00:00:00.000001Z", true).unwrap(), "2026-01-01T00:00:00.000001Z");
        for (text, micro, rest) in [
            ("soon", false, "cannot parse \"soon\" as \"2006\""),
            ("2026-01-01", false, "cannot parse \"\" as \"T\""),
            ("2026-01-01T00:00:00", false, "cannot parse \"\" as \"Z07:00\""),
            ("2026-01-01T00:00:00Z", true, "cannot parse \"Z\" as \".000000\""),
            ("é026", false, "cannot parse \"é026\" as \"2006\""),
        ] {
            assert!(time(text, micro).unwrap_err().ends_with(rest), "{text}");
        }
        assert_eq!(time("2026-13-x", false).unwrap_err(), "parsing time \"2026-13-x\": month out of range");
        assert!(time("2026-02-31T00:00:00Z", false).unwrap_err().ends_with("day out of range"));
    }

    #[test]
    fn quantities_and_base64_are_checked_as_go_checks_them() {
        for fine in ["1", "+0.5", "100m", "1Gi", "1e3", "1E-3", ".5", "5."] {
            assert_eq!(quantity(fine), Ok(()), "{fine}");
        }
        for bad in ["", "x", "1.2.3", "-", "1Q", "1 Gi"] {
            assert_eq!(quantity(bad), Err(QUANTITY.into()), "{bad}");
        }
        assert_eq!(quantity("1GG"), Err("unable to parse quantity's suffix".into()));
        assert_eq!(base64("YWI=\n"), Ok(()));
        assert_eq!(base64("YW$="), Err("illegal base64 data at input byte 2".into()));
        assert_eq!(base64("YWI"), Err("illegal base64 data at input byte 0".into()));
    }
}
