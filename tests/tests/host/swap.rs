//! Plugins that come and go while events arrive.

use std::time::Duration;

use podium_devcluster::{Cluster, Options};
use podium_host::model::PluginSpec;
use podium_tests::{embedded, plugins, wire::Wire};

const PODS: usize = 25;

fn labelling(label: &str) -> PluginSpec {
    plugins::guest("registrar", "registrar", &format!("  config: {{ label: guests.example/{label} }}")).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_plugin_swapped_under_events_loses_no_pod_and_never_runs_twice_at_once_on_one() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    // Writes take so long that a swap comes in the middle of runs.
    cluster.faults().delay(Duration::from_millis(20));
    let wire = Wire::new(&cluster);
    let app = embedded::host(&cluster, wire.client(), vec![labelling("v0")]).await.unwrap();
    let mut uids = Vec::new();
    for index in 0..PODS {
        uids.push(embedded::create_pod(&cluster, &format!("cart-{index}"), "cart").unwrap());
        if index % 5 == 0 {
            app.load(labelling(&format!("v{}", 1 + index / 5))).await.unwrap();
        }
    }
    embedded::at_rest(&cluster, &app).await.unwrap();
    for (index, uid) in uids.iter().enumerate() {
        let label = embedded::label(&cluster, &format!("cart-{index}"), "guests.example/v5").await.unwrap();
        assert_eq!(label.as_ref(), Some(uid), "cart-{index} was run by the plugin that was loaded last");
    }
    assert!(!wire.overlapped(), "two runs of one plugin on one Pod at the same time");
    let status = app.status().plugin(&labelling("v0").id);
    assert_eq!(status.failures(), Default::default());
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_component_swapped_for_one_that_is_refused_leaves_the_old_one_running() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    let wire = Wire::new(&cluster);
    let app = embedded::host(&cluster, wire.client(), vec![labelling("v0")]).await.unwrap();
    let mut greedy = plugins::guest("overreach", "registrar", "").unwrap();
    greedy.config = labelling("v1").config;
    let error = app.load(greedy).await.unwrap_err();
    assert!(format!("{error:#}").contains("imports more than it is granted"), "{error:#}");
    let uid = embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    assert_eq!(embedded::label(&cluster, "cart-0", "guests.example/v0").await.unwrap(), Some(uid));
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_plugin_unloaded_runs_no_more_and_one_loaded_again_begins_with_every_pod() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    let wire = Wire::new(&cluster);
    let app = embedded::host(&cluster, wire.client(), vec![labelling("v0")]).await.unwrap();
    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    assert_eq!(wire.writes().len(), 1);

    let id = labelling("v0").id;
    assert!(app.unload(&id).await);
    assert!(!app.unload(&id).await, "it was there once");
    let uid = embedded::create_pod(&cluster, "cart-1", "cart").unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(wire.writes().len(), 1);
    assert!(app.status().plugins().is_empty());

    app.load(labelling("v0")).await.unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    assert_eq!(embedded::label(&cluster, "cart-1", "guests.example/v0").await.unwrap(), Some(uid));
    assert_eq!(wire.writes().len(), 2, "the first Pod has its label already");
    app.shutdown().await;
}
