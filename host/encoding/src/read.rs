//! The JSON of a Pod before it is read, and the Pod that was read.

use std::{borrow::Cow, sync::Arc};

use podium_vocabulary::{Prune, Revision, RevisionError};
use podium_wire::{CodecError, Pod, json::JsonError};

use super::{
    Packed,
    scan::{self, Head},
};

/// The JSON of a Pod, with its names if they are where an API server writes them. The caller looks up the Pod's
/// previous state by them, and reads the JSON as the next state of this one.
#[derive(Debug, Clone, Copy)]
pub struct PodJson<'a> {
    /// `None` for JSON in an unusual form; the names are in the [`Read`] then.
    pub names: Option<Names<'a>>,
    pub(super) json: &'a [u8],
    pub(super) head: Option<Head<'a>>,
}

/// The names and the uid that identify a Pod.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    /// The Pod's namespace.
    pub namespace: &'a str,
    /// The Pod's name.
    pub name: &'a str,
    /// The Pod's uid.
    pub uid: &'a str,
}

impl<'a> PodJson<'a> {
    /// Finds the names at the beginning of the JSON.
    #[must_use]
    pub fn new(json: &'a [u8]) -> Self {
        let head = scan::head(json);
        let names = head.map(|Head { namespace, name, uid, .. }| Names { namespace, name, uid });
        Self { names, json, head }
    }
}

/// A Pod that was read.
#[derive(Debug)]
pub struct Read<'a> {
    /// The Pod's namespace, which all Pods share that share their text.
    pub namespace: Arc<str>,
    /// The Pod's name.
    pub name: Cow<'a, str>,
    /// The Pod's uid.
    pub uid: Cow<'a, str>,
    /// The Pod's resourceVersion.
    pub revision: Revision,
    /// Its encoded rest.
    pub packed: Packed,
}

/// Why JSON cannot be encoded.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is not a Pod.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// Its resourceVersion is not a number.
    #[error(transparent)]
    Revision(#[from] RevisionError),
    /// A section is larger than a record may be.
    #[error(transparent)]
    Codec(#[from] CodecError),
}

impl Read<'_> {
    /// Packs a decoded Pod that shares nothing with other Pods; `json` is the JSON that it was decoded from.
    pub(super) fn whole(pod: Pod, json: &[u8], prune: &Prune) -> Result<Self, ReadError> {
        let revision = Revision::parse(&pod.header.resource_version)?;
        let packed = Packed::whole(&pod, json, prune)?;
        let name = Cow::Owned(pod.header.name);
        let uid = Cow::Owned(pod.header.uid);
        Ok(Self { namespace: Arc::clone(packed.shape.namespace()), name, uid, revision, packed })
    }
}
