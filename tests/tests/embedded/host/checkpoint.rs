//! Starts from a checkpoint: only the changes while the host was down are requested and handled.

use std::time::Duration;

use podium_devcluster::{Cluster, Options, Verb};
use podium_engine::journal::OtherCluster;
use podium_host::app::App;
use podium_tests::{embedded, wire::Wire};

use super::journal::{CHECKPOINT, Scene, set};

/// Longer than any timeout of a watch.
const MINUTE: Duration = Duration::from_secs(60);

/// Returns the number of lists of all Pods since the log was cleared.
fn lists(cluster: &Cluster) -> usize {
    cluster.requests().count(|request| {
        let paged = request.verb == Verb::List && request.query.contains("limit=500");
        request.query.contains("sendInitialEvents") || paged
    })
}

/// Returns ten Pods on which the plugin has run, and the host that ran it.
async fn begun() -> (Scene, Vec<String>, App) {
    let scene = Scene::new();
    let uids = scene.pods(10);
    scene.cluster.requests().clear();
    let app = scene.host(vec![scene.registrar("one", "")]).await;
    assert_eq!(lists(&scene.cluster), 1);
    scene.cluster.requests().clear();
    (scene, uids, app)
}

/// Changes 10 Pods: deletes three, recreates one, creates one.
async fn change(scene: &Scene) -> [String; 2] {
    scene.delete(0..4).await;
    ["cart-3", "cart-new"].map(|name| embedded::create_pod(&scene.cluster, name, "cart").unwrap())
}

async fn assert_plugins_know_the_changes(scene: &Scene, app: &App, gone: &[String], fresh: &[String; 2]) {
    embedded::at_rest(&scene.cluster, app).await.unwrap();
    assert_eq!(scene.noted().await, set(gone));
    for (name, uid) in ["cart-3", "cart-new"].iter().zip(fresh) {
        let seen = embedded::label(&scene.cluster, name, "guests.example/one").await.unwrap();
        assert_eq!(seen.as_ref(), Some(uid), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_requests_changes_instead_of_all_pods() {
    let (scene, uids, app) = begun().await;
    app.shutdown().await;
    let fresh = change(&scene).await;
    let app = scene.host(vec![scene.registrar("one", "")]).await;
    assert_plugins_know_the_changes(&scene, &app, &uids[..4], &fresh).await;
    tokio::time::sleep(MINUTE).await;
    assert_eq!(lists(&scene.cluster), 0);
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_killed_goes_on_from_its_last_checkpoint() {
    let (scene, uids, app) = begun().await;
    tokio::time::sleep(CHECKPOINT).await;
    // Seen, but not saved.
    scene.delete(9..10).await;
    embedded::at_rest(&scene.cluster, &app).await.unwrap();
    drop(app);
    let fresh = change(&scene).await;
    scene.cluster.requests().clear();
    let app = scene.host(vec![scene.registrar("one", "")]).await;
    assert_plugins_know_the_changes(&scene, &app, &[&uids[..4], &uids[9..]].concat(), &fresh).await;
    assert_eq!(lists(&scene.cluster), 0);
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn lost_history_during_downtime_costs_one_list() {
    let (scene, uids, app) = begun().await;
    app.shutdown().await;
    let fresh = change(&scene).await;
    scene.cluster.faults().compact();
    let app = scene.host(vec![scene.registrar("one", "")]).await;
    assert_plugins_know_the_changes(&scene, &app, &uids[..4], &fresh).await;
    assert_eq!(lists(&scene.cluster), 1);
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_state_of_another_cluster_is_refused_before_it_is_used() {
    let (mut scene, _, app) = begun().await;
    app.shutdown().await;
    let other = Cluster::start(Options { simulate: false, seed: 99, ..Options::default() }).unwrap();
    embedded::create_pod(&other, "register", "register").unwrap();
    for index in 0..30 {
        embedded::create_pod(&other, &format!("cart-{index}"), "cart").unwrap();
    }
    scene.cluster = other;
    let wire = Wire::new(&scene.cluster);
    let mut app = scene.start(&wire, vec![scene.registrar("one", "")]).await;
    let error = tokio::time::timeout(Duration::from_secs(600), app.failed()).await.unwrap();
    assert!(error.is::<OtherCluster>(), "{error:#}");
    assert_eq!((lists(&scene.cluster), wire.writes().len(), app.reader().snapshot().len()), (0, 0, 0));
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn starts_without_a_checkpoint_list_all_pods() {
    let (mut scene, uids, app) = begun().await;
    app.shutdown().await;
    let fresh = change(&scene).await;
    scene.warm = false;
    let app = scene.host(vec![scene.registrar("one", "")]).await;
    assert_plugins_know_the_changes(&scene, &app, &uids[..4], &fresh).await;
    assert_eq!(lists(&scene.cluster), 1);
    app.shutdown().await;
}
