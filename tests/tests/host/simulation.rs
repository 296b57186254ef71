//! The same seed leads to the same history of a simulated cluster and host.

use std::time::Duration;

use podium_devcluster::{BEHAVIOUR, Cluster, Options, Pace};
use podium_tests::{
    embedded, plugins,
    wire::{Sent, Wire},
};
use serde_json::json;

/// Returns the writes of a simulated day, in the order in which they were sent.
async fn history(seed: u64) -> Vec<Sent> {
    let pace = Pace { back_off: Duration::from_secs(1), ..Pace::default() };
    let cluster = Cluster::start(Options { seed, pace, ..Options::default() }).unwrap();
    cluster.faults().delay(Duration::from_millis(2));
    let wire = Wire::new(&cluster);
    let mut specs: Vec<_> = plugins::FIVE.into_iter().map(|name| plugins::sample(name).unwrap()).collect();
    specs.push(plugins::guest("registrar", "registrar", "").unwrap());
    specs.push(plugins::guest("spin", "spin", "").unwrap());
    let app = embedded::host(&cluster, wire.client(), specs).await.unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    for (index, behaviour) in ["", "crash", "oom", "finish", "fail", ""].into_iter().cycle().take(30).enumerate() {
        let workload = format!("cart-{}", index % 6);
        cluster
            .create(json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": format!("{workload}-{index}"), "annotations": {BEHAVIOUR: behaviour},
                    "ownerReferences": [{
                        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": workload, "uid": workload,
                        "controller": true,
                    }],
                },
                "spec": {"containers": [{"name": "c", "image": "registry.example/c"}]},
            }))
            .unwrap();
    }
    for round in 0..3 {
        tokio::time::sleep(Duration::from_secs(20)).await;
        cluster.faults().disconnect_watches();
        embedded::delete_pod(&cluster, &format!("cart-0-{}", round * 6)).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    app.shutdown().await;
    wire.writes()
}

fn simulated(seed: u64) -> Vec<Sent> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(history(seed))
}

#[test]
fn the_same_seed_causes_the_same_writes_in_the_same_order() {
    let first = simulated(11);
    assert!(first.len() > 50, "{} writes are not much of a history", first.len());
    for again in 0..2 {
        let second = simulated(11);
        let apart = first.iter().zip(&second).position(|(one, other)| one != other);
        if let Some(at) = apart {
            panic!("run {again}: write {at} of {} was {:#?}, then {:#?}", first.len(), first[at], second[at]);
        }
        assert_eq!(first.len(), second.len());
    }
}
