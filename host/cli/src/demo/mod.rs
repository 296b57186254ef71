//! `podium demo`: runs a scenario with five plugins and checks the cluster's state, or attacks the host.

mod checks;
mod hostile;
mod latency;
mod plugins;
mod progress;
mod scenario;
mod screen;
mod stage;
mod table;
mod workloads;

use std::{process::ExitCode, time::Duration};

use anyhow::Context;
use checks::{Evidence, Result, WORKLOAD};
use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use podium_devcluster::Pace;
use scenario::Scenario;
use serde::Serialize;
use stage::Stage;
use table::{Row, Statistics};
use tokio::time::Instant;

use crate::{
    args::{self, Output},
    ui,
};

/// Deadline of the demo, far above the time on a busy machine: a step that waits for the cluster fails by itself a
/// minute after the last change.
const DEADLINE: Duration = Duration::from_secs(600);
/// How often the table is drawn.
const TICK: Duration = Duration::from_millis(200);

/// The exit code of shells after Ctrl-C.
const INTERRUPTED: u8 = 130;

/// The result for programs: the last line of stdout.
#[derive(Debug, Default, Serialize)]
struct Report {
    ok: bool,
    checks: Vec<Result>,
    plugins: Vec<Row>,
}

/// A demo at its end, whose host and cluster `--keep` leaves running.
struct Ended {
    stage: Stage,
    ok: bool,
    /// For people.
    text: String,
    /// For programs.
    json: String,
}

/// Runs the demo and reports its result.
///
/// # Errors
/// Returns an error if the demo could not start: a plugin does not build, or the cluster or the host does not start.
pub async fn run(arguments: args::Demo, now_millis: u64) -> anyhow::Result<ExitCode> {
    ui::log(&arguments.log)?;
    let running: LocalBoxFuture<'_, anyhow::Result<Ended>> = match arguments.hostile {
        true => Box::pin(hostile::run(&arguments, now_millis)),
        false => Box::pin(run_scenario(&arguments, now_millis)),
    };
    let ran = tokio::select! {
        biased;
        stopped = ui::stopped() => return stopped.map(|()| ExitCode::from(INTERRUPTED)),
        ran = running => ran,
    };
    let Ended { stage, ok, text, json } = match ran {
        Ok(ended) => ended,
        Err(error) => {
            if arguments.output == Output::Json {
                let detail = format!("{error:#}");
                let report = if arguments.hostile { hostile::failed(detail) } else { failed(detail) };
                ui::print(&format!("{}\n", report?))?;
            }
            return Err(error);
        }
    };
    match arguments.output {
        Output::Table => ui::print(&format!("{text}\n"))?,
        Output::Json => {
            eprintln!("{text}");
            ui::print(&format!("{json}\n"))?;
        }
    }
    if arguments.keep {
        let directory = tempfile::tempdir()?;
        let kubeconfig = stage.local.write_kubeconfig(directory.path())?;
        eprintln!("\nStill running, until Ctrl-C. Look around:\n\n    export KUBECONFIG={}\n", kubeconfig.display());
        ui::stopped().await?;
    }
    stage.app.shutdown().await;
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the report of a demo that could not start.
fn failed(detail: String) -> serde_json::Result<String> {
    let check = Result { name: "the demo begins", ok: false, detail };
    serde_json::to_string(&Report { checks: vec![check], ..Report::default() })
}

async fn run_scenario(arguments: &args::Demo, now_millis: u64) -> anyhow::Result<Ended> {
    let plugins = {
        let install = arguments.toolchain.install_targets;
        tokio::task::spawn_blocking(move || plugins::build(install)).await??
    };
    let began = Instant::now();
    // A short crash loop, so that the demo need not wait for it.
    let pace = Pace { run: Duration::from_secs(1), back_off: Duration::from_secs(1), ..Pace::default() };
    let stage = Stage::start(arguments, now_millis, pace).await?;
    let screen = &stage.screen;
    screen.step("the host compiles five plugins");
    for spec in plugins.loaded {
        stage.load(&spec).await.with_context(|| format!("plugin {}", spec.id))?;
    }
    let began_sync = Instant::now();
    let pods: Api<Pod> = Api::all(stage.cluster.client());
    stage.until_labelled(&pods, "", WORKLOAD).await.context("the first sync")?;
    screen.note(&format!("a first sync of {} Pods took {:.1?}", stage.pods, began_sync.elapsed()));
    let statistics = Statistics::new(stage.app.status());
    let scenario = Scenario { stage: &stage, statistics: &statistics, spinner: plugins.spinner };
    let run = async {
        let mut results = Vec::new();
        let evidence = scenario.run().await.unwrap_or_else(|error| {
            results.push(Result { name: "the demo runs to its end", ok: false, detail: format!("{error:#}") });
            Evidence::default()
        });
        screen.step("reading the cluster back");
        results.splice(0..0, checks::all(&stage.cluster.client(), evidence).await);
        results
    };
    let drawing = async {
        let mut ticks = tokio::time::interval(TICK);
        loop {
            ticks.tick().await;
            screen.rows(table::table(&statistics.rows()));
        }
    };
    let checks = tokio::select! {
        biased;
        results = tokio::time::timeout(DEADLINE, run) => results.unwrap_or_else(|_| {
            vec![Result { name: "the demo ends in time", ok: false, detail: format!("not after {DEADLINE:?}") }]
        }),
        () = drawing => Vec::new(),
    };
    screen.finish();
    let report = Report { ok: checks.iter().all(|result| result.ok), checks, plugins: statistics.rows() };
    let text = shown(&report, began.elapsed());
    Ok(Ended { stage, ok: report.ok, text, json: serde_json::to_string(&report)? })
}

fn shown(report: &Report, took: Duration) -> String {
    let rows = table::table(&report.plugins);
    let list = table::list(&report.checks);
    let end = match report.checks.iter().filter(|check| !check.ok).count() {
        0 => format!("All {} checks hold, {:.1} s after the build.", report.checks.len(), took.as_secs_f64()),
        failed => format!("{failed} of {} checks failed.", report.checks.len()),
    };
    format!("\n{rows}\n\n{list}\n{end}")
}
