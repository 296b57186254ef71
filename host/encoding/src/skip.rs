//! Finds the end of a string, or of a whole value, in JSON without parsing it.
//!
//! Sixty-four bytes of a value are examined in one step, as simdjson does (Langdale and Lemire, 2019). Nothing is
//! validated here: in bytes that are not JSON, an end may be anywhere or missing. Callers compare the bytes up to the
//! end with text that is known to be JSON.

/// One bit for each of 64 bytes, the first the lowest.
#[derive(Clone, Copy)]
struct Block {
    quotes: u64,
    backslashes: u64,
    opening: u64,
    closing: u64,
}

/// Brackets and braces differ in one bit, so that both are found by one comparison: `[` and `{`, `]` and `}`.
const CASE: u8 = 0x20;

/// The processor lacks the instructions that examine 64 bytes at a time.
struct NoSimd;

#[cfg(target_arch = "x86_64")]
mod simd {
    use core::arch::x86_64::{
        __m256i, _mm256_cmpeq_epi8, _mm256_movemask_epi8, _mm256_or_si256, _mm256_set_epi64x, _mm256_set1_epi8,
    };

    use super::{Block, CASE, NoSimd, Quotes};

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(bytes: &[u8; 32]) -> __m256i {
        let (quarters, _) = bytes.as_chunks::<8>();
        let quarter = |at: usize| i64::from_le_bytes(quarters[at]);
        _mm256_set_epi64x(quarter(3), quarter(2), quarter(1), quarter(0))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn equal(halves: [__m256i; 2], to: u8) -> u64 {
        let to = _mm256_set1_epi8(to as i8);
        let [low, high] = halves.map(|half| _mm256_movemask_epi8(_mm256_cmpeq_epi8(half, to)) as u32);
        u64::from(high) << 32 | u64::from(low)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn block(bytes: &[u8; 64]) -> Block {
        let (halves, _) = bytes.as_chunks::<32>();
        let halves = [load(&halves[0]), load(&halves[1])];
        let folded = halves.map(|half| _mm256_or_si256(half, _mm256_set1_epi8(CASE as i8)));
        Block {
            quotes: equal(halves, b'"'),
            backslashes: equal(halves, b'\\'),
            opening: equal(folded, b'{'),
            closing: equal(folded, b'}'),
        }
    }

    #[target_feature(enable = "avx2,popcnt,bmi1")]
    fn container_end_avx2(json: &[u8], from: usize) -> Option<usize> {
        super::walk(json, from, |bytes| block(bytes), |_, _, _| {})
    }

    #[target_feature(enable = "avx2,popcnt,bmi1")]
    fn quotes_avx2(json: &[u8], from: usize, quotes: &mut Quotes) -> Option<usize> {
        super::walk(json, from, |bytes| block(bytes), |at, found, escapes| quotes.add(at, found, escapes))
    }

    #[inline]
    fn is_present() -> bool {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") && is_x86_feature_detected!("bmi1")
    }

    /// Returns an error on a processor without these instructions; the same holds for the functions below.
    #[inline]
    pub(super) fn container_end(json: &[u8], from: usize) -> Result<Option<usize>, NoSimd> {
        // SAFETY: the processor has what the function needs.
        is_present().then(|| unsafe { container_end_avx2(json, from) }).ok_or(NoSimd)
    }

    #[inline]
    pub(super) fn quotes(json: &[u8], from: usize, quotes: &mut Quotes) -> Result<Option<usize>, NoSimd> {
        // SAFETY: the processor has what the function needs.
        is_present().then(|| unsafe { quotes_avx2(json, from, quotes) }).ok_or(NoSimd)
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod simd {
    pub(super) fn container_end(_: &[u8], _: usize) -> Result<Option<usize>, super::NoSimd> {
        Err(super::NoSimd)
    }

    pub(super) fn quotes(_: &[u8], _: usize, _: &mut super::Quotes) -> Result<Option<usize>, super::NoSimd> {
        Err(super::NoSimd)
    }
}

fn block(bytes: &[u8; 64]) -> Block {
    let equal = |is: &dyn Fn(u8) -> bool| {
        bytes.iter().enumerate().fold(0, |mask, (at, byte)| mask | u64::from(is(*byte)) << at)
    };
    Block {
        quotes: equal(&|byte| byte == b'"'),
        backslashes: equal(&|byte| byte == b'\\'),
        opening: equal(&|byte| byte | CASE == b'{'),
        closing: equal(&|byte| byte | CASE == b'}'),
    }
}

/// Returns the end of a string whose content begins at `from`: the index of its closing quote, and whether it contains
/// an escape.
#[inline]
pub(super) fn string_end(json: &[u8], from: usize) -> Option<(usize, bool)> {
    let mut at = from;
    let mut escaped = false;
    loop {
        let found = at + memchr::memchr2(b'"', b'\\', json.get(at..)?)?;
        if json.get(found) == Some(&b'"') {
            return Some((found, escaped));
        }
        // The byte after a backslash always belongs to the escape.
        escaped = true;
        at = found + 2;
    }
}

/// Returns the end of an object or array that begins at `from`: the index after its closing bracket.
pub(super) fn container_end(json: &[u8], from: usize) -> Option<usize> {
    simd::container_end(json, from).unwrap_or_else(|NoSimd| walk(json, from, block, |_, _, _| {}))
}

/// The quotes of an object or array, in pairs: one before and one after each string.
#[derive(Debug, Default)]
pub(super) struct Quotes {
    pub(super) at: Vec<u32>,
    /// The strings may contain escapes.
    pub(super) escapes: bool,
}

impl Quotes {
    /// Returns the end as [`container_end`] does, and collects the quotes before it. Also returns `None` if the JSON is
    /// longer than 4 GiB.
    pub(super) fn find(&mut self, json: &[u8], from: usize) -> Option<usize> {
        u32::try_from(json.len()).ok()?;
        self.at.clear();
        self.escapes = false;
        let end = simd::quotes(json, from, self);
        end.unwrap_or_else(|NoSimd| walk(json, from, block, |at, found, escapes| self.add(at, found, escapes)))
    }

    #[inline(always)]
    fn add(&mut self, at: usize, mut found: u64, escapes: bool) {
        self.escapes |= escapes;
        while found != 0 {
            // Indexes fit into 32 bits.
            self.at.push(at as u32 + found.trailing_zeros());
            found &= found - 1;
        }
    }
}

/// Finds the end of an object or array. Calls `quotes` with the start of each 64 bytes, the quotes in them that begin
/// or end a string, and whether they contain a backslash.
#[inline(always)]
fn walk(
    json: &[u8],
    from: usize,
    block: impl Fn(&[u8; 64]) -> Block,
    mut quotes: impl FnMut(usize, u64, bool),
) -> Option<usize> {
    let mut at = from;
    let mut depth = 0_i32;
    // `inside` is all ones within a string; `carried` is one if the last byte was a backslash that escapes the next
    // byte.
    let mut inside = 0_u64;
    let mut carried = 0_u64;
    let mut tail = [0; 64];
    while at < json.len() {
        let bytes = match json[at..].first_chunk::<64>() {
            Some(bytes) => bytes,
            None => {
                let rest = &json[at..];
                tail[..rest.len()].copy_from_slice(rest);
                &tail
            }
        };
        let block = block(bytes);
        let escaped = if block.backslashes | carried == 0 { 0 } else { escaped(block.backslashes, &mut carried) };
        let real = block.quotes & !escaped;
        let within = prefix_xor(real) ^ inside;
        inside = ((within as i64) >> 63) as u64;
        let opening = block.opening & !within;
        let closing = block.closing & !within;
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
                    quotes(at, real & ((1 << bit) - 1), block.backslashes != 0);
                    return Some(at + bit as usize + 1);
                }
            }
        }
        quotes(at, real, block.backslashes != 0);
        at += 64;
    }
    None
}

/// Returns which of the 64 bytes follow a backslash that is not itself escaped.
fn escaped(backslashes: u64, carried: &mut u64) -> u64 {
    let mut escaped = *carried;
    *carried = 0;
    let mut left = backslashes & !escaped;
    while left != 0 {
        let bit = left.trailing_zeros();
        if bit == 63 {
            *carried = 1;
            break;
        }
        let next = 1 << (bit + 1);
        escaped |= next;
        left &= !(1 << bit) & !next;
    }
    escaped
}

/// Returns a mask in which bit n is the parity of bits 0 to n: all bits from one quote up to the next are set.
#[inline(always)]
fn prefix_xor(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let text =
            prop::collection::vec(prop::sample::select(&["\"", "\\", "{", "}", "[", "]", "a", "\u{e9}", ","]), 0..40)
                .prop_map(|parts| parts.concat());
        let placeholder =
            prop_oneof![text.clone().prop_map(serde_json::Value::from), any::<u32>().prop_map(Into::into)];
        placeholder.prop_recursive(4, 40, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                prop::collection::vec((text.clone(), inner), 0..6)
                    .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_end_of_a_value_is_found(value in json(), before in 0..20usize, after in 0..40usize) {
            let text = value.to_string();
            let bytes = format!("{}{text}{}", " ".repeat(before), "}\"]".repeat(after)).into_bytes();
            match text.as_bytes()[0] {
                b'{' | b'[' => {
                    prop_assert_eq!(container_end(&bytes, before), Some(before + text.len()));
                    prop_assert_eq!(walk(&bytes, before, block, |_, _, _| {}), Some(before + text.len()));
                }
                b'"' => {
                    let (end, escaped) = string_end(&bytes, before + 1).unwrap();
                    prop_assert_eq!(end, before + text.len() - 1);
                    prop_assert_eq!(escaped, text.contains('\\'));
                }
                _ => {}
            }
        }

        #[test]
        fn the_end_of_invalid_json_is_within_its_bytes_or_missing(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            from in 0..100usize,
        ) {
            prop_assert!(container_end(&bytes, from).is_none_or(|end| end <= bytes.len()));
            prop_assert_eq!(container_end(&bytes, from), walk(&bytes, from, block, |_, _, _| {}));
            prop_assert!(string_end(&bytes, from).is_none_or(|(end, _)| end < bytes.len()));
        }
    }

    proptest! {
        #[test]
        fn quotes_are_around_the_texts_of_a_value(value in json(), before in 0..20usize) {
            let text = serde_json::Value::from(vec![value]).to_string();
            let bytes = format!("{}{text}\"\"", " ".repeat(before)).into_bytes();
            let mut expected = Vec::new();
            let mut at = before;
            while at < before + text.len() {
                if bytes[at] == b'"' {
                    let (end, _) = string_end(&bytes, at + 1).unwrap();
                    expected.extend([at as u32, end as u32]);
                    at = end;
                }
                at += 1;
            }
            let mut quotes = Quotes::default();
            prop_assert_eq!(quotes.find(&bytes, before), Some(before + text.len()));
            prop_assert_eq!(&quotes.at, &expected);
            prop_assert!(quotes.escapes || !text.contains('\\'));
            let mut plainly = Quotes::default();
            walk(&bytes, before, block, |at, found, escapes| plainly.add(at, found, escapes));
            prop_assert_eq!((plainly.at, plainly.escapes), (quotes.at, quotes.escapes));
        }
    }

    #[test]
    fn a_truncated_value_has_no_end() {
        assert_eq!(container_end(br#"{"a":{"b":"}"}"#, 0), None);
        assert_eq!(string_end(br#"abc\""#, 0), None);
    }
}
