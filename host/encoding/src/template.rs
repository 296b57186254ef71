//! An encoded section of a fragment, with holes for the values of a Pod.

use super::{
    chunks::{ChunkedBytes, Interner},
    forms,
    fragment::{FRAGMENTS, Fragment},
    placeholder::{self, Kind, Value},
    skeleton::MAX_PLACEHOLDERS,
    tokens::{InText, Placeholder, resolved_kind, text_length},
};

const SENTINEL_DAY: &[u8] = b"2096-10-02T";
/// The range of the sentinels of times.
const SENTINEL_MILLIS: i64 = (FRAGMENTS * MAX_PLACEHOLDERS) as i64 * 1_000;

/// The constant bytes of a section, and the holes between them.
#[derive(Debug)]
pub(super) struct Template {
    pub(super) bytes: ChunkedBytes,
    /// The holes in the order of their offsets.
    pub(super) holes: Box<[Hole]>,
}

#[derive(Debug)]
pub(super) struct Hole {
    /// The offset in the template's bytes.
    at: u32,
    pub(super) placeholder: u16,
    kind: HoleKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HoleKind {
    /// The value's text.
    Text,
    /// The length of the string whose first placeholder this is, u64 little endian.
    Length,
    /// A time in milliseconds since 1970, i64 little endian.
    Millis,
    /// A count, i32 little endian.
    Count,
}

/// Returns the number of a sentinel.
pub(super) fn number_of(text: &[u8]) -> Option<usize> {
    let zero = placeholder::sentinel_text(0);
    let (head, digits) = text.split_at_checked(zero.len() - 5)?;
    (head == &zero.as_bytes()[..head.len()]).then_some(())?;
    let digits: &[u8; 5] = digits.first_chunk()?;
    digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + usize::from(digit - b'0')))
}

impl Template {
    /// Returns the template of a section without values.
    pub(super) fn fixed(section: &[u8]) -> Self {
        Self { bytes: ChunkedBytes::Contiguous(section.into()), holes: Box::default() }
    }

    /// Locates the sentinels of a fragment in one of its sections. Returns None if a value is encoded in a way that a
    /// hole cannot reproduce.
    pub(super) fn trace(section: &[u8], fragment: Fragment, placeholders: &[Placeholder]) -> Option<Self> {
        let sentinel = placeholder::sentinel_text(0).len();
        let here = |number: usize| {
            number.checked_sub(fragment as usize * MAX_PLACEHOLDERS).filter(|at| *at < placeholders.len())
        };
        let mut bytes = Vec::with_capacity(section.len());
        let mut holes: Vec<Hole> = Vec::new();
        let mut hole = |at: usize, placeholder: usize, kind| {
            holes.push(Hole { at: u32::try_from(at).ok()?, placeholder: u16::try_from(placeholder).ok()?, kind });
            Some(())
        };
        let mut at = 0;
        // The placeholders that must follow in the same string: the next one and the last one.
        let mut due: Option<(usize, usize)> = None;
        while let Some(byte) = section.get(at) {
            let rest = &section[at..];
            let text = match *byte {
                b'~' => {
                    rest.get(..sentinel).and_then(number_of).and_then(here).map(|placeholder| (placeholder, sentinel))
                }
                b'2' if rest.starts_with(SENTINEL_DAY) => rest
                    .first_chunk()
                    .and_then(forms::time)
                    .and_then(|time| usize::try_from(time - placeholder::sentinel_time(0)).ok())
                    .and_then(here)
                    .map(|placeholder| (placeholder, 20)),
                _ => None,
            };
            if let Some((placeholder, length)) = text {
                match placeholders[placeholder].text {
                    // A string after its length.
                    Some(InText { before, all, placeholders }) if due.is_none() => {
                        let others = usize::from(placeholders.get()) - 1;
                        let start = bytes.len().checked_sub(before as usize + 8)?;
                        let written = u64::from_le_bytes(*bytes[start..].first_chunk()?);
                        if written != (all as usize + length + others * sentinel) as u64 {
                            return None;
                        }
                        bytes.drain(start..start + 8);
                        hole(start, placeholder, HoleKind::Length)?;
                        due = (others > 0).then(|| (placeholder + 1, placeholder + others));
                    }
                    None if due.is_some_and(|(next, _)| next == placeholder) => {
                        due = due.map(|(next, last)| (next + 1, last)).filter(|(next, last)| next <= last);
                    }
                    // A chunk of a string whose length is elsewhere.
                    _ => return None,
                }
                hole(bytes.len(), placeholder, HoleKind::Text)?;
                at += length;
                continue;
            }
            let millis = rest.first_chunk().map(|bytes| i64::from_le_bytes(*bytes));
            // Other numbers are rarely in this range.
            let since = millis.and_then(|millis| millis.checked_sub(placeholder::sentinel_time(0) * 1_000));
            let since = since.filter(|since| (0..SENTINEL_MILLIS).contains(since) && since % 1_000 == 0);
            let timed = since.and_then(|since| usize::try_from(since / 1_000).ok()).and_then(here);
            if let Some(placeholder) =
                timed.filter(|placeholder| resolved_kind(placeholders, *placeholder) == Kind::Time)
            {
                hole(bytes.len(), placeholder, HoleKind::Millis)?;
                at += 8;
                continue;
            }
            let count = rest.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
            let counted = count
                .and_then(|count| count.checked_sub(placeholder::sentinel_count(0)))
                .and_then(|at| here(at as usize));
            if let Some(placeholder) = counted.filter(|placeholder| placeholders[*placeholder].kind == Kind::Count) {
                hole(bytes.len(), placeholder, HoleKind::Count)?;
                at += 4;
                continue;
            }
            bytes.push(*byte);
            at += 1;
        }
        due.is_none().then(|| Self { bytes: ChunkedBytes::Contiguous(bytes.into()), holes: holes.into() })
    }

    /// Interns the bytes in chunks that end at holes, because sections differ from there on.
    pub(super) fn share(&mut self, interner: &mut Interner) {
        const LEAST: usize = 32;
        let Some(bytes) = self.bytes.contiguous().filter(|_| !self.holes.is_empty()) else { return };
        let mut chunks = Vec::new();
        let mut from = 0;
        for hole in &self.holes {
            let at = hole.at as usize;
            if at - from >= LEAST {
                chunks.push(&bytes[from..at]);
                from = at;
            }
        }
        chunks.push(&bytes[from..]);
        self.bytes = interner.intern_chunks(chunks.into_iter());
    }

    /// Returns true if the sections differ for all values. If it is false, they may still differ.
    ///
    /// Before the first byte that differs, both templates have the same holes at the same offsets. Different values in
    /// these holes make different sections: times and counts have one size, and a string has its length before it.
    pub(super) fn differs_always(&self, placeholders: &[Placeholder], other: &Self, others: &[Placeholder]) -> bool {
        let mut bytes = self.bytes.reader();
        let mut other_bytes = other.bytes.reader();
        let lengths = (self.bytes.len(), other.bytes.len());
        let mut from = 0;
        for at in 0.. {
            let here = self.holes.get(at);
            let there = other.holes.get(at);
            let end = |length: usize, hole: Option<&Hole>| hole.map_or(length, |hole| hole.at as usize);
            let ends = (end(lengths.0, here), end(lengths.1, there));
            if !bytes.is_like(&mut other_bytes, ends.0.min(ends.1) - from) {
                return true;
            }
            let (Some(here), Some(there)) = (here, there) else { return false };
            if ends.0 != ends.1 || here.kind != there.kind {
                return false;
            }
            // Equal lengths mean equal values only for strings with one placeholder and the same bytes around it.
            let text = |placeholders: &[Placeholder], hole: &Hole| {
                placeholders.get(usize::from(hole.placeholder)).and_then(|placeholder| placeholder.text)
            };
            let own_text = text(placeholders, here);
            let other_text = text(others, there);
            let is_alone = own_text == other_text && own_text.is_some_and(|text| text.placeholders.get() == 1);
            if matches!(here.kind, HoleKind::Text | HoleKind::Length) && !is_alone {
                return false;
            }
            from = ends.0;
        }
        false
    }

    /// Returns the length of the result of [`Self::fill`].
    pub(super) fn len(&self, placeholders: &[Placeholder], values: &[Value<'_>]) -> usize {
        let hole = |hole: &Hole| match (hole.kind, values.get(usize::from(hole.placeholder))) {
            (HoleKind::Text, Some(value)) => value.len(),
            (HoleKind::Length, Some(_)) => placeholders[usize::from(hole.placeholder)].text.map_or(0, |_| 8),
            (HoleKind::Millis, Some(Value::Time(_))) => 8,
            (HoleKind::Count, Some(Value::Count(_))) => 4,
            _ => 0,
        };
        self.bytes.len() + self.holes.iter().map(hole).sum::<usize>()
    }

    pub(super) fn fill(&self, placeholders: &[Placeholder], values: &[Value<'_>]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len(placeholders, values));
        let mut bytes = self.bytes.reader();
        let mut from = 0;
        for hole in &self.holes {
            let at = hole.at as usize;
            bytes.take_to(at - from, &mut out);
            from = at;
            let placeholder = usize::from(hole.placeholder);
            // Stored values are complete.
            let Some(value) = values.get(placeholder) else { continue };
            match (hole.kind, value) {
                (HoleKind::Text, value) => value.write_text(&mut out),
                (HoleKind::Length, _) => {
                    let Some(length) = text_length(placeholders, values, placeholder) else { continue };
                    out.extend_from_slice(&length.to_le_bytes());
                }
                (HoleKind::Millis, Value::Time(seconds)) => out.extend_from_slice(&(seconds * 1_000).to_le_bytes()),
                (HoleKind::Count, Value::Count(count)) => out.extend_from_slice(&count.to_le_bytes()),
                _ => {}
            }
        }
        bytes.for_each(|chunk| out.extend_from_slice(chunk));
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{placeholder::PLACEHOLDER, tokens};

    /// Texts of placeholders with literals before, between and after them.
    type TextsOfLeaves = Vec<(Vec<String>, String)>;

    fn texts() -> impl Strategy<Value = TextsOfLeaves> {
        // Long enough for a chunk, or not.
        let literal = || ("[ab]{0,2}", prop::sample::select(&[1, 20])).prop_map(|(text, times)| text.repeat(times));
        prop::collection::vec((prop::collection::vec(literal(), 1..3), literal()), 1..3)
    }

    /// Returns a template as a section has it: strings with their lengths, and a number at the end.
    fn template(texts: &TextsOfLeaves, last: u8) -> (Template, Box<[Placeholder]>) {
        let mut key = Vec::new();
        let mut bytes = Vec::new();
        let mut holes = Vec::new();
        let mut placeholder = 0;
        for (before, behind) in texts {
            holes.push(Hole { at: bytes.len() as u32, placeholder, kind: HoleKind::Length });
            key.push(b'"');
            for literal in before {
                bytes.extend_from_slice(literal.as_bytes());
                key.extend_from_slice(literal.as_bytes());
                holes.push(Hole { at: bytes.len() as u32, placeholder, kind: HoleKind::Text });
                key.extend([PLACEHOLDER, Kind::Text as u8]);
                placeholder += 1;
            }
            bytes.extend_from_slice(behind.as_bytes());
            key.extend_from_slice(behind.as_bytes());
            key.push(b'"');
        }
        bytes.push(last);
        (
            Template { bytes: ChunkedBytes::Contiguous(bytes.into()), holes: holes.into() },
            tokens::placeholders(&key).unwrap(),
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn templates_that_always_differ_differ_for_all_values(
            one in texts(), other in texts(), last in 0..2_u8,
            values in prop::collection::vec("[ab]{0,2}", 4), others in prop::collection::vec("[ab]{0,2}", 4),
        ) {
            let ((one, placeholders), (other, other_leaves)) = (template(&one, 0), template(&other, last));
            let fill = |template: &Template, placeholders: &[Placeholder], values: &[String]| {
                template.fill(placeholders, &values.iter().map(|value| Value::Text(value)).collect::<Vec<_>>())
            };
            let here = fill(&one, &placeholders, &values);
            let there = fill(&other, &other_leaves, &others);
            let differs = one.differs_always(&placeholders, &other, &other_leaves);
            prop_assert!(!differs || here != there);
            // The result is the same with interned chunks.
            let mut one = one;
            let mut other = other;
            let mut known = Interner::new(foldhash::quality::FixedState::with_seed(1));
            [&mut one, &mut other].into_iter().for_each(|template| template.share(&mut known));
            prop_assert_eq!(one.differs_always(&placeholders, &other, &other_leaves), differs);
            prop_assert_eq!((fill(&one, &placeholders, &values), fill(&other, &other_leaves, &others)), (here, there));
        }
    }

    #[test]
    fn templates_with_different_bytes_after_equal_holes_differ() {
        let texts = vec![(vec!["a".to_owned()], "b".to_owned())];
        let ((one, placeholders), (other, others)) = (template(&texts, 0), template(&texts, 1));
        assert!(one.differs_always(&placeholders, &other, &others));
        assert!(!one.differs_always(&placeholders, &one, &placeholders));
    }
}
