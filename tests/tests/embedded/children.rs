//! Objects that a plugin applied and another client changes: the plugin of the cookbook that keeps a ConfigMap for each
//! workload, in the host on the embedded cluster, with an account of its own.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use podium_devcluster::{Cluster, Options};
use podium_host::app::App;
use podium_tests::{embedded, wire::Wire};
use serde_json::{Value, json};

use crate::cookbook::{Entry, object, pod, workloads};

const MAP: &str = "deployment-web-nodes";
const MERGE: &str = "application/merge-patch+json";

/// The plugin on two Pods of a Deployment.
struct Scene {
    cluster: Cluster,
    wire: Wire,
    app: App,
    entry: Entry,
    /// Lists and watches of the objects that the plugin applies.
    asked: Arc<AtomicUsize>,
}

impl Scene {
    /// `edit` changes the rules of the account.
    async fn start(edit: impl FnOnce(&mut Value)) -> Self {
        let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
        cluster.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } })).unwrap();
        let [web, ..] = workloads(&cluster).await;
        let template = json!({ "labels": { "pod-template-hash": "7d9f8" } });
        for name in ["web-7d9f8-x", "web-7d9f8-y"] {
            pod(&cluster, name, Some(&web), &template, &json!({ "phase": "Running" }));
        }
        let mut entry = Entry::new("workload-configmap".to_owned());
        edit(&mut entry.role()["rules"]);
        let apps = json!({ "apiGroups": ["apps"], "resources": ["replicasets", "deployments"], "verbs": ["get"] });
        entry.role()["rules"].as_array_mut().unwrap().push(apps);
        entry.inspected.iter().for_each(|object| drop(cluster.create(object.clone()).unwrap()));
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let wire = Wire::with(&cluster, move |sent| {
            counted.fetch_add(usize::from(sent.uri.contains("podium.dev")), Ordering::Relaxed);
            Box::pin(std::future::ready(()))
        });
        let app = embedded::host(&cluster, wire.client(), vec![entry.spec.clone()]).await.unwrap();
        let scene = Self { cluster, wire, app, entry, asked };
        scene.rest().await;
        assert_eq!(scene.nodes(), scene.expected());
        scene
    }

    async fn rest(&self) {
        embedded::at_rest(&self.cluster, &self.app).await.unwrap();
    }

    fn nodes(&self) -> Value {
        object(&self.cluster, "configmaps", MAP).map_or(Value::Null, |map| map["data"].clone())
    }

    fn expected(&self) -> Value {
        let (_, pods) = self.cluster.list("pods");
        let names = pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned());
        names.map(|name| (name, json!("node-0"))).collect::<serde_json::Map<_, _>>().into()
    }

    /// Sends a request as another client.
    async fn request(&self, method: &str, path: &str, body: &Value) {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("/api/v1/namespaces/shop/{path}"))
            .header(http::header::CONTENT_TYPE, if method == "PATCH" { MERGE } else { "application/json" })
            .body(body.to_string().into_bytes())
            .unwrap();
        let _: Value = kube::Client::new(self.cluster.service(), "default").request(request).await.unwrap();
    }

    async fn patch(&self, patch: &Value) {
        self.request("PATCH", &format!("configmaps/{MAP}?fieldManager=someone"), patch).await;
    }

    async fn delete(&self, path: &str) {
        self.request("DELETE", path, &json!({ "gracePeriodSeconds": 0 })).await;
    }

    /// Waits for the time that a change may take, and returns the number of writes in it.
    async fn writes_within(&self, time: Duration) -> usize {
        let before = self.wire.writes().len();
        tokio::time::sleep(time).await;
        self.rest().await;
        self.wire.writes().len() - before
    }

    async fn end(self) {
        let results = self.app.status().plugin(&self.entry.spec.id).writes();
        assert!(results.keys().all(|result| matches!(*result, "applied" | "unchanged")), "{results:?}");
        self.app.shutdown().await;
        self.cluster.shutdown().await;
    }
}

const SOON: Duration = Duration::from_secs(2);
/// More than three repairs take.
const LATER: Duration = Duration::from_secs(65);

#[tokio::test(start_paused = true)]
async fn what_another_client_changes_or_deletes_is_right_within_two_seconds() {
    let scene = Scene::start(|_| ()).await;
    assert_eq!(scene.writes_within(SOON).await, 0, "its own write is no change");
    let own_key = json!({ "metadata": { "annotations": { "someone/note": "1" } } });
    let patches = [
        json!({ "data": { "web-7d9f8-x": "node-9" } }),
        json!({ "data": { "web-7d9f8-x": null } }),
        json!({ "metadata": { "labels": null } }),
        json!({ "metadata": { "ownerReferences": null } }),
    ];
    for patch in &patches {
        let before = object(&scene.cluster, "configmaps", MAP).unwrap()["metadata"].clone();
        scene.patch(patch).await;
        assert_eq!(scene.writes_within(SOON).await, 1, "{patch}");
        let after = object(&scene.cluster, "configmaps", MAP).unwrap()["metadata"].clone();
        assert_eq!(scene.nodes(), scene.expected(), "{patch}");
        assert_eq!((&before["labels"], &before["ownerReferences"]), (&after["labels"], &after["ownerReferences"]));
        assert_eq!(scene.writes_within(LATER).await, 0, "{patch}: quiet afterwards");
    }
    scene.delete(&format!("configmaps/{MAP}")).await;
    assert_eq!(scene.writes_within(SOON).await, 1);
    assert_eq!(scene.nodes(), scene.expected());
    scene.patch(&own_key).await;
    assert_eq!(scene.writes_within(LATER).await, 0, "a field that the plugin does not apply");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_pod_that_applied_it_may_be_gone() {
    let scene = Scene::start(|_| ()).await;
    scene.delete("pods/web-7d9f8-x").await;
    assert_eq!(scene.writes_within(SOON).await, 1);
    scene.delete(&format!("configmaps/{MAP}")).await;
    assert_eq!(scene.writes_within(SOON).await, 1);
    assert_eq!(scene.nodes(), json!({ "web-7d9f8-y": "node-0" }));
    scene.delete("pods/web-7d9f8-y").await;
    scene.rest().await;
    scene.patch(&json!({ "data": { "web-7d9f8-y": "node-9" } })).await;
    assert_eq!(scene.writes_within(LATER).await, 0, "no Pod, no run");
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_insists_gets_three_repairs_and_then_one_in_20_seconds() {
    let scene = Scene::start(|_| ()).await;
    let before = scene.wire.writes().len();
    for number in 0..60 {
        scene.patch(&json!({ "data": { "web-7d9f8-x": format!("node-{number}x") } })).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let writes = scene.wire.writes().len() - before;
    assert!((4..=6).contains(&writes), "{writes}");
    tokio::time::sleep(LATER).await;
    scene.rest().await;
    assert_eq!(scene.nodes(), scene.expected());
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_watch_the_host_asks_once_a_minute() {
    let scene = Scene::start(|rules| {
        for rule in rules.as_array_mut().unwrap() {
            rule["verbs"].as_array_mut().unwrap().retain(|verb| verb != "list" && verb != "watch");
        }
    })
    .await;
    let asked = || scene.asked.load(Ordering::Relaxed);
    let before = asked();
    scene.patch(&json!({ "data": { "web-7d9f8-x": "node-9" } })).await;
    assert_eq!(scene.writes_within(Duration::from_secs(300)).await, 0);
    assert!((4..=6).contains(&(asked() - before)), "{}", asked() - before);
    scene.end().await;
}
