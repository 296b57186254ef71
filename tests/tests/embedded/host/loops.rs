//! Plugins that write without end, by themselves, against each other, against another client and without a right; and
//! those of the samples, which are not slowed.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use podium_devcluster::{Cluster, Options, Pace, Verb};
use podium_host::app::App;
use podium_tests::{embedded, plugins, sandbox, wait::until, wire::Wire};
use podium_vocabulary::{LimitClass, PluginId, PluginSpec};
use serde_json::json;

const WATCH: &str = "  watch: { selector: { matchLabels: { app: cart } }, sections: [labels] }";
const KEY: &str = "guests.example/x";

/// A plugin that makes the host calls of a script.
fn probe(name: &str, script: &str, more: &str) -> PluginSpec {
    let mut spec = plugins::guest("probe", name, &format!("{WATCH}\n{more}")).unwrap();
    spec.limits.class = LimitClass::Interpreter;
    spec.grants = sandbox::everything();
    spec.config = json!(script).to_string().into();
    spec
}

struct Bench {
    cluster: Cluster,
    app: App,
    plugins: Vec<PluginId>,
}

impl Bench {
    async fn new(pods: usize, plugins: Vec<PluginSpec>) -> Self {
        let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
        for index in 0..pods {
            embedded::create_pod(&cluster, &format!("cart-{index}"), "cart").unwrap();
        }
        let ids = plugins.iter().map(|spec| spec.id.clone()).collect();
        let wire = Wire::new(&cluster);
        let app = embedded::host(&cluster, wire.client(), plugins).await.unwrap();
        Self { cluster, app, plugins: ids }
    }

    /// Returns how many patches of Pods the host sends within the next seconds.
    async fn patches_within(&self, seconds: u64) -> usize {
        let count =
            || self.cluster.requests().count(|sent| sent.verb == Verb::Patch && sent.user_agent.contains("podium"));
        let before = count();
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        count() - before
    }

    fn loops(&self) -> Vec<String> {
        let of = |id: &PluginId| self.app.status().plugin(id).loops().into_keys().map(|(_, by)| by).collect::<Vec<_>>();
        self.plugins.iter().flat_map(of).collect()
    }

    /// Returns the messages of the Events of this reason.
    fn events(&self, reason: &str) -> Vec<String> {
        let (_, events) = self.cluster.list("events");
        let of = events.into_iter().filter(|event| event["reason"] == reason);
        of.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_keeps_changing_its_own_label_is_slowed() {
    let script = format!("label {KEY} 1\ncommit\nlabel {KEY} 2");
    let bench = Bench::new(1, vec![probe("flip", &script, "")]).await;
    let first = bench.patches_within(60).await;
    assert!((11..=17).contains(&first), "{first} patches in the first minute");
    let later = bench.patches_within(600).await;
    assert!((1..=12).contains(&later), "{later} patches in ten minutes");
    assert_eq!(bench.loops(), ["the plugin itself"]);
    let events = bench.events("WriteLoop");
    assert!(events.len() == 1 && events[0].contains(KEY) && events[0].contains("default/cart-0"), "{events:?}");
    bench.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn plugins_that_undo_each_other_are_slowed_and_named() {
    for names in [&["a", "b"][..], &["a", "b", "c"]] {
        let plugins = names.iter().map(|name| probe(name, &format!("label {KEY} {name}"), "")).collect();
        let bench = Bench::new(1, plugins).await;
        let first = bench.patches_within(60).await;
        let most = names.len() * 17;
        assert!((11..=most).contains(&first), "{first} patches of {names:?} in the first minute");
        let later = bench.patches_within(600).await;
        assert!(later <= names.len() * 12, "{later} patches of {names:?} in ten minutes");
        let loops = bench.loops();
        assert!(loops.iter().all(|by| names.contains(&by.as_str())), "{loops:?}");
        assert!(loops.len() >= names.len(), "{loops:?}");
        bench.app.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_fight_with_a_client_that_reverts_values_is_slowed() {
    let bench = Bench::new(1, vec![probe("mine", &format!("label {KEY} mine"), "")]).await;
    let pods = embedded::pods(&bench.cluster, Some("default"));
    let other = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let labels = pods.get("cart-0").await.unwrap().metadata.labels.unwrap();
            if labels.get(KEY).is_some_and(|value| value == "mine") {
                let patch = json!({"metadata": {"labels": {KEY: "theirs"}}});
                pods.patch("cart-0", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
            }
        }
    });
    let first = bench.patches_within(60).await;
    assert!((11..=17).contains(&first), "{first} patches in the first minute");
    assert!(bench.patches_within(600).await <= 12);
    assert_eq!(bench.loops(), ["another manager"]);
    other.abort();
    bench.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_commits_and_then_fails_keeps_its_back_off() {
    // Ten fields, so that no field gets more than ten values.
    let flips = |value: u32| (0..10).map(move |field| format!("label guests.example/f{field} {value}\n"));
    let script: String =
        flips(1).chain(["commit\n".into()]).chain(flips(2)).chain(["commit\nretry later".into()]).collect();
    let bench = Bench::new(1, vec![probe("fails", &script, "")]).await;
    let patches = bench.patches_within(10).await;
    assert!((6..=20).contains(&patches), "{patches} patches in 10 s");
    bench.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_costs_one_request_a_minute() {
    let account = "  serviceAccountName: registrar\n  serviceAccountNamespace: default";
    let bench = Bench::new(300, vec![probe("storm", &format!("label {KEY} 1"), account)]).await;
    let refused = bench.patches_within(60).await;
    assert!((5..=14).contains(&refused), "{refused} refused patches in a minute");
    let later = bench.patches_within(300).await;
    assert!((4..=8).contains(&later), "{later} refused patches in five minutes");
    let status = bench.app.status().plugin(&bench.plugins[0]);
    assert!((10..=16).contains(&status.closings.get()), "{} closings", status.closings.get());

    let (group, metadata) = ("rbac.authorization.k8s.io", json!({"name": "patch", "namespace": "default"}));
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]}]);
    let role = json!({"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata, "rules": rules});
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "patch"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "registrar"}],
    });
    bench.cluster.create(role).unwrap();
    bench.cluster.create(binding).unwrap();
    until("all labels", Duration::from_secs(150), async || {
        let applied = status.writes_applied();
        anyhow::ensure!(applied == 300, "{applied} labels");
        Ok(())
    })
    .await
    .unwrap();
    bench.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_rollout_and_a_resync_do_not_slow_the_sample_plugins() {
    let pace = Pace { back_off: Duration::from_secs(1), ..Pace::default() };
    let cluster = Cluster::start(Options { pace, ..Options::default() }).unwrap();
    let specs = plugins::FIVE.into_iter().map(|name| {
        let mut spec = plugins::sample(name).unwrap();
        spec.watch.resync = Some(Duration::from_secs(20));
        spec
    });
    let wire = Wire::new(&cluster);
    let app = embedded::host(&cluster, wire.client(), specs.collect()).await.unwrap();
    cluster.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})).unwrap();
    for index in 0..300 {
        let owner = json!({
            "apiVersion": embedded::UNSERVED,
            "kind": "ReplicaSet", "name": "cart-5d4f8c7b9", "uid": "cart", "controller": true,
        });
        let metadata = json!({
            "namespace": "shop", "name": format!("cart-5d4f8c7b9-{index}"), "ownerReferences": [owner],
            "labels": {"app": "cart", "pod-template-hash": "5d4f8c7b9"},
        });
        let spec = json!({"containers": [{"name": "c", "image": "registry.example/cart:1"}]});
        cluster.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})).unwrap();
    }
    tokio::time::sleep(Duration::from_secs(90)).await;
    let plugins = app.status().plugins();
    assert!(plugins.iter().any(|(_, status)| status.writes_applied() >= 300));
    for (id, status) in plugins {
        // One of them runs for the workload, at most once in ten seconds.
        let least = if &*id.name == "spread-guard" { 4 } else { 300 };
        assert!(status.runs() > least, "{id}: {} runs", status.runs());
        assert_eq!((status.loops().len(), status.writes_withheld.get()), (0, 0), "{id}");
    }
    app.shutdown().await;
}
