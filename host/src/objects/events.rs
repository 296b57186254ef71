//! Events about plugin objects: which changes of a status are worth one, and by which request it is sent. Pure: the
//! times are arguments, and the caller sends.
//!
//! An Event follows a status that was written. So a restart repeats none, and whoever may not read the status of an
//! object learns nothing more from its Events.

use std::{collections::BTreeMap, time::Duration};

use http::Request;
use podium_engine::throttle::{Bucket, Rate};
use podium_vocabulary::{PluginId, Tenant, text};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    object::{API_VERSION, Kind},
    status::{is_of_write, time},
};

/// The Events of one tenant: 25 at once, then one every 10 s. One takes as many tokens as seconds pass until it is made
/// up for.
const RATE: Rate = Rate { per_second: 1, burst: 25 * EVENT };
const EVENT: u32 = 10;
/// An Event that equals one of this time is counted in the series of that one. The API server deletes an Event an hour
/// after its last change.
const SERIES: Duration = Duration::from_secs(1_800);
/// The longest note that the API server accepts.
const MAX_NOTE_BYTES: usize = 1_024;
/// The longest name that leaves place for reason and time.
const MAX_NAME_BYTES: usize = 200;

/// The note of a warning about a plugin of the cluster.
const OF_CLUSTER: &str = "the status of the object has the details";

/// A change of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transition {
    reason: &'static str,
    note: String,
    is_warning: bool,
}

/// Returns the changes from the status that an object shows to its next one.
pub(crate) fn transitions(shown: &Value, next: &Value) -> Vec<Transition> {
    let mut transitions = Vec::new();
    let mut add = |reason, is_warning, note: String| transitions.push(Transition { reason, note, is_warning });
    let [before, after] = [shown, next].map(|status| &status["active"]);
    let named = |active: &Value| {
        format!("{} of generation {}", active["digest"].as_str().unwrap_or_default(), active["generation"])
    };
    let is_same = before["digest"] == after["digest"];
    match (before.is_object(), after.is_object()) {
        (false, true) => add("Loaded", false, format!("{} runs", after["digest"].as_str().unwrap_or_default())),
        (true, true) if !is_same || before["generation"] != after["generation"] => {
            add("Swapped", false, format!("{} replaced {}", named(after), named(before)));
        }
        _ => {}
    }
    let [was_ready, ready] = [shown, next].map(|status| condition(status, "Ready"));
    for reason in ["ProbeFailed", "RolledBack"] {
        let is_news = ["reason", "observedGeneration"].iter().any(|field| was_ready[field] != ready[field]);
        if ready["reason"] == reason && is_news {
            add(reason, true, ready["message"].as_str().unwrap_or_default().to_owned());
        }
    }
    let [was_released, released] = [shown, next].map(|status| condition(status, "FinalizersReleased"));
    if released["status"] == "True" && ["status", "reason"].iter().any(|field| was_released[field] != released[field]) {
        add("FinalizersReleased", true, released["message"].as_str().unwrap_or_default().to_owned());
    }
    let had = |is_write| is_same && first(shown, is_write).is_some();
    for (reason, is_write) in [("WritesRefused", true), ("Failing", false)] {
        if let Some(note) = first(next, is_write).filter(|_| !had(is_write)) {
            add(reason, true, note);
        }
    }
    let is_well = after.is_object() && [true, false].into_iter().all(|is_write| first(next, is_write).is_none());
    if is_well && (had(true) || had(false)) {
        add("Recovered", false, "no failure for 10 minutes".to_owned());
    }
    transitions
}

fn condition<'a>(status: &'a Value, kind: &str) -> &'a Value {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

/// Describes the first failure of writes or of runs.
fn first(status: &Value, is_write: bool) -> Option<String> {
    let text = |of: &Value, field: &str| of[field].as_str().unwrap_or_default().to_owned();
    let mut failures = status["failures"].as_array().into_iter().flatten();
    let failure = failures.find(|failure| is_of_write(&text(failure, "reason")) == is_write)?;
    let [reason, pod, message] = ["reason", "pod", "message"].map(|field| text(failure, field));
    Some(format!("{reason} on pod {pod}: {message}"))
}

/// The latest Events, and the rates of tenants.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    rates: BTreeMap<Tenant, Bucket>,
    latest: BTreeMap<Key, Sent>,
}

/// The object's uid and the reason.
pub(crate) type Key = (String, &'static str);

/// An Event and its request.
type Report = (Key, Request<Vec<u8>>);

#[derive(Debug)]
struct Sent {
    path: String,
    note: String,
    count: u64,
    last: Instant,
}

impl Recorder {
    /// Returns the request that reports a transition, unless the rate of the tenant is used up.
    ///
    /// # Errors
    /// Returns an error if the request cannot be made.
    pub(crate) fn report(
        &mut self,
        (id, uid): (&PluginId, &str),
        transition: Transition,
        now_millis: u64,
        now: Instant,
    ) -> Result<Option<Report>, http::Error> {
        self.latest.retain(|_, sent| now < sent.last + SERIES);
        self.rates.retain(|_, bucket| !bucket.wait(bucket.burst(), now).is_zero());
        let Transition { reason, note, is_warning } = transition;
        let key = (uid.to_owned(), reason);
        // It names Pods of all namespaces, and more people may read namespace default than objects of the cluster.
        let note = if id.namespace.is_none() && is_warning { OF_CLUSTER.to_owned() } else { note };
        let note = text::bounded(&note, MAX_NOTE_BYTES);
        let repeated = self.latest.get_mut(&key).filter(|sent| sent.note == note);
        let repeated = repeated.map(|sent| {
            sent.count += 1;
            sent.last = now;
            (sent.path.clone(), sent.count)
        });
        let bucket = self.rates.entry(id.tenant()).or_insert_with(|| Bucket::full(RATE, now));
        if !bucket.try_take(EVENT, now) {
            return Ok(None);
        }
        let at = format!("{}.000000Z", time(now_millis).trim_end_matches('Z'));
        if let Some((path, count)) = repeated {
            let series = json!({ "series": { "count": count, "lastObservedTime": at } });
            let request = Request::patch(path).header(http::header::CONTENT_TYPE, "application/merge-patch+json");
            return Ok(Some((key, request.body(series.to_string().into_bytes())?)));
        }
        // Those of an object without a namespace are in this one, as client-go's are.
        let namespace = id.namespace.as_deref().unwrap_or("default");
        let collection = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        let plugin = text::cut(&id.name, MAX_NAME_BYTES).trim_end_matches(['.', '-']);
        let name = format!("{plugin}.{}.{now_millis:x}", reason.to_lowercase());
        let mut event = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": { "namespace": namespace, "name": name },
            "eventTime": at,
            "type": if is_warning { "Warning" } else { "Normal" },
            "reason": reason,
            "action": "Reconcile",
            "note": note,
            "reportingController": "podium.dev/host",
            "reportingInstance": "podium-host",
            "regarding": { "apiVersion": API_VERSION, "kind": Kind::from_id(id).name(), "name": *id.name, "uid": uid },
        });
        if id.namespace.is_some() {
            event["regarding"]["namespace"] = namespace.into();
        }
        let request = Request::post(&collection).header(http::header::CONTENT_TYPE, "application/json");
        let request = request.body(event.to_string().into_bytes())?;
        self.latest.insert(key.clone(), Sent { path: format!("{collection}/{name}"), note, count: 1, last: now });
        Ok(Some((key, request)))
    }

    /// Records that the API server has not taken an Event: the next one is no repetition of it.
    pub(crate) fn not_sent(&mut self, key: &Key) {
        self.latest.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(digest: &str, ready: &str, failures: &[&str]) -> Value {
        let failures: Vec<_> =
            failures.iter().map(|reason| json!({ "reason": reason, "pod": "shop/a", "message": "why" })).collect();
        json!({
            "active": { "digest": digest, "generation": 3 },
            "conditions": [{ "type": "Ready", "reason": ready, "message": "because", "observedGeneration": 3 }],
            "failures": failures,
        })
    }

    fn reasons(shown: &Value, next: &Value) -> Vec<&'static str> {
        transitions(shown, next).into_iter().map(|transition| transition.reason).collect()
    }

    #[test]
    fn each_transition_is_reported_once_and_nothing_else_is() {
        let well = status("a", "Running", &[]);
        assert_eq!(reasons(&Value::Null, &well), ["Loaded"]);
        assert_eq!(reasons(&well, &well), [""; 0]);
        assert_eq!(reasons(&well, &status("b", "Running", &[])), ["Swapped"]);
        assert_eq!(reasons(&well, &status("a", "ProbeFailed", &[])), ["ProbeFailed"]);
        assert_eq!(reasons(&status("a", "ProbeFailed", &[]), &status("a", "ProbeFailed", &[])), [""; 0]);
        assert_eq!(reasons(&status("b", "Running", &[]), &status("a", "RolledBack", &[])), ["Swapped", "RolledBack"]);
        let fails = status("a", "Running", &["retry"]);
        assert_eq!(reasons(&well, &fails), ["Failing"]);
        assert_eq!(reasons(&fails, &status("a", "Running", &["retry", "trap"])), [""; 0]);
        assert_eq!(reasons(&fails, &status("a", "Running", &["retry", "forbidden"])), ["WritesRefused"]);
        assert_eq!(reasons(&fails, &well), ["Recovered"]);
        assert_eq!(reasons(&fails, &status("b", "Running", &[])), ["Swapped"], "it may fail as well");
        assert_eq!(reasons(&fails, &status("b", "Running", &["retry"])), ["Swapped", "Failing"]);
        let mut stopped = well.clone();
        stopped["active"] = Value::Null;
        assert_eq!(reasons(&fails, &stopped), [""; 0]);
        let note = &transitions(&well, &fails)[0].note;
        assert_eq!(note, "retry on pod shop/a: why");
        let released = |status: &str, reason: &str| {
            let condition = json!({ "type": "FinalizersReleased", "status": status, "reason": reason });
            json!({ "conditions": [condition] })
        };
        let ends = released("True", "NamespaceTerminating");
        assert_eq!(reasons(&Value::Null, &ends), ["FinalizersReleased"]);
        assert_eq!(reasons(&ends, &ends), [""; 0]);
        assert_eq!(reasons(&ends, &released("True", "ReleaseAfterSeconds")), ["FinalizersReleased"]);
        assert_eq!(reasons(&Value::Null, &released("False", "NamespaceForbidden")), [""; 0]);
    }

    fn id(namespace: Option<&str>) -> PluginId {
        PluginId { namespace: namespace.map(Into::into), name: "tidy".into() }
    }

    fn transition(note: &str) -> Transition {
        Transition { reason: "Failing", note: note.to_owned(), is_warning: true }
    }

    fn body(request: &Request<Vec<u8>>) -> Value {
        serde_json::from_slice(request.body()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_has_25_events_and_then_one_in_10_seconds() {
        let mut recorder = Recorder::default();
        let mut sent = |tenant: &str, number: usize| {
            let note = transition(&number.to_string());
            recorder.report((&id(Some(tenant)), "u1"), note, 0, Instant::now()).unwrap().is_some()
        };
        assert_eq!((0..1_000).filter(|number| sent("loud", *number)).count(), 25);
        assert!(sent("quiet", 0), "another tenant");
        let mut later = 0;
        for second in 0..600 {
            tokio::time::advance(Duration::from_secs(1)).await;
            later += usize::from(sent("loud", second));
        }
        assert_eq!(later, 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_repetition_is_counted_in_the_series_of_the_first() {
        let mut recorder = Recorder::default();
        let mut report = |note: &str| {
            recorder.report((&id(Some("shop")), "u1"), transition(note), 1_000, Instant::now()).unwrap().unwrap().1
        };
        let first = report("why");
        assert_eq!(
            (first.method(), first.uri().path()),
            (&http::Method::POST, "/apis/events.k8s.io/v1/namespaces/shop/events")
        );
        let regarding = json!({
            "apiVersion": "podium.dev/v1alpha1", "kind": "ReconcilePlugin",
            "namespace": "shop", "name": "tidy", "uid": "u1",
        });
        assert_eq!((&body(&first)["regarding"], &body(&first)["type"]), (&regarding, &json!("Warning")));
        let second = report("why");
        assert_eq!((second.method(), body(&second)["series"]["count"].as_u64()), (&http::Method::PATCH, Some(2)));
        let name = body(&first)["metadata"]["name"].as_str().unwrap().to_owned();
        assert_eq!(name, "tidy.failing.3e8");
        assert!(second.uri().path().ends_with(&format!("/namespaces/shop/events/{name}")));
        assert_eq!(report("another").method(), http::Method::POST);
        tokio::time::advance(SERIES).await;
        assert_eq!(report("another").method(), http::Method::POST, "the API server may have deleted the first");
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_of_a_cluster_plugin_is_in_namespace_default() {
        let mut recorder = Recorder::default();
        let (_, request) = recorder.report((&id(None), "u1"), transition("a"), 0, Instant::now()).unwrap().unwrap();
        assert_eq!(request.uri().path(), "/apis/events.k8s.io/v1/namespaces/default/events");
        assert_eq!(body(&request)["regarding"]["namespace"], Value::Null);
        assert_eq!(body(&request)["metadata"]["namespace"], "default");
        let failing = Transition { is_warning: true, ..transition("retry on pod bank/secret: no team") };
        let (_, request) = recorder.report((&id(None), "u2"), failing, 0, Instant::now()).unwrap().unwrap();
        assert_eq!(body(&request)["note"], OF_CLUSTER);
    }
}
