//! The cost of a new Pod from end to end: podium-host and other programs label each new Pod of a real control plane,
//! over TLS, and are measured from outside, as are kube-apiserver and etcd.
//!
//! Subjects take turns, each with a control plane of its own, so that changes of the machine affect all of them.

mod against;
mod cluster;
mod perf;
mod subject;
mod table;

use std::{fmt, fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use podium_tests::controlplane::Mark;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use self::{
    cluster::{Cluster, UNCONCERNED},
    perf::Counters,
    subject::{Contender, Running},
};
use crate::threads::Threads;

/// Processor time of threads is read this often, so that little of one that ends is missed.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// New Pods per second, each of which one plugin or controller labels
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,20,200")]
    rates: Vec<u32>,
    /// New Pods per second that concern no plugin and no controller
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "20,200")]
    unconcerned: Vec<u32>,
    /// Seconds of each rate
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    seconds: u32,
    /// The most new Pods of a rate, which shortens its time
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    most: u32,
    /// Seconds in which nothing changes
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    idle: u32,
    /// Pods that there are, before and after
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pods: usize,
    /// Namespaces, with a plugin or a controller each
    #[arg(long, value_name = "N", default_value_t = 20)]
    namespaces: usize,
    /// Turns of each subject
    #[arg(long, value_name = "N", default_value_t = 5)]
    repeats: usize,
    /// The subjects, separated by commas: podium, wire-write (the floor), controller-runtime-1, controller-runtime-10,
    /// kube-rs-jemalloc, controller-runtime-processes [default: all that are built]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    subjects: Vec<String>,
    /// The program of controller-runtime, as built from tests/bench/controller
    #[arg(long, value_name = "FILE")]
    controller: Option<PathBuf>,
    /// Fail if a count is more than a tenth greater than in this output of an earlier `--output json`, or twice as
    /// great in an idle second
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
}

/// The work of the cluster during a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Load {
    /// Nothing changes.
    Idle,
    /// New Pods per second that are labelled.
    Labelled(u32),
    /// New Pods per second that concern no plugin and no controller.
    Unconcerned(u32),
}

/// The figures of one measurement: per new Pod, or per second without any.
#[derive(Debug, Clone, Copy, Default, serde::Serialize, serde::Deserialize)]
struct Figures {
    /// New Pods per second that the cluster reached.
    pods_per_second: f64,
    /// Events of Pods.
    events: f64,
    /// Patches that were done.
    writes: f64,
    /// All requests; a watch counts when it ends.
    requests: f64,
    cpu_micros: f64,
    /// The parts of podium-host: the thread of the watch, the workers, and all other threads.
    watch_micros: Option<f64>,
    workers_micros: Option<f64>,
    rest_micros: Option<f64>,
    switches: f64,
    /// `None` where `perf` cannot count them.
    system_calls: Option<f64>,
    instructions: Option<f64>,
    /// Bytes between the subject and the API server, encrypted, in both directions.
    wire_bytes: f64,
    apiserver_micros: f64,
    etcd_micros: f64,
    /// From the answer to the creation of the Pod to the reception of its patch, by the API server's clock.
    p50_millis: f64,
    p99_millis: f64,
    /// Memory at the end; what processes share is divided among them.
    memory_mib: f64,
}

impl fmt::Display for Load {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => formatter.write_str("idle, per second"),
            Self::Labelled(rate) => write!(formatter, "{rate}/s"),
            Self::Unconcerned(rate) => write!(formatter, "{rate}/s, unconcerned"),
        }
    }
}

/// The name and the reader of a figure.
type Column = (&'static str, fn(&Figures) -> Option<f64>);

/// All measurements of one subject under one load.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Measured {
    load: Load,
    subject: String,
    runs: Vec<Figures>,
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Report {
    pods: usize,
    namespaces: usize,
    measured: Vec<Measured>,
}

/// Measures and prints: the table or JSON to standard output, progress to standard error.
///
/// # Errors
/// Returns an error that names the subject if one cannot be run or ends, or each count that has grown.
pub(crate) fn compare(options: &Options, json: bool) -> Result<()> {
    let before = options.against.as_deref().map(against::read).transpose()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let measured = runtime.block_on(measure(options))?;
    let report = Report { pods: options.pods, namespaces: options.namespaces, measured };
    match json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => println!("{}", table::render(&report.measured)),
    }
    before.map_or(Ok(()), |before| against::compare(&report.measured, &before.measured))
}

async fn measure(options: &Options) -> Result<Vec<Measured>> {
    let contenders = subject::contenders(&options.subjects, options.controller.as_deref())?;
    let rates = options.rates.iter().map(|rate| Load::Labelled(*rate));
    let loads: Vec<Load> = [Load::Idle]
        .into_iter()
        .chain(rates)
        .chain(options.unconcerned.iter().map(|rate| Load::Unconcerned(*rate)))
        .collect();
    let each = |load: &Load| {
        let load = *load;
        contenders.iter().map(move |contender| Measured { load, subject: contender.name.to_owned(), runs: Vec::new() })
    };
    let mut all: Vec<Measured> = loads.iter().flat_map(each).collect();
    for repeat in 0..options.repeats {
        // Each begins once.
        for at in 0..contenders.len() {
            let contender = &contenders[(at + repeat) % contenders.len()];
            eprintln!("turn {} of {}: {}", repeat + 1, options.repeats, contender.name);
            let figures = turn(contender, &loads, options).await;
            for (load, figures) in figures.with_context(|| format!("subject {}", contender.name))? {
                let of = |measured: &&mut Measured| measured.load == load && measured.subject == contender.name;
                all.iter_mut().find(of).context("a row")?.runs.push(figures);
            }
        }
    }
    Ok(all)
}

/// Measures one subject under each load.
async fn turn(contender: &Contender, loads: &[Load], options: &Options) -> Result<Vec<(Load, Figures)>> {
    let namespaces: Vec<String> = (0..options.namespaces).map(|number| format!("team-{number:02}")).collect();
    let mut cluster = Cluster::start(&namespaces, options.pods).await?;
    let kubeconfig = cluster.proxy.kubeconfig_path().to_owned();
    let mut running = Running::start(contender, &kubeconfig, &namespaces, cluster.directory()).await?;
    cluster.all_labelled(Mark::default(), options.pods).await?;
    let mut all = Vec::new();
    for load in loads {
        running.check_running()?;
        let figures = under(*load, &mut cluster, &running, &namespaces, options).await?;
        eprintln!("  {load}: {figures:?}");
        all.push((*load, figures));
    }
    running.check_running()?;
    Ok(all)
}

async fn under(
    load: Load,
    cluster: &mut Cluster,
    running: &Running,
    namespaces: &[String],
    options: &Options,
) -> Result<Figures> {
    let ids = running.ids();
    let [apiserver, etcd] = cluster.plane.servers();
    let counters = Counters::start(&ids, cluster.directory()).await?;
    let (mark, wire) = (cluster.audit().now()?, cluster.proxy.passed());
    let before = [Threads::read(&ids)?, Threads::read(&[apiserver])?, Threads::read(&[etcd])?];
    let (mut threads, begun) = (before[0].clone(), Instant::now());
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let reached = {
        let mut work = std::pin::pin!(work(load, cluster, namespaces, options, mark));
        loop {
            tokio::select! {
                done = &mut work => break done?,
                _ = look.tick() => threads.look(&ids)?,
            }
        }
    };
    threads.look(&ids)?;
    let servers = [Threads::read(&[apiserver])?, Threads::read(&[etcd])?];
    let wire = cluster.proxy.passed() - wire;
    let counted = counters.end().await?;
    let written = cluster.written(mark)?;
    let parts = match load {
        Load::Idle => begun.elapsed().as_secs_f64(),
        Load::Labelled(rate) | Load::Unconcerned(rate) => f64::from(pods_of(rate, options)),
    };
    let micros = |is_of: fn(&str) -> bool| (threads.cpu_micros(is_of) - before[0].cpu_micros(is_of)) / parts;
    let of_podium = |is_of| matches!(running, Running::Podium(_)).then(|| micros(is_of));
    let of_server = |at: usize| (servers[at].cpu_micros(|_| true) - before[at + 1].cpu_micros(|_| true)) / parts;
    let at = |share: f64| match written.millis.len() {
        0 => 0.0,
        some => written.millis[((some - 1) as f64 * share) as usize],
    };
    Ok(Figures {
        pods_per_second: reached,
        events: written.events as f64 / parts,
        writes: written.patches as f64 / parts,
        requests: written.requests as f64 / parts,
        cpu_micros: micros(|_| true),
        watch_micros: of_podium(is_watch),
        workers_micros: of_podium(is_worker),
        rest_micros: of_podium(|name| !is_watch(name) && !is_worker(name)),
        switches: (threads.switches() - before[0].switches()) as f64 / parts,
        system_calls: counted.system_calls.map(|calls| calls / parts),
        instructions: counted.instructions.map(|instructions| instructions / parts),
        wire_bytes: wire as f64 / parts,
        apiserver_micros: of_server(0),
        etcd_micros: of_server(1),
        p50_millis: at(0.5),
        p99_millis: at(0.99),
        memory_mib: memory(&ids)?,
    })
}

/// Does the work of a load. Returns the rate that was reached.
async fn work(load: Load, cluster: &mut Cluster, namespaces: &[String], options: &Options, mark: Mark) -> Result<f64> {
    match load {
        Load::Idle => {
            sleep(Duration::from_secs(options.idle.into())).await;
            Ok(0.0)
        }
        Load::Labelled(rate) => {
            let pods = pods_of(rate, options) as usize;
            let reached = cluster.renew(namespaces, rate, pods).await?;
            cluster.all_labelled(mark, pods).await?;
            Ok(reached)
        }
        Load::Unconcerned(rate) => {
            let reached = cluster.renew(&[UNCONCERNED.to_owned()], rate, pods_of(rate, options) as usize).await?;
            cluster.all_labelled(mark, 0).await?;
            Ok(reached)
        }
    }
}

fn pods_of(rate: u32, options: &Options) -> u32 {
    (rate * options.seconds).min(options.most)
}

fn is_watch(thread: &str) -> bool {
    thread == "podium-ingest"
}

/// The threads of tokio's runtime: runs, writes and everything else that is no thread of its own.
fn is_worker(thread: &str) -> bool {
    thread.starts_with("tokio-r")
}

/// Returns the resident memory of processes, in which pages that several share are divided among them.
fn memory(processes: &[u32]) -> Result<f64> {
    let of = |process: &u32| -> Result<f64> {
        let rollup = fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).context("no Pss")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1_024.0)
    };
    processes.iter().map(of).sum()
}
