//! `podium demo --hostile`: hostile components against the host, one after another, and the cost to a plugin of another
//! tenant beside them.

use std::{
    convert::Infallible,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use futures::future::BoxFuture;
use kube::{
    ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use podium_engine::{ports::FailureKind, status::PluginStatus};
use podium_host::app::{self, App};
use podium_vocabulary::{PluginSpec, text};
use serde::Serialize;
use serde_json::json;

use super::{
    DEADLINE, INTERRUPTED, NODES,
    latency::{self, Comparison, Sample},
    progress::Progress,
    table::Screen,
    workloads::{self, Cluster, SPINNING_NAMESPACE},
};
use crate::{
    args::{self, Output},
    cluster::Local,
    hostile::{ATTACKS, Attack, End, NEIGHBOUR},
    plugin, ui,
};

/// The namespace of the neighbour. Its Pods are measured.
const NEIGHBOURING_NAMESPACE: &str = "bank-ledger";
/// The label that the neighbour sets.
const LABEL: &str = "neighbour.podium.dev/seen";
/// The neighbour answers measurements one after the other, which are more writes than the default allows.
const MANY_WRITES: &str = "{ writesPerSecond: 200 }";
/// New Pods for each measurement beside an attack, and before and after it.
const PROBES: usize = 40;
/// The most measurements of an attack while the neighbour seems to be delayed.
const MEASUREMENTS: usize = 3;
/// How often a Pod that wakes the attack changes.
const WAKE_INTERVAL: Duration = Duration::from_millis(50);
/// How often the counters are read.
const INTERVAL: Duration = Duration::from_millis(20);
/// Bytes of a message that the table shows.
const SHOWN_BYTES: usize = 60;

/// The result for programs: the last line of stdout.
#[derive(Debug, Default, Serialize)]
struct Report {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    attacks: Vec<Row>,
}

/// The result of one attack.
#[derive(Debug, Clone, Serialize)]
struct Row {
    attack: &'static str,
    contained: bool,
    contained_by: &'static str,
    /// `refused`, the kind of the failures, or `succeeded`.
    end: String,
    /// The reason of the refusal, or the message of the last failure.
    message: String,
    /// Runs of the attack.
    runs: u64,
    neighbour: Neighbour,
}

/// The times of the neighbour in milliseconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Neighbour {
    alone: Times,
    beside: Times,
}

/// Times in milliseconds: of a run with its write, and from a new Pod to the write that answers it.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Times {
    run_p50_ms: Option<f64>,
    run_p99_ms: Option<f64>,
    answer_p50_ms: f64,
    answer_p99_ms: f64,
}

/// Runs all attacks and reports whether each was contained.
///
/// # Errors
/// Returns an error if the demo could not start: the cluster, the host or the neighbour does not start.
pub(super) async fn run(arguments: &args::Demo, now_millis: u64) -> anyhow::Result<ExitCode> {
    let attacking: BoxFuture<'_, _> = Box::pin(tokio::time::timeout(DEADLINE, attack_all(arguments, now_millis)));
    let ran = tokio::select! {
        biased;
        stopped = ui::stopped() => return stopped.map(|()| ExitCode::from(INTERRUPTED)),
        ran = attacking => ran.with_context(|| format!("not done after {DEADLINE:?}")).flatten(),
    };
    let report = match ran {
        Ok(attacks) => Report { ok: attacks.iter().all(|row| row.contained), error: None, attacks },
        Err(error) if arguments.output == Output::Json => {
            let report = Report { error: Some(format!("{error:#}")), ..Report::default() };
            ui::print(&format!("{}\n", serde_json::to_string(&report)?))?;
            return Err(error);
        }
        Err(error) => return Err(error),
    };
    print(arguments.output, &report)?;
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn attack_all(arguments: &args::Demo, now_millis: u64) -> anyhow::Result<Vec<Row>> {
    let seed = arguments.seed;
    let screen = Screen::new();
    screen.step("a Kubernetes API server in this process, and 200 Pods of four tenants");
    let options = podium_devcluster::Options {
        seed,
        nodes: NODES,
        start_millis: i64::try_from(now_millis)?,
        ..podium_devcluster::Options::default()
    };
    let local = Local::start(options).await?;
    let cluster = Cluster::connect(local.client().await?).await?;
    let pods = cluster.seed().await?;
    let app = App::start(app::Options {
        watch_client: local.client().await?.into(),
        workers: ui::WORKERS,
        compilation: ui::compilation()?,
        ..app::Options::new(local.client().await?, seed, now_millis)
    })
    .await?;
    screen.note(&format!("{pods} Pods in 6 namespaces on {NODES} nodes"));
    let folder = tempfile::tempdir()?;
    let grants = format!("{{ read: {{ pods: {{ sections: [labels] }} }}, write: {{ labels: [{LABEL}] }} }}");
    let neighbour =
        configured(folder.path(), NEIGHBOURING_NAMESPACE, "neighbour", &grants, MANY_WRITES, &NEIGHBOUR.component()?)?;
    let status = app.status().plugin(&neighbour.id);
    app.load(neighbour).await.context("the neighbour")?;
    let stage = Stage { cluster, app, screen, neighbour: status, folder: folder.path().to_owned() };
    stage.until_labelled().await?;
    let mut rows = Vec::new();
    for attack in &ATTACKS {
        stage.screen.step(attack.name);
        let row = stage.attack(attack, arguments.plugins).await.with_context(|| attack.name)?;
        let mark = if row.contained { "contained" } else { "NOT CONTAINED" };
        stage.screen.note(&format!("{}: {mark} by {}", row.attack, row.contained_by));
        rows.push(row);
    }
    stage.screen.finish();
    stage.app.shutdown().await;
    Ok(rows)
}

/// Returns a plugin with this component, configured by a file as a tenant's is.
fn configured(
    folder: &Path,
    namespace: &str,
    name: &str,
    grants: &str,
    limits: &str,
    component: &[u8],
) -> anyhow::Result<PluginSpec> {
    let file = folder.join(format!("{name}.yaml"));
    let wasm = folder.join(format!("{name}.wasm"));
    std::fs::write(&wasm, component)?;
    let yaml = format!(
        "apiVersion: podium.dev/v1alpha1\nkind: ReconcilePlugin\nmetadata: {{ name: {name}, namespace: {namespace} }}\n\
         spec: {{ source: {{ file: {name}.wasm }}, watch: {{ sections: [labels] }},\n  \
         grants: {grants}, limits: {limits} }}\n"
    );
    std::fs::write(&file, yaml)?;
    let plugin = plugin::specs(&file, &wasm)?.into_iter().next().context("a configuration without a plugin")?;
    Ok(plugin.spec)
}

/// The host, its cluster, and the neighbour.
struct Stage {
    cluster: Cluster,
    app: App,
    screen: Screen,
    neighbour: Arc<PluginStatus>,
    folder: PathBuf,
}

impl Stage {
    /// Waits until the neighbour has labelled all its Pods.
    async fn until_labelled(&self) -> anyhow::Result<()> {
        let pods = self.cluster.pods(NEIGHBOURING_NAMESPACE);
        let mut progress = Progress::new();
        loop {
            let listed = pods.list(&ListParams::default()).await?;
            let left = listed.iter().filter(|pod| !pod.labels().contains_key(LABEL)).count();
            if left == 0 {
                return Ok(());
            }
            if !progress.continues(left) {
                bail!("{left} Pods of {NEIGHBOURING_NAMESPACE} do not have the label {LABEL}");
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Runs an attack as this number of plugins.
    async fn attack(&self, attack: &Attack, plugins: u64) -> anyhow::Result<Row> {
        let component = (attack.component)()?;
        let grants = "{ read: { pods: { sections: [labels] } } }";
        let of = |number| {
            let name = if number == 0 { attack.name.to_owned() } else { format!("{}-{number}", attack.name) };
            configured(&self.folder, SPINNING_NAMESPACE, &name, grants, "{}", &component)
        };
        let spec = of(0)?;
        let others = (1..plugins).map(of).collect::<anyhow::Result<Vec<_>>>()?;
        let mut measured: Vec<Comparison> = Vec::new();
        loop {
            let status = self.app.status().plugin(&spec.id);
            let (mut alone, mut alone_runs) = self.probe(PROBES / 2).await.context("without the attack")?;
            let refusal = self.load(&spec).await?;
            for other in others.iter().filter(|_| refusal.is_none()) {
                self.load(other).await?;
            }
            let beside = self.beside(&status, refusal.is_some()).await;
            let is_loaded = refusal.is_none();
            // Unloading ends the runs under way, which is no end of the attack.
            let (end, message) = ended(&status, refusal);
            if is_loaded {
                for of in [&spec].into_iter().chain(&others) {
                    self.app.unload(&of.id).await;
                }
            }
            let (beside, beside_runs) = beside?;
            let (more, more_runs) = self.probe(PROBES / 2).await.context("without the attack")?;
            alone.extend(&more);
            alone_runs = merged(alone_runs, more_runs);
            let neighbour = Neighbour { alone: times(&alone, alone_runs), beside: times(&beside, beside_runs) };
            measured.push(Comparison { alone, beside });
            let is_held_up = latency::held_up(&measured);
            if is_held_up && measured.len() < MEASUREMENTS {
                self.screen.note("the neighbour was slow; measuring again, because the machine may be busy");
                continue;
            }
            let is_expected = match attack.end {
                End::Refused(text) => end == "refused" && message.contains(text),
                End::Cut(kind, text) => end == kind.name() && message.contains(text),
                End::Succeeds => end == "succeeded",
            };
            return Ok(Row {
                attack: attack.name,
                contained: is_expected && !is_held_up,
                contained_by: attack.contained_by,
                end,
                message,
                runs: status.runs(),
                neighbour,
            });
        }
    }

    /// Loads the attack. Returns the reason if it is refused.
    async fn load(&self, spec: &PluginSpec) -> anyhow::Result<Option<String>> {
        match self.app.prepare(spec.clone()).await {
            Ok(prepared) => {
                self.app.install(prepared).await;
                Ok(None)
            }
            Err(failure) if failure.is_passing() => Err(failure.into()),
            Err(failure) => Ok(Some(failure.to_string())),
        }
    }

    /// Measures the neighbour beside the attack, until the attack has run.
    async fn beside(&self, status: &PluginStatus, is_refused: bool) -> anyhow::Result<(Sample, Quantiles)> {
        let measuring = async {
            let sample = self.probe(PROBES).await?;
            let mut progress = Progress::new();
            while !is_refused && status.runs() == 0 {
                if !progress.continues(status.adds()) {
                    bail!("the attack did not run");
                }
                tokio::time::sleep(INTERVAL).await;
            }
            Ok(sample)
        };
        // Dropped when the measurement is done.
        tokio::select! {
            biased;
            measured = measuring => measured,
            error = self.wake() => Err(error),
        }
    }

    /// Keeps changing Pods of the attack's namespace, which causes runs of its plugin.
    async fn wake(&self) -> anyhow::Error {
        let pods = self.cluster.pods(SPINNING_NAMESPACE);
        let changes = async {
            let names: Vec<_> = pods.list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();
            for (turn, name) in names.iter().cycle().enumerate() {
                let label = Patch::Merge(json!({ "metadata": { "labels": { "changed": turn.to_string() } } }));
                pods.patch(name, &PatchParams::default(), &label).await?;
                tokio::time::sleep(WAKE_INTERVAL).await;
            }
            bail!("no Pod found in {SPINNING_NAMESPACE}")
        };
        let changed: anyhow::Result<Infallible> = changes.await;
        match changed {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    /// Measures the neighbour's answers to a number of new Pods, and its runs meanwhile.
    async fn probe(&self, count: usize) -> anyhow::Result<(Sample, Quantiles)> {
        let before = self.neighbour.run_time.counts();
        let pods = self.cluster.pods(NEIGHBOURING_NAMESPACE);
        let sample =
            latency::probe(&pods, LABEL, count, |number| workloads::measured(NEIGHBOURING_NAMESPACE, number)).await?;
        let quantile = |quantile| self.neighbour.run_time.quantile_since(&before, quantile);
        Ok((sample, [quantile(0.5), quantile(0.99)]))
    }
}

/// The median and the 99th percentile of the neighbour's runs.
type Quantiles = [Option<Duration>; 2];

/// Returns the greater quantiles of two measurements.
fn merged(one: Quantiles, other: Quantiles) -> Quantiles {
    [one[0].max(other[0]), one[1].max(other[1])]
}

fn times(sample: &Sample, runs: Quantiles) -> Times {
    let millis = |time: Duration| time.as_secs_f64() * 1_000.0;
    Times {
        run_p50_ms: runs[0].map(millis),
        run_p99_ms: runs[1].map(millis),
        answer_p50_ms: millis(sample.percentile(50)),
        answer_p99_ms: millis(sample.percentile(99)),
    }
}

/// Returns the end of an attack by the counters of the host, and its text.
fn ended(status: &PluginStatus, refusal: Option<String>) -> (String, String) {
    if let Some(reason) = refusal {
        return ("refused".to_owned(), reason);
    }
    // A run that waits longer than its deadline was cut too, on a busy machine, and an earlier measurement ended runs.
    let others = [FailureKind::Deadline.name(), FailureKind::Revoked.name()];
    let kinds: Vec<_> = status.failures().into_keys().filter(|kind| !others.contains(kind)).collect();
    match kinds[..] {
        [] => ("succeeded".to_owned(), String::new()),
        _ => (kinds.join(", "), status.last_failure().unwrap_or_default()),
    }
}

fn print(output: Output, report: &Report) -> anyhow::Result<()> {
    let escaped = report.attacks.iter().filter(|row| !row.contained).count();
    let end = match escaped {
        0 => format!("All {} attacks were contained.", report.attacks.len()),
        escaped => format!("{escaped} of {} attacks were not contained.", report.attacks.len()),
    };
    let text = format!(
        "\n{}\n\nRUNS are those of the attack. P50 and P99 are the neighbour's: the time from a new Pod to \
        its write,\nwithout the attack and beside it.\n\n{end}\n",
        table(&report.attacks)
    );
    match output {
        Output::Table => ui::print(&text),
        Output::Json => {
            eprintln!("{text}");
            ui::print(&format!("{}\n", serde_json::to_string(report)?))
        }
    }
}

/// Formats the results for people.
fn table(rows: &[Row]) -> String {
    let head = ["ATTACK", "CONTAINED BY", "END", "RUNS", "P50 ALONE", "P99 ALONE", "P50 BESIDE", "P99 BESIDE"];
    let millis = |time: f64| format!("{time:.1} ms");
    let cells = |row: &Row| {
        let Neighbour { alone, beside } = row.neighbour;
        let by = if row.contained { row.contained_by.to_owned() } else { format!("NOT {}", row.contained_by) };
        let end = match &*row.message {
            message if !row.contained && !message.is_empty() => {
                format!("{}: {}", row.end, text::bounded(message, SHOWN_BYTES))
            }
            _ => row.end.clone(),
        };
        [
            row.attack.to_owned(),
            by,
            end,
            row.runs.to_string(),
            millis(alone.answer_p50_ms),
            millis(alone.answer_p99_ms),
            millis(beside.answer_p50_ms),
            millis(beside.answer_p99_ms),
        ]
    };
    ui::table(head, rows.iter().map(cells))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(contained: bool) -> Row {
        Row {
            attack: "loop-in-start",
            contained,
            contained_by: "limit of processor time",
            end: "cpu".into(),
            message: "used up\nmore".into(),
            runs: 7,
            neighbour: Neighbour::default(),
        }
    }

    #[test]
    fn an_attack_that_is_not_contained_is_shown_in_one_line() {
        let text = table(&[row(true), row(false)]);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[1].contains("loop-in-start  limit of") && lines[1].contains(" cpu "), "{text}");
        assert!(lines[2].contains("NOT limit of processor time") && lines[2].contains("cpu: used up\\nmore"), "{text}");
    }

    #[test]
    fn each_attack_is_a_component_with_a_name_of_its_own() {
        assert!(ATTACKS.len() >= 12);
        let mut names: Vec<_> = ATTACKS.iter().map(|attack| attack.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ATTACKS.len());
        for attack in &ATTACKS {
            let component = (attack.component)().unwrap();
            assert!(wasmparser::Parser::is_component(&component), "{}", attack.name);
        }
    }
}
