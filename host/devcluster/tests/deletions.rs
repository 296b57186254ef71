//! Deletions are answered, wait and appear in watches as in the API server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod common;

use common::{Client, PODS, STRATEGIC, pod, revision, still, uid};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

#[tokio::test(start_paused = true)]
async fn a_terminating_pod_is_removed_when_its_grace_becomes_zero() {
    let cluster = still();
    let client = Client::new(&cluster);
    let mut bound = pod("a");
    bound["spec"]["nodeName"] = json!("node-0");
    client.post(PODS, bound).await;
    let path = format!("{PODS}/a");
    let (_, marked) = client.delete(&path, json!({"gracePeriodSeconds": 20})).await;
    let (_, longer) = client.delete(&path, json!({"gracePeriodSeconds": 60})).await;
    assert_eq!(longer, marked, "a grace period does not become longer");
    let (_, sooner) = client.delete(&path, json!({"gracePeriodSeconds": 5})).await;
    assert_eq!(sooner["metadata"]["deletionGracePeriodSeconds"], 5);
    let mut watch = client.watch(&format!("{PODS}?watch=1&resourceVersion={}", revision(&sooner))).await;
    client.delete(&path, json!({"gracePeriodSeconds": 0})).await;
    for expected in ["MODIFIED", "DELETED"] {
        let (event, object) = watch.event().await;
        assert_eq!((event.as_str(), &object["metadata"]["deletionGracePeriodSeconds"]), (expected, &json!(0)));
        assert_eq!(object["metadata"]["generation"], 2, "a deletion counts once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_precondition_is_an_error_that_names_the_kind() {
    let cluster = still();
    let client = Client::new(&cluster);
    let made = cluster.create(pod("a")).unwrap();
    let (code, status) = client.delete(&format!("{PODS}/a"), json!({"preconditions": {"uid": "other"}})).await;
    assert_eq!((code, &status["reason"], &status["details"]["kind"]), (409, &json!("Conflict"), &json!("Pod")));
    let why = format!("the UID in the precondition (other) does not match the UID in record ({})", uid(&made));
    let message = format!(
        "Operation cannot be fulfilled on Pod \"a\": {why}. The object might have been deleted and then recreated"
    );
    assert_eq!(status["message"], message);
    let old = json!({"preconditions": {"resourceVersion": "1"}});
    let (code, status) =
        client.delete("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-0", old).await;
    assert_eq!((code, &status["details"]["group"]), (409, &json!("coordination.k8s.io")));
    let message = status["message"].as_str().unwrap();
    assert!(
        message.starts_with("Operation cannot be fulfilled on Lease.coordination.k8s.io \"node-0\": the ResourceV")
    );
    assert!(message.ends_with("The object might have been modified"));
}

#[tokio::test(start_paused = true)]
async fn options_in_a_body_replace_those_of_the_query() {
    let cluster = still();
    let client = Client::new(&cluster);
    for name in ["a", "b"] {
        cluster.create(map(name)).unwrap();
    }
    client.delete(&format!("{MAPS}/a?dryRun=All"), Value::Null).await;
    assert_eq!(client.get(&format!("{MAPS}/a")).await.0, 200);
    client.delete(&format!("{MAPS}/b?dryRun=All"), json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(client.get(&format!("{MAPS}/b")).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_is_answered_like_the_deletion_and_changes_nothing() {
    let cluster = still();
    let client = Client::new(&cluster);
    cluster.create(map("a")).unwrap();
    cluster.create(pod("a")).unwrap();
    let before = client.get(PODS).await.1;
    let (code, status) = client.delete(&format!("{MAPS}/a"), json!({"dryRun": ["All"]})).await;
    assert_eq!((code, &status["kind"], &status["status"]), (200, &json!("Status"), &json!("Success")));
    let (code, shown) = client.delete(&format!("{PODS}/a"), json!({"dryRun": ["All"]})).await;
    assert_eq!((code, &shown["metadata"]["deletionGracePeriodSeconds"]), (200, &json!(0)));
    assert_eq!(client.get(PODS).await.1, before);
}

#[tokio::test(start_paused = true)]
async fn invalid_options_delete_nothing() {
    let cluster = still();
    let client = Client::new(&cluster);
    cluster.create(map("a")).unwrap();
    let path = format!("{MAPS}/a");
    for (options, code, field) in [
        (json!({"dryRun": ["Some"]}), 422, "dryRun"),
        (json!({"propagationPolicy": "Bogus"}), 422, "propagationPolicy"),
        (json!({"propagationPolicy": "Orphan", "orphanDependents": true}), 422, "propagationPolicy"),
        (json!({"gracePeriodSeconds": "x"}), 400, ""),
    ] {
        let (answered, status) = client.delete(&path, options).await;
        assert_eq!((answered, common::cause(&status)), (code, field));
    }
    let (code, status) = client.delete(&format!("{path}?propagationPolicy=Bogus"), Value::Null).await;
    let message = "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Bogus\": \
        supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"";
    assert_eq!((code, &status["message"]), (422, &json!(message)));
    let patch = json!({"metadata": {"labels": {"k": "v"}}});
    let (code, status) = client.patch(&format!("{path}?dryRun=Some"), STRATEGIC, patch).await;
    assert_eq!((code, common::cause(&status)), (422, "dryRun"));
    assert_eq!(client.get(&path).await.1["metadata"].get("labels"), None);
}

#[tokio::test(start_paused = true)]
async fn orphaning_is_a_finalizer_and_removes_owners_from_dependents() {
    let cluster = still();
    let client = Client::new(&cluster);
    let owner = cluster.create(map("owner")).unwrap();
    let mut kept = map("kept");
    kept["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid(&owner)}]);
    cluster.create(kept).unwrap();
    let (code, waiting) = client.delete(&format!("{MAPS}/owner"), json!({"propagationPolicy": "Orphan"})).await;
    assert_eq!(
        (code, &waiting["kind"], &waiting["metadata"]["finalizers"]),
        (200, &json!("ConfigMap"), &json!(["orphan"]))
    );
    assert!(waiting["metadata"]["deletionTimestamp"].is_string());
    client.until(&format!("{MAPS}/owner"), |code, _| code == 404).await;
    let (code, kept) = client.get(&format!("{MAPS}/kept")).await;
    assert_eq!(code, 200);
    assert_eq!(kept["metadata"].get("ownerReferences"), None);
    assert_eq!(kept["metadata"].get("managedFields"), None, "no field with an owner is left");
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn namespaces_are_only_deleted_one_by_one() {
    let cluster = still();
    let client = Client::new(&cluster);
    assert_eq!(client.delete("/api/v1/namespaces", Value::Null).await.0, 405);
    let (_, resources) = client.get("/api/v1").await;
    let verbs = |name: &str| {
        let found = resources["resources"].as_array().unwrap().iter().find(|r| r["name"] == name).unwrap();
        found["verbs"].as_array().unwrap().contains(&json!("deletecollection"))
    };
    assert_eq!((verbs("namespaces"), verbs("pods")), (false, true));
}

#[tokio::test(start_paused = true)]
async fn an_eviction_makes_two_changes_and_a_dry_run_none() {
    let cluster = still();
    let client = Client::new(&cluster);
    let mut bound = pod("a");
    bound["spec"]["nodeName"] = json!("node-0");
    let (_, made) = client.post(PODS, bound).await;
    let mut watch = client.watch(&format!("{PODS}?watch=1&resourceVersion={}", revision(&made))).await;
    let eviction = |options: Value| {
        let metadata = json!({"name": "a"});
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options})
    };
    let path = format!("{PODS}/a/eviction");
    assert_eq!(client.post(&path, eviction(json!({"dryRun": ["All"]}))).await.0, 201);
    let held = json!({"preconditions": {"resourceVersion": made["metadata"]["resourceVersion"]}});
    assert_eq!(client.post(&path, eviction(held)).await.0, 201);
    let (_, evicted) = watch.event().await;
    assert_eq!(evicted["status"]["conditions"][0]["type"], "DisruptionTarget");
    assert_eq!(evicted["metadata"].get("deletionTimestamp"), None);
    let (_, marked) = watch.event().await;
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    let patch = json!({"metadata": {"uid": uid(&made), "labels": {"k": "v"}}});
    assert_eq!(client.patch(&format!("{PODS}/a"), STRATEGIC, patch).await.0, 200);
}
