//! The entries of a checkpoint. Each is the payload of a frame, in `podium-wire`'s encoding.

use std::fmt;

use podium_encoding::FORMAT as FORMAT_OF_PODS;
use podium_engine::frames::Format;
use podium_vocabulary::Prune;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Visitor};

pub(super) const FORMAT: Format = Format {
    magic: *b"podchk",
    version: FORMAT_OF_PODS,
    // Longer texts are written in pieces.
    max_payload: 2 << 20,
};

/// The most bytes of a text in one entry.
pub(super) const PIECE: usize = 1 << 20;
/// The most bytes of one text: more than any Pod that the watch accepts.
pub(super) const MAX_TEXT: usize = 128 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Entry {
    /// The first entry: what the checkpoint covers. `cluster` is the uid of the namespace kube-system, or `None` if
    /// the host could not read it.
    Of {
        coverage: Coverage,
        cluster: Option<String>,
    },
    /// The JSON of a fragment with placeholders for each Pod's values. Entries of each type are numbered from 0 in
    /// order.
    Text(Bytes),
    /// The numbers of the three texts of Pods.
    Group([u32; 3]),
    Pod {
        group: u32,
        name: String,
        uid: String,
        revision: u64,
        own: Bytes,
    },
    /// An unshared Pod, as JSON.
    Whole(Bytes),
    /// The beginning of a text that is too long for one entry. It belongs to the next entry that is not a piece.
    Piece(Bytes),
    /// The last entry: the number of Pods and the state of the cache that they are.
    End {
        pods: u64,
        revision: u64,
    },
}

/// The Pods that a checkpoint covers. A host ignores a checkpoint of another coverage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// `None` for all namespaces.
    namespace: Option<String>,
    /// Annotations that were pruned.
    pruned: Vec<String>,
}

impl Coverage {
    /// Returns the coverage of a host that watches this namespace, or all, and prunes these annotations.
    #[must_use]
    pub fn new(namespace: Option<&str>, prune: &Prune) -> Self {
        Self { namespace: namespace.map(str::to_owned), pruned: prune.keys().map(str::to_owned).collect() }
    }
}

/// Encoded in one piece.
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
