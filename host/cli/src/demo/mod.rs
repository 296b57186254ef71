//! `podium demo`: runs a scenario with five plugins and checks the cluster's state, or attacks the host.

mod checks;
mod hostile;
mod latency;
mod plugins;
mod progress;
mod scenario;
mod table;
mod workloads;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use checks::{Evidence, Result};
use podium_devcluster::Pace;
use podium_host::app::{self, App};
use podium_vocabulary::PluginSpec;
use scenario::Scenario;
use serde::Serialize;
use table::{Row, Screen, Statistics};
use tokio::time::Instant;
use workloads::Cluster;

use crate::{
    args::{self, Output},
    cluster::Local,
    ui,
};

const NODES: usize = 6;
/// Deadline of the demo, far above the time on a busy machine: a step that waits for the cluster fails by itself a
/// minute after the last change.
const DEADLINE: Duration = Duration::from_secs(600);
/// The most attempts to load a plugin whose compilation times out. Each attempt may take 10 s.
const LOAD_ATTEMPTS: u32 = 12;
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

/// Runs the demo and reports its result.
///
/// # Errors
/// Returns an error if the demo could not start: a plugin does not build, or the cluster or the host does not start.
pub async fn run(arguments: args::Demo, now_millis: u64) -> anyhow::Result<ExitCode> {
    ui::log(&arguments.log)?;
    if arguments.hostile {
        return hostile::run(&arguments, now_millis).await;
    }
    let ran = tokio::select! {
        biased;
        stopped = ui::stopped() => return stopped.map(|()| ExitCode::from(INTERRUPTED)),
        ran = run_scenario(&arguments, now_millis) => ran,
    };
    let (report, environment) = match ran {
        Ok(ran) => ran,
        Err(error) if arguments.output == Output::Json => {
            let check = Result { name: "the demo begins", ok: false, detail: format!("{error:#}") };
            let report = Report { checks: vec![check], ..Report::default() };
            ui::print(&format!("{}\n", serde_json::to_string(&report)?))?;
            return Err(error);
        }
        Err(error) => return Err(error),
    };
    if arguments.keep {
        eprintln!(
            "\nStill running, until Ctrl-C. Look around:\n\n    export KUBECONFIG={}\n",
            environment.kubeconfig.display()
        );
        ui::stopped().await?;
    }
    environment.app.shutdown().await;
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The host and its cluster, which `--keep` leaves running after the checks.
struct Environment {
    app: App,
    kubeconfig: PathBuf,
    _local: Local,
    _directory: tempfile::TempDir,
}

async fn run_scenario(arguments: &args::Demo, now_millis: u64) -> anyhow::Result<(Report, Environment)> {
    let plugins = {
        let install = arguments.toolchain.install_targets;
        tokio::task::spawn_blocking(move || plugins::build(install)).await??
    };
    let began = Instant::now();
    let screen = Screen::new();
    screen.step("a Kubernetes API server in this process, and 200 Pods of four tenants");
    let options = podium_devcluster::Options {
        seed: arguments.seed,
        nodes: NODES,
        start_millis: i64::try_from(now_millis)?,
        // A short crash loop, so that the demo need not wait for it.
        pace: Pace { run: Duration::from_secs(1), back_off: Duration::from_secs(1), ..Pace::default() },
        ..<_>::default()
    };
    let local = Local::start(options).await?;
    let directory = tempfile::tempdir()?;
    let kubeconfig = local.write_kubeconfig(directory.path())?;
    let cluster = Cluster::connect(local.client().await?).await?;
    let pods = cluster.seed().await?;
    screen.note(&format!("{pods} Pods in 6 namespaces on {NODES} nodes"));

    let app = App::start(app::Options {
        watch_client: local.client().await?.into(),
        workers: ui::WORKERS,
        compilation: ui::compilation()?,
        ..app::Options::new(local.client().await?, arguments.seed, now_millis)
    })
    .await?;
    screen.step("the host compiles five plugins");
    for spec in plugins.loaded {
        let name = spec.id.to_string();
        load(&app, &screen, spec).await.with_context(|| format!("plugin {name}"))?;
    }
    let began_sync = Instant::now();
    scenario::until_labelled(&cluster).await?;
    screen.note(&format!("a first sync of {pods} Pods took {:.1?}", began_sync.elapsed()));
    let statistics = Statistics::new(app.status());
    let scenario = Scenario {
        local: &local,
        cluster: &cluster,
        app: &app,
        statistics: &statistics,
        spinner: plugins.spinner,
        screen: &screen,
    };
    let run = async {
        let mut results = Vec::new();
        let evidence = scenario.run().await.unwrap_or_else(|error| {
            results.push(Result { name: "the demo runs to its end", ok: false, detail: format!("{error:#}") });
            Evidence::default()
        });
        screen.step("reading the cluster back");
        results.splice(0..0, checks::all(&cluster.client(), evidence).await);
        results
    };
    let drawing = async {
        let mut ticks = tokio::time::interval(TICK);
        loop {
            ticks.tick().await;
            screen.rows(&statistics.rows());
        }
    };
    let results = tokio::select! {
        biased;
        results = tokio::time::timeout(DEADLINE, run) => results.unwrap_or_else(|_| {
            vec![Result { name: "the demo ends in time", ok: false, detail: format!("not after {DEADLINE:?}") }]
        }),
        () = drawing => Vec::new(),
    };
    screen.finish();
    let report = Report { ok: results.iter().all(|result| result.ok), checks: results, plugins: statistics.rows() };
    print(arguments.output, &report, began.elapsed())?;
    Ok((report, Environment { app, kubeconfig, _local: local, _directory: directory }))
}

/// Loads a plugin. If a busy machine exceeds the host's time limit of a compilation, it is retried.
async fn load(app: &App, screen: &Screen, spec: PluginSpec) -> anyhow::Result<()> {
    let mut attempts = 1..LOAD_ATTEMPTS;
    loop {
        match app.prepare(spec.clone()).await {
            Ok(prepared) => {
                app.install(prepared).await;
                return Ok(());
            }
            Err(failure) if failure.is_passing() && attempts.next().is_some() => {
                screen.note(&format!("trying again: {failure}"));
            }
            Err(failure) => return Err(failure.into()),
        }
    }
}

fn print(output: Output, report: &Report, took: Duration) -> anyhow::Result<()> {
    let rows = table::table(&report.plugins);
    let list = table::list(&report.checks);
    let failed = report.checks.iter().filter(|check| !check.ok).count();
    let end = match failed {
        0 => format!("All {} checks hold, {:.1} s after the build.", report.checks.len(), took.as_secs_f64()),
        failed => format!("{failed} of {} checks failed.", report.checks.len()),
    };
    let text = format!("\n{rows}\n\n{list}\n{end}");
    match output {
        Output::Table => ui::print(&format!("{text}\n"))?,
        Output::Json => {
            eprintln!("{text}");
            ui::print(&format!("{}\n", serde_json::to_string(report)?))?;
        }
    }
    Ok(())
}
