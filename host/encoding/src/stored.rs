//! The stored form of a Pod: a reference to what it shares, and its name, uid, revision and values as some hundred
//! bytes. A cache has millions of these, and unpacks the few that are read.

use std::{borrow::Cow, sync::Arc};

use podium_vocabulary::Revision;
use smallvec::SmallVec;

use super::{
    Packed, PodIdentity, Pool, Scratch, Shared,
    forms::{put_varint, uuid, uuid_text, varint},
    read::PodJson,
};

// Bits in the number before a name.
/// The name is stored whole, because it does not begin with the prefix of its shape.
const WHOLE: u64 = 1;
/// The uid is not a UUID, which is stored in 16 bytes, but text, whose length follows.
const TEXT_UID: u64 = 2;

/// The bytes of a stored Pod, parsed.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a> {
    /// The parts that the Pod shares with others.
    pub shared: &'a Shared,
    /// The Pod's namespace.
    pub namespace: &'a Arc<str>,
    /// The Pod's name in two parts, of which the first is the same for many Pods, or empty.
    pub name: [&'a str; 2],
    /// The Pod's uid.
    pub uid: Uid<'a>,
    /// The Pod's resourceVersion.
    pub revision: Revision,
    /// The values that the Pod does not share.
    pub values: &'a [u8],
}

/// A uid, in 16 bytes if it is a UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uid<'a> {
    /// A UUID in its canonical form: lower-case digits, and hyphens in their places.
    Uuid([u8; 16]),
    /// Any other text.
    Text(&'a str),
}

impl<'a> Uid<'a> {
    /// Parses a uid.
    #[must_use]
    pub fn parse(text: &'a str) -> Self {
        let uuid = text.as_bytes().first_chunk().filter(|_| text.len() == 36).and_then(uuid);
        uuid.map_or(Self::Text(text), Self::Uuid)
    }
}

impl<'a> From<Uid<'a>> for Cow<'a, str> {
    fn from(uid: Uid<'a>) -> Self {
        match uid {
            Uid::Text(text) => text.into(),
            // The text of a UUID is ASCII.
            Uid::Uuid(bytes) => str::from_utf8(&uuid_text(&bytes)).unwrap_or_default().to_owned().into(),
        }
    }
}

impl Packed {
    /// Appends the stored form of a Pod with this identity, except what it shares, which is returned.
    pub fn store(&self, identity: PodIdentity<'_>, bytes: &mut Vec<u8>) -> &Shared {
        let (suffix, whole) = match identity.name.strip_prefix(self.shape.name_prefix()) {
            Some(suffix) => (suffix, 0),
            None => (identity.name, WHOLE),
        };
        let parsed = Uid::parse(identity.uid);
        let (uid, of_text) = match &parsed {
            Uid::Uuid(uuid) => (&uuid[..], 0),
            Uid::Text(text) => (text.as_bytes(), TEXT_UID),
        };
        put_varint((suffix.len() as u64) << 2 | of_text | whole, bytes);
        if of_text != 0 {
            put_varint(uid.len() as u64, bytes);
        }
        put_varint(identity.revision, bytes);
        bytes.extend_from_slice(suffix.as_bytes());
        bytes.extend_from_slice(uid);
        bytes.extend_from_slice(self.own_bytes());
        &self.shape
    }
}

impl<'a> Stored<'a> {
    /// Parses bytes that [`Packed::store`] wrote beside this. Reads cannot fail: a Pod that is missing because its
    /// bytes were not understood would be reported as deleted, or shift the positions of others.
    #[must_use]
    #[expect(clippy::expect_used, reason = "written by `store`; they never change, and do not leave the process")]
    pub fn open(shared: &'a Shared, bytes: &'a [u8]) -> Self {
        Self::parse(shared, bytes).expect("a stored Pod with what it shares")
    }

    fn parse(shared: &'a Shared, bytes: &'a [u8]) -> Option<Self> {
        let (name, bytes) = varint(bytes)?;
        let (uid_length, bytes) = match name & TEXT_UID {
            0 => (None, bytes),
            _ => varint(bytes).map(|(length, bytes)| (Some(length), bytes))?,
        };
        let (revision, bytes) = varint(bytes)?;
        let (suffix, bytes) = bytes.split_at_checked(usize::try_from(name >> 2).ok()?)?;
        let (uid, values) = match uid_length {
            None => bytes.split_first_chunk().map(|(uuid, values)| (Uid::Uuid(*uuid), values))?,
            Some(length) => {
                let (uid, values) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
                (Uid::Text(str::from_utf8(uid).ok()?), values)
            }
        };
        let prefix = if name & WHOLE == 0 { shared.name_prefix() } else { "" };
        let name = [prefix, str::from_utf8(suffix).ok()?];
        let revision = Revision(revision);
        Some(Self { shared, namespace: shared.namespace(), name, uid, revision, values })
    }

    /// Unpacks the Pod.
    #[must_use]
    pub fn packed(&self) -> Packed {
        Packed::from_parts(Arc::clone(self.shared), SmallVec::from_slice(self.values))
    }
}

impl Pool {
    /// Encodes a stored Pod again if other Pods have shown since how to share more of it; otherwise returns `None`.
    #[must_use]
    pub fn renewed(&self, stored: &Stored<'_>, scratch: &mut Scratch) -> Option<Packed> {
        if !stored.shared.is_superseded() {
            return None;
        }
        let name = stored.name.concat();
        let uid = Cow::from(stored.uid);
        let packed = stored.packed();
        let json = packed.json(PodIdentity { name: &name, uid: &uid, revision: stored.revision.0 });
        // With its previous state; otherwise it would count as another user of the skeletons that it keeps.
        self.read(&PodJson::new(&json), Some(&packed), scratch).ok().map(|read| read.packed)
    }
}
