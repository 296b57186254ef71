//! A relation over a label that every Pod has: all Pods are one group, which is run at most once a second.

use std::time::Duration;

use http::Method;
use podium_devcluster::{Cluster, Options};
use podium_tests::{embedded, plugins, wire::Wire};
use podium_vocabulary::{Related, Relation};
use podium_wire::{Section, SectionSet};
use serde_json::{Value, json};

const PODS: usize = 300;
const SECONDS: u64 = 20;

#[tokio::test(start_paused = true)]
async fn a_label_that_every_pod_has_makes_one_group_with_a_run_a_second() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    let wire = Wire::new(&cluster);
    let mut plugin = plugins::sample("spread-guard").unwrap();
    let id = plugin.id.clone();
    let namespace = id.namespace.clone().unwrap_or_else(|| "default".into());
    plugin.watch.related = Some(Related { by: Relation::Label("tier".into()), debounce: Duration::from_secs(1) });
    plugin.watch.sections = SectionSet::EMPTY.with(Section::Labels);
    for index in 0..PODS {
        let metadata = json!({ "namespace": &*namespace, "name": format!("p{index}"), "labels": { "tier": "a" } });
        let spec = json!({ "nodeName": "node-0", "containers": [{ "name": "c", "image": "registry.example/c:1" }] });
        cluster.create(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec })).unwrap();
    }
    let app = embedded::host(&cluster, wire.client(), vec![plugin]).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let runs = || app.status().plugin(&id).runs();
    let before = runs();
    assert!((1..=6).contains(&before), "{before} runs of {PODS} Pods");
    for second in 0..SECONDS {
        for index in 0..PODS {
            let change = json!({ "metadata": { "labels": { "changed": second.to_string() } } });
            patch(&cluster, &format!("/api/v1/namespaces/{namespace}/pods/p{index}"), &change).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let after = runs() - before;
    assert!((SECONDS / 2..=SECONDS + 1).contains(&after), "{after} runs in {SECONDS} s");
    app.shutdown().await;
}

async fn patch(cluster: &Cluster, path: &str, body: &Value) {
    let request = http::Request::builder()
        .method(Method::PATCH)
        .uri(path)
        .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
        .body(body.to_string().into_bytes())
        .unwrap();
    let _: Value = kube::Client::new(cluster.service(), "default").request(request).await.unwrap();
}
