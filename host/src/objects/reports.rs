//! Which RunReports are answered, which are deleted, and when. Pure.
//!
//! Everything in a `RunReport` is a tenant's, and so is their number. Of each namespace a bounded number is known and
//! fewer wait for an answer; all others are listed and deleted a page at a time, by turns of the namespaces.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use http::{Request, header};
use podium_api::{METADATA_OF_LISTS, in_query};
use podium_config::run_report::{Spec, Status};
use podium_engine::throttle::{Bucket, Rate, RoundRobin};
use podium_vocabulary::{Shards, syntax, text};
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use tokio::time::Instant;

use super::{
    bounds::Trimming,
    object::{API_VERSION, Kind, Metadata, Wire},
    watch::{Change, Watchable},
};
use crate::config::Policy;

/// How long an object stays after it was seen first.
const LIFE: Duration = Duration::from_secs(60);
/// The most objects of a namespace that wait for an answer.
const WAITING: usize = 8;
/// The most known objects of a namespace: those of a minute, with a reserve.
const KNOWN: usize = 128;
/// The most objects of a page that is listed to delete those that are not known. An object without its contents has up
/// to 1.5 MiB too, so a page has up to 48 MiB. There is one page at a time.
const PAGE: usize = 32;
/// The shortest time between the beginnings of two such lists of a namespace. After a page that failed it is [`LIFE`].
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

impl Key {
    fn new(Metadata { namespace, name, uid, .. }: Metadata) -> Result<Self, String> {
        let namespace = namespace.ok_or("metadata.namespace is missing")?;
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

/// A page of a namespace's objects.
#[derive(Debug, PartialEq)]
pub(crate) struct Page {
    /// Those that are not being deleted.
    keys: Vec<Key>,
    /// The token of the next page, empty on the last one.
    next: String,
}

/// Returns the request for a page of a namespace's objects, without their contents: for the first one without a token.
///
/// # Errors
/// Returns an error if the request cannot be made.
pub(crate) fn list(namespace: &str, next: &str) -> Result<Request<Vec<u8>>, http::Error> {
    let mut uri = format!("{}?limit={PAGE}", path(namespace));
    if !next.is_empty() {
        uri.push_str(&format!("&continue={}", in_query(next)));
    }
    Request::get(uri).header(header::ACCEPT, METADATA_OF_LISTS).body(Vec::new())
}

/// Reads a page.
///
/// # Errors
/// Returns an error for JSON that is no list.
pub(crate) fn listed(json: &[u8]) -> Result<Page, serde_json::Error> {
    #[derive(Deserialize)]
    struct List {
        #[serde(default)]
        metadata: ListMetadata,
        items: Option<Vec<Item>>,
    }
    #[derive(Deserialize, Default)]
    struct ListMetadata {
        #[serde(rename = "continue")]
        next: Option<String>,
    }
    #[derive(Deserialize)]
    struct Item {
        metadata: Metadata,
    }
    let List { metadata, items } = serde_json::from_slice(json)?;
    let items = items.into_iter().flatten().map(|item| item.metadata);
    let keys = items.filter(|of| of.deletion_timestamp.is_none()).filter_map(|of| Key::new(of).ok()).collect();
    Ok(Page { keys, next: metadata.next.unwrap_or_default() })
}

impl Watchable for Report {
    type Kind = Kind;
    type Id = Key;

    fn read(_: &Kind, json: &str) -> Result<Self, String> {
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
            if report.is_deleting {
                return false;
            }
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
    /// A page of a namespace's objects, by the token of the page before. The result is for [`Reports::found`].
    List(Arc<str>, String),
}

/// The known objects.
#[derive(Debug)]
pub(crate) struct Reports {
    namespaces: BTreeMap<Arc<str>, Namespace>,
    answers: Bucket,
    turns: RoundRobin<Arc<str>>,
    list_turns: RoundRobin<Arc<str>>,
    /// A page is under way.
    is_listing: bool,
}

#[derive(Debug)]
struct Namespace {
    answers: Bucket,
    /// The uid of each known object, and when it is deleted, by name.
    known: BTreeMap<Arc<str>, (Arc<str>, Instant)>,
    waiting: VecDeque<Report>,
    /// There are objects that are not known.
    has_more: bool,
    /// No list of the namespace begins before.
    list_at: Instant,
    /// The token of the next page of a list that began, or empty.
    next: String,
    /// Pages and deletions under way.
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
            next: String::new(),
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

    /// Returns the deletions that are due, after the earlier requests of the namespace. One that fails is repeated
    /// after [`LIFE`].
    fn deletions(&mut self, namespace: &Arc<str>, now: Instant) -> Vec<Due> {
        let mut due = Vec::new();
        if self.under_way > 0 {
            return due;
        }
        for (name, (uid, until)) in self.known.iter_mut().filter(|(_, (_, until))| *until <= now) {
            *until = now + LIFE;
            let key = Key { namespace: namespace.clone(), name: name.clone(), uid: uid.clone() };
            self.waiting.retain(|report| report.key != key);
            due.push(Due::Delete(key));
        }
        self.under_way = due.len();
        due
    }

    fn may_list(&self, now: Instant) -> bool {
        self.under_way == 0 && (!self.next.is_empty() || self.has_more && self.list_at <= now)
    }

    /// Returns the token of the page that is under way from now on.
    fn list(&mut self, now: Instant) -> String {
        if self.next.is_empty() {
            self.has_more = false;
            self.list_at = now + LIST_PAUSE;
        }
        self.under_way += 1;
        std::mem::take(&mut self.next)
    }

    fn is_idle(&self, now: Instant) -> bool {
        let is_full = self.answers.wait(OF_NAMESPACE.burst, now).is_zero();
        let may_list = self.has_more || !self.next.is_empty();
        self.known.is_empty() && !may_list && self.under_way == 0 && is_full
    }
}

impl Reports {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            namespaces: BTreeMap::new(),
            answers: Bucket::full(OF_ALL, now),
            turns: RoundRobin::default(),
            list_turns: RoundRobin::default(),
            is_listing: false,
        }
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

    /// Records the end of [`Due::List`], and returns the deletions of all objects of the page that are not known. After
    /// one that failed, for which there is no page, the namespace is listed again from the first page.
    pub(crate) fn found(&mut self, namespace: &Arc<str>, page: Option<Page>, now: Instant) -> Vec<Due> {
        self.is_listing = false;
        self.ended(namespace, page.is_none());
        let Some(of) = self.namespaces.get_mut(namespace) else { return Vec::new() };
        let Some(Page { keys, next }) = page else {
            of.list_at = now + LIFE;
            return Vec::new();
        };
        of.next = next;
        let unknown: Vec<_> = keys.into_iter().filter(|key| !of.knows(key)).map(Due::Delete).collect();
        of.under_way += unknown.len();
        unknown
    }

    /// Records the end of a deletion. After one that failed the namespace is listed again.
    pub(crate) fn ended(&mut self, namespace: &Arc<str>, has_failed: bool) {
        let Some(of) = self.namespaces.get_mut(namespace) else { return };
        of.under_way = of.under_way.saturating_sub(1);
        of.has_more |= has_failed;
    }

    /// Records an answer that was not written, and may be later: it waits behind the others of its namespace.
    pub(crate) fn not_answered(&mut self, report: Report) {
        let of = self.namespaces.get_mut(&report.key.namespace);
        if let Some(of) = of.filter(|of| of.knows(&report.key)) {
            of.waiting.push_back(report);
        }
    }

    /// Forgets namespaces without objects.
    pub(crate) fn prune(&mut self, now: Instant) {
        self.namespaces.retain(|_, of| !of.is_idle(now));
    }

    /// Returns the requests that are due, which are under way from now on, of the namespaces in these shards.
    pub(crate) fn due(&mut self, now: Instant, owned: Shards) -> Vec<Due> {
        let mut due = Vec::new();
        let is_owned = |namespace: &str| owned.intersects(Shards::of_namespace(namespace));
        let may_answer = |of: &Namespace| !of.waiting.is_empty() && of.answers.wait(1, now).is_zero();
        let namespaces = self.namespaces.iter().filter(|(namespace, _)| is_owned(namespace));
        let waiting = namespaces.filter(|(_, of)| may_answer(of)).map(|(namespace, _)| namespace.clone());
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
        let namespaces = self.namespaces.iter_mut().filter(|(namespace, _)| is_owned(namespace));
        due.extend(namespaces.flat_map(|(namespace, of)| of.deletions(namespace, now)));
        due.extend(self.list(now, is_owned));
        self.prune(now);
        due
    }

    /// Returns the next page, one at a time for all namespaces.
    fn list(&mut self, now: Instant, is_owned: impl Fn(&str) -> bool) -> Option<Due> {
        if self.is_listing {
            return None;
        }
        let may_list = |namespace: &str, of: &Namespace| is_owned(namespace) && of.may_list(now);
        let waiting = self.namespaces.iter().filter(|(namespace, of)| may_list(namespace, of));
        let mut waiting: Vec<_> = waiting.map(|(namespace, _)| namespace.clone()).collect();
        self.list_turns.sort(&mut waiting);
        let namespace = waiting.into_iter().next()?;
        let next = self.namespaces.get_mut(&namespace)?.list(now);
        self.is_listing = true;
        self.list_turns.took(namespace.clone());
        Some(Due::List(namespace, next))
    }
}

#[cfg(test)]
mod tests;
