//! Deletions while the host is down, with a journal: after a restart they are delivered to the concerned plugins
//! until they have settled.

use std::{collections::BTreeSet, time::Duration};

use podium_devcluster::{Cluster, Options};
use podium_engine::journal;
use podium_host::app::App;
use podium_tests::{
    embedded, plugins,
    wire::{Sent, Wire},
};
use podium_vocabulary::{PluginId, PluginSpec};
use tempfile::TempDir;
use tokio::sync::watch;

/// A cluster, and everything that outlives a host.
pub(super) struct Scene {
    pub(super) cluster: Cluster,
    state: TempDir,
    /// The uid of the Pod on which the plugins record deletions.
    register: String,
}

impl Scene {
    pub(super) fn new() -> Self {
        let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
        let register = embedded::create_pod(&cluster, "register", "register").unwrap();
        Self { cluster, state: tempfile::tempdir().unwrap(), register }
    }

    /// Creates Pods and returns their uids, in the order of their numbers.
    pub(super) fn pods(&self, number: usize) -> Vec<String> {
        let create = |index| embedded::create_pod(&self.cluster, &format!("cart-{index}"), "cart").unwrap();
        (0..number).map(create).collect()
    }

    pub(super) async fn delete(&self, names: impl IntoIterator<Item = usize>) {
        for index in names {
            embedded::delete_pod(&self.cluster, &format!("cart-{index}")).await.unwrap();
        }
    }

    /// Returns a plugin that records each deletion on the register.
    pub(super) fn registrar(&self, name: &str, more: &str) -> PluginSpec {
        let config = format!("  config: {{ register: {}, label: guests.example/{name} }}\n{more}", self.register);
        plugins::guest("registrar", name, &config).unwrap()
    }

    pub(super) async fn host(&self, plugins: Vec<PluginSpec>) -> App {
        let (app, _) = self.host_and_wire(plugins).await;
        app
    }

    pub(super) async fn host_and_wire(&self, plugins: Vec<PluginSpec>) -> (App, Wire) {
        let wire = Wire::new(&self.cluster);
        let app = self.start(&wire, plugins).await;
        embedded::at_rest(&self.cluster, &app).await.unwrap();
        (app, wire)
    }

    pub(super) async fn start(&self, wire: &Wire, plugins: Vec<PluginSpec>) -> App {
        let journal = journal::open(self.state.path(), u64::try_from(self.cluster.now_millis()).unwrap()).unwrap();
        let options =
            podium_host::app::Options { journal: Some(journal), ..embedded::options(&self.cluster, wire.client()) };
        let app = App::start_simulated(options).await.unwrap();
        for spec in plugins {
            app.load(spec).await.unwrap();
        }
        app.started();
        app
    }

    /// Returns the uids of the recorded deletions.
    pub(super) async fn noted(&self) -> BTreeSet<String> {
        let annotations = embedded::annotations(&self.cluster, "register").await.unwrap();
        annotations.keys().filter_map(|key| key.strip_prefix("guests.example/deleted-")).map(str::to_owned).collect()
    }
}

pub(super) fn set(uids: &[String]) -> BTreeSet<String> {
    uids.iter().cloned().collect()
}

fn runs(app: &App, name: &str) -> u64 {
    app.status().plugin(&PluginId { namespace: None, name: name.into() }).runs()
}

#[tokio::test(start_paused = true)]
async fn deletions_while_the_host_is_down_are_delivered_once() {
    let scene = Scene::new();
    let uids = scene.pods(20);
    let app = scene.host(vec![scene.registrar("one", "")]).await;
    app.shutdown().await;
    scene.delete(0..20).await;
    let app = scene.host(vec![scene.registrar("one", "")]).await;
    assert_eq!(scene.noted().await, set(&uids));
    assert_eq!(runs(&app, "one"), 21, "20 deletions and the register");
    app.shutdown().await;

    let (app, wire) = scene.host_and_wire(vec![scene.registrar("one", "")]).await;
    assert_eq!((runs(&app, "one"), wire.writes().len()), (1, 0), "only the register is left");
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_delivered_to_the_plugins_that_ran_on_the_pod() {
    let scene = Scene::new();
    scene.pods(3);
    // Not woken by each other's labels.
    let all = "  watch: { sections: [lifecycle] }";
    let none = "  watch: { sections: [lifecycle], selector: { matchLabels: { app: none } } }";
    let plugins = || vec![scene.registrar("one", all), scene.registrar("two", all), scene.registrar("never", none)];
    let app = scene.host(plugins()).await;
    app.shutdown().await;
    scene.delete([1]).await;
    let mut plugins = plugins();
    plugins.push(scene.registrar("later", all));
    let app = scene.host(plugins).await;
    let present = 3;
    for (plugin, wanted) in [("one", present + 1), ("two", present + 1), ("never", 0), ("later", present)] {
        assert_eq!(runs(&app, plugin), wanted, "{plugin}");
    }
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_during_downtime_precedes_the_new_incarnation() {
    for listed_first in [true, false] {
        let scene = Scene::new();
        let old = scene.pods(8);
        let app = scene.host(vec![scene.registrar("one", "")]).await;
        app.shutdown().await;
        scene.delete(0..8).await;
        let new = scene.pods(8);
        let listing = watch::Sender::new(listed_first);
        let may_list = listing.subscribe();
        let wire = Wire::with(&scene.cluster, move |sent| {
            let (read, mut may_list) = (!sent.is_write(), may_list.clone());
            Box::pin(async move {
                if read {
                    may_list.wait_for(|may| *may).await.unwrap();
                }
            })
        });
        let app = scene.start(&wire, Vec::new()).await;
        if listed_first {
            embedded::at_rest(&scene.cluster, &app).await.unwrap();
        }
        app.load(scene.registrar("one", "")).await.unwrap();
        listing.send_replace(true);
        embedded::at_rest(&scene.cluster, &app).await.unwrap();

        assert_eq!(scene.noted().await, set(&old));
        // For each name the record of the deletion comes before the label.
        let writes = wire.writes();
        let position = |part: &str| writes.iter().position(|write: &Sent| write.body.contains(part)).unwrap();
        for (old, new) in old.iter().zip(&new) {
            let (delivered, looked_at) = (format!("deleted-{old}"), format!(r#""guests.example/one":"{new}""#));
            assert!(position(&delivered) < position(&looked_at), "{old} {new}, listed first: {listed_first}");
        }
        app.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_deletion_is_delivered_after_restarts_until_settled() {
    let scene = Scene::new();
    let uids = scene.pods(2);
    let app = scene.host(vec![scene.registrar("one", "")]).await;
    app.shutdown().await;
    scene.delete([0, 1]).await;
    // The same plugin in a version that panics.
    for _ in 0..2 {
        let broken = plugins::guest("panics", "one", "").unwrap();
        let app = scene.host(vec![broken]).await;
        assert!(runs(&app, "one") >= 3);
        assert!(scene.noted().await.is_empty());
        app.shutdown().await;
    }
    let app = scene.host(vec![scene.registrar("one", "")]).await;
    assert_eq!(scene.noted().await, set(&uids));
    app.shutdown().await;
    let app = scene.host(vec![scene.registrar("one", "")]).await;
    assert_eq!(runs(&app, "one"), 1, "the register");
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_unsettled_deletion_is_delivered_after_a_restart() {
    let scene = Scene::new();
    let uids = scene.pods(1);
    let broken = || plugins::guest("panics", "one", "").unwrap();
    let app = scene.host(vec![broken()]).await;
    scene.delete([0]).await;
    embedded::at_rest(&scene.cluster, &app).await.unwrap();
    app.shutdown().await;
    let app = scene.host(vec![scene.registrar("one", "")]).await;
    assert_eq!(scene.noted().await, set(&uids));
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_is_loaded_late_gets_the_deletions_before() {
    let scene = Scene::new();
    let uids = scene.pods(3);
    let app = scene.host(vec![scene.registrar("one", "")]).await;
    app.shutdown().await;
    scene.delete([0]).await;

    let app = scene.host(Vec::new()).await;
    scene.delete([1]).await;
    embedded::at_rest(&scene.cluster, &app).await.unwrap();
    app.load(scene.registrar("one", "")).await.unwrap();
    embedded::at_rest(&scene.cluster, &app).await.unwrap();
    assert_eq!(scene.noted().await, set(&uids[..2]));

    assert!(app.unload(&scene.registrar("one", "").id).await);
    scene.delete([2]).await;
    embedded::at_rest(&scene.cluster, &app).await.unwrap();
    assert_eq!(scene.noted().await.len(), 2);
    app.load(scene.registrar("one", "")).await.unwrap();
    embedded::at_rest(&scene.cluster, &app).await.unwrap();
    assert_eq!(scene.noted().await, set(&uids));
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_delivered_although_the_pod_left_the_selector() {
    let scene = Scene::new();
    let uids = scene.pods(1);
    let carts = "  watch: { selector: { matchLabels: { app: cart } } }";
    let app = scene.host(vec![scene.registrar("one", carts)]).await;
    let relabel = serde_json::json!({"metadata": {"labels": {"app": "other"}}});
    let pods = embedded::pods(&scene.cluster, Some("default"));
    pods.patch("cart-0", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(relabel)).await.unwrap();
    embedded::at_rest(&scene.cluster, &app).await.unwrap();
    scene.delete([0]).await;
    embedded::at_rest(&scene.cluster, &app).await.unwrap();
    assert_eq!(scene.noted().await, set(&uids));
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_host_of_one_namespace_reports_no_pods_of_others_as_gone() {
    let scene = Scene::new();
    scene.pods(3);
    let app = scene.host(vec![scene.registrar("one", "")]).await;
    app.shutdown().await;
    let wire = Wire::new(&scene.cluster);
    let journal = journal::open(scene.state.path(), 0).unwrap();
    let options = podium_host::app::Options {
        namespace: Some("kube-system".to_owned()),
        journal: Some(journal),
        ..embedded::options(&scene.cluster, wire.client())
    };
    let app = App::start_simulated(options).await.unwrap();
    app.load(scene.registrar("one", "")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(app.unready().is_none(), "the list came");
    assert_eq!(runs(&app, "one"), 0);
    app.shutdown().await;
}

/// Returns the writes of a host that is started, stopped and started again on a journal.
async fn history() -> Vec<Sent> {
    let scene = Scene::new();
    scene.pods(12);
    let plugins = || vec![scene.registrar("one", ""), scene.registrar("two", "")];
    let (app, first) = scene.host_and_wire(plugins()).await;
    app.shutdown().await;
    scene.delete(3..9).await;
    let (app, second) = scene.host_and_wire(plugins()).await;
    app.shutdown().await;
    [first.writes(), second.writes()].concat()
}

#[test]
fn a_simulated_host_with_a_journal_is_reproducible() {
    let simulated = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(history())
    };
    let first = simulated();
    assert!(first.len() > 30, "{} writes are not much of a history", first.len());
    assert_eq!(first, simulated());
}

#[tokio::test(start_paused = true)]
async fn the_state_of_another_cluster_is_refused_before_it_is_used() {
    let mut scene = Scene::new();
    scene.pods(10);
    scene.host(vec![scene.registrar("one", "")]).await.shutdown().await;
    let other = Cluster::start(Options { simulate: false, seed: 99, ..Options::default() }).unwrap();
    embedded::create_pod(&other, "register", "register").unwrap();
    for index in 0..30 {
        embedded::create_pod(&other, &format!("cart-{index}"), "cart").unwrap();
    }
    scene.cluster = other;
    let wire = Wire::new(&scene.cluster);
    let mut app = scene.start(&wire, vec![scene.registrar("one", "")]).await;
    let error = tokio::time::timeout(Duration::from_secs(600), app.failed()).await.unwrap();
    assert!(error.is::<journal::OtherCluster>(), "{error:#}");
    assert_eq!((wire.writes().len(), app.reader().snapshot().len()), (0, 0));
    app.shutdown().await;
}
