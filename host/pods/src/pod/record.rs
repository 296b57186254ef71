//! A record: a Pod in some hundred bytes beside what it shares with others, with its name, uid, revision and values.
//!
//! The pages of the cache contain records, and a list contains them until it is complete.

use std::{borrow::Cow, cmp::Ordering, sync::Arc};

use bytes::{Bytes, BytesMut};
use podium_encoding::{Pool, Scratch, Shared, Stored, Uid};
use podium_vocabulary::{PodKey, Revision};

use super::CachedPod;

/// The size of the chunks that contain the records of one list. A separate allocation for each Pod of a list, freed
/// when the list is applied, would leave gaps between allocations that stay.
const ARENA_CHUNK: usize = 256 << 10;

/// Memory for records.
#[derive(Debug, Default)]
pub struct RecordArena {
    record: Vec<u8>,
    chunk: BytesMut,
}

/// A Pod as a record.
#[derive(Debug, Clone)]
pub struct Record {
    shared: Shared,
    bytes: Bytes,
}

/// Makes a record with its own allocation.
impl From<Arc<CachedPod>> for Record {
    fn from(pod: Arc<CachedPod>) -> Self {
        let mut record = Vec::new();
        let shared = Arc::clone(pod.store(&mut record));
        Self { shared, bytes: record.into() }
    }
}

impl Record {
    /// Packs a Pod into memory of the arena.
    #[must_use]
    pub fn new(pod: &CachedPod, arena: &mut RecordArena) -> Self {
        let RecordArena { record, chunk } = arena;
        record.clear();
        let shared = Arc::clone(pod.store(record));
        if chunk.capacity() < record.len() {
            *chunk = BytesMut::with_capacity(ARENA_CHUNK.max(record.len()));
        }
        chunk.extend_from_slice(record);
        Self { shared, bytes: chunk.split().freeze() }
    }

    /// Encodes the Pod again if other Pods of the list have shown since how to share more of it.
    pub fn renew(&mut self, pool: &Pool, scratch: &mut Scratch, arena: &mut RecordArena) {
        if let Some(packed) = pool.renewed(&self.open().0, scratch) {
            *self = Self::new(&CachedPod { packed, ..(*self.pod()).clone() }, arena);
        }
    }

    /// Returns the Pod.
    #[must_use]
    pub fn pod(&self) -> Arc<CachedPod> {
        self.open().pod()
    }

    /// Returns the namespace and the name.
    #[must_use]
    pub fn names(&self) -> (String, String) {
        let record = self.open();
        (record.namespace().to_string(), record.name().to_string())
    }

    /// Returns the revision.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.open().revision()
    }

    /// Returns the parsed record.
    pub(crate) fn open(&self) -> RecordRef<'_> {
        RecordRef::open(&self.shared, &self.bytes)
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns the bytes of a uid that is a UUID in its canonical form: lower-case digits, and hyphens in their places.
#[must_use]
pub fn uuid_of(uid: &str) -> Option<[u8; 16]> {
    match Uid::parse(uid) {
        Uid::Uuid(uuid) => Some(uuid),
        Uid::Text(_) => None,
    }
}

/// A parsed record that borrows its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordRef<'a>(Stored<'a>);

impl<'a> RecordRef<'a> {
    pub(crate) fn open(shared: &'a Shared, record: &'a [u8]) -> Self {
        Self(Stored::open(shared, record))
    }

    pub(crate) fn namespace(&self) -> &'a Arc<str> {
        self.0.namespace
    }

    pub(super) fn uid(&self) -> Uid<'a> {
        self.0.uid
    }

    pub(crate) fn revision(&self) -> Revision {
        self.0.revision
    }

    /// Returns the number of bytes that the Pod does not share.
    pub(crate) fn own_size(&self) -> usize {
        self.0.values.len()
    }

    /// Compares the Pod's namespace and name with others.
    pub(crate) fn compare(&self, namespace: &str, name: &str) -> Ordering {
        let [prefix, suffix] = self.0.name.map(str::as_bytes);
        (**self.namespace()).cmp(namespace).then_with(|| match name.as_bytes().split_at_checked(prefix.len()) {
            Some((head, tail)) => prefix.cmp(head).then_with(|| suffix.cmp(tail)),
            None => prefix.cmp(name.as_bytes()),
        })
    }

    /// Compares the Pod's namespace and name with those of another Pod.
    pub(crate) fn compare_to(&self, other: &Self) -> Ordering {
        let ([prefix, suffix], [others, rest]) = (self.0.name, other.0.name);
        if prefix == others {
            let names = || suffix.as_bytes().cmp(rest.as_bytes());
            return self.namespace().cmp(other.namespace()).then_with(names);
        }
        self.compare(other.namespace(), &other.name())
    }

    pub(crate) fn has_uid(&self, uid: &str) -> bool {
        self.0.uid == Uid::parse(uid)
    }

    /// Returns true if this is the record of exactly this state.
    pub(crate) fn matches(&self, pod: &CachedPod) -> bool {
        self.0.revision == pod.revision && self.has_uid(&pod.key.uid) && self.0.packed() == pod.packed
    }

    pub(crate) fn name(&self) -> Arc<str> {
        let [prefix, suffix] = self.0.name;
        if prefix.is_empty() {
            return suffix.into();
        }
        // No name in a real API server is longer than this.
        let mut buffer = [0; 253];
        match buffer.get_mut(..prefix.len() + suffix.len()) {
            Some(whole) => {
                whole[..prefix.len()].copy_from_slice(prefix.as_bytes());
                whole[prefix.len()..].copy_from_slice(suffix.as_bytes());
                // Two UTF-8 strings make a UTF-8 string.
                str::from_utf8(whole).unwrap_or_default().into()
            }
            None => [prefix, suffix].concat().into(),
        }
    }

    /// Returns the Pod.
    pub(crate) fn pod(&self) -> Arc<CachedPod> {
        let uid = Cow::from(self.0.uid);
        let key = PodKey { namespace: Arc::clone(self.namespace()), name: self.name(), uid: (*uid).into() };
        Arc::new(CachedPod { key, revision: self.0.revision, packed: self.0.packed() })
    }
}
