//! A record: a Pod in some hundred bytes beside its shape, with its name, uid, revision and values.
//!
//! The pages of the cache contain records, and a list contains them until it is complete.

use std::{cmp::Ordering, sync::Arc};

use bytes::{Bytes, BytesMut};

use super::CachedPod;
use crate::encoding::{Packed, Scratch, Shape, SkeletonPool, put_varint, uuid, uuid_text, varint};
use podium_vocabulary::{PodKey, Revision};

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
    shape: Arc<Shape>,
    bytes: Bytes,
}

/// Makes a record with its own allocation.
impl From<Arc<CachedPod>> for Record {
    fn from(pod: Arc<CachedPod>) -> Self {
        let mut record = Vec::new();
        put(&pod, &mut record);
        Self { shape: Arc::clone(pod.packed().shape()), bytes: record.into() }
    }
}

impl Record {
    /// Packs a Pod into memory of the arena.
    #[must_use]
    pub fn new(pod: &CachedPod, arena: &mut RecordArena) -> Self {
        let RecordArena { record, chunk } = arena;
        record.clear();
        put(pod, record);
        if chunk.capacity() < record.len() {
            *chunk = BytesMut::with_capacity(ARENA_CHUNK.max(record.len()));
        }
        chunk.extend_from_slice(record);
        Self { shape: Arc::clone(pod.packed().shape()), bytes: chunk.split().freeze() }
    }

    /// Encodes the Pod again if other Pods of the list have shown since how to share more of it.
    pub fn renew(&mut self, pool: &SkeletonPool, scratch: &mut Scratch, arena: &mut RecordArena) {
        if !self.shape.is_superseded() {
            return;
        }
        let pod = self.pod();
        let json = pod.packed().json(pod.identity());
        // With its previous state; otherwise it would count as another user of the skeletons that it keeps.
        if let Ok((again, _)) = CachedPod::read(&json, pool, scratch, |_, _| Some(pod)) {
            *self = Self::new(&again, arena);
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
        self.open().revision
    }

    /// Returns true if the Pod has this uid.
    #[must_use]
    pub fn has_uid(&self, uid: &str) -> bool {
        self.open().has_uid(uid)
    }

    /// Compares the Pod's namespace and name with others.
    #[must_use]
    pub fn compare(&self, namespace: &str, name: &str) -> Ordering {
        self.open().compare(namespace, name)
    }

    /// Returns the parsed record.
    pub(crate) fn open(&self) -> RecordRef<'_> {
        RecordRef::open(&self.shape, &self.bytes)
    }

    pub(crate) fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoredUid<'a> {
    Uuid(&'a [u8; 16]),
    Text(&'a str),
}

/// A parsed record that borrows its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordRef<'a> {
    shape: &'a Arc<Shape>,
    /// The name: the prefix that its shape has, or nothing, and the rest.
    prefix: &'a str,
    suffix: &'a str,
    pub(super) uid: StoredUid<'a>,
    pub(crate) revision: Revision,
    own: &'a [u8],
}

// Bits in the number before a name.
/// The name is stored whole, because it does not begin with the prefix of its shape.
const WHOLE: u64 = 1;
/// The uid is not a UUID, which is stored in 16 bytes, but text, whose length follows.
const TEXT_UID: u64 = 2;

pub(crate) fn put(pod: &CachedPod, bytes: &mut Vec<u8>) {
    let packed = pod.packed();
    let prefix = packed.shape().name_prefix();
    let (suffix, whole) = match pod.key.name.strip_prefix(prefix) {
        Some(suffix) => (suffix, 0),
        None => (&*pod.key.name, WHOLE),
    };
    let uuid = uuid_of(&pod.key.uid);
    let (uid, of_text) = uuid.as_ref().map_or((pod.key.uid.as_bytes(), TEXT_UID), |uuid| (uuid, 0));
    put_varint((suffix.len() as u64) << 2 | of_text | whole, bytes);
    if of_text != 0 {
        put_varint(uid.len() as u64, bytes);
    }
    put_varint(pod.revision.0, bytes);
    bytes.extend_from_slice(suffix.as_bytes());
    bytes.extend_from_slice(uid);
    bytes.extend_from_slice(packed.own_bytes());
}

/// Returns the bytes of a uid that is a UUID in its canonical form: lower-case digits, and hyphens in their places.
#[must_use]
pub fn uuid_of(uid: &str) -> Option<[u8; 16]> {
    uid.as_bytes().first_chunk().filter(|_| uid.len() == 36).and_then(uuid)
}

impl<'a> RecordRef<'a> {
    /// Parses a record that [`put`] wrote for a Pod of this shape. Below this, reads cannot fail: a Pod that is missing
    /// because its record was not understood would be reported as deleted, or shift the positions of others.
    #[expect(clippy::expect_used, reason = "records are written by `put`, never change, and do not leave the process")]
    pub(crate) fn open(shape: &'a Arc<Shape>, record: &'a [u8]) -> Self {
        Self::parse(shape, record).expect("a record of a Pod of this shape")
    }

    fn parse(shape: &'a Arc<Shape>, record: &'a [u8]) -> Option<Self> {
        let (name, record) = varint(record)?;
        let (uid_length, record) = if name & TEXT_UID == 0 {
            (None, record)
        } else {
            varint(record).map(|(length, record)| (Some(length), record))?
        };
        let (revision, record) = varint(record)?;
        let (suffix, record) = record.split_at_checked(usize::try_from(name >> 2).ok()?)?;
        let (uid, own) = match uid_length {
            None => record.split_first_chunk().map(|(uuid, own)| (StoredUid::Uuid(uuid), own))?,
            Some(length) => {
                let (uid, own) = record.split_at_checked(usize::try_from(length).ok()?)?;
                (StoredUid::Text(str::from_utf8(uid).ok()?), own)
            }
        };
        Some(Self {
            shape,
            prefix: if name & WHOLE == 0 { shape.name_prefix() } else { "" },
            suffix: str::from_utf8(suffix).ok()?,
            uid,
            revision: Revision(revision),
            own,
        })
    }

    pub(crate) fn namespace(&self) -> &Arc<str> {
        self.shape.namespace()
    }

    /// Compares the Pod's namespace and name with others.
    pub(crate) fn compare(&self, namespace: &str, name: &str) -> Ordering {
        (**self.namespace()).cmp(namespace).then_with(|| match name.as_bytes().split_at_checked(self.prefix.len()) {
            Some((head, tail)) => self.prefix.as_bytes().cmp(head).then_with(|| self.suffix.as_bytes().cmp(tail)),
            None => self.prefix.as_bytes().cmp(name.as_bytes()),
        })
    }

    /// Compares the Pod's namespace and name with those of another Pod.
    pub(crate) fn compare_to(&self, other: &Self) -> Ordering {
        if self.prefix == other.prefix {
            let names = || self.suffix.as_bytes().cmp(other.suffix.as_bytes());
            return self.namespace().cmp(other.namespace()).then_with(names);
        }
        self.compare(other.namespace(), &other.name())
    }

    pub(crate) fn has_uid(&self, uid: &str) -> bool {
        match uuid_of(uid) {
            Some(uuid) => self.uid == StoredUid::Uuid(&uuid),
            None => self.uid == StoredUid::Text(uid),
        }
    }

    /// Returns true if this is the record of exactly this state.
    pub(crate) fn matches(&self, pod: &CachedPod) -> bool {
        let packed = pod.packed();
        self.revision == pod.revision
            && Arc::ptr_eq(self.shape, packed.shape())
            && self.own == packed.own_bytes()
            && self.has_uid(&pod.key.uid)
    }

    pub(crate) fn name(&self) -> Arc<str> {
        if self.prefix.is_empty() {
            return self.suffix.into();
        }
        // No name in a real API server is longer than this.
        let mut buffer = [0; 253];
        let (prefix, suffix) = (self.prefix.as_bytes(), self.suffix.as_bytes());
        match buffer.get_mut(..prefix.len() + suffix.len()) {
            Some(whole) => {
                whole[..prefix.len()].copy_from_slice(prefix);
                whole[prefix.len()..].copy_from_slice(suffix);
                // Two UTF-8 strings make a UTF-8 string.
                str::from_utf8(whole).unwrap_or_default().into()
            }
            None => [self.prefix, self.suffix].concat().into(),
        }
    }

    pub(crate) fn uid(&self) -> Arc<str> {
        match self.uid {
            StoredUid::Text(text) => text.into(),
            // The text of a UUID is ASCII.
            StoredUid::Uuid(bytes) => str::from_utf8(&uuid_text(bytes)).unwrap_or_default().into(),
        }
    }

    /// Returns the Pod.
    pub(crate) fn pod(&self) -> Arc<CachedPod> {
        let key = PodKey { namespace: Arc::clone(self.namespace()), name: self.name(), uid: self.uid() };
        let packed = Packed::from_record(Arc::clone(self.shape), self.own);
        Arc::new(CachedPod::from_parts(key, self.revision, packed))
    }
}
