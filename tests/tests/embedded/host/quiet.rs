//! Idle clusters cause no writes: nothing is written for Pods that do not change, and a restart is not a change.

use std::time::Duration;

use podium_devcluster::{BEHAVIOUR, Cluster, Options, Pace};
use podium_host::app::App;
use podium_tests::{embedded, plugins, wire::Wire};
use serde_json::json;

const NAMESPACES: [&str; 3] = ["bank", "mill", "shop"];
/// Longer than the timeout of a watch, the interval of a series of Events, and the settling time of a plugin.
const STRETCH: Duration = Duration::from_secs(60);

/// Creates workloads for all plugins: compliant and crowded, crashing, killed for memory, finished, with a mutable
/// tag and without limits.
fn populate(cluster: &Cluster) {
    for namespace in NAMESPACES {
        cluster.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).unwrap();
        for (workload, behaviour, image, node) in [
            ("cart", "", "registry.example/cart@sha256:0000", None),
            ("till", "crash", "registry.example/till:1.2", None),
            ("loom", "oom", "registry.example/loom:latest", None),
            ("batch", "finish", "registry.example/batch:1", None),
            ("crowd", "", "registry.example/crowd:1", Some("node-0")),
        ] {
            for index in 0..4 {
                let mut pod = json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {
                        "namespace": namespace, "name": format!("{workload}-5d4f8c7b9-{index}"),
                        "labels": {"app": workload, "pod-template-hash": "5d4f8c7b9"},
                        "annotations": {BEHAVIOUR: behaviour},
                        "ownerReferences": [{
                            "apiVersion": embedded::UNSERVED,
                            "kind": "ReplicaSet", "name": format!("{workload}-5d4f8c7b9"),
                            "uid": format!("{namespace}-{workload}"), "controller": true,
                        }],
                    },
                    "spec": {"containers": [{"name": "c", "image": image}]},
                });
                if let Some(node) = node {
                    pod["spec"]["nodeName"] = json!(node);
                }
                cluster.create(pod).unwrap();
            }
        }
    }
}

async fn five(cluster: &Cluster, wire: &Wire) -> App {
    let specs = plugins::FIVE.into_iter().map(|name| plugins::sample(name).unwrap()).collect();
    embedded::host(cluster, wire.client(), specs).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_five_plugins_write_nothing_on_unchanged_pods() {
    let pace = Pace { back_off: Duration::from_secs(1), ..Pace::default() };
    let cluster = Cluster::start(Options { pace, ..Options::default() }).unwrap();
    populate(&cluster);
    let wire = Wire::new(&cluster);
    let app = five(&cluster, &wire).await;
    tokio::time::sleep(Duration::from_secs(90)).await;
    cluster.simulation().pause();
    embedded::at_rest(&cluster, &app).await.unwrap();
    for (id, status) in app.status().plugins() {
        let idle = &*id.name == "pod-ttl";
        assert!(status.runs() > 0 && (idle || status.writes_applied() > 0), "{id} has had something to do: {status:?}");
        assert_eq!(status.failures(), Default::default(), "{id}: {status:?}");
    }

    cluster.requests().clear();
    tokio::time::sleep(STRETCH).await;
    let writes = cluster.requests().writes();
    assert!(writes.is_empty(), "{} writes on unchanged Pods: {writes:#?}", writes.len());
    assert!(cluster.requests().count(|request| request.verb == podium_devcluster::Verb::Watch) > 1, "it is watching");
    app.shutdown().await;

    let restarted = Wire::new(&cluster);
    let app = five(&cluster, &restarted).await;
    embedded::at_rest(&cluster, &app).await.unwrap();
    tokio::time::sleep(STRETCH).await;
    assert!(app.status().plugins().iter().all(|(_, status)| status.runs() > 0), "every plugin looked at the Pods");
    assert_eq!(restarted.writes(), []);
    let writes = cluster.requests().writes();
    assert!(writes.is_empty(), "{} writes by the restart: {writes:#?}", writes.len());
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_offers_nothing_but_pods_is_enough() {
    let cluster = Cluster::start(Options { only: vec!["pods".into()], ..Options::default() }).unwrap();
    populate(&cluster);
    let wire = Wire::new(&cluster);
    let app = five(&cluster, &wire).await;
    embedded::at_rest(&cluster, &app).await.unwrap();
    let pods = embedded::pods(&cluster, Some("shop"));
    let cart = pods.get("cart-5d4f8c7b9-0").await.unwrap();
    assert_eq!(cart.metadata.labels.unwrap()["podium.dev/workload"], "cart");
    assert!(wire.writes().iter().any(|sent| sent.uri.contains("/events")), "Events were tried");
    for (id, status) in app.status().plugins() {
        assert_eq!(status.failures(), Default::default(), "{id}: {status:?}");
    }
    app.shutdown().await;
}
