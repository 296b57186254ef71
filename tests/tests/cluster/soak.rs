//! podium-host with the five sample plugins for a long time on a real API server that fails as real ones do, while
//! Pods come, change and go: memory, descriptors and tasks stay flat, and at the end the cache has the Pods of the API
//! server in their revisions and no key waits.
//!
//! Runs for a bounded time; `PODIUM_SOAK_SECONDS` sets it. Samples are appended to the file `PODIUM_SOAK_LOG`, if that
//! is set. The debug build of the host is measured unless the suite runs in release.

use std::{env, fs, io::Write, process::Command, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use http::Request;
use kube::Client;
use podium_tests::{
    controlplane::{FaultProxy, Faults, Link},
    process::{Host, HostOptions, host_binary},
    programs::Choices,
    wait::until,
};
use serde_json::{Value, json};
use tokio::time::{Instant, interval, sleep};

use crate::{
    cluster,
    plugins::write_five,
    workloads::{Shape, deployment, host_account, job, label, namespace, pause_crashes, pods},
};

const SHOP: &str = "soak";
const DEFAULT_SECONDS: u64 = 40;
/// A run of this length is judged by the slope of its memory, and a shorter one by loose bounds.
const LONG: Duration = Duration::from_secs(3_600);
/// The time at the beginning that is left out of a run that lasts longer than twice as long.
const WARM_UP: Duration = Duration::from_secs(20 * 60);
const WITHIN: Duration = Duration::from_secs(120);
/// The faults, one after the other; connections are lost between them.
const FAULTS: [Faults; 6] = [
    Faults::None,
    Faults::Lost(30),
    Faults::Conflicts(50),
    Faults::Slow(Duration::from_millis(300)),
    Faults::Busy(1),
    Faults::Conflicts(100),
];

/// The process at a time.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Duration,
    resident: f64,
    /// Resident memory without pages of files: a leak shows here first.
    anonymous: f64,
    descriptors: f64,
    threads: f64,
    tasks: f64,
    cpu_seconds: f64,
}

impl Sample {
    async fn take(host: &Host, at: Duration) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{}/status", host.id()))?;
        let line = |name: &str| -> Result<&str> {
            let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.with_context(|| format!("no {name} in the status of the process"))
        };
        let kibibytes: f64 = line("RssAnon")?.trim_end_matches(" kB").trim().parse()?;
        Ok(Self {
            at,
            resident: host.metric("process_resident_memory_bytes", &[]).await?,
            anonymous: kibibytes * 1_024.0,
            descriptors: host.metric("process_open_fds", &[]).await?,
            threads: line("Threads")?.trim().parse()?,
            tasks: host.metric("podium_runtime_tasks", &[]).await?,
            cpu_seconds: host.metric("process_cpu_seconds_total", &[]).await?,
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_descriptors_and_tasks_stay_flat_during_faults() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(3).await? else { return Ok(()) };
    let length = Duration::from_secs(match env::var("PODIUM_SOAK_SECONDS") {
        Ok(text) => text.parse().context("PODIUM_SOAK_SECONDS is not a number of seconds")?,
        Err(_) => DEFAULT_SECONDS,
    });
    let directory = tempfile::tempdir()?;
    let (plugins, state) = (directory.path().join("plugins"), directory.path().join("state"));
    fs::create_dir(&plugins)?;
    write_five(&plugins)?;
    namespace(&client, SHOP).await?;
    deployment(&client, SHOP, "web", 8, Shape::default()).await?;
    deployment(&client, SHOP, "careless", 4, Shape { careless: true, ..Shape::default() }).await?;
    deployment(&client, SHOP, "crashing", 2, Shape { crashes: true, ..Shape::default() }).await?;

    // A copy, so that a build meanwhile does not replace the program that compiles plugins.
    let program = directory.path().join("podium-host");
    fs::copy(host_binary()?, &program)?;
    let link = Link::new(1);
    let proxy = link.proxy(&host_account(&plane, &client).await?).await?;
    let options = HostOptions {
        kubeconfig: proxy.kubeconfig_path().to_owned(),
        plugins: vec![plugins],
        arguments: ["--state-dir", &state.display().to_string()].map(Into::into).into(),
    };
    let host = Host::spawn_by(Command::new(program), &options).await?;

    let samples = tokio::select! {
        samples = sampled(&host, length) => samples?,
        ended = disturbed(&client, &link, &proxy, length) => bail!("nothing happens any more: {ended:?}"),
    };
    link.set(Faults::None);
    at_rest(&client, &host).await?;
    let events = host.metric("controller_runtime_reconcile_total", &[]).await?;
    let log = host.log();
    ensure!(!log.contains("panicked"), "{log}");
    let held = same_as_listed(&client, &host).await?;
    ensure!(host.terminate().await?.success());
    let figures = judged(&samples, length)?;
    let writes = link.sent().len();
    say(&format!("{figures}; {events} runs, {writes} requests that write, {held} Pods as in a list"))?;
    Ok(())
}

/// Writes past the test harness, which hides the output of tests that pass, and to the file of samples.
fn say(line: &str) -> Result<()> {
    writeln!(std::io::stderr(), "soak: {line}")?;
    if let Ok(path) = env::var("PODIUM_SOAK_LOG") {
        writeln!(fs::File::options().create(true).append(true).open(path)?, "{line}")?;
    }
    Ok(())
}

/// Samples the process each minute, or 20 times in a short run.
async fn sampled(host: &Host, length: Duration) -> Result<Vec<Sample>> {
    let began = Instant::now();
    let mut looks = interval((length / 20).min(Duration::from_secs(60)));
    let mut samples = Vec::new();
    while began.elapsed() < length {
        looks.tick().await;
        let sample = until("a sample", WITHIN, async || Sample::take(host, began.elapsed()).await).await?;
        if length >= LONG {
            say(&format!("{sample:?}"))?;
        }
        samples.push(sample);
    }
    Ok(samples)
}

/// Changes Pods and faults until it is dropped or fails.
async fn disturbed(client: &Client, link: &Link, proxy: &FaultProxy, length: Duration) -> Result<()> {
    let pause = (length / 20).clamp(Duration::from_millis(1_500), Duration::from_secs(12));
    let mut choices = Choices::new(2);
    for round in 0_usize.. {
        if round % 4 == 0 {
            link.set(FAULTS[(round / 4) % FAULTS.len()]);
            proxy.lose_connections();
        }
        let deployments = format!("/apis/apps/v1/namespaces/{SHOP}/deployments");
        match round % 5 {
            0 => {
                let annotations = json!({ "suite.podium.dev/round": round.to_string() });
                let template = json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } });
                patch(client, &format!("{deployments}/careless"), template).await?;
            }
            1 | 3 => {
                let scale = json!({ "spec": { "replicas": 2 + choices.below(12) } });
                patch(client, &format!("{deployments}/web/scale"), scale).await?;
            }
            2 => {
                job(client, SHOP, &format!("import-{round}"), 2).await?;
                // Its Pods are gone with it, if pod-ttl has not deleted them before.
                let last = round.saturating_sub(20);
                remove(client, &format!("/apis/batch/v1/namespaces/{SHOP}/jobs/import-{last}")).await?;
            }
            _ => {
                let found = pods(client, SHOP, "app=web").await?;
                if !found.is_empty() {
                    let name = choices.one(&found).metadata.name.as_deref().unwrap_or_default();
                    remove(client, &format!("/api/v1/namespaces/{SHOP}/pods/{name}")).await?;
                }
            }
        }
        sleep(pause).await;
    }
    Ok(())
}

async fn patch(client: &Client, path: &str, body: Value) -> Result<()> {
    let patch = Request::patch(path).header("Content-Type", "application/merge-patch+json");
    match client.request::<Value>(patch.body(body.to_string().into_bytes())?).await {
        // With a change of the Deployment's controller.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        patched => patched.map(drop).with_context(|| path.to_owned()),
    }
}

async fn remove(client: &Client, path: &str) -> Result<()> {
    let options = json!({ "propagationPolicy": "Background" }).to_string().into_bytes();
    let delete = Request::delete(path).header("Content-Type", "application/json").body(options)?;
    match client.request::<Value>(delete).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        removed => removed.map(drop).with_context(|| path.to_owned()),
    }
}

/// Waits until every Pod has what the plugins write, and no key is due, running or without tokens.
async fn at_rest(client: &Client, host: &Host) -> Result<()> {
    pause_crashes(client, SHOP, "app=crashing").await?;
    until("the host to be at rest", WITHIN, async || {
        for name in ["web", "careless", "crashing"] {
            for pod in pods(client, SHOP, &format!("app={name}")).await? {
                let labelled = label(&pod, "podium.dev/workload");
                ensure!(labelled == Some(name), "{:?} has the label {labelled:?}", pod.metadata.name);
            }
        }
        let finished = pods(client, SHOP, "job").await?.len();
        ensure!(finished == 0, "{finished} Pods of Jobs");
        let status: Value = serde_json::from_str(&host.get("/debug/reconcile-status").await?)?;
        for tenant in status["tenants"]["items"].as_array().context("no tenants")? {
            for keys in ["runs", "deliveries", "waiting", "stale", "throttled"] {
                ensure!(tenant[keys] == 0, "{keys}: {tenant}");
            }
        }
        ensure!(status["cache"]["stale"].is_null(), "{}", status["cache"]);
        Ok(())
    })
    .await
}

/// Waits until the cache has the Pods of a list and no others, each in its revision. Returns their number.
async fn same_as_listed(client: &Client, host: &Host) -> Result<usize> {
    until("the cache to equal a list", WITHIN, async || {
        let list: Value = client.request(Request::get("/api/v1/pods").body(Vec::new())?).await?;
        let listed = list["items"].as_array().context("a list without items")?;
        let held = host.metric("podium_cache_pods", &[]).await?;
        ensure!(held == listed.len() as f64, "{held} of {}", listed.len());
        for pod in listed.iter().map(|pod| &pod["metadata"]) {
            let [namespace, name, revision] =
                ["namespace", "name", "resourceVersion"].map(|field| pod[field].as_str().unwrap_or_default());
            let cached: Value = serde_json::from_str(&host.get(&format!("/debug/pods/{namespace}/{name}")).await?)?;
            let is_same = cached["uid"] == pod["uid"] && cached["revision"].as_u64() == revision.parse().ok();
            ensure!(is_same, "{pod}, but in the cache {cached}");
        }
        Ok(listed.len())
    })
    .await
}

/// The least-squares slope of a figure, per hour.
fn slope(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    let count = samples.len() as f64;
    let hours = |sample: &Sample| sample.at.as_secs_f64() / 3_600.0;
    let mean_hours = samples.iter().map(hours).sum::<f64>() / count;
    let mean = samples.iter().map(&of).sum::<f64>() / count;
    let products: f64 = samples.iter().map(|sample| (hours(sample) - mean_hours) * (of(sample) - mean)).sum();
    let squares: f64 = samples.iter().map(|sample| (hours(sample) - mean_hours).powi(2)).sum();
    products / squares
}

fn judged(samples: &[Sample], length: Duration) -> Result<String> {
    const MIB: f64 = 1_048_576.0;
    let warm_up = WARM_UP.min(length / 2);
    let samples: Vec<_> = samples.iter().filter(|sample| sample.at >= warm_up).copied().collect();
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { bail!("no samples after {warm_up:?}") };
    let most = |of: fn(&Sample) -> f64| samples.iter().map(of).fold(0.0, f64::max);
    let per_hour = slope(&samples, |sample| sample.resident) / MIB;
    let anonymous_per_hour = slope(&samples, |sample| sample.anonymous) / MIB;
    let span = last.at.saturating_sub(first.at);
    let cpu = 100.0 * (last.cpu_seconds - first.cpu_seconds) / span.as_secs_f64();
    let figures = format!(
        "{span:.0?} after {warm_up:.0?}: resident {:.1} to {:.1} MiB, {per_hour:.2} MiB/h; \
         anonymous {:.1} to {:.1} MiB, {anonymous_per_hour:.2} MiB/h; \
         descriptors {} to {}, {:.2}/h; threads {} to {}, {:.2}/h; tasks {} to {}, {:.2}/h; {cpu:.1} % of a processor",
        first.resident / MIB,
        last.resident / MIB,
        first.anonymous / MIB,
        last.anonymous / MIB,
        first.descriptors,
        last.descriptors,
        slope(&samples, |sample| sample.descriptors),
        first.threads,
        last.threads,
        slope(&samples, |sample| sample.threads),
        first.tasks,
        last.tasks,
        slope(&samples, |sample| sample.tasks),
    );
    // Requests under way have a descriptor and a few tasks each.
    for of in [|of: &Sample| of.descriptors, |of: &Sample| of.tasks, |of: &Sample| of.threads] {
        ensure!(most(of) <= of(first) + 20.0, "{figures}");
    }
    if length >= LONG {
        ensure!(per_hour <= 1.0 && anonymous_per_hour <= 1.0, "{figures}");
    } else {
        ensure!(last.resident <= 1.25 * first.resident, "{figures}");
        ensure!(last.anonymous <= 1.25 * first.anonymous, "{figures}");
    }
    Ok(figures)
}
