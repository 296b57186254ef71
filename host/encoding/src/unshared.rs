//! An unshared fragment: a fragment that is stored with the text of its own skeleton, compressed, instead of a
//! reference to a skeleton that other Pods have.
//!
//! Without another Pod of its structure, a skeleton with its encoded sections, placeholders and tables takes several
//! times the bytes of the text; compressed with the skeleton of another Pod of the workload as dictionary, the text
//! takes a tenth. Sections are decoded when they are read, so statuses, which change with most events, are never
//! unshared on their own. A Pod in a form that no API server writes is stored the
//! same way, without a dictionary: its object is the whole JSON, and spec and status are empty.

use lz4_flex::block;
use podium_wire::{Header, Pod};

use super::{
    forms::{put_varint, unzigzag, varint, zigzag},
    fragment::Fragment,
    tokens::{self, Placeholder},
};

/// The longest text that is compressed. An LZ4 reference reaches 64 KiB back, over the text and its dictionary.
pub(super) const LONGEST: usize = 32 << 10;

/// The fields that are read without decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head<'a> {
    Object { created: i64, generation: i64 },
    Spec { node: Option<&'a str> },
    Status { phase: &'a str },
}

/// The stored bytes of an unshared fragment: the length of the next two, the head, the text, and the values of the
/// text's placeholders.
#[derive(Debug, Clone, Copy)]
struct Stored<'a> {
    head: Head<'a>,
    /// The length of the text if it is compressed.
    compressed: Option<usize>,
    text: &'a [u8],
    values: &'a [u8],
}

/// The text of an unshared fragment, with its stored bytes.
#[derive(Debug)]
pub(super) struct OwnText {
    pub(super) text: Vec<u8>,
    pub(super) placeholders: Box<[Placeholder]>,
    pub(super) stored: Vec<u8>,
    /// The number of bytes of values at the end of the stored ones.
    values: usize,
}

impl OwnText {
    /// Writes the text into `buffer`. Returns `None` for malformed bytes.
    pub(super) fn open(fragment: Fragment, own: &[u8], dictionary: &[u8], mut buffer: Vec<u8>) -> Option<Self> {
        let Stored { compressed, text, values, .. } = Stored::read(fragment, own)?;
        buffer.clear();
        match compressed {
            None => buffer.extend_from_slice(text),
            Some(length) if length <= LONGEST => {
                buffer.resize(length, 0);
                let length = block::decompress_into_with_dict(text, &mut buffer, dictionary).ok()?;
                buffer.truncate(length);
            }
            Some(_) => return None,
        }
        let placeholders = tokens::placeholders(&buffer)?;
        Some(Self { placeholders, text: buffer, stored: own.to_vec(), values: values.len() })
    }

    /// Returns the bytes of the values of the text's placeholders.
    pub(super) fn values(&self) -> &[u8] {
        &self.stored[self.stored.len() - self.values..]
    }
}

impl<'a> Head<'a> {
    pub(super) fn new(fragment: Fragment, pod: &'a Pod) -> Self {
        match fragment {
            Fragment::Object => {
                let Header { created, generation, .. } = &pod.header;
                Self::Object { created: created.0, generation: *generation }
            }
            Fragment::Spec => Self::Spec { node: pod.spec.node_name.as_deref() },
            Fragment::Status => Self::Status { phase: &pod.status.phase },
        }
    }

    fn put(self, out: &mut Vec<u8>) {
        let mut text = |number: usize, text: &str| {
            put_varint(number as u64, out);
            out.extend_from_slice(text.as_bytes());
        };
        match self {
            Self::Object { created, generation } => {
                put_varint(zigzag(created), out);
                put_varint(zigzag(generation), out);
            }
            Self::Spec { node: None } => text(0, ""),
            Self::Spec { node: Some(node) } => text(node.len() + 1, node),
            Self::Status { phase } => text(phase.len(), phase),
        }
    }

    fn read(fragment: Fragment, bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (number, rest) = varint(bytes)?;
        let text = |length: u64| {
            let (text, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            Some((str::from_utf8(text).ok()?, rest))
        };
        Some(match (fragment, number) {
            (Fragment::Object, _) => {
                let (generation, rest) = varint(rest)?;
                (Self::Object { created: unzigzag(number), generation: unzigzag(generation) }, rest)
            }
            (Fragment::Spec, 0) => (Self::Spec { node: None }, rest),
            (Fragment::Spec, _) => text(number - 1).map(|(node, rest)| (Self::Spec { node: Some(node) }, rest))?,
            (Fragment::Status, _) => text(number).map(|(phase, rest)| (Self::Status { phase }, rest))?,
        })
    }
}

impl<'a> Stored<'a> {
    fn read(fragment: Fragment, own: &'a [u8]) -> Option<Self> {
        let (length, rest) = varint(own)?;
        let (bytes, values) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        let (head, rest) = Head::read(fragment, bytes)?;
        let (number, text) = varint(rest)?;
        let length = usize::try_from(number).ok()?;
        Some(Self { head, compressed: length.checked_sub(1), text, values })
    }
}

/// Returns the stored bytes of a fragment with this text and these values.
pub(super) fn stored(head: Head<'_>, text: &[u8], dictionary: &[u8], values: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    head.put(&mut bytes);
    let compressed = (!dictionary.is_empty()).then(|| block::compress_with_dict(text, dictionary));
    match compressed.filter(|compressed| compressed.len() < text.len()) {
        Some(compressed) => {
            put_varint(text.len() as u64 + 1, &mut bytes);
            bytes.extend_from_slice(&compressed);
        }
        None => {
            put_varint(0, &mut bytes);
            bytes.extend_from_slice(text);
        }
    }
    let mut stored = Vec::with_capacity(bytes.len() + values.len() + 3);
    put_varint(bytes.len() as u64, &mut stored);
    stored.extend_from_slice(&bytes);
    stored.extend_from_slice(values);
    stored
}

/// Returns the fields of a fragment that are read without decoding, or `None` for malformed bytes.
pub(super) fn head(fragment: Fragment, own: &[u8]) -> Option<Head<'_>> {
    Stored::read(fragment, own).map(|stored| stored.head)
}
