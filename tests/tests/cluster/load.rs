//! Rolling restarts of many Deployments on the real control plane, with a plugin for each namespace that labels new
//! Pods: each real change costs one write. The audit log counts the writes, and another client's watch the changes.
//!
//! `just bench-load` runs it longer, with more Pods, and beside it the same logic as a program of controller-runtime
//! and as one of kube-rs. `PODIUM_LOAD` has the lengths and programs, see [`Load`].

use std::{
    collections::HashMap,
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use futures::StreamExt;
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, watcher, watcher::watcher as watch},
};
use podium_tests::{
    controlplane::{ControlPlane, Mark, Options},
    plugins::sample_yaml,
    process::{Host, HostOptions, Process},
    wait::until,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    cluster_with,
    workloads::{HOST, Shape, deployment, host_account, namespace},
};

const LABEL: &str = "podium.dev/workload";
const NAME: &str = "web";
const WITHIN: Duration = Duration::from_secs(600);
/// Sufficient for the API server to write its audit log and for the watch of the test.
const SETTLES: Duration = Duration::from_secs(3);

/// The load, as JSON in `PODIUM_LOAD`.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Load {
    /// Namespaces, with a Deployment and a plugin each.
    namespaces: usize,
    /// Pods of each Deployment.
    replicas: usize,
    seconds: u64,
    /// The pause between the restarts of two Deployments.
    pause_millis: u64,
    /// A podium-host to measure instead of that of the test's profile.
    host: Option<PathBuf>,
    /// `podium-bench`, whose command `controller` is the program of kube-rs.
    kube_rs: Option<PathBuf>,
    /// The program of `tests/bench/controller`.
    controller_runtime: Option<PathBuf>,
}

impl Default for Load {
    fn default() -> Self {
        let (host, kube_rs, controller_runtime) = (None, None, None);
        Self { namespaces: 4, replicas: 8, seconds: 20, pause_millis: 4_000, host, kube_rs, controller_runtime }
    }
}

impl Load {
    fn names(&self) -> Vec<String> {
        (0..self.namespaces).map(|index| format!("team-{index:02}")).collect()
    }

    fn pods(&self) -> usize {
        self.namespaces * self.replicas
    }
}

/// The program that reconciles.
enum Subject {
    Podium(Host),
    Peer(Process),
}

impl Subject {
    fn id(&self) -> u32 {
        match self {
            Self::Podium(host) => host.id(),
            Self::Peer(process) => process.id(),
        }
    }

    async fn end(self) -> Result<()> {
        match self {
            Self::Podium(host) => ensure!(host.terminate().await?.success()),
            Self::Peer(process) => drop(process),
        }
        Ok(())
    }
}

/// The Pods as another client's watch shows them.
#[derive(Debug, Default)]
struct Seen {
    by_uid: HashMap<String, Times>,
    /// Pods that exist, and those of them that have the label.
    present: HashMap<String, bool>,
    failures: usize,
}

#[derive(Debug)]
struct Times {
    appeared: Instant,
    labelled: Option<Instant>,
    /// How often the value of the label changed.
    changes: u64,
    label: Option<String>,
}

impl Seen {
    fn apply(&mut self, pod: &PartialObjectMeta<Pod>) {
        let now = Instant::now();
        let Some(uid) = pod.metadata.uid.clone() else { return };
        let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(LABEL)).cloned();
        let is_ending = pod.metadata.deletion_timestamp.is_some();
        let times =
            self.by_uid.entry(uid.clone()).or_insert(Times { appeared: now, labelled: None, changes: 0, label: None });
        if label != times.label {
            times.changes += 1;
            times.labelled.get_or_insert(now);
            times.label.clone_from(&label);
        }
        self.present.insert(uid, label.is_some() || is_ending);
    }

    fn changes(&self) -> u64 {
        self.by_uid.values().map(|times| times.changes).sum()
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Follows the metadata of all Pods until it is dropped.
async fn follow(client: Client, seen: Arc<Mutex<Seen>>) {
    let pods: Api<PartialObjectMeta<Pod>> = Api::all(client);
    let mut events = watch(pods, watcher::Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        let mut seen = lock(&seen);
        match event {
            Ok(watcher::Event::InitApply(pod) | watcher::Event::Apply(pod)) => seen.apply(&pod),
            Ok(watcher::Event::Delete(pod)) => {
                seen.present.remove(pod.metadata.uid.as_deref().unwrap_or_default());
            }
            Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
            // Changes may be missed.
            Err(_) => seen.failures += 1,
        }
    }
}

#[derive(Debug)]
struct Figures {
    name: &'static str,
    pods: usize,
    writes: u64,
    changes: u64,
    refused: u64,
    p50: Duration,
    p99: Duration,
    cpu: Duration,
    peak_mib: f64,
    end_mib: f64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_restarts_cost_one_write_for_each_new_pod() -> Result<()> {
    let load: Load = match env::var("PODIUM_LOAD") {
        Ok(text) => serde_json::from_str(&text).context("PODIUM_LOAD")?,
        Err(_) => Load::default(),
    };
    let Some(podium) = measured(&load, "podium", None).await? else { return Ok(()) };
    ensure!(podium.writes == podium.changes && podium.writes >= 2 * load.pods() as u64, "{podium:?}");
    let namespaces = load.names();
    for (name, program, argument) in [
        ("kube-rs", &load.kube_rs, "controller"),
        ("controller-runtime", &load.controller_runtime, "1"),
        ("controller-runtime-10", &load.controller_runtime, "10"),
    ] {
        let Some(program) = program else { continue };
        let mut peer = Command::new(program);
        peer.arg(argument);
        measured(&load, name, Some((peer, &namespaces))).await?;
    }
    Ok(())
}

/// Returns `None` if the suite is skipped.
async fn measured(load: &Load, name: &'static str, peer: Option<(Command, &[String])>) -> Result<Option<Figures>> {
    let nodes = load.pods().div_ceil(100).max(3);
    let Some((plane, client, _turn)) = cluster_with(Options { nodes, ..Options::default() }).await? else {
        return Ok(None);
    };
    for team in load.names() {
        namespace(&client, &team).await?;
        deployment(&client, &team, NAME, load.replicas, Shape::default()).await?;
    }
    until("all Deployments", WITHIN, async || rolled_out(&client, load).await).await?;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let following = tokio::spawn(follow(plane.client().await?, Arc::clone(&seen)));
    until("the watch", WITHIN, async || {
        ensure!(lock(&seen).present.len() == load.pods());
        Ok(())
    })
    .await?;

    let kubeconfig = host_account(&plane, &client).await?;
    let directory = tempfile::tempdir()?;
    let subject = match peer {
        None => Subject::Podium(start_podium(load, &kubeconfig, directory.path()).await?),
        Some((mut command, namespaces)) => {
            command.arg(kubeconfig).args(namespaces);
            Subject::Peer(Process::spawn(name, &mut command, directory.path().join("log"))?)
        }
    };
    let all_labelled = async || {
        until("a label on every Pod", WITHIN, async || {
            let seen = lock(&seen);
            let left = seen.present.values().filter(|labelled| !**labelled).count();
            ensure!(left == 0 && seen.present.len() >= load.pods(), "{left} of {}", seen.present.len());
            Ok(())
        })
        .await
    };
    all_labelled().await?;
    let (cpu_before, restarts_from) = (cpu(subject.id())?, Instant::now());
    restart(&client, load).await?;
    until("the last restarts", WITHIN, async || rolled_out(&client, load).await).await?;
    all_labelled().await?;
    sleep(SETTLES).await;

    let figures = figures(name, &plane, &seen, &subject, (cpu_before, restarts_from))?;
    report(&figures)?;
    following.abort();
    subject.end().await?;
    Ok(Some(figures))
}

/// Returns the figures since the restarts began, when the subject had used this much processor time. Those of writes
/// and changes are of the whole time.
fn figures(
    name: &'static str,
    plane: &ControlPlane,
    seen: &Mutex<Seen>,
    subject: &Subject,
    (cpu_before, restarts_from): (Duration, Instant),
) -> Result<Figures> {
    let audited = plane.audit().writes_of(HOST, Mark::default())?;
    let patches = audited.iter().filter(|write| write.verb == "patch" && write.resource == "pods");
    let done = patches.clone().filter(|write| write.code < 300).count() as u64;
    let seen = lock(seen);
    ensure!(seen.failures == 0, "the watch of the test was interrupted {} times", seen.failures);
    let mut waits: Vec<Duration> = (seen.by_uid.values())
        .filter(|times| times.appeared > restarts_from)
        .filter_map(|times| Some(times.labelled?.duration_since(times.appeared)))
        .collect();
    waits.sort_unstable();
    let at = |percent: usize| waits.get(waits.len() * percent / 100).copied().unwrap_or_default();
    Ok(Figures {
        name,
        pods: waits.len(),
        writes: done,
        changes: seen.changes(),
        refused: patches.count() as u64 - done,
        p50: at(50),
        p99: at(99),
        cpu: cpu(subject.id())?.saturating_sub(cpu_before),
        peak_mib: memory(subject.id(), "VmHWM:")?,
        end_mib: memory(subject.id(), "VmRSS:")?,
    })
}

fn report(figures: &Figures) -> Result<()> {
    let Figures { name, pods, writes, changes, refused, p50, p99, cpu, peak_mib, end_mib } = figures;
    let line = format!(
        "{name}: {pods} new Pods; {writes} writes done for {changes} changes, {refused} refused; event to write p50 \
         {p50:.1?}, p99 {p99:.1?}; {cpu:.2?} of processor time; {peak_mib:.1} MiB at most, {end_mib:.1} at the end"
    );
    Ok(writeln!(std::io::stderr(), "load: {line}")?)
}

async fn start_podium(load: &Load, kubeconfig: &Path, directory: &Path) -> Result<Host> {
    let sample = sample_yaml("workload-label")?;
    let (kind, name) = ("kind: ClusterReconcilePlugin", "name: workload-label");
    ensure!(sample.contains(kind) && sample.contains(name), "{sample}");
    for team in load.names() {
        let of_team = sample.replace(kind, "kind: ReconcilePlugin");
        let of_team = of_team.replace(name, &format!("name: workload-label\n  namespace: {team}"));
        fs::write(directory.join(format!("{team}.yaml")), of_team)?;
    }
    let options = HostOptions {
        kubeconfig: kubeconfig.to_owned(),
        plugins: vec![directory.to_owned()],
        arguments: vec!["--strict".to_owned()],
    };
    match &load.host {
        Some(program) => Host::spawn_by(Command::new(program), &options).await,
        None => Host::spawn(&options).await,
    }
}

/// Restarts one Deployment after the other.
async fn restart(client: &Client, load: &Load) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(load.seconds);
    for (round, team) in load.names().iter().cycle().enumerate() {
        if Instant::now() >= end {
            break;
        }
        let path = format!("/apis/apps/v1/namespaces/{team}/deployments/{NAME}");
        let annotations = json!({ "suite.podium.dev/round": round.to_string() });
        let body = json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } }).to_string();
        let patch = Request::patch(path).header("Content-Type", "application/merge-patch+json");
        client.request::<Value>(patch.body(body.into_bytes())?).await?;
        sleep(Duration::from_millis(load.pause_millis)).await;
    }
    Ok(())
}

/// Fails unless every Deployment has only Pods of its last template.
async fn rolled_out(client: &Client, load: &Load) -> Result<()> {
    let list: Value = client.request(Request::get("/apis/apps/v1/deployments").body(Vec::new())?).await?;
    let items = list["items"].as_array().context("a list without items")?;
    ensure!(items.len() == load.namespaces, "{} Deployments", items.len());
    for deployment in items {
        let (status, metadata) = (&deployment["status"], &deployment["metadata"]);
        let is_observed = status["observedGeneration"] == metadata["generation"];
        let counts = ["replicas", "updatedReplicas", "readyReplicas"];
        if !is_observed || counts.iter().any(|count| status[*count].as_u64() != Some(load.replicas as u64)) {
            bail!("{}: {status}", metadata["namespace"]);
        }
    }
    Ok(())
}

/// Returns the processor time of a process.
fn cpu(id: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("a strange stat")?;
    // The 14th and 15th field of all, in ticks; the first here is the third.
    let ticks: Vec<u64> = fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse().ok()).collect();
    let [user, system] = ticks[..] else { bail!("a strange stat: {stat}") };
    Ok(Duration::from_secs(user + system) / u32::try_from(rustix::param::clock_ticks_per_second())?)
}

/// Returns a figure of `/proc/ID/status` in MiB.
pub(crate) fn memory(id: u32, name: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such figure")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1_024.0)
}
