//! Finding ends in JSON without reading it: of a string, and of a whole value.
//!
//! Sixteen bytes are looked at in one step. Nothing here validates: on bytes that are no JSON an end may be anywhere
//! within them, or nowhere. Whoever asks compares what lies between with something that is known to be JSON.

/// One bit for each of 16 bytes.
#[derive(Clone, Copy)]
struct Block {
    quotes: u32,
    backslashes: u32,
    opening: u32,
    closing: u32,
}

/// Brackets and braces differ in one bit, so that both are found by one comparison: `[` and `{`, `]` and `}`.
const CASE: u8 = 0x20;

#[cfg(target_arch = "x86_64")]
mod sixteen {
    use core::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x, _mm_set1_epi8};

    use super::{Block, CASE};

    #[inline]
    #[target_feature(enable = "sse2")]
    fn load(bytes: &[u8; 16]) -> __m128i {
        let halves = u128::from_le_bytes(*bytes);
        _mm_set_epi64x((halves >> 64) as i64, halves as i64)
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn equal(bytes: __m128i, to: u8) -> u32 {
        _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(to as i8))) as u32
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn string_sse2(bytes: &[u8; 16]) -> (u32, u32) {
        let bytes = load(bytes);
        (equal(bytes, b'"'), equal(bytes, b'\\'))
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn block_sse2(bytes: &[u8; 16]) -> Block {
        let bytes = load(bytes);
        let folded = _mm_or_si128(bytes, _mm_set1_epi8(CASE as i8));
        Block {
            quotes: equal(bytes, b'"'),
            backslashes: equal(bytes, b'\\'),
            opening: equal(folded, b'{'),
            closing: equal(folded, b'}'),
        }
    }

    #[inline]
    pub(super) fn string(bytes: &[u8; 16]) -> (u32, u32) {
        // SAFETY: SSE2 is part of x86-64, every processor has it.
        unsafe { string_sse2(bytes) }
    }

    #[inline]
    pub(super) fn block(bytes: &[u8; 16]) -> Block {
        // SAFETY: as above.
        unsafe { block_sse2(bytes) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod sixteen {
    use super::{Block, CASE};

    fn equal(bytes: &[u8; 16], is: impl Fn(u8) -> bool) -> u32 {
        bytes.iter().enumerate().fold(0, |mask, (at, byte)| mask | u32::from(is(*byte)) << at)
    }

    pub(super) fn string(bytes: &[u8; 16]) -> (u32, u32) {
        (equal(bytes, |byte| byte == b'"'), equal(bytes, |byte| byte == b'\\'))
    }

    pub(super) fn block(bytes: &[u8; 16]) -> Block {
        let (quotes, backslashes) = string(bytes);
        let opening = equal(bytes, |byte| byte | CASE == b'{');
        let closing = equal(bytes, |byte| byte | CASE == b'}');
        Block { quotes, backslashes, opening, closing }
    }
}

/// The end of a string whose content begins at `from`: where its closing quote is, and whether there is an escape in it.
#[inline]
pub(super) fn string_end(json: &[u8], from: usize) -> Option<(usize, bool)> {
    let mut at = from;
    let mut escaped = false;
    loop {
        let rest = json.get(at..)?;
        let (quote, backslash) = match rest.first_chunk::<16>() {
            Some(block) => {
                let (quotes, backslashes) = sixteen::string(block);
                (quotes.trailing_zeros() as usize, backslashes.trailing_zeros() as usize)
            }
            None => {
                let place = |of| rest.iter().position(|byte| *byte == of).unwrap_or(32);
                let (quote, backslash) = (place(b'"'), place(b'\\'));
                if quote == 32 && backslash == 32 {
                    return None;
                }
                (quote, backslash)
            }
        };
        if quote < backslash {
            return Some((at + quote, escaped));
        }
        if backslash < 16 {
            // The byte after it belongs to it, whatever it is.
            escaped = true;
            at += backslash + 2;
        } else {
            at += 16;
        }
    }
}

/// The end of an object or array that begins at `from`: behind its closing bracket.
pub(super) fn container_end(json: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    let mut depth = 0_i32;
    // All ones within a string, and one where the last byte was a backslash that escapes the next.
    let (mut inside, mut carried) = (0_u32, 0_u32);
    let mut tail = [0; 16];
    while at < json.len() {
        let bytes = match json[at..].first_chunk::<16>() {
            Some(bytes) => bytes,
            None => {
                let rest = &json[at..];
                tail[..rest.len()].copy_from_slice(rest);
                &tail
            }
        };
        let block = sixteen::block(bytes);
        let escaped = if block.backslashes | carried == 0 { 0 } else { escaped(block.backslashes, &mut carried) };
        let within = prefix_xor(block.quotes & !escaped) ^ inside;
        inside = if within & 0x8000 == 0 { 0 } else { 0xffff };
        let (opening, closing) = (block.opening & !within, block.closing & !within);
        let closed = closing.count_ones() as i32;
        if closed < depth {
            depth += opening.count_ones() as i32 - closed;
        } else {
            let mut brackets = opening | closing;
            while brackets != 0 {
                let bit = brackets.trailing_zeros();
                brackets &= brackets - 1;
                depth += if opening & (1 << bit) == 0 { -1 } else { 1 };
                if depth <= 0 {
                    return Some(at + bit as usize + 1);
                }
            }
        }
        at += 16;
    }
    None
}

/// Which of the 16 bytes follow a backslash that is not itself escaped.
fn escaped(backslashes: u32, carried: &mut u32) -> u32 {
    let mut escaped = *carried;
    *carried = 0;
    let mut left = backslashes & !escaped;
    while left != 0 {
        let bit = left.trailing_zeros();
        let next = 1 << (bit + 1);
        if bit == 15 {
            *carried = 1;
        }
        escaped |= next & 0xffff;
        left &= !(1 << bit) & !next;
    }
    escaped
}

/// Bit n is the parity of bits 0 to n: from a quote on, up to the next one, all are set.
fn prefix_xor(mut bits: u32) -> u32 {
    bits ^= bits << 1;
    bits ^= bits << 2;
    bits ^= bits << 4;
    bits ^= bits << 8;
    bits & 0xffff
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let text =
            prop::collection::vec(prop::sample::select(&["\"", "\\", "{", "}", "[", "]", "a", "\u{e9}", ","]), 0..40)
                .prop_map(|parts| parts.concat());
        let leaf = prop_oneof![text.clone().prop_map(serde_json::Value::from), any::<u32>().prop_map(Into::into)];
        leaf.prop_recursive(4, 40, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                prop::collection::vec((text.clone(), inner), 0..6)
                    .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_end_of_a_value_is_where_it_was_written_to(value in json(), before in 0..20usize, after in 0..40usize) {
            let text = value.to_string();
            let bytes = format!("{}{text}{}", " ".repeat(before), "}\"]".repeat(after)).into_bytes();
            match text.as_bytes()[0] {
                b'{' | b'[' => prop_assert_eq!(container_end(&bytes, before), Some(before + text.len())),
                b'"' => {
                    let (end, escaped) = string_end(&bytes, before + 1).unwrap();
                    prop_assert_eq!(end, before + text.len() - 1);
                    prop_assert_eq!(escaped, text.contains('\\'));
                }
                _ => {}
            }
        }

        #[test]
        fn bytes_that_are_no_json_have_an_end_within_them_or_none(bytes in prop::collection::vec(any::<u8>(), 0..100), from in 0..100usize) {
            prop_assert!(container_end(&bytes, from).is_none_or(|end| end <= bytes.len()));
            prop_assert!(string_end(&bytes, from).is_none_or(|(end, _)| end < bytes.len()));
        }
    }

    #[test]
    fn what_is_cut_off_has_no_end() {
        assert_eq!(container_end(br#"{"a":{"b":"}"}"#, 0), None);
        assert_eq!(string_end(br#"abc\""#, 0), None);
    }
}
