//! One run of one subject: start, idle, events, a rate of events, lost history, reads.

use std::{
    collections::HashMap,
    env, fmt, fs,
    path::{Path, PathBuf},
    process, thread,
    time::Duration,
};

use anyhow::Context;

use crate::generate::{self, PopulationKind};

use super::{
    Contender, Options,
    process::{Process, post},
};

/// The processors of the server and of the subject.
const PROCESSORS: (usize, usize) = (0, 1);

/// The fewest events at a rate, so that a low one has a 99th percentile.
const LEAST_PACED: usize = 200;

/// The figures of docs/benchmarks.md, in the order of its table.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub(super) struct Figures {
    /// The number of Pods in the subject.
    pub(super) pods: f64,
    pub(super) own_bytes_per_pod: f64,
    pub(super) event_cpu_micros: f64,
    pub(super) bytes_per_pod: f64,
    pub(super) bytes_per_pod_after_events: f64,
    pub(super) relist_peak_ratio: f64,
    pub(super) start_cpu_micros_per_pod: f64,
    pub(super) start_wall_seconds: f64,
    pub(super) rates: Vec<Paced>,
    pub(super) snapshot_micros: f64,
    pub(super) get_micros: f64,
}

/// The figures while events arrive at a rate per second.
#[derive(Debug, Clone, serde::Serialize)]
pub(super) struct Paced {
    pub(super) rate: u32,
    pub(super) event_cpu_micros: f64,
    pub(super) latency_p50_micros: f64,
    pub(super) latency_p99_micros: f64,
}

impl fmt::Display for Figures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:.1} us/event, {:.0} then {:.0} B/Pod, relist {:.2}x, start {:.1} us/Pod in {:.2} s",
            self.event_cpu_micros,
            self.bytes_per_pod,
            self.bytes_per_pod_after_events,
            self.relist_peak_ratio,
            self.start_cpu_micros_per_pod,
            self.start_wall_seconds,
        )?;
        self.rates.iter().try_for_each(|paced| {
            let Paced { rate, event_cpu_micros, latency_p50_micros, latency_p99_micros } = paced;
            write!(formatter, ", at {rate}/s {event_cpu_micros:.1} us/event, p50 {latency_p50_micros:.0} us, ")?;
            write!(formatter, "p99 {latency_p99_micros:.0} us")
        })
    }
}

/// A folder for files that processes exchange.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> anyhow::Result<Self> {
        let folder = env::temp_dir().join(format!("podium-bench-{}", process::id()));
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Leftovers are small, and a drop cannot report errors.
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) fn run(contender: &Contender, generate: &generate::Options, options: &Options) -> anyhow::Result<Figures> {
    let folder = Scratch::new()?;
    let server = serve(contender, generate, options, &folder.0)?;
    let listening = server.hear_text("listening")?;
    let mut listening = listening.split(' ').map(str::to_owned);
    let (Some(address), Some(url)) = (listening.next(), listening.next()) else { anyhow::bail!("no address") };
    let address = address.as_str();
    let mut arguments: Vec<String> = contender.arguments.iter().map(|&argument| argument.to_owned()).collect();
    arguments.extend(["--url".to_owned(), url]);
    if let Some(certificate) = listening.next() {
        arguments.extend(["--ca".to_owned(), certificate]);
    }
    let mut subject = Process::start(&contender.program, &arguments, PROCESSORS.1)?;
    subject.expect("ready")?;
    let expected = match generate.kind {
        PopulationKind::Hostile => generate.pods + generate.hostile_pods,
        _ => generate.pods,
    };
    let pods = expected as f64;
    let own_bytes_per_pod = post(address, "own-bytes")?.parse().context("own bytes are no number")?;
    let mut figures = Figures { pods, own_bytes_per_pod, ..Figures::default() };

    let (cpu, empty) = (subject.cpu_micros()?, subject.memory()?);
    subject.say("go")?;
    let synced = subject.expect("synced")?;
    let &[begun, end, listed] = synced.as_slice() else { anyhow::bail!("synced {synced:?}") };
    figures.start_cpu_micros_per_pod = (subject.cpu_micros()? - cpu) / pods;
    figures.start_wall_seconds = (end - begun) as f64 / 1e9;
    anyhow::ensure!(listed == expected as u64, "it holds {listed} Pods of {pods}");
    pause(options.settle);
    let per_pod = |anonymous: u64| anonymous.saturating_sub(empty.anonymous) as f64 / pods;
    figures.bytes_per_pod = per_pod(subject.memory()?.anonymous);

    prepare(&mut subject, address, options.events)?;
    let cpu = subject.cpu_micros()?;
    post(address, "send?rate=0")?;
    subject.expect("reached")?;
    figures.event_cpu_micros = (subject.cpu_micros()? - cpu) / options.events as f64;
    pause(options.settle);
    figures.bytes_per_pod_after_events = per_pod(subject.memory()?.anonymous);

    for rate in &options.rates {
        figures.rates.push(paced(&mut subject, address, *rate, options, &folder.0)?);
    }

    pause(options.settle);
    let steady = subject.memory()?.resident;
    subject.reset_peak()?;
    lose_history(&mut subject, address)?;
    figures.relist_peak_ratio = subject.memory()?.peak as f64 / steady as f64;

    subject.say("reads")?;
    let reads = subject.expect("reads")?;
    let &[snapshot, get] = reads.as_slice() else { anyhow::bail!("reads {reads:?}") };
    (figures.snapshot_micros, figures.get_micros) = (snapshot as f64 / 1e3, get as f64 / 1e3);
    Ok(figures)
}

fn serve(
    contender: &Contender,
    generate: &generate::Options,
    options: &Options,
    folder: &Path,
) -> anyhow::Result<Process> {
    let mut arguments: Vec<String> = vec!["serve".to_owned()];
    let mut flag = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
    flag("pods", generate.pods.to_string());
    flag("population", generate.kind.name());
    flag("seed", generate.seed.to_string());
    flag("pods-per-workload", generate.pods_per_workload.to_string());
    if let Some(from) = &generate.from {
        flag("from", from.display().to_string());
    }
    if let Some(go) = options.go.as_ref().filter(|_| contender.protobuf) {
        flag("encoder", go.display().to_string());
    }
    if options.tls {
        flag("tls", folder.display().to_string());
    }
    Process::start(&env::current_exe()?, &arguments, PROCESSORS.0)
}

/// Renders events, for which the subject then waits.
fn prepare(subject: &mut Process, address: &str, events: usize) -> anyhow::Result<()> {
    let last = post(address, &format!("prepare?count={events}"))?;
    subject.say(&format!("until {last}"))?;
    subject.expect("ok")?;
    Ok(())
}

/// Sends events at a rate: their processor time, and the time from the server's write to visible and queued.
fn paced(subject: &mut Process, address: &str, rate: u32, options: &Options, folder: &Path) -> anyhow::Result<Paced> {
    let events = ((rate * options.seconds) as usize).max(LEAST_PACED);
    subject.say("record")?;
    subject.expect("ok")?;
    prepare(subject, address, events)?;
    let cpu = subject.cpu_micros()?;
    post(address, &format!("send?rate={rate}"))?;
    subject.expect("reached")?;
    let event_cpu_micros = (subject.cpu_micros()? - cpu) / events as f64;
    let file = folder.join("times");
    subject.say(&format!("times {}", file.display()))?;
    subject.expect("ok")?;
    let seen = fs::read_to_string(&file).context("the subject wrote no times")?;
    let sent = post(address, "times")?;
    let sent: HashMap<u64, u64> = pairs(&sent).filter(|(_, time)| *time > 0).collect();
    let mut took: Vec<u64> =
        pairs(&seen).filter_map(|(revision, time)| time.checked_sub(*sent.get(&revision)?)).collect();
    anyhow::ensure!(took.len() + 1 >= events, "{} of {events} events were seen", took.len());
    took.sort_unstable();
    let quantile = |share: f64| took[((took.len() - 1) as f64 * share) as usize] as f64 / 1e3;
    Ok(Paced { rate, event_cpu_micros, latency_p50_micros: quantile(0.5), latency_p99_micros: quantile(0.99) })
}

fn pairs(lines: &str) -> impl Iterator<Item = (u64, u64)> {
    let pair = |line: &str| {
        let (revision, time) = line.split_once(' ')?;
        Some((revision.parse().ok()?, time.parse().ok()?))
    };
    lines.lines().filter_map(pair)
}

/// Waits until the subject has listed again and seen an event after that list.
fn lose_history(subject: &mut Process, address: &str) -> anyhow::Result<()> {
    let lists = |address| -> anyhow::Result<u64> { Ok(post(address, "lists")?.parse()?) };
    let before = lists(address)?;
    post(address, "gone")?;
    for _ in 0..6_000 {
        if lists(address)? > before {
            prepare(subject, address, 1)?;
            post(address, "send?rate=0")?;
            subject.expect("reached")?;
            return Ok(());
        }
        pause(Duration::from_millis(10));
    }
    anyhow::bail!("it did not list again within a minute")
}

#[expect(clippy::disallowed_methods, reason = "another process has to finish, and it signals nothing")]
fn pause(time: Duration) {
    thread::sleep(time);
}
