//! No body causes the server to panic or to answer with a server error.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod common;

use common::{APPLY, Client, JSON, MERGE, PODS, STRATEGIC, alive, pod, uid};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::{Map, Value, json};

/// Keys with a meaning somewhere, so that strange values reach far.
const KEYS: &[&str] = &[
    "metadata",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "managedFields",
    "fieldsV1",
    "manager",
    "operation",
    "name",
    "namespace",
    "generateName",
    "deletionTimestamp",
    "spec",
    "containers",
    "env",
    "ports",
    "containerPort",
    "volumes",
    "tolerations",
    "schedulingGates",
    "resources",
    "limits",
    "image",
    "status",
    "conditions",
    "type",
    "phase",
    "containerStatuses",
    "state",
    "running",
    "restartCount",
    "$patch",
    "$retainKeys",
    "$setElementOrder/containers",
    "$deleteFromPrimitiveList/finalizers",
    "f:metadata",
    "f:labels",
    "k:{\"name\":1}",
    "v:\"x\"",
    ".",
    "selector",
    "nodeSelector",
    "terminationGracePeriodSeconds",
    "names",
    "versions",
    "rules",
    "subjects",
    "roleRef",
    "involvedObject",
    "data",
    "stringData",
    "preconditions",
    "deleteOptions",
    "target",
];
const WORDS: &[&str] =
    &["", "a", "x/a", "delete", "replace", "merge", "Always", "é", "v1", "Pod", "2026-01-01T00:00:00Z"];

fn value(random: &mut SmallRng, depth: usize) -> Value {
    let kinds = if depth == 0 { 5 } else { 9 };
    match random.random_range(0..kinds) {
        0 => Value::Null,
        1 => json!(random.random::<bool>()),
        2 => json!(random.random::<i64>()),
        3 | 4 => json!(WORDS[random.random_range(0..WORDS.len())]),
        5 | 6 => (0..random.random_range(0..3)).map(|_| value(random, depth - 1)).collect(),
        _ => Value::Object(object(random, depth - 1)),
    }
}

fn object(random: &mut SmallRng, depth: usize) -> Map<String, Value> {
    let mut map = Map::new();
    for _ in 0..random.random_range(0..5) {
        map.insert(KEYS[random.random_range(0..KEYS.len())].into(), value(random, depth));
    }
    map
}

/// Returns a body with strange values in places that the server reads.
fn body(random: &mut SmallRng, kind: &str, api_version: &str) -> Value {
    let mut body = object(random, 4);
    for part in ["metadata", "spec", "status"] {
        if random.random_bool(0.7) {
            body.insert(part.into(), Value::Object(object(random, 4)));
        }
    }
    if random.random_bool(0.8) {
        body.insert("kind".into(), json!(kind));
        body.insert("apiVersion".into(), json!(api_version));
    }
    Value::Object(body)
}

fn operations(random: &mut SmallRng) -> Value {
    let path = |random: &mut SmallRng| {
        let steps = random.random_range(0..4);
        (0..steps).map(|_| format!("/{}", KEYS[random.random_range(0..KEYS.len())])).collect::<String>()
    };
    (0..random.random_range(1..4))
        .map(|_| {
            let operation = ["add", "remove", "replace", "test", "move", "copy"][random.random_range(0..6)];
            json!({"op": operation, "path": path(random), "from": path(random), "value": value(random, 3)})
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn strange_bodies_cause_no_server_error() {
    let cluster = alive();
    let client = Client::new(&cluster);
    let mut random = SmallRng::seed_from_u64(11);
    let kinds = [
        ("Pod", "v1", PODS),
        ("ConfigMap", "v1", "/api/v1/namespaces/default/configmaps"),
        ("Secret", "v1", "/api/v1/namespaces/default/secrets"),
        ("Event", "v1", "/api/v1/namespaces/default/events"),
        ("Event", "events.k8s.io/v1", "/apis/events.k8s.io/v1/namespaces/default/events"),
        ("Namespace", "v1", "/api/v1/namespaces"),
        ("Node", "v1", "/api/v1/nodes"),
        ("Lease", "coordination.k8s.io/v1", "/apis/coordination.k8s.io/v1/namespaces/default/leases"),
        ("Role", "rbac.authorization.k8s.io/v1", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"),
        (
            "CustomResourceDefinition",
            "apiextensions.k8s.io/v1",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        ),
    ];
    for round in 0..150 {
        for (kind, api_version, path) in kinds {
            let mut first = if kind == "Pod" { pod("p") } else { json!({"apiVersion": api_version, "kind": kind}) };
            first["metadata"]["name"] = json!("p");
            client.post(path, first).await;
            let one = format!("{path}/p");
            let mut codes = vec![client.post(path, body(&mut random, kind, api_version)).await.0];
            for media in [STRATEGIC, MERGE, APPLY] {
                for sub in ["", "/status"] {
                    let path = format!("{one}{sub}?fieldManager=m&force={}", media == APPLY);
                    let (code, status) = client.patch(&path, media, body(&mut random, kind, api_version)).await;
                    // The API server's response to an applied object that does not match its schema.
                    let message = status["message"].as_str().unwrap_or_default();
                    let untyped = media == APPLY && message.starts_with("failed to create typed patch object");
                    codes.push(if untyped { 422 } else { code });
                }
            }
            codes.push(client.patch(&one, JSON, operations(&mut random)).await.0);
            codes.push(client.put(&one, body(&mut random, kind, api_version)).await.0);
            codes.push(client.post(&format!("{one}/eviction"), body(&mut random, "Eviction", "policy/v1")).await.0);
            let table = client.with("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
            codes.push(table.get(path).await.0);
            codes.push(client.delete(&one, body(&mut random, "DeleteOptions", "v1")).await.0);
            assert!(codes.iter().all(|code| *code < 500), "round {round} {kind}: {codes:?}");
        }
        // Scheduler, kubelet and collector process the accepted objects.
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }
    let fresh = cluster.create(pod("after")).unwrap();
    let running = client.until(&format!("{PODS}/after"), |_, pod| pod["status"]["phase"] == "Running").await;
    assert_eq!(uid(&running), uid(&fresh), "the cluster lives on");
    cluster.shutdown().await;
}
