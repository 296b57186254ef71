//! The controllers of workloads as clients see them: the requests that kubectl sends, events of watches, restrictions.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod common;

use std::{collections::BTreeSet, time::Duration};

use common::{Client, MERGE, PODS, STRATEGIC, alive, still};
use podium_devcluster::{BEHAVIOUR, Cluster, Options, Pace};
use serde_json::{Value, json};

const APPS: &str = "/apis/apps/v1/namespaces/default";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

fn deployment(replicas: u32) -> Value {
    json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "registry.example/web:1"}]},
            },
        },
    })
}

fn web() -> String {
    format!("{APPS}/deployments/web")
}

/// Waits until the Deployment is rolled out, as `kubectl rollout status` does. Returns it.
async fn rolled_out(client: &Client) -> Value {
    let done = |_, web: &Value| {
        let replicas = &web["spec"]["replicas"];
        let status = &web["status"];
        status["observedGeneration"] == web["metadata"]["generation"]
            && ["replicas", "updatedReplicas", "availableReplicas"]
                .iter()
                .all(|field| status[*field].as_i64().unwrap_or(0) == replicas.as_i64().unwrap())
    };
    client.until(&web(), done).await
}

async fn pods(client: &Client) -> Vec<Value> {
    let (_, list) = client.get(PODS).await;
    let mut pods = list["items"].as_array().unwrap().clone();
    pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    pods
}

fn images(pods: &[Value]) -> BTreeSet<&str> {
    pods.iter().map(|pod| pod["spec"]["containers"][0]["image"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_deployment_is_created_scaled_rolled_out_undone_and_deleted() {
    let cluster = alive();
    let client = Client::new(&cluster);
    assert_eq!(client.post(&format!("{APPS}/deployments"), deployment(3)).await.0, 201);
    rolled_out(&client).await;
    let (code, scale) = client.get(&format!("{}/scale", web())).await;
    assert_eq!((code, &scale["spec"]["replicas"], &scale["status"]["selector"]), (200, &json!(3), &json!("app=web")));
    let four = json!({"spec": {"replicas": 4}});
    assert_eq!(client.patch(&format!("{}/scale", web()), MERGE, four).await.1["kind"], "Scale");
    rolled_out(&client).await;
    let first: BTreeSet<String> = pods(&client).await.iter().map(common::uid).collect();
    assert_eq!(first.len(), 4);
    let image = json!([{"name": "main", "image": "registry.example/web:2"}]);
    let image = json!({"spec": {"template": {"spec": {"containers": image}}}});
    client.patch(&web(), STRATEGIC, image).await;
    assert_eq!(rolled_out(&client).await["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
    assert_eq!(images(&pods(&client).await), BTreeSet::from(["registry.example/web:2"]));
    let restarted = json!({"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"});
    client.patch(&web(), STRATEGIC, json!({"spec": {"template": {"metadata": {"annotations": restarted}}}})).await;
    rolled_out(&client).await;
    let template = deployment(3)["spec"]["template"].clone();
    let undo = json!([{"op": "replace", "path": "/spec/template", "value": template}]);
    client.patch(&web(), common::JSON, undo).await;
    assert_eq!(rolled_out(&client).await["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "4");
    let last = pods(&client).await;
    assert_eq!(images(&last), BTreeSet::from(["registry.example/web:1"]));
    assert!(last.iter().all(|pod| !first.contains(&common::uid(pod))), "the rollouts replaced no Pods");
    client.delete(&web(), Value::Null).await;
    client.until(PODS, |_, list| list["items"] == json!([])).await;
    let sets = client.until(&format!("{APPS}/replicasets"), |_, list| list["items"] == json!([])).await;
    assert_eq!(sets["kind"], "ReplicaSetList");
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_waits_between_failures_and_its_finished_pods_can_be_deleted() {
    let pace = Pace { run: Duration::from_millis(100), ..Pace::default() };
    let cluster = Cluster::start(Options { pace, ..Options::default() }).unwrap();
    let client = Client::new(&cluster);
    let job = json!({
        "metadata": {"name": "backup"},
        "spec": {"backoffLimit": 1, "template": {
            "metadata": {"annotations": {BEHAVIOUR: "fail"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "registry.example/backup:1"}]},
        }},
    });
    let (code, made) = client.post(JOBS, job).await;
    let uid = common::uid(&made);
    let labels = &made["spec"]["template"]["metadata"]["labels"];
    assert_eq!((code, &labels["batch.kubernetes.io/controller-uid"]), (201, &json!(uid)));
    assert_eq!(made["spec"]["selector"]["matchLabels"], json!({"batch.kubernetes.io/controller-uid": uid}));
    let before = cluster.now_millis();
    let path = format!("{JOBS}/backup");
    let ended = client.until(&path, |_, job| job["status"]["conditions"][1]["type"] == "Failed").await;
    assert_eq!((&ended["status"]["failed"], &ended["status"]["active"]), (&json!(2), &Value::Null));
    assert!(cluster.now_millis() - before >= 10_000, "the second Pod did not wait");
    client.delete(&path, json!({"propagationPolicy": "Background"})).await;
    client.until(PODS, |_, list| list["items"] == json!([])).await;
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_job_that_is_deleted_while_they_run_end_too() {
    let cluster = alive();
    let client = Client::new(&cluster);
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x/y:1"}]}});
    client.post(JOBS, json!({"metadata": {"name": "backup"}, "spec": {"template": template}})).await;
    client.until(PODS, |_, list| list["items"][0]["status"]["phase"] == "Running").await;
    client.delete(&format!("{JOBS}/backup"), json!({"propagationPolicy": "Background"})).await;
    client.until(PODS, |_, list| list["items"] == json!([])).await;
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_leads_to_the_same_names() {
    let mut stories = Vec::new();
    for seed in [7, 7, 8] {
        let cluster = Cluster::start(Options { seed, ..Options::default() }).unwrap();
        let client = Client::new(&cluster);
        client.post(&format!("{APPS}/deployments"), deployment(3)).await;
        rolled_out(&client).await;
        let names: Vec<String> = pods(&client).await.iter().map(|pod| pod["metadata"]["name"].to_string()).collect();
        stories.push(names);
        cluster.shutdown().await;
    }
    assert_eq!(stories[0], stories[1]);
    assert_ne!(stories[0], stories[2]);
}

#[tokio::test(start_paused = true)]
async fn without_the_simulation_and_while_it_is_paused_no_controller_acts() {
    for paused in [false, true] {
        let cluster = if paused { alive() } else { still() };
        if paused {
            cluster.simulation().pause();
        }
        let client = Client::new(&cluster);
        client.post(&format!("{APPS}/deployments"), deployment(1)).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(cluster.list("replicasets.apps").1.len(), 0);
        assert_eq!(client.get(&web()).await.1["status"]["observedGeneration"], Value::Null);
        cluster.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_definition_of_a_built_in_kind_is_refused() {
    let cluster = still();
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "deployments.apps"},
        "spec": {"group": "apps", "scope": "Namespaced", "names": {"plural": "deployments", "kind": "Deployment"},
            "versions": [version]},
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, status) = Client::new(&cluster).post(path, definition).await;
    assert_eq!((code, common::cause(&status)), (422, "spec.group"));
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn containers_of_a_deployment_that_end_are_restarted() {
    let cluster = alive();
    let client = Client::new(&cluster);
    let mut web = deployment(2);
    web["spec"]["template"]["metadata"]["annotations"] = json!({ BEHAVIOUR: "fail" });
    client.post(&format!("{APPS}/deployments"), web).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let pods = pods(&client).await;
    let restarts = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_i64().unwrap_or_default();
    assert!(pods.len() == 2 && pods.iter().all(|pod| restarts(pod) > 1), "{} Pods", pods.len());
}
