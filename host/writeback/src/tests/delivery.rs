//! Delivery to the scripted API server: requests, and the meaning of its responses.

use podium_api::METADATA;
use podium_engine::ports::{Shown, TraceId};
use podium_vocabulary::{Action, Event, EventType, Grants, Revision, Scope, WriteGrants};
use serde_json::json;

use super::wire::{Answer, Wire, apply, results, sender, status};
use crate::{
    plan::tests::{View, authorised, cached, key, label},
    *,
};

fn pod(uid: &str, label: &str) -> Answer {
    let metadata =
        json!({ "namespace": "shop", "name": "cart-0", "uid": uid, "resourceVersion": "6", "labels": { "a": label } });
    Some((200, json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}, "status": {} })))
}

pub(super) async fn deliver(wire: &Wire, actions: impl IntoIterator<Item = Action>) -> Sent {
    let staged = Staged { writes: authorised(actions), ..Staged::default() };
    wire.writeback().deliver(&sender(), &key(), &cached(|_| ()), staged, 7_500).await
}

#[tokio::test(start_paused = true)]
async fn a_request_names_the_span_of_its_first_write_if_its_run_was_drawn() {
    let id = TraceId(*b"abcdefghijklmnop");
    for trace in [None, Some(Trace { id, is_sampled: false }), Some(Trace { id, is_sampled: true })] {
        let wire = Wire::answering([pod("u1", "2"), pod("u1", "2")]);
        // The label and the annotation share a request, the condition has its own, and the other label is there.
        let annotation = Action::SetAnnotation { target: key(), key: "b".into(), value: "2".into() };
        let staged = Staged {
            writes: authorised([label("a", "1"), label("a", "2"), condition(), annotation]),
            trace,
            ..Staged::default()
        };
        let sent = wire.writeback().deliver(&sender(), &key(), &cached(|_| ()), staged, 7_500).await;
        assert_eq!((sent.requests, &results(&sent)[..]), (2, &[(); 4].map(|()| WriteResult::Applied)[..]));
        let parents: Vec<_> = wire.seen().into_iter().map(|seen| seen.parent).collect();
        let is_sampled = trace.is_some_and(|trace| trace.is_sampled);
        let parent = |write| is_sampled.then(|| id.parent(TracedPart::Write(write)));
        assert_eq!(parents, [parent(0), parent(2)]);
        let mut timed: Vec<_> = sent.times.iter().map(|time| time.id).collect();
        timed.sort_unstable();
        assert_eq!(timed, if trace.is_some() { vec![0, 1, 2, 3] } else { Vec::new() });
    }
    let wire = Wire::answering([]);
    let staged = Staged {
        writes: authorised([label("a", "1")]),
        trace: Some(Trace { id, is_sampled: true }),
        ..Staged::default()
    };
    let sent = wire.writeback().deliver(&sender(), &key(), &View(Vec::new()), staged, 7_500).await;
    assert!(sent.times.is_empty(), "no request, no time: {:?}", sent.times);
}

fn shown(sent: &Sent) -> Vec<Shown> {
    sent.expected.iter().map(|expected| expected.shown).collect()
}

fn delete() -> Action {
    Action::DeletePod { target: key(), grace_seconds: Some(3) }
}

fn evict() -> Action {
    Action::EvictPod { target: key() }
}

fn condition() -> Action {
    let condition_type = "x.example/C".into();
    let reason = "R".into();
    let message = "m".into();
    let status = podium_vocabulary::ConditionStatus::True;
    Action::SetCondition { target: key(), condition_type, status, reason, message }
}

#[tokio::test]
async fn a_patch_has_uid_manager_and_user_and_asks_for_metadata() {
    let wire = Wire::answering([pod("u1", "2")]);
    let sent =
        deliver(&wire, [label("a", "2"), Action::RemoveFinalizer { target: key(), name: "x.example/f".into() }]).await;
    assert_eq!(results(&sent), [WriteResult::Applied, WriteResult::Applied]);
    assert_eq!(sent.requests, 1);
    assert_eq!(shown(&sent), [Shown::Revision(Revision(6))]);
    let seen = &wire.seen()[0];
    assert_eq!(seen.accept, METADATA);
    assert_eq!(seen.uri, "/api/v1/namespaces/shop/pods/cart-0?fieldManager=podium/shop/a&timeout=7s");
    assert_eq!((&*seen.method, &*seen.content), ("PATCH", "application/strategic-merge-patch+json"));
    assert_eq!(seen.user.as_deref(), Some("system:serviceaccount:shop:a"));
    assert_eq!(seen.agent, Some(podium_api::plugin_user_agent("shop/a")));
    let finalizers = json!(["x.example/f"]);
    let metadata = json!({"uid": "u1", "labels": {"a": "2"}, "$deleteFromPrimitiveList/finalizers": finalizers});
    assert_eq!(seen.body, json!({ "metadata": metadata }));
}

#[tokio::test]
async fn conditions_go_to_status_with_nothing_but_the_uid_beside_them() {
    let wire = Wire::answering([pod("u1", "1")]);
    deliver(&wire, [condition()]).await;
    let seen = &wire.seen()[0];
    assert_eq!(seen.accept, METADATA);
    assert_eq!(seen.uri, "/api/v1/namespaces/shop/pods/cart-0/status?fieldManager=podium/shop/a&timeout=7s");
    let condition = json!({"type": "x.example/C", "status": "True", "reason": "R", "message": "m",
        "lastTransitionTime": "1970-01-01T00:00:07Z"});
    assert_eq!(seen.body, json!({"metadata": {"uid": "u1"}, "status": {"conditions": [condition]}}));
}

#[tokio::test]
async fn a_deletion_or_eviction_waits_for_the_deletion_timestamp() {
    let wire = Wire::answering([pod("u1", "1")]);
    let sent = deliver(&wire, [delete()]).await;
    assert_eq!(shown(&sent), [Shown::Deletion]);
    let seen = &wire.seen()[0];
    assert_eq!((&seen.body["preconditions"]["uid"], &seen.body["gracePeriodSeconds"]), (&json!("u1"), &json!(3)));
    let wire = Wire::answering([Some((201, json!({})))]);
    assert_eq!(results(&deliver(&wire, [evict()]).await), [WriteResult::Applied]);
    let seen = &wire.seen()[0];
    assert_eq!(seen.uri, "/api/v1/namespaces/shop/pods/cart-0/eviction?timeout=7s");
    assert_eq!(seen.body["deleteOptions"]["preconditions"]["uid"], "u1");
}

#[tokio::test]
async fn refusals_mean_what_the_table_says() {
    let because = || "because".to_owned();
    let table = [
        (label("a", "2"), status(422, "metadata.uid", "FieldValueInvalid"), WriteResult::Gone),
        (label("a", "2"), status(422, "metadata.labels", ""), WriteResult::Invalid(because())),
        (label("a", "2"), status(409, "", ""), WriteResult::Conflict),
        (label("a", "2"), status(404, "", ""), WriteResult::Gone),
        (label("a", "2"), status(403, "", ""), WriteResult::Forbidden(because())),
        (label("a", "2"), status(400, "", ""), WriteResult::Invalid(because())),
        (evict(), status(429, "", "DisruptionBudget"), WriteResult::Blocked(because())),
    ];
    for (action, answer, expected) in table {
        let wire = Wire::answering([answer.clone()]);
        let sent = deliver(&wire, [action]).await;
        assert_eq!(results(&sent), [expected], "{answer:?}");
        assert!(sent.expected.is_empty());
        wire.seen();
    }
}

/// The host's own credentials were refused, which says nothing about the plugin's rights; a webhook's 401 does.
#[tokio::test]
async fn refused_credentials_are_no_missing_right() {
    let bare = json!({ "kind": "Status", "code": 401, "message": "Unauthorized", "reason": "Unauthorized" });
    let wire = Wire::answering([Some((401, bare))]);
    let writeback = wire.writeback();
    let staged = Staged { writes: authorised([label("a", "2"), apply(&[])]), ..Staged::default() };
    let sent = writeback.deliver(&sender(), &key(), &cached(|_| ()), staged, 0).await;
    assert_eq!(results(&sent), [WriteResult::NotSent, WriteResult::NotSent], "both wait");
    assert!(writeback.closed_kinds().is_empty(), "{:?}", writeback.closed_kinds());
    wire.seen();
    let sent = deliver(&Wire::answering([status(401, "", "Denied")]), [label("a", "2")]).await;
    assert_eq!(results(&sent), [WriteResult::Forbidden("because".to_owned())]);
}

#[tokio::test]
async fn a_contested_removal_is_gone_only_if_a_read_shows_it() {
    let table = [
        (pod("u1", "1"), WriteResult::Conflict),
        (pod("u2", "1"), WriteResult::Gone),
        (status(404, "", ""), WriteResult::Gone),
        (status(403, "", ""), WriteResult::Conflict),
    ];
    for action in [delete(), evict()] {
        for (read, expected) in table.clone() {
            let wire = Wire::answering([status(409, "", ""), read]);
            let sent = deliver(&wire, [action.clone()]).await;
            assert_eq!(results(&sent), [expected]);
            assert_eq!(wire.lines()[1], "GET /api/v1/namespaces/shop/pods/cart-0");
            assert!(sent.expected.is_empty());
        }
    }
    let object = |uid: Option<&str>| match apply(&[]) {
        Action::ApplyObject { object, .. } => Action::DeleteObject { object, uid: uid.map(str::to_owned) },
        _ => unreachable!("an object"),
    };
    for (uid, expected) in [("u1", WriteResult::Conflict), ("u2", WriteResult::Gone)] {
        let wire = Wire::answering([status(409, "", ""), pod(uid, "1")]);
        assert_eq!(results(&deliver(&wire, [object(Some("u1"))]).await), [expected]);
    }
    let wire = Wire::answering([status(409, "", "")]);
    assert_eq!(results(&deliver(&wire, [object(None)]).await), [WriteResult::Conflict]);
}

#[tokio::test]
async fn an_eviction_that_two_budgets_forbid_is_blocked() {
    let text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    let answer = || Some((500, json!({ "kind": "Status", "code": 500, "message": text })));
    let sent = deliver(&Wire::answering([answer()]), [evict()]).await;
    assert_eq!(results(&sent), [WriteResult::Blocked(text.into())]);
    let wire = Wire::answering([answer(), pod("u1", "1")]);
    assert_eq!(results(&deliver(&wire, [label("a", "2")]).await), [WriteResult::Unknown]);
}

#[tokio::test]
async fn an_overloaded_server_gets_no_requests_until_its_retry_after() {
    for (asked, expected) in [(7, Some(7)), (86_400, Some(60)), (0, None)] {
        let body = json!({ "kind": "Status", "code": 429, "details": { "retryAfterSeconds": asked } });
        let wire = Wire::answering([Some((429, body))]);
        let staged = staged_event(vec![label("a", "2"), apply(&[])]);
        let sent = wire.writeback().deliver(&sender(), &key(), &cached(|_| ()), staged, 0).await;
        assert_eq!(results(&sent), [WriteResult::NotSent, WriteResult::NotSent]);
        assert_eq!(sent.retry_after, expected.map(Duration::from_secs));
        wire.seen();
    }
    let wire = Wire::answering([status(429, "", "DisruptionBudget")]);
    assert_eq!(deliver(&wire, [evict()]).await.retry_after, None);
}

/// Returns applies of independent objects.
fn objects(count: usize) -> Vec<Action> {
    let object = |index| match apply(&[]) {
        Action::ApplyObject { mut object, mut body, owner } => {
            object.name = format!("summary-{index}");
            body["metadata"]["name"] = json!(object.name);
            Action::ApplyObject { object, body, owner }
        }
        _ => unreachable!("an object"),
    };
    (0..count).map(object).collect()
}

#[tokio::test(start_paused = true)]
async fn a_delivery_ends_after_ten_seconds() {
    // The apply of the first object takes 8 s without an answer; the look-up after it gets the remaining 2 s.
    let wire = Wire::answering([Some((404, json!({}))), None, None]);
    let started = Instant::now();
    let staged = staged_event(objects(1_000));
    let sent = wire.writeback().deliver(&sender(), &key(), &cached(|_| ()), staged, 0).await;
    assert_eq!(started.elapsed(), Duration::from_secs(10));
    let results = results(&sent);
    assert_eq!(results[0], WriteResult::Unknown);
    assert_eq!((results.len(), results[1..].iter().all(|result| *result == WriteResult::NotSent)), (1_000, true));
    wire.seen();
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_resolved_by_one_read() {
    let table = [
        (pod("u1", "2"), WriteResult::Applied),
        (pod("u1", "1"), WriteResult::Unknown),
        (pod("u2", "2"), WriteResult::Gone),
        (status(404, "", ""), WriteResult::Gone),
        (status(503, "", ""), WriteResult::Unknown),
        (None, WriteResult::Unknown),
    ];
    for lost in [None, status(504, "", ""), status(408, "", "")] {
        for (read, expected) in table.clone() {
            let wire = Wire::answering([lost.clone(), read]);
            let sent = deliver(&wire, [label("a", "2")]).await;
            assert_eq!(
                shown(&sent),
                match &expected {
                    WriteResult::Applied => vec![Shown::Revision(Revision(6))],
                    WriteResult::Unknown => vec![Shown::Unknown],
                    _ => Vec::new(),
                }
            );
            assert_eq!(results(&sent), [expected]);
            assert_eq!(wire.lines()[1], "GET /api/v1/namespaces/shop/pods/cart-0");
            assert_eq!(wire.seen()[1].user, None);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_about_a_pruned_annotation_is_resolved() {
    for (held, expected) in [("2", WriteResult::Applied), ("1", WriteResult::Unknown)] {
        let Some((code, mut body)) = pod("u1", "1") else { unreachable!("an answer") };
        body["metadata"]["annotations"] = json!({ "x.example/pruned": held });
        let wire = Wire::answering([None, Some((code, body))]);
        let annotation = Action::SetAnnotation { target: key(), key: "x.example/pruned".into(), value: "2".into() };
        let sent = deliver(&wire, [annotation]).await;
        assert_eq!(results(&sent), [expected]);
    }
}

#[tokio::test]
async fn a_resource_that_is_not_served_is_invalid_and_not_gone() {
    let reason = "configmaps of v1 are not served with a namespace by this API server; correct apiVersion and resource \
        of the grant, or metadata.namespace of the object";
    let deletion = || match apply(&[]) {
        Action::ApplyObject { object, .. } => Action::DeleteObject { object, uid: None },
        _ => unreachable!("an object"),
    };
    let about =
        |name: &str| json!({ "kind": "Status", "code": 404, "reason": "NotFound", "details": { "name": name } });
    // A group that is not served, and a built-in group without the resource.
    for absent in [json!("404 page not found"), about("")] {
        let absent = || Some((404, absent.clone()));
        let wire = Wire::answering([absent(), absent()]);
        assert_eq!(apply_with(&wire.writeback(), &[], 0).await, (WriteResult::Invalid(reason.into()), 1));
        assert!(wire.lines()[1].starts_with("PATCH /api/v1/namespaces/shop/configmaps/summary?"));
        let wire = Wire::answering([absent()]);
        assert_eq!(results(&deliver(&wire, [deletion()]).await), [WriteResult::Invalid(reason.into())]);
        assert!(wire.lines()[0].starts_with("DELETE /api/v1/namespaces/shop/configmaps/summary?"));
    }
    let wire = Wire::answering([Some((404, about("summary")))]);
    assert_eq!(results(&deliver(&wire, [deletion()]).await), [WriteResult::Gone]);
    let wire = Wire::answering([Some((404, about("summary"))), Some((404, about("shop")))]);
    let (result, _) = apply_with(&wire.writeback(), &[], 0).await;
    assert!(matches!(result, WriteResult::Invalid(text) if text.is_empty()), "the namespace is missing");
}

#[tokio::test]
async fn a_failure_stops_the_pods_writes_and_a_lost_answer_all() {
    let wire = Wire::answering([status(403, "", "")]);
    let sent = deliver(&wire, [label("a", "2"), condition()]).await;
    assert_eq!(results(&sent), [WriteResult::Forbidden("because".into()), WriteResult::NotSent]);
    wire.seen();
    let wire = Wire::answering([status(404, "", "")]);
    assert_eq!(results(&deliver(&wire, [label("a", "2"), condition()]).await), [WriteResult::Gone, WriteResult::Gone]);
    let wire = Wire::answering([status(503, "", ""), status(503, "", "")]);
    let object = apply(&[]);
    assert_eq!(results(&deliver(&wire, [label("a", "2"), object]).await), [WriteResult::Unknown, WriteResult::NotSent]);
}

#[tokio::test]
async fn a_pod_gone_with_its_last_finalizer_is_waited_for() {
    let Some((code, mut body)) = pod("u1", "2") else { unreachable!("an answer") };
    body["metadata"]["deletionTimestamp"] = "2025-01-01T00:00:00Z".into();
    let wire = Wire::answering([Some((code, body))]);
    let sent = deliver(&wire, [label("a", "2")]).await;
    assert_eq!((results(&sent), shown(&sent)), (vec![WriteResult::Applied], vec![Shown::Gone]));
}

#[tokio::test]
async fn a_patch_of_a_pod_that_still_goes_has_an_event() {
    for (field, value) in [("deletionGracePeriodSeconds", json!(30)), ("finalizers", json!(["x.example/f"]))] {
        let Some((code, mut body)) = pod("u1", "2") else { unreachable!("an answer") };
        body["metadata"]["deletionTimestamp"] = "2025-01-01T00:00:00Z".into();
        body["metadata"][field] = value;
        let wire = Wire::answering([Some((code, body))]);
        assert_eq!(shown(&deliver(&wire, [label("a", "2")]).await), [Shown::Revision(Revision(6))], "{field}");
    }
}

/// A server that knows the form answers with metadata only, another one with the whole Pod.
#[tokio::test]
async fn of_an_answer_only_the_metadata_is_used() {
    let Some((code, whole)) = pod("u1", "another client's") else { unreachable!("an answer") };
    let metadata = json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": whole["metadata"] });
    let odd = json!({ "status": "of no Pod", "metadata": whole["metadata"], "spec": [7] });
    for answer in [whole, metadata, odd] {
        let wire = Wire::answering([Some((code, answer))]);
        assert_eq!(shown(&deliver(&wire, [label("a", "2")]).await), [Shown::Revision(Revision(6))]);
    }
}

#[tokio::test]
async fn an_unreadable_answer_makes_the_expectation_unknown() {
    for answer in [json!("no pod"), pod("u9", "2").unwrap().1] {
        let wire = Wire::answering([Some((200, answer))]);
        let sent = deliver(&wire, [label("a", "2")]).await;
        assert_eq!((results(&sent), shown(&sent)), (vec![WriteResult::Applied], vec![Shown::Unknown]));
    }
}

async fn apply_with(writeback: &Writeback, data: &[(&str, &str)], now_millis: u64) -> (WriteResult, u32) {
    let staged = Staged { writes: authorised([apply(data)]), ..Staged::default() };
    let sent = writeback.deliver(&sender(), &key(), &cached(|_| ()), staged, now_millis).await;
    (sent.reports[0].result.clone(), sent.requests)
}

#[tokio::test]
async fn an_object_is_applied_only_when_it_changes() {
    let wire = Wire::answering([status(404, "", ""), Some((201, json!({}))), Some((200, json!({})))]);
    let writeback = wire.writeback();
    assert_eq!(apply_with(&writeback, &[("k", "1")], 0).await, (WriteResult::Applied, 1));
    assert_eq!(apply_with(&writeback, &[("k", "1")], 1).await, (WriteResult::Unchanged, 0));
    assert_eq!(apply_with(&writeback, &[("k", "2")], 2).await, (WriteResult::Applied, 1));
    let seen = wire.seen();
    let path = "/api/v1/namespaces/shop/configmaps/summary";
    assert_eq!(wire.lines()[0], format!("GET {path}"));
    assert_eq!(seen[2].uri, format!("{path}?fieldManager=podium/shop/a&timeout=7s&force=false"));
    assert_eq!(seen[2].content, "application/apply-patch+yaml");
    assert_eq!(seen[2].body["metadata"]["ownerReferences"][0]["uid"], "u1");

    let restarted = Wire::answering([Some((200, seen[2].body.clone()))]);
    assert_eq!(apply_with(&restarted.writeback(), &[("k", "2")], 3).await, (WriteResult::Unchanged, 0));
    // A field that was removed from the body is removed, although the live object contains all of the remaining body.
    let shrunk = Wire::answering([Some((200, seen[2].body.clone())), Some((200, json!({})))]);
    assert_eq!(apply_with(&shrunk.writeback(), &[], 3).await, (WriteResult::Applied, 1));
}

#[tokio::test(start_paused = true)]
async fn an_object_applied_before_a_clock_change_is_read_again() {
    const DAY: u64 = 86_400_000;
    let absent = || status(404, "", "");
    let wire = Wire::answering([absent(), Some((200, json!({}))), absent(), Some((200, json!({})))]);
    let writeback = wire.writeback();
    assert_eq!(apply_with(&writeback, &[("k", "1")], 10 * DAY).await, (WriteResult::Applied, 1));
    assert_eq!(apply_with(&writeback, &[("k", "1")], 0).await, (WriteResult::Unchanged, 0));
    tokio::time::advance(Duration::from_secs(600)).await;
    assert_eq!(
        apply_with(&writeback, &[("k", "1")], 600_000).await,
        (WriteResult::Applied, 1),
        "another client deleted it"
    );
    wire.seen();
}

#[tokio::test(start_paused = true)]
async fn after_a_lost_answer_to_an_apply_the_old_state_is_applied() {
    let found = |k: &str| {
        let body = json!({"metadata": {"namespace": "shop", "name": "summary"}, "data": {"k": k}});
        Some((200, body))
    };
    let applied = || Some((200, json!({})));
    // The first body is applied; the response to the second is lost, and the read shows the first one. From then on
    // each apply begins with a read, which does not show the annotation of its digest.
    let begins = [status(404, "", ""), applied(), None, found("1")];
    let wire = Wire::answering(begins.into_iter().chain([found("1"), applied(), found("1"), applied()]));
    let writeback = wire.writeback();
    assert_eq!(apply_with(&writeback, &[("k", "1")], 0).await.0, WriteResult::Applied);
    assert_eq!(apply_with(&writeback, &[("k", "2")], 1).await.0, WriteResult::Unknown);
    assert_eq!(apply_with(&writeback, &[("k", "1")], 2).await.0, WriteResult::Applied);
    assert_eq!(apply_with(&writeback, &[("k", "1")], 3).await.0, WriteResult::Applied, "it may have landed meanwhile");
    wire.seen();
}

#[tokio::test]
async fn an_object_owned_by_a_deleted_pod_is_gone_without_a_request() {
    let wire = Wire::default();
    let staged = Staged { writes: authorised([apply(&[])]), ..Staged::default() };
    let sent = wire.writeback().deliver(&sender(), &key(), &View(Vec::new()), staged, 0).await;
    assert_eq!((results(&sent), sent.requests), (vec![WriteResult::Gone], 0));
    wire.seen();
}

#[tokio::test]
async fn a_conflict_and_a_kind_that_is_not_served_are_distinguished() {
    let wire = Wire::answering([status(404, "", ""), status(409, ".data.k", "FieldManagerConflict")]);
    let (result, requests) = apply_with(&wire.writeback(), &[("k", "1")], 0).await;
    assert!(matches!(result, WriteResult::OwnedByOther(text) if text.starts_with("because; ")));
    assert_eq!(requests, 1);
    let wire = Wire::answering([status(404, "", ""), Some((404, json!("404 page not found")))]);
    let (result, _) = apply_with(&wire.writeback(), &[], 0).await;
    assert!(matches!(result, WriteResult::Invalid(text) if text.contains("not served")));
}

fn staged_event(actions: Vec<Action>) -> Staged {
    Staged { writes: authorised(actions), events: vec![event(key(), "CrashLoop")], ..Staged::default() }
}

fn event(target: PodKey, reason: &str) -> Authorized<Event> {
    let grants = Grants { write: WriteGrants { events: true, ..WriteGrants::default() }, ..Grants::default() };
    let reason = reason.into();
    let action = "Diagnose".into();
    let note = "it crashes".into();
    let event = Event { target, event_type: EventType::Warning, reason, action, note };
    podium_vocabulary::authz::authorize(&Scope::Cluster, &grants, event).unwrap()
}

async fn say(wire: &Wire, actions: Vec<Action>) -> u32 {
    wire.writeback().deliver(&sender(), &key(), &cached(|_| ()), staged_event(actions), 7_500).await.requests
}

#[tokio::test]
async fn an_event_is_sent_with_its_change_and_once() {
    let wire = Wire::answering([pod("u1", "2"), Some((201, json!({})))]);
    assert_eq!(say(&wire, vec![label("a", "2")]).await, 2);
    let event = &wire.seen()[1];
    assert_eq!(event.body["regarding"]["uid"], "u1");
    assert_eq!(
        (&event.body["action"], &event.body["reportingController"]),
        (&json!("Diagnose"), &json!("podium.dev/host"))
    );
    // All writes are unchanged: the Event is a repeat.
    assert_eq!(say(&Wire::default(), vec![label("a", "1")]).await, 0);
    // The write failed: the run is repeated and emits the Event again.
    assert_eq!(say(&Wire::answering([status(403, "", "")]), vec![label("a", "2")]).await, 1);
}

#[tokio::test]
async fn an_event_costs_one_request_also_if_it_was_sent_before_the_start() {
    for answer in [Some((201, json!({}))), status(409, "AlreadyExists", "")] {
        let wire = Wire::answering([answer]);
        let sent = wire.writeback().deliver(&sender(), &key(), &cached(|_| ()), staged_event(Vec::new()), 0).await;
        assert_eq!((sent.requests, &*sent.events), (1, &[EventResult::Sent][..]));
        let lines = wire.lines();
        assert!(lines.len() == 1 && lines[0].starts_with("POST /apis/events.k8s.io/v1/namespaces/shop/events?"));
    }
}

#[tokio::test]
async fn an_event_that_fails_fails_no_write() {
    let wire = Wire::answering([pod("u1", "2"), status(403, "", "")]);
    let sent =
        wire.writeback().deliver(&sender(), &key(), &cached(|_| ()), staged_event(vec![label("a", "2")]), 0).await;
    assert_eq!(results(&sent), [WriteResult::Applied]);
}

#[tokio::test]
async fn an_event_about_an_unknown_pod_is_dropped() {
    for (target, subject, said) in [
        (PodKey::new("shop", "cart-0", "u9"), key(), false),
        (PodKey::new("shop", "cart-9", "u1"), key(), false),
        (PodKey::new("shop", "cart-9", "u9"), PodKey::new("shop", "cart-9", "u9"), true),
        (key(), PodKey::new("shop", "cart-9", "u9"), true),
    ] {
        let answers = if said { vec![Some((201, json!({})))] } else { Vec::new() };
        let wire = Wire::answering(answers);
        let staged = Staged { events: vec![event(target, "CrashLoop")], ..Staged::default() };
        let sent = wire.writeback().deliver(&sender(), &subject, &cached(|_| ()), staged, 0).await;
        assert_eq!(sent.requests, u32::from(said));
        wire.seen();
    }
}

#[tokio::test(start_paused = true)]
async fn events_stop_at_the_first_unanswered_one() {
    let events = || ["A", "B", "C"].map(|reason| event(key(), reason)).into();
    for away in [None, status(429, "", ""), status(503, "", "")] {
        let wire = Wire::answering([away]);
        let staged = Staged { events: events(), ..Staged::default() };
        let sent = wire.writeback().deliver(&sender(), &key(), &cached(|_| ()), staged, 0).await;
        assert_eq!(sent.requests, 1);
        assert_eq!(sent.events, [EventResult::Delayed; 3]);
        wire.seen();
    }
    // A refused Event says nothing about the others.
    let wire = Wire::answering([(); 3].map(|()| status(422, "", "")));
    let staged = Staged { events: events(), ..Staged::default() };
    assert_eq!(wire.writeback().deliver(&sender(), &key(), &cached(|_| ()), staged, 0).await.requests, 3);
    // After an overloaded response no Event is tried, although another write was applied.
    let wire = Wire::answering([pod("u1", "2"), status(404, "", ""), status(429, "", "")]);
    let staged = staged_event(vec![label("a", "2"), apply(&[])]);
    let answer = wire.writeback().deliver(&sender(), &key(), &cached(|_| ()), staged, 0).await;
    assert_eq!(results(&answer), [WriteResult::Applied, WriteResult::NotSent]);
    assert_eq!(answer.events, [EventResult::Delayed], "the change was made, and the next run will not say it");
    wire.seen();
}

#[tokio::test]
async fn without_the_pod_nothing_is_sent() {
    let wire = Wire::default();
    let staged = Staged { writes: authorised([label("a", "2")]), ..Staged::default() };
    let sent = wire.writeback().deliver(&sender(), &key(), &View(Vec::new()), staged, 0).await;
    assert_eq!((results(&sent), sent.requests), (vec![WriteResult::Gone], 0));
}

#[test]
fn a_managers_name_is_readable_bounded_and_unique() {
    let name =
        |namespace: &str, name: &str| manager_name(&PluginId { namespace: Some(namespace.into()), name: name.into() });
    assert_eq!(name("shop", "a"), "podium/shop/a");
    let long = "a".repeat(200);
    assert_eq!(name("shop", &long).len(), 128);
    assert_ne!(name("shop", &long), name("shop", &format!("{long}b")));
}
