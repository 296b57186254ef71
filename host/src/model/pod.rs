//! A Pod as the cache keeps it: identity, revision and the encoded sections. Immutable and shared.

use std::sync::Arc;

use podium_wire::{CodecError, Header, Labels, Lifecycle, Owners, Section, SectionBytes, SectionSet, Spec, Status};

use super::{PodKey, Revision, RevisionError};

/// One state of one Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedPod {
    pub key: PodKey,
    pub revision: Revision,
    header: Header,
    sections: SectionBytes<Arc<[u8]>>,
    node: Option<Arc<str>>,
    owner_uids: Box<[Arc<str>]>,
}

/// Why an object of the API server cannot be cached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PodError {
    #[error(transparent)]
    Revision(#[from] RevisionError),
    #[error(transparent)]
    Codec(#[from] CodecError),
}

impl CachedPod {
    /// # Errors
    /// When the revision cannot be compared or a section is too large.
    pub fn new(pod: &podium_wire::Pod) -> Result<Self, PodError> {
        let header = pod.header.clone();
        Ok(Self {
            key: PodKey::new(&header.namespace, &header.name, &header.uid),
            revision: Revision::parse(&header.resource_version)?,
            sections: SectionBytes::encode(pod)?.map(Arc::from),
            node: pod.spec.node_name.as_deref().map(Arc::from),
            owner_uids: pod.owners.iter().map(|owner| Arc::from(owner.uid.as_str())).collect(),
            header,
        })
    }

    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }
    #[must_use]
    pub fn sections(&self) -> &SectionBytes<Arc<[u8]>> {
        &self.sections
    }
    /// None until scheduled.
    #[must_use]
    pub fn node(&self) -> Option<&Arc<str>> {
        self.node.as_ref()
    }
    #[must_use]
    pub fn owner_uids(&self) -> &[Arc<str>] {
        &self.owner_uids
    }

    /// The bytes of a record with the sections of `wanted`.
    ///
    /// # Errors
    /// When the Pod does not fit a record; a Pod of a real API server does.
    pub fn record(&self, wanted: SectionSet) -> Result<Vec<u8>, CodecError> {
        self.sections.record(&self.header, wanted)
    }

    fn section<T: serde::de::DeserializeOwned>(&self, section: Section) -> Result<T, CodecError> {
        podium_wire::decode(self.sections.get(section))
    }
    /// # Errors
    /// Never for what [`Self::new`] encoded; so for all below.
    pub fn labels(&self) -> Result<Labels, CodecError> {
        self.section(Section::Labels)
    }
    /// # Errors
    /// As [`Self::labels`].
    pub fn annotations(&self) -> Result<podium_wire::Annotations, CodecError> {
        self.section(Section::Annotations)
    }
    /// # Errors
    /// As [`Self::labels`].
    pub fn owners(&self) -> Result<Owners, CodecError> {
        self.section(Section::Owners)
    }
    /// # Errors
    /// As [`Self::labels`].
    pub fn lifecycle(&self) -> Result<Lifecycle, CodecError> {
        self.section(Section::Lifecycle)
    }
    /// # Errors
    /// As [`Self::labels`].
    pub fn spec(&self) -> Result<Spec, CodecError> {
        self.section(Section::Spec)
    }
    /// # Errors
    /// As [`Self::labels`].
    pub fn status(&self) -> Result<Status, CodecError> {
        self.section(Section::Status)
    }
}
