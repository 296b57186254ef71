//! Decodes the API server's responses: events, and Pods in events and lists.
//!
//! A Pod that has an identity and cannot be decoded causes no new list, because the list would contain it too: the
//! cache keeps its previous state, the Pod is counted and logged, and its next state is decoded again.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use podium_encoding::{Pool, Scratch};
use podium_pods::pod::{CachedPod, CachedPods, PodEvent, PodList, Record, RecordArena};
use podium_vocabulary::{PodKey, Revision};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::ApiError;

const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// One line of a watch.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The JSON of a potential Pod.
#[derive(Clone, Copy)]
pub(super) struct Object<'a> {
    json: &'a [u8],
    /// The event that contains it. The object is assumed to reach up to the event's last byte.
    line: Option<&'a [u8]>,
}

impl<'a> Object<'a> {
    /// Returns an object whose bytes were not scanned yet.
    pub(super) fn new(json: &'a [u8]) -> Self {
        Self { json, line: None }
    }

    fn item(item: &'a RawValue) -> Self {
        Self { json: item.get().as_bytes(), line: None }
    }

    /// Returns the object with the bounds that a JSON parser finds, or `None` if it has them already.
    fn exact(self) -> Result<Option<Self>, Malformed> {
        let Some(line) = self.line else { return Ok(None) };
        let Line { object, .. } = serde_json::from_slice(line)?;
        Ok(Some(Self::item(object)))
    }
}

pub(super) enum Event<'a> {
    /// The object is a Pod, as in the next two variants.
    Modified(Object<'a>),
    Added(Object<'a>),
    Deleted(Object<'a>),
    Bookmark {
        revision: Revision,
        /// The initial events of a streaming list are complete.
        initial_events_end: bool,
    },
    Error(ApiError),
    /// A type that this version does not know.
    Unknown,
}

/// Bytes that are not an event, a list or a Pod.
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
    metadata: ObjectMetadata<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectMetadata<'a> {
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

    /// Returns the token of the next page.
    pub(super) fn next(self) -> Option<String> {
        self.next.filter(|token| !token.is_empty())
    }
}

impl<'a> ListPage<'a> {
    pub(super) fn read(json: &'a [u8]) -> Result<Self, Malformed> {
        Ok(serde_json::from_slice(json)?)
    }

    pub(super) fn items(&self) -> impl Iterator<Item = Object<'a>> {
        self.items.iter().flatten().map(|item| Object::item(item))
    }
}

/// Parses an event of a Pod in the form that API servers write. Finding the end of the object would cost as much as
/// decoding it, so the object is assumed to end with the event. If it does not, the event is parsed again by a JSON
/// parser.
fn parse_quickly(line: &[u8]) -> Option<Event<'_>> {
    const HEAD: &[u8] = br#"{"type":""#;
    const OBJECT: &[u8] = br#"","object":"#;
    let rest = line.strip_prefix(HEAD)?.strip_suffix(b"}")?;
    let object = |kind: &[u8]| Some(Object { json: rest.strip_prefix(kind)?.strip_prefix(OBJECT)?, line: Some(line) });
    match rest.first()? {
        b'M' => object(b"MODIFIED").map(Event::Modified),
        b'A' => object(b"ADDED").map(Event::Added),
        b'D' => object(b"DELETED").map(Event::Deleted),
        _ => None,
    }
}

pub(super) fn event(line: &[u8]) -> Result<Event<'_>, Malformed> {
    if let Some(event) = parse_quickly(line) {
        return Ok(event);
    }
    let Line { kind, object } = serde_json::from_slice(line)?;
    let pod = Object::item(object);
    let object = object.get().as_bytes();
    Ok(match &*kind {
        "ADDED" => Event::Added(pod),
        "MODIFIED" => Event::Modified(pod),
        "DELETED" => Event::Deleted(pod),
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

/// A decoded Pod of an event or of a list.
#[expect(clippy::large_enum_variant, reason = "nearly every one is the large one; a box would be one more allocation")]
pub(super) enum DecodedPod {
    /// `before` is the state of the same incarnation in the cache.
    Read { pod: CachedPod, before: Option<Arc<CachedPod>> },
    /// Only the identity could be decoded.
    Unreadable { key: PodKey, revision: Revision, error: String },
}

/// Decodes Pods, and never the same state twice.
pub(super) struct Decoder {
    pool: Arc<Pool>,
    known: Arc<dyn CachedPods>,
    scratch: Scratch,
    /// The arena of a list's Pods.
    arena: RecordArena,
}

impl Decoder {
    pub(super) fn new(pool: Arc<Pool>, known: Arc<dyn CachedPods>) -> Self {
        Self { pool, known, scratch: Scratch::default(), arena: RecordArena::default() }
    }

    /// Adds a Pod to a list. A state that the cache already holds at this revision is not decoded again, unless
    /// `compare` is false. An unreadable Pod counts as held, so that the list does not seem to lack it, and is
    /// returned with its error.
    pub(super) fn list(
        &mut self,
        object: Object<'_>,
        compare: bool,
        list: &mut PodList,
    ) -> Result<Option<(PodKey, String)>, Malformed> {
        let (pod, before) = match self.pod(object)? {
            DecodedPod::Read { pod, before } => (pod, before),
            DecodedPod::Unreadable { key, error, .. } => {
                list.held.insert(&key.uid);
                return Ok(Some((key, error)));
            }
        };
        match before.filter(|held| compare && held.revision == pod.revision) {
            Some(held) => list.held.insert(&held.key.uid),
            None => {
                // The Pods after the first one of a workload show which values are shared. Encoding the first one
                // again at once leaves no gaps in the heap; freeing memory at the end of the list would.
                if let Some(last) = list.read.last_mut() {
                    last.renew(&self.pool, &mut self.scratch, &mut self.arena);
                }
                list.read.push(Record::new(&pod, &mut self.arena));
            }
        }
        Ok(None)
    }

    /// Applies the events that came after the initial ones to a list.
    pub(super) fn merge(&mut self, list: &mut PodList, later: BTreeMap<(String, String), PodEvent>) {
        if later.is_empty() {
            return;
        }
        let is_later = |record: &Record| later.contains_key(&record.names());
        list.read.retain(|record| !is_later(record));
        for ((namespace, name), PodEvent { pod, deleted, .. }) in later {
            if let Some(held) = self.known.cached(&namespace, &name) {
                list.held.remove(&held.key.uid);
            }
            // Its initial state may have been undecodable.
            list.held.remove(&pod.key.uid);
            if !deleted {
                list.read.push(Record::new(&pod, &mut self.arena));
            }
        }
    }

    /// Finishes a list.
    pub(super) fn end_list(&mut self, list: &mut PodList) {
        let Self { pool, scratch, arena, .. } = self;
        list.read.iter_mut().for_each(|record| record.renew(pool, scratch, arena));
        // The last chunk is freed together with the Pods of this list.
        self.arena = RecordArena::default();
    }

    /// # Errors
    /// Returns an error if the object has no identity and so is not a Pod.
    pub(super) fn pod(&mut self, object: Object<'_>) -> Result<DecodedPod, Malformed> {
        let Self { pool, known, scratch, .. } = self;
        let mut read = |json| CachedPod::read(json, pool, scratch, |namespace, name| known.cached(namespace, name));
        let mut error = match read(object.json) {
            Ok((pod, before)) => return Ok(DecodedPod::Read { pod, before }),
            Err(error) => error,
        };
        let mut json = object.json;
        if let Some(exact) = object.exact()? {
            json = exact.json;
            match read(json) {
                Ok((pod, before)) => return Ok(DecodedPod::Read { pod, before }),
                Err(other) => error = other,
            }
        }
        let (key, revision) = identity(json)?;
        Ok(DecodedPod::Unreadable { key, revision, error: error.to_string() })
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
