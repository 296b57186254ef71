//! The stored form of a string that differs between Pods: an address, a UUID, hexadecimal digits, a number with its
//! unit or generated characters in binary, otherwise the JSON. The form depends only on the string. A string that is
//! one of the last few of its fragment is a reference to it ([`Recent`]): a volume with a name of its own is named
//! again where it is mounted.
//!
//! To add a form: a constant and a branch of [`push`] and [`read`] here, and a [`Value`] that writes it.

use std::ops::RangeInclusive;

use super::{
    forms::{ipv4, ipv6, mac, number, put_varint, unhex_all, uuid, varint},
    placeholder::Value,
};

// The lowest bit of the header is 0 for JSON, followed by its length; 1 for one of these forms, followed by 3 bits of
// the form.
const IPV4: u64 = 0;
const MAC: u64 = 1;
const IPV6: u64 = 2;
const UUID: u64 = 3;
/// The higher bits are the number of bytes.
const HEX: u64 = 4;
/// The higher bits are the number of the unit in [`UNITS`], and a varint follows.
const AMOUNT: u64 = 5;
/// The higher bits are the number of strings between the string and the equal one, see [`Recent`].
const AGAIN: u64 = 6;
/// The higher bits are the number of characters, see [`Generated`].
const GENERATED: u64 = 7;

/// The units of quantities. They are followed by nothing, so the header takes one byte.
const UNITS: [&str; 8] = ["", "m", "k", "M", "G", "Ki", "Mi", "Gi"];

/// Fewer hexadecimal digits are stored as JSON.
const MIN_HEX: usize = 12;
const MAX_HEX: usize = 512;

/// The number of strings to which a later one can refer, so that a reference takes one byte.
const RECENT: usize = 8;

/// The last strings of a fragment that are not references: the offsets of their stored forms.
#[derive(Debug, Clone, Default)]
pub(super) struct Recent {
    starts: [usize; RECENT],
    count: usize,
}

impl Recent {
    fn add(&mut self, start: usize) {
        self.starts[self.count % RECENT] = start;
        self.count += 1;
    }

    /// Returns the offset of a string; 0 is the last one.
    fn get(&self, back: usize) -> Option<usize> {
        (back < RECENT.min(self.count)).then(|| self.starts[(self.count - 1 - back) % RECENT])
    }

    /// Appends the contents of a JSON string.
    pub(super) fn push(&mut self, contents: &str, out: &mut Vec<u8>) {
        let start = out.len();
        push(contents, out);
        let (before, stored) = out.split_at(start);
        // No stored form begins with another one.
        let is_again = |back: &usize| self.get(*back).is_some_and(|start| before[start..].starts_with(stored));
        match (0..RECENT).find(is_again) {
            Some(back) => {
                out.truncate(start);
                put_varint((AGAIN | (back as u64) << 3) << 1 | 1, out);
            }
            None => self.add(start),
        }
    }

    /// Returns the string at an offset of a fragment's values and the offset after it, or `None` for malformed bytes.
    pub(super) fn read<'a>(&mut self, own: &'a [u8], at: usize) -> Option<(Value<'a>, usize)> {
        let bytes = own.get(at..)?;
        let (header, rest) = varint(bytes)?;
        let number = header >> 1;
        if header & 1 == 1 && number & 7 == AGAIN {
            let start = self.get(usize::try_from(number >> 3).ok()?)?;
            return Some((read(own.get(start..)?)?.0, own.len() - rest.len()));
        }
        let (value, rest) = read(bytes)?;
        self.add(at);
        Some((value, own.len() - rest.len()))
    }
}

/// Appends the contents of a JSON string.
fn push(contents: &str, out: &mut Vec<u8>) {
    let text = contents.as_bytes();
    let mut form = |form: u64, bytes: &[u8]| {
        put_varint(form << 1 | 1, out);
        out.extend_from_slice(bytes);
    };
    if let Some(amount) = Amount::parse(text) {
        form(AMOUNT | u64::from(amount.unit) << 3, &[]);
        return put_varint(amount.number, out);
    }
    match text.len() {
        7..=15 if text[0].is_ascii_digit() => {
            if let Some((bytes, _)) = ipv4(text).filter(|(_, length)| *length == text.len()) {
                return form(IPV4, &bytes);
            }
        }
        17 if text[2] == b':' => {
            if let Some(bytes) = text.first_chunk().and_then(mac) {
                return form(MAC, &bytes);
            }
        }
        36 if text[8] == b'-' => {
            if let Some(bytes) = text.first_chunk().and_then(uuid) {
                return form(UUID, &bytes);
            }
        }
        _ => {}
    }
    if (16..=39).contains(&text.len())
        && text.contains(&b':')
        && let Some(bytes) = ipv6(text)
    {
        return form(IPV6, &bytes);
    }
    if let Some(generated) = Generated::parse(text) {
        return form(GENERATED | u64::from(generated.length) << 3, &generated.stored()[..generated.bytes()]);
    }
    if (MIN_HEX..=MAX_HEX).contains(&text.len())
        && let Some(bytes) = unhex_all(text)
    {
        return form(HEX | (bytes.len() as u64) << 3, &bytes);
    }
    put_varint((text.len() as u64) << 1, out);
    out.extend_from_slice(text);
}

/// The characters of which the API server and controllers make suffixes of names and hashes: no vowels, and nothing
/// that looks like one (`k8s.io/apimachinery/pkg/util/rand`). Five of them take three bytes.
const ALPHABET: [u8; 27] = *b"bcdfghjklmnpqrstvwxz2456789";

/// A text of 4 to 13 characters of [`ALPHABET`], as a number whose digits they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Generated {
    number: u64,
    length: u8,
}

impl Generated {
    const LENGTHS: RangeInclusive<u8> = 4..=13;

    fn parse(text: &[u8]) -> Option<Self> {
        let length = u8::try_from(text.len()).ok().filter(|length| Self::LENGTHS.contains(length))?;
        let number = text.iter().try_fold(0, |number: u64, byte| {
            let digit = ALPHABET.iter().position(|known| known == byte)?;
            Some(number * ALPHABET.len() as u64 + digit as u64)
        })?;
        Some(Self { number, length })
    }

    /// Returns the number of bytes of the largest number of this length.
    fn bytes(self) -> usize {
        let largest = (ALPHABET.len() as u64).pow(self.length.into()) - 1;
        8 - largest.leading_zeros() as usize / 8
    }

    fn stored(self) -> [u8; 8] {
        self.number.to_le_bytes()
    }

    fn read(length: usize, bytes: &[u8]) -> Option<(Value<'_>, &[u8])> {
        let length = u8::try_from(length).ok().filter(|length| Self::LENGTHS.contains(length))?;
        let empty = Self { number: 0, length };
        let (stored, rest) = bytes.split_at_checked(empty.bytes())?;
        let mut number = [0; 8];
        number[..stored.len()].copy_from_slice(stored);
        let number = u64::from_le_bytes(number);
        // A larger number would have more characters.
        (number < (ALPHABET.len() as u64).pow(length.into()))
            .then_some((Value::Generated(Self { number, length }), rest))
    }

    pub(super) fn len(self) -> usize {
        self.length.into()
    }

    /// Returns the characters.
    pub(super) fn text(self) -> impl Iterator<Item = u8> {
        let base = ALPHABET.len() as u64;
        (0..self.length).rev().map(move |at| ALPHABET[(self.number / base.pow(at.into()) % base) as usize])
    }
}

/// A decimal number, and a unit of Kubernetes' quantities after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) number: u64,
    unit: u8,
}

impl Amount {
    fn parse(text: &[u8]) -> Option<Self> {
        // One digit is as short as JSON.
        let digits = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at_checked(digits).filter(|_| text.len() > 1)?;
        let unit = UNITS.iter().position(|known| known.as_bytes() == unit)?;
        Some(Self { number: number(digits)?, unit: unit as u8 })
    }

    pub(super) fn unit(self) -> &'static str {
        UNITS[usize::from(self.unit)]
    }
}

/// Returns the first value and the bytes after it, or `None` for malformed bytes.
fn read(bytes: &[u8]) -> Option<(Value<'_>, &[u8])> {
    let (header, rest) = varint(bytes)?;
    let number = header >> 1;
    if header & 1 == 0 {
        let (contents, rest) = rest.split_at_checked(usize::try_from(number).ok()?)?;
        return Some((Value::Json(str::from_utf8(contents).ok()?), rest));
    }
    if number & 7 == GENERATED {
        return Generated::read(usize::try_from(number >> 3).ok()?, rest);
    }
    if number & 7 == AMOUNT {
        let unit = u8::try_from(number >> 3).ok().filter(|unit| usize::from(*unit) < UNITS.len())?;
        let (number, rest) = varint(rest)?;
        return Some((Value::Amount(Amount { number, unit }), rest));
    }
    let length = match number {
        IPV4 => 4,
        MAC => 6,
        IPV6 | UUID => 16,
        _ if number & 7 == HEX => usize::try_from(number >> 3).ok()?,
        _ => return None,
    };
    let (bytes, rest) = rest.split_at_checked(length)?;
    let value = match number {
        IPV4 => Value::Ipv4(*bytes.first_chunk()?),
        MAC => Value::Mac(*bytes.first_chunk()?),
        IPV6 => Value::Ipv6(*bytes.first_chunk()?),
        UUID => Value::Uuid(bytes.first_chunk()?),
        _ => Value::Hex(bytes),
    };
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;

    fn stored(contents: &str) -> usize {
        let mut out = Vec::new();
        push(contents, &mut out);
        let (value, rest) = read(&out).unwrap();
        let mut written = Vec::new();
        let mut text = Vec::new();
        value.write(&mut written);
        value.write_text(&mut text);
        assert_eq!((str::from_utf8(&written).unwrap(), rest.len()), (contents, 0));
        assert_eq!(value.len(), text.len(), "{contents}");
        assert!((0..out.len()).all(|end| read(&out[..end]).is_none()), "{contents}: a part is no value");
        out.len()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn a_string_comes_back_byte_for_byte(contents in prop_oneof![
            "[0-9a-f:.]{1,40}", "[0-9a-f]{2}(:[0-9a-fA-F]{2}){5}", "[0-9a-f]{1,70}", "[ !#-\\[\\]-~]{1,300}",
            "[0-9]{1,3}(\\.[0-9]{1,3}){3}", "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
            any::<[u16; 8]>().prop_map(|groups| Ipv6Addr::from(groups).to_string()),
            "[bcdfghjklmnpqrstvwxz2456789a]{1,15}", "[0-9]{1,21}(m|k|M|G|[KMG]i|E|mm)?",
            any::<u64>().prop_map(|number| number.to_string()),
            any::<u64>().prop_map(|low| Ipv6Addr::from(0xfd00_u128 << 112 | u128::from(low)).to_string()),
        ]) {
            stored(&contents);
        }

        #[test]
        fn strings_come_back_in_their_order(
            strings in prop::collection::vec(
                prop_oneof!["[a-c]", "[ab]{2}", "1[0-9]m", "[ !#-\\[\\]-~]{1,200}"], 0..60,
            ),
        ) {
            let mut out = Vec::new();
            let mut recent = Recent::default();
            strings.iter().for_each(|contents| recent.push(contents, &mut out));
            let mut at = 0;
            let mut recent = Recent::default();
            for contents in &strings {
                let (value, end) = recent.read(&out, at).unwrap();
                let mut written = Vec::new();
                value.write(&mut written);
                prop_assert_eq!(str::from_utf8(&written).unwrap(), contents);
                at = end;
            }
            prop_assert_eq!(at, out.len());
        }
    }

    #[test]
    fn addresses_are_stored_in_their_bytes() {
        for (text, bytes) in [
            ("10.128.2.14", 5),
            ("0a:58:0a:80:02:0e", 7),
            ("fd00:10:128:2::1a2b", 17),
            ("0a1b2c3d4e5f6071", 10),
            ("0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9", 17),
            ("no form", 8),
            ("1", 2),
            ("10", 2),
            ("250m", 3),
            ("2Gi", 2),
            ("512Mi", 3),
            ("x7k2m", 4),
            ("5d9c7b8f6", 8),
            ("9999999999999", 8),
            ("18446744073709551615", 11),
            // Other spellings of the same values.
            ("0A:58:0A:80:02:0E", 18),
            ("fd00:10:128:2:0::1a2b", 22),
            ("010.128.2.14", 13),
            ("0A1B2C3D4E5F6071", 17),
            ("01m", 4),
            ("x7k", 4),
            ("x7k2a", 6),
            ("1.5Gi", 6),
            ("18446744073709551616", 12),
            ("12 Mi", 6),
        ] {
            assert_eq!(stored(text), bytes, "{text}");
        }
    }

    #[test]
    fn a_string_takes_one_byte_where_it_is_one_of_the_last() {
        let mut out = Vec::new();
        let mut recent = Recent::default();
        for contents in ["workload-x7k2m", "other", "workload-x7k2m", "other", "x7k2m", "workload-x7k2m"] {
            recent.push(contents, &mut out);
        }
        assert_eq!(out.len(), 15 + 6 + 1 + 1 + 4 + 1);
        (0..RECENT).for_each(|at| recent.push(&format!("value-{at}"), &mut out));
        let before = out.len();
        recent.push("value-0", &mut out);
        recent.push("other", &mut out);
        assert_eq!(out.len() - before, 1 + 6, "the last eight are kept");
    }

    #[test]
    fn a_reference_to_no_string_is_no_value() {
        let again = |back: u64| ((AGAIN | back << 3) << 1 | 1) as u8;
        for (bytes, at) in
            [(vec![again(0)], 0), (vec![2 << 1, b'a', b'b', again(1)], 3), (vec![again(0), 2 << 1, b'a', b'b'], 0)]
        {
            let mut recent = Recent::default();
            let first = if at == 0 { None } else { recent.read(&bytes, 0) };
            assert_eq!(first.is_some(), at > 0);
            assert!(recent.read(&bytes, at).is_none(), "{bytes:?}");
        }
    }

    #[test]
    fn malformed_bytes_are_no_value() {
        for bytes in [
            &[][..],
            &[2 << 1],
            &[1, 1, 2, 3],
            &[6 << 1 | 1],
            &[5 << 1 | 1],
            &[(5 | 8 << 3) as u8; 3],
            &[4, 0xff, 0xff],
            &[0xff; 12],
        ] {
            assert!(read(bytes).is_none(), "{bytes:?}");
        }
    }
}
