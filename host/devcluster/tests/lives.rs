//! The simulation of Pods, garbage collection and the deletion of Namespaces, all reproducible from one seed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod common;

use std::time::Duration;

use common::{Client, PODS, STRATEGIC, alive, pod, uid};
use podium_devcluster::{Cluster, Options};
use serde_json::{Value, json};

fn behaving(name: &str, behaviour: &str) -> Value {
    let mut pod = pod(name);
    pod["metadata"]["annotations"] = json!({"devcluster.podium.dev/behaviour": behaviour});
    pod
}

fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn pods_are_scheduled_become_ready_and_end_when_deleted() {
    let cluster = alive();
    let client = Client::new(&cluster);
    let mut nodes = Vec::new();
    for name in ["a", "b"] {
        cluster.create(pod(name)).unwrap();
        let ready = client
            .until(&format!("{PODS}/{name}"), |_, pod| {
                let conditions = pod["status"]["conditions"].as_array();
                conditions.is_some_and(|c| c.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
            })
            .await;
        assert_eq!(phase(&ready), "Running");
        assert!(ready["status"]["podIP"].is_string());
        nodes.push(ready["spec"]["nodeName"].clone());
    }
    assert_ne!(nodes[0], nodes[1]);
    client.delete(&format!("{PODS}/a"), Value::Null).await;
    client.until(&format!("{PODS}/a"), |code, _| code == 404).await;
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_one_controller_are_spread_over_nodes() {
    let cluster = alive();
    let client = Client::new(&cluster);
    let count = cluster.list("nodes").1.len();
    let mut nodes = Vec::new();
    // Each Pod of the controller is created when it is the same node's turn.
    for at in 0..2 * count {
        let mut pod = pod(&format!("p-{at}"));
        if at % count == 0 {
            let owner =
                json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "db", "uid": "u", "controller": true});
            pod["metadata"]["ownerReferences"] = json!([owner]);
        }
        cluster.create(pod).unwrap();
        let bound = |_, pod: &Value| pod["spec"]["nodeName"].is_string();
        let bound = client.until(&format!("{PODS}/p-{at}"), bound).await;
        if at % count == 0 {
            nodes.push(bound["spec"]["nodeName"].clone());
        }
    }
    assert_ne!(nodes[0], nodes[1]);
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn each_behaviour_leaves_the_status_that_a_kubelet_reports() {
    let cluster = alive();
    let client = Client::new(&cluster);
    for behaviour in ["crash", "oom", "finish", "fail", "pending"] {
        cluster.create(behaving(behaviour, behaviour)).unwrap();
    }
    let container = |pod: &Value| pod["status"]["containerStatuses"][0].clone();
    let crashing = client
        .until(&format!("{PODS}/crash"), |_, pod| {
            container(pod)["restartCount"].as_u64().is_some_and(|n| n >= 2)
                && container(pod)["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        })
        .await;
    assert_eq!(container(&crashing)["lastState"]["terminated"]["exitCode"], 1);
    let killed = client
        .until(&format!("{PODS}/oom"), |_, pod| container(pod)["restartCount"].as_u64().is_some_and(|n| n >= 1))
        .await;
    assert_eq!(container(&killed)["lastState"]["terminated"]["reason"], "OOMKilled");
    assert_eq!(container(&killed)["lastState"]["terminated"]["exitCode"], 137);
    client.until(&format!("{PODS}/finish"), |_, pod| phase(pod) == "Succeeded").await;
    client.until(&format!("{PODS}/fail"), |_, pod| phase(pod) == "Failed").await;
    assert_eq!(phase(&client.get(&format!("{PODS}/pending")).await.1), "Pending");
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_simulation_writes_nothing() {
    let cluster = alive();
    let client = Client::new(&cluster);
    cluster.create(behaving("a", "crash")).unwrap();
    client.until(&format!("{PODS}/a"), |_, pod| phase(pod) == "Running").await;
    cluster.simulation().pause();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let (_, before) = client.get(PODS).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let (_, after) = client.get(PODS).await;
    assert_eq!(after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    cluster.simulation().resume();
    client.until(PODS, |_, list| list["items"][0]["status"]["containerStatuses"][0]["restartCount"] == 1).await;
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn dependents_of_deleted_owners_are_collected() {
    let cluster = alive();
    let client = Client::new(&cluster);
    let owner = cluster.create(pod("owner")).unwrap();
    let owned = |name: &str, api_version: &str, kind: &str, uid: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": [
            {"apiVersion": api_version, "kind": kind, "name": "owner", "uid": uid}]}})
    };
    cluster.create(owned("living", "v1", "Pod", &uid(&owner))).unwrap();
    cluster.create(owned("dead", "v1", "Pod", "another-uid")).unwrap();
    cluster.create(owned("unknown", "apps/v1", "DaemonSet", "another-uid")).unwrap();
    let map = |name: &str| format!("/api/v1/namespaces/default/configmaps/{name}");
    client.until(&map("dead"), |code, _| code == 404).await;
    assert_eq!(client.get(&map("living")).await.0, 200);
    client.delete(&format!("{PODS}/owner"), json!({"gracePeriodSeconds": 0})).await;
    client.until(&map("living"), |code, _| code == 404).await;
    assert_eq!(client.get(&map("unknown")).await.0, 200);
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_waits_and_orphaning_leaves_dependents() {
    let cluster = alive();
    let client = Client::new(&cluster);
    let maps = "/api/v1/namespaces/default/configmaps";
    for (policy, stays) in [("Foreground", false), ("Orphan", true)] {
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}});
        let owner = cluster.create(owner).unwrap();
        let child = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "child",
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid(&owner)}]}});
        cluster.create(child).unwrap();
        client.delete(&format!("{maps}/owner"), json!({"propagationPolicy": policy})).await;
        client.until(&format!("{maps}/owner"), |code, _| code == 404).await;
        assert_eq!(client.get(&format!("{maps}/child")).await.0 == 200, stays, "{policy}");
    }
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_namespace_refuses_content_and_ends_when_empty() {
    let cluster = alive();
    let client = Client::new(&cluster);
    cluster.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})).unwrap();
    let pods = "/api/v1/namespaces/shop/pods";
    let mut held = pod("held");
    held["metadata"]["finalizers"] = json!(["x/a"]);
    client.post(pods, held).await;
    let (code, namespace) = client.delete("/api/v1/namespaces/shop", Value::Null).await;
    assert_eq!((code, &namespace["status"]["phase"]), (200, &json!("Terminating")));
    let (code, status) = client.post(pods, pod("late")).await;
    assert_eq!((code, &status["details"]["causes"][0]["reason"]), (403, &json!("NamespaceTerminating")));
    client.until(&format!("{pods}/held"), |_, pod| pod["metadata"]["deletionTimestamp"].is_string()).await;
    assert_eq!(client.get("/api/v1/namespaces/shop").await.0, 200);
    let release = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/a"]}});
    client.patch(&format!("{pods}/held"), STRATEGIC, release).await;
    client.until("/api/v1/namespaces/shop", |code, _| code == 404).await;
    cluster.shutdown().await;
}

async fn history(seed: u64) -> Vec<(String, Value)> {
    let cluster = Cluster::start(Options { seed, ..Options::default() }).unwrap();
    let client = Client::new(&cluster);
    let mut watch = client.watch("/api/v1/pods?watch=1&timeoutSeconds=120").await;
    for (index, behaviour) in ["", "crash", "finish", "oom"].iter().cycle().take(20).enumerate() {
        cluster.create(behaving(&format!("p-{index}"), behaviour)).unwrap();
    }
    let mut events = Vec::new();
    while let Some(event) = watch.next().await.unwrap() {
        events.push(event);
    }
    cluster.shutdown().await;
    events
}

#[tokio::test(start_paused = true)]
async fn one_seed_makes_one_history() {
    let first = history(7).await;
    assert!(first.len() > 100);
    assert_eq!(first, history(7).await);
    assert_ne!(first, history(8).await);
}
