//! `/debug/pprof` of a whole host, in real time and on threads, as in production.

use std::{net::SocketAddr, path::Path, process::Output, time::Duration};

use anyhow::ensure;
use podium_devcluster::{Cluster, Options};
use podium_host::{
    admin::{self, ListenAddress},
    app::{self, App, Operator},
};
use podium_tests::{embedded, plugins, pprof::Profile, process::podium_binary, wait::until, wire::Wire};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Mutex,
};

const PODS: usize = 20;
/// A process is sampled once at a time, and tests share one.
static ONE: Mutex<()> = Mutex::const_new(());

/// A host on an embedded cluster with Pods.
struct Host {
    app: App,
    cluster: Cluster,
    address: SocketAddr,
}

impl Host {
    async fn start(guests: &[&str]) -> Self {
        let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
        let metrics = admin::bind(ListenAddress::All(0)).await.unwrap().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], metrics.address().port()));
        let operator = Operator { metrics: Some(metrics), ..Operator::default() };
        let options = embedded::options(&cluster, Wire::new(&cluster).client());
        let app = App::start(app::Options { operator, ..options }).await.unwrap();
        for guest in guests {
            app.load(plugins::guest(guest, guest, "").unwrap()).await.unwrap();
        }
        for index in 0..PODS {
            embedded::create_pod(&cluster, &format!("cart-{index}"), "cart").unwrap();
        }
        Self { app, cluster, address }
    }

    async fn send(&self, path: &str) -> TcpStream {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        let request = format!("GET /debug/pprof/{path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        socket
    }

    /// Returns status and body.
    async fn get(&self, path: &str) -> (u16, Vec<u8>) {
        let mut answer = Vec::new();
        self.send(path).await.read_to_end(&mut answer).await.unwrap();
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
        let status = String::from_utf8_lossy(&answer[9..12]).parse().unwrap();
        (status, answer.split_off(end + 4))
    }

    /// Returns the profile, taken while Pods change.
    async fn profile(&self, path: &str) -> Profile {
        let changes = async {
            for turn in 0_u64.. {
                let pods = embedded::pods(&self.cluster, Some("default"));
                let patch = kube::api::Patch::Merge(json!({"metadata": {"labels": {"turn": turn.to_string()}}}));
                for index in 0..PODS {
                    pods.patch(&format!("cart-{index}"), &kube::api::PatchParams::default(), &patch).await.unwrap();
                }
            }
        };
        tokio::select! {
            (status, body) = self.get(path) => {
                assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
                Profile::decode(&body).unwrap()
            }
            () = changes => unreachable!("it has no end"),
        }
    }

    /// Waits until no profile is taken.
    async fn unprofiled(&self) {
        until("the end of the profile", Duration::from_secs(10), async || {
            let status = self.get("guest?plugin=nothing&seconds=1").await.0;
            ensure!(status == 404, "{status}");
            Ok(())
        })
        .await
        .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_changes_shows_the_hot_function_of_a_plugin() {
    let host = Host::start(&["hot"]).await;
    let profile = host.profile("guest?plugin=hot&seconds=2").await;
    let all = profile.samples();
    assert!(all >= 40 && profile.in_function("hot::hot") * 10 >= all * 8, "{profile:?}");
    assert_eq!(profile.comment, "plugin hot");
    host.app.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_profile_of_the_process_has_functions_of_the_host() {
    let _one = ONE.lock().await;
    let host = Host::start(&["hot", "spin", "panics"]).await;
    let profile = host.profile("profile?seconds=3").await;
    let all = profile.samples();
    assert!(all >= 50, "{profile:?}");
    assert!(profile.in_function("[guest]") > 0, "{profile:?}");
    // Not most of them: frames of a debug build are large, and a stack is copied up to 64 KiB.
    for name in ["podium_", "tokio::runtime", "wasmtime::", "serde_json::"] {
        assert!(profile.below_function(name) > 0, "{name}: {profile:?}");
    }
    host.app.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_profile_is_taken_at_a_time_and_ends_with_its_client() {
    let _one = ONE.lock().await;
    let host = Host::start(&["hot"]).await;
    for path in ["profile?seconds=100", "guest?plugin=hot&seconds=100"] {
        // Whichever request comes first has the turn.
        let client = until("the profile to begin", Duration::from_secs(10), async || {
            let client = host.send(path).await;
            let (status, body) = host.get("guest?plugin=nothing&seconds=1").await;
            ensure!(status == 409 && body.starts_with(b"another profile is being taken"), "{status}");
            Ok(client)
        })
        .await
        .unwrap();
        drop(client);
        host.unprofiled().await;
    }
    let profile = host.profile("profile?seconds=1").await;
    assert!(profile.samples() > 0);
    host.app.shutdown().await;
}

/// Runs `podium profile` in a directory.
async fn podium(host: &Host, directory: &Path, arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(podium_binary().unwrap());
    command.current_dir(directory).arg("profile").args(arguments).env_remove("PODIUM_TOKEN");
    command.env("PODIUM_SERVER", format!("http://{}", host.address)).kill_on_drop(true);
    command.output().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn podium_profile_writes_a_file_or_says_why_not() {
    let _one = ONE.lock().await;
    let host = Host::start(&["hot"]).await;
    let directory = tempfile::tempdir().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let written = podium(&host, directory.path(), &["--seconds", "1"]).await;
    assert!(written.status.success(), "{}", text(&written.stderr));
    assert!(text(&written.stdout).contains(" samples in host.pprof\n"), "{}", text(&written.stdout));
    let profile = Profile::decode(&std::fs::read(directory.path().join("host.pprof")).unwrap()).unwrap();
    assert_eq!(profile.comment.split(':').next(), Some("the process"));

    let quiet = ["--plugin", "hot", "--seconds", "1", "-o", "quiet", "--output", "json"];
    let quiet = podium(&host, directory.path(), &quiet).await;
    let answer: serde_json::Value = serde_json::from_slice(&quiet.stdout).unwrap();
    assert_eq!(answer, json!({"ok": true, "file": "quiet", "samples": 0}));
    assert!(text(&quiet.stderr).contains("nothing of plugin hot ran in 1 s"), "{}", text(&quiet.stderr));
    assert_eq!(Profile::decode(&std::fs::read(directory.path().join("quiet")).unwrap()).unwrap().samples(), 0);

    for (arguments, code, sentence) in [
        (["--plugin", "shop/nothing"], 1, "404 Not Found: no plugin shop/nothing is configured"),
        (["--seconds", "121"], 2, "121 is not in 1..=120"),
        (["--plugin", "a b"], 2, "must be NAME or NAMESPACE/NAME"),
        (["--server", "http://localhost:1"], 1, "--server is the host's port of /metrics"),
    ] {
        let failed = podium(&host, directory.path(), &arguments).await;
        let error = text(&failed.stderr);
        assert!(failed.status.code() == Some(code) && error.contains(sentence), "{arguments:?}: {error}");
    }
    host.app.shutdown().await;
}
