//! When the status of an object is written, and by which request. The times are arguments; the caller sends.
//!
//! A status is written when it differs from what the API server shows, at most once in [`PAUSE`] for an object and
//! [`MOST`] times for all objects at each call; a namespace has at most [`UNDER_WAY`] that the API server has not
//! answered. Nothing is written while nothing changes. The status of a load that has
//! not ended is written after [`PROVISIONAL`], or [`HANGING`]: most loads end before, so that a start with many plugins
//! costs one write for each.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use http::Request;
use podium_api::ApiError;
use podium_engine::throttle::{Backoff, RoundRobin};
use podium_vocabulary::PluginId;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    events::{Transition, transitions},
    object::{API_VERSION, FINALIZER, Kind, Object},
};

/// The field manager of the status and of the finalizer.
const MANAGER: &str = "podium-host";
/// The shortest time between two writes of one object's status.
const PAUSE: Duration = Duration::from_secs(5);
/// The longest pause after writes that failed.
const LONGEST: Duration = Duration::from_secs(300);
/// The most writes of one call, which the caller makes every two seconds: 25 a second, of which an API server notices
/// little. With 10, the statuses of 500 new plugins took more than two minutes.
pub(crate) const MOST: usize = 50;
/// The most writes of a namespace that are under way: the API server answers those of others later, the more it has of
/// one whose objects are large.
const UNDER_WAY: usize = MOST / 2;
/// For how long an object waits for its first result before its status says that it is being loaded.
const PROVISIONAL: Duration = Duration::from_secs(10);
/// The same for an object that has a status: it says what runs meanwhile.
const HANGING: Duration = Duration::from_secs(60);

/// The last write to each object.
#[derive(Debug, Default)]
pub(crate) struct Publisher {
    written: BTreeMap<PluginId, Written>,
    /// Objects with a provisional status, by plugin: uid, and when it is written if there is no result before.
    provisional: BTreeMap<PluginId, (String, Instant)>,
    /// Plugins whose object is being written to.
    under_way: BTreeSet<PluginId>,
    /// The turns of the namespaces, so that none takes all writes.
    turns: RoundRobin<Option<Arc<str>>>,
}

/// The status that an object should have.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) object: &'a Object,
    /// With `None` it stays as it is.
    pub(crate) status: Option<Value>,
    /// The load of the object has not ended.
    pub(crate) is_provisional: bool,
}

#[derive(Debug)]
struct Written {
    uid: String,
    /// As it was sent.
    sent: Arc<Value>,
    /// As the API server stored it; `None` if the write failed.
    stored: Option<Arc<Value>>,
    /// The next write may be sent then.
    next: Instant,
    /// Writes that failed in a row.
    failures: u32,
}

/// A status to write.
#[derive(Debug, PartialEq)]
pub(crate) struct Update {
    pub(crate) id: PluginId,
    pub(crate) uid: String,
    status: Arc<Value>,
    /// The changes that the status shows.
    pub(crate) transitions: Vec<Transition>,
}

impl Publisher {
    /// Returns the status that the object will have when the watch has brought the last write.
    pub(crate) fn shown<'a>(&'a self, object: &'a Object) -> &'a Value {
        let stored = self.written(object).and_then(|written| written.stored.as_ref());
        stored.unwrap_or(&object.status)
    }

    fn written(&self, object: &Object) -> Option<&Written> {
        self.written.get(&object.id).filter(|written| written.uid == object.uid)
    }

    /// Has the status that the watch brought in place of an equal one, because a status takes many times the memory of
    /// its text.
    fn share(&mut self, object: &Object) {
        let Some(Written { sent, stored, .. }) = self.written.get_mut(&object.id) else { return };
        for written in [sent].into_iter().chain(stored).filter(|written| **written == object.status) {
            *written = object.status.clone();
        }
    }

    /// Returns the writes that are due, which are under way from now on. An object that is missing in `wanted` is
    /// forgotten.
    pub(crate) fn due(&mut self, wanted: Vec<Wanted<'_>>, now: Instant) -> Vec<Update> {
        let mut due = Vec::new();
        let mut present = BTreeSet::new();
        let mut provisional = std::mem::take(&mut self.provisional);
        for Wanted { object, status, is_provisional } in wanted {
            present.insert(object.id.clone());
            self.share(object);
            let Some(status) = status else { continue };
            if is_provisional {
                let known = provisional.remove(&object.id).filter(|(uid, _)| *uid == object.uid);
                let wait = if self.shown(object)["conditions"].is_array() { HANGING } else { PROVISIONAL };
                let (uid, at) = known.unwrap_or_else(|| (object.uid.clone(), now + wait));
                self.provisional.insert(object.id.clone(), (uid, at));
                if now < at {
                    continue;
                }
            }
            let written = self.written(object);
            let is_stored =
                |written: &Written| *written.sent == status && written.stored.as_ref() == Some(&object.status);
            // The watch has not brought the write yet. After a while another client has changed the status.
            let is_on_its_way =
                |written: &Written| *written.sent == status && written.stored.is_some() && now < written.next + LONGEST;
            let waits = |written: &Written| now < written.next;
            if *object.status == status
                || self.under_way.contains(&object.id)
                || written.is_some_and(|written| waits(written) || is_stored(written) || is_on_its_way(written))
            {
                continue;
            }
            let since = written.map(|written| written.next);
            let id = object.id.clone();
            let uid = object.uid.clone();
            let transitions = transitions(self.shown(object), &status);
            due.push(((is_provisional, since), Update { id, uid, status: status.into(), transitions }));
        }
        self.written.retain(|id, _| present.contains(id));
        // Of a namespace results first; of these, those that were never written, then those that have waited for
        // longest.
        due.sort_by_key(|(order, _)| *order);
        let tenants: BTreeSet<_> = due.iter().map(|(_, update)| update.id.namespace.clone()).collect();
        let mut tenants: Vec<_> = tenants.into_iter().collect();
        self.turns.sort(&mut tenants);
        let mut rounds: BTreeMap<_, _> = tenants.into_iter().enumerate().map(|(turn, of)| (of, (0, turn))).collect();
        let mut under_way: BTreeMap<_, usize> = BTreeMap::new();
        self.under_way.iter().for_each(|id| *under_way.entry(id.namespace.clone()).or_default() += 1);
        let in_turn = due.into_iter().filter_map(|(_, update)| {
            let of_tenant = rounds.get_mut(&update.id.namespace)?;
            of_tenant.0 += 1;
            let under_way = under_way.get(&update.id.namespace).copied().unwrap_or_default();
            (under_way + of_tenant.0 <= UNDER_WAY).then_some((*of_tenant, update))
        });
        let mut due: Vec<_> = in_turn.collect();
        due.sort_by_key(|(turn, _)| *turn);
        let due: Vec<_> = due.into_iter().take(MOST).map(|(_, update)| update).collect();
        due.last().into_iter().for_each(|last| self.turns.took(last.id.namespace.clone()));
        self.under_way.extend(due.iter().map(|update| update.id.clone()));
        due
    }

    /// Records the status that the API server has after a write. Until then [`Self::due`] returns no other write to the
    /// object.
    pub(crate) fn answered(&mut self, update: Update, answer: Result<Value, ApiError>, now: Instant) {
        let Update { id, uid, status: sent, transitions: _ } = update;
        self.under_way.remove(&id);
        let failures = match &answer {
            Ok(_) => 0,
            Err(_) => self.written.get(&id).map_or(0, |written| written.failures).saturating_add(1),
        };
        let pause = Backoff { first: PAUSE, most: LONGEST }.doubled(failures.saturating_add(1));
        let asked = answer.as_ref().err().and_then(ApiError::retry_after).unwrap_or_default();
        let stored = answer.ok().map(Arc::new);
        self.written.insert(id, Written { uid, sent, stored, next: now + pause.max(asked.min(LONGEST)), failures });
    }
}

impl Update {
    /// Returns the request: a server-side apply of the status only. With the uid it reaches no later object of the
    /// same name, and it never creates one.
    ///
    /// # Errors
    /// Returns an error if the request cannot be made.
    pub(crate) fn request(&self) -> Result<Request<Vec<u8>>, http::Error> {
        apply(&self.id, &self.uid, "/status", json!({ "status": *self.status }))
    }
}

/// Returns the request that adds [`FINALIZER`] to an object. It changes no other finalizer.
///
/// # Errors
/// Returns an error if the request cannot be made.
pub(crate) fn hold(id: &PluginId, uid: &str) -> Result<Request<Vec<u8>>, http::Error> {
    apply(id, uid, "", json!({ "metadata": { "finalizers": [FINALIZER] } }))
}

/// Returns the request that removes [`FINALIZER`] from a position among an object's finalizers. An apply would leave it
/// there if another field manager owns it too. The API server refuses the request if the finalizer is not at this
/// position, or the object is a later one of the same name.
///
/// # Errors
/// Returns an error if the request cannot be made.
pub(crate) fn release(id: &PluginId, uid: &str, position: usize) -> Result<Request<Vec<u8>>, http::Error> {
    let finalizer = format!("/metadata/finalizers/{position}");
    let patch = json!([
        { "op": "test", "path": "/metadata/uid", "value": uid },
        { "op": "test", "path": finalizer, "value": FINALIZER },
        { "op": "remove", "path": finalizer },
    ]);
    Request::patch(format!("{}?fieldManager={MANAGER}", path(id)))
        .header(http::header::CONTENT_TYPE, "application/json-patch+json")
        .body(patch.to_string().into_bytes())
}

fn path(id: &PluginId) -> String {
    let resource = Kind::from_id(id).resource();
    let name = &id.name;
    match &id.namespace {
        Some(namespace) => format!("/apis/{API_VERSION}/namespaces/{namespace}/{resource}/{name}"),
        None => format!("/apis/{API_VERSION}/{resource}/{name}"),
    }
}

/// Returns a server-side apply of some fields of an object. With the uid it reaches no later object of the same name,
/// and it never creates one.
fn apply(id: &PluginId, uid: &str, subresource: &str, fields: Value) -> Result<Request<Vec<u8>>, http::Error> {
    let mut object = fields;
    (object["apiVersion"], object["kind"]) = (API_VERSION.into(), Kind::from_id(id).name().into());
    (object["metadata"]["name"], object["metadata"]["uid"]) = ((*id.name).into(), uid.into());
    if let Some(namespace) = &id.namespace {
        object["metadata"]["namespace"] = (**namespace).into();
    }
    Request::patch(format!("{}{subresource}?fieldManager={MANAGER}&force=true", path(id)))
        .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
        .body(object.to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::{
        super::object::tests::{object, spec},
        *,
    };

    fn with_status(name: &str, status: Value) -> Object {
        Object { status: Arc::new(status), ..object(name, 1, &spec()) }
    }

    fn wanted(object: &Object, status: Option<Value>) -> Wanted<'_> {
        Wanted { object, status, is_provisional: false }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn failed(code: u16) -> ApiError {
        let message = String::new();
        ApiError::Status { code, reason: None, object: None, message, causes: Vec::new(), retry_after: None }
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_that_the_object_has_is_not_written() {
        let mut publisher = Publisher::default();
        let now = Instant::now();
        let object = with_status("a", json!({ "x": 1 }));
        assert_eq!(publisher.due(vec![wanted(&object, Some(json!({ "x": 1 })))], now), []);
        assert_eq!(publisher.due(vec![wanted(&object, None)], now), []);
        assert_eq!(publisher.due(vec![wanted(&object, Some(json!({ "x": 2 })))], now).len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_is_not_repeated_before_and_after_the_watch_has_brought_it() {
        let mut publisher = Publisher::default();
        let now = Instant::now();
        let want = || Some(json!({ "x": 2, "unknown": 1 }));
        let old = with_status("a", Value::Null);
        let update = publisher.due(vec![wanted(&old, want())], now).pop().unwrap();
        // The API server does not store a field that it does not know.
        publisher.answered(update, Ok(json!({ "x": 2 })), now);
        assert_eq!(publisher.shown(&old), &json!({ "x": 2 }));
        assert_eq!(publisher.due(vec![wanted(&old, want())], now + seconds(60)), [], "on its way");
        let new = with_status("a", json!({ "x": 2 }));
        for after in [6, 3_600, 1 << 30] {
            assert_eq!(publisher.due(vec![wanted(&new, want())], now + seconds(after)), []);
        }
        let edited = with_status("a", json!({ "x": 9 }));
        let update = publisher.due(vec![wanted(&edited, want())], now + seconds(3_600)).pop().unwrap();
        publisher.answered(update, Err(failed(409)), now + seconds(3_600));
        let recreated = Object { uid: "other".into(), ..old };
        assert_eq!(publisher.due(vec![wanted(&recreated, want())], now + seconds(3_600)).len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_that_was_written_and_seen_is_in_memory_once() {
        let mut publisher = Publisher::default();
        let now = Instant::now();
        let status = || json!({ "x": 1 });
        let old = with_status("a", Value::Null);
        let update = publisher.due(vec![wanted(&old, Some(status()))], now).pop().unwrap();
        publisher.answered(update, Ok(status()), now);
        let mut again = with_status("a", status());
        let seen = with_status("a", status());
        again.share(&seen);
        assert_eq!(publisher.due(vec![wanted(&again, Some(status()))], now), []);
        let Written { sent, stored, .. } = publisher.written(&again).unwrap();
        for of in [&again.status, sent, stored.as_ref().unwrap()] {
            assert!(Arc::ptr_eq(of, &seen.status));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_object_is_written_every_5_s_and_all_by_50_at_a_time() {
        let mut publisher = Publisher::default();
        let now = Instant::now();
        let of = |at: usize| {
            let mut object = with_status(&format!("p{at:03}"), Value::Null);
            object.id.namespace = Some(format!("shop-{}", at % 25).into());
            object
        };
        let objects: Vec<_> = (0..125).map(of).collect();
        let want = |number: u64| -> Vec<_> {
            objects.iter().map(|object| wanted(object, Some(json!({ "x": number })))).collect()
        };
        let mut written = Vec::new();
        for second in 0..4 {
            for update in publisher.due(want(second), now + seconds(second)) {
                written.push(update.id.name.to_string());
                let stored = Value::clone(&update.status);
                publisher.answered(update, Ok(stored), now + seconds(second));
            }
        }
        let each: BTreeSet<_> = written.iter().collect();
        assert_eq!((written.len(), each.len()), (125, 125), "{written:?}");
        assert_eq!(publisher.due(want(9), now + seconds(5)).len(), 50, "those of the first second");
    }

    #[tokio::test(start_paused = true)]
    async fn writes_that_are_not_answered_are_few_for_each_namespace() {
        let mut publisher = Publisher::default();
        let now = Instant::now();
        let objects: Vec<_> = (0..30).map(|at| with_status(&format!("p{at:02}"), Value::Null)).collect();
        let mut other = with_status("other", Value::Null);
        other.id.namespace = Some("zzz".into());
        let want = || objects.iter().chain([&other]).map(|object| wanted(object, Some(1.into()))).collect();
        let mut first = publisher.due(want(), now);
        assert_eq!(first.len(), UNDER_WAY + 1);
        assert_eq!(publisher.due(want(), now + seconds(2)), [], "none is answered");
        for update in first.drain(..3) {
            publisher.answered(update, Ok(1.into()), now + seconds(3));
        }
        let next = publisher.due(want(), now + seconds(4));
        let ended = 3 - usize::from(first.iter().all(|update| update.id != other.id));
        assert_eq!(next.len(), ended, "as many as were answered");
    }

    #[tokio::test(start_paused = true)]
    async fn fresh_objects_of_one_namespace_delay_no_other_namespaces() {
        let mut publisher = Publisher::default();
        let now = Instant::now();
        let of = |namespace: &str, name: &str| {
            let mut object = with_status(name, Value::Null);
            object.id.namespace = Some(namespace.into());
            object
        };
        let quiet = of("zzz", "quiet");
        let update = publisher.due(vec![wanted(&quiet, Some(1.into()))], now).pop().unwrap();
        publisher.answered(update, Ok(json!(1)), now);
        let mut calls = Vec::new();
        for call in 0..20 {
            let fresh: Vec<_> = (0..50).map(|at| of("aaa", &format!("p{call}-{at}"))).collect();
            let all = fresh.iter().map(|object| wanted(object, Some(1.into())));
            let all = all.chain([wanted(&quiet, Some(2.into()))]).collect();
            let due = publisher.due(all, now + seconds(6 + 2 * call));
            calls.extend(due.iter().any(|update| update.id == quiet.id).then_some(call));
        }
        assert!(calls.first().is_some_and(|call| *call < 2), "{calls:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_load_that_has_not_ended_is_written_after_10_s_and_behind_results() {
        let mut publisher = Publisher::default();
        let now = Instant::now();
        let objects: Vec<_> = (0..80).map(|at| with_status(&format!("p{at:02}"), Value::Null)).collect();
        let mut due = |loaded: std::ops::Range<usize>, second: u64| {
            let status =
                |at, object| Wanted { is_provisional: !loaded.contains(&at), ..wanted(object, Some(1.into())) };
            let wanted = objects.iter().enumerate().map(|(at, object)| status(at, object)).collect();
            let due = publisher.due(wanted, now + seconds(second));
            // The test does not answer.
            publisher.under_way.clear();
            due.iter().map(|update| update.id.name.to_string()).collect::<Vec<_>>()
        };
        assert!(due(0..0, 0).is_empty());
        assert_eq!(due(0..2, 9), ["p00", "p01"]);
        let names = |range: std::ops::Range<usize>| range.map(|at| format!("p{at:02}"));
        let expected: Vec<_> = names(60..80).chain(names(2..7)).collect();
        assert_eq!(due(60..80, 10), expected);
        // An object that is loaded again later is provisional again for as long.
        assert!(due(0..80, 20).len() == 25 && due(2..80, 21).iter().all(|name| !["p00", "p01"].contains(&&**name)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_fails_is_repeated_with_back_off() {
        let mut publisher = Publisher::default();
        let began = Instant::now();
        let object = with_status("a", Value::Null);
        let mut writes = Vec::new();
        for second in 0..1_000 {
            for update in publisher.due(vec![wanted(&object, Some(json!({ "x": 1 })))], began + seconds(second)) {
                writes.push(second);
                publisher.answered(update, Err(failed(403)), began + seconds(second));
            }
        }
        assert_eq!(writes, [0, 10, 30, 70, 150, 310, 610, 910]);
    }

    #[test]
    fn a_status_is_applied_to_this_object_and_no_other() {
        let update = Update {
            id: object("a", 1, &spec()).id,
            uid: "u-a".into(),
            status: json!({ "x": 1 }).into(),
            transitions: Vec::new(),
        };
        let request = update.request().unwrap();
        let path =
            "/apis/podium.dev/v1alpha1/namespaces/shop/reconcileplugins/a/status?fieldManager=podium-host&force=true";
        assert_eq!(request.uri(), path);
        let body: Value = serde_json::from_slice(request.body()).unwrap();
        let metadata = json!({ "name": "a", "namespace": "shop", "uid": "u-a" });
        let kind = "ReconcilePlugin";
        assert_eq!(
            body,
            json!({ "apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "status": { "x": 1 } })
        );
    }
}
