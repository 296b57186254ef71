//! Byte strings in chunks, each of which is stored once for all byte strings that contain it.
//!
//! Half of the bytes of skeletons are in more than one skeleton: the statuses of a workload differ in a word or two,
//! and the specs of all workloads have tolerations, probes and volumes that Kubernetes writes alike. A chunk ends after
//! an object or array that is followed by another value, so byte strings that differ in one place have their other
//! chunks in common.

use std::{
    borrow::Borrow,
    collections::HashSet,
    hash::{Hash, Hasher},
    ops::Deref,
    slice,
};

use foldhash::quality::FixedState;
use triomphe::ThinArc;

/// The least bytes of a chunk of JSON, except the last. The overhead of a chunk is about as large.
const LEAST: usize = 64;

/// A byte string, contiguous or in interned chunks. The chunks of JSON depend only on the JSON, so equal JSON has equal
/// chunks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChunkedBytes {
    Contiguous(Box<[u8]>),
    /// No chunk is empty.
    Chunks(Box<[Chunk]>),
}

/// A chunk. A reference takes 8 bytes, because the length is stored before the chunk's bytes; there are about
/// three references to a chunk.
#[derive(Debug, Clone)]
pub(crate) struct Chunk(ThinArc<(), u8>);

impl Chunk {
    fn new(bytes: &[u8]) -> Self {
        Self(ThinArc::from_header_and_slice((), bytes))
    }

    fn is_unused(&self) -> bool {
        ThinArc::strong_count(&self.0) == 1
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.slice
    }
}

impl PartialEq for Chunk {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(&**self, &**other) || **self == **other
    }
}

impl Eq for Chunk {}

impl Hash for Chunk {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl Borrow<[u8]> for Chunk {
    fn borrow(&self) -> &[u8] {
        self
    }
}

/// The rest of a byte string.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    /// The rest of the present chunk.
    pub(super) chunk: &'a [u8],
    pub(super) chunks: slice::Iter<'a, Chunk>,
}

/// The chunks of all byte strings.
#[derive(Debug)]
pub(super) struct Interner {
    chunks: HashSet<Chunk, FixedState>,
    /// The number of chunks at which unused ones are removed.
    remove_unused_at: usize,
}

impl ChunkedBytes {
    /// Returns the bytes, if they are contiguous.
    pub(super) fn contiguous(&self) -> Option<&[u8]> {
        match self {
            Self::Contiguous(text) => Some(text),
            Self::Chunks(_) => None,
        }
    }

    pub(super) fn reader(&self) -> Cursor<'_> {
        match self {
            Self::Contiguous(text) => text[..].into(),
            Self::Chunks(chunks) => Cursor { chunk: &[], chunks: chunks.iter() },
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
        for chunk in self.reader() {
            rest = rest.and_then(|rest| rest.strip_prefix(chunk));
        }
        rest.is_some_and(<[u8]>::is_empty)
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.reader().collect::<Vec<_>>().concat()
    }
}

impl<'a> From<&'a [u8]> for Cursor<'a> {
    fn from(text: &'a [u8]) -> Self {
        Self { chunk: text, chunks: [].iter() }
    }
}

/// Yields the rest in slices that are not empty.
impl<'a> Iterator for Cursor<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        match self.chunk {
            [] => self.chunks.next().map(|chunk| &**chunk),
            _ => Some(std::mem::take(&mut self.chunk)),
        }
    }
}

impl<'a> Cursor<'a> {
    /// Appends the next `count` bytes, or all that are left.
    pub(super) fn take_to(&mut self, mut count: usize, out: &mut Vec<u8>) {
        while count > 0
            && let Some(chunk) = self.next()
        {
            let (taken, rest) = chunk.split_at(count.min(chunk.len()));
            out.extend_from_slice(taken);
            self.chunk = rest;
            count -= taken.len();
        }
    }

    /// Compares the next `count` bytes of both. Returns false at the first difference.
    pub(super) fn is_like(&mut self, other: &mut Self, mut count: usize) -> bool {
        while count > 0
            && let (Some(here), Some(there)) = (self.next(), other.next())
        {
            let length = count.min(here.len()).min(there.len());
            let ((here, rest), (there, others)) = (here.split_at(length), there.split_at(length));
            if here != there {
                return false;
            }
            self.chunk = rest;
            other.chunk = others;
            count -= length;
        }
        true
    }
}

impl Interner {
    pub(super) fn new(hasher: FixedState) -> Self {
        Self { chunks: HashSet::with_hasher(hasher), remove_unused_at: 0 }
    }

    /// Interns JSON.
    pub(super) fn intern_json(&mut self, json: &[u8]) -> ChunkedBytes {
        self.intern_chunks(Split(json))
    }

    /// Interns the chunks and returns the byte string that they form.
    pub(super) fn intern_chunks<'a>(&mut self, chunks: impl Iterator<Item = &'a [u8]>) -> ChunkedBytes {
        self.remove_unused();
        ChunkedBytes::Chunks(chunks.filter(|chunk| !chunk.is_empty()).map(|chunk| self.chunk(chunk)).collect())
    }

    fn chunk(&mut self, chunk: &[u8]) -> Chunk {
        if let Some(known) = self.chunks.get(chunk) {
            return known.clone();
        }
        let chunk = Chunk::new(chunk);
        self.chunks.insert(chunk.clone());
        chunk
    }

    fn remove_unused(&mut self) {
        const MIN_ENTRIES: usize = 256;
        if self.chunks.len() < self.remove_unused_at.max(MIN_ENTRIES) {
            return;
        }
        // Only this table creates references to chunks, so a chunk with one reference stays unused.
        self.chunks.retain(|chunk| !chunk.is_unused());
        self.remove_unused_at = self.chunks.len() + self.chunks.len() / 2;
    }
}

/// Splits JSON into chunks.
struct Split<'a>(&'a [u8]);

impl<'a> Iterator for Split<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.0.is_empty() {
            return None;
        }
        let ends = |pair: &[u8]| matches!(pair, [b'}' | b']', b',']);
        let end = self.0.get(LEAST - 1..).and_then(|behind| behind.windows(2).position(ends)).map(|at| at + LEAST);
        let (chunk, rest) = self.0.split_at(end.unwrap_or(self.0.len()));
        self.0 = rest;
        Some(chunk)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn interner() -> Interner {
        Interner::new(FixedState::with_seed(1))
    }

    proptest! {
        #[test]
        fn a_byte_string_equals_only_the_concatenation_of_its_chunks(
            all in prop::collection::vec("([a-c]{0,30}[}\\]],?){0,20}", 1..6),
        ) {
            let mut interner = interner();
            let shared: Vec<_> = all.iter().map(|text| interner.intern_json(text.as_bytes())).collect();
            for (text, bytes) in shared.iter().zip(&all) {
                prop_assert_eq!(text.to_vec(), bytes.as_bytes());
                prop_assert_eq!(text.is_empty(), bytes.is_empty());
                let chunks = text.reader().count();
                prop_assert!(text.reader().take(chunks.saturating_sub(1)).all(|chunk| chunk.len() >= LEAST));
                for (other, others) in shared.iter().zip(&all) {
                    prop_assert_eq!(text == other, bytes == others);
                    prop_assert_eq!(text.is(others.as_bytes()), bytes == others);
                }
            }
        }
    }

    #[test]
    fn texts_with_one_difference_share_all_other_chunks() {
        let mut interner = interner();
        let text = |word: &str| {
            let object = |at: usize| {
                format!("{{\"name\":\"{}\",\"word\":\"{}\"}},", "x".repeat(at), if at == 70 { word } else { "" })
            };
            (60..80).map(object).collect::<String>()
        };
        let one = interner.intern_json(text("one").as_bytes());
        assert_eq!((one.reader().count(), interner.chunks.len()), (21, 21));
        let other = interner.intern_json(text("other").as_bytes());
        assert_eq!(interner.chunks.len(), 22);
        drop(one);
        // Many chunks that no Pod uses.
        (0..300).for_each(|at| drop(interner.intern_json(text(&at.to_string()).as_bytes())));
        assert!(interner.chunks.len() < 300, "{}", interner.chunks.len());
        let again = interner.intern_json(text("other").as_bytes());
        assert!(again.reader().zip(other.reader()).all(|(one, other)| std::ptr::eq(one, other)));
        assert_eq!(again, other);
    }
}
