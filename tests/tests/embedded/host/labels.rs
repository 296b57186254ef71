//! Concurrent writes of several plugins, several runs and several hosts to one Pod.

use podium_devcluster::{Cluster, Options};
use podium_tests::{embedded, plugins, wire::Wire};

const LABELS: [&str; 3] = ["guests.example/a", "guests.example/b", "guests.example/c"];

fn labelling(plugin: &str, label: &str) -> podium_vocabulary::PluginSpec {
    plugins::guest("registrar", plugin, &format!("  config: {{ label: {label} }}")).unwrap()
}

async fn labels(cluster: &Cluster) -> Vec<Option<String>> {
    let mut found = Vec::new();
    for label in LABELS {
        found.push(embedded::label(cluster, "cart-0", label).await.unwrap());
    }
    found
}

#[tokio::test(start_paused = true)]
async fn labels_of_several_plugins_and_runs_stay_across_a_restart() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    let uid = embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    let all = vec![Some(uid.clone()), Some(uid.clone()), Some(uid)];

    let wire = Wire::new(&cluster);
    let first = vec![labelling("one", LABELS[0]), labelling("two", LABELS[2])];
    let app = embedded::host(&cluster, wire.client(), first).await.unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    // The same plugin, and so the same field manager, no longer sets its first label.
    app.load(labelling("one", LABELS[1])).await.unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    assert_eq!(labels(&cluster).await, all);
    app.shutdown().await;

    let restarted = Wire::new(&cluster);
    let second = vec![labelling("one", LABELS[1]), labelling("two", LABELS[2])];
    let app = embedded::host(&cluster, restarted.client(), second).await.unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    assert_eq!(labels(&cluster).await, all);
    assert_eq!(wire.writes().len(), 3, "one request for each label");
    assert_eq!(restarted.writes(), [], "nothing was left to do after the restart");
    app.shutdown().await;
    cluster.shutdown().await;
}
