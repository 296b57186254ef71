//! Which RunReports are answered, which are deleted, and when. Pure.
//!
//! Everything in a `RunReport` is a tenant's, and so is their number. Of each namespace a bounded number is known and
//! fewer wait for an answer; all others are listed and deleted a page at a time. A namespace delays only its own.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use http::{Request, header};
use podium_api::METADATA;
use podium_config::run_report::{Spec, Status};
use podium_engine::throttle::{Bucket, Rate, RoundRobin};
use podium_vocabulary::{syntax, text};
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use tokio::time::Instant;

use super::{
    bounds::Trimming,
    object::{API_VERSION, Kind},
    watch::{Change, Watchable},
};
use crate::config::Policy;

/// How long an object stays after it was seen first.
const LIFE: Duration = Duration::from_secs(60);
/// The most objects of a namespace that wait for an answer.
const WAITING: usize = 8;
/// The most known objects of a namespace: those of a minute, with a reserve.
const KNOWN: usize = 128;
/// The most objects of a page that is listed to delete those that are not known. More than [`KNOWN`], so each page has
/// some.
const PAGE: usize = 256;
/// The shortest time between two such lists of a namespace.
const LIST_PAUSE: Duration = Duration::from_secs(5);
/// The answers of a namespace.
const OF_NAMESPACE: Rate = Rate { per_second: 1, burst: 1 };
/// The answers of the host. Finding one out takes up to a millisecond.
const OF_ALL: Rate = Rate { per_second: 20, burst: 20 };

/// The identity of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) uid: Arc<str>,
}

/// A question about runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Report {
    pub(crate) key: Key,
    /// The question, or why it cannot be answered.
    pub(crate) spec: Result<Spec, String>,
    is_answered: bool,
    /// The object waits for a finalizer of another client.
    is_deleting: bool,
}

#[derive(Deserialize)]
struct Wire<'a> {
    metadata: Metadata,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    namespace: String,
    name: String,
    uid: String,
    deletion_timestamp: Option<String>,
}

impl Key {
    fn new(Metadata { namespace, name, uid, .. }: Metadata) -> Result<Self, String> {
        syntax::dns_label(&namespace).map_err(|rule| format!("metadata.namespace {rule}"))?;
        syntax::dns_subdomain(&name).map_err(|rule| format!("metadata.name {rule}"))?;
        Ok(Self { namespace: namespace.into(), name: name.into(), uid: uid.into() })
    }

    fn path(&self) -> String {
        format!("{}/{}", path(&self.namespace), self.name)
    }

    /// Returns the request that writes the answer: an apply to this object and to no later one of its name.
    ///
    /// # Errors
    /// Returns an error if the request cannot be made.
    pub(crate) fn answer(&self, status: &Status) -> Result<Request<Vec<u8>>, http::Error> {
        let metadata = json!({ "namespace": *self.namespace, "name": *self.name, "uid": *self.uid });
        let kind = Kind::RunReport.name();
        let body = json!({ "apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "status": status });
        Request::patch(format!("{}/status?fieldManager=podium-host&force=true", self.path()))
            .header(header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(body.to_string().into_bytes())
    }

    /// Returns the request that deletes this object, and no later one of its name.
    ///
    /// # Errors
    /// Returns an error if the request cannot be made.
    pub(crate) fn delete(&self) -> Result<Request<Vec<u8>>, http::Error> {
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": *self.uid } });
        Request::delete(self.path())
            .header(header::CONTENT_TYPE, "application/json")
            .body(options.to_string().into_bytes())
    }
}

fn path(namespace: &str) -> String {
    format!("/apis/{API_VERSION}/namespaces/{namespace}/{}", Kind::RunReport.resource())
}

/// Returns the request for a page of a namespace's objects, without their contents.
///
/// # Errors
/// Returns an error if the request cannot be made.
pub(crate) fn list(namespace: &str) -> Result<Request<Vec<u8>>, http::Error> {
    Request::get(format!("{}?limit={PAGE}", path(namespace))).header(header::ACCEPT, METADATA).body(Vec::new())
}

/// Reads a page; objects that are being deleted are left out.
///
/// # Errors
/// Returns an error for JSON that is no list.
pub(crate) fn listed(json: &[u8]) -> Result<Vec<Key>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Page {
        items: Option<Vec<Item>>,
    }
    #[derive(Deserialize)]
    struct Item {
        metadata: Metadata,
    }
    let Page { items } = serde_json::from_slice(json)?;
    let metadata = items.into_iter().flatten().map(|item| item.metadata);
    Ok(metadata.filter(|of| of.deletion_timestamp.is_none()).filter_map(|of| Key::new(of).ok()).collect())
}

impl Watchable for Report {
    type Id = Key;

    fn read(_: Kind, json: &str) -> Result<Self, String> {
        let unreadable = |error: serde_json::Error| text::line(&error.to_string());
        let Wire { metadata, spec, status } = serde_json::from_str(json).map_err(unreadable)?;
        let is_deleting = metadata.deletion_timestamp.is_some();
        let spec = spec.map_or("{}", RawValue::get);
        let spec = serde_json::from_str(spec).map_err(|error| format!("spec: {}", unreadable(error)));
        Ok(Self { key: Key::new(metadata)?, spec, is_answered: status.is_some(), is_deleting })
    }

    fn id(self) -> Key {
        self.key
    }

    fn trim(objects: &mut Vec<Self>, _: &mut Trimming, _: Option<&Policy>) {
        let mut counts = BTreeMap::<_, usize>::new();
        objects.retain(|report| {
            let count = counts.entry(report.key.namespace.clone()).or_default();
            *count += 1;
            // One more shows that there are more.
            *count <= KNOWN + 1
        });
    }
}

/// Something that is due.
#[derive(Debug, PartialEq)]
pub(crate) enum Due {
    Answer(Report),
    Delete(Key),
    /// A list of a namespace, whose result is for [`Reports::found`].
    List(Arc<str>),
}

/// The known objects.
#[derive(Debug)]
pub(crate) struct Reports {
    namespaces: BTreeMap<Arc<str>, Namespace>,
    answers: Bucket,
    turns: RoundRobin<Arc<str>>,
}

#[derive(Debug)]
struct Namespace {
    answers: Bucket,
    /// The uid of each known object, and when it is deleted, by name.
    known: BTreeMap<Arc<str>, (Arc<str>, Instant)>,
    waiting: VecDeque<Report>,
    /// There are objects that are not known.
    has_more: bool,
    /// No list of the namespace is due before.
    list_at: Instant,
    /// Lists and deletions under way.
    under_way: usize,
}

impl Namespace {
    fn new(now: Instant) -> Self {
        Self {
            answers: Bucket::full(OF_NAMESPACE, now),
            known: BTreeMap::new(),
            waiting: VecDeque::new(),
            has_more: false,
            list_at: now,
            under_way: 0,
        }
    }

    fn knows(&self, key: &Key) -> bool {
        self.known.get(&key.name).is_some_and(|(uid, _)| *uid == key.uid)
    }

    fn retain(&mut self, keep: impl Fn(&Key) -> bool) {
        self.waiting.retain(|report| keep(&report.key));
    }

    fn forget(&mut self, key: &Key) {
        if self.knows(key) {
            self.known.remove(&key.name);
            self.retain(|of| of != key);
        }
    }

    fn applied(&mut self, report: Report, now: Instant) {
        if report.is_deleting {
            return self.forget(&report.key);
        }
        if self.knows(&report.key) {
            if report.is_answered {
                self.retain(|of| *of != report.key);
            }
            return;
        }
        if self.known.len() >= KNOWN || !report.is_answered && self.waiting.len() >= WAITING {
            self.has_more = true;
            return;
        }
        self.known.insert(report.key.name.clone(), (report.key.uid.clone(), now + LIFE));
        if !report.is_answered {
            self.waiting.push_back(report);
        }
    }

    /// Returns the deletions that are due, and the list. One that fails is repeated after [`LIFE`].
    fn due(&mut self, namespace: &Arc<str>, now: Instant) -> Vec<Due> {
        let mut due = Vec::new();
        for (name, (uid, until)) in self.known.iter_mut().filter(|(_, (_, until))| *until <= now) {
            *until = now + LIFE;
            let key = Key { namespace: namespace.clone(), name: name.clone(), uid: uid.clone() };
            self.waiting.retain(|report| report.key != key);
            due.push(Due::Delete(key));
        }
        if self.has_more && self.under_way == 0 && self.list_at <= now {
            self.has_more = false;
            self.list_at = now + LIST_PAUSE;
            due.push(Due::List(namespace.clone()));
        }
        self.under_way += due.len();
        due
    }

    fn is_idle(&self, now: Instant) -> bool {
        let is_full = self.answers.wait(OF_NAMESPACE.burst, now).is_zero();
        self.known.is_empty() && !self.has_more && self.under_way == 0 && is_full
    }
}

impl Reports {
    pub(crate) fn new(now: Instant) -> Self {
        Self { namespaces: BTreeMap::new(), answers: Bucket::full(OF_ALL, now), turns: RoundRobin::default() }
    }

    /// Returns true if nothing will be due without another change.
    pub(crate) fn is_empty(&self) -> bool {
        self.namespaces.is_empty()
    }

    /// Records a change.
    pub(crate) fn change(&mut self, change: Change<Report>, now: Instant) {
        match change {
            Change::Listed(reports) => {
                let all: BTreeSet<_> = reports.iter().map(|report| &report.key).collect();
                for (namespace, of) in &mut self.namespaces {
                    let key = |name: &Arc<str>, uid: &Arc<str>| Key {
                        namespace: namespace.clone(),
                        name: name.clone(),
                        uid: uid.clone(),
                    };
                    of.known.retain(|name, (uid, _)| all.contains(&key(name, uid)));
                    of.retain(|key| all.contains(key));
                }
                reports.into_iter().for_each(|report| self.applied(report, now));
            }
            Change::Absent => self.namespaces.clear(),
            Change::Applied(report) => self.applied(*report, now),
            Change::Deleted(key) | Change::Left(key) => {
                self.namespaces.get_mut(&key.namespace).into_iter().for_each(|of| of.forget(&key));
            }
        }
    }

    fn applied(&mut self, report: Report, now: Instant) {
        let of = self.namespaces.entry(report.key.namespace.clone()).or_insert_with(|| Namespace::new(now));
        of.applied(report, now);
    }

    /// Returns the result of [`Due::List`]: the deletions of all objects that are not known.
    pub(crate) fn found(&mut self, namespace: &Arc<str>, keys: Vec<Key>) -> Vec<Due> {
        let Some(of) = self.namespaces.get_mut(namespace) else { return Vec::new() };
        let is_full = keys.len() >= PAGE;
        let unknown: Vec<_> = keys.into_iter().filter(|key| !of.knows(key)).map(Due::Delete).collect();
        of.has_more |= is_full;
        of.under_way += unknown.len();
        unknown
    }

    /// Records the end of a list or of a deletion. After one that failed the namespace is listed again.
    pub(crate) fn ended(&mut self, namespace: &Arc<str>, has_failed: bool) {
        let Some(of) = self.namespaces.get_mut(namespace) else { return };
        of.under_way = of.under_way.saturating_sub(1);
        of.has_more |= has_failed;
    }

    /// Returns the requests that are due, which are under way from now on.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<Due> {
        let mut due = Vec::new();
        let may_answer = |of: &Namespace| !of.waiting.is_empty() && of.answers.wait(1, now).is_zero();
        let waiting = self.namespaces.iter().filter(|(_, of)| may_answer(of)).map(|(namespace, _)| namespace.clone());
        let mut waiting: Vec<_> = waiting.collect();
        self.turns.sort(&mut waiting);
        for namespace in waiting {
            let Some(of) = self.namespaces.get_mut(&namespace) else { continue };
            if !self.answers.try_take(1, now) {
                break;
            }
            of.answers.take(1, now);
            due.extend(of.waiting.pop_front().map(Due::Answer));
            self.turns.took(namespace);
        }
        due.extend(self.namespaces.iter_mut().flat_map(|(namespace, of)| of.due(namespace, now)));
        self.namespaces.retain(|_, of| !of.is_idle(now));
        due
    }
}

#[cfg(test)]
mod tests;
