//! Runs on Pods of one workload at the same time, each of which writes to all of them.

use std::{collections::BTreeMap, time::Duration};

use http::Method;
use podium_devcluster::{Cluster, Options};
use podium_tests::{embedded, plugins, wire::Wire};
use serde_json::json;

const PODS: usize = 6;

#[tokio::test(start_paused = true)]
async fn runs_on_siblings_at_once_write_to_each_of_them_once() {
    let cluster = Cluster::start(Options::default()).unwrap();
    cluster.faults().delay(Duration::from_millis(5));
    let wire = Wire::new(&cluster);
    let mut plugin = plugins::sample("spread-guard").unwrap();
    // It runs on each Pod, not once for all.
    plugin.watch.related = None;
    let app = embedded::host(&cluster, wire.client(), vec![plugin]).await.unwrap();
    for index in 0..PODS {
        cluster
            .create(json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": format!("cart-{index}"),
                    "ownerReferences": [{
                        "apiVersion": embedded::UNSERVED, "kind": "ReplicaSet", "name": "cart", "uid": "cart",
                        "controller": true,
                    }],
                },
                "spec": {"nodeName": "node-0", "containers": [{"name": "c", "image": "registry.example/c:1"}]},
            }))
            .unwrap();
    }
    // They settle at the same time.
    tokio::time::sleep(Duration::from_secs(60)).await;
    embedded::at_rest(&cluster, &app).await.unwrap();
    let mut patches = BTreeMap::<_, u32>::new();
    for sent in wire.writes().into_iter().filter(|sent| sent.method == Method::PATCH && sent.uri.contains("/pods/")) {
        *patches.entry(sent.uri).or_default() += 1;
    }
    assert_eq!(patches.len(), PODS, "{patches:#?}");
    assert!(patches.values().all(|times| *times == 1), "{patches:#?}");
    app.shutdown().await;
}
