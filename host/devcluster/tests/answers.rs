//! Errors have the codes, reasons, fields and messages of the API server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod common;

use common::{Client, MERGE, PODS, STRATEGIC, cause, pod, still};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn fields(status: &Value) -> Vec<&str> {
    let causes = status["details"]["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    causes.iter().map(|cause| cause["field"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_is_no_number_is_an_error_without_a_reason() {
    let cluster = still();
    let client = Client::new(&cluster);
    cluster.create(pod("a")).unwrap();
    let patch = json!({"metadata": {"resourceVersion": "none"}});
    for (code, status) in [
        client.get(&format!("{PODS}?watch=1&resourceVersion=none")).await,
        client.patch(&format!("{PODS}/a"), STRATEGIC, patch).await,
        client.post(MAPS, json!({"metadata": {"name": "b", "resourceVersion": "5"}})).await,
    ] {
        assert_eq!((code, status.get("reason"), &status["status"]), (500, None, &json!("Failure")));
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_path_is_404_and_in_a_known_group_a_status() {
    let cluster = still();
    let client = Client::new(&cluster);
    let request = Request::get("/apis/none.example/v1").body(Full::<bytes::Bytes>::default()).unwrap();
    let response = client.api.clone().oneshot(request).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["content-type"]),
        (404, &"text/plain".parse().unwrap())
    );
    let text = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(text, "404 page not found\n");
    for path in ["/api/v1/nothings", "/api/v2", "/apis/policy/v9/things"] {
        let (code, status) = client.get(path).await;
        assert_eq!((code, &status["reason"]), (404, &json!("NotFound")), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_update_of_another_uid_is_refused_as_by_the_storage() {
    let cluster = still();
    let client = Client::new(&cluster);
    let mut map = cluster.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})).unwrap();
    map["metadata"]["uid"] = json!("other");
    map["metadata"]["resourceVersion"] = Value::Null;
    let (code, status) = client.put(&format!("{MAPS}/a"), map).await;
    let message = status["message"].as_str().unwrap();
    assert_eq!(code, 409);
    assert!(
        message.contains("StorageError: invalid object, Code: 4, Key: /registry/configmaps/default/a, "),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_error_about_a_lease_without_a_revision_names_the_resource() {
    let cluster = still();
    let client = Client::new(&cluster);
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-0";
    let (_, mut lease) = client.get(path).await;
    lease["metadata"]["resourceVersion"] = Value::Null;
    let (code, status) = client.put(path, lease).await;
    assert_eq!((code, cause(&status)), (422, "metadata.resourceVersion"));
    assert_eq!(status["details"]["kind"], "leases");
}

#[tokio::test(start_paused = true)]
async fn names_are_refused_part_by_part() {
    let cluster = still();
    let client = Client::new(&cluster);
    cluster.create(pod("a")).unwrap();
    let path = format!("{PODS}/a");
    for (key, begins) in [
        ("a/b/c", "a valid label key must consist of"),
        ("/b", "prefix part must be non-empty"),
        ("A_/b", "prefix part a lowercase RFC 1123 subdomain"),
        ("a/", "name part must be non-empty"),
        ("-b", "name part must consist of"),
    ] {
        let (code, status) = client.patch(&path, MERGE, json!({"metadata": {"labels": {key: "v"}}})).await;
        assert_eq!((code, cause(&status)), (422, "metadata.labels"));
        let message = status["details"]["causes"][0]["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("Invalid value: \"{key}\": {begins}")), "{message}");
    }
    let (_, status) = client.patch(&path, STRATEGIC, json!({"metadata": {"finalizers": ["unqualified"]}})).await;
    assert_eq!(fields(&status), ["metadata.finalizers[0]"; 2], "a Pod's metadata is looked at twice");
    assert_eq!(status["message"].as_str().unwrap().matches("finalizers[0]").count(), 1, "and named once");
}

#[tokio::test(start_paused = true)]
async fn events_of_both_groups_are_refused_as_the_core_groups() {
    let cluster = still();
    let client = Client::new(&cluster);
    let event = json!({
        "metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "podium",
        "reportingInstance": "i", "action": "Act", "reason": "R", "note": "said", "type": "Normal",
        "regarding": {"kind": "Pod", "name": "a", "namespace": "default"},
    });
    for (field, value, wrong) in [
        ("note", json!("n".repeat(1025)), vec!["message"]),
        ("type", json!("Alarm"), vec!["type"]),
        ("eventTime", Value::Null, vec!["eventTime"]),
        ("reportingController", Value::Null, vec!["reportingController"; 3]),
        ("deprecatedCount", json!(3), vec!["count"]),
        ("series", json!({"count": 1}), vec!["series.count", "series.lastObservedTime"]),
    ] {
        let mut changed = event.clone();
        changed[field] = value;
        let (code, status) = client.post(EVENTS, changed).await;
        assert_eq!((code, fields(&status)), (422, wrong), "{field}");
        assert_eq!(status["details"].get("group"), None);
        assert!(status["message"].as_str().unwrap().starts_with("Event \"e\" is invalid: "));
    }
    let old = json!({
        "metadata": {"name": "old"}, "eventTime": "2026-01-01T00:00:00.000000Z", "reason": "R", "action": "Act",
        "reportingInstance": "i", "involvedObject": {"kind": "Pod", "name": "a", "namespace": "default"},
    });
    let (_, status) = client.post("/api/v1/namespaces/default/events", old).await;
    assert_eq!(cause(&status), "reportingComponent", "the core group's own view has another name");
    let mut elsewhere = event;
    elsewhere["regarding"]["namespace"] = json!("shop");
    assert_eq!(client.post(EVENTS, elsewhere.clone()).await.0, 201);
    elsewhere["metadata"]["name"] = json!("untimed");
    elsewhere["eventTime"] = Value::Null;
    let (_, status) = client.post(EVENTS, elsewhere).await;
    assert_eq!(fields(&status), ["involvedObject.namespace", "eventTime"]);
}

#[tokio::test(start_paused = true)]
async fn conflicts_of_apply_are_listed_one_per_line_without_times() {
    let cluster = still();
    let client = Client::new(&cluster);
    let map =
        |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": value}});
    client.post(&format!("{MAPS}?fieldManager=updater"), map("1")).await;
    let path = format!("{MAPS}/a");
    client.patch(&format!("{path}?fieldManager=one"), common::APPLY, map("1")).await;
    let (code, status) = client.patch(&format!("{path}?fieldManager=two"), common::APPLY, map("2")).await;
    assert_eq!(code, 409);
    let message = "Apply failed with 2 conflicts: conflicts with \"one\":\n- .data.k\nconflicts with \"updater\" using \
        v1:\n- .data.k";
    assert_eq!(status["message"], message);
}

#[tokio::test(start_paused = true)]
async fn empty_data_has_no_manager_and_a_label_has_its_author() {
    let cluster = still();
    let client = Client::new(&cluster);
    let (_, map) = client.post(MAPS, json!({"metadata": {"name": "a"}, "data": {}})).await;
    assert_eq!((map.get("data"), map["metadata"].get("managedFields")), (None, None));
    let (_, namespace) = client.post("/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await;
    let owned = &namespace["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"]["f:labels"];
    assert_eq!(owned["f:kubernetes.io/metadata.name"], json!({}));
}

#[tokio::test(start_paused = true)]
async fn a_table_without_objects_has_only_cells() {
    let cluster = still();
    let client = Client::new(&cluster).with("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    cluster.create(pod("a")).unwrap();
    let (_, table) = client.get(&format!("{PODS}?includeObject=None")).await;
    assert_eq!((&table["rows"][0]["cells"][0], &table["rows"][0]["object"]), (&json!("a"), &Value::Null));
    let (_, table) = client.get(MAPS).await;
    assert_eq!(
        (&table["columnDefinitions"][1]["name"], &table["columnDefinitions"][1]["type"]),
        (&json!("Data"), &json!("string"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_custom_resource_is_held_against_its_schema_at_every_write() {
    let cluster = still();
    let client = Client::new(&cluster);
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": {"size": {"type": "integer", "minimum": 1}}},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    }});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.podium.dev"},
        "spec": {"group": "podium.dev", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}]},
    });
    cluster.create(definition).unwrap();
    let things = "/apis/podium.dev/v1/namespaces/default/things";
    let thing =
        |spec: Value| json!({"apiVersion": "podium.dev/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec});
    let (code, status) = client.post(things, thing(json!({"size": 0}))).await;
    assert_eq!((code, cause(&status)), (422, "spec.size"));
    let (code, made) = client.post(things, thing(json!({"size": 1, "unknown": true}))).await;
    assert_eq!((code, &made["spec"]), (201, &json!({"size": 1})));
    let path = format!("{things}/t");
    let (code, status) = client.patch(&path, MERGE, json!({"spec": {"size": "big"}})).await;
    assert_eq!((code, &status["details"]["causes"][0]["reason"]), (422, &json!("FieldValueTypeInvalid")));
    let (code, status) = client.patch(&format!("{path}/status"), MERGE, json!({"status": {"phase": 1}})).await;
    assert_eq!((code, cause(&status)), (422, "status.phase"));
    let strict = thing(json!({"size": 2, "unknown": 1}));
    let (code, status) = client.post(&format!("{things}?fieldValidation=Strict"), strict.clone()).await;
    let message = "Thing in version \"v1\" cannot be handled as a Thing: strict decoding error: unknown field \
        \"spec.unknown\"";
    assert_eq!((code, &status["message"]), (400, &json!(message)));
    let patch = json!({"spec": {"unknown": 1}});
    let (code, status) = client.patch(&format!("{path}?fieldValidation=Strict"), MERGE, patch).await;
    assert_eq!((code, cause(&status)), (422, "patch"));
    let (code, status) = client.patch(&format!("{path}?fieldManager=m"), common::APPLY, strict).await;
    let message = status["message"].as_str().unwrap();
    assert!(code == 500 && message.ends_with(".spec.unknown: field not declared in schema"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_condition_has_a_qualified_type() {
    let cluster = still();
    let client = Client::new(&cluster);
    cluster.create(pod("a")).unwrap();
    let patch = json!({"status": {"conditions": [{"type": "Shop.example/Checked", "status": "True"}]}});
    let (code, status) = client.patch(&format!("{PODS}/a/status"), STRATEGIC, patch).await;
    assert_eq!((code, cause(&status)), (422, "status.conditions[0].Type"));
}
