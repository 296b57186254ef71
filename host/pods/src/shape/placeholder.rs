//! The kinds of placeholders, and the values of a Pod that are stored for them: times, uids, addresses, any string.
//! Each kind has a short encoding, from which the JSON comes back byte for byte.

use std::fmt::Write;

use super::json_string;

/// The first byte of a placeholder in the text of a skeleton. JSON never contains it.
pub(super) const PLACEHOLDER: u8 = 0;
/// Times are stored relative to this second since 1970, which keeps the numbers short.
const EPOCH: i64 = 1_700_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// The Pod's name; nothing is stored.
    Name = 1,
    /// The Pod's uid; nothing is stored.
    Uid,
    /// The Pod's resourceVersion; nothing is stored.
    Revision,
    /// A time as RFC 3339 in UTC to the second: the seconds since the time before it in the fragment.
    Time,
    /// A UUID in lower case with hyphens: 16 bytes.
    Uuid,
    /// An IPv4 address in dotted decimal: 4 bytes.
    Ipv4,
    /// 64 lower-case hexadecimal digits: 32 bytes.
    Digest,
    /// Five lower-case letters or digits at the end of a string, as the API server generates: as they are.
    Suffix,
    /// A node's name of at most 255 bytes without escapes, up to [`own_of_node`]: the length and the name.
    Text,
    /// A number from 0 to `i32::MAX`: a varint.
    Count,
    /// The number at the end of the Pod's name, as in StatefulSets; nothing is stored.
    Ordinal,
    /// The number before the last part of the Pod's name, as in runs of a CronJob; nothing is stored.
    Run,
    /// The text of an earlier placeholder, whose number follows; nothing is stored.
    Same,
    /// Not a placeholder: the spec or the status is here. The number of the fragment follows.
    Fragment,
    /// The contents of a string that the decoder passes on unread, never empty: the length and the JSON, with escapes.
    String,
}

impl Kind {
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        use Kind::*;
        const ALL: [Kind; 15] =
            [Name, Uid, Revision, Time, Uuid, Ipv4, Digest, Suffix, Text, Count, Ordinal, Run, Same, Fragment, String];
        ALL.get(usize::from(byte).checked_sub(1)?).copied()
    }

    /// True if a value is stored.
    pub(super) fn is_kept(self) -> bool {
        use Kind::*;
        !matches!(self, Name | Uid | Revision | Ordinal | Run | Same | Fragment)
    }

    /// True if a number follows in the text of the skeleton.
    pub(super) fn has_place(self) -> bool {
        matches!(self, Self::Same | Self::Fragment)
    }
}

/// A value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Text(&'a str),
    Revision(u64),
    /// Seconds since 1970.
    Time(i64),
    Uuid(&'a [u8; 16]),
    Ipv4([u8; 4]),
    Digest(&'a [u8]),
    Count(u32),
    /// Contents of a JSON string, with escapes.
    Json(&'a str),
}

/// Reads the values of one fragment in order.
#[derive(Debug, Clone)]
pub(super) struct ValueReader<'a> {
    own: &'a [u8],
    time: i64,
}

impl<'a> ValueReader<'a> {
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

    /// Returns the next value. Returns None for malformed bytes, and for kinds without a stored value.
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
            Kind::String => {
                let (length, rest) = varint(self.own)?;
                self.own = rest;
                Value::Json(str::from_utf8(self.take(usize::try_from(length).ok()?)?).ok()?)
            }
            Kind::Name | Kind::Uid | Kind::Revision | Kind::Ordinal | Kind::Run | Kind::Same | Kind::Fragment => {
                return None;
            }
        })
    }
}

/// Writes the values of one fragment.
#[derive(Debug, Default)]
pub(super) struct ValueWriter {
    pub(super) bytes: Vec<u8>,
    time: Option<i64>,
}

impl ValueWriter {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.time = None;
    }

    pub(super) fn push(&mut self, value: Value<'_>) {
        match value {
            Value::Time(time) => {
                let since = zigzag(time.wrapping_sub(self.time.unwrap_or(EPOCH)));
                self.time = Some(time);
                match u8::try_from(since) {
                    // Most are equal to the time before.
                    Ok(short @ ..0x80) => self.bytes.push(short),
                    _ => put_varint(since, &mut self.bytes),
                }
            }
            Value::Uuid(bytes) => self.bytes.extend_from_slice(bytes),
            Value::Digest(bytes) => self.bytes.extend_from_slice(bytes),
            Value::Ipv4(bytes) => self.bytes.extend_from_slice(&bytes),
            Value::Count(count) => put_varint(u64::from(count), &mut self.bytes),
            Value::Json(contents) => {
                put_varint(contents.len() as u64, &mut self.bytes);
                self.bytes.extend_from_slice(contents.as_bytes());
            }
            Value::Text(_) | Value::Revision(_) => {}
        }
    }

    pub(super) fn push_suffix(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
    }

    /// Appends the previous time again. Does nothing if there is none.
    pub(super) fn push_same_time(&mut self) {
        if self.time.is_some() {
            self.bytes.push(0);
        }
    }

    /// Appends a node's name. Returns false if it is too long.
    pub(super) fn push_text(&mut self, text: &[u8]) -> bool {
        let Ok(length) = u8::try_from(text.len()) else { return false };
        self.bytes.push(length);
        self.bytes.extend_from_slice(text);
        true
    }
}

impl Value<'_> {
    /// True if the value may be in JSON: bytes that were stored by another process can be anything.
    pub(super) fn is_valid(self) -> bool {
        match self {
            Self::Text(text) => json_string::contents(text.as_bytes()).is_some_and(|text| !text.contains('\\')),
            Self::Json(contents) => json_string::contents(contents.as_bytes()).is_some(),
            _ => true,
        }
    }

    /// Appends the JSON of the value.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) | Self::Json(text) => out.extend_from_slice(text.as_bytes()),
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
            Self::Digest(bytes) => bytes.as_chunks().0.iter().for_each(|bytes| out.extend_from_slice(&hex(bytes))),
        }
    }

    /// Appends the text that the JSON means.
    pub(super) fn write_text(self, out: &mut Vec<u8>) {
        match self {
            Self::Json(contents) => json_string::write_text(contents, out),
            other => other.write(out),
        }
    }

    /// True if both mean the same text; `self` and `other` are of one kind.
    pub(super) fn is_same_text(self, other: Self) -> bool {
        self == other
            || matches!((self, other), (Self::Json(one), Self::Json(other)) if json_string::text(one) == json_string::text(other))
    }

    /// The number of bytes that [`Self::write_text`] appends.
    pub(super) fn len(self) -> usize {
        match self {
            Self::Json(contents) => json_string::text_length(contents),
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

/// Turns eight numbers below 16, one in each byte, into hexadecimal digits.
#[inline]
fn hex_digits(numbers: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let is_letter = (numbers + 6 * ONES) >> 4 & ONES;
    numbers + u64::from(b'0') * ONES + is_letter * u64::from(b'a' - b'9' - 1)
}

/// Returns four bytes as lower-case hexadecimal digits.
#[inline]
fn hex(bytes: &[u8; 4]) -> [u8; 8] {
    let bytes = u64::from(u32::from_le_bytes(*bytes));
    let pairs = (bytes | bytes << 16) & 0x0000_ffff_0000_ffff;
    let bytes = (pairs | pairs << 8) & 0x00ff_00ff_00ff_00ff;
    hex_digits((bytes >> 4 | bytes << 8) & 0x0f0f_0f0f_0f0f_0f0f).to_le_bytes()
}

/// The inverse of [`hex`]. Returns None for any other character. Half of the bytes of values are such digits, hence
/// eight at once.
#[inline]
fn unhex(digits: &[u8; 8]) -> Option<[u8; 4]> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let digits = u64::from_le_bytes(*digits);
    // A letter's low bits are 9 less than its number. Other characters do not survive the round trip below.
    let numbers = (digits & (0x0f * ONES)) + 9 * ((digits >> 6) & ONES);
    if numbers & (0xf0 * ONES) != 0 || hex_digits(numbers) != digits {
        return None;
    }
    let bytes = (numbers << 4 | numbers >> 8) & 0x00ff_00ff_00ff_00ff;
    let pairs = (bytes | bytes >> 8) & 0x0000_ffff_0000_ffff;
    Some(((pairs | pairs >> 16) as u32).to_le_bytes())
}

/// Parses 64 lower-case hexadecimal digits.
pub(super) fn digest(text: &[u8; 64]) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    for (bytes, digits) in bytes.as_chunks_mut().0.iter_mut().zip(text.as_chunks().0) {
        *bytes = unhex(digits)?;
    }
    Some(bytes)
}

/// The inverse of [`uuid`].
pub(crate) fn uuid_text(bytes: &[u8; 16]) -> [u8; 36] {
    let mut digits = [0; 32];
    for (digits, bytes) in digits.as_chunks_mut().0.iter_mut().zip(bytes.as_chunks().0) {
        *digits = hex(bytes);
    }
    let mut text = [b'-'; 36];
    text[..8].copy_from_slice(&digits[..8]);
    text[9..13].copy_from_slice(&digits[8..12]);
    text[14..18].copy_from_slice(&digits[12..16]);
    text[19..23].copy_from_slice(&digits[16..20]);
    text[24..].copy_from_slice(&digits[20..]);
    text
}

/// Parses a UUID of lower-case hexadecimal digits with hyphens.
pub(crate) fn uuid(text: &[u8; 36]) -> Option<[u8; 16]> {
    if [8, 13, 18, 23].iter().any(|at| text[*at] != b'-') {
        return None;
    }
    let mut digits = [0; 32];
    digits[..8].copy_from_slice(&text[..8]);
    digits[8..12].copy_from_slice(&text[9..13]);
    digits[12..16].copy_from_slice(&text[14..18]);
    digits[16..20].copy_from_slice(&text[19..23]);
    digits[20..].copy_from_slice(&text[24..]);
    let mut bytes = [0; 16];
    for (bytes, digits) in bytes.as_chunks_mut().0.iter_mut().zip(digits.as_chunks().0) {
        *bytes = unhex(digits)?;
    }
    Some(bytes)
}

/// Parses the IPv4 address at the front, and returns it with its length.
pub(super) fn ipv4(text: &[u8]) -> Option<([u8; 4], usize)> {
    let mut bytes = [0; 4];
    let mut at = 0;
    for (place, byte) in bytes.iter_mut().enumerate() {
        if place > 0 {
            text.get(at).filter(|byte| **byte == b'.')?;
            at += 1;
        }
        let digit = |at: usize| text.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10);
        let mut number = u16::from(digit(at)?);
        at += 1;
        for _ in 0..2 {
            let Some(next) = digit(at).filter(|_| number > 0) else { break };
            number = number * 10 + u16::from(next);
            at += 1;
        }
        *byte = u8::try_from(number).ok()?;
    }
    Some((bytes, at))
}

/// Returns the digits after the last hyphen, if the name ends with a number.
pub(super) fn ordinal(name: &[u8]) -> Option<&[u8]> {
    let hyphen = name.iter().rposition(|byte| *byte == b'-')?;
    let digits = &name[hyphen + 1..];
    (!digits.is_empty() && digits.iter().all(u8::is_ascii_digit)).then_some(digits)
}

/// Returns the digits between the last two hyphens, if there are as many as in the minutes since 1970 that a CronJob
/// puts into the names of its Jobs.
pub(super) fn run(name: &[u8]) -> Option<&[u8]> {
    const MINUTES: usize = 8;
    let last = name.iter().rposition(|byte| *byte == b'-')?;
    let digits = &name[last.checked_sub(MINUTES)?..last];
    let hyphen = name.get(last.checked_sub(MINUTES + 1)?) == Some(&b'-');
    (hyphen && digits.iter().all(u8::is_ascii_digit)).then_some(digits)
}

/// True for the characters of [`Kind::Suffix`].
pub(super) fn is_suffix(text: &[u8]) -> bool {
    text.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// Returns the length of a node's name without the domain that a cloud assigns to all its nodes, for example
/// `eu-west-1.compute.internal`. Other domains may differ between nodes.
pub(super) fn own_of_node(name: &[u8]) -> usize {
    let dot = name.iter().position(|byte| *byte == b'.').filter(|_| name.ends_with(b".internal"));
    dot.unwrap_or(name.len())
}

/// True for the characters of [`Kind::Text`].
pub(super) fn is_text(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\'))
}

/// Parses the [`Kind::Count`] at the front, and returns it with its number of digits.
pub(super) fn count(text: &[u8]) -> Option<(u32, usize)> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let count = u32::try_from(number(&text[..digits])?).ok()?;
    (count <= i32::MAX as u32).then_some((count, digits))
}

/// Parses a decimal number without leading zeros.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 || (text.len() > 1 && text[0] == b'0') {
        return None;
    }
    text.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// Compares eight bytes with a form in which `0` means any digit. Returns the digits' numbers, one in each byte and
/// zero elsewhere, or None if a byte differs.
#[inline]
fn of_form(text: &[u8; 20], at: usize, form: &[u8; 8]) -> Option<u64> {
    let bytes = u64::from_le_bytes(*text.get(at..)?.first_chunk()?) ^ u64::from_le_bytes(*form);
    // Added to the largest allowed byte it makes 0x7f; a carry comes only from a byte that is not allowed.
    let room = u64::from_le_bytes(form.map(|byte| if byte == b'0' { 0x7f - 9 } else { 0x7f }));
    ((bytes | bytes.wrapping_add(room)) & 0x8080_8080_8080_8080 == 0).then_some(bytes)
}

/// Parses `2026-01-02T03:04:05Z` to seconds since 1970. Returns None for any other form and for times that do not
/// exist.
pub(super) fn time(text: &[u8; 20]) -> Option<i64> {
    let parts = [of_form(text, 0, b"0000-00-")?, of_form(text, 8, b"00T00:00")?, of_form(text, 12, b"0:00:00Z")?];
    // Each byte times ten, plus the next one.
    let [early, middle, late] = parts.map(|digits| digits * 10 + (digits >> 8));
    let two = |word: u64, byte: u32| u32::from((word >> (8 * byte)) as u8);
    let (year, month, day) = (two(early, 0) * 100 + two(early, 2), two(early, 5), two(middle, 0));
    let (hour, minute, second) = (two(middle, 3), two(middle, 6), two(late, 5));
    if year < 1 || !(1..=12).contains(&month) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // The 30th of February would come back as another day.
    let is_leap = || year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + u32::from(day == 29 && is_leap()),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    (1..=length)
        .contains(&day)
        .then(|| days(year, month, day) * 86_400 + i64::from(hour * 3_600 + minute * 60 + second))
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

/// Days since 1970-01-01 of a day of the proleptic Gregorian calendar, from the year 1 on; Howard Hinnant's
/// `days_from_civil`.
fn days(year: u32, month: u32, day: u32) -> i64 {
    // Years begin in March.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let of_year = (153 * month + 2) / 5 + day - 1;
    i64::from(year * 365 + year / 4 - year / 100 + year / 400 + of_year) - 719_468
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

/// Appends a number, seven bits in each byte, the least significant first.
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

/// The sentinel of placeholder `at`: a text that is decoded in place of its value and located in the sections.
pub(super) fn sentinel_text(at: usize) -> String {
    let mut text = String::with_capacity(18);
    // Writing to a String cannot fail.
    let _ = write!(text, "~placeholder-of-pod~{at:05}");
    text
}

/// As [`sentinel_text`], for times: seconds since 1970, in the year 2096.
pub(super) fn sentinel_time(at: usize) -> i64 {
    4_000_000_000 + at as i64
}

/// As [`sentinel_text`], for counts.
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
            if let Some((value, _)) = ipv4(bytes).filter(|(_, length)| *length == bytes.len()) {
                prop_assert_eq!(&written(Value::Ipv4(value)), &text);
            }
            if let Some(value) = number(bytes) {
                prop_assert_eq!(&written(Value::Revision(value)), &text);
            }
        }

        #[test]
        fn values_come_back_in_their_order(times in prop::collection::vec(-62_135_596_800..253_402_300_800_i64, 0..6), id in any::<[u8; 16]>(), hash in any::<[u8; 32]>(), address in any::<[u8; 4]>(), count in any::<u32>()) {
            let mut own = ValueWriter::default();
            times.iter().for_each(|time| own.push(Value::Time(*time)));
            for value in [Value::Uuid(&id), Value::Digest(&hash), Value::Ipv4(address), Value::Count(count)] {
                own.push(value);
            }
            prop_assert!(own.push_text(b"node-1"));
            let mut values = ValueReader::new(&own.bytes);
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
    fn a_byte_is_a_digit_as_the_standard_library_has_it_wherever_it_stands() {
        for (byte, place) in (0..=u8::MAX).flat_map(|byte| (0..8).map(move |place| (byte, place))) {
            let mut digits = *b"0f9a5b36";
            digits[place] = byte;
            let is_digit = byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase();
            assert_eq!(unhex(&digits).is_some(), is_digit, "{byte} at {place}");
            if let Some(bytes) = unhex(&digits) {
                let number = u32::from_str_radix(str::from_utf8(&digits).unwrap(), 16).unwrap();
                assert_eq!((u32::from_be_bytes(bytes), hex(&bytes)), (number, digits));
            }
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
            assert_eq!(ipv4(text.as_bytes()).filter(|(_, length)| *length == text.len()), None, "{text}");
        }
        for text in ["", "01", "+1", "18446744073709551616"] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
    }
}
