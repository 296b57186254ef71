//! The key of a part: its JSON, with marks in the place of what is a Pod's own.

use std::num::NonZeroU8;

use memchr::memchr;
use smallvec::SmallVec;

use super::{
    leaf::{self, Kind, MARK, Value, Values},
    part::{Identity, MAX_LEAVES},
    pieces::{Reader, Text},
    scan::{OUTER, PARTS, SPEC},
};

#[derive(Debug, Clone, Copy)]
pub(super) struct Leaf {
    pub(super) kind: Kind,
    /// For [`Kind::Same`].
    pub(super) place: u8,
    /// A bit for the place of each section of the part that its value is in.
    pub(super) sections: u8,
    /// So many bytes of the key follow before the next mark, if not more.
    behind: u16,
    /// Of the text that it is in, if it is the first leaf there.
    pub(super) text: Option<Around>,
}

/// What is around the leaves of one text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Around {
    /// How many bytes come before the first leaf.
    pub(super) before: u16,
    /// How many come before, between and behind the leaves.
    pub(super) all: u16,
    /// How many leaves there are; they follow each other.
    pub(super) leaves: NonZeroU8,
}

/// How long the text is of which a leaf is the first.
pub(super) fn text_length(leaves: &[Leaf], values: &[Value<'_>], leaf: usize) -> Option<u64> {
    let Around { all, leaves, .. } = leaves.get(leaf)?.text?;
    let values = values.get(leaf..)?.iter().take(usize::from(leaves.get()));
    Some(u64::from(all) + values.map(|value| value.len() as u64).sum::<u64>())
}

/// How many bytes come before the first mark.
pub(super) fn before_marks(key: &[u8]) -> u32 {
    u32::try_from(memchr(MARK, key).unwrap_or(key.len())).unwrap_or(u32::MAX)
}

/// The leaves of a key, in order. None where it is no key, or a text with leaves is too long or has too many.
pub(super) fn leaves(key: &[u8]) -> Option<Box<[Leaf]>> {
    let mut leaves: Vec<Leaf> = Vec::new();
    let mut tokens = Tokens::from(key);
    let mut literal: &[u8] = b"";
    // The first leaf of the text that has not ended.
    let mut open: Option<usize> = None;
    // The last token was a leaf.
    let mut follows = false;
    while let Some(token) = tokens.next()? {
        match token {
            Token::Literal(bytes) => {
                literal = bytes;
                if let Some(leaf) = leaves.last_mut().filter(|_| follows) {
                    leaf.behind = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
                }
                follows = false;
                // A text with a leaf has no escapes, so that the next quote ends it.
                let end = bytes.iter().position(|byte| *byte == b'"');
                if let Some(around) = open.and_then(|first| leaves[first].text.as_mut()) {
                    around.all = around.all.checked_add(u16::try_from(end.unwrap_or(bytes.len())).ok()?)?;
                }
                open = open.filter(|_| end.is_none());
            }
            Token::Leaf(kind, place) => {
                if kind == Kind::Same && usize::from(place) >= leaves.len() {
                    return None;
                }
                let mut text = None;
                if let Some(around) = open.and_then(|first| leaves[first].text.as_mut()) {
                    around.leaves = around.leaves.checked_add(1)?;
                } else if kind != Kind::Count {
                    let quote = literal.iter().rposition(|byte| *byte == b'"').map_or(0, |at| at + 1);
                    let before = u16::try_from(literal.len() - quote).ok()?;
                    text = Some(Around { before, all: before, leaves: NonZeroU8::MIN });
                    open = Some(leaves.len());
                }
                leaves.push(Leaf { kind, place, sections: 0, behind: 0, text });
                (literal, follows) = (b"", true);
            }
            Token::Part(_) => (literal, follows) = (b"", false),
        }
    }
    (leaves.len() < MAX_LEAVES).then(|| leaves.into_boxed_slice())
}

pub(super) enum Token<'a> {
    /// Bytes without a mark; more of them may follow.
    Literal(&'a [u8]),
    Leaf(Kind, u8),
    Part(usize),
}

/// A key from a place on.
#[derive(Clone)]
pub(super) struct Tokens<'a> {
    /// No piece ends within a mark.
    text: Reader<'a>,
    /// So many bytes that follow are no marks.
    plain: usize,
}

impl<'a> From<&'a [u8]> for Tokens<'a> {
    fn from(key: &'a [u8]) -> Self {
        Self { text: key.into(), plain: 0 }
    }
}

impl<'a> From<&'a Text> for Tokens<'a> {
    fn from(key: &'a Text) -> Self {
        Self { text: key.reader(), plain: 0 }
    }
}

impl<'a> Tokens<'a> {
    /// The last token was this leaf, so that its next mark need not be looked for where it is not.
    pub(super) fn behind(&mut self, leaf: &Leaf) {
        self.plain = leaf.behind as usize;
    }

    /// So many bytes that follow are no marks.
    pub(super) fn plain(self, plain: u32) -> Self {
        Self { plain: plain as usize, ..self }
    }

    /// Goes over what is known to be no mark, as long as `text` begins with it. Gives what is left of that.
    #[inline]
    pub(super) fn over<'t>(&mut self, mut text: &'t [u8]) -> &'t [u8] {
        while self.plain > 0
            && let Some(piece) = self.text.next()
        {
            let (literal, rest) = piece.split_at(piece.len().min(self.plain));
            let Some(left) = text.strip_prefix(literal) else {
                self.text.piece = piece;
                break;
            };
            self.plain -= literal.len();
            (self.text.piece, text) = (rest, left);
        }
        text
    }

    fn len(&self) -> usize {
        self.text.clone().map(<[u8]>::len).sum()
    }

    /// The outer None: not a key. The inner: its end.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Option<Token<'a>>> {
        let Some(piece) = self.text.next() else { return Some(None) };
        let first = *piece.first()?;
        if self.plain > 0 || first != MARK {
            let end = match self.plain {
                0 => memchr(MARK, piece).unwrap_or(piece.len()),
                plain => plain.min(piece.len()),
            };
            self.plain = self.plain.saturating_sub(end);
            let (literal, rest) = piece.split_at(end);
            self.text.piece = rest;
            return Some(Some(Token::Literal(literal)));
        }
        let kind = Kind::from_byte(*piece.get(1)?)?;
        let place = if kind.has_place() { *piece.get(2)? } else { 0 };
        self.text.piece = &piece[if kind.has_place() { 3 } else { 2 }..];
        Some(Some(if kind == Kind::Part { Token::Part(usize::from(place)) } else { Token::Leaf(kind, place) }))
    }
}

/// The kinds of a key's leaves, in order; of one that refers to another, that one's.
pub(super) fn real_kinds(key: &[u8]) -> Option<Vec<Kind>> {
    let mut kinds = Vec::new();
    let mut tokens = Tokens::from(key);
    while let Some(token) = tokens.next()? {
        if let Token::Leaf(kind, place) = token {
            kinds.push(if kind == Kind::Same { *kinds.get(usize::from(place))? } else { kind });
        }
    }
    Some(kinds)
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
    keys: [Tokens<'_>; PARTS],
    mut write: impl FnMut(usize, usize, &mut Vec<u8>) -> Option<()>,
) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(keys.iter().map(Tokens::len).sum::<usize>() * 2);
    let mut counts = [0; PARTS];
    let mut stack = vec![(OUTER, keys[OUTER].clone())];
    while let Some((part, tokens)) = stack.last_mut() {
        let part = *part;
        match tokens.next()? {
            None => {
                stack.pop();
            }
            Some(Token::Literal(bytes)) => out.extend_from_slice(bytes),
            Some(Token::Leaf(..)) => {
                write(part, counts[part], &mut out)?;
                counts[part] += 1;
            }
            Some(Token::Part(inner)) if part == OUTER && (SPEC..PARTS).contains(&inner) => {
                stack.push((inner, keys[inner].clone()));
            }
            Some(Token::Part(_)) => return None,
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
