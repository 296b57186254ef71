//! Writes to Pods are answered as a real API server was observed to answer: codes, reasons, causes and revisions.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod common;

use common::{APPLY, Client, JSON, MERGE, PODS, STRATEGIC, cause, pod, revision, still, uid};
use serde_json::{Value, json};

const A: &str = "/api/v1/namespaces/default/pods/a";
const STATUS: &str = "/api/v1/namespaces/default/pods/a/status";

/// Returns a cluster without a simulation with the running Pod `a`.
async fn with_pod() -> (podium_devcluster::Cluster, Client, Value) {
    let cluster = still();
    let client = Client::new(&cluster);
    let (code, _) = client.post(PODS, pod("a")).await;
    assert_eq!(code, 201);
    let binding = json!({"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "node-0"}});
    assert_eq!(client.post(&format!("{A}/binding"), binding).await.0, 201);
    let running = json!({"status": {"phase": "Running"}});
    let (code, pod) = client.patch(STATUS, STRATEGIC, running).await;
    assert_eq!(code, 200);
    (cluster, client, pod)
}

#[tokio::test(start_paused = true)]
async fn setting_an_equal_label_keeps_the_revision() {
    let (_cluster, client, pod) = with_pod().await;
    let label = |value: Value| json!({"metadata": {"uid": uid(&pod), "labels": {"k": value}}});
    let (code, set) = client.patch(A, STRATEGIC, label(json!("v"))).await;
    assert_eq!((code, &set["metadata"]["labels"]["k"]), (200, &json!("v")));
    assert!(revision(&set) > revision(&pod));
    let (_, again) = client.patch(A, STRATEGIC, label(json!("v"))).await;
    assert_eq!(again, set);
    let (_, removed) = client.patch(A, STRATEGIC, label(Value::Null)).await;
    assert!(removed["metadata"]["labels"].get("k").is_none());
    let (_, again) = client.patch(A, STRATEGIC, label(Value::Null)).await;
    assert_eq!(revision(&again), revision(&removed));
}

#[tokio::test(start_paused = true)]
async fn finalizers_are_added_and_removed_without_duplicates() {
    let (_cluster, client, pod) = with_pod().await;
    let first = json!({"metadata": {"uid": uid(&pod), "finalizers": ["x/a"]}});
    assert_eq!(client.patch(A, STRATEGIC, first).await.0, 200);
    let both = json!({"metadata": {"finalizers": ["x/b"], "$deleteFromPrimitiveList/finalizers": ["x/a"]}});
    let (_, once) = client.patch(A, STRATEGIC, both.clone()).await;
    assert_eq!(once["metadata"]["finalizers"], json!(["x/b"]));
    let (_, twice) = client.patch(A, STRATEGIC, both).await;
    assert_eq!(revision(&twice), revision(&once));
}

#[tokio::test(start_paused = true)]
async fn a_condition_goes_through_status_and_is_ignored_elsewhere() {
    let (_cluster, client, pod) = with_pod().await;
    let condition = |entry: Value| json!({"metadata": {"uid": uid(&pod)}, "status": {"conditions": [entry]}});
    let (code, ignored) = client.patch(A, STRATEGIC, condition(json!({"type": "x/Mine", "status": "True"}))).await;
    assert_eq!((code, revision(&ignored)), (200, revision(&pod)));
    // An entry without status is accepted, and the server sets no time.
    let (code, set) = client.patch(STATUS, STRATEGIC, condition(json!({"type": "x/Mine"}))).await;
    assert_eq!(code, 200);
    let conditions = set["status"]["conditions"].as_array().unwrap();
    assert!(conditions.contains(&json!({"type": "x/Mine"})));
    assert!(conditions.iter().any(|c| c["type"] == "PodScheduled"), "others' conditions stay");
    let (_, removed) = client.patch(STATUS, STRATEGIC, condition(json!({"type": "x/Mine", "$patch": "delete"}))).await;
    assert!(!removed["status"]["conditions"].as_array().unwrap().iter().any(|c| c["type"] == "x/Mine"));
}

#[tokio::test(start_paused = true)]
async fn status_also_changes_metadata_but_not_the_spec() {
    let (_cluster, client, _) = with_pod().await;
    let patch = json!({
        "metadata": {"labels": {"by": "status"}, "annotations": {"by": "status"}, "finalizers": ["x/a"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]},
        "spec": {"nodeName": "elsewhere"},
    });
    let (code, pod) = client.patch(STATUS, STRATEGIC, patch).await;
    assert_eq!(code, 200);
    assert_eq!(pod["metadata"]["labels"]["by"], "status");
    assert_eq!(pod["metadata"]["annotations"]["by"], "status");
    assert_eq!(pod["metadata"]["finalizers"], json!(["x/a"]));
    assert!(pod["metadata"].get("ownerReferences").is_none());
    assert_eq!(pod["spec"]["nodeName"], "node-0");
}

#[tokio::test(start_paused = true)]
async fn a_wrong_uid_or_a_stale_revision_is_refused() {
    let (_cluster, client, pod) = with_pod().await;
    let label = json!({"k": "v"});
    for media in [STRATEGIC, MERGE] {
        let (code, status) = client.patch(A, media, json!({"metadata": {"uid": "other", "labels": label}})).await;
        assert_eq!((code, &status["reason"], cause(&status)), (422, &json!("Invalid"), "metadata.uid"));
        let stale = json!({"metadata": {"resourceVersion": "1", "labels": label}});
        let (code, status) = client.patch(A, media, stale).await;
        assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
        let both = json!({"metadata": {"uid": "other", "resourceVersion": "1", "labels": label}});
        assert_eq!(client.patch(A, media, both).await.0, 409);
    }
    let applied = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"uid": "other", "labels": label}});
    let (code, status) = client.patch(&format!("{A}?fieldManager=m"), APPLY, applied).await;
    assert_eq!((code, cause(&status)), (422, "metadata.uid"));
    let wrong = json!({"preconditions": {"uid": "other"}});
    let (code, status) = client.delete(A, wrong.clone()).await;
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"},
        "deleteOptions": wrong});
    assert_eq!(client.post(&format!("{A}/eviction"), eviction).await.0, 409);
    assert_eq!(client.get(A).await.1, pod, "nothing of this changed the Pod");
}

#[tokio::test(start_paused = true)]
async fn patches_and_applies_with_a_uid_create_nothing() {
    let cluster = still();
    let client = Client::new(&cluster);
    let (code, status) = client.patch(A, STRATEGIC, json!({"metadata": {"labels": {"k": "v"}}})).await;
    assert_eq!((code, &status["reason"]), (404, &json!("NotFound")));
    assert_eq!(status["message"], "pods \"a\" not found");
    let mut applied = pod("a");
    applied["metadata"]["uid"] = json!("gone");
    let (code, status) = client.patch(&format!("{A}?fieldManager=m"), APPLY, applied).await;
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
}

#[tokio::test(start_paused = true)]
async fn a_field_manager_of_more_than_128_bytes_is_invalid() {
    let (_cluster, client, _) = with_pod().await;
    let patch = json!({"metadata": {"labels": {"k": "v"}}});
    let path = |length: usize| format!("{A}?fieldManager={}", "m".repeat(length));
    assert_eq!(client.patch(&path(128), STRATEGIC, patch.clone()).await.0, 200);
    let (code, status) = client.patch(&path(129), STRATEGIC, patch).await;
    assert_eq!((code, cause(&status)), (422, "fieldManager"));
}

#[tokio::test(start_paused = true)]
async fn apply_drops_what_the_same_manager_applied_before() {
    let (_cluster, client, _) = with_pod().await;
    let apply = |labels: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": labels}});
    let path = format!("{A}?fieldManager=m");
    client.patch(&path, APPLY, apply(json!({"a": "1"}))).await;
    let (code, pod) = client.patch(&path, APPLY, apply(json!({"b": "1"}))).await;
    assert_eq!(code, 200);
    assert_eq!(pod["metadata"]["labels"], json!({"app": "web", "b": "1"}));
    let (_, again) = client.patch(&path, APPLY, apply(json!({"b": "1"}))).await;
    assert_eq!(revision(&again), revision(&pod), "the same apply again changes nothing");
}

#[tokio::test(start_paused = true)]
async fn apply_and_update_under_one_name_conflict_until_forced() {
    let (_cluster, client, _) = with_pod().await;
    let update = json!({"metadata": {"labels": {"k": "updated"}}});
    client.patch(&format!("{A}?fieldManager=m"), STRATEGIC, update).await;
    let applied = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"k": "applied"}}});
    let (code, status) = client.patch(&format!("{A}?fieldManager=m"), APPLY, applied.clone()).await;
    assert_eq!((code, cause(&status)), (409, ".metadata.labels.k"));
    assert_eq!(status["details"]["causes"][0]["reason"], "FieldManagerConflict");
    let (code, pod) = client.patch(&format!("{A}?fieldManager=m&force=true"), APPLY, applied).await;
    assert_eq!((code, &pod["metadata"]["labels"]["k"]), (200, &json!("applied")));
}

#[tokio::test(start_paused = true)]
async fn a_failed_json_test_is_answered_with_only_422() {
    let (_cluster, client, _) = with_pod().await;
    let patch = json!([{"op": "test", "path": "/metadata/uid", "value": "other"}]);
    let (code, status) = client.patch(A, JSON, patch).await;
    assert_eq!((code, status["details"].get("causes")), (422, None));
}

#[tokio::test(start_paused = true)]
async fn a_grace_0_deletion_is_a_change_and_then_a_deletion() {
    let (_cluster, client, pod) = with_pod().await;
    let mut watch = client.watch(&format!("{PODS}?watch=1&resourceVersion={}", revision(&pod))).await;
    let (code, deleted) = client.delete(A, json!({"gracePeriodSeconds": 0})).await;
    assert_eq!((code, &deleted["kind"]), (200, &json!("Pod")));
    assert!(revision(&deleted) > revision(&pod));
    let (event, changed) = watch.event().await;
    assert_eq!(event, "MODIFIED");
    assert!(revision(&changed) < revision(&deleted));
    let (event, object) = watch.event().await;
    assert_eq!((event.as_str(), &object), ("DELETED", &deleted));
    for shown in [&changed, &deleted] {
        let metadata = &shown["metadata"];
        assert!(metadata["deletionTimestamp"].is_string());
        assert_eq!((&metadata["deletionGracePeriodSeconds"], &metadata["generation"]), (&json!(0), &json!(2)));
    }
    assert_eq!(client.get(A).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn removing_the_last_finalizer_returns_an_unchanged_revision() {
    let (_cluster, client, _) = with_pod().await;
    client.patch(A, STRATEGIC, json!({"metadata": {"finalizers": ["x/a"]}})).await;
    let (code, waiting) = client.delete(A, json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(code, 200);
    assert!(waiting["metadata"]["deletionTimestamp"].is_string());
    let (code, status) = client.patch(A, STRATEGIC, json!({"metadata": {"finalizers": ["x/b"]}})).await;
    assert_eq!((code, cause(&status)), (422, "metadata.finalizers"));
    let mut watch = client.watch(&format!("{PODS}?watch=1&resourceVersion={}", revision(&waiting))).await;
    let remove = json!({"metadata": {"uid": uid(&waiting), "$deleteFromPrimitiveList/finalizers": ["x/a"]}});
    let (code, last) = client.patch(A, STRATEGIC, remove).await;
    assert_eq!((code, revision(&last)), (200, revision(&waiting)));
    assert_eq!(client.get(A).await.0, 404);
    let (event, object) = watch.event().await;
    assert_eq!(event, "DELETED");
    assert!(revision(&object) > revision(&last));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_with_grace_marks_only_a_bound_pod() {
    let (_cluster, client, pod) = with_pod().await;
    let (code, marked) = client.delete(A, Value::Null).await;
    assert_eq!((code, &marked["metadata"]["deletionGracePeriodSeconds"]), (200, &json!(30)));
    assert!(revision(&marked) > revision(&pod));
    let (_, again) = client.delete(A, Value::Null).await;
    assert_eq!(revision(&again), revision(&marked));
    let (_, unbound) = client.post(PODS, common::pod("b")).await;
    assert!(unbound["spec"].get("nodeName").is_none());
    assert_eq!(client.delete(&format!("{PODS}/b"), Value::Null).await.0, 200);
    assert_eq!(client.get(&format!("{PODS}/b")).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_is_201_and_a_disruption_budget_answers_429() {
    let (_cluster, client, pod) = with_pod().await;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    client.patch(STATUS, STRATEGIC, ready).await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    assert_eq!(client.post(budgets, budget).await.0, 201);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"},
        "deleteOptions": {"preconditions": {"uid": uid(&pod)}}});
    let (code, status) = client.post(&format!("{A}/eviction"), eviction.clone()).await;
    assert_eq!((code, &status["details"]["causes"][0]["reason"]), (429, &json!("DisruptionBudget")));
    client.delete(&format!("{budgets}/b"), Value::Null).await;
    let (code, status) = client.post(&format!("{A}/eviction"), eviction).await;
    assert_eq!((code, &status["status"]), (201, &json!("Success")));
    let (_, evicted) = client.get(A).await;
    assert!(evicted["metadata"]["deletionTimestamp"].is_string());
    let conditions = evicted["status"]["conditions"].as_array().unwrap();
    let eviction = conditions.iter().find(|c| c["type"] == "DisruptionTarget").unwrap();
    assert_eq!((&eviction["status"], &eviction["reason"]), (&json!("True"), &json!("EvictionByEvictionAPI")));
    assert_eq!(eviction["message"], "Eviction API: evicting");
}

#[tokio::test(start_paused = true)]
async fn missing_and_immutable_fields_are_refused_by_name() {
    let (_cluster, client, pod) = with_pod().await;
    let (code, status) = client.post(PODS, json!({"metadata": {"name": "x"}, "spec": {}})).await;
    assert_eq!((code, cause(&status)), (422, "spec.containers"));
    let (code, status) = client.patch(A, STRATEGIC, json!({"spec": {"hostNetwork": true}})).await;
    assert_eq!((code, cause(&status)), (422, "spec"));
    let (code, status) = client.patch(A, MERGE, json!({"metadata": {"labels": {"k": "not ok"}}})).await;
    assert_eq!((code, cause(&status)), (422, "metadata.labels"));
    let (code, status) = client.patch(A, MERGE, json!({"metadata": {"labels": {"k": 3}}})).await;
    assert_eq!((code, cause(&status)), (422, "patch"));
    let (code, status) = client.patch(A, STRATEGIC, json!({"metadata": {"labels": {"k": 3}}})).await;
    assert_eq!(code, 422);
    let message = " \"\" is invalid: patch: Invalid value: \"map[metadata:map[labels:map[k:3]]]\": cannot convert \
        int64 to string";
    assert_eq!(status["message"], message);
    let mut unreadable = common::pod("y");
    unreadable["metadata"]["labels"] = json!({"k": 3});
    assert_eq!(client.post(PODS, unreadable).await.0, 400);
    let (code, status) = client.post(PODS, common::pod("a")).await;
    assert_eq!((code, &status["reason"]), (409, &json!("AlreadyExists")));
    let (code, status) = client.post("/api/v1/namespaces/nowhere/pods", common::pod("a")).await;
    assert_eq!((code, &status["message"]), (404, &json!("namespaces \"nowhere\" not found")));
    let mut whole = pod.clone();
    whole["metadata"]["resourceVersion"] = json!("1");
    assert_eq!(client.put(A, whole).await.0, 409);
}
