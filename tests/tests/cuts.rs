//! `podium-host` as a process on a network that loses packets: the time to detect it, the state that is served
//! meanwhile, the time to recover, and that no call hangs. In real time, over real sockets, against the embedded
//! cluster.
//!
//! A few cuts by default; `PODIUM_CUTS` sets the number. The measured times are printed and compared with the
//! documented limits: only a guarantee about time justifies a test against the clock.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{fs, io::Write, net::SocketAddr, time::Duration};

use anyhow::{Context, Result, ensure};
use podium_devcluster::{Cluster, Options, Server, Verb};
use podium_tests::{
    embedded,
    network::Network,
    plugins,
    process::{Host, HostOptions, host_binary},
    wait::until,
};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// The time within which a dead connection must be detected, and a call must end.
const NOTICED_WITHIN: Duration = Duration::from_secs(5);
/// The tolerance for clocks and a busy machine in addition to the host's own deadlines.
const LATE: Duration = Duration::from_millis(100);
/// The time within which the cache must be correct after the network is restored.
const CONVERGED_WITHIN: Duration = Duration::from_secs(1);
/// The interval at which the host is observed.
const LOOK: Duration = Duration::from_millis(5);
const MINUTE: Duration = Duration::from_secs(60);
const DEFAULT_CUTS: usize = 4;

/// Returns the number of cuts.
fn cuts() -> usize {
    std::env::var("PODIUM_CUTS").map_or(DEFAULT_CUTS, |text| text.parse().unwrap())
}

/// A host on the far side, and a cluster on the near one.
struct Scene {
    network: Network,
    cluster: Cluster,
    host: Host,
    _server: Server,
    _directory: TempDir,
}

impl Scene {
    async fn start(network: Network, configurations: &[String], arguments: &[&str]) -> Result<Self> {
        let cluster = Cluster::start(Options { simulate: false, ..Options::default() })?;
        let server = cluster.listen(SocketAddr::new(Network::NEAR, 0)).await?;
        let directory = tempfile::tempdir()?;
        let path = |name: &str| directory.path().join(name);
        fs::write(path("kubeconfig"), server.kubeconfig())?;
        for index in 0..PODS {
            embedded::create_pod(&cluster, &format!("asked-{index}"), "asked")?;
        }
        let mut files = Vec::new();
        for (index, text) in configurations.iter().enumerate() {
            files.push(path(&format!("{index}.yaml")));
            fs::write(&files[index], text)?;
        }
        let mut arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        for flag in ["--health-probe-bind-address", "--metrics-bind-address"] {
            arguments.extend([flag.to_owned(), SocketAddr::new(Network::FAR, 0).to_string()]);
        }
        // The API server of this suite reviews no tokens.
        arguments.extend(["--metrics-authentication", "off"].map(str::to_owned));
        let options = HostOptions { kubeconfig: path("kubeconfig"), plugins: files, arguments };
        let host = Host::spawn_by(network.far_command(host_binary()?), &options).await?;
        Ok(Self { network, cluster, host, _server: server, _directory: directory })
    }

    /// Waits until the host reports that its cache is stale, and returns the time this took.
    async fn noticed(&self, since: Instant) -> Result<Duration> {
        loop {
            let answer = self.host.get("/readyz").await;
            let took = since.elapsed();
            match answer {
                Err(error) if error.to_string().contains("the cache is stale") => return Ok(took),
                Ok(_) => ensure!(took < MINUTE, "the host has not noticed anything for {took:?}"),
                Err(error) => return Err(error),
            }
            sleep(LOOK).await;
        }
    }

    /// Waits until the cache equals the present state of the cluster, and returns the time this took.
    async fn converged(&self, since: Instant) -> Result<Duration> {
        let (revision, pods) = self.cluster.list("pods");
        loop {
            let ready = self.host.get("/readyz").await.is_ok();
            let seen = self.host.metric("podium_cache_revision", &[]).await?;
            let held = self.host.metric("podium_cache_pods", &[]).await?;
            let took = since.elapsed();
            if ready && seen >= revision as f64 && held == pods.len() as f64 {
                return Ok(took);
            }
            let what = format!("ready: {ready}, at {seen} of {revision}, {held} of {} Pods", pods.len());
            ensure!(took < MINUTE, "after {took:?}: {what}");
            sleep(LOOK).await;
        }
    }

    async fn runs(&self, plugin: &str) -> Result<f64> {
        let controller = format!("controller=\"{plugin}\"");
        self.host.metric("controller_runtime_reconcile_total", &[&controller]).await
    }

    async fn labelled(&self, name: &str) -> Result<()> {
        until("the label", MINUTE, async || {
            let label = embedded::label(&self.cluster, name, "guests.example/seen").await?;
            label.map(drop).context("it has none")
        })
        .await
    }

    fn lists(&self) -> usize {
        let lists = |logged: &podium_devcluster::Logged| match logged.verb {
            // A list of one Pod only requests the revision.
            Verb::List => logged.resource == "pods" && logged.query != "limit=1",
            _ => logged.query.contains("sendInitialEvents"),
        };
        self.cluster.requests().count(lists)
    }
}

/// The number of Pods that are read repeatedly.
const PODS: usize = 8;

/// Returns a plugin that runs this script on each of these Pods, and again after 100 ms.
fn again_and_again(name: &str, script: &str) -> String {
    let script = json!(format!("{script}\nrequeue 100"));
    let more = format!(
        "  watch: {{ selector: {{ matchLabels: {{ app: asked }} }} }}\n  \
           limits: {{ class: interpreter, wallMillis: 60000 }}\n  config: {{ script: {script} }}"
    );
    let yaml = plugins::guest_yaml("probe", name, &more).unwrap();
    // The probe imports all functions.
    yaml.replace("sections: [labels]", "sections: [labels], live: true").replace(
        "annotations: [guests.example/*] }",
        "annotations: [guests.example/*], finalizers: [guests.example/*], conditions: [guests.example/*], events: \
        true, delete: true, evict: true, objects: [{ apiVersion: v1, kind: ConfigMap, resource: configmaps }] }",
    )
}

fn registrar() -> String {
    plugins::guest_yaml("registrar", "registrar", "  watch: { selector: { matchLabels: { app: cart } } }").unwrap()
}

/// Builds the host's binary too: in its own namespace a test has no network for downloads of a build.
fn built(plugins: [String; 2]) -> [String; 2] {
    host_binary().unwrap();
    plugins
}

/// Prints minimum, median and maximum to stderr directly, which the test harness never hides.
fn print_times(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    if let (Some(least), Some(median), Some(most)) = (times.first(), times.get(times.len() / 2), times.last()) {
        let times = times.len();
        let line = format!("{what}, {times} times: least {least:.2?}, median {median:.2?}, most {most:.2?}");
        let _ = writeln!(std::io::stderr(), "cuts: {line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_cut_is_detected_in_5_s_and_recovered_in_1() {
    let name = "a_silent_cut_is_detected_in_5_s_and_recovered_in_1";
    let plugins = built([registrar(), again_and_again("reader", "get default asked-0")]);
    if let Some(network) = Network::enter(name).await.unwrap() {
        let arguments = ["--log-level", "info,podium::plugin=warn"];
        let scene = Scene::start(network, &plugins, &arguments).await.unwrap();
        // A panic while there is a host shows its log.
        noticed_and_mended(&scene).await.unwrap();
        assert!(scene.host.terminate().await.unwrap().success());
    }
}

async fn noticed_and_mended(scene: &Scene) -> Result<()> {
    let (mut noticed, mut converged, mut written) = (Vec::new(), Vec::new(), Vec::new());
    for cut in 0..cuts() as u64 {
        // At all points of a watch's lifetime.
        sleep(Duration::from_millis(cut * 1_370 % 4_000)).await;
        let held = scene.host.metric("podium_cache_pods", &[]).await?;
        let began = Instant::now();
        scene.network.cut()?;
        embedded::create_pod(&scene.cluster, &format!("cart-{cut}"), "cart")?;
        if let Some(before) = cut.checked_sub(2) {
            embedded::delete_pod(&scene.cluster, &format!("cart-{before}")).await?;
        }
        let took = scene.noticed(began).await?;
        ensure!(took <= NOTICED_WITHIN, "noticed after {took:?}");
        noticed.push(took);

        // The last seen state is still served, and reported as stale.
        ensure!(scene.host.metric("podium_cache_stale", &[]).await? == 1.0, "stale is not in the metrics");
        ensure!(scene.host.metric("podium_cache_pods", &[]).await? == held, "Pods went because of the cut");
        let runs = scene.runs("reader").await?;
        until("a run on the old data", MINUTE, async || {
            ensure!(scene.runs("reader").await? > runs, "none");
            Ok(())
        })
        .await?;

        let long = Duration::from_millis(4_000 + cut * 730 % 3_000);
        sleep(long.saturating_sub(began.elapsed())).await;
        ensure!(scene.host.get("/readyz").await.is_err(), "ready while it is cut off");
        scene.network.heal()?;
        let healed = Instant::now();
        let took = scene.converged(healed).await?;
        ensure!(took <= CONVERGED_WITHIN, "right again after {took:?}");
        converged.push(took);
        scene.labelled(&format!("cart-{cut}")).await?;
        written.push(healed.elapsed());
    }
    assert_eq!(scene.lists(), 1, "a cut costs no list");
    print_times("from the cut until the host reports it", &mut noticed);
    print_times("from the network's return until the cache is right", &mut converged);
    print_times("from the network's return until a plugin has written", &mut written);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_ends_within_5_seconds_with_a_dead_connection_pool() {
    let name = "every_call_ends_within_5_seconds_with_a_dead_connection_pool";
    let plugins = built([registrar(), again_and_again("asker", "live default asked-0")]);
    if let Some(network) = Network::enter(name).await.unwrap() {
        let arguments = ["--workers", "32", "--log-level", "info,podium=debug,podium::plugin=warn"];
        let scene = Scene::start(network, &plugins, &arguments).await.unwrap();
        calls_on_dead_connections(&scene).await.unwrap();
        assert!(scene.host.terminate().await.unwrap().success());
    }
}

async fn calls_on_dead_connections(scene: &Scene) -> Result<()> {
    let mut lost = 0;
    for cut in 0..cuts() {
        let answers = scene.runs("asker").await?;
        until("answers on connections that are kept", MINUTE, async || {
            ensure!(scene.runs("asker").await? >= answers + 4.0 * PODS as f64, "few runs");
            Ok(())
        })
        .await?;
        // Writes that are executed and whose responses are under way when the network is cut.
        scene.cluster.faults().delay(Duration::from_millis(300));
        let before = scene.cluster.requests().writes().len();
        let names: Vec<String> = (0..PODS).map(|index| format!("cart-{cut}-{index}")).collect();
        for name in &names {
            embedded::create_pod(&scene.cluster, name, "cart")?;
        }
        until("writes on their way", MINUTE, async || {
            ensure!(scene.cluster.requests().writes().len() > before, "none");
            Ok(())
        })
        .await?;
        scene.network.cut()?;
        scene.cluster.faults().heal();
        let failed = failed_calls(&scene.host.log()).len();
        sleep(Duration::from_millis(5_000 + cut as u64 * 1_130 % 4_000)).await;
        scene.network.heal()?;
        lost += failed_calls(&scene.host.log()).len() - failed;
        for name in &names {
            scene.labelled(name).await?;
            embedded::delete_pod(&scene.cluster, name).await?;
        }
        let asked = runs_of("asker", &scene.host.log());
        until("an answer about each Pod", MINUTE, async || {
            let now = runs_of("asker", &scene.host.log());
            ensure!(now.len() >= asked.len() + 2 * PODS, "{} runs", now.len() - asked.len());
            Ok(())
        })
        .await?;
    }
    let log = scene.host.log();
    let mut calls = failed_calls(&log);
    // A run of the asker is only one call.
    calls.extend(runs_of("asker", &log));
    ensure!(lost >= cuts() * PODS, "{lost} calls were lost, which says little");
    let most = calls.iter().max().copied().unwrap_or_default();
    ensure!(most <= NOTICED_WITHIN + LATE, "a call took {most:?}");
    print_times("a call that the cut hit", &mut failed_calls(&log));
    print_times("any call", &mut calls);
    Ok(())
}

/// Returns the duration of each call, from the host's log.
fn failed_calls(log: &str) -> Vec<Duration> {
    let failed = log.lines().filter(|line| line.contains("request failed"));
    failed.map(|line| Duration::from_millis(number(line, "millis="))).collect()
}

fn runs_of(plugin: &str, log: &str) -> Vec<Duration> {
    let plugin = format!("plugin={plugin}");
    let runs = log.lines().filter(|line| line.contains(": ran ") && line.contains(&plugin));
    runs.map(|line| Duration::from_micros(number(line, "micros="))).collect()
}

fn number(line: &str, before: &str) -> u64 {
    let (_, rest) = line.split_once(before).unwrap();
    rest.split(' ').next().unwrap().parse().unwrap()
}
