//! Sixteen Pods in two allocations. A page is never changed; a newer state of a Pod makes another page.
//!
//! A record is the name, the uid, the revision, and what is the Pod's own. One allocation for each
//! Pod would cost what an allocator rounds up to, more than the record itself after many events.

use std::{cmp::Ordering, sync::Arc};

use super::members::Slot;
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
    /// None: nobody is here.
    shapes: [Option<Arc<Shape>>; PODS],
    /// Of the records, in the page's bytes.
    ends: [u32; PODS],
    /// The records, one after the other. Room is made in steps of [`STEP`].
    bytes: Vec<u8>,
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
    own: &'a [u8],
}

impl Page {
    pub(super) fn get(&self, at: usize) -> Option<Kept<'_>> {
        let shape = self.shapes.get(at)?.as_ref()?;
        let record = self.bytes.get(self.start(at)..self.ends[at] as usize)?;
        let (name, record) = varint(record)?;
        let (uid, record) = varint(record)?;
        let (revision, record) = varint(record)?;
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
            own,
        })
    }

    /// Of the first Pods of a page.
    pub(super) fn of(pods: &[(Slot, Arc<CachedPod>)]) -> Self {
        let (mut page, mut bytes) = (Self::default(), Vec::with_capacity(PODS * STEP));
        let mut pods = pods.iter();
        for (shape, end) in page.shapes.iter_mut().zip(&mut page.ends) {
            if let Some((_, pod)) = pods.next() {
                put(pod, &mut bytes);
                *shape = Some(Arc::clone(pod.packed().shape()));
            }
            *end = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        }
        page.bytes = Vec::with_capacity(bytes.len().next_multiple_of(STEP));
        page.bytes.extend_from_slice(&bytes);
        page
    }

    fn start(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.ends[before] as usize)
    }

    /// The page with another state of one Pod, or without it. What `record` holds is written over.
    pub(super) fn with(&self, at: usize, pod: Option<&CachedPod>, record: &mut Vec<u8>) -> Self {
        record.clear();
        pod.inspect(|pod| put(pod, record));
        let (start, end) = (self.start(at), self.ends[at] as usize);
        let length = start + record.len() + self.bytes.len() - end;
        let mut bytes = Vec::with_capacity(length.next_multiple_of(STEP));
        bytes.extend_from_slice(&self.bytes[..start]);
        bytes.extend_from_slice(record);
        bytes.extend_from_slice(&self.bytes[end..]);
        let (mut shapes, mut ends) = (self.shapes.clone(), self.ends);
        shapes[at] = pod.map(|pod| Arc::clone(pod.packed().shape()));
        for of in &mut ends[at..] {
            // Sixteen objects that etcd takes are 24 MiB.
            *of = u32::try_from(*of as usize - end + start + record.len()).unwrap_or(u32::MAX);
        }
        Self { shapes, ends, bytes }
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
        let packed = Packed::from_parts(Arc::clone(self.shape), self.own.into());
        Arc::new(CachedPod::from_parts(key, self.revision, packed))
    }
}
