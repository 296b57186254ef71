//! Pruned annotations: no plugin sees them or is woken by them, and writes of them reach the API server.

use kube::api::{Patch, PatchParams};
use podium_devcluster::{Cluster, Options, Verb};
use podium_host::app::{App, Options as HostOptions};
use podium_pods::pod::PodView;
use podium_tests::{embedded, plugins, wire::Wire};
use podium_vocabulary::{PluginSpec, Prune};
use podium_wire::Section;
use serde_json::json;

const PRUNED: &str = "guests.example/pruned";
const KEPT: &str = "guests.example/kept";

/// Returns a plugin that watches annotations and makes the calls of `script` in each run.
fn plugin(script: &str) -> PluginSpec {
    let yaml = plugins::guest_yaml("probe", "probe", "  limits: { class: interpreter }");
    let yaml = yaml.unwrap().replace("sections: [labels]", "sections: [labels, annotations, full]");
    let mut spec = plugins::configured(&yaml.replace("write: { ", "write: { events: true, ")).unwrap();
    spec.config = serde_json::to_string(script).unwrap().into();
    spec
}

fn runs(app: &App) -> u64 {
    app.status().plugins()[0].1.runs()
}

#[tokio::test(start_paused = true)]
async fn plugins_do_not_see_pruned_annotations_and_writes_keep_them() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    let pods = embedded::pods(&cluster, Some("default"));
    let patch = async |patch: serde_json::Value| {
        pods.patch("cart-0", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    patch(json!({"metadata": {"annotations": {PRUNED: "theirs"}}})).await;
    let wire = Wire::new(&cluster);
    let options = HostOptions { prune: Prune::annotations([PRUNED]), ..embedded::options(&cluster, wire.client()) };
    let app = App::start_simulated(options).await.unwrap();
    app.load(plugin(&format!("annotate {KEPT} 1"))).await.unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();

    let there = embedded::annotations(&cluster, "cart-0").await.unwrap();
    assert_eq!((&*there[KEPT], &*there[PRUNED]), ("1", "theirs"), "a write of another annotation did not change it");
    let held = app.reader().snapshot().get("default", "cart-0").unwrap();
    assert_eq!(held.annotations().unwrap().keys().collect::<Vec<_>>(), [KEPT]);
    let full = held.section_bytes(Section::Full);
    assert!(!String::from_utf8_lossy(&full).contains(PRUNED), "nor in the full object");

    let before = runs(&app);
    patch(json!({"metadata": {"annotations": {PRUNED: "ours soon"}}})).await;
    embedded::at_rest(&cluster, &app).await.unwrap();
    assert_eq!(runs(&app), before, "its change woke a plugin");

    app.load(plugin(&format!("annotate {PRUNED} ours"))).await.unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    assert_eq!(embedded::annotations(&cluster, "cart-0").await.unwrap()[PRUNED], "ours");
    assert_eq!(runs(&app), before + 1, "its own write woke it");
    patch(json!({"metadata": {"labels": {"app": "till"}}})).await;
    cluster.requests().clear();
    embedded::at_rest(&cluster, &app).await.unwrap();
    assert_eq!(runs(&app), before + 2);
    assert_eq!(cluster.requests().count(|request| request.verb == Verb::Patch), 1, "one request a run, and no more");

    app.load(plugin(&format!("unannotate {PRUNED}"))).await.unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    let there = embedded::annotations(&cluster, "cart-0").await.unwrap();
    assert_eq!((there.get(PRUNED), &*there[KEPT]), (None, "1"));
    app.shutdown().await;
    cluster.shutdown().await;
}
