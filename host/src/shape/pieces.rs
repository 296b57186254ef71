//! Texts in pieces, each of which is kept once for all texts that have it.
//!
//! Half of what Pods share stands in more than one key: the statuses of a workload differ in a word or two, and specs of
//! all workloads have tolerations, probes and volumes that Kubernetes writes alike. A piece ends where an object or an
//! array does and another value follows, so that texts which differ in one place have the pieces of the others in common.

use std::{collections::HashSet, sync::Arc};

use foldhash::quality::FixedState;

/// No piece but the last is shorter. A piece costs about as much beside its bytes.
const LEAST: usize = 64;

/// Texts of one [`Texts`] that are equal have equal pieces.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Text(Box<[Arc<[u8]>]>);

/// The pieces of all texts.
#[derive(Debug)]
pub(super) struct Texts {
    pieces: HashSet<Arc<[u8]>, FixedState>,
    /// What no text has any more is taken out when there are so many.
    sweep_at: usize,
}

impl Text {
    /// In one piece that is its own.
    pub(super) fn whole(text: &[u8]) -> Self {
        Self(if text.is_empty() { Box::default() } else { Box::new([text.into()]) })
    }

    pub(super) fn pieces(&self) -> &[Arc<[u8]>] {
        &self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is(&self, text: &[u8]) -> bool {
        let mut rest = Some(text);
        for piece in &self.0 {
            rest = rest.and_then(|rest| rest.strip_prefix(&**piece));
        }
        rest.is_some_and(<[u8]>::is_empty)
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.0.concat()
    }
}

impl Texts {
    pub(super) fn new(hasher: FixedState) -> Self {
        Self { pieces: HashSet::with_hasher(hasher), sweep_at: 0 }
    }

    /// The text in pieces that others have too.
    pub(super) fn share(&mut self, text: &[u8]) -> Text {
        self.sweep();
        Text(Cuts(text).map(|piece| self.piece(piece)).collect())
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
                let all_but_the_last = text.pieces().split_last().map_or(&[][..], |(_, pieces)| pieces);
                prop_assert!(all_but_the_last.iter().all(|piece| piece.len() >= LEAST));
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
        assert_eq!((one.pieces().len(), texts.pieces.len()), (21, 21));
        let other = texts.share(text("other").as_bytes());
        assert_eq!(texts.pieces.len(), 22);
        drop(one);
        // Many that nobody keeps.
        (0..300).for_each(|at| drop(texts.share(text(&at.to_string()).as_bytes())));
        assert!(texts.pieces.len() < 300, "{}", texts.pieces.len());
        let again = texts.share(text("other").as_bytes());
        let mut pieces = again.pieces().iter().zip(other.pieces());
        assert!(pieces.all(|(one, other)| Arc::ptr_eq(one, other)));
        assert_eq!(again, other);
    }
}
