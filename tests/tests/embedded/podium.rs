//! `podium` as a process, as an author uses it: from `new` through `check` and `build` to `dev`, on crates in their
//! own folders.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use podium_devcluster::Cluster;
use podium_tests::{
    process::{Process, podium_binary, podium_command, target_dir, workspace_dir},
    runner,
    wait::until,
};
use podium_vocabulary::Language;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Long enough to build a plugin on a busy machine.
const WITHIN: Duration = Duration::from_secs(180);

/// A folder outside the checkout with the crate `hello`, as `podium new` writes it.
struct Author(TempDir);

impl Author {
    fn new() -> Self {
        let author = Self(tempfile::tempdir().unwrap());
        // The same target directory and versions as the suites, so that nothing is built again.
        let settings = format!("[build]\ntarget-dir = {:?}\n", target_dir().unwrap().join("guests"));
        fs::create_dir(author.path(".cargo")).unwrap();
        fs::write(author.path(".cargo/config.toml"), settings).unwrap();
        let new = author.run(&["new", "hello"]);
        assert!(new.status.success(), "{}", stderr(&new));
        fs::copy(workspace_dir().join("Cargo.lock"), author.path("hello/Cargo.lock")).unwrap();
        author
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = podium_command().unwrap();
        command.current_dir(self.0.path()).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs with `--output json`. Returns the exit code and the printed value.
    fn json(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let output = self.run(&[arguments, &["--output", "json"]].concat());
        let printed = serde_json::from_slice(&output.stdout);
        (output.status.code(), printed.unwrap_or_else(|error| unreachable!("{error}: {}", stderr(&output))))
    }

    /// Saves plugin.yaml with a part of it replaced.
    fn edit(&self, part: &str, other: &str) {
        let file = self.path("hello/plugin.yaml");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(part), "{part}: {text}");
        fs::write(&file, text.replace(part, other)).unwrap();
    }

    fn dev(&self, log: &str, arguments: &[&str]) -> Dev {
        let mut command = self.command(&[&["dev", "hello"], arguments].concat());
        Dev(Process::spawn("podium dev", &mut command, self.path(log)).unwrap())
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

struct Dev(Process);

impl Dev {
    /// Waits until `text` was printed for the `times`th time.
    async fn says(&mut self, text: &str, times: usize) {
        until(&format!("{text:?} from podium dev"), WITHIN, async || {
            let said = self.0.log().matches(text).count();
            ensure!(said >= times, "{said} times in\n{}", self.0.log());
            self.0.check_running()
        })
        .await
        .unwrap();
    }

    /// Returns the file in the printed next step, when its line is complete.
    async fn kubeconfig(&self) -> PathBuf {
        until("the file for kubectl", WITHIN, async || {
            let log = self.0.log();
            let (_, rest) = log.split_once("export KUBECONFIG=").context("no next step")?;
            let (file, _) = rest.split_once('\n').context("half a line")?;
            Ok(PathBuf::from(file))
        })
        .await
        .unwrap()
    }

    async fn pods(&self, namespace: &str) -> Api<Pod> {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig().await).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Api::namespaced(Client::try_from(config).unwrap(), namespace)
    }

    async fn interrupted(mut self) -> Option<i32> {
        self.0.signal("INT").unwrap();
        self.0.ended(Duration::from_secs(30)).await.unwrap().code()
    }
}

async fn create(pods: &Api<Pod>, name: &str) -> Result<()> {
    let container = json!({ "name": "main", "image": "registry.example/app:1.2.3" });
    let pod = json!({ "metadata": { "name": name }, "spec": { "containers": [container] } });
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    Ok(())
}

async fn team(pods: &Api<Pod>, name: &str) -> Result<Option<String>> {
    Ok(pods.get(name).await?.metadata.labels.and_then(|mut labels| labels.remove("team")))
}

#[test]
fn a_new_plugin_is_checked_and_built_to_a_readable_file() {
    let author = Author::new();
    let check = author.run(&["check", "hello"]);
    let printed = String::from_utf8_lossy(&check.stdout).into_owned();
    assert_eq!(check.status.code(), Some(0), "{}", stderr(&check));
    // Another author's test may have built a crate of this name.
    assert!(printed.contains("imports not checked: run podium build") || printed.contains("  ok"), "{printed}");

    let (code, built) = author.json(&["build", "hello", "--quiet", "--out", "out.wasm"]);
    assert_eq!((code, &built["ok"], &built["component"]), (Some(0), &json!(true), &json!("out.wasm")), "{built}");
    let ordinary = author.path("ordinary");
    fs::write(&ordinary, "").unwrap();
    assert_eq!(mode(&author.path("out.wasm")), mode(&ordinary));
    let (code, checked) = author.json(&["check", "hello", "--component", "out.wasm"]);
    assert_eq!((code, &checked["plugins"][0]["imports"]), (Some(0), &built["imports"]), "{checked}");
    assert!(built["imports"].to_string().contains("set-label"), "{built}");
}

#[test]
fn schema_prints_the_definitions_that_are_checked_in() {
    let author = Author::new();
    let printed = author.run(&["schema", "crds"]);
    let checked_in = fs::read_to_string(workspace_dir().join("deploy/chart/crds.yaml")).unwrap();
    let is_current = String::from_utf8_lossy(&printed.stdout) == checked_in;
    assert!(is_current, "deploy/chart/crds.yaml is of other types; renew it with `just schemas`");
}

#[test]
fn schema_and_new_write_the_schema_that_is_checked_in() {
    let author = Author::new();
    let printed = author.run(&["schema"]);
    let checked_in = fs::read_to_string(workspace_dir().join("docs/plugin.schema.json")).unwrap();
    assert_eq!((printed.status.code(), String::from_utf8(printed.stdout).unwrap()), (Some(0), checked_in.clone()));
    assert_eq!(fs::read_to_string(author.path("hello/plugin.schema.json")).unwrap(), checked_in);
    let help = String::from_utf8(author.run(&["schema", "--help"]).stdout).unwrap();
    assert!(help.contains("# yaml-language-server: $schema=plugin.schema.json"), "{help}");
}

#[test]
fn a_closed_pipe_is_no_error_and_a_full_disk_is_one() {
    for arguments in [&["schema"][..], &["completion", "bash"]] {
        let mut closed = Command::new(podium_binary().unwrap());
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let closed = closed.args(arguments).stdout(writer).output().unwrap();
        assert!(closed.status.success() && closed.stderr.is_empty(), "{arguments:?}: {}", stderr(&closed));
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let full = Command::new(podium_binary().unwrap()).args(arguments).stdout(full).output().unwrap();
        assert_eq!(full.status.code(), Some(1), "{arguments:?}");
        assert!(stderr(&full).starts_with("error: cannot write to standard output: "), "{}", stderr(&full));
    }
}

#[test]
fn build_and_check_refuse_what_the_host_would_refuse() {
    let author = Author::new();
    author.edit("write: { labels: [team] }", "write: {}");
    for command in [&["build", "hello", "--quiet"][..], &["check", "hello"]] {
        let (code, printed) = author.json(command);
        let error = printed["error"].as_str().unwrap_or_default();
        assert_eq!((code, &printed["ok"]), (Some(1), &json!(false)), "{command:?}: {printed}");
        assert!(error.contains("set-label") && error.contains("shop/hello"), "{command:?}: {error}");
    }
    author.edit("watch:", "wach:");
    for command in [&["build", "hello", "--quiet"][..], &["check", "hello"]] {
        let (code, printed) = author.json(command);
        let error = printed["error"].as_str().unwrap_or_default();
        assert_eq!(code, Some(1), "{printed}");
        assert!(error.contains("plugin.yaml:8: spec.wach"), "{command:?}: {error}");
    }
    fs::remove_file(author.path("hello/plugin.yaml")).unwrap();
    let (code, printed) = author.json(&["check", "hello"]);
    assert_eq!((code, &printed["ok"]), (Some(1), &json!(false)), "{printed}");
}

#[tokio::test]
async fn dev_stops_a_plugin_while_its_grant_is_revoked() {
    let author = Author::new();
    let mut dev = author.dev("dev.log", &[]);
    dev.says("shop/hello  loaded", 1).await;
    dev.says("kubectl -n shop run web", 1).await;
    // The namespace of the next step exists.
    let pods = dev.pods("shop").await;
    create(&pods, "web-0").await.unwrap();
    until("the label", WITHIN, async || {
        ensure!(team(&pods, "web-0").await?.as_deref() == Some("unowned"));
        Ok(())
    })
    .await
    .unwrap();
    dev.says("shop/web-0  added -> set label team=unowned  settled  ", 1).await;
    let patch = json!({"metadata": {"annotations": {"note": "1"}}});
    pods.patch("web-0", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    // The Pod's status may change at the same time.
    dev.says("shop/web-0  annotations", 1).await;
    dev.says("changed: not watched by shop/hello", 1).await;

    author.edit("write: { labels: [team] }", "write: {}");
    dev.says("shop/hello  stopped", 1).await;
    create(&pods, "web-1").await.unwrap();
    until("a Pod that runs", WITHIN, async || {
        let status = pods.get("web-1").await?.status.context("no status")?;
        ensure!(status.phase.as_deref() == Some("Running"));
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(team(&pods, "web-1").await.unwrap(), None);
    author.edit("write: {}", "write: { labels: [team, other] }");
    dev.says("shop/hello  loaded", 2).await;
    until("the label", WITHIN, async || team(&pods, "web-1").await?.context("no label").map(drop)).await.unwrap();

    // An invalid configuration permits nothing.
    author.edit("watch:", "wach:");
    dev.says("shop/hello  stopped: its configuration is invalid", 1).await;
    author.edit("wach:", "watch:");
    dev.says("shop/hello  loaded", 3).await;

    // If only the source does not compile, the previous version continues.
    let source = author.path("hello/src/lib.rs");
    let good = fs::read_to_string(&source).unwrap();
    fs::write(&source, "fn broken( {").unwrap();
    dev.says("the previous version continues", 1).await;
    create(&pods, "web-2").await.unwrap();
    until("the label", WITHIN, async || team(&pods, "web-2").await?.context("no label").map(drop)).await.unwrap();
    fs::write(&source, good.replace("unowned", "missing")).unwrap();
    dev.says("shop/hello  swapped", 1).await;
    create(&pods, "web-3").await.unwrap();
    until("the new version's label", WITHIN, async || {
        ensure!(team(&pods, "web-3").await?.as_deref() == Some("missing"));
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(dev.interrupted().await, Some(0));
}

/// The texts that differ between the languages of scripts.
struct Lang {
    language: Language,
    flag: &'static str,
    /// The program and arguments of the folder's own test, which needs nothing else.
    test: &'static [&'static str],
    /// A line of the script, and a mistake in it.
    line: [&'static str; 2],
    /// A line of the script's copy in plugin.yaml, once it is changed.
    changed: &'static str,
}

const JAVASCRIPT: Lang = Lang {
    language: Language::JavaScript,
    flag: "js",
    test: &["node", "--test"],
    line: ["export default", "export defalt"],
    changed: "          writes.setLabel(pod, \"team\", \"missing\");\n",
};
const PYTHON: Lang = Lang {
    language: Language::Python,
    flag: "python",
    test: &["python3", "-m", "unittest"],
    line: ["    pod = request.pod", "    pod = = request.pod"],
    changed: "                writes.set_label(pod, \"team\", \"missing\")\n",
};

#[tokio::test]
async fn a_script_in_javascript_runs_without_a_build_and_each_save_replaces_it() {
    a_script_is_replaced_by_each_save(JAVASCRIPT).await;
}

#[tokio::test]
async fn a_script_in_python_runs_without_a_build_and_each_save_replaces_it() {
    a_script_is_replaced_by_each_save(PYTHON).await;
}

async fn a_script_is_replaced_by_each_save(lang: Lang) {
    let author = Author(tempfile::tempdir().unwrap());
    if runner::install(author.0.path(), &[lang.language]).unwrap().is_empty() {
        return;
    }
    let runners = ["--runners", author.0.path().to_str().unwrap()];
    assert!(author.run(&["new", "hello", "--lang", lang.flag]).status.success());
    let file = author.path(&format!("hello/{}", lang.language.file()));
    let source = fs::read_to_string(&file).unwrap();
    if let Ok(test) = Command::new(lang.test[0]).args(&lang.test[1..]).current_dir(author.path("hello")).output() {
        assert!(test.status.success(), "{}", String::from_utf8_lossy(&[test.stdout, test.stderr].concat()));
    }

    let mut dev = author.dev("dev.log", &runners);
    dev.says("shop/hello  loaded", 1).await;
    let pods = dev.pods("shop").await;
    let labelled = async |name: &str, label: &str| {
        create(&pods, name).await.unwrap();
        until("the label", WITHIN, async || {
            ensure!(team(&pods, name).await?.as_deref() == Some(label));
            Ok(())
        })
        .await
        .unwrap();
    };
    labelled("web-0", "unowned").await;

    fs::write(&file, source.replace("unowned", "missing")).unwrap();
    dev.says("shop/hello  swapped", 1).await;
    labelled("web-1", "missing").await;
    let applied = fs::read_to_string(author.path("hello/plugin.yaml")).unwrap();
    assert!(applied.contains(lang.changed), "kubectl apply has it: {applied}");

    let broken = source.replace(lang.line[0], lang.line[1]);
    let line = 1 + source.lines().position(|line| line.contains(lang.line[0])).unwrap();
    fs::write(&file, broken).unwrap();
    dev.says(&format!("line {line}, column "), 1).await;
    dev.says("the previous version continues", 1).await;
    labelled("web-2", "missing").await;
    let (code, printed) = author.json(&[&["check", "hello"], &runners[..]].concat());
    assert_eq!(code, Some(1));
    assert!(printed["error"].as_str().unwrap().contains(&format!("line {line}, column ")), "{printed}");
    assert_eq!(dev.interrupted().await, Some(0));
    fs::write(&file, source).unwrap();
    assert!(author.run(&[&["build", "hello"], &runners[..]].concat()).status.success());
}

#[tokio::test]
async fn two_devs_of_one_directory_have_a_cluster_each() {
    let author = Author::new();
    let (mut one, mut two) = (author.dev("one.log", &[]), author.dev("two.log", &["--namespace", "lab"]));
    one.says("export KUBECONFIG=", 1).await;
    two.says("export KUBECONFIG=", 1).await;
    // Other namespaces are not watched, so a plugin of one would never run.
    two.says("--namespace lab watches only that one", 1).await;
    let first = one.kubeconfig().await;
    let second = two.kubeconfig().await;
    assert_ne!(first, second);
    create(&one.pods("shop").await, "web-0").await.unwrap();
    create(&two.pods("lab").await, "web-0").await.unwrap();
    assert_eq!(one.interrupted().await, Some(0));
    assert!(!first.exists(), "{}", first.display());
    assert!(team(&two.pods("lab").await, "web-0").await.unwrap().is_none());
    assert_eq!(two.interrupted().await, Some(0));
    assert!(!second.exists(), "{}", second.display());
}

#[tokio::test]
async fn push_prints_a_configmap_to_apply_or_changes_it() {
    let author = Author::new();
    let (code, built) = author.json(&["build", "hello", "--quiet", "--out", "hello.wasm"]);
    assert_eq!(code, Some(0), "{built}");
    let wasm = fs::read(author.path("hello.wasm")).unwrap();

    let printed = author.run(&["push", "hello.wasm", "--configmap", "default/plugins"]);
    assert_eq!(printed.status.code(), Some(0), "{}", stderr(&printed));
    let printed = String::from_utf8(printed.stdout).unwrap();
    let (comments, manifest): (Vec<_>, Vec<_>) = printed.lines().partition(|line| line.starts_with('#'));
    let manifest: ConfigMap = serde_saphyr::from_str(&manifest.join("\n")).unwrap();
    let keys = manifest.binary_data.unwrap();
    assert_eq!(keys.keys().collect::<Vec<_>>(), ["hello.wasm"]);
    assert_eq!(keys["hello.wasm"].0, wasm);

    let (code, json) = author.json(&["push", "hello.wasm", "--configmap", "default/plugins:a"]);
    let source = &json["spec"]["source"]["configMap"];
    assert_eq!((code, &source["name"], &source["key"]), (Some(0), &json!("plugins"), &json!("a")), "{json}");
    let sha256 = json["sha256"].as_str().unwrap();
    assert_eq!((sha256.len(), &source["sha256"]), (64, &json["sha256"]));
    assert!(comments.join("\n").contains(&format!("sha256: {sha256}")), "{comments:?}");

    // A key of the ConfigMap is changed, and the others stay.
    let cluster = Cluster::start(podium_devcluster::Options::default()).unwrap();
    let server = cluster.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
    fs::write(author.path("kubeconfig"), server.kubeconfig()).unwrap();
    for key in ["a", "b"] {
        let target = format!("default/plugins:{key}");
        let mut command = author.command(&["push", "hello.wasm", "--configmap", &target, "--apply"]);
        command.args(["--kubeconfig", "kubeconfig"]);
        let applied = tokio::process::Command::from(command).output().await.unwrap();
        assert_eq!(applied.status.code(), Some(0), "{}", stderr(&applied));
        assert!(String::from_utf8_lossy(&applied.stdout).contains(&format!("key: {key}")), "{applied:?}");
    }
    let mut command = author.command(&["push", "hello.wasm", "--configmap", "default/plugins:b", "--apply"]);
    command.args(["--kubeconfig", "kubeconfig", "--output", "json"]);
    let applied = tokio::process::Command::from(command).output().await.unwrap();
    let json: Value = serde_json::from_slice(&applied.stdout).unwrap();
    assert_eq!((&json["ok"], &json["configMap"]["metadata"]["name"]), (&json!(true), &json!("plugins")), "{json}");
    assert!(json["configMap"]["binaryData"].is_null() && applied.stdout.len() < 4 << 10, "without the component");
    let config = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(Client::try_from(config).unwrap(), "default");
    let map = maps.get("plugins").await.unwrap().binary_data.unwrap();
    assert_eq!(map.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(map["b"].0, wasm);
}

#[test]
fn push_and_pull_refuse_wrong_arguments_and_files() {
    let author = Author(tempfile::tempdir().unwrap());
    fs::write(author.path("core.wasm"), b"\0asm\x01\0\0\0").unwrap();
    fs::write(author.path("not.wasm"), "text").unwrap();
    for (arguments, code, part) in [
        (&["push", "core.wasm"][..], 2, "REFERENCE"),
        (&["push", "core.wasm", "a.example/b:1", "--configmap", "c/d"], 2, "cannot be used with"),
        (&["push", "core.wasm", "a.example/b:1", "--apply"], 2, "--apply"),
        (&["push", "none.wasm", "a.example/b:1"], 1, "none.wasm"),
        (&["push", "core.wasm", "a.example/b:1"], 1, "core WebAssembly module"),
        (&["push", "not.wasm", "--configmap", "c/d"], 1, "not a WebAssembly component"),
        (&["pull", "b:1"], 1, "must begin with the host of a registry"),
        (&["pull", "a.example/b"], 1, "must have a tag or a digest"),
        (&["pull", "a.example/b:1", "--timeout", "0"], 2, "--timeout"),
        (&["pull", "a.example/b:1", "--username", "u"], 1, "PODIUM_REGISTRY_PASSWORD"),
        (&["pull", "a.example/b:1", "--ca-file", "not.wasm"], 1, "no certificate"),
    ] {
        let output = author.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(part), "{arguments:?}: {}", stderr(&output));
    }
    assert_eq!(fs::read_dir(author.0.path()).unwrap().count(), 2, "nothing was written");
}
