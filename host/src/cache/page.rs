//! Sixteen Pods in two allocations. A page is never changed; a newer state of a Pod makes another page.
//!
//! A record is the name, the uid, the revision, the hash of the spec, and what is the Pod's own. One allocation for each
//! Pod would cost what an allocator rounds up to, more than the record itself after many events.

use std::{cmp::Ordering, sync::Arc};

use crate::{
    model::{CachedPod, PodKey, Revision},
    shape::{Packed, Shape, put_varint, uuid, uuid_text, varint},
};

/// Records grow and shrink by a few bytes from event to event. An allocation of the same size as the one that is freed
/// next finds its place again; of any size it leaves a gap.
const STEP: usize = 256;
/// Pods in a page.
pub(super) const PODS: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Page {
    entries: Box<[Entry]>,
    /// The records, one after the other. Room is made in steps of [`STEP`].
    bytes: Vec<u8>,
}

#[derive(Debug, Clone)]
struct Entry {
    /// None: nobody is here.
    shape: Option<Arc<Shape>>,
    /// Of the record, in the page's bytes.
    end: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Uid<'a> {
    Uuid(&'a [u8; 16]),
    Text(&'a str),
}

/// A Pod in a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept<'a> {
    shape: &'a Arc<Shape>,
    /// The two halves of the name.
    prefix: &'a str,
    suffix: &'a str,
    uid: Uid<'a>,
    pub(super) revision: Revision,
    spec_hash: u64,
    own: &'a [u8],
}

impl Page {
    pub(super) fn get(&self, at: usize) -> Option<Kept<'_>> {
        let entry = self.entries.get(at)?;
        let shape = entry.shape.as_ref()?;
        let start = at.checked_sub(1).map_or(0, |before| self.entries[before].end);
        let record = self.bytes.get(start as usize..entry.end as usize)?;
        let (name, record) = varint(record)?;
        let (uid, record) = varint(record)?;
        let (revision, record) = varint(record)?;
        let (spec_hash, record) = record.split_first_chunk::<8>()?;
        let (suffix, record) = record.split_at_checked(usize::try_from(name >> 1).ok()?)?;
        let (uid, own) = match uid {
            UUID => record.split_first_chunk().map(|(uuid, own)| (Uid::Uuid(uuid), own))?,
            length => {
                let (uid, own) = record.split_at_checked(usize::try_from(length - 1).ok()?)?;
                (Uid::Text(str::from_utf8(uid).ok()?), own)
            }
        };
        Some(Kept {
            shape,
            prefix: if name & WHOLE == 0 { shape.name_prefix() } else { "" },
            suffix: str::from_utf8(suffix).ok()?,
            uid,
            revision: Revision(revision),
            spec_hash: u64::from_le_bytes(*spec_hash),
            own,
        })
    }

    /// The page with another state of one Pod, or without it.
    pub(super) fn with(&self, at: usize, pod: Option<&CachedPod>) -> Self {
        let count = self.entries.len().max(at + 1);
        let end_of = |place: usize| self.entries.get(place).map_or(self.bytes.len(), |entry| entry.end as usize);
        let (start, end) = (at.checked_sub(1).map_or(0, end_of), end_of(at));
        let mut record = Vec::with_capacity(512);
        pod.inspect(|pod| put(pod, &mut record));
        let put_end = start + record.len();
        let length = put_end + self.bytes.len() - end;
        let mut bytes = Vec::with_capacity(length.next_multiple_of(STEP));
        bytes.extend_from_slice(&self.bytes[..start]);
        bytes.extend_from_slice(&record);
        bytes.extend_from_slice(&self.bytes[end..]);
        let entry = |place: usize| {
            let old = self.entries.get(place);
            let (shape, end) = match place.cmp(&at) {
                Ordering::Less => (old.and_then(|entry| entry.shape.clone()), end_of(place)),
                Ordering::Equal => (pod.map(|pod| Arc::clone(pod.packed().shape())), put_end),
                Ordering::Greater => (old.and_then(|entry| entry.shape.clone()), end_of(place) - end + put_end),
            };
            // Sixteen objects that etcd takes are 24 MiB.
            Entry { shape, end: u32::try_from(end).unwrap_or(u32::MAX) }
        };
        Self { entries: (0..count).map(entry).collect(), bytes }
    }
}

/// In the number before a name: it does not begin as the names of its shape do.
const WHOLE: u64 = 1;
/// In place of one more than the length of a uid: it is a UUID, as its 16 bytes.
const UUID: u64 = 0;

fn put(pod: &CachedPod, bytes: &mut Vec<u8>) {
    let packed = pod.packed();
    let prefix = packed.shape().name_prefix();
    let (suffix, whole) = match pod.key.name.strip_prefix(prefix) {
        Some(suffix) => (suffix, 0),
        None => (&*pod.key.name, WHOLE),
    };
    put_varint((suffix.len() as u64) << 1 | whole, bytes);
    let uuid = uuid_of(&pod.key.uid);
    let uid = uuid.as_ref().map_or(pod.key.uid.as_bytes(), |uuid| uuid);
    put_varint(if uuid.is_some() { UUID } else { uid.len() as u64 + 1 }, bytes);
    put_varint(pod.revision.0, bytes);
    bytes.extend_from_slice(&packed.spec_hash().to_le_bytes());
    bytes.extend_from_slice(suffix.as_bytes());
    bytes.extend_from_slice(uid);
    bytes.extend_from_slice(packed.own_bytes());
}

fn uuid_of(uid: &str) -> Option<[u8; 16]> {
    uid.as_bytes().first_chunk().filter(|_| uid.len() == 36).and_then(uuid)
}

impl Kept<'_> {
    pub(super) fn namespace(&self) -> &Arc<str> {
        self.shape.namespace()
    }

    /// Where this Pod is, seen from a name.
    pub(super) fn compare(&self, namespace: &str, name: &str) -> Ordering {
        (**self.namespace()).cmp(namespace).then_with(|| match name.as_bytes().split_at_checked(self.prefix.len()) {
            Some((head, tail)) => self.prefix.as_bytes().cmp(head).then_with(|| self.suffix.as_bytes().cmp(tail)),
            None => self.prefix.as_bytes().cmp(name.as_bytes()),
        })
    }

    pub(super) fn has_uid(&self, uid: &str) -> bool {
        match uuid_of(uid) {
            Some(uuid) => self.uid == Uid::Uuid(&uuid),
            None => self.uid == Uid::Text(uid),
        }
    }

    /// True when this is the state that is kept here.
    pub(super) fn is(&self, pod: &CachedPod) -> bool {
        let packed = pod.packed();
        self.revision == pod.revision
            && Arc::ptr_eq(self.shape, packed.shape())
            && self.spec_hash == packed.spec_hash()
            && self.own == packed.own_bytes()
            && self.has_uid(&pod.key.uid)
    }

    pub(super) fn name(&self) -> Arc<str> {
        if self.prefix.is_empty() {
            return self.suffix.into();
        }
        // A name is no longer than this in a real API server.
        let mut buffer = [0; 253];
        let (prefix, suffix) = (self.prefix.as_bytes(), self.suffix.as_bytes());
        match buffer.get_mut(..prefix.len() + suffix.len()) {
            Some(whole) => {
                whole[..prefix.len()].copy_from_slice(prefix);
                whole[prefix.len()..].copy_from_slice(suffix);
                // Two texts make a text.
                str::from_utf8(whole).unwrap_or_default().into()
            }
            None => [self.prefix, self.suffix].concat().into(),
        }
    }

    fn uid(&self) -> Arc<str> {
        match self.uid {
            Uid::Text(text) => text.into(),
            // Digits and hyphens.
            Uid::Uuid(bytes) => str::from_utf8(&uuid_text(bytes)).unwrap_or_default().into(),
        }
    }

    /// The Pod by itself.
    pub(super) fn pod(&self) -> Arc<CachedPod> {
        let key = PodKey { namespace: Arc::clone(self.namespace()), name: self.name(), uid: self.uid() };
        let packed = Packed::from_parts(Arc::clone(self.shape), self.own.into(), self.spec_hash);
        Arc::new(CachedPod::from_parts(key, self.revision, packed))
    }
}
