//! Scripts in the whole host: without a runner, and after a change, a mistake and the same script of another tenant.

use std::{fs, path::Path};

use podium_devcluster::{Cluster, Options};
use podium_host::app::{self, App};
use podium_registry::Digest;
use podium_tests::{embedded, guests, plugins, wire::Wire};
use podium_vocabulary::{Language, PluginSpec};
use serde_json::json;
use tempfile::TempDir;

/// The label and the annotation that the test guest sets.
const MARK: &str = "guests.example/seen";

/// A script of the test guest's language, as a plugin of a namespace, or of the cluster.
fn script(namespace: Option<&str>, source: &str) -> PluginSpec {
    script_in(Language::JavaScript, namespace, source)
}

fn script_in(language: Language, namespace: Option<&str>, source: &str) -> PluginSpec {
    let (kind, namespace) = match namespace {
        Some(namespace) => ("ReconcilePlugin", format!(", namespace: {namespace}")),
        None => ("ClusterReconcilePlugin", String::new()),
    };
    plugins::configured(&format!(
        "apiVersion: podium.dev/v1alpha1\nkind: {kind}\nmetadata: {{ name: script{namespace} }}\nspec:\n  \
         source: {{ script: {{ language: {}, inline: {source:?} }} }}\n  \
         grants: {{ write: {{ labels: [guests.example/*], annotations: [guests.example/*] }} }}\n",
        language.name()
    ))
    .unwrap()
}

/// A directory with the test guest as the runner.
fn runners() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("javascript-1.wasm"), guests::component("runner").unwrap()).unwrap();
    directory
}

async fn host(cluster: &Cluster, runners: Option<&Path>) -> App {
    let options = embedded::options(cluster, Wire::new(cluster).client());
    App::start_simulated(app::Options { runners: runners.map(Path::to_owned), ..options }).await.unwrap()
}

/// Waits until all runs have ended, and returns whether a Pod has the label and the annotation of the scripts.
async fn marks(cluster: &Cluster, app: &App, pod: &str) -> [bool; 2] {
    embedded::at_rest(cluster, app).await.unwrap();
    let label = embedded::label(cluster, pod, MARK).await.unwrap();
    let annotations = embedded::annotations(cluster, pod).await.unwrap();
    [label.is_some(), annotations.contains_key(MARK)]
}

#[tokio::test(start_paused = true)]
async fn without_a_runner_a_script_is_refused_with_flag_and_file() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    let empty = tempfile::tempdir().unwrap();
    fs::create_dir(empty.path().join("runners")).unwrap();
    let broken = tempfile::tempdir().unwrap();
    fs::write(broken.path().join("javascript-1.wasm"), guests::component("json").unwrap()).unwrap();
    // The runner of another language is none.
    let other = runners();
    for (language, runners, parts) in [
        (Language::JavaScript, None, &["--runners", "javascript-1.wasm"][..]),
        (Language::JavaScript, Some(empty.path()), &["--runners", "/javascript-1.wasm"]),
        (
            Language::JavaScript,
            Some(broken.path()),
            &["--runners", "/javascript-1.wasm", "does not have the world script"],
        ),
        (Language::Python, None, &["--runners", "python-1.wasm"]),
        (Language::Python, Some(other.path()), &["the runner of python scripts", "/python-1.wasm"]),
    ] {
        let app = host(&cluster, runners).await;
        let failure = app.prepare(script_in(language, None, "runs")).await.map(drop).unwrap_err();
        // A flag does not change while the host runs, and a file may.
        assert_eq!(failure.is_passing(), runners.is_some(), "{failure}");
        for part in parts {
            assert!(failure.to_string().contains(part), "{failure}");
        }
        app.shutdown().await;
    }
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_script_is_swapped_and_a_mistake_keeps_the_one_before() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    let runners = runners();
    let app = host(&cluster, Some(runners.path())).await;
    app.load(script(Some("default"), "writes.set-label")).await.unwrap();
    assert_eq!(marks(&cluster, &app, "cart-0").await, [true, false]);

    let failure = app.load(script(Some("default"), "mistake")).await.unwrap_err().to_string();
    let expected = "spec.source.script.inline: line 3, column 14: SyntaxError: unexpected token";
    assert!(failure.contains(expected), "{failure}");
    embedded::create_pod(&cluster, "cart-1", "cart").unwrap();
    assert_eq!(marks(&cluster, &app, "cart-1").await, [true, false]);

    app.load(script(Some("default"), "writes.set-annotation")).await.unwrap();
    assert_eq!(marks(&cluster, &app, "cart-1").await, [true, true]);
    app.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_script_in_a_config_map_has_at_most_512_kib() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    let runners = runners();
    let app = host(&cluster, Some(runners.path())).await;
    let most = Language::MOST_BYTES;
    assert_eq!(most, 512 << 10);
    let load = async |bytes: usize| {
        let code = "writes.set-label\n#";
        let source = format!("{code}{}", "x".repeat(bytes - code.len()));
        let name = format!("of-{bytes}");
        let metadata = json!({ "namespace": "default", "name": name });
        let place = json!({ "name": name, "key": "plugin.js", "sha256": Digest::sha256(source.as_bytes()).hex() });
        let data = json!({ "plugin.js": source });
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data });
        cluster.create(map).unwrap();
        let plugin = json!({
            "apiVersion": "podium.dev/v1alpha1", "kind": "ReconcilePlugin",
            "metadata": { "name": "script", "namespace": "default" },
            "spec": {
                "source": { "script": { "language": "javascript", "configMap": place } },
                "grants": { "write": { "labels": ["guests.example/*"] } },
            },
        });
        app.load(plugins::configured(&plugin.to_string()).unwrap()).await.map(drop).map_err(|error| error.to_string())
    };
    let refused = load(most + 1).await.unwrap_err();
    assert!(refused.contains("plugin.js has 524289 bytes; at most 524288 are permitted"), "{refused}");
    assert_eq!(marks(&cluster, &app, "cart-0").await, [false, false]);
    load(most).await.unwrap();
    assert_eq!(marks(&cluster, &app, "cart-0").await, [true, false]);
    app.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn two_tenants_have_the_same_script_with_different_grants() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    let runners = runners();
    let app = host(&cluster, Some(runners.path())).await;
    let source = "writes.set-label\nwrites.set-annotation\nwrites.delete-pod";
    let mut one = script(Some("default"), source);
    let mut other = script(None, source);
    one.grants.write.annotations.clear();
    other.grants.write.labels.clear();
    for spec in [&one, &other] {
        app.load(spec.clone()).await.unwrap();
    }
    assert_eq!(marks(&cluster, &app, "cart-0").await, [true, true]);
    for (spec, write) in [(&one, "label"), (&other, "annotation")] {
        let status = app.status().plugin(&spec.id);
        assert_eq!(status.writes()["applied"], 1, "{write}");
        assert_eq!(status.failures(), Default::default());
    }
    app.shutdown().await;
    cluster.shutdown().await;
}
