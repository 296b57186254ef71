//! The words of a string. If only some words differ between Pods, as in an annotation with JSON that contains an
//! address, the rest of the string is shared.
//!
//! A word begins with a letter or digit and continues as long as possible with letters, digits, `.`, `_` and `:`, so
//! that an address is one word, and a generated name (`istio-envoy-x7k2m`) only differs in its last one. A UUID is one
//! word too. All other characters, escapes and placeholders separate words. A letter next to a placeholder is not part
//! of a word.

use std::ops::Range;

use super::{forms, json_string, placeholder::Kind, structure::mark};

/// The most words of a string that is split.
pub(super) const MAX_WORDS: usize = 128;
/// The length above which strings are not split into words, so that the numbers that are stored for a string stay
/// small.
const LONGEST: usize = 16 << 10;
/// The least shared bytes around the words. With fewer, the whole string is stored.
const MIN_SHARED: usize = 6;
/// The most words of a string that become values. With more, the whole string is stored.
const MAX_OWN: u32 = 32;

/// A set of words of a string, by their number.
pub(super) type WordSet = u128;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Word(Range<usize>),
    /// A placeholder for a word.
    Own(Range<usize>),
    Separator(Range<usize>),
}

fn begins_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn continues(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':')
}

/// Returns the length of the word at the front; 0 if there is none.
pub(super) fn word(text: &[u8]) -> usize {
    if !text.first().is_some_and(|byte| begins_word(*byte)) {
        return 0;
    }
    // Five words would take twice as many bytes.
    if let Some((first, rest)) = text.split_first_chunk()
        && forms::uuid(first).is_some()
        && !rest.first().is_some_and(continues)
    {
        return first.len();
    }
    text.iter().position(|byte| !continues(byte)).unwrap_or(text.len())
}

/// Splits the contents of a string of a key. Returns None for a malformed escape or placeholder, for an escaped
/// character of a word, and if there are too many words.
pub(super) fn split(contents: &[u8]) -> Option<Vec<Piece>> {
    if contents.len() > LONGEST {
        return None;
    }
    let mut pieces = Vec::new();
    let mut at = 0;
    let mut words = 0;
    let mut after_placeholder = false;
    while at < contents.len() {
        let rest = &contents[at..];
        let (length, is_own) = match rest[0] {
            b'\\' => {
                let (character, length) = json_string::escape(rest)?;
                // Two words with a letter between them could be parsed as other words with the same text.
                if u8::try_from(character).is_ok_and(|byte| continues(&byte)) {
                    return None;
                }
                (length, false)
            }
            byte if begins_word(byte) => {
                let length = word(rest);
                let before_placeholder = contents.get(at + length) == Some(&super::placeholder::PLACEHOLDER);
                if !after_placeholder && !before_placeholder {
                    pieces.push(Piece::Word(at..at + length));
                    words += 1;
                    at += length;
                    continue;
                }
                (length, false)
            }
            super::placeholder::PLACEHOLDER => {
                let (kind, length) = mark(rest)?;
                (length, kind == Kind::Word)
            }
            _ => (1, false),
        };
        after_placeholder = rest[0] == super::placeholder::PLACEHOLDER;
        let range = at..at + length;
        at = range.end;
        if is_own {
            pieces.push(Piece::Own(range));
            words += 1;
        } else if let Some(Piece::Separator(before)) = pieces.last_mut() {
            before.end = at;
        } else {
            pieces.push(Piece::Separator(range));
        }
    }
    (words <= MAX_WORDS).then_some(pieces)
}

/// Returns the words in which two strings differ, or which are a placeholder in one of them. Returns `None` if the
/// strings differ in anything else, or if storing the whole string costs little more.
pub(super) fn differing(one: &[u8], other: &[u8]) -> Option<WordSet> {
    let pieces = split(one)?;
    let others = split(other)?;
    if pieces.len() != others.len() {
        return None;
    }
    let (mut set, mut words, mut shared): (WordSet, u32, usize) = (0, 0, 0);
    for (here, there) in pieces.into_iter().zip(others) {
        match (here, there) {
            (Piece::Separator(here), Piece::Separator(there)) if one[here.clone()] == other[there.clone()] => {
                shared += here.len();
            }
            (Piece::Separator(_), _) | (_, Piece::Separator(_)) => return None,
            (Piece::Word(here), Piece::Word(there)) if one[here.clone()] == other[there.clone()] => {
                shared += here.len();
                words += 1;
            }
            _ => {
                set |= 1 << words;
                words += 1;
            }
        }
    }
    (shared >= MIN_SHARED && set.count_ones() <= MAX_OWN).then_some(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(contents: &str) -> Vec<&str> {
        let pieces = split(contents.as_bytes()).unwrap();
        let word = |piece: Piece| match piece {
            Piece::Word(range) => Some(&contents[range]),
            _ => None,
        };
        pieces.into_iter().filter_map(word).collect()
    }

    #[test]
    fn addresses_are_one_word_and_escapes_are_none() {
        let contents = r#"{\"ips\":[\"10.128.2.14/23\"],\n\"mac\":\"0a:58:0a:80:02:0e\",\"v\":1,\u00e9t\"fd00::1\"}"#;
        assert_eq!(words(contents), ["ips", "10.128.2.14", "23", "mac", "0a:58:0a:80:02:0e", "v", "1", "t", "fd00::1"]);
        assert_eq!(words("istio-envoy-x7k2m"), ["istio", "envoy", "x7k2m"]);
        let uuid = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
        assert_eq!(words(&format!("id-{uuid}-b {uuid}")), ["id", uuid, "b", uuid]);
        // Not UUIDs.
        assert_eq!(words(&format!("{uuid}0")), ["0a1b2c3d", "4e5f", "6071", "8293", "a4b5c6d7e8f90"]);
        assert_eq!(words("0A1B2C3D-4e5f"), ["0A1B2C3D", "4e5f"]);
        assert_eq!(split(br"a\x"), None);
        assert_eq!(split("a ".repeat(MAX_WORDS + 1).as_bytes()), None);
    }

    #[test]
    fn a_word_beside_a_placeholder_is_none() {
        let contents = b"see app-\0\x01 and \0\x01-x but this";
        let words: Vec<_> =
            split(contents).unwrap().into_iter().filter(|piece| matches!(piece, Piece::Word(_))).collect();
        let texts: Vec<_> = words
            .iter()
            .map(|word| if let Piece::Word(range) = word { &contents[range.clone()] } else { &[] })
            .collect();
        assert_eq!(texts, [&b"see"[..], b"app", b"and", b"x", b"but", b"this"]);
    }

    #[test]
    fn strings_differ_in_words_only_if_everything_else_is_the_same() {
        let of = |ip: &str, mac: &str| format!(r#"{{\"ip\":\"{ip}\",\"mac\":\"{mac}\",\"route\":\"default\"}}"#);
        let differ = |one: &str, other: &str| differing(one.as_bytes(), other.as_bytes());
        assert_eq!(differ(&of("10.0.0.1", "0a:58"), &of("10.0.0.2", "0a:58")), Some(0b10));
        assert_eq!(differ(&of("10.0.0.1", "0a:58"), &of("10.0.0.2", "0a:59")), Some(0b1010));
        assert_eq!(differ(&of("10.0.0.1", "0a:58"), &of("\0\x10", "0a:58")), Some(0b10));
        assert_eq!(differ(&of("10.0.0.1", "0a:58"), &of("10.0.0.1 ", "0a:58")), None);
        assert_eq!(differ("istio-envoy-x7k2m", "istio-envoy-p4w9z"), Some(0b100));
        // Too little is shared.
        assert_eq!(differ("red-a", "red-b"), None);
    }
}
