//! The contents of a JSON string, between its quotes: whether they are valid, and the text that they encode.
//!
//! Contents are stored with their escapes, so that the object is restored byte for byte; sections contain the text.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

/// Returns the contents if they are valid in a JSON string and not empty. Every text has an encoding; an escape for
/// half of a surrogate pair has no text.
pub(super) fn contents(bytes: &[u8]) -> Option<&str> {
    // Does not stop early, so that the compiler can examine many bytes per step.
    let has_control = bytes.iter().fold(false, |has_control, byte| has_control | (*byte < b' '));
    if bytes.is_empty() || has_control {
        return None;
    }
    let contents = str::from_utf8(bytes).ok()?;
    pieces(contents, |_| {}).then_some(contents)
}

/// Returns the text without escapes.
pub(super) fn text(contents: &str) -> Cow<'_, str> {
    if memchr(b'\\', contents.as_bytes()).is_none() {
        return contents.into();
    }
    let mut text = String::with_capacity(contents.len());
    pieces(contents, |piece| text.push_str(piece));
    text.into()
}

/// Returns the length of [`text`] in bytes.
pub(super) fn text_length(contents: &str) -> usize {
    let mut length = 0;
    pieces(contents, |piece| length += piece.len());
    length
}

/// Appends [`text`].
pub(super) fn write_text(contents: &str, out: &mut Vec<u8>) {
    pieces(contents, |piece| out.extend_from_slice(piece.as_bytes()));
}

/// Calls `each` with the text in pieces. Returns false at a quote, and at an escape that has no text.
fn pieces(mut contents: &str, mut each: impl FnMut(&str)) -> bool {
    while let Some(at) = memchr2(b'\\', b'"', contents.as_bytes()) {
        let (plain, rest) = contents.split_at(at);
        if !plain.is_empty() {
            each(plain);
        }
        let Some((character, length)) = escape(rest.as_bytes()) else { return false };
        each(character.encode_utf8(&mut [0; 4]));
        contents = &rest[length..];
    }
    if !contents.is_empty() {
        each(contents);
    }
    true
}

/// Returns the character of the escape at the front, and the escape's length.
pub(super) fn escape(bytes: &[u8]) -> Option<(char, usize)> {
    let character = match *bytes.strip_prefix(b"\\")?.first()? {
        byte @ (b'"' | b'\\' | b'/') => char::from(byte),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => {
            let first = unit(bytes)?;
            if let Some(character) = char::from_u32(u32::from(first)) {
                return Some((character, 6));
            }
            let second = unit(bytes.get(6..)?)?;
            let mut pair = char::decode_utf16([first, second]);
            return Some((pair.next()?.ok()?, 12));
        }
        _ => return None,
    };
    Some((character, 2))
}

/// Returns the number of `\uXXXX`.
fn unit(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    digits.iter().try_fold(0, |unit, digit| Some(unit << 4 | u16::try_from(char::from(*digit).to_digit(16)?).ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn string_contents_are_valid_and_decoded_as_by_serde_json(
            pieces in prop::collection::vec(prop_oneof![
                prop::sample::select(vec![
                    "\\", "\\\\", "\\\"", "\"", "\\n", "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\\ude00", "\\u12",
                    "\\x", "\\/", "\u{e9}", "\u{1f600}", "\n", "\u{0}", "a", "\\b\\f\\r\\t", "\\uD83D\\uDE00",
                    "\\u+123",
                ]).prop_map(str::to_owned),
                "[ -~]{0,6}",
            ], 0..8),
        ) {
            let bytes = pieces.concat();
            let expected = serde_json::from_str::<String>(&format!("\"{bytes}\"")).ok().filter(|text| !text.is_empty());
            let contents = contents(bytes.as_bytes());
            prop_assert_eq!(contents.map(|contents| text(contents).into_owned()), expected.clone());
            if let Some(contents) = contents {
                let mut written = Vec::new();
                write_text(contents, &mut written);
                prop_assert_eq!(text_length(contents), written.len());
                prop_assert_eq!(Some(String::from_utf8(written).unwrap()), expected);
            }
        }
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_no_contents() {
        assert_eq!(contents(b"a\xff"), None);
        assert_eq!(contents(b""), None);
    }
}
