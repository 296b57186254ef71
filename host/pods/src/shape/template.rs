//! One encoded section of a part, with holes for what is a Pod's own.

use super::{
    key::{Around, Leaf, real, text_length},
    leaf::{self, Kind, Value},
    part::MAX_LEAVES,
    pieces::{Text, Texts},
    scan::PARTS,
};

const SENTINEL_DAY: &[u8] = b"2096-10-02T";
/// From the first time of a sentinel to behind the last one.
const SENTINEL_MILLIS: i64 = (PARTS * MAX_LEAVES) as i64 * 1_000;

/// One encoded section: bytes, and what goes between them.
#[derive(Debug)]
pub(super) struct Template {
    pub(super) bytes: Text,
    /// By their place.
    pub(super) holes: Box<[Hole]>,
}

#[derive(Debug)]
pub(super) struct Hole {
    /// Before this byte of the template.
    at: u32,
    pub(super) leaf: u16,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// The text.
    Text,
    /// The length of the text of which the leaf is the first, u64 little endian.
    Length,
    /// Milliseconds of the epoch, i64 little endian.
    Millis,
    /// i32 little endian.
    Count,
}

/// The number in the text of a sentinel.
pub(super) fn number_of(text: &[u8]) -> Option<usize> {
    let zero = leaf::sentinel_text(0);
    let (head, digits) = text.split_at_checked(zero.len() - 5)?;
    (head == &zero.as_bytes()[..head.len()]).then_some(())?;
    let digits: &[u8; 5] = digits.first_chunk()?;
    digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + usize::from(digit - b'0')))
}

impl Template {
    /// Finds the sentinels of a part in one of its sections.
    pub(super) fn trace(section: &[u8], part: usize, leaves: &[Leaf]) -> Option<Self> {
        let sentinel = leaf::sentinel_text(0).len();
        let here = |number: usize| number.checked_sub(part * MAX_LEAVES).filter(|at| *at < leaves.len());
        let mut bytes = Vec::with_capacity(section.len());
        let mut holes: Vec<Hole> = Vec::new();
        let mut hole = |at: usize, leaf: usize, what| {
            holes.push(Hole { at: u32::try_from(at).ok()?, leaf: u16::try_from(leaf).ok()?, what });
            Some(())
        };
        let mut at = 0;
        // The leaves that must come next, as the text has not ended: the next one and the last.
        let mut due: Option<(usize, usize)> = None;
        while let Some(byte) = section.get(at) {
            let rest = &section[at..];
            let text = match *byte {
                b'~' => rest.get(..sentinel).and_then(number_of).and_then(here).map(|leaf| (leaf, sentinel)),
                b'2' if rest.starts_with(SENTINEL_DAY) => rest
                    .first_chunk()
                    .and_then(leaf::time)
                    .and_then(|time| usize::try_from(time - leaf::sentinel_time(0)).ok())
                    .and_then(here)
                    .map(|leaf| (leaf, 20)),
                _ => None,
            };
            if let Some((leaf, length)) = text {
                match leaves[leaf].text {
                    // A text with its length before it.
                    Some(Around { before, all, leaves }) if due.is_none() => {
                        let others = usize::from(leaves.get()) - 1;
                        let start = bytes.len().checked_sub(before as usize + 8)?;
                        let written = u64::from_le_bytes(*bytes[start..].first_chunk()?);
                        if written != (all as usize + length + others * sentinel) as u64 {
                            return None;
                        }
                        bytes.drain(start..start + 8);
                        hole(start, leaf, What::Length)?;
                        due = (others > 0).then(|| (leaf + 1, leaf + others));
                    }
                    None if due.is_some_and(|(next, _)| next == leaf) => {
                        due = due.map(|(next, last)| (next + 1, last)).filter(|(next, last)| next <= last);
                    }
                    // A part of a text: how long it will be nothing here tells.
                    _ => return None,
                }
                hole(bytes.len(), leaf, What::Text)?;
                at += length;
                continue;
            }
            let millis = rest.first_chunk().map(|bytes| i64::from_le_bytes(*bytes));
            // Of the first sentinel on: few places hold such a number by chance.
            let since = millis.and_then(|millis| millis.checked_sub(leaf::sentinel_time(0) * 1_000));
            let since = since.filter(|since| (0..SENTINEL_MILLIS).contains(since) && since % 1_000 == 0);
            let timed = since.and_then(|since| usize::try_from(since / 1_000).ok()).and_then(here);
            if let Some(leaf) = timed.filter(|leaf| real(leaves, *leaf) == Kind::Time) {
                hole(bytes.len(), leaf, What::Millis)?;
                at += 8;
                continue;
            }
            let count = rest.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
            let counted =
                count.and_then(|count| count.checked_sub(leaf::sentinel_count(0))).and_then(|at| here(at as usize));
            if let Some(leaf) = counted.filter(|leaf| leaves[*leaf].kind == Kind::Count) {
                hole(bytes.len(), leaf, What::Count)?;
                at += 4;
                continue;
            }
            bytes.push(*byte);
            at += 1;
        }
        due.is_none().then(|| Self { bytes: Text::Whole(bytes.into()), holes: holes.into() })
    }

    /// Keeps its bytes in pieces that others have too. They end where holes are: there begins what differs.
    pub(super) fn share(&mut self, texts: &mut Texts) {
        const LEAST: usize = 32;
        let Some(bytes) = self.bytes.whole().filter(|_| !self.holes.is_empty()) else { return };
        let (mut pieces, mut from) = (Vec::new(), 0);
        for hole in &self.holes {
            let at = hole.at as usize;
            if at - from >= LEAST {
                pieces.push(&bytes[from..at]);
                from = at;
            }
        }
        pieces.push(&bytes[from..]);
        self.bytes = texts.share_pieces(pieces.into_iter());
    }

    /// True when the two differ whatever goes into their holes. When it is false they may still differ.
    ///
    /// Up to the first byte that differs between the templates they have like holes at like places. If what goes into
    /// these differs, the sections do: a time or a count is of one size, and the length of a text stands before it.
    pub(super) fn differs_always(&self, leaves: &[Leaf], other: &Self, others: &[Leaf]) -> bool {
        let (mut bytes, mut other_bytes) = (self.bytes.reader(), other.bytes.reader());
        let (lengths, mut from) = ((self.bytes.len(), other.bytes.len()), 0);
        for at in 0.. {
            let (here, there) = (self.holes.get(at), other.holes.get(at));
            let end = |length: usize, hole: Option<&Hole>| hole.map_or(length, |hole| hole.at as usize);
            let ends = (end(lengths.0, here), end(lengths.1, there));
            if !bytes.is_like(&mut other_bytes, ends.0.min(ends.1) - from) {
                return true;
            }
            let (Some(here), Some(there)) = (here, there) else { return false };
            if ends.0 != ends.1 || here.what != there.what {
                return false;
            }
            // Of one length only if what is around their leaf is; several leaves of one text may share it otherwise.
            let text = |leaves: &[Leaf], hole: &Hole| leaves.get(usize::from(hole.leaf)).and_then(|leaf| leaf.text);
            let (text, other_text) = (text(leaves, here), text(others, there));
            let is_alone = text == other_text && text.is_some_and(|text| text.leaves.get() == 1);
            if matches!(here.what, What::Text | What::Length) && !is_alone {
                return false;
            }
            from = ends.0;
        }
        false
    }

    /// How long [`Self::fill`] is.
    fn len(&self, leaves: &[Leaf], values: &[Value<'_>]) -> usize {
        let hole = |hole: &Hole| match (hole.what, values.get(usize::from(hole.leaf))) {
            (What::Text, Some(value)) => value.len(),
            (What::Length, Some(_)) => leaves[usize::from(hole.leaf)].text.map_or(0, |_| 8),
            (What::Millis, Some(Value::Time(_))) => 8,
            (What::Count, Some(Value::Count(_))) => 4,
            _ => 0,
        };
        self.bytes.len() + self.holes.iter().map(hole).sum::<usize>()
    }

    pub(super) fn fill(&self, leaves: &[Leaf], values: &[Value<'_>]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len(leaves, values));
        let (mut bytes, mut from) = (self.bytes.reader(), 0);
        for hole in &self.holes {
            let at = hole.at as usize;
            bytes.take_to(at - from, &mut out);
            from = at;
            let leaf = usize::from(hole.leaf);
            // There is a value for each leaf, unless what was kept is not what was read.
            let Some(value) = values.get(leaf) else { continue };
            match (hole.what, value) {
                (What::Text, value) => value.write_text(&mut out),
                (What::Length, _) => {
                    let Some(length) = text_length(leaves, values, leaf) else { continue };
                    out.extend_from_slice(&length.to_le_bytes());
                }
                (What::Millis, Value::Time(seconds)) => out.extend_from_slice(&(seconds * 1_000).to_le_bytes()),
                (What::Count, Value::Count(count)) => out.extend_from_slice(&count.to_le_bytes()),
                _ => {}
            }
        }
        bytes.for_each(|piece| out.extend_from_slice(piece));
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::shape::{key, leaf::MARK};

    /// Texts of leaves with something before, between and behind them.
    type TextsOfLeaves = Vec<(Vec<String>, String)>;

    fn texts() -> impl Strategy<Value = TextsOfLeaves> {
        // Of the length of a piece, or not.
        let literal = || ("[ab]{0,2}", prop::sample::select(&[1, 20])).prop_map(|(text, times)| text.repeat(times));
        prop::collection::vec((prop::collection::vec(literal(), 1..3), literal()), 1..3)
    }

    /// As a section has them, each with its length before it, and a number at the end.
    fn template(texts: &TextsOfLeaves, last: u8) -> (Template, Box<[Leaf]>) {
        let (mut key, mut bytes, mut holes) = (Vec::new(), Vec::new(), Vec::new());
        let mut leaf = 0;
        for (before, behind) in texts {
            holes.push(Hole { at: bytes.len() as u32, leaf, what: What::Length });
            key.push(b'"');
            for literal in before {
                bytes.extend_from_slice(literal.as_bytes());
                key.extend_from_slice(literal.as_bytes());
                holes.push(Hole { at: bytes.len() as u32, leaf, what: What::Text });
                key.extend([MARK, Kind::Text as u8]);
                leaf += 1;
            }
            bytes.extend_from_slice(behind.as_bytes());
            key.extend_from_slice(behind.as_bytes());
            key.push(b'"');
        }
        bytes.push(last);
        (Template { bytes: Text::Whole(bytes.into()), holes: holes.into() }, key::leaves(&key).unwrap())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn what_differs_always_differs_whatever_goes_into_it(
            one in texts(), other in texts(), last in 0..2_u8,
            values in prop::collection::vec("[ab]{0,2}", 4), others in prop::collection::vec("[ab]{0,2}", 4),
        ) {
            let ((one, leaves), (other, other_leaves)) = (template(&one, 0), template(&other, last));
            let fill = |template: &Template, leaves: &[Leaf], values: &[String]| {
                template.fill(leaves, &values.iter().map(|value| Value::Text(value)).collect::<Vec<_>>())
            };
            let (here, there) = (fill(&one, &leaves, &values), fill(&other, &other_leaves, &others));
            let differs = one.differs_always(&leaves, &other, &other_leaves);
            prop_assert!(!differs || here != there);
            // It is all the same in pieces.
            let (mut one, mut other) = (one, other);
            let mut known = Texts::new(foldhash::quality::FixedState::with_seed(1));
            [&mut one, &mut other].into_iter().for_each(|template| template.share(&mut known));
            prop_assert_eq!(one.differs_always(&leaves, &other, &other_leaves), differs);
            prop_assert_eq!((fill(&one, &leaves, &values), fill(&other, &other_leaves, &others)), (here, there));
        }
    }

    #[test]
    fn a_letter_that_differs_behind_like_holes_differs_always() {
        let texts = vec![(vec!["a".to_owned()], "b".to_owned())];
        let ((one, leaves), (other, others)) = (template(&texts, 0), template(&texts, 1));
        assert!(one.differs_always(&leaves, &other, &others));
        assert!(!one.differs_always(&leaves, &one, &leaves));
    }
}
