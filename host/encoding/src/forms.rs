//! The texts of values with a form: hexadecimal digits, UUIDs, addresses, numbers, times, parts of names. Each is
//! parsed to a short encoding only if it can be decoded to the same text.

use std::ops::Range;

/// Turns eight numbers below 16, one in each byte, into hexadecimal digits.
#[inline]
fn hex_digits(numbers: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let is_letter = (numbers + 6 * ONES) >> 4 & ONES;
    numbers + u64::from(b'0') * ONES + is_letter * u64::from(b'a' - b'9' - 1)
}

/// Returns four bytes as lower-case hexadecimal digits.
#[inline]
pub(super) fn hex(bytes: &[u8; 4]) -> [u8; 8] {
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

/// Parses an even number of lower-case hexadecimal digits.
pub(super) fn unhex_all(text: &[u8]) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_chunks() else { return None };
    pairs.iter().map(unhex_byte).collect()
}

fn unhex_byte([high, low]: &[u8; 2]) -> Option<u8> {
    let [.., byte] = unhex(&[b'0', b'0', b'0', b'0', b'0', b'0', *high, *low])?;
    Some(byte)
}

/// Appends bytes as lower-case hexadecimal digits.
pub(super) fn put_hex(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        let [.., high, low] = hex(&[0, 0, 0, *byte]);
        out.extend([high, low]);
    }
}

/// The beginning of the names that AWS makes of addresses.
pub(super) const NODE_IP: &[u8] = b"ip-";

/// Parses the first part of a node's default name in AWS: `ip-` and its IPv4 address with hyphens.
pub(super) fn node_ip(name: &[u8]) -> Option<[u8; 4]> {
    let mut numbers = name.strip_prefix(NODE_IP)?.split(|byte| *byte == b'-');
    let mut bytes = [0; 4];
    for byte in &mut bytes {
        *byte = u8::try_from(number(numbers.next()?)?).ok()?;
    }
    numbers.next().is_none().then_some(bytes)
}

/// Parses an IPv6 address in the only form that [`put_ipv6`] writes, which is the canonical one (RFC 5952) except for
/// addresses that end with an IPv4 address.
pub(super) fn ipv6(text: &[u8]) -> Option<[u8; 16]> {
    let mut groups = [0_u16; 8];
    let mut count = 0;
    let mut gap = None;
    let mut at = 0;
    if text.starts_with(b"::") {
        gap = Some(0);
        at = 2;
    }
    while at < text.len() {
        let digits = text[at..].iter().take(5).take_while(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')).count();
        let is_group = matches!(digits, 1..=4) && (digits == 1 || text[at] != b'0') && count < 8;
        if !is_group {
            return None;
        }
        groups[count] = text[at..at + digits].iter().fold(0, |group, digit| {
            group << 4 | u16::from(if digit.is_ascii_digit() { digit - b'0' } else { digit - b'a' + 10 })
        });
        count += 1;
        at += digits;
        match &text[at..] {
            [] => {}
            [b':', b':', ..] if gap.is_none() => (gap, at) = (Some(count), at + 2),
            [b':', _, ..] => at += 1,
            _ => return None,
        }
    }
    match gap {
        Some(gap) if count < 8 => {
            groups.copy_within(gap..count, 8 - (count - gap));
            groups[gap..8 - (count - gap)].fill(0);
        }
        None if count == 8 => {}
        _ => return None,
    }
    // An address with several spellings is decoded to one of them.
    if is_of_ipv4(&groups) || gap != longest_gap(&groups).map(|gap| gap.start) {
        return None;
    }
    if let (Some(gap), Some(longest)) = (gap, longest_gap(&groups))
        && (longest.start != gap || longest.len() != 8 - count)
    {
        return None;
    }
    let mut bytes = [0; 16];
    for (bytes, group) in bytes.chunks_exact_mut(2).zip(groups) {
        bytes.copy_from_slice(&group.to_be_bytes());
    }
    Some(bytes)
}

/// The inverse of [`ipv6`].
pub(super) fn put_ipv6(bytes: [u8; 16], out: &mut Vec<u8>) {
    let (pairs, _) = bytes.as_chunks();
    let groups: [u16; 8] = std::array::from_fn(|at| u16::from_be_bytes(pairs[at]));
    let gap = longest_gap(&groups).unwrap_or(8..8);
    for (at, group) in groups.into_iter().enumerate() {
        if at == gap.start {
            out.extend_from_slice(b"::");
        }
        if gap.contains(&at) {
            continue;
        }
        if at > 0 && at != gap.end {
            out.push(b':');
        }
        let digits = hex(&[0, 0, (group >> 8) as u8, group as u8]);
        let zeros = digits[..7].iter().take_while(|digit| **digit == b'0').count();
        out.extend_from_slice(&digits[zeros..]);
    }
}

/// Returns the groups that `::` stands for: the first longest run of at least two zeros.
fn longest_gap(groups: &[u16; 8]) -> Option<Range<usize>> {
    let mut longest = 0..0;
    let mut at = 0;
    while at < 8 {
        let zeros = groups[at..].iter().take_while(|group| **group == 0).count();
        if zeros > longest.len() {
            longest = at..at + zeros;
        }
        at += zeros + 1;
    }
    (longest.len() > 1).then_some(longest)
}

/// Returns true for addresses that other writers end with an IPv4 address.
fn is_of_ipv4(groups: &[u16; 8]) -> bool {
    matches!(groups, [0, 0, 0, 0, 0, 0 | 0xffff, ..])
}

/// Parses a MAC address: six pairs of lower-case hexadecimal digits with colons between them.
pub(super) fn mac(text: &[u8; 17]) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    for (at, byte) in bytes.iter_mut().enumerate() {
        let is_separated = text.get(3 * at + 2).is_none_or(|byte| *byte == b':');
        *byte = unhex_byte(text[3 * at..].first_chunk()?).filter(|_| is_separated)?;
    }
    Some(bytes)
}

/// The inverse of [`mac`].
pub(super) fn mac_text(bytes: [u8; 6]) -> [u8; 17] {
    let mut text = [b':'; 17];
    for (at, byte) in bytes.into_iter().enumerate() {
        let [.., high, low] = hex(&[0, 0, 0, byte]);
        text[3 * at..3 * at + 2].copy_from_slice(&[high, low]);
    }
    text
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
pub(super) fn uuid_text(bytes: &[u8; 16]) -> [u8; 36] {
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
pub(super) fn uuid(text: &[u8; 36]) -> Option<[u8; 16]> {
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

/// Returns true for the characters of [`Kind::Suffix`].
pub(super) fn is_suffix(text: &[u8]) -> bool {
    text.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// Returns the length of a node's name without the domain that a cloud assigns to all its nodes, for example
/// `eu-west-1.compute.internal`. Other domains may differ between nodes.
pub(super) fn own_of_node(name: &[u8]) -> usize {
    let dot = name.iter().position(|byte| *byte == b'.').filter(|_| name.ends_with(b".internal"));
    dot.unwrap_or(name.len())
}

/// Returns true for the characters of [`Kind::Text`].
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
    // Added to the largest allowed byte this makes 0x7f; only a byte that is not allowed causes a carry.
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
    let year = two(early, 0) * 100 + two(early, 2);
    let month = two(early, 5);
    let day = two(middle, 0);
    let hour = two(middle, 3);
    let minute = two(middle, 6);
    let second = two(late, 5);
    if year < 1 || !(1..=12).contains(&month) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // The 30th of February would be decoded as another day.
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

/// Returns the days from 1970-01-01 to a day of the proleptic Gregorian calendar, from the year 1 on; Howard
/// Hinnant's `days_from_civil`.
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

pub(super) fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

pub(super) fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Appends a number, seven bits in each byte, the least significant first.
pub(super) fn put_varint(mut number: u64, out: &mut impl Extend<u8>) {
    while number >= 0x80 {
        out.extend([number as u8 | 0x80]);
        number >>= 7;
    }
    out.extend([number as u8]);
}

pub(super) fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (at, byte) in bytes.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((number, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_time_comes_back_as_it_was(seconds in -62_135_596_800..253_402_300_800_i64) {
            let text = time_text(seconds);
            prop_assert_eq!(time(&text), Some(seconds));
            let parsed: jiff::Timestamp = str::from_utf8(&text).unwrap().parse().unwrap();
            prop_assert_eq!(parsed.as_second(), seconds);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn only_ipv6_addresses_in_the_standard_librarys_form_are_parsed(
            groups in prop::array::uniform8(prop_oneof![Just(0), 0..16_u16, any::<u16>()]),
            text in prop::collection::vec(
                prop::sample::select(&["0", "1", "a0", "00", "fd00", ":", "::", "12345", "g"]), 0..12,
            ),
        ) {
            let address = std::net::Ipv6Addr::from(groups);
            let mut written = Vec::new();
            put_ipv6(address.octets(), &mut written);
            let is_of_ipv4 = is_of_ipv4(&groups);
            prop_assert!(is_of_ipv4 || written == address.to_string().as_bytes(), "{:?}", String::from_utf8(written));
            prop_assert_eq!(ipv6(address.to_string().as_bytes()), Some(address.octets()).filter(|_| !is_of_ipv4));
            let text = text.concat();
            let parsed = text.parse::<std::net::Ipv6Addr>().ok().filter(|address| address.to_string() == text);
            let parsed = parsed.filter(|address| !super::is_of_ipv4(&address.segments()));
            prop_assert_eq!(ipv6(text.as_bytes()), parsed.map(|address| address.octets()), "{}", text);
        }
    }

    #[test]
    fn hex_digits_equal_those_of_the_standard_library() {
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
