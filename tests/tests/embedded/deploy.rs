//! `podium deploy` with a real host: from a folder to the effect on a Pod, with rights that the command derived.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{fs, path::PathBuf, time::Duration};

use anyhow::ensure;
use podium_devcluster::{Cluster, Options, Server};
use podium_host::{
    app::{self, App},
    config::Policy,
};
use podium_tests::{
    embedded, guests,
    process::{podium_command, workspace_dir},
    runner,
    wait::until,
};
use podium_vocabulary::Language;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Compiling the runner takes some seconds on a busy machine.
const WITHIN: Duration = Duration::from_secs(120);
const POLICY: &str = "apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec:\n  defaults: { limits: { writes: 50 } }\n";

/// A cluster on a socket with the kinds, a host that requires accounts, and a folder for plugins.
struct Fixture {
    cluster: Cluster,
    _server: Server,
    app: App,
    folder: TempDir,
}

struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Fixture {
    /// Returns `None` without clang, if scripts are to be run.
    async fn new(scripts: bool) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        if scripts && runner::install(folder.path(), &[Language::JavaScript]).unwrap().is_empty() {
            return None;
        }
        let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
        let definitions = fs::read_to_string(workspace_dir().join("deploy/chart/crds.yaml")).unwrap();
        let definitions: Vec<Value> = serde_saphyr::from_multiple(&definitions).unwrap();
        for definition in definitions.into_iter().filter(|definition| !definition.is_null()) {
            cluster.create(definition).unwrap();
        }
        for name in ["shop", "podium"] {
            let metadata = json!({ "name": name });
            cluster.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata })).unwrap();
        }
        let server = cluster.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        fs::write(folder.path().join("kubeconfig"), server.kubeconfig()).unwrap();
        fs::write(folder.path().join("policy.yaml"), POLICY).unwrap();
        let client = kube::Client::new(cluster.service(), "default");
        let mut app = App::start(app::Options {
            runners: scripts.then(|| folder.path().to_owned()),
            policy: Some(Policy::read(&folder.path().join("policy.yaml")).unwrap()),
            require_service_account: true,
            ..embedded::options(&cluster, client)
        })
        .await
        .unwrap();
        drop(app.watch_objects(None, &[]));
        Some(Self { cluster, _server: server, app, folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn podium(&self, arguments: &[&str]) -> Ended {
        let mut command = tokio::process::Command::from(podium_command().unwrap());
        let output = command.current_dir(self.folder.path()).args(arguments).kill_on_drop(true).output().await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ended { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    async fn deploy(&self, arguments: &[&str]) -> Ended {
        self.podium(&[&["deploy", "hello", "--kubeconfig", "kubeconfig", "--runners", "."], arguments].concat()).await
    }

    /// Saves a file with a part of it replaced.
    fn edit(&self, file: &str, part: &str, other: &str) {
        let text = fs::read_to_string(self.path(file)).unwrap();
        assert!(text.contains(part), "{part}: {text}");
        fs::write(self.path(file), text.replace(part, other)).unwrap();
    }

    fn pod(&self, name: &str) {
        let container = json!({ "name": "main", "image": "registry.example/app:1" });
        let metadata = json!({ "name": name, "namespace": "shop" });
        let pod =
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": { "containers": [container] } });
        self.cluster.create(pod).unwrap();
    }

    /// Waits until a Pod has the label.
    async fn labelled(&self, name: &str, key: &str, value: &str) {
        until("the label", WITHIN, async || {
            let pod = embedded::pods(&self.cluster, Some("shop")).get(name).await?;
            let found = pod.metadata.labels.and_then(|mut labels| labels.remove(key));
            ensure!(found.as_deref() == Some(value), "{found:?}");
            Ok(())
        })
        .await
        .unwrap();
    }

    fn object(&self) -> Value {
        self.cluster.list("reconcileplugins.podium.dev").1.remove(0)
    }

    async fn end(self) {
        self.app.shutdown().await;
        self.cluster.shutdown().await;
    }
}

impl Ended {
    /// Checks the exit code and that stderr has each part.
    fn says(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{} {}", self.stdout, self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} in {}", self.stderr);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_script_goes_from_its_folder_to_a_pod_and_failures_keep_it() {
    let Some(fixture) = Fixture::new(true).await else { return };
    fixture.podium(&["new", "hello", "--lang", "js"]).await.says(0, &[]);
    fixture.pod("a");
    let first = fixture.deploy(&["--wait", "2m"]).await;
    first.says(0, &["serviceAccountName: podium-plugin-hello is filled in", "ReconcilePlugin shop/hello applied"]);
    assert_eq!(first.stdout, "shop/hello of generation 1 runs (NoFailures)\n");
    fixture.labelled("a", "team", "unowned").await;

    // A mistake of the syntax is found before anything is sent.
    fixture.edit("hello/plugin.js", "export default", "export defalt");
    fixture.deploy(&[]).await.says(1, &["line 8, column "]);
    assert_eq!(fixture.object()["metadata"]["generation"], 1);
    fixture.edit("hello/plugin.js", "export defalt", "export default");

    // The policy refuses it, and the version before runs on.
    fixture.edit("hello/plugin.yaml", "  watch:", "  limits: { writes: 100 }\n  watch:");
    let refused = fixture.deploy(&[]).await;
    refused.says(
        1,
        &[
            "error: hello/plugin.yaml:7: shop/hello of generation 2 is refused (PolicyForbids): ",
            "spec.limits.writes is 100",
            "the version of generation 1 goes on",
            "next: ",
        ],
    );
    fixture.pod("b");
    fixture.labelled("b", "team", "unowned").await;
    fixture.edit("hello/plugin.yaml", "writes: 100", "writes: 50");

    // Runs fail, with the line of the script.
    let well = fs::read_to_string(fixture.path("hello/plugin.js")).unwrap();
    let bad = well.replace("!pod.metadata.labels?.team", "pod.metadata");
    let bad = bad.replace("writes.setLabel(pod, \"team\", \"unowned\");", "throw new Error(\"no team\");");
    fs::write(fixture.path("hello/plugin.js"), &bad).unwrap();
    let failing = fixture.deploy(&["--output", "json", "--wait", "2m"]).await;
    let parts = [
        "error: hello/plugin.js:10:15: ",
        // Either Pod is run first.
        "fails (RunsFail): retry on pod shop/",
        ": no team",
        "podium runs --plugin shop/hello",
    ];
    failing.says(1, &parts);
    let json: Value = serde_json::from_str(&failing.stdout).unwrap();
    assert_eq!((&json["ok"], &json["plugins"][0]["state"]), (&json!(false), &json!("Failing")));

    // Corrected, and in a ConfigMap, which the account may read.
    fixture.pod("c");
    fs::write(fixture.path("hello/plugin.js"), well.replace("unowned", "web")).unwrap();
    let last = fixture.deploy(&["--configmap", "--wait", "2m"]).await;
    last.says(0, &["ConfigMap shop/podium-plugin-hello applied"]);
    fixture.labelled("c", "team", "web").await;
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_component_in_a_config_map_runs_with_the_derived_rights() {
    let Some(fixture) = Fixture::new(false).await else { return };
    fs::create_dir(fixture.path("hello")).unwrap();
    fs::copy(guests::path("good").unwrap(), fixture.path("hello/good.wasm")).unwrap();
    let yaml = "apiVersion: podium.dev/v1alpha1\nkind: ReconcilePlugin\nmetadata: { name: good, namespace: shop }\n\
        spec:\n  source: { file: good.wasm }\n  grants:\n    read: { pods: { sections: [labels] } }\n    write: { \
        labels: [guests.example/*] }\n";
    fs::write(fixture.path("hello/plugin.yaml"), yaml).unwrap();
    let refused = fixture.deploy(&[]).await;
    refused.says(1, &["a cluster cannot read the file hello/good.wasm of shop/good", "--registry", "--configmap"]);
    // Without a Pod it runs, and says that nothing needed it.
    let idle = fixture.deploy(&["--configmap", "--wait", "2m"]).await;
    idle.says(0, &["ConfigMap shop/podium-plugin-good applied"]);
    assert!(idle.stdout.starts_with("shop/good of generation 1 runs, and had no Pod to run on yet"), "{}", idle.stdout);
    fixture.pod("a");
    fixture.labelled("a", "guests.example/seen", "yes").await;
    // A dry run names the digest that a push would have.
    let reference = "registry.example/good:1";
    let dry = fixture.deploy(&["--registry", reference, "--dry-run=client", "--output", "json"]).await;
    dry.says(0, &["podium push hello/good.wasm registry.example/good:1"]);
    let json: Value = serde_json::from_str(&dry.stdout).unwrap();
    let plugin = json["objects"].as_array().unwrap().last().unwrap();
    let image = plugin["spec"]["source"]["oci"]["image"].as_str().unwrap();
    assert!(image.starts_with("registry.example/good:1@sha256:") && image.len() == reference.len() + 72, "{image}");
    fixture.end().await;
}
