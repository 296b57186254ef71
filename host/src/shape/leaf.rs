//! What is a Pod's own within what it shares with others: times, uids, addresses, its name. Each has one text and one
//! short encoding, and nothing is a leaf whose text does not come back byte for byte.
//!
//! In the key of a part a leaf stands as a zero byte and its kind. JSON holds no zero byte, so there is no other.

use std::fmt::Write;

/// Stands before a kind in a key.
pub(super) const MARK: u8 = 0;
/// Times count from here, in seconds of the epoch: numbers stay short for the Pods of these years.
const EPOCH: i64 = 1_700_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// The Pod's name; nothing is kept.
    Name = 1,
    /// The Pod's uid; nothing is kept.
    Uid,
    /// The Pod's resourceVersion; nothing is kept.
    Revision,
    /// RFC 3339 in UTC to the second: the seconds since the time before it in the part.
    Time,
    /// Lower case, with hyphens: 16 bytes.
    Uuid,
    /// Dotted decimal: 4 bytes.
    Ipv4,
    /// 64 lower-case hexadecimal digits: 32 bytes.
    Digest,
    /// Five lower-case letters or digits at the end of a text, as the API server generates: as they are.
    Suffix,
    /// A text of at most 255 bytes without escapes: its length and itself.
    Text,
    /// A number that is not negative and fits an i32.
    Count,
    /// The number at the end of the Pod's name, as a StatefulSet's Pods have; nothing is kept.
    Ordinal,
    /// The number before the last part of the Pod's name, by which the runs of a CronJob differ; nothing is kept.
    Run,
    /// The same text as an earlier leaf of the part, whose place follows; nothing is kept.
    Same,
    /// In the part around spec and status: here one of them goes; 0 or 1 follows. Not a leaf.
    Part,
}

impl Kind {
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        use Kind::*;
        const ALL: [Kind; 14] =
            [Name, Uid, Revision, Time, Uuid, Ipv4, Digest, Suffix, Text, Count, Ordinal, Run, Same, Part];
        ALL.get(usize::from(byte).checked_sub(1)?).copied()
    }

    /// True when its value is among those that are kept.
    pub(super) fn is_kept(self) -> bool {
        use Kind::*;
        !matches!(self, Name | Uid | Revision | Ordinal | Run | Same | Part)
    }

    /// True when a byte follows it in the key.
    pub(super) fn has_place(self) -> bool {
        matches!(self, Self::Same | Self::Part)
    }
}

/// A value as kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Text(&'a str),
    Revision(u64),
    /// Seconds of the epoch.
    Time(i64),
    Uuid(&'a [u8; 16]),
    Ipv4([u8; 4]),
    Digest(&'a [u8]),
    Count(u32),
}

/// Reads one part's values in turn.
#[derive(Debug, Clone)]
pub(super) struct Values<'a> {
    own: &'a [u8],
    time: i64,
}

impl<'a> Values<'a> {
    pub(super) fn new(own: &'a [u8]) -> Self {
        Self { own, time: EPOCH }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.own.split_at_checked(count)?;
        self.own = rest;
        Some(taken)
    }

    /// The next value; `kind` is none of those of which nothing is kept.
    pub(super) fn next(&mut self, kind: Kind) -> Option<Value<'a>> {
        Some(match kind {
            Kind::Time => {
                let (delta, rest) = varint(self.own)?;
                self.own = rest;
                self.time = self.time.wrapping_add(unzigzag(delta));
                Value::Time(self.time)
            }
            Kind::Uuid => Value::Uuid(self.take(16)?.first_chunk()?),
            Kind::Digest => Value::Digest(self.take(32)?),
            Kind::Ipv4 => Value::Ipv4(*self.take(4)?.first_chunk()?),
            Kind::Suffix => Value::Text(str::from_utf8(self.take(5)?).ok()?),
            Kind::Text => {
                let length = usize::from(*self.take(1)?.first()?);
                Value::Text(str::from_utf8(self.take(length)?).ok()?)
            }
            Kind::Count => {
                let (count, rest) = varint(self.own)?;
                self.own = rest;
                Value::Count(u32::try_from(count).ok()?)
            }
            Kind::Name | Kind::Uid | Kind::Revision | Kind::Ordinal | Kind::Run | Kind::Same | Kind::Part => {
                return None;
            }
        })
    }
}

/// Collects one part's values.
#[derive(Debug, Default)]
pub(super) struct Own {
    pub(super) bytes: Vec<u8>,
    time: Option<i64>,
}

impl Own {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.time = None;
    }

    pub(super) fn push(&mut self, value: Value<'_>) {
        match value {
            Value::Time(time) => {
                put_varint(zigzag(time.wrapping_sub(self.time.unwrap_or(EPOCH))), &mut self.bytes);
                self.time = Some(time);
            }
            Value::Uuid(bytes) => self.bytes.extend_from_slice(bytes),
            Value::Digest(bytes) => self.bytes.extend_from_slice(bytes),
            Value::Ipv4(bytes) => self.bytes.extend_from_slice(&bytes),
            Value::Count(count) => put_varint(u64::from(count), &mut self.bytes),
            Value::Text(_) | Value::Revision(_) => {}
        }
    }

    pub(super) fn push_suffix(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
    }

    /// False, and nothing done, when the text is too long.
    pub(super) fn push_text(&mut self, text: &[u8]) -> bool {
        let Ok(length) = u8::try_from(text.len()) else { return false };
        self.bytes.push(length);
        self.bytes.extend_from_slice(text);
        true
    }
}

impl Value<'_> {
    /// Appends the text that it was read from.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
            Self::Revision(number) => write_number(number, out),
            Self::Count(number) => write_number(u64::from(number), out),
            Self::Time(seconds) => out.extend_from_slice(&time_text(seconds)),
            Self::Ipv4([a, b, c, d]) => {
                for (at, byte) in [a, b, c, d].into_iter().enumerate() {
                    if at > 0 {
                        out.push(b'.');
                    }
                    write_number(u64::from(byte), out);
                }
            }
            Self::Uuid(bytes) => out.extend_from_slice(&uuid_text(bytes)),
            Self::Digest(bytes) => bytes.iter().for_each(|byte| out.extend_from_slice(&hex(*byte))),
        }
    }

    /// How many bytes [`Self::write`] appends.
    pub(super) fn len(self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Time(_) => 20,
            Self::Uuid(_) => 36,
            Self::Digest(_) => 64,
            Self::Ipv4(bytes) => 3 + bytes.into_iter().map(|byte| digits(u64::from(byte))).sum::<usize>(),
            Self::Count(number) => digits(u64::from(number)),
            Self::Revision(number) => digits(number),
        }
    }
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

fn write_number(number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut left = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

fn hex(byte: u8) -> [u8; 2] {
    let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
    [digit(byte >> 4), digit(byte & 15)]
}

/// The value of each lower-case hexadecimal digit, and this of all other bytes.
const NO_DIGIT: u8 = 0xff;
const DIGITS: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut digit = 0;
    while digit < 16 {
        digits[b"0123456789abcdef"[digit as usize] as usize] = digit;
        digit += 1;
    }
    digits
};

/// None where one of them is no digit.
fn unhex(high: u8, low: u8) -> Option<u8> {
    let (high, low) = (DIGITS[usize::from(high)], DIGITS[usize::from(low)]);
    ((high | low) != NO_DIGIT).then_some(high << 4 | low)
}

/// Pairs of lower-case hexadecimal digits to bytes.
pub(super) fn digest(text: &[u8; 64]) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(text.as_chunks::<2>().0) {
        *byte = unhex(pair[0], pair[1])?;
    }
    Some(bytes)
}

/// The text that [`uuid`] reads.
pub(crate) fn uuid_text(bytes: &[u8; 16]) -> [u8; 36] {
    let mut text = [b'-'; 36];
    let mut at = 0;
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            at += 1;
        }
        [text[at], text[at + 1]] = hex(*byte);
        at += 2;
    }
    text
}

/// A uid of lower-case hexadecimal digits with hyphens to bytes.
pub(crate) fn uuid(text: &[u8; 36]) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    let mut at = 0;
    for (index, byte) in bytes.iter_mut().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            if text[at] != b'-' {
                return None;
            }
            at += 1;
        }
        *byte = unhex(text[at], text[at + 1])?;
        at += 2;
    }
    Some(bytes)
}

pub(super) fn ipv4(text: &[u8]) -> Option<[u8; 4]> {
    let mut bytes = [0; 4];
    let mut parts = text.split(|byte| *byte == b'.');
    for byte in &mut bytes {
        let part = parts.next()?;
        if part.is_empty() || part.len() > 3 || (part.len() > 1 && part[0] == b'0') {
            return None;
        }
        let number = part
            .iter()
            .try_fold(0_u32, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u32::from(digit - b'0')))?;
        *byte = u8::try_from(number).ok()?;
    }
    parts.next().is_none().then_some(bytes)
}

/// The number that a name ends in, behind its last hyphen.
pub(super) fn ordinal(name: &[u8]) -> Option<&[u8]> {
    let hyphen = name.iter().rposition(|byte| *byte == b'-')?;
    let digits = &name[hyphen + 1..];
    (!digits.is_empty() && digits.iter().all(u8::is_ascii_digit)).then_some(digits)
}

/// The number between the last two hyphens of a name, if it is as long as the minutes of the epoch with which a CronJob
/// names its Jobs.
pub(super) fn run(name: &[u8]) -> Option<&[u8]> {
    const MINUTES: usize = 8;
    let last = name.iter().rposition(|byte| *byte == b'-')?;
    let digits = &name[last.checked_sub(MINUTES)?..last];
    let hyphen = name.get(last.checked_sub(MINUTES + 1)?) == Some(&b'-');
    (hyphen && digits.iter().all(u8::is_ascii_digit)).then_some(digits)
}

/// What [`Kind::Suffix`] may be.
pub(super) fn is_suffix(text: &[u8]) -> bool {
    text.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// What [`Kind::Text`] may be, but for its length.
pub(super) fn is_text(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\'))
}

/// What [`Kind::Count`] may be, and how many digits it has.
pub(super) fn count(text: &[u8]) -> Option<(u32, usize)> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let count = u32::try_from(number(&text[..digits])?).ok()?;
    (count <= i32::MAX as u32).then_some((count, digits))
}

/// Decimal without leading zeros.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 || (text.len() > 1 && text[0] == b'0') {
        return None;
    }
    text.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// `2026-01-02T03:04:05Z` to seconds of the epoch; none for any other form, and for a day or an hour that is not.
pub(super) fn time(text: &[u8; 20]) -> Option<i64> {
    let two = |at: usize| {
        let (tens, ones) = (text[at].wrapping_sub(b'0'), text[at + 1].wrapping_sub(b'0'));
        (tens < 10 && ones < 10).then(|| i64::from(tens) * 10 + i64::from(ones))
    };
    let separated = text[4] == b'-' && text[7] == b'-' && text[10] == b'T' && text[13] == b':' && text[16] == b':';
    if !separated || text[19] != b'Z' {
        return None;
    }
    let (year, month, day) = (two(0)? * 100 + two(2)?, two(5)?, two(8)?);
    let (hour, minute, second) = (two(11)?, two(14)?, two(17)?);
    if year < 1 || !(1..=12).contains(&month) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // The 30th of February is another day.
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = [31, 28 + i64::from(leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month as usize - 1];
    (1..=length).contains(&day).then(|| days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// The inverse of [`time`] for the years 1 to 9999.
pub(super) fn time_text(seconds: i64) -> [u8; 20] {
    let (year, month, day) = date(seconds.div_euclid(86_400));
    let left = seconds.rem_euclid(86_400);
    let mut text = *b"0000-00-00T00:00:00Z";
    let mut put = |at: usize, number: i64| {
        text[at] = b'0' + (number / 10 % 10) as u8;
        text[at + 1] = b'0' + (number % 10) as u8;
    };
    put(0, year / 100);
    put(2, year % 100);
    put(5, month);
    put(8, day);
    put(11, left / 3_600);
    put(14, left / 60 % 60);
    put(17, left % 60);
    text
}

/// Days since 1970-01-01 of a day of the proleptic Gregorian calendar; Howard Hinnant's `days_from_civil`.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The inverse of [`days`]; Howard Hinnant's `civil_from_days`.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Seven bits a byte, least first.
pub(crate) fn put_varint(mut number: u64, out: &mut impl Extend<u8>) {
    while number >= 0x80 {
        out.extend([number as u8 | 0x80]);
        number >>= 7;
    }
    out.extend([number as u8]);
}

pub(crate) fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (at, byte) in bytes.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((number, &bytes[at + 1..]));
        }
    }
    None
}

/// The text of a sentinel: what stands for leaf `at` where the way of its value through a decoder is traced.
pub(super) fn sentinel_text(at: usize) -> String {
    let mut text = String::with_capacity(18);
    // Writing to a String cannot fail.
    let _ = write!(text, "~leaf-of-pod~{at:05}");
    text
}

/// As [`sentinel_text`] for times: in the year 2096, in seconds.
pub(super) fn sentinel_time(at: usize) -> i64 {
    4_000_000_000 + at as i64
}

/// As [`sentinel_text`] for counts.
pub(super) fn sentinel_count(at: usize) -> u32 {
    0x6d5a_0000 + at as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(value: Value<'_>) -> String {
        let mut out = Vec::new();
        value.write(&mut out);
        assert_eq!(out.len(), value.len());
        String::from_utf8(out).unwrap()
    }

    proptest! {
        #[test]
        fn a_time_comes_back_as_it_was(seconds in -62_135_596_800..253_402_300_800_i64) {
            let text = time_text(seconds);
            prop_assert_eq!(time(&text), Some(seconds));
            let parsed: jiff::Timestamp = str::from_utf8(&text).unwrap().parse().unwrap();
            prop_assert_eq!(parsed.as_second(), seconds);
        }

        #[test]
        fn what_is_taken_for_a_leaf_is_written_as_it_was_read(text in "[0-9a-f.:TZ-]{0,40}") {
            let bytes = text.as_bytes();
            if let Some(value) = bytes.first_chunk::<20>().filter(|_| bytes.len() == 20).and_then(time) {
                prop_assert_eq!(&written(Value::Time(value)), &text);
            }
            if let Some(value) = ipv4(bytes) {
                prop_assert_eq!(&written(Value::Ipv4(value)), &text);
            }
            if let Some(value) = number(bytes) {
                prop_assert_eq!(&written(Value::Revision(value)), &text);
            }
        }

        #[test]
        fn values_come_back_in_their_order(times in prop::collection::vec(-62_135_596_800..253_402_300_800_i64, 0..6), id in any::<[u8; 16]>(), hash in any::<[u8; 32]>(), address in any::<[u8; 4]>(), count in any::<u32>()) {
            let mut own = Own::default();
            times.iter().for_each(|time| own.push(Value::Time(*time)));
            for value in [Value::Uuid(&id), Value::Digest(&hash), Value::Ipv4(address), Value::Count(count)] {
                own.push(value);
            }
            prop_assert!(own.push_text(b"node-1"));
            let mut values = Values::new(&own.bytes);
            for time in times {
                prop_assert_eq!(values.next(Kind::Time), Some(Value::Time(time)));
            }
            prop_assert_eq!(values.next(Kind::Uuid), Some(Value::Uuid(&id)));
            prop_assert_eq!(values.next(Kind::Digest), Some(Value::Digest(&hash)));
            prop_assert_eq!(values.next(Kind::Ipv4), Some(Value::Ipv4(address)));
            prop_assert_eq!(values.next(Kind::Count), Some(Value::Count(count)));
            prop_assert_eq!(values.next(Kind::Text), Some(Value::Text("node-1")));
            prop_assert!(values.is_empty());
        }
    }

    #[test]
    fn uids_and_digests_come_back_and_other_texts_are_none() {
        let text = b"0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
        assert_eq!(written(Value::Uuid(&uuid(text).unwrap())).as_bytes(), text);
        assert_eq!(uuid(b"0A1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"), None);
        assert_eq!(uuid(b"0a1b2c3d_4e5f_6071_8293_a4b5c6d7e8f9"), None);
        let text = [b'7'; 64];
        assert_eq!(written(Value::Digest(&digest(&text).unwrap())).as_bytes(), text);
        assert_eq!(digest(&[b'F'; 64]), None);
    }

    #[test]
    fn forms_that_would_not_come_back_are_no_leaves() {
        for text in ["2026-02-30T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01t00:00:00Z", "0000-01-01T00:00:00Z"] {
            assert_eq!(time(text.as_bytes().first_chunk().unwrap()), None, "{text}");
        }
        for text in ["1.2.3", "1.2.3.4.5", "01.2.3.4", "1.2.3.256", "1..3.4", "a.b.c.d"] {
            assert_eq!(ipv4(text.as_bytes()), None, "{text}");
        }
        for text in ["", "01", "+1", "18446744073709551616"] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
    }
}
