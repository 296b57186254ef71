//! Runs every subject several times, each against its own server, and prints one table of the results.
//!
//! Subjects take turns, so that changes of the machine affect all of them.

mod measure;
mod process;
mod table;

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use measure::Figures;

use crate::generate::{self, PopulationKind};

/// Subjects that store no Pods, so that half of the table does not apply to them.
const ONLY_BY_NAME: [&str; 2] = ["wire", "wire-protobuf"];

/// A subject to measure: its name, its program and the arguments beside `--url`.
#[derive(Debug, Clone)]
struct Contender {
    name: &'static str,
    program: PathBuf,
    arguments: &'static [&'static str],
    /// Whether the server serves protobuf.
    protobuf: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The options of each population, except its kind.
    pub(crate) generate: generate::Options,
    pub(crate) populations: Vec<PopulationKind>,
    pub(crate) events: usize,
    pub(crate) rates: Vec<u32>,
    pub(crate) seconds: u32,
    pub(crate) repeats: usize,
    /// Whether subjects connect over TLS.
    pub(crate) tls: bool,
    /// Pause between the steps, for garbage collectors, delayed frees and the server.
    pub(crate) settle: Duration,
    /// The subjects; empty for all that are built.
    pub(crate) subjects: Vec<String>,
    /// The Go client.
    pub(crate) go: Option<PathBuf>,
    pub(crate) json: bool,
}

/// All runs of one subject on one population.
#[derive(Debug, serde::Serialize)]
struct Measured {
    population: String,
    subject: &'static str,
    runs: Vec<Figures>,
}

#[derive(Debug, serde::Serialize)]
struct Report {
    pods: usize,
    events: usize,
    tls: bool,
    subjects: Vec<Measured>,
}

/// Measures and prints: the table or JSON to standard output, progress to standard error.
///
/// # Errors
/// Returns an error that names the program if one cannot be run or does not work.
pub(crate) fn compare(options: &Options) -> anyhow::Result<()> {
    let contenders = contenders(options)?;
    let mut all = Vec::new();
    for kind in &options.populations {
        all.extend(of_population(*kind, &contenders, options)?);
    }
    if options.json {
        let Options { generate, events, tls, .. } = options;
        let report = Report { pods: generate.pods, events: *events, tls: *tls, subjects: all };
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{}", table::render(&all));
    }
    Ok(())
}

/// Runs every subject on one population.
fn of_population(kind: PopulationKind, contenders: &[Contender], options: &Options) -> anyhow::Result<Vec<Measured>> {
    let population = kind.name();
    let generate = generate::Options { kind, ..options.generate.clone() };
    let empty =
        |contender: &Contender| Measured { population: population.clone(), subject: contender.name, runs: Vec::new() };
    let mut all: Vec<Measured> = contenders.iter().map(empty).collect();
    for repeat in 1..=options.repeats {
        for (contender, measured) in contenders.iter().zip(&mut all) {
            eprintln!("run {repeat} of {}: {} on population {population}", options.repeats, contender.name);
            let figures = measure::run(contender, &generate, options)
                .with_context(|| format!("subject {} on population {population}", contender.name))?;
            eprintln!("  {figures}");
            measured.runs.push(figures);
        }
    }
    Ok(all)
}

/// Returns all subjects, or the requested ones; a requested one that is not built is an error.
fn contenders(options: &Options) -> anyhow::Result<Vec<Contender>> {
    let own = std::env::current_exe()?;
    let jemalloc = own.with_file_name("podium-bench-jemalloc");
    let mut known = Vec::new();
    let mut add = |name, program: &PathBuf, arguments, protobuf| {
        known.push(Contender { name, program: program.clone(), arguments, protobuf });
    };
    add("podium", &own, &["subject", "podium"], false);
    add("podium-cache", &own, &["subject", "podium-cache"], false);
    add("podium-jemalloc", &jemalloc, &["subject", "podium"], false);
    add("kube-rs", &own, &["subject", "kube-rs"], false);
    add("kube-rs-jemalloc", &jemalloc, &["subject", "kube-rs"], false);
    add("kube-rs-stripped-jemalloc", &jemalloc, &["subject", "kube-rs-stripped"], false);
    add("wire", &own, &["subject", "wire"], false);
    if let Some(go) = &options.go {
        // Its server needs the Go client as encoder.
        add("wire-protobuf", &own, &["subject", "wire-protobuf"], true);
        add("client-go-json", go, &["--content", "json"], false);
        add("client-go-protobuf", go, &["--content", "protobuf"], true);
        add("client-go-protobuf-trimmed", go, &["--content", "protobuf", "--transform"], true);
    }
    if options.subjects.is_empty() {
        known.retain(|contender| contender.program.is_file() && !ONLY_BY_NAME.contains(&contender.name));
        return Ok(known);
    }
    let names: Vec<_> = known.iter().map(|contender| contender.name).collect();
    for wanted in &options.subjects {
        let found = known.iter().find(|contender| contender.name == wanted);
        let found = found.with_context(|| format!("there is no subject {wanted}; there are {}", names.join(", ")))?;
        let file = found.program.display();
        anyhow::ensure!(found.program.is_file(), "{file} of subject {wanted} is not built; `just bench-cache` does");
    }
    known.retain(|contender| options.subjects.iter().any(|wanted| wanted == contender.name));
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(subjects: &[&str]) -> Vec<&'static str> {
        let options = Options {
            generate: generate::Options::default(),
            populations: vec![PopulationKind::default()],
            events: 1,
            rates: vec![1],
            seconds: 1,
            repeats: 1,
            tls: false,
            settle: Duration::ZERO,
            subjects: subjects.iter().map(|&name| name.to_owned()).collect(),
            // Any existing program.
            go: Some(std::env::current_exe().unwrap()),
            json: false,
        };
        contenders(&options).unwrap().iter().map(|contender| contender.name).collect()
    }

    #[test]
    fn subjects_that_hold_no_pods_are_measured_only_by_name() {
        let all = names(&[]);
        assert!(all.contains(&"podium") && all.contains(&"client-go-protobuf"), "{all:?}");
        assert!(!all.iter().any(|name| ONLY_BY_NAME.contains(name)), "{all:?}");
        assert_eq!(names(&["wire-protobuf", "podium", "wire"]), ["podium", "wire", "wire-protobuf"]);
    }
}
