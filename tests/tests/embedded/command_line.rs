//! `podium-host` as a process: its error messages, exit codes, logs and signals. Against the embedded cluster on a
//! socket, in real time.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod policy;
mod traces;

use std::{
    collections::BTreeSet,
    fs,
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    time::Duration,
};

use anyhow::ensure;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::ListParams;
use podium_devcluster::{Cluster, Options, Server};
use podium_tests::{
    bombs, embedded, guests, plugins,
    process::{Host, HostOptions, host_binary},
    wait::until,
};
use tempfile::TempDir;

/// A debug build starts in a second; the machine may be busy building.
const WITHIN: Duration = Duration::from_secs(60);

/// A cluster on a socket, and a directory for files.
struct Fixture {
    cluster: Cluster,
    _server: Server,
    directory: TempDir,
}

/// The output of a process that ended.
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    /// Returns the lines of the log with the level of errors.
    fn errors(&self) -> Vec<&str> {
        self.stderr.lines().filter(|line| line.contains(" ERROR ")).collect()
    }
}

impl Fixture {
    async fn new(options: Options) -> Self {
        let cluster = Cluster::start(options).unwrap();
        let server = cluster.listen((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("kubeconfig"), server.kubeconfig()).unwrap();
        Self { cluster, _server: server, directory }
    }

    async fn still() -> Self {
        Self::new(Options { simulate: false, ..Options::default() }).await
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Runs the host in the directory until it ends.
    async fn run(&self, arguments: &[&str]) -> Ended {
        let mut command = tokio::process::Command::new(host_binary().unwrap());
        command.current_dir(self.directory.path()).args(arguments).kill_on_drop(true);
        let output = tokio::time::timeout(WITHIN, command.output()).await.unwrap().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ended { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    async fn run_with_plugins(&self, arguments: &[&str]) -> Ended {
        let ports = ["--health-probe-bind-address", "0", "--metrics-bind-address", "0"];
        let all = [&["--kubeconfig", "kubeconfig"], &ports[..], &["--plugins"], arguments].concat();
        self.run(&all).await
    }

    async fn spawn(&self, plugins: &[&str], arguments: &[&str]) -> Host {
        let options = HostOptions {
            kubeconfig: self.path("kubeconfig"),
            plugins: plugins.iter().map(|name| self.path(name)).collect(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
        };
        Host::spawn(&options).await.unwrap()
    }

    /// Returns the uids with which the registrar labelled the Pods.
    async fn labels(&self) -> anyhow::Result<BTreeSet<String>> {
        let list = embedded::pods(&self.cluster, Some("default")).list(&ListParams::default()).await?;
        let label = |pod: Pod| pod.metadata.labels?.remove("guests.example/seen");
        Ok(list.items.into_iter().filter_map(label).collect())
    }

    async fn labelled(&self, name: &str) {
        until("the label", WITHIN, async || {
            let label = embedded::label(&self.cluster, name, "guests.example/seen").await?;
            ensure!(label.is_some());
            Ok(())
        })
        .await
        .unwrap();
    }
}

fn registrar(more: &str) -> String {
    plugins::guest_yaml("registrar", "registrar", more).unwrap()
}

#[tokio::test]
async fn help_teaches_flags_environment_examples_and_exit_codes() {
    let fixture = Fixture::still().await;
    let help = fixture.run(&["--help"]).await;
    assert_eq!(help.code, Some(0), "{}", help.stderr);
    let flags = [
        "kubeconfig",
        "plugins",
        "namespace",
        "health-probe-bind-address",
        "metrics-bind-address",
        "metrics-authentication",
        "metrics-tls-cert-file",
        "metrics-tls-private-key-file",
        "log-level",
        "log-format",
        "require-service-account",
        "state-dir",
        "prune-annotations",
        "workers",
        "strict",
    ];
    for flag in flags {
        assert!(help.stdout.contains(&format!("--{flag}")), "--{flag} is missing:\n{}", help.stdout);
        let variable = format!("PODIUM_{}", flag.replace('-', "_").to_uppercase());
        assert!(help.stdout.contains(&variable), "{variable} is missing:\n{}", help.stdout);
    }
    for part in ["Examples:", "Exit codes:"] {
        assert!(help.stdout.contains(part), "{part} is missing:\n{}", help.stdout);
    }
}

#[tokio::test]
async fn each_mistake_in_a_configuration_names_file_and_field() {
    let fixture = Fixture::still().await;
    let greedy = plugins::guest_yaml("overreach", "greedy", "").unwrap();
    let mistakes = [
        ("unknown-field.yaml", registrar("  colour: red"), "spec.colour"),
        ("wrong-value.yaml", registrar("  phase: never"), "spec.phase"),
        ("more-than-granted.yaml", greedy, "grants.write.delete"),
        ("no-yaml.yaml", "{".to_owned(), r#"no-yaml.yaml line=1 error="is not valid YAML"#),
    ];
    for (file, text, named) in mistakes {
        fixture.write(file, &text);
        let ended = fixture.run_with_plugins(&[file]).await;
        assert_eq!(ended.code, Some(2), "{file}: {}", ended.stderr);
        let [error] = ended.errors()[..] else { unreachable!("{file}: {}", ended.stderr) };
        assert!(error.contains(file) && error.contains(named), "{error}");
    }
}

#[tokio::test]
async fn a_missing_file_or_an_empty_folder_is_one_error() {
    let fixture = Fixture::still().await;
    fs::create_dir(fixture.path("empty")).unwrap();
    fixture.write("registrar.yaml", &registrar(""));
    let nowhere = ["--plugins", "registrar.yaml", "--kubeconfig", "nowhere"];
    for (ended, named) in [
        (fixture.run_with_plugins(&["nowhere.yaml"]).await, r#"nowhere.yaml error="cannot be read"#),
        (fixture.run_with_plugins(&["empty"]).await, r#"no plugin configuration found plugins="empty""#),
        (fixture.run(&nowhere).await, r#"is configured flag="--kubeconfig" file=nowhere error="#),
    ] {
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        let [error] = ended.errors()[..] else { unreachable!("{}", ended.stderr) };
        assert!(error.contains(named), "{error}");
        assert!(error.matches("os error 2").count() <= 1, "a cause is named once: {error}");
    }
}

#[tokio::test]
async fn a_missing_component_is_loaded_later_or_refused_if_strict() {
    let fixture = Fixture::still().await;
    let component = guests::path("registrar").unwrap();
    fixture.write("late.yaml", &registrar("").replace(&component.display().to_string(), "late.wasm"));
    let ended = fixture.run_with_plugins(&["late.yaml", "--strict"]).await;
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    let [error] = ended.errors()[..] else { unreachable!("{}", ended.stderr) };
    assert!(error.contains("late.yaml plugin=registrar ") && error.contains("spec.source.file: late.wasm"), "{error}");

    let host = fixture.spawn(&["late.yaml"], &[]).await;
    embedded::create_pod(&fixture.cluster, "cart-0", "cart").unwrap();
    fs::copy(&component, fixture.path("late.wasm")).unwrap();
    fixture.labelled("cart-0").await;
    assert!(host.log().contains("late.wasm cannot be read"), "{}", host.log());
    host.terminate().await.unwrap();
}

/// Returns a component of the world `plugin` that imports a function of this name.
fn importing(name: &str) -> Vec<u8> {
    let sized = |bytes: &[u8]| [&[u8::try_from(bytes.len()).unwrap()], bytes].concat();
    // A function type without parameters and results, and an import of it.
    let types = sized(&[1, 0x40, 0, 1, 0]);
    let import = sized(&[&[1, 0], &*sized(name.as_bytes()), &[1, 0]].concat());
    // An instance without exports, exported as the reconciler.
    let instance = sized(&[1, 1, 0]);
    let export = sized(&[&[1, 0], &*sized(b"podium:reconcile/reconciler@0.1.0"), &[5, 0, 0]].concat());
    let sections = [&[7][..], &types, &[10], &import, &[5], &instance, &[11], &export].concat();
    [b"\0asm\x0d\0\x01\0", &*sections].concat()
}

#[tokio::test]
async fn no_text_of_a_plugin_forges_a_line_of_the_log() {
    let fixture = Fixture::still().await;
    let component = guests::path("registrar").unwrap().display().to_string();
    let forged = "2026-11-22T00:00:00.000000Z ERROR podium_host: FORGED";
    fs::write(fixture.path("forged.wasm"), importing(&format!("url=<x\n{forged}>"))).unwrap();
    fixture.write("import.yaml", &registrar("").replace(&component, "forged.wasm"));
    fixture.write("source.yaml", &registrar("").replace(&component, &format!("\"x\\n{forged}\"")));
    fixture.write("field.yaml", &registrar(&format!("  \"x\\n{forged}\": 1")));
    fixture.write(&format!("x\n{forged}.yaml"), "{");
    for file in ["import.yaml", "source.yaml", "field.yaml", &format!("x\n{forged}.yaml")] {
        let ended = fixture.run_with_plugins(&[file, "--strict"]).await;
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains("FORGED"), "{file:?} is named: {}", ended.stderr);
        assert!(!ended.stderr.lines().any(|line| line.starts_with(forged)), "{}", ended.stderr);
        assert!(ended.stderr.lines().all(|line| line.len() < 3_000), "{}", ended.stderr);
    }
}

#[tokio::test]
async fn a_configuration_that_is_no_regular_file_is_an_error() {
    let fixture = Fixture::still().await;
    fs::create_dir(fixture.path("pipes")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(fixture.path("pipes/a.yaml")).status().unwrap();
    assert!(made.success());
    std::os::unix::fs::symlink("/dev/zero", fixture.path("endless.yaml")).unwrap();
    for named in ["pipes", "endless.yaml"] {
        let ended = fixture.run_with_plugins(&[named]).await;
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        let [error] = ended.errors()[..] else { unreachable!("{}", ended.stderr) };
        assert!(error.contains("is not a regular file"), "{error}");
    }
}

#[tokio::test]
async fn a_misspelt_flag_is_exit_code_2_and_names_the_correct_one() {
    let fixture = Fixture::still().await;
    fixture.write("registrar.yaml", &registrar(""));
    for (flag, value, right) in [
        ("--log-level", "loud", "error, warn, info, debug, trace"),
        ("--log-format", "xml", "[possible values: text, json]"),
        ("--workers", "0", "1..=1024"),
        ("--prune-annotations", "a key", "must be a name of letters"),
        ("--namespace", "Bad Name", "must consist of lower case letters"),
        ("--colour", "red", "--help"),
    ] {
        let ended = fixture.run_with_plugins(&["registrar.yaml", flag, value]).await;
        assert_eq!(ended.code, Some(2), "{flag}: {}", ended.stderr);
        assert!(ended.stderr.contains(right), "{flag}: {}", ended.stderr);
    }
}

#[tokio::test]
async fn a_plugin_that_writes_pruned_annotations_is_warned_of_once() {
    let fixture = Fixture::still().await;
    fixture.write("registrar.yaml", &registrar(""));
    let nowhere = ["--plugins", "registrar.yaml", "--kubeconfig", "nowhere", "--prune-annotations"];
    for (keys, warned) in [("guests.example/a,other.example/b,guests.example/c", 2), ("", 0)] {
        let ended = fixture.run(&[&nowhere[..], &[keys]].concat()).await;
        let warnings: Vec<_> = ended.stderr.lines().filter(|line| line.contains(" WARN ")).collect();
        assert_eq!(warnings.len(), warned, "{}", ended.stderr);
        assert!(warnings.iter().all(|line| line.contains(r#"plugin=registrar annotation="guests.example/"#)));
    }
}

#[tokio::test]
async fn a_port_in_use_is_exit_code_2_and_names_address_and_flag() {
    let fixture = Fixture::still().await;
    fixture.write("registrar.yaml", &registrar(""));
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (flag, other) in [
        ("--health-probe-bind-address", "--metrics-bind-address"),
        ("--metrics-bind-address", "--health-probe-bind-address"),
    ] {
        let arguments = ["--kubeconfig", "kubeconfig", "--plugins", "registrar.yaml", flag, &address, other, "0"];
        let ended = fixture.run(&arguments).await;
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        let [error] = ended.errors()[..] else { unreachable!("{}", ended.stderr) };
        assert!(error.contains(&address) && error.contains(flag), "{error}");
        let last = ended.stderr.lines().last().unwrap_or_default();
        assert!(last.contains("exiting code=2"), "{}", ended.stderr);
    }
}

#[tokio::test]
async fn a_bad_plugin_does_not_stop_good_ones_without_strict() {
    let fixture = Fixture::still().await;
    fixture.write("bad.yaml", &registrar("  colour: red").replace("name: registrar", "name: bad"));
    fixture.write("greedy.yaml", &plugins::guest_yaml("overreach", "greedy", "").unwrap());
    fixture.write("registrar.yaml", &registrar(""));
    for bad in ["bad.yaml", "greedy.yaml"] {
        let ended = fixture.run_with_plugins(&[bad, "registrar.yaml", "--strict"]).await;
        assert_eq!((ended.code, ended.errors().len()), (Some(2), 1), "{bad}: {}", ended.stderr);
    }

    let host = fixture.spawn(&["bad.yaml", "greedy.yaml", "registrar.yaml"], &[]).await;
    embedded::create_pod(&fixture.cluster, "cart-0", "cart").unwrap();
    fixture.labelled("cart-0").await;
    let log = host.log();
    assert_eq!(log.lines().filter(|line| line.contains(" ERROR ")).count(), 2, "{log}");
    let metrics = host.get("/metrics").await.unwrap();
    for (name, ready) in [("registrar", 1), ("greedy", 0)] {
        let line = format!(r#"podium_plugin_ready{{controller="{name}"}} {ready}"#);
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
    let ready = host.get("/readyz?verbose").await.unwrap();
    assert!(
        ready.contains("[+]plugin/registrar ok") && ready.contains("[-]plugin/greedy failed: refused\n"),
        "{ready}"
    );
    assert!(host.terminate().await.unwrap().success());
}

#[tokio::test]
async fn the_process_shows_its_flags_and_changes_the_log_filter_of_one_plugin() {
    let fixture = Fixture::still().await;
    fixture.write("registrar.yaml", &registrar(""));
    fixture.write("other.yaml", &registrar("").replace("name: registrar", "name: other"));
    let host = fixture.spawn(&["registrar.yaml", "other.yaml"], &[]).await;
    let flags = host.get("/flagz").await.unwrap();
    assert!(flags.contains("\nstrict=false\n") && flags.contains("\nlog-level=info\n"), "{flags}");
    assert!(host.get("/statusz").await.unwrap().contains("\nUp: 0 hr 0"));
    assert_eq!(host.get("/debug/log-level").await.unwrap(), "info\n");
    let refused = host.put("/debug/log-level", "loud").await.unwrap_err().to_string();
    assert!(refused.contains("400") && refused.contains("is not a log level"), "{refused}");
    let filter = "info,[reconcile{plugin=registrar}]=debug";
    assert_eq!(host.put("/debug/log-level", filter).await.unwrap(), format!("{filter}\n"));
    embedded::create_pod(&fixture.cluster, "cart-0", "cart").unwrap();
    fixture.labelled("cart-0").await;
    until("the line of the run", WITHIN, async || {
        let log = host.log();
        ensure!(log.contains("log filter changed"), "{log}");
        ensure!(log.lines().any(|line| line.contains(" ran ") && line.contains("plugin=registrar")), "{log}");
        Ok(())
    })
    .await
    .unwrap();
    let log = host.log();
    assert!(!log.lines().any(|line| line.contains(" ran ") && line.contains("plugin=other")), "{log}");
    assert!(host.terminate().await.unwrap().success());
}

#[tokio::test]
async fn a_suspended_plugin_does_not_run_and_leaves_the_host_ready() {
    let fixture = Fixture::still().await;
    // Its component is missing, which would otherwise be an error.
    let component = guests::path("registrar").unwrap().display().to_string();
    let suspended =
        registrar("  suspend: true").replace("name: registrar", "name: idle").replace(&component, "no.wasm");
    fixture.write("idle.yaml", &suspended);
    fixture.write("registrar.yaml", &registrar(""));
    let host = fixture.spawn(&["idle.yaml", "registrar.yaml"], &[]).await;
    embedded::create_pod(&fixture.cluster, "cart-0", "cart").unwrap();
    fixture.labelled("cart-0").await;
    let (metrics, ready) = (host.get("/metrics").await.unwrap(), host.get("/readyz?verbose").await.unwrap());
    for (metric, idle, registrar) in [("podium_plugin_suspended", 1, 0), ("podium_plugin_ready", 0, 1)] {
        for (name, value) in [("idle", idle), ("registrar", registrar)] {
            let line = format!(r#"{metric}{{controller="{name}"}} {value}"#);
            assert!(metrics.contains(&line), "{line} is not in {metrics}");
        }
    }
    assert!(!metrics.contains(r#"workqueue_adds_total{controller="idle""#), "no key is queued: {metrics}");
    assert!(ready.contains("[+]plugin/idle ok: suspended\n") && ready.contains("readyz check passed"), "{ready}");
    assert!(host.log().contains("plugin suspended") && !host.log().contains(" ERROR "), "{}", host.log());
    assert!(host.terminate().await.unwrap().success());
}

#[tokio::test]
async fn json_logs_are_one_object_a_line_and_sigterm_exits_with_0() {
    // The smallest API server that the host supports.
    let options = Options { simulate: false, only: vec!["pods".into()], ..Options::default() };
    let fixture = Fixture::new(options).await;
    fixture.write("registrar.yaml", &registrar(""));
    embedded::create_pod(&fixture.cluster, "cart-0", "cart").unwrap();
    let json = ["--log-format", "json", "--log-level", "info,podium=debug"];
    let host = fixture.spawn(&["registrar.yaml"], &json).await;
    fixture.labelled("cart-0").await;
    until("the run in the log", WITHIN, async || {
        ensure!(host.log().contains("\"ran\""));
        Ok(())
    })
    .await
    .unwrap();
    let log = host.log();
    for line in log.lines() {
        let object: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| unreachable!("{error}: {line}"));
        for field in ["timestamp", "level", "message", "target"] {
            assert!(object[field].is_string(), "{field} in {line}");
        }
    }
    let ran = log.lines().find(|line| line.contains("\"ran\"")).unwrap();
    let ran: serde_json::Value = serde_json::from_str(ran).unwrap();
    assert_eq!((&ran["span"]["plugin"], &ran["span"]["pod"]), (&"registrar".into(), &"cart-0".into()), "{ran}");
    assert!(host.terminate().await.unwrap().success());
}

#[tokio::test]
async fn a_second_host_on_a_state_directory_is_one_error() {
    let fixture = Fixture::still().await;
    fixture.write("registrar.yaml", &registrar(""));
    let host = fixture.spawn(&["registrar.yaml"], &["--state-dir", fixture.path("state").to_str().unwrap()]).await;
    let ended = fixture.run_with_plugins(&["registrar.yaml", "--state-dir", "state"]).await;
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    let [error] = ended.errors()[..] else { unreachable!("{}", ended.stderr) };
    let expected =
        r#"state directory refused flag="--state-dir" file=state error="state is used by another podium-host"#;
    assert!(error.contains(expected), "{error}");
    assert!(!host.log().contains("no --state-dir"));
    assert!(host.terminate().await.unwrap().success());
    let host = fixture.spawn(&["registrar.yaml"], &[]).await;
    assert!(host.log().contains("no --state-dir: deletions of pods while the host is down are not delivered"));
}

#[tokio::test]
async fn a_state_directory_of_another_cluster_is_one_error() {
    let fixture = Fixture::still().await;
    fixture.write("registrar.yaml", &registrar(""));
    let state = fixture.path("state");
    let arguments = ["--state-dir", state.to_str().unwrap()];
    embedded::create_pod(&fixture.cluster, "cart-0", "cart").unwrap();
    let host = fixture.spawn(&["registrar.yaml"], &arguments).await;
    fixture.labelled("cart-0").await;
    assert!(host.terminate().await.unwrap().success());

    let other = Fixture::new(Options { simulate: false, seed: 2, ..Options::default() }).await;
    // It takes 40 s of processor time to compile, which the host does not wait for.
    let (slow, built) = (other.path("slow.wasm"), guests::path("registrar").unwrap());
    fs::write(&slow, bombs::slowed(&guests::component("registrar").unwrap(), 2_000)).unwrap();
    let slow = registrar("  limits: { class: interpreter }").replace(built.to_str().unwrap(), slow.to_str().unwrap());
    other.write("registrar.yaml", &slow);
    let ended = other.run_with_plugins(&[&["registrar.yaml"], &arguments[..]].concat()).await;
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    let [error] = ended.errors()[..] else { unreachable!("{}", ended.stderr) };
    assert!(error.contains(r#"flag="--state-dir" file=/"#) && error.contains("is of another cluster"), "{error}");
    assert!(!ended.stderr.contains("component compiled"), "{}", ended.stderr);
    let uid = async |fixture: &Fixture| {
        let namespaces = kube::Api::<Namespace>::all(kube::Client::new(fixture.cluster.service(), "default"));
        namespaces.get("kube-system").await.unwrap().metadata.uid.unwrap()
    };
    for uid in [uid(&fixture).await, uid(&other).await] {
        assert!(error.contains(&uid), "{uid}: {error}");
    }
}

#[tokio::test]
async fn a_host_that_may_not_read_kube_system_says_so_and_runs() {
    // The smallest API server that the host supports.
    let options = Options { simulate: false, only: vec!["pods".into()], ..Options::default() };
    let fixture = Fixture::new(options).await;
    fixture.write("registrar.yaml", &registrar(""));
    embedded::create_pod(&fixture.cluster, "cart-0", "cart").unwrap();
    let host = fixture.spawn(&["registrar.yaml"], &["--state-dir", fixture.path("state").to_str().unwrap()]).await;
    fixture.labelled("cart-0").await;
    assert!(host.log().contains("the cluster is not identified"), "{}", host.log());
    assert!(host.terminate().await.unwrap().success());
}

#[tokio::test]
async fn a_killed_host_delivers_every_deletion_after_its_restart() {
    const PODS: usize = 60;
    let fixture = Fixture::still().await;
    let register = embedded::create_pod(&fixture.cluster, "register", "register").unwrap();
    fixture.write("registrar.yaml", &registrar(&format!("  config: {{ register: {register} }}")));
    let state = fixture.path("state");
    let arguments = ["--state-dir", state.to_str().unwrap()];
    let names: Vec<_> = (0..PODS).map(|index| format!("cart-{index}")).collect();
    let mut ran = BTreeSet::new();
    // Killed after its work, and during it.
    for at_least in [PODS, 1, PODS / 3, PODS / 2] {
        let host = fixture.spawn(&["registrar.yaml"], &arguments).await;
        for name in &names {
            embedded::create_pod(&fixture.cluster, name, "cart").unwrap();
        }
        until("runs", WITHIN, async || {
            let labelled = fixture.labels().await?;
            ensure!(labelled.len() >= at_least, "{} of {at_least}", labelled.len());
            Ok(())
        })
        .await
        .unwrap();
        host.kill().await.unwrap();
        ran.extend(fixture.labels().await.unwrap());
        for name in &names {
            embedded::delete_pod(&fixture.cluster, name).await.unwrap();
        }
        ran.remove(&register);
    }
    let host = fixture.spawn(&["registrar.yaml"], &arguments).await;
    until("every deletion", WITHIN, async || {
        let noted = embedded::annotations(&fixture.cluster, "register").await?;
        let missing: Vec<_> =
            ran.iter().filter(|uid| !noted.contains_key(&format!("guests.example/deleted-{uid}"))).collect();
        ensure!(missing.is_empty(), "{} of {} are missing: {missing:?}", missing.len(), ran.len());
        ensure!(host.metric("podium_journal_pending_deletions", &[]).await? == 0.0, "not all have settled");
        Ok(())
    })
    .await
    .unwrap();
    assert!(ran.len() >= PODS + PODS / 3 + PODS / 2, "{} runs say little", ran.len());
    assert!(host.terminate().await.unwrap().success());

    let host = fixture.spawn(&["registrar.yaml"], &arguments).await;
    until("the run on the register", WITHIN, async || {
        ensure!(host.metric("controller_runtime_reconcile_total", &[]).await? >= 1.0);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(host.metric("podium_journal_entries", &[]).await.unwrap(), 1.0, "the register's");
    assert_eq!(host.metric("workqueue_adds_total", &[]).await.unwrap(), 1.0, "no deletion twice");
}

/// docs/operating.md says so of hosts without --lease on.
#[tokio::test]
async fn two_hosts_without_a_lease_each_run_every_plugin() {
    let fixture = Fixture::still().await;
    fixture.write("registrar.yaml", &registrar(""));
    let hosts = [fixture.spawn(&["registrar.yaml"], &[]).await, fixture.spawn(&["registrar.yaml"], &[]).await];
    embedded::create_pod(&fixture.cluster, "cart-0", "cart").unwrap();
    fixture.labelled("cart-0").await;
    for host in hosts {
        until("a run", WITHIN, async || {
            ensure!(host.metric("controller_runtime_reconcile_total", &[]).await? >= 1.0);
            Ok(())
        })
        .await
        .unwrap();
        let log = host.log();
        assert!(!log.contains("WARN") && !log.contains("ease"), "{log}");
        assert!(host.terminate().await.unwrap().success());
    }
}
