//! Entries of a checkpoint: each the payload of a frame, in `podium-wire`'s encoding.

use std::fmt;

use podium_engine::frames::Format;
use podium_pods::model::Prune;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Visitor};

pub(super) const FORMAT: Format = Format {
    magic: *b"podchk",
    // With every change of what keys and own values mean, too; a test knows what a checkpoint of this version looks
    // like.
    version: 5,
    // Larger texts are written in pieces.
    max_payload: 2 << 20,
};

/// The most bytes of one text in one entry.
pub(super) const PIECE: usize = 1 << 20;
/// The most bytes of one text: larger than any Pod that the watch takes.
pub(super) const MAX_TEXT: usize = 128 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Entry {
    /// The first entry. `cluster` is the uid of the namespace kube-system, or `None` if the host could not read it.
    Of {
        scope: Scope,
        cluster: Option<String>,
    },
    /// The JSON of a part, with marks for the own values of each Pod. Numbered in order from 0, as are pool.
    Key(Bytes),
    /// The keys of its three parts.
    Shape([u32; 3]),
    Pod {
        shape: u32,
        name: String,
        uid: String,
        revision: u64,
        own: Bytes,
    },
    /// A Pod that shares nothing with others, as JSON.
    Alone(Bytes),
    /// The beginning of a text that is too long for one entry: of the key, own values or JSON of the next entry that is
    /// no piece.
    Piece(Bytes),
    /// The last one: how many Pods there are, and of which state of the cache they are.
    End {
        pods: u64,
        revision: u64,
    },
}

/// What a checkpoint is of. One of anything else is of no use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// None: all of them.
    namespace: Option<String>,
    /// Annotations that were cut away.
    pruned: Vec<String>,
}

impl Scope {
    /// Returns the scope of a host that watches this namespace, or all, and cuts these annotations away.
    #[must_use]
    pub fn new(namespace: Option<&str>, prune: &Prune) -> Self {
        Self { namespace: namespace.map(str::to_owned), pruned: prune.keys().map(str::to_owned).collect() }
    }
}

/// Written in one piece.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl fmt::Debug for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} bytes", self.0.len())
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BytesVisitor;

        impl Visitor<'_> for BytesVisitor {
            type Value = Bytes;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("bytes")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_vec()))
            }
            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Bytes, E> {
                Ok(Bytes(bytes))
            }
        }

        deserializer.deserialize_byte_buf(BytesVisitor)
    }
}
