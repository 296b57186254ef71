//! The benchmark of the queue of keys: operations per second and bytes per key, beside kube-rs' scheduler and
//! client-go's workqueue with the same keys.
//!
//! Each measurement is a separate process, so that no memory is left over from another. The peers know no tenants,
//! no fair order and no memory of runs; they only merge and delay keys.

mod kube_rs;
mod podium;

use std::{collections::BTreeMap, path::PathBuf, process::Command, time::Instant};

use anyhow::{Context, bail};
use comfy_table::{Cell, CellAlignment, Table, presets::ASCII_MARKDOWN};
use serde::{Deserialize, Serialize};

/// Operations of each kind beyond the first that puts all keys in.
const OPERATIONS: usize = 200_000;

/// A queue that is measured in this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Subject {
    /// The host's queue: 100 tenants, fair between them, with a claim of memory for each key
    Podium,
    /// kube-rs' scheduler, as its controller uses it
    KubeRs,
}

/// The parameters of a measurement.
#[derive(Debug)]
pub struct Options {
    /// How many keys there are, for each measurement.
    pub keys: Vec<usize>,
    /// Runs of each measurement.
    pub repeats: usize,
    /// The peer in Go.
    pub go: Option<PathBuf>,
    /// JSON instead of a table.
    pub json: bool,
}

/// Operations per second, and bytes of resident memory per key.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Figures {
    /// Additions of a key that is not there.
    add: f64,
    /// Additions of a key that is due already.
    merge: f64,
    /// The next key is taken and returned to be run again at once.
    cycle: f64,
    /// The next key is taken and settled.
    take: f64,
    bytes_per_key: f64,
}

type Column = (&'static str, fn(&Figures) -> f64);

/// The names and readers of the table's columns.
const COLUMNS: [Column; 5] = [
    ("add/s", |figures| figures.add),
    ("merge/s", |figures| figures.merge),
    ("cycle/s", |figures| figures.cycle),
    ("take + settle/s", |figures| figures.take),
    ("bytes/key", |figures| figures.bytes_per_key),
];

#[derive(Debug, Serialize)]
struct Measured {
    keys: usize,
    subject: &'static str,
    runs: Vec<Figures>,
}

/// Measures every subject with each number of keys, and prints one table.
///
/// # Errors
/// Returns an error if a measurement cannot be started or fails.
pub fn compare(options: &Options) -> anyhow::Result<()> {
    let this = std::env::current_exe().context("the path of this program")?;
    let subject = |name: &str| vec!["queue-subject".to_owned(), name.to_owned()];
    let mut subjects = vec![("podium", this.clone(), subject("podium")), ("kube-rs", this, subject("kube-rs"))];
    if let Some(go) = &options.go {
        subjects.push(("client-go", go.clone(), vec!["queue".to_owned()]));
    }
    let mut all = BTreeMap::<(usize, usize), Measured>::new();
    // In turns, so that a busy moment of the machine is not one subject's.
    for _ in 0..options.repeats {
        for (row, keys) in options.keys.iter().enumerate() {
            for (column, (name, program, arguments)) in subjects.iter().enumerate() {
                let output = Command::new(program).args(arguments).arg(keys.to_string()).output();
                let output = output.with_context(|| format!("cannot run {}", program.display()))?;
                if !output.status.success() {
                    bail!("{name} with {keys} keys: {}", String::from_utf8_lossy(&output.stderr));
                }
                let figures = serde_json::from_slice(&output.stdout)
                    .with_context(|| format!("{name} printed {}", String::from_utf8_lossy(&output.stdout)))?;
                let measured = Measured { keys: *keys, subject: name, runs: Vec::new() };
                all.entry((row, column)).or_insert(measured).runs.push(figures);
            }
        }
    }
    let all: Vec<_> = all.into_values().collect();
    match options.json {
        true => println!("{}", serde_json::to_string_pretty(&all)?),
        false => println!("{}", render(&all)),
    }
    Ok(())
}

/// A row for each number of keys and subject: median, least and greatest, and the ratio to podium.
fn render(all: &[Measured]) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["keys", "subject"].into_iter().chain(COLUMNS.iter().map(|(name, _)| *name)));
    for measured in all {
        let base = all.iter().find(|other| other.keys == measured.keys && other.subject == "podium");
        let cells = COLUMNS.iter().map(|(_, figure)| {
            let [low, middle, high] = spread(measured, *figure);
            let ratio = base.map_or(f64::NAN, |base| middle / spread(base, *figure)[1]);
            let text = format!("{middle:.0} ({low:.0}-{high:.0}) {ratio:.2}x");
            Cell::new(text).set_alignment(CellAlignment::Right)
        });
        let first = [Cell::new(measured.keys), Cell::new(measured.subject)];
        table.add_row(first.into_iter().chain(cells));
    }
    table.to_string()
}

/// Returns minimum, median and maximum.
fn spread(measured: &Measured, figure: fn(&Figures) -> f64) -> [f64; 3] {
    let mut all: Vec<f64> = measured.runs.iter().map(figure).collect();
    all.sort_by(f64::total_cmp);
    match &*all {
        [] => [f64::NAN; 3],
        [low, .., high] => [*low, all[all.len() / 2], *high],
        [only] => [*only; 3],
    }
}

/// Measures one queue with a number of keys in this process, and prints the figures as JSON.
///
/// # Errors
/// Returns an error if the memory of this process cannot be read, or a queue loses a key.
pub fn measure(subject: Subject, keys: usize) -> anyhow::Result<()> {
    let figures = match subject {
        Subject::Podium => podium::measure(keys)?,
        Subject::KubeRs => kube_rs::measure(keys)?,
    };
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

/// Namespace and name of a Pod.
fn name(at: usize) -> (String, String) {
    ("shop".to_owned(), format!("cart-{at:07}-5d9c7b8f6-x2x{}", at % 10))
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn per_second(operations: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    operations as f64 / start.elapsed().as_secs_f64()
}

/// Returns resident memory in bytes.
fn resident() -> anyhow::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").context("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    Ok(pages.context("/proc/self/statm has no second number")? * 4_096)
}
