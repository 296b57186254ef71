//! Unknown fields and values of another type are refused, warned about or ignored, as by the API server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod common;

use common::{APPLY, Client, JSON, MERGE, PODS, STRATEGIC, pod, still};
use http::{HeaderMap, Method};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn warnings(headers: &HeaderMap) -> Vec<&str> {
    headers.get_all("warning").iter().map(|value| value.to_str().unwrap()).collect()
}

fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap_or_default()
}

/// Returns a Pod with two misspelt fields, one of them in a list.
fn misspelt() -> Value {
    let mut misspelt = pod("a");
    misspelt["spec"]["contaners"] = json!([]);
    misspelt["spec"]["containers"][0]["imag"] = json!("x");
    misspelt
}

#[tokio::test]
async fn unknown_fields_are_handled_as_field_validation_asks() {
    let cluster = still();
    let client = Client::new(&cluster);
    let (code, status) = client.post(&format!("{PODS}?fieldValidation=Strict"), misspelt()).await;
    let expected = "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: \
        unknown field \"spec.containers[0].imag\", unknown field \"spec.contaners\"";
    assert_eq!((code, message(&status)), (400, expected));
    let reported =
        ["299 - \"unknown field \\\"spec.containers[0].imag\\\"\"", "299 - \"unknown field \\\"spec.contaners\\\"\""];
    for (query, expected) in
        [("", &reported[..]), ("&fieldValidation=Warn", &reported), ("&fieldValidation=Ignore", &[])]
    {
        let path = format!("{PODS}?dryRun=All{query}");
        let response = client.post_response(&path, misspelt()).await;
        assert_eq!((response.status().as_u16(), warnings(response.headers())), (201, expected.to_vec()), "{path}");
    }
    let (_, made) = client.post(PODS, misspelt()).await;
    assert!(made["spec"].get("contaners").is_none() && made["spec"]["containers"][0].get("imag").is_none(), "{made}");
    let (code, status) = client.post(&format!("{PODS}?fieldValidation=strict"), pod("b")).await;
    let expected =
        "fieldValidation: Unsupported value: \"strict\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"";
    assert!(code == 422 && message(&status).ends_with(expected), "{status}");
    cluster.shutdown().await;
}

#[tokio::test]
async fn fields_that_occur_twice_are_refused_or_warned_of() {
    let cluster = still();
    let client = Client::new(&cluster);
    let body = r#"{"metadata": {"name": "a", "name": "b"}, "data": {"k": "1", "k": "2"}}"#;
    let path = format!("{MAPS}?fieldValidation=Strict");
    let (code, status) = client.send(Method::POST, &path, "application/json", body.into()).await;
    let expected = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: \
        duplicate field \"metadata.name\", duplicate field \"data.k\"";
    assert_eq!((code, message(&status)), (400, expected));
    let response = client.open(Method::POST, MAPS, "application/json", body.into()).await;
    assert_eq!(response.status(), 201);
    assert_eq!(warnings(response.headers()).len(), 2);
    let one = format!("{MAPS}/b?fieldValidation=Strict");
    let (code, status) = client.send(Method::PATCH, &one, MERGE, r#"{"data": {"k": "3", "k": "4"}}"#.into()).await;
    assert!(code == 422 && message(&status).ends_with("strict decoding error: duplicate field \"data.k\""), "{status}");
    let operation = r#"[{"op": "add", "path": "/data/x", "path": "/data/y", "value": "1", "values": 1}]"#;
    let (code, status) = client.send(Method::PATCH, &one, JSON, operation.into()).await;
    let expected = "json patch duplicate field \"[0].path\", json patch unknown field \"[0].values\"";
    assert!(code == 422 && message(&status).ends_with(expected), "{status}");
    cluster.shutdown().await;
}

#[tokio::test]
async fn values_of_another_type_are_refused_at_any_field_validation() {
    let cluster = still();
    let client = Client::new(&cluster);
    let map = json!({"metadata": {"name": "a"}, "data": {"a": 1}});
    let expected = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into \
        Go struct field ConfigMap.data of type string";
    for query in ["", "?fieldValidation=Ignore", "?fieldValidation=Strict"] {
        let (code, status) = client.post(&format!("{MAPS}{query}"), map.clone()).await;
        assert_eq!((code, message(&status)), (400, expected));
    }
    let (_, made) = client.post(PODS, pod("a")).await;
    let one = format!("{PODS}/a");
    let mut replaced = made.clone();
    replaced["spec"]["containers"][0]["ports"] = json!([{"containerPort": "http"}]);
    let (code, status) = client.put(&one, replaced).await;
    let expected = "Pod in version \"v1\" cannot be handled as a Pod: json: cannot unmarshal string into Go struct \
        field ContainerPort.spec.containers.ports.containerPort of type int32";
    assert_eq!((code, message(&status)), (400, expected));
    let hostname = json!({"spec": {"hostname": 1}});
    for (media, expected) in [
        (MERGE, "json: cannot unmarshal number into Go struct field PodSpec.spec.hostname of type string"),
        (STRATEGIC, "Invalid value: \"map[spec:map[hostname:1]]\": cannot convert int64 to string"),
    ] {
        let (code, status) = client.patch(&one, media, hostname.clone()).await;
        assert!(code == 422 && message(&status).ends_with(expected), "{status}");
    }
    assert_eq!(client.get(&one).await.1, made);
    cluster.shutdown().await;
}

#[tokio::test]
async fn unknown_fields_in_patches_are_warnings_and_in_apply_errors() {
    let cluster = still();
    let client = Client::new(&cluster);
    client.post(PODS, pod("a")).await;
    let one = format!("{PODS}/a");
    let patch = json!({"metadata": {"lables": {"a": "b"}}});
    for media in [MERGE, STRATEGIC] {
        let (code, status) = client.patch(&format!("{one}?fieldValidation=Strict"), media, patch.clone()).await;
        let expected = "strict decoding error: unknown field \"metadata.lables\"";
        assert!(code == 422 && message(&status).ends_with(expected), "{status}");
        let response = client.open(Method::PATCH, &one, media, patch.to_string()).await;
        assert_eq!(response.status(), 200);
        assert_eq!(warnings(response.headers()), ["299 - \"unknown field \\\"metadata.lables\\\"\""]);
    }
    let mut applied = misspelt();
    applied["metadata"]["labels"]["l"] = json!(1);
    let (code, status) = client.patch(&format!("{one}?fieldManager=m&fieldValidation=Ignore"), APPLY, applied).await;
    let expected = "failed to create typed patch object (/a; /v1, Kind=Pod): errors:\n  \
        .metadata.labels.l: expected string, got &value.valueUnstructured{Value:1}\n  \
        .spec.containers[name=\"c\"].imag: field not declared in schema\n  \
        .spec.contaners: field not declared in schema";
    assert_eq!((code, message(&status)), (500, expected));
    cluster.shutdown().await;
}

#[tokio::test]
async fn the_body_of_an_apply_patch_is_read_as_yaml() {
    let cluster = still();
    let client = Client::new(&cluster);
    let map =
        |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": value}});
    let path = format!("{MAPS}/a?fieldManager=m");
    let (_, made) = client.patch(&path, APPLY, map("one\u{85}two")).await;
    assert_eq!(made["data"]["k"], "one two");
    for refused in ["\u{7f}", "\u{fffe}"] {
        let (code, status) = client.patch(&path, APPLY, map(refused)).await;
        let expected = "error decoding YAML: error converting YAML to JSON: yaml: control characters are not allowed";
        assert_eq!((code, message(&status)), (400, expected));
    }
    let twice = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1", "k": "2"}}"#;
    let strict = format!("{path}&fieldValidation=Strict");
    let (code, status) = client.send(Method::PATCH, &strict, APPLY, twice.into()).await;
    assert!(code == 400 && message(&status).ends_with("line 1: key \"k\" already set in map"), "{status}");
    cluster.shutdown().await;
}
