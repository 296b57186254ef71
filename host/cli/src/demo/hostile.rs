//! `podium demo --hostile`: hostile components against the host, one after another, and the cost to a plugin of another
//! tenant beside them.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use podium_devcluster::Pace;
use podium_engine::{ports::FailureKind, status::PluginStatus};
use podium_vocabulary::{PluginSpec, text};
use serde::Serialize;

use super::{
    DEADLINE, Ended,
    latency::{self, Comparison, Sample},
    progress::Progress,
    stage::{INTERVAL, MEASURED_NAMESPACE, Stage},
    workloads::{self, SPINNING_NAMESPACE},
};
use crate::{
    args,
    hostile::{ATTACKS, Attack, End, NEIGHBOUR},
    plugin, ui,
};

/// The label that the neighbour sets.
const LABEL: &str = "neighbour.podium.dev/seen";
/// The neighbour answers measurements one after the other, which are more writes than the default allows.
const MANY_WRITES: &str = "{ writesPerSecond: 200 }";
/// New Pods for each measurement beside an attack, and before and after it.
const PROBES: usize = 40;
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

/// Returns the report of a demo that could not start.
pub(super) fn failed(error: String) -> serde_json::Result<String> {
    serde_json::to_string(&Report { error: Some(error), ..Report::default() })
}

/// Runs all attacks and returns whether each was contained.
///
/// # Errors
/// Returns an error if the demo could not start: the cluster, the host or the neighbour does not start.
pub(super) async fn run(arguments: &args::Demo, now_millis: u64) -> anyhow::Result<Ended> {
    let attacking = Box::pin(tokio::time::timeout(DEADLINE, attack_all(arguments, now_millis)));
    let (stage, attacks) = attacking.await.with_context(|| format!("not done after {DEADLINE:?}")).flatten()?;
    let report = Report { ok: attacks.iter().all(|row| row.contained), error: None, attacks };
    Ok(Ended { stage, ok: report.ok, text: shown(&report), json: serde_json::to_string(&report)? })
}

async fn attack_all(arguments: &args::Demo, now_millis: u64) -> anyhow::Result<(Stage, Vec<Row>)> {
    let stage = Stage::start(arguments, now_millis, Pace::default()).await?;
    let folder = tempfile::tempdir()?;
    let grants = format!("{{ read: {{ pods: {{ sections: [labels] }} }}, write: {{ labels: [{LABEL}] }} }}");
    let spec =
        configured(folder.path(), MEASURED_NAMESPACE, "neighbour", &grants, MANY_WRITES, &NEIGHBOUR.component()?)?;
    let neighbour = stage.app.status().plugin(&spec.id);
    stage.load(&spec).await.context("the neighbour")?;
    let pods = stage.cluster.pods(MEASURED_NAMESPACE);
    stage.until_labelled(&pods, "", LABEL).await?;
    let attacks = Attacks { stage: &stage, neighbour, folder: folder.path() };
    let mut rows = Vec::new();
    for attack in &ATTACKS {
        stage.screen.step(attack.name);
        let row = attacks.attack(attack, arguments.plugins).await.with_context(|| attack.name)?;
        let mark = if row.contained { "contained" } else { "NOT CONTAINED" };
        stage.screen.note(&format!("{}: {mark} by {}", row.attack, row.contained_by));
        rows.push(row);
    }
    stage.screen.finish();
    Ok((stage, rows))
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

/// The stage, and the neighbour on it.
struct Attacks<'a> {
    stage: &'a Stage,
    neighbour: Arc<PluginStatus>,
    folder: &'a Path,
}

impl Attacks<'_> {
    /// Runs an attack as this number of plugins.
    async fn attack(&self, attack: &Attack, plugins: u64) -> anyhow::Result<Row> {
        let component = (attack.component)()?;
        let grants = "{ read: { pods: { sections: [labels] } } }";
        let spec_of = |number| {
            let name = if number == 0 { attack.name.to_owned() } else { format!("{}-{number}", attack.name) };
            configured(self.folder, SPINNING_NAMESPACE, &name, grants, "{}", &component)
        };
        let specs = (0..plugins).map(spec_of).collect::<anyhow::Result<Vec<_>>>()?;
        let status = self.stage.app.status().plugin(&specs[0].id);
        let mut last = None;
        let once = async || {
            let (mut alone, mut alone_runs) = self.probe(PROBES / 2).await.context("without the attack")?;
            let refusal = self.load(&specs).await?;
            let beside = self.beside(&status, refusal.is_some()).await;
            let is_loaded = refusal.is_none();
            // Unloading ends the runs under way, which is no end of the attack.
            let end = ended(&status, refusal);
            for spec in specs.iter().filter(|_| is_loaded) {
                self.stage.app.unload(&spec.id).await;
            }
            let (beside, beside_runs) = beside?;
            let (more, more_runs) = self.probe(PROBES / 2).await.context("without the attack")?;
            alone.extend(&more);
            alone_runs = merged(alone_runs, more_runs);
            let neighbour = Neighbour { alone: times(&alone, alone_runs), beside: times(&beside, beside_runs) };
            last = Some((end, neighbour));
            Ok(Comparison { alone, beside })
        };
        let is_held_up = latency::held_up(&self.stage.measure(once).await?);
        let ((end, message), neighbour) = last.context("no measurement")?;
        let is_expected = match attack.end {
            End::Refused(text) => end == "refused" && message.contains(text),
            End::Cut(kind, text) => end == kind.name() && message.contains(text),
            End::Succeeds => end == "succeeded",
        };
        Ok(Row {
            attack: attack.name,
            contained: is_expected && !is_held_up,
            contained_by: attack.contained_by,
            end,
            message,
            runs: status.runs(),
            neighbour,
        })
    }

    /// Loads the plugins of an attack. Returns the reason if it is refused.
    async fn load(&self, specs: &[PluginSpec]) -> anyhow::Result<Option<String>> {
        for spec in specs {
            match self.stage.load(spec).await {
                Ok(()) => {}
                Err(failure) if failure.is_passing() => return Err(failure.into()),
                Err(failure) => return Ok(Some(failure.to_string())),
            }
        }
        Ok(None)
    }

    /// Measures the neighbour beside the attack, until the attack has run.
    async fn beside(&self, status: &PluginStatus, is_refused: bool) -> anyhow::Result<(Sample, Quantiles)> {
        let measuring = async {
            let sample = self.probe(PROBES).await?;
            let mut progress = Progress::new();
            while !is_refused && status.runs() == 0 {
                if !progress.continues(status.adds.get()) {
                    bail!("the attack did not run");
                }
                tokio::time::sleep(INTERVAL).await;
            }
            Ok(sample)
        };
        self.stage.waking(measuring).await
    }

    /// Measures the neighbour's answers to a number of new Pods, and its runs meanwhile.
    async fn probe(&self, count: usize) -> anyhow::Result<(Sample, Quantiles)> {
        let before = self.neighbour.run_time.counts();
        let pods = self.stage.cluster.pods(MEASURED_NAMESPACE);
        let pod = |number| workloads::measured(MEASURED_NAMESPACE, number);
        let sample = latency::probe(&pods, LABEL, count, pod).await?;
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
    Times {
        run_p50_ms: runs[0].map(latency::millis),
        run_p99_ms: runs[1].map(latency::millis),
        answer_p50_ms: latency::millis(sample.percentile(50)),
        answer_p99_ms: latency::millis(sample.percentile(99)),
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

fn shown(report: &Report) -> String {
    let end = match report.attacks.iter().filter(|row| !row.contained).count() {
        0 => format!("All {} attacks were contained.", report.attacks.len()),
        escaped => format!("{escaped} of {} attacks were not contained.", report.attacks.len()),
    };
    format!(
        "\n{}\n\nRUNS are those of the attack. P50 and P99 are the neighbour's: the time from a new Pod to \
        its write,\nwithout the attack and beside it.\n\n{end}",
        table(&report.attacks)
    )
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
