//! Plugins that are loaded and unloaded while events arrive.

use std::{fs, time::Duration};

use anyhow::ensure;
use podium_devcluster::{Cluster, Options};
use podium_engine::status::LoadState;
use podium_host::app::App;
use podium_tests::{embedded, plugins, sandbox, wait::until, wire::Wire};
use podium_vocabulary::{LimitClass, PluginSpec, Source};

const PODS: usize = 25;

fn labelling(label: &str) -> PluginSpec {
    plugins::guest("registrar", "registrar", &format!("  config: {{ label: guests.example/{label} }}")).unwrap()
}

/// Returns the load state of the only plugin, and whether it runs.
fn state(app: &App) -> (LoadState, bool) {
    let [state] = &app.plugins()[..] else { unreachable!("{:?}", app.plugins()) };
    (state.load.clone(), state.runs)
}

#[tokio::test(start_paused = true)]
async fn a_replaced_plugin_misses_no_pod_and_never_runs_twice_at_once() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    // Writes are slow, so that a replacement happens during runs.
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
async fn a_component_swapped_for_a_refused_one_keeps_running() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    let wire = Wire::new(&cluster);
    let app = embedded::host(&cluster, wire.client(), vec![labelling("v0")]).await.unwrap();
    let mut greedy = plugins::guest("overreach", "registrar", "").unwrap();
    greedy.config = labelling("v1").config;
    let error = app.load(greedy).await.unwrap_err();
    assert!(format!("{error:#}").contains("imports more than it is granted"), "{error:#}");
    let (LoadState::Refused { reason }, true) = state(&app) else { unreachable!("{:?}", app.plugins()) };
    assert!(reason.contains("imports more than it is granted"), "{reason}");
    let uid = embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    assert_eq!(embedded::label(&cluster, "cart-0", "guests.example/v0").await.unwrap(), Some(uid));
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_unloaded_plugin_never_runs_again_and_a_loaded_one_does() {
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

#[tokio::test(start_paused = true)]
async fn granting_less_than_the_imports_stops_the_running_version() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    let wire = Wire::new(&cluster);
    let app = embedded::host(&cluster, wire.client(), vec![labelling("v0")]).await.unwrap();
    assert_eq!(state(&app), (LoadState::Loaded, true));
    let mut revoked = labelling("v1");
    revoked.grants.write.labels.clear();
    app.load(revoked).await.unwrap_err();
    let (LoadState::Refused { reason }, false) = state(&app) else { unreachable!("{:?}", app.plugins()) };
    assert!(reason.contains("needs grants.write.labels"), "{reason}");
    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    assert!(wire.writes().is_empty(), "an earlier grant does not hold any more");

    app.load(labelling("v2")).await.unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    assert_eq!((state(&app), wire.writes().len()), ((LoadState::Loaded, true), 1));
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_component_is_not_retried_and_a_missing_one_is() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    let wire = Wire::new(&cluster);
    let app = embedded::host(&cluster, wire.client(), Vec::new()).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut late = labelling("v0");
    let component = late.source.path().into_owned();
    let file = directory.path().join("late.wasm");
    late.source = Source::File(file.clone());
    app.load(late.clone()).await.unwrap_err();
    let (LoadState::Waiting { reason, attempts: 1 }, false) = state(&app) else { unreachable!("{:?}", app.plugins()) };
    assert!(reason.contains("late.wasm cannot be read: No such file"), "{reason}");
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let (LoadState::Waiting { attempts, .. }, false) = state(&app) else { unreachable!("{:?}", app.plugins()) };
    assert!((10..30).contains(&attempts), "with back-off: {attempts} attempts in an hour");

    fs::copy(&component, &file).unwrap();
    until("the plugin to be loaded", Duration::from_secs(301), async || {
        ensure!(state(&app) == (LoadState::Loaded, true), "{:?}", app.plugins());
        Ok(())
    })
    .await
    .unwrap();

    assert!(app.unload(&late.id).await);
    assert!(app.plugins().is_empty());
    fs::write(&file, "no component").unwrap();
    app.load(late.clone()).await.unwrap_err();
    fs::copy(&component, &file).unwrap();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let (LoadState::Refused { reason }, false) = state(&app) else { unreachable!("{:?}", app.plugins()) };
    assert!(reason.contains("not a WebAssembly component"), "{reason}");
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_waits_for_its_component_can_be_unloaded() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    let wire = Wire::new(&cluster);
    let app = embedded::host(&cluster, wire.client(), Vec::new()).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut late = labelling("v0");
    let component = late.source.path().into_owned();
    let file = directory.path().join("late.wasm");
    late.source = Source::File(file.clone());
    app.load(late.clone()).await.unwrap_err();
    assert!(app.unload(&late.id).await);
    fs::copy(&component, &file).unwrap();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert!(app.plugins().is_empty() && app.status().plugins().is_empty());
    app.shutdown().await;
}

/// A plugin that makes these host calls in each run.
fn scripted(script: &str) -> PluginSpec {
    let mut spec = plugins::guest("probe", "scripted", "").unwrap();
    (spec.limits.class, spec.grants) = (LimitClass::Interpreter, sandbox::everything());
    spec.config = serde_json::json!(script).to_string().into();
    spec
}

#[tokio::test(start_paused = true)]
async fn a_version_that_traps_when_it_is_tried_leaves_no_trace() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    let wire = Wire::new(&cluster);
    let app = embedded::host(&cluster, wire.client(), vec![scripted("state-put k 3\nlabel guests.example/v one")]);
    let app = app.await.unwrap();
    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    assert_eq!(wire.writes().len(), 1);

    // The script ends with a panic.
    let traps = scripted("state-put k 5\nlabel guests.example/v two\nrequeue soon");
    let error = app.load(traps).await.unwrap_err();
    let expected = "the new version failed when it was tried on pod default/cart-0, reason trap";
    assert!(format!("{error:#}").contains(expected), "{error:#}");
    let (LoadState::Refused { reason }, true) = state(&app) else { unreachable!("{:?}", app.plugins()) };
    assert!(reason.contains(expected), "{reason}");
    embedded::at_rest(&cluster, &app).await.unwrap();
    assert_eq!(wire.writes().len(), 1, "nothing of a probe is written");

    app.load(scripted("state-label guests.example/k k")).await.unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    let stored = embedded::label(&cluster, "cart-0", "guests.example/k").await.unwrap();
    assert_eq!(stored.as_deref(), Some("3"), "bytes of the state");
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_version_that_traps_behind_its_commit_is_rolled_back() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    let wire = Wire::new(&cluster);
    let one = scripted("label guests.example/v one");
    let app = embedded::host(&cluster, wire.client(), vec![one.clone()]).await.unwrap();
    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();

    // A probe ends at the commit.
    app.load(scripted("label guests.example/v two\ncommit\nrequeue soon")).await.unwrap();
    until("the version before to come back", Duration::from_secs(30), async || {
        let (LoadState::Refused { reason }, true) = state(&app) else { anyhow::bail!("{:?}", app.plugins()) };
        ensure!(reason.contains("failed in one of its first runs, on pod default/cart-0, reason trap"), "{reason}");
        Ok(())
    })
    .await
    .unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    assert_eq!(embedded::label(&cluster, "cart-0", "guests.example/v").await.unwrap().as_deref(), Some("one"));
    let writes = wire.writes().len();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(wire.writes().len(), writes, "it is not tried again");
    assert!(!wire.overlapped());
    app.shutdown().await;
}
