//! Flags, signals while disks are silent, and starts while everything changes.

use std::convert::Infallible;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use http_body_util::StreamBody;
use hyper::body::Frame;
use podium_engine::status::LoadState;
use serde_json::json;

use clap::Parser;

use super::{
    super::life::tests::{Idle, give},
    *,
};
use crate::images::Store;

fn addresses(arguments: &[&str], in_cluster: bool) -> (String, String) {
    let all = [&["podium-host", "--plugins", "plugins"], arguments].concat();
    let flags = Flags::try_parse_from(all).unwrap();
    (probe_address(&flags, in_cluster).to_string(), flags.metrics_bind_address.to_string())
}

#[test]
fn in_a_cluster_only_probes_listen_on_all_addresses() {
    assert_eq!(addresses(&[], true), (":8081".into(), "127.0.0.1:8080".into()));
    assert_eq!(addresses(&[], false), ("127.0.0.1:8081".into(), "127.0.0.1:8080".into()));
    let flags = ["--health-probe-bind-address", "10.0.0.7:1", "--metrics-bind-address", ":2"];
    assert_eq!(addresses(&flags, true), ("10.0.0.7:1".into(), ":2".into()));
}

#[tokio::test]
async fn a_host_needs_a_lease_only_if_it_is_asked_for() {
    let lease_of = |arguments: &[&str]| {
        let flags = Flags::try_parse_from([&["podium-host"], arguments].concat()).unwrap();
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::ready(Ok::<_, Infallible>(http::Response::new(http_body_util::Full::new(Bytes::new()))))
        });
        lease(&flags, kube::Client::new(service, "podium").into())
    };
    let namespace = |arguments: &[&str]| lease_of(arguments).map(|lease| lease.namespace);
    for off in [&["--plugins", "a"][..], &["--watch-plugins"], &["--watch-plugins", "--lease", "off"]] {
        assert_eq!(namespace(off), None, "{off:?}");
    }
    let on = ["--watch-plugins", "--lease", "on"];
    assert_eq!(namespace(&on), Some(None), "the definition of the kinds names it");
    let of_one = [&on[..], &["--namespace", "shop"]].concat();
    assert_eq!(namespace(&of_one), Some(Some("shop".to_owned())));
    assert_eq!(namespace(&["--plugins", "a", "--lease", "on"]), Some(Some("podium".to_owned())));
    let longer = [&on[..], &["--lease-duration-seconds", "15"]].concat();
    let [one, other] = [(); 2].map(|()| lease_of(&longer).unwrap());
    assert_eq!((&*one.own_namespace, one.duration), ("podium", Duration::from_secs(15)));
    assert_ne!(one.holder, other.holder, "the name of a process");
    assert!(one.boot_time.is_some_and(|time| time() > Duration::ZERO));
}

const PLUGIN: &str = "apiVersion: podium.dev/v1alpha1\nkind: ClusterReconcilePlugin\nmetadata: { name: a }\n\
    spec: { source: { file: a.wasm } }\n";
const KUBECONFIG: &str = "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
    contexts: [{ name: a, context: { cluster: a, user: a } }]\n\
    clusters: [{ name: a, cluster: { server: 'http://127.0.0.1:1' } }]\nusers: [{ name: a, user: {} }]\n";

/// Returns the exit of a host that has an empty pipe instead of this file, and gets SIGTERM if it is `signalled`.
fn exit_with_pipe(pipe: &str, signalled: bool) -> Option<(u8, &'static str)> {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    std::fs::create_dir(path("state")).unwrap();
    std::fs::write(path("a.yaml"), PLUGIN).unwrap();
    std::fs::write(path("kubeconfig"), KUBECONFIG).unwrap();
    let _ = std::fs::remove_file(path(pipe));
    assert!(std::process::Command::new("mkfifo").arg(path(pipe)).status().unwrap().success());
    let none = ["--health-probe-bind-address", "0", "--metrics-bind-address", "0"].map(PathBuf::from);
    let files = [("--plugins", "a.yaml"), ("--kubeconfig", "kubeconfig"), ("--state-dir", "state")];
    let files = files.into_iter().flat_map(|(flag, name)| [flag.into(), path(name)]);
    let flags = Flags::try_parse_from([PathBuf::from("podium-host")].into_iter().chain(files).chain(none)).unwrap();
    let (report, ended) = std::sync::mpsc::channel();
    thread::spawn(move || report.send(run(flags, &Logs::unset(), Given::default()).code_and_reason()));
    // The host listens for signals from its start, so that by now one does not end the process.
    for _ in 0..30 {
        if let Ok(exit) = ended.recv_timeout(Duration::from_secs(1)) {
            return Some(exit);
        }
        if signalled {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
        }
    }
    None
}

#[test]
fn a_start_that_waits_for_a_disk_ends_on_sigterm() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _listening = runtime.block_on(async { signal(SignalKind::terminate()) }).unwrap();
    assert_eq!(exit_with_pipe("kubeconfig", true), Some((0, "SIGTERM")));
    // A pipe in the state directory is refused at once.
    for pipe in ["state/journal", "state/lock"] {
        assert_eq!(exit_with_pipe(pipe, false).map(|(code, _)| code), Some(MISCONFIGURED), "{pipe}");
    }
}

#[test]
fn a_check_reads_the_policy_and_the_files_and_needs_no_cluster() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let policy = "apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec: { defaults: { limits: { memoryMiB: 64 } } }\n";
    std::fs::write(path("good.yaml"), policy).unwrap();
    std::fs::write(path("typo.yaml"), policy.replace("memoryMiB", "memoryMib")).unwrap();
    let registry = "spec: { registries: [{ host: a.example, caFile: none.pem }] }";
    let lines: Vec<&str> = policy.lines().take(2).chain([registry]).collect();
    std::fs::write(path("file.yaml"), lines.join("\n")).unwrap();
    std::fs::write(path("plugin.yaml"), PLUGIN).unwrap();
    std::fs::write(path("bad.yaml"), PLUGIN.replace("source", "sauce")).unwrap();
    let checked = |flags: &[(&str, &str)]| {
        let files = flags.iter().flat_map(|(flag, name)| [PathBuf::from(flag), path(name)]);
        let all = ["podium-host", "--check"].map(PathBuf::from).into_iter().chain(files);
        run(Flags::try_parse_from(all).unwrap(), &Logs::unset(), Given::default()).code_and_reason().0
    };
    assert_eq!(checked(&[("--policy", "good.yaml"), ("--state-dir", "state")]), 0);
    assert!(!path("state").exists(), "a check opens no state directory");
    assert_eq!(checked(&[("--policy", "typo.yaml")]), 2);
    assert_eq!(checked(&[("--policy", "file.yaml")]), 2, "the file of a registry's authorities is missing");
    assert_eq!(checked(&[("--policy", "none.yaml")]), 2);
    assert_eq!(checked(&[("--policy", "good.yaml"), ("--plugins", "plugin.yaml")]), 0);
    assert_eq!(checked(&[("--policy", "good.yaml"), ("--plugins", "bad.yaml")]), 2);
}

#[test]
fn runs_get_half_of_the_containers_memory_by_default() {
    let mib = |asked: Option<u32>, limit: Option<u64>| run_memory(asked, || limit) >> 20;
    assert_eq!(mib(None, Some(512 << 20)), 256);
    assert_eq!(mib(None, Some(100 << 20)), 64, "a plugin with the default of 32 MiB can be loaded");
    assert_eq!(mib(None, None), 1_024);
    assert_eq!(mib(Some(100), Some(512 << 20)), 100);
    let flags = |value: &str| Flags::try_parse_from(["podium-host", "--plugins", "a", "--run-memory-mib", value]);
    assert_eq!(flags("2").unwrap().run_memory_mib, Some(2));
    assert!(flags("1").is_err() && flags("-1").is_err(), "a tenant's half of 1 MiB has no place for a run");
}

/// An API server whose watches never rest: each second event suspends a plugin or resumes it.
fn flooding() -> kube::Client {
    let metadata = |name: &str, revision: u64| {
        json!({
            "name": name, "namespace": "shop", "uid": format!("u-{name}"), "generation": revision,
            "resourceVersion": revision.to_string(),
        })
    };
    let source = json!({ "configMap": { "name": "a", "key": "a", "sha256": "0".repeat(64) } });
    let plugin = move |revision: u64| {
        let name = format!("p{}", revision / 2 % 20);
        json!({
            "metadata": metadata(&name, revision), "spec": { "source": source, "suspend": revision.is_multiple_of(2) },
        })
    };
    let pod = move |revision: u64| json!({ "metadata": metadata("cart-0", revision), "spec": {}, "status": {} });
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let path = request.uri().path_and_query().unwrap().to_string();
        let plugin = plugin.clone();
        async move {
            let item = move |revision| if path.contains("plugins") { plugin(revision) } else { pod(revision) };
            let is_known = ["/api/v1/pods", "/apis/podium.dev/v1alpha1/reconcileplugins"]
                .iter()
                .any(|known| request.uri().path() == *known);
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=1"));
            let texts = if is_watch {
                let line = move |revision: u64| json!({ "type": "MODIFIED", "object": item(revision) }).to_string();
                let after_a_while = move |revision| {
                    let line = line(revision) + "\n";
                    async move {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        line
                    }
                };
                stream::iter(101..).then(after_a_while).boxed()
            } else {
                let items: Vec<_> = (60..100).step_by(2).map(&item).filter(|_| is_known).collect();
                let items = if request.uri().path().ends_with("pods") { items[..1].to_vec() } else { items };
                let list = json!({ "metadata": { "resourceVersion": "100" }, "items": items });
                stream::iter([list.to_string()]).boxed()
            };
            let frames = texts.map(|text| Ok::<_, Infallible>(Frame::data(Bytes::from(text))));
            let response = http::Response::builder().status(if is_known { 200 } else { 404 });
            response.body(StreamBody::new(frames))
        }
    });
    kube::Client::new(service, "default")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starts_under_a_flood_beside_a_plugin_that_cannot_be_loaded_end() {
    let starts = env::var("PODIUM_STARTS").map_or(200, |starts| starts.parse().unwrap());
    for start in 0..starts {
        let state = tempfile::tempdir().unwrap();
        let components = Some(Store::open(state.path()).unwrap());
        let mut app = App::start(Options { components, ..Options::new(flooding(), start, 0) }).await.unwrap();
        let plugin = |at| {
            format!(
                "apiVersion: podium.dev/v1alpha1\nkind: ReconcilePlugin\nmetadata: {{ name: a, namespace: t{at} }}\n\
                 spec: {{ source: {{ file: missing.wasm }} }}\n---\n"
            )
        };
        let file = state.path().join("plugins.yaml");
        std::fs::write(&file, (0..60).map(plugin).collect::<String>()).unwrap();
        let plugins = config::load(&[file]).plugins;
        assert_eq!(plugins.len(), 60);
        // The component of each second one is missing.
        plugins.iter().step_by(2).for_each(|plugin| give(&app.driver, &plugin.spec.id, Idle));
        let mut objects = app.watch_objects(None, &[]);
        let loaded = async {
            assert!(load(app.driver.clone(), plugins, false, true).await.unwrap());
            objects.wait_for(|loaded| *loaded).await.unwrap();
        };
        let in_time = tokio::time::timeout(Duration::from_secs(60), loaded).await;
        assert!(in_time.is_ok(), "start {start}: {:?}", app.plugins());
        let loaded = app.plugins().into_iter().filter(|plugin| plugin.load == LoadState::Loaded).count();
        assert_eq!(loaded, 30, "start {start}: {:?}", app.plugins());
        assert!(app.failed().now_or_never().is_none(), "start {start}: a task has ended");
        app.shutdown().await;
    }
}
