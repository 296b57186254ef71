//! Impersonation, Roles and the log of requests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod common;

use common::{APPLY, Client, PODS, STRATEGIC, pod, still};
use podium_devcluster::Cluster;
use serde_json::{Value, json};

const USER: &str = "system:serviceaccount:default:plugin";

fn grant(cluster: &Cluster, verbs: &[&str], resources: &[&str]) {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"},
        "rules": [{"apiGroups": [""], "resources": resources, "verbs": verbs}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "r"}, "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "plugin"}]});
    cluster.create(role).unwrap();
    cluster.create(binding).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_service_account_without_patch_is_forbidden() {
    let cluster = still();
    cluster.create(pod("a")).unwrap();
    grant(&cluster, &["get", "list"], &["pods"]);
    let admin = Client::new(&cluster);
    let plugin = admin.with("impersonate-user", USER);
    let path = format!("{PODS}/a");
    let patch = json!({"metadata": {"labels": {"k": "v"}}});
    assert_eq!(plugin.get(&path).await.0, 200);
    let (code, status) = plugin.patch(&path, STRATEGIC, patch.clone()).await;
    assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")));
    assert_eq!(
        status["message"],
        format!(
            "pods \"a\" is forbidden: User \"{USER}\" cannot patch resource \"pods\" in API group \"\" in the \
             namespace \"default\""
        )
    );
    assert_eq!(admin.patch(&path, STRATEGIC, patch).await.0, 200);
    assert_eq!(plugin.get("/api/v1/namespaces/kube-system/pods").await.0, 403);
    assert_eq!(plugin.get("/api/v1/pods").await.0, 403);
}

#[tokio::test(start_paused = true)]
async fn subresources_have_rights_of_their_own_and_apply_needs_create() {
    let cluster = still();
    cluster.create(pod("a")).unwrap();
    grant(&cluster, &["patch"], &["pods", "configmaps"]);
    let plugin = Client::new(&cluster).with("impersonate-user", USER);
    let status = json!({"status": {"conditions": [{"type": "x"}]}});
    assert_eq!(plugin.patch(&format!("{PODS}/a/status"), STRATEGIC, status).await.0, 403);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let path = "/api/v1/namespaces/default/configmaps/c?fieldManager=m";
    assert_eq!(plugin.patch(path, APPLY, map.clone()).await.0, 403);
    assert_eq!(Client::new(&cluster).patch(path, APPLY, map.clone()).await.0, 201);
    assert_eq!(plugin.patch(path, APPLY, map).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn the_log_distinguishes_writes_from_reads_and_who_made_them() {
    let cluster = still();
    let client = Client::new(&cluster);
    client.get(PODS).await;
    assert!(cluster.requests().writes().is_empty());
    client.with("impersonate-user", USER).post(PODS, pod("a")).await;
    let writes = cluster.requests().writes();
    let [write] = writes.as_slice() else { panic!("one write, not {writes:?}") };
    assert_eq!((write.code, write.resource.as_str(), write.user_agent.as_str()), (403, "pods", "suite/1"));
    assert_eq!(write.impersonated.as_deref(), Some(USER));
    assert_eq!(cluster.requests().count(|logged| logged.code == 200), 1);
    cluster.requests().clear();
    assert!(cluster.requests().all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_event_is_one_object_in_two_groups() {
    let cluster = still();
    let client = Client::new(&cluster);
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    let mut event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "podium", "reportingInstance": "i",
        "reason": "R", "note": "said", "type": "Normal",
        "regarding": {"kind": "Pod", "name": "a", "namespace": "default"},
    });
    let (code, status) = client.post(path, event.clone()).await;
    assert_eq!((code, common::cause(&status)), (422, "action"));
    event["action"] = json!("Act");
    assert_eq!(client.post(path, event).await.0, 201);
    let (_, old) = client.get("/api/v1/namespaces/default/events/e").await;
    assert_eq!((&old["apiVersion"], &old["message"]), (&json!("v1"), &json!("said")));
    assert_eq!(old["involvedObject"]["name"], "a");
    let (_, new) = client.get(&format!("{path}/e")).await;
    assert_eq!((&new["note"], &new["regarding"]["name"]), (&json!("said"), &json!("a")));
    let (_, found) = client.get("/api/v1/events?fieldSelector=involvedObject.name%3Da").await;
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_custom_resource_is_served_while_its_definition_is_there() {
    let cluster = still();
    let client = Client::new(&cluster);
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.podium.dev"},
        "spec": {"group": "podium.dev", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    });
    let (code, made) = client.post(definitions, definition).await;
    assert_eq!(code, 201);
    assert!(made["status"]["conditions"].as_array().unwrap().iter().any(|c| c["type"] == "Established"));
    let things = "/apis/podium.dev/v1/namespaces/default/things";
    let thing = json!({"apiVersion": "podium.dev/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"n": 1},
        "status": {"ignored": true}});
    let (code, made) = client.post(things, thing).await;
    assert_eq!((code, made.get("status"), &made["metadata"]["generation"]), (201, None, &json!(1)));
    let path = format!("{things}/t");
    let (_, status) = client.patch(&format!("{path}/status"), common::MERGE, json!({"status": {"ok": true}})).await;
    assert_eq!((&status["status"]["ok"], &status["metadata"]["generation"]), (&json!(true), &json!(1)));
    let (_, changed) = client.patch(&path, common::MERGE, json!({"spec": {"n": 2}})).await;
    assert_eq!(changed["metadata"]["generation"], 2);
    assert_eq!(client.patch(&path, STRATEGIC, json!({"spec": {"n": 3}})).await.0, 415);
    assert_eq!(client.delete(&format!("{definitions}/things.podium.dev"), Value::Null).await.0, 200);
    assert_eq!(client.get(things).await.0, 404);
}
