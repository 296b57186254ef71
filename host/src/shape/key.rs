//! The key of a part: its JSON, with marks in the place of what is a Pod's own.

use std::num::NonZeroU16;

use memchr::memchr;
use smallvec::SmallVec;

use super::{
    leaf::{self, Kind, MARK, Value, Values},
    part::{Identity, MAX_LEAVES},
    scan::{OUTER, PARTS, SPEC},
};

#[derive(Debug, Clone, Copy)]
pub(super) struct Leaf {
    pub(super) kind: Kind,
    /// For [`Kind::Same`].
    pub(super) place: u8,
    /// A bit for the place of each section of the part that its value is in.
    pub(super) sections: u8,
    /// How many bytes of the key follow up to the next mark.
    behind: u32,
    /// Of the text that it is in, if it is the first leaf there.
    pub(super) text: Option<Around>,
}

/// What is around the leaves of one text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Around {
    /// How many bytes come before the first leaf.
    pub(super) before: u32,
    /// How many come before, between and behind the leaves.
    pub(super) all: u32,
    /// How many leaves there are; they follow each other.
    pub(super) leaves: NonZeroU16,
}

/// How long the text is of which a leaf is the first.
pub(super) fn text_length(leaves: &[Leaf], values: &[Value<'_>], leaf: usize) -> Option<u64> {
    let Around { all, leaves, .. } = leaves.get(leaf)?.text?;
    let values = values.get(leaf..)?.iter().take(usize::from(leaves.get()));
    Some(u64::from(all) + values.map(|value| value.len() as u64).sum::<u64>())
}

/// The leaves of a key, in order. None where it is no key.
pub(super) fn leaves(key: &[u8]) -> Option<Box<[Leaf]>> {
    let mut leaves: Vec<Leaf> = Vec::new();
    let mut pieces = Pieces(key);
    let mut literal: &[u8] = b"";
    // The first leaf of the text that has not ended.
    let mut open: Option<usize> = None;
    // The last piece was a leaf.
    let mut follows = false;
    while let Some(piece) = pieces.next()? {
        match piece {
            Piece::Literal(bytes) => {
                literal = bytes;
                if let Some(leaf) = leaves.last_mut().filter(|_| follows) {
                    leaf.behind = u32::try_from(bytes.len()).ok()?;
                }
                follows = false;
                // A text with a leaf has no escapes, so that the next quote ends it.
                let end = bytes.iter().position(|byte| *byte == b'"');
                if let Some(around) = open.and_then(|first| leaves[first].text.as_mut()) {
                    around.all = around.all.checked_add(u32::try_from(end.unwrap_or(bytes.len())).ok()?)?;
                }
                open = open.filter(|_| end.is_none());
            }
            Piece::Leaf(kind, place) => {
                if kind == Kind::Same && usize::from(place) >= leaves.len() {
                    return None;
                }
                let mut text = None;
                if let Some(around) = open.and_then(|first| leaves[first].text.as_mut()) {
                    around.leaves = around.leaves.checked_add(1)?;
                } else if kind != Kind::Count {
                    let quote = literal.iter().rposition(|byte| *byte == b'"').map_or(0, |at| at + 1);
                    let before = u32::try_from(literal.len() - quote).ok()?;
                    text = Some(Around { before, all: before, leaves: NonZeroU16::MIN });
                    open = Some(leaves.len());
                }
                leaves.push(Leaf { kind, place, sections: 0, behind: 0, text });
                (literal, follows) = (b"", true);
            }
            Piece::Part(_) => (literal, follows) = (b"", false),
        }
    }
    (leaves.len() < MAX_LEAVES).then(|| leaves.into_boxed_slice())
}

pub(super) enum Piece<'a> {
    Literal(&'a [u8]),
    Leaf(Kind, u8),
    Part(usize),
}

pub(super) struct Pieces<'a>(pub(super) &'a [u8]);

impl<'a> Pieces<'a> {
    /// What follows a leaf up to the next mark, which need not be looked for. None where this is not the leaf's key.
    pub(super) fn behind(&mut self, leaf: &Leaf) -> Option<&'a [u8]> {
        self.0.split_off(..leaf.behind as usize)
    }

    /// The outer None: not a key. The inner: its end.
    pub(super) fn next(&mut self) -> Option<Option<Piece<'a>>> {
        let Some(first) = self.0.first() else { return Some(None) };
        if *first != MARK {
            let end = memchr(MARK, self.0).unwrap_or(self.0.len());
            let (literal, rest) = self.0.split_at(end);
            self.0 = rest;
            return Some(Some(Piece::Literal(literal)));
        }
        let kind = Kind::from_byte(*self.0.get(1)?)?;
        let place = if kind.has_place() { *self.0.get(2)? } else { 0 };
        self.0 = &self.0[if kind.has_place() { 3 } else { 2 }..];
        Some(Some(if kind == Kind::Part { Piece::Part(usize::from(place)) } else { Piece::Leaf(kind, place) }))
    }
}

/// As many as most parts have leaves.
pub(super) type Resolved<'a> = SmallVec<[Value<'a>; 40]>;

/// The values of all leaves.
pub(super) fn resolve<'a>(leaves: &[Leaf], own: &'a [u8], identity: Identity<'a>) -> Option<Resolved<'a>> {
    let mut values = Values::new(own);
    let mut resolved = Resolved::new();
    for leaf in leaves {
        resolved.push(match leaf.kind {
            Kind::Name => Value::Text(identity.name),
            Kind::Uid => Value::Text(identity.uid),
            Kind::Revision => Value::Revision(identity.revision),
            Kind::Ordinal => Value::Text(named(leaf::ordinal(identity.name.as_bytes()))?),
            Kind::Run => Value::Text(named(leaf::run(identity.name.as_bytes()))?),
            Kind::Same => *resolved.get(usize::from(leaf.place))?,
            kind => values.next(kind)?,
        });
    }
    values.is_empty().then_some(resolved)
}

/// Digits of a name.
fn named(digits: Option<&[u8]>) -> Option<&str> {
    str::from_utf8(digits?).ok()
}

/// The JSON of the outer part with the others in it. None where a key or its values do not fit.
pub(super) fn render(
    keys: [&[u8]; PARTS],
    mut write: impl FnMut(usize, usize, &mut Vec<u8>) -> Option<()>,
) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(keys.iter().map(|key| key.len()).sum::<usize>() * 2);
    let mut counts = [0; PARTS];
    let mut stack = vec![(OUTER, Pieces(keys[OUTER]))];
    while let Some((part, pieces)) = stack.last_mut() {
        let part = *part;
        match pieces.next()? {
            None => {
                stack.pop();
            }
            Some(Piece::Literal(bytes)) => out.extend_from_slice(bytes),
            Some(Piece::Leaf(..)) => {
                write(part, counts[part], &mut out)?;
                counts[part] += 1;
            }
            Some(Piece::Part(inner)) if part == OUTER && (SPEC..PARTS).contains(&inner) => {
                stack.push((inner, Pieces(keys[inner])));
            }
            Some(Piece::Part(_)) => return None,
        }
    }
    Some(out)
}

/// Writes a leaf's sentinel.
pub(super) fn write_sentinel(kind: Kind, at: usize, out: &mut Vec<u8>) {
    match kind {
        Kind::Time => out.extend_from_slice(&leaf::time_text(leaf::sentinel_time(at))),
        Kind::Count | Kind::Revision => Value::Count(leaf::sentinel_count(at)).write(out),
        _ => out.extend_from_slice(leaf::sentinel_text(at).as_bytes()),
    }
}

/// What a leaf that refers to another is a like of.
pub(super) fn real(leaves: &[Leaf], at: usize) -> Kind {
    let leaf = leaves[at];
    if leaf.kind == Kind::Same { leaves[usize::from(leaf.place)].kind } else { leaf.kind }
}
