//! A Pod as the cache stores it: identity, revision, and the rest packed. Immutable and shared.

mod change;
mod list;
pub(crate) mod record;
mod view;

use std::{borrow::Cow, sync::Arc};

pub use change::{CachedPods, Change, Observation, PodEvent, Staleness};
pub use list::{PodList, SortedUids, Uids};
use podium_encoding::{Packed, PodIdentity, PodJson, Pool, Read, ReadError, Scratch, Shared};
use podium_wire::{
    CodecError, Header, Labels, Lifecycle, Owners, Section, SectionBytes, SectionSet, Spec, Status, Timestamp, Workload,
};
pub(crate) use record::RecordRef;
pub use record::{Record, RecordArena, uuid_of};
pub use view::{Effort, Page, PodView, Slice};

use podium_vocabulary::{Cursor, PodKey, Prune, Revision};

/// One state of one Pod.
#[derive(Debug, Clone)]
pub struct CachedPod {
    /// Its identity.
    pub key: PodKey,
    /// Its resourceVersion.
    pub revision: Revision,
    packed: Packed,
}

/// Why an object of the API server cannot be cached.
pub type PodError = ReadError;

impl From<Read<'_>> for CachedPod {
    fn from(read: Read<'_>) -> Self {
        let key = PodKey { namespace: read.namespace, name: (*read.name).into(), uid: (*read.uid).into() };
        Self { key, revision: read.revision, packed: read.packed }
    }
}

impl CachedPod {
    /// Packs a decoded Pod without sharing anything with other Pods. If it has no full object, its JSON is rendered
    /// from its sections.
    ///
    /// # Errors
    /// See [`Self::unshared`].
    pub fn new(pod: &podium_wire::Pod) -> Result<Self, PodError> {
        if !pod.full.is_empty() {
            return Self::unshared(pod.full.as_bytes(), &Prune::NOTHING);
        }
        let record = SectionBytes::encode(pod)?.record(&pod.header, SectionSet::ALL)?;
        let json = podium_wire::Record::open(record).and_then(|record| podium_wire::json::render(&record));
        let json = json.map_err(|error| CodecError::Malformed(error.to_string()))?;
        Self::unshared(json.to_string().as_bytes(), &Prune::NOTHING)
    }

    /// Reads the JSON of a Pod without sharing anything with other Pods, for a Pod that is not stored for long.
    ///
    /// # Errors
    /// Returns an error if the JSON is not a Pod, its revision cannot be compared, or a section is too large.
    pub fn unshared(json: &[u8], prune: &Prune) -> Result<Self, PodError> {
        Packed::unshared(json, prune).map(Self::from)
    }

    /// Reads the JSON of a Pod. `held` returns the cached state with a namespace and name; fragments that have not
    /// changed since are not read again. Also returns the cached state, if it is of the same incarnation.
    ///
    /// # Errors
    /// Returns an error if the JSON is not a Pod, or cannot be cached.
    pub fn read(
        json: &[u8],
        pool: &Pool,
        scratch: &mut Scratch,
        held: impl Fn(&str, &str) -> Option<Arc<Self>>,
    ) -> Result<(Self, Option<Arc<Self>>), PodError> {
        let json = PodJson::new(json);
        let held = |namespace: &str, name: &str, uid: &str| held(namespace, name).filter(|pod| *pod.key.uid == *uid);
        let mut before = json.names.and_then(|names| held(names.namespace, names.name, names.uid));
        let read = pool.read(&json, before.as_ref().map(|before| &before.packed), scratch)?;
        if json.names.is_none() {
            before = held(&read.namespace, &read.name, &read.uid);
        }
        let pod = match &before {
            Some(before) => Self { key: before.key.clone(), revision: read.revision, packed: read.packed },
            None => read.into(),
        };
        Ok((pod, before))
    }

    /// Appends the bytes of its record, and returns what the Pod shares with others.
    pub(crate) fn store(&self, record: &mut Vec<u8>) -> &Shared {
        self.packed.store(self.identity(), record)
    }

    /// Returns about how many bytes the Pod takes beside another one, with which it may share its form.
    #[must_use]
    pub fn size_beside(&self, other: Option<&Self>) -> usize {
        // Names, uid and the allocations.
        const FIXED: usize = 460;
        let mut own = Vec::new();
        let form = self.store(&mut own);
        let is_shared = other.is_some_and(|other| Arc::ptr_eq(form, other.store(&mut Vec::new())));
        let of_form = if is_shared { 0 } else { 2 * self.section_bytes(Section::Full).len() };
        FIXED + own.len() + of_form
    }

    /// Returns the cursor of the page that begins after this Pod.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        Cursor { namespace: Arc::clone(&self.key.namespace), name: Arc::clone(&self.key.name) }
    }

    fn identity(&self) -> PodIdentity<'_> {
        PodIdentity { name: &self.key.name, uid: &self.key.uid, revision: self.revision.0 }
    }

    /// Returns the header of its records.
    #[must_use]
    pub fn header(&self) -> Header {
        let (created, generation) = self.packed.created_and_generation(self.identity());
        Header {
            namespace: self.key.namespace.to_string(),
            name: self.key.name.to_string(),
            uid: self.key.uid.to_string(),
            resource_version: self.revision.to_string(),
            generation,
            created: Timestamp(created),
        }
    }
    /// Returns `metadata.generation`, 0 if it is absent.
    #[must_use]
    pub fn generation(&self) -> i64 {
        self.packed.created_and_generation(self.identity()).1
    }
    /// Returns the encoded bytes of a section; for the full object, its JSON.
    #[must_use]
    pub fn section_bytes(&self, section: Section) -> Cow<'_, [u8]> {
        self.packed.section(self.identity(), section)
    }
    /// Returns the encoded bytes of the wanted sections, and none of the others: cheaper than one after the other.
    #[must_use]
    pub fn sections(&self, wanted: SectionSet) -> SectionBytes<Cow<'_, [u8]>> {
        self.packed.sections(self.identity(), wanted)
    }
    /// Returns the sections whose bytes differ from those of another state of the same incarnation.
    #[must_use]
    pub fn changed_from(&self, old: &Self) -> SectionSet {
        self.packed.changed_from(&old.packed, &self.key.name, &self.key.uid)
    }
    /// Returns true if a section is the same as another Pod's and this is known without rendering it.
    pub(crate) fn has_in_common(&self, other: &Self, section: Section) -> bool {
        self.packed.has_in_common(&other.packed, section)
    }
    /// Returns the node's name, or `None` until the Pod is scheduled.
    #[must_use]
    pub fn node(&self) -> Option<Cow<'_, str>> {
        self.packed.node(self.identity())
    }
    /// Returns the phase; empty if the API server has set none.
    #[must_use]
    pub fn phase(&self) -> &str {
        self.packed.phase(self.identity())
    }
    /// Returns the uids of its owners.
    #[must_use]
    pub fn owner_uids(&self) -> Vec<String> {
        self.owners().unwrap_or_default().into_iter().map(|owner| owner.uid).collect()
    }

    /// Returns the workload that it is a replica of, with the labels that it has; see [`Workload`].
    #[must_use]
    pub fn workload(&self, labels: impl FnOnce() -> Labels) -> Option<Workload> {
        let owners = self.owners().unwrap_or_default();
        let controller = Workload::controller(&owners)?;
        let labels = if Workload::needs_labels(controller) { labels() } else { Labels::new() };
        Some(Workload::above(controller, &labels))
    }

    /// Returns the bytes of a record with the sections in `wanted`.
    ///
    /// # Errors
    /// Returns an error if the Pod does not fit into a record; Pods of a real API server do.
    pub fn record(&self, wanted: SectionSet) -> Result<Vec<u8>, CodecError> {
        let sections = self.sections(wanted);
        if wanted.contains(Section::Full) && sections.get(Section::Full).is_empty() {
            return Err(CodecError::Encode("the full object is not as it was read".to_owned()));
        }
        sections.record(&self.header(), wanted)
    }

    fn section<T: serde::de::DeserializeOwned>(&self, section: Section) -> Result<T, CodecError> {
        podium_wire::decode(&self.section_bytes(section))
    }
    /// # Errors
    /// Never for sections that `podium_wire` encoded. The same applies to all methods below.
    pub fn labels(&self) -> Result<Labels, CodecError> {
        self.section(Section::Labels)
    }
    /// # Errors
    /// See [`Self::labels`].
    pub fn annotations(&self) -> Result<podium_wire::Annotations, CodecError> {
        self.section(Section::Annotations)
    }
    /// # Errors
    /// See [`Self::labels`].
    pub fn owners(&self) -> Result<Owners, CodecError> {
        self.section(Section::Owners)
    }
    /// # Errors
    /// See [`Self::labels`].
    pub fn lifecycle(&self) -> Result<Lifecycle, CodecError> {
        self.section(Section::Lifecycle)
    }
    /// # Errors
    /// See [`Self::labels`].
    pub fn spec(&self) -> Result<Spec, CodecError> {
        self.section(Section::Spec)
    }
    /// # Errors
    /// See [`Self::labels`].
    pub fn status(&self) -> Result<Status, CodecError> {
        self.section(Section::Status)
    }
}

impl PartialEq for CachedPod {
    /// Compares the states regardless of their encoding.
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.revision == other.revision && self.changed_from(other).is_empty()
    }
}
