//! What the API server sends, decoded: events, and Pods in events and lists.
//!
//! A Pod that has an identity and cannot be decoded is no reason to list anew, for the list has it too: the cache keeps
//! the state that it holds, the Pod is counted and logged, and its next state is tried again.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    api::ApiError,
    model::{CachedPod, Known, ListedPod, PodError, PodKey, Revision},
    shape::{Scratch, Shapes},
};

const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// One line of a watch.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

pub(super) enum Event<'a> {
    /// The object is a Pod, as in the next two.
    Modified(&'a [u8]),
    Added(&'a [u8]),
    Deleted(&'a [u8]),
    Bookmark {
        revision: Revision,
        /// The initial events of a streaming list are complete.
        initial_events_end: bool,
    },
    Error(ApiError),
    /// Of a type that this version does not know.
    Unknown,
}

/// Bytes that are no event, list or Pod at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed: {0}")]
pub(super) struct Malformed(pub(super) String);

impl From<serde_json::Error> for Malformed {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

#[derive(Deserialize)]
struct Identified<'a> {
    #[serde(borrow)]
    metadata: Identity<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Identity<'a> {
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMetadata {
    resource_version: String,
    annotations: Option<BTreeMap<String, String>>,
}

/// One page of a list.
#[derive(Deserialize)]
pub(super) struct ListPage<'a> {
    pub(super) metadata: ListMetadata,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListMetadata {
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

impl ListMetadata {
    pub(super) fn revision(&self) -> Result<Revision, Malformed> {
        revision(&self.resource_version)
    }

    /// The token of the next page.
    pub(super) fn next(self) -> Option<String> {
        self.next.filter(|token| !token.is_empty())
    }
}

impl<'a> ListPage<'a> {
    pub(super) fn read(json: &'a [u8]) -> Result<Self, Malformed> {
        Ok(serde_json::from_slice(json)?)
    }

    pub(super) fn items(&self) -> impl Iterator<Item = &'a [u8]> {
        self.items.iter().flatten().map(|item| item.get().as_bytes())
    }
}

pub(super) fn event(line: &[u8]) -> Result<Event<'_>, Malformed> {
    let Line { kind, object } = serde_json::from_slice(line)?;
    let object = object.get().as_bytes();
    Ok(match &*kind {
        "ADDED" => Event::Added(object),
        "MODIFIED" => Event::Modified(object),
        "DELETED" => Event::Deleted(object),
        "BOOKMARK" => {
            let Bookmark { metadata } = serde_json::from_slice(object)?;
            let ended =
                |annotations: BTreeMap<_, _>| annotations.get(INITIAL_EVENTS_END).is_some_and(|is| is == "true");
            Event::Bookmark {
                revision: revision(&metadata.resource_version)?,
                initial_events_end: metadata.annotations.is_some_and(ended),
            }
        }
        "ERROR" => Event::Error(ApiError::from_status(object)),
        _ => Event::Unknown,
    })
}

/// A Pod of an event.
pub(super) enum Seen {
    Read(Arc<CachedPod>),
    Unreadable { key: PodKey, revision: Revision, error: String },
}

/// Reads Pods, and nothing twice.
pub(super) struct Decoder {
    shapes: Arc<Shapes>,
    known: Arc<dyn Known>,
    scratch: Scratch,
}

impl Decoder {
    pub(super) fn new(shapes: Arc<Shapes>, known: Arc<dyn Known>) -> Self {
        Self { shapes, known, scratch: Scratch::default() }
    }

    pub(super) fn pod(&mut self, json: &[u8]) -> Result<Seen, Malformed> {
        self.read(json).map(|pod| Seen::Read(Arc::new(pod))).or_else(|error| {
            let (key, revision) = identity(json)?;
            Ok(Seen::Unreadable { key, revision, error: error.to_string() })
        })
    }

    /// A Pod of a list. What the cache holds at this revision is not given again, unless `compare` is false; an
    /// unreadable one is taken for held, so that the list does not seem to lack it, and its error is given beside.
    pub(super) fn listed(&mut self, json: &[u8], compare: bool) -> Result<(ListedPod, Option<String>), Malformed> {
        let pod = match self.read(json) {
            Ok(pod) => pod,
            Err(error) => return Ok((ListedPod::Held(identity(json)?.0), Some(error.to_string()))),
        };
        let held = if compare { self.known.held(&pod.key.namespace, &pod.key.name) } else { None };
        Ok(match held.filter(|held| held.key == pod.key && held.revision == pod.revision) {
            // The key that is there already: a list of what is known takes next to no memory.
            Some(held) => (ListedPod::Held(held.key.clone()), None),
            None => (ListedPod::Read(Arc::new(pod)), None),
        })
    }

    fn read(&mut self, json: &[u8]) -> Result<CachedPod, PodError> {
        let Self { shapes, known, scratch } = self;
        CachedPod::read(json, shapes, scratch, |namespace, name| known.held(namespace, name))
    }
}

fn identity(json: &[u8]) -> Result<(PodKey, Revision), Malformed> {
    let Identified { metadata } = serde_json::from_slice(json)?;
    let key = PodKey::new(&metadata.namespace, &metadata.name, &metadata.uid);
    Ok((key, revision(&metadata.resource_version)?))
}

fn revision(text: &str) -> Result<Revision, Malformed> {
    Revision::parse(text).map_err(|error| Malformed(error.to_string()))
}
