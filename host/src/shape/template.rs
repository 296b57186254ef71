//! One encoded section of a part, with holes for what is a Pod's own.

use std::mem::discriminant;

use super::{
    key::{Around, Leaf, real, text_length},
    leaf::{self, Kind, Value},
    part::MAX_LEAVES,
};

const SENTINEL_DAY: &[u8] = b"2096-10-02T";

/// One encoded section: bytes, and what goes between them.
#[derive(Debug)]
pub(super) struct Template {
    pub(super) bytes: Box<[u8]>,
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
            let seconds = millis.filter(|millis| millis % 1_000 == 0).map(|millis| millis / 1_000);
            let timed =
                seconds.and_then(|seconds| usize::try_from(seconds - leaf::sentinel_time(0)).ok()).and_then(here);
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
        due.is_none().then(|| Self { bytes: bytes.into(), holes: holes.into() })
    }

    /// True when the bytes differ before the two templates part ways; then they need not be filled. When it is false
    /// they may still differ.
    pub(super) fn differs_soon(
        &self,
        own: (&[Leaf], &[Value<'_>]),
        other: &Self,
        others: (&[Leaf], &[Value<'_>]),
    ) -> bool {
        let mut from = 0;
        for hole in 0.. {
            let (here, there) = (self.holes.get(hole), other.holes.get(hole));
            let end = |template: &Self, hole: Option<&Hole>| hole.map_or(template.bytes.len(), |hole| hole.at as usize);
            let ends = (end(self, here), end(other, there));
            let common = from..ends.0.min(ends.1);
            if self.bytes[common.clone()] != other.bytes[common] {
                return true;
            }
            let (Some(here), Some(there)) = (here, there) else { return false };
            if ends.0 != ends.1 || here.what != there.what {
                return false;
            }
            let (leaf, other_leaf) = (usize::from(here.leaf), usize::from(there.leaf));
            if here.what == What::Length {
                if text_length(own.0, own.1, leaf) != text_length(others.0, others.1, other_leaf) {
                    return true;
                }
            } else {
                let (Some(value), Some(other_value)) = (own.1.get(leaf), others.1.get(other_leaf)) else {
                    return false;
                };
                if value != other_value {
                    // Unlike values of one kind have unlike bytes; those of two kinds may have one text.
                    return discriminant(value) == discriminant(other_value) && value.len() == other_value.len();
                }
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
        let mut from = 0;
        for hole in &self.holes {
            let at = hole.at as usize;
            out.extend_from_slice(&self.bytes[from..at]);
            from = at;
            let leaf = usize::from(hole.leaf);
            // There is a value for each leaf, unless what was kept is not what was read.
            let Some(value) = values.get(leaf) else { continue };
            match (hole.what, value) {
                (What::Text, value) => value.write(&mut out),
                (What::Length, _) => {
                    let Some(length) = text_length(leaves, values, leaf) else { continue };
                    out.extend_from_slice(&length.to_le_bytes());
                }
                (What::Millis, Value::Time(seconds)) => out.extend_from_slice(&(seconds * 1_000).to_le_bytes()),
                (What::Count, Value::Count(count)) => out.extend_from_slice(&count.to_le_bytes()),
                _ => {}
            }
        }
        out.extend_from_slice(&self.bytes[from..]);
        out
    }
}
