//! The stored form of a string that differs between Pods: an address, a UUID or hexadecimal digits in binary,
//! otherwise the JSON. The form depends only on the string, so that equal strings are equal bytes.
//!
//! To add a form: a constant and a branch of [`push`] and [`read`] here, and a [`Value`] that writes it.

use super::{
    forms::{ipv4, ipv6, mac, put_varint, unhex_all, uuid, varint},
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

/// Fewer hexadecimal digits are stored as JSON.
const MIN_HEX: usize = 12;
const MAX_HEX: usize = 512;

/// Appends the contents of a JSON string.
pub(super) fn push(contents: &str, out: &mut Vec<u8>) {
    let text = contents.as_bytes();
    let mut form = |form: u64, bytes: &[u8]| {
        put_varint(form << 1 | 1, out);
        out.extend_from_slice(bytes);
    };
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
    if (MIN_HEX..=MAX_HEX).contains(&text.len())
        && let Some(bytes) = unhex_all(text)
    {
        return form(HEX | (bytes.len() as u64) << 3, &bytes);
    }
    put_varint((text.len() as u64) << 1, out);
    out.extend_from_slice(text);
}

/// Returns the first value and the bytes after it, or `None` for malformed bytes.
pub(super) fn read(bytes: &[u8]) -> Option<(Value<'_>, &[u8])> {
    let (header, rest) = varint(bytes)?;
    let number = header >> 1;
    if header & 1 == 0 {
        let (contents, rest) = rest.split_at_checked(usize::try_from(number).ok()?)?;
        return Some((Value::Json(str::from_utf8(contents).ok()?), rest));
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
        let (mut written, mut text) = (Vec::new(), Vec::new());
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
            any::<u64>().prop_map(|low| Ipv6Addr::from(0xfd00_u128 << 112 | u128::from(low)).to_string()),
        ]) {
            stored(&contents);
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
            // Other spellings of the same values.
            ("0A:58:0A:80:02:0E", 18),
            ("fd00:10:128:2:0::1a2b", 22),
            ("010.128.2.14", 13),
            ("0A1B2C3D4E5F6071", 17),
        ] {
            assert_eq!(stored(text), bytes, "{text}");
        }
    }

    #[test]
    fn malformed_bytes_are_no_value() {
        for bytes in [&[][..], &[2 << 1], &[1, 1, 2, 3], &[5 << 1 | 1], &[4, 0xff, 0xff], &[0xff; 12]] {
            assert!(read(bytes).is_none(), "{bytes:?}");
        }
    }
}
