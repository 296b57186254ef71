//! Lists and watches keep the guarantees that a cache depends on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod common;

use std::time::Duration;

use common::{Client, PODS, STRATEGIC, pod, revision, still};
use podium_devcluster::{Cluster, Options};
use serde_json::{Value, json};
use tokio::time::Instant;

const STREAM: &str = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

#[tokio::test(start_paused = true)]
async fn a_streaming_list_is_sorted_and_ends_with_a_bookmark() {
    let cluster = still();
    let client = Client::new(&cluster);
    for name in ["c", "a", "b"] {
        cluster.create(pod(name)).unwrap();
    }
    let mut watch = client.watch(&format!("/api/v1/pods?{STREAM}")).await;
    for name in ["a", "b", "c"] {
        let (event, object) = watch.event().await;
        assert_eq!((event.as_str(), &object["metadata"]["name"]), ("ADDED", &json!(name)));
    }
    let (event, object) = watch.event().await;
    assert_eq!(event, "BOOKMARK");
    assert_eq!(object["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let (_, list) = client.get(PODS).await;
    assert_eq!(revision(&object), revision(&list));
}

#[tokio::test(start_paused = true)]
async fn a_lists_revision_moves_with_writes_to_other_resources() {
    let cluster = still();
    let client = Client::new(&cluster);
    let (_, before) = client.get(PODS).await;
    cluster.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})).unwrap();
    let (_, after) = client.get(PODS).await;
    assert!(revision(&after) > revision(&before));
}

#[tokio::test(start_paused = true)]
async fn a_short_watch_ends_with_a_bookmark_at_the_newest_revision() {
    let cluster = still();
    let client = Client::new(&cluster);
    let (_, list) = client.get(PODS).await;
    let path = format!("{PODS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=3&resourceVersion={}", revision(&list));
    let began = Instant::now();
    let mut watch = client.watch(&path).await;
    cluster.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})).unwrap();
    let (event, object) = watch.event().await;
    assert_eq!(event, "BOOKMARK");
    assert!(revision(&object) > revision(&list));
    assert!(watch.next().await.unwrap().is_none());
    assert_eq!(began.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn leaving_a_selector_is_a_deletion_and_entering_an_addition() {
    let cluster = still();
    let client = Client::new(&cluster);
    cluster.create(pod("a")).unwrap();
    let mut watch = client.watch(&format!("{PODS}?watch=1&labelSelector=app%3Dweb")).await;
    assert_eq!(watch.event().await.0, "ADDED");
    for (value, expected) in [("other", "DELETED"), ("web", "ADDED")] {
        let patch = json!({"metadata": {"labels": {"app": value}}});
        let (_, patched) = client.patch(&format!("{PODS}/a"), STRATEGIC, patch).await;
        let (event, object) = watch.event().await;
        assert_eq!((event.as_str(), revision(&object)), (expected, revision(&patched)));
        assert_eq!(object["metadata"]["labels"]["app"], "web");
    }
}

#[tokio::test(start_paused = true)]
async fn revisions_too_old_and_too_new_are_distinguished() {
    let cluster = still();
    let client = Client::new(&cluster);
    cluster.create(pod("a")).unwrap();
    cluster.faults().compact();
    let mut watch = client.watch(&format!("{PODS}?watch=1&resourceVersion=1")).await;
    let (event, status) = watch.event().await;
    assert_eq!((event.as_str(), &status["code"], &status["reason"]), ("ERROR", &json!(410), &json!("Expired")));
    assert!(watch.next().await.unwrap().is_none());
    let mut watch = client.watch(&format!("{PODS}?{STREAM}&resourceVersion=99999")).await;
    let (event, status) = watch.event().await;
    assert_eq!((event.as_str(), &status["code"]), ("ERROR", &json!(504)));
    let (code, status) = client.get(&format!("{PODS}?resourceVersion=99999")).await;
    assert_eq!(code, 504);
    assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_moment_whatever_is_written_between_them() {
    let cluster = still();
    let client = Client::new(&cluster);
    for name in ["a", "b", "c"] {
        cluster.create(pod(name)).unwrap();
    }
    let (_, first) = client.get(&format!("{PODS}?limit=2")).await;
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    client.delete(&format!("{PODS}/c"), Value::Null).await;
    cluster.create(pod("d")).unwrap();
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    let (_, second) = client.get(&format!("{PODS}?limit=2&continue={token}")).await;
    let names: Vec<&Value> = second["items"].as_array().unwrap().iter().map(|i| &i["metadata"]["name"]).collect();
    assert_eq!(names, [&json!("c")]);
    assert_eq!(revision(&second), revision(&first));
    assert!(second["metadata"].get("continue").is_none());
    cluster.faults().compact();
    let (code, status) = client.get(&format!("{PODS}?limit=2&continue={token}")).await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
}

#[tokio::test(start_paused = true)]
async fn faults_cut_delay_and_expire_watches() {
    let cluster = still();
    let client = Client::new(&cluster);
    let mut watch = client.watch(&format!("{PODS}?watch=1")).await;
    cluster.faults().disconnect_watches();
    assert!(watch.next().await.is_err());
    cluster.faults().next_watch_gone();
    let mut watch = client.watch(&format!("{PODS}?watch=1")).await;
    assert_eq!(watch.event().await.1["code"], 410);
    let mut watch = client.watch(&format!("{PODS}?watch=1")).await;
    cluster.faults().delay(Duration::from_secs(2));
    let began = Instant::now();
    cluster.create(pod("a")).unwrap();
    assert_eq!(watch.event().await.0, "ADDED");
    assert_eq!(began.elapsed(), Duration::from_secs(2));
    assert_eq!(client.get(PODS).await.0, 200);
    assert_eq!(began.elapsed(), Duration::from_secs(4));
}

#[tokio::test(start_paused = true)]
async fn field_selectors_select_and_unknown_ones_are_refused() {
    let cluster = still();
    let client = Client::new(&cluster);
    for name in ["a", "b"] {
        cluster.create(pod(name)).unwrap();
    }
    let (_, list) = client.get(&format!("{PODS}?fieldSelector=metadata.name%3Db,status.phase%3DPending")).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let (code, status) = client.get(&format!("{PODS}?fieldSelector=spec.image%3Dx")).await;
    assert_eq!((code, &status["reason"]), (400, &json!("BadRequest")));
}

#[tokio::test(start_paused = true)]
async fn an_older_server_refuses_streaming_lists_and_serves_only_pods() {
    let options = Options { only: vec!["pods".into()], streaming_lists: false, ..Options::default() };
    let cluster = Cluster::start(options).unwrap();
    let client = Client::new(&cluster);
    let (code, status) = client.get(&format!("{PODS}?{STREAM}")).await;
    assert_eq!((code, common::cause(&status)), (422, "sendInitialEvents"));
    assert_eq!(client.get(PODS).await.0, 200);
    assert_eq!(client.get("/api/v1/namespaces").await.0, 404);
    let (_, groups) = client.get("/apis").await;
    assert_eq!(groups["groups"], json!([]));
    let (_, resources) = client.get("/api/v1").await;
    let resources = resources["resources"].as_array().unwrap();
    assert!(resources.iter().all(|r| r["name"].as_str().unwrap().starts_with("pods")));
    cluster.create(pod("a")).unwrap();
    client.until(&format!("{PODS}/a"), |_, pod| pod["status"]["phase"] == "Running").await;
}
