//! Lost watches and compacted histories while Pods change.

use std::collections::BTreeMap;

use podium_devcluster::{Cluster, Options};
use podium_host::app::App;
use podium_tests::{embedded, plugins, wire::Wire};
use serde_json::{Value, json};
use tokio::sync::watch;

/// A host with the registrar, whose reads can be held back at a gate.
struct Scene {
    cluster: Cluster,
    app: App,
    gate: watch::Sender<bool>,
    pods: BTreeMap<String, String>,
    deleted: Vec<String>,
}

impl Scene {
    async fn start() -> Self {
        let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
        let gate = watch::Sender::new(true);
        let waiting = gate.subscribe();
        let wire = Wire::with(&cluster, move |sent| {
            let (read, mut gate) = (!sent.is_write(), waiting.clone());
            Box::pin(async move {
                if read {
                    gate.wait_for(|open| *open).await.unwrap();
                }
            })
        });
        let register = embedded::create_pod(&cluster, "register", "register").unwrap();
        let spec = plugins::guest("registrar", "registrar", &format!("  config: {{ register: {register} }}")).unwrap();
        let app = embedded::host(&cluster, wire.client(), vec![spec]).await.unwrap();
        let mut scene = Self { cluster, app, gate, pods: BTreeMap::new(), deleted: Vec::new() };
        for index in 0..10 {
            scene.create(&format!("cart-{index}"));
        }
        scene
    }

    fn create(&mut self, name: &str) {
        let uid = embedded::create_pod(&self.cluster, name, "cart").unwrap();
        assert_eq!(self.pods.insert(name.to_owned(), uid), None);
    }

    async fn delete(&mut self, name: &str) {
        embedded::delete_pod(&self.cluster, name).await.unwrap();
        self.deleted.push(self.pods.remove(name).unwrap());
    }

    /// Deletes, creates and recreates one Pod each, and removes the label of another.
    async fn change(&mut self, round: usize) {
        self.delete(&format!("cart-{round}")).await;
        self.create(&format!("new-{round}"));
        let recreated = format!("cart-{}", 9 - round);
        self.delete(&recreated).await;
        self.create(&recreated);
        let patch = json!({"metadata": {"labels": {"guests.example/seen": Value::Null}}});
        let pods = embedded::pods(&self.cluster, Some("default"));
        pods.patch("cart-4", &Default::default(), &kube::api::Patch::Merge(patch)).await.unwrap();
    }

    /// Checks that the cache equals the cluster's list, that every Pod has its own label, and that the plugin received
    /// every deletion.
    async fn check(&self) {
        embedded::at_rest(&self.cluster, &self.app).await.unwrap();
        for (name, uid) in &self.pods {
            let label = embedded::label(&self.cluster, name, "guests.example/seen").await.unwrap();
            assert_eq!(label.as_ref(), Some(uid), "{name}");
        }
        let mut reported = self.deleted.clone();
        reported.sort();
        let notes = embedded::annotations(&self.cluster, "register").await.unwrap();
        assert_eq!(
            notes.into_values().collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>(),
            reported
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_loses_no_change() {
    let mut scene = Scene::start().await;
    scene.check().await;
    for round in 0..3 {
        scene.gate.send_replace(false);
        scene.cluster.faults().disconnect_watches();
        scene.change(round).await;
        scene.gate.send_replace(true);
        scene.check().await;
    }
    scene.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_history_loses_no_change_and_no_deletion() {
    let mut scene = Scene::start().await;
    scene.check().await;
    for round in 0..3 {
        scene.gate.send_replace(false);
        scene.cluster.faults().disconnect_watches();
        scene.change(round).await;
        scene.cluster.faults().compact();
        scene.gate.send_replace(true);
        scene.check().await;
    }
    scene.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn repeated_connection_losses_during_changes_lose_nothing() {
    let mut scene = Scene::start().await;
    scene.cluster.faults().delay(std::time::Duration::from_millis(3));
    for round in 0..3 {
        scene.cluster.faults().disconnect_watches();
        scene.change(round).await;
        scene.cluster.faults().next_watch_gone();
        scene.cluster.faults().disconnect_watches();
        scene.create(&format!("later-{round}"));
    }
    scene.check().await;
    scene.app.shutdown().await;
}
