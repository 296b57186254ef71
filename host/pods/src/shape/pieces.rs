//! Texts in pieces, each of which is kept once for all texts that have it.
//!
//! Half of what Pods share stands in more than one key: the statuses of a workload differ in a word or two, and specs
//! of all workloads have tolerations, probes and volumes that Kubernetes writes alike. A piece ends where an object or
//! an array does and another value follows, so that texts which differ in one place have the pieces of the others in
//! common.

use std::{collections::HashSet, slice, sync::Arc};

use foldhash::quality::FixedState;

/// No piece of JSON but the last is shorter. A piece costs about as much beside its bytes.
const LEAST: usize = 64;

/// Of JSON and in pieces: texts that are equal have equal pieces.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Text {
    Whole(Box<[u8]>),
    /// None is empty.
    Pieces(Box<[Arc<[u8]>]>),
}

/// A text from a place on.
#[derive(Debug, Clone)]
pub(super) struct Reader<'a> {
    /// What is left of a piece.
    pub(super) piece: &'a [u8],
    pub(super) pieces: slice::Iter<'a, Arc<[u8]>>,
}

/// The pieces of all texts.
#[derive(Debug)]
pub(super) struct Texts {
    pieces: HashSet<Arc<[u8]>, FixedState>,
    /// What no text has any more is taken out when there are so many.
    sweep_at: usize,
}

impl Text {
    /// None where it is in pieces.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        match self {
            Self::Whole(text) => Some(text),
            Self::Pieces(_) => None,
        }
    }

    pub(super) fn reader(&self) -> Reader<'_> {
        match self {
            Self::Whole(text) => text[..].into(),
            Self::Pieces(pieces) => Reader { piece: &[], pieces: pieces.iter() },
        }
    }

    pub(super) fn len(&self) -> usize {
        self.reader().map(<[u8]>::len).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.reader().next().is_none()
    }

    pub(super) fn is(&self, text: &[u8]) -> bool {
        let mut rest = Some(text);
        for piece in self.reader() {
            rest = rest.and_then(|rest| rest.strip_prefix(piece));
        }
        rest.is_some_and(<[u8]>::is_empty)
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.reader().collect::<Vec<_>>().concat()
    }
}

impl<'a> From<&'a [u8]> for Reader<'a> {
    fn from(text: &'a [u8]) -> Self {
        Self { piece: text, pieces: [].iter() }
    }
}

/// What is left, in pieces that are not empty.
impl<'a> Iterator for Reader<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        match self.piece {
            [] => self.pieces.next().map(|piece| &**piece),
            _ => Some(std::mem::take(&mut self.piece)),
        }
    }
}

impl<'a> Reader<'a> {
    /// So many bytes, or what is left.
    pub(super) fn take_to(&mut self, mut count: usize, out: &mut Vec<u8>) {
        while count > 0
            && let Some(piece) = self.next()
        {
            let (taken, rest) = piece.split_at(count.min(piece.len()));
            out.extend_from_slice(taken);
            (self.piece, count) = (rest, count - taken.len());
        }
    }

    /// Goes over so many bytes of both, or to where they differ. True where they do not.
    pub(super) fn is_like(&mut self, other: &mut Self, mut count: usize) -> bool {
        while count > 0
            && let (Some(here), Some(there)) = (self.next(), other.next())
        {
            let length = count.min(here.len()).min(there.len());
            let ((here, rest), (there, others)) = (here.split_at(length), there.split_at(length));
            if here != there {
                return false;
            }
            (self.piece, other.piece, count) = (rest, others, count - length);
        }
        true
    }
}

impl Texts {
    pub(super) fn new(hasher: FixedState) -> Self {
        Self { pieces: HashSet::with_hasher(hasher), sweep_at: 0 }
    }

    /// JSON in pieces that others have too.
    pub(super) fn share(&mut self, json: &[u8]) -> Text {
        self.share_pieces(Cuts(json))
    }

    /// The text of these pieces, of which others have some too.
    pub(super) fn share_pieces<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>) -> Text {
        self.sweep();
        Text::Pieces(pieces.filter(|piece| !piece.is_empty()).map(|piece| self.piece(piece)).collect())
    }

    fn piece(&mut self, piece: &[u8]) -> Arc<[u8]> {
        if let Some(known) = self.pieces.get(piece) {
            return Arc::clone(known);
        }
        let piece = Arc::<[u8]>::from(piece);
        self.pieces.insert(Arc::clone(&piece));
        piece
    }

    fn sweep(&mut self) {
        const FEW: usize = 256;
        if self.pieces.len() < self.sweep_at.max(FEW) {
            return;
        }
        // A piece is handed out by this table alone, so one that nobody else has now stays so.
        self.pieces.retain(|piece| Arc::strong_count(piece) > 1);
        self.sweep_at = self.pieces.len() + self.pieces.len() / 2;
    }
}

/// The pieces of a text.
struct Cuts<'a>(&'a [u8]);

impl<'a> Iterator for Cuts<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.0.is_empty() {
            return None;
        }
        let ends = |pair: &[u8]| matches!(pair, [b'}' | b']', b',']);
        let end = self.0.get(LEAST - 1..).and_then(|behind| behind.windows(2).position(ends)).map(|at| at + LEAST);
        let (piece, rest) = self.0.split_at(end.unwrap_or(self.0.len()));
        self.0 = rest;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts() -> Texts {
        Texts::new(FixedState::with_seed(1))
    }

    proptest! {
        #[test]
        fn a_text_is_what_its_pieces_make_and_equal_to_that_alone(
            all in prop::collection::vec("([a-c]{0,30}[}\\]],?){0,20}", 1..6),
        ) {
            let mut texts = texts();
            let shared: Vec<_> = all.iter().map(|text| texts.share(text.as_bytes())).collect();
            for (text, bytes) in shared.iter().zip(&all) {
                prop_assert_eq!(text.to_vec(), bytes.as_bytes());
                prop_assert_eq!(text.is_empty(), bytes.is_empty());
                let pieces = text.reader().count();
                prop_assert!(text.reader().take(pieces.saturating_sub(1)).all(|piece| piece.len() >= LEAST));
                for (other, others) in shared.iter().zip(&all) {
                    prop_assert_eq!(text == other, bytes == others);
                    prop_assert_eq!(text.is(others.as_bytes()), bytes == others);
                }
            }
        }
    }

    #[test]
    fn texts_that_differ_in_one_place_have_all_else_in_common_until_nobody_has_it() {
        let mut texts = texts();
        let text = |word: &str| {
            let object = |at: usize| {
                format!("{{\"name\":\"{}\",\"word\":\"{}\"}},", "x".repeat(at), if at == 70 { word } else { "" })
            };
            (60..80).map(object).collect::<String>()
        };
        let one = texts.share(text("one").as_bytes());
        assert_eq!((one.reader().count(), texts.pieces.len()), (21, 21));
        let other = texts.share(text("other").as_bytes());
        assert_eq!(texts.pieces.len(), 22);
        drop(one);
        // Many that nobody keeps.
        (0..300).for_each(|at| drop(texts.share(text(&at.to_string()).as_bytes())));
        assert!(texts.pieces.len() < 300, "{}", texts.pieces.len());
        let again = texts.share(text("other").as_bytes());
        assert!(again.reader().zip(other.reader()).all(|(one, other)| std::ptr::eq(one, other)));
        assert_eq!(again, other);
    }
}
