//! `podium run`: one run of a plugin on one Pod, and what it would write.

use std::{collections::BTreeMap, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::bail;
use clap::{Args, ValueEnum};
use podium_config::case;
use serde::Serialize;

use crate::{
    offline::{self, Code, Compiled, InputPod, Observed, Request, Scenario},
    ui,
};

/// Run a plugin once on a Pod of a file, without a cluster, and print what it would write
#[derive(Debug, Args)]
#[command(
    long_about = "Run a plugin once on a Pod of a file, without a cluster, and print what it would write.\n\nThe run \
        is that of podium-host: the same sandbox, grants, limits and checks of plugin.yaml, on an API server in this \
        process. A crate is built first; a script is taken from its file. Time stands still during the run, and only \
        the processor time that the fuel stands for counts.\n\nStandard output has the requests that change a cluster, \
        in their order, and nothing else. Log lines, fields of the Pod that were filled in, the result, and grants \
        that are missing are on standard error.",
    after_help = "Examples:\n  \
        podium run --pod pod.json                         the plugin in this folder\n  \
        kubectl -n shop get pod cart-0 -o json > pod.json && podium run hello --pod pod.json\n  \
        podium run hello --pod pod.yaml --pods others     with the Pods of a folder in the cache\n  \
        podium run hello --pod pod.yaml --input prices=prices.yaml    with the object of an input
  \
        podium run hello --pod pod.yaml -o json | jq '.requests[].body'\n\n\
        Exit codes: 0 the run is done, 1 it failed, a write was refused, or the plugin does not run on the Pod, 2 the \
        plugin, the Pod or an argument is invalid."
)]
pub struct RunOnce {
    /// A folder with plugin.yaml, or the file
    #[arg(default_value = ".", value_name = "DIR|plugin.yaml")]
    pub path: PathBuf,
    /// File with the Pod, in YAML or JSON
    #[arg(long, value_name = "FILE")]
    pub pod: PathBuf,
    /// File or folder with more Pods, which the plugin can read and does not run on
    #[arg(long, value_name = "FILE|DIR")]
    pub pods: Option<PathBuf>,
    /// The id of an input of spec.inputs, and a file with its object; repeatable. An input without one is absent
    #[arg(long, value_name = "ID=FILE", value_parser = offline::input_argument)]
    pub input: Vec<(String, PathBuf)>,
    /// The time at the run, such as 2026-01-01T00:00:00Z [default: now]
    #[arg(long, value_name = "TIME", value_parser = millis)]
    pub now: Option<i64>,
    #[command(flatten)]
    pub code: Code,
    /// Format of the requests on standard output
    #[arg(long, short, value_enum, default_value_t)]
    pub output: RunFormat,
}

/// Parses a time into milliseconds since the epoch.
fn millis(text: &str) -> Result<i64, &'static str> {
    case::millis(text).ok_or("must be a time, such as 2026-01-01T00:00:00Z")
}

/// The format of `podium run` on standard output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum RunFormat {
    #[default]
    Yaml,
    Json,
}

/// The result in JSON.
#[derive(Serialize)]
struct Shown<'a> {
    ok: bool,
    result: &'a str,
    requests: &'a [Request],
}

/// Runs and prints.
///
/// # Errors
/// Returns an error if the plugin or a Pod is invalid.
pub(crate) fn run(arguments: &RunOnce, now_millis: u64) -> anyhow::Result<ExitCode> {
    let compiled = Compiled::new(&arguments.path, &arguments.code)?;
    let scenario = scenario(arguments, compiled.namespace(), now_millis)?;
    scenario.pods.iter().flat_map(|input| &input.filled).for_each(|line| ui::report(&format!("note: {line}")));
    let observed = offline::observe(&compiled, &compiled.spec, &scenario)?;
    observed.log.iter().for_each(|line| ui::report(&format!("log: {line}")));
    observed.lacking.iter().for_each(|line| ui::report(&format!("grants: {line}")));
    ui::print(&shown(&observed, arguments.output)?)?;
    observed.runs.iter().for_each(|ran| ui::report(&format!("{}: {}", ran.pod, ran.result)));
    let refused = observed.requests.iter().filter_map(|request| Some((request, request.refused?)));
    refused.for_each(|(Request { request, .. }, code)| ui::report(&format!("refused: {request}: {code}")));
    observed.not_run.iter().for_each(|(pod, why)| ui::report(&format!("not run on {pod}: {why}")));
    Ok(if is_done(&observed) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn is_done(observed: &Observed) -> bool {
    !observed.runs.is_empty() && observed.runs.iter().all(|ran| !ran.failed)
}

fn scenario(arguments: &RunOnce, namespace: &str, now_millis: u64) -> anyhow::Result<Scenario> {
    let mut pods = offline::read(&arguments.pod, namespace)?;
    let [InputPod { name: subject, .. }] = &pods[..] else {
        bail!("--pod {}: has {} Pods, and must have one; --pods has the others", arguments.pod.display(), pods.len());
    };
    let subject = subject.clone();
    if let Some(path) = &arguments.pods {
        // A folder of all Pods may contain the one to run on.
        pods.extend(offline::read(path, namespace)?.into_iter().filter(|input| input.name != subject));
    }
    Ok(Scenario {
        on: Some(vec![subject]),
        pods,
        inputs: offline::read_inputs(&arguments.input)?,
        now_millis: arguments.now.unwrap_or(i64::try_from(now_millis)?),
        state: BTreeMap::new(),
        runs: 1,
        once: true,
        then: Duration::ZERO,
    })
}

fn shown(observed: &Observed, format: RunFormat) -> anyhow::Result<String> {
    let requests = &observed.requests;
    Ok(match format {
        // All of it is JSON, which YAML can contain. The fields keep their order.
        RunFormat::Yaml => {
            let documents = requests.iter().map(|request| Ok(format!("---\n{}", serde_saphyr::to_string(request)?)));
            documents.collect::<Result<_, serde_saphyr::ser::Error>>()?
        }
        RunFormat::Json => {
            let result = observed.runs.first().map_or("not run", |ran| &ran.result);
            serde_json::to_string(&Shown { ok: is_done(observed), result, requests })? + "\n"
        }
    })
}
