//! The tables of new Pods: a row for each load and subject, split because it would be wider than a screen; and the
//! share of the processor time that is above the floor.

use std::fmt::Write as _;

use comfy_table::{Cell, Table, presets::ASCII_MARKDOWN};

use super::{
    Column, Figures, Load, Measured,
    subject::{FLOOR, PODIUM},
};
use crate::cells::{cell, median, ratio};

const COSTS: [Column; 6] = [
    ("Pods/s", |figures| Some(figures.pods_per_second)),
    ("CPU us", |figures| Some(figures.cpu_micros)),
    ("watch us", |figures| figures.watch_micros),
    ("workers us", |figures| figures.workers_micros),
    ("rest us", |figures| figures.rest_micros),
    ("switches", |figures| Some(figures.switches)),
];
const COUNTS: [Column; 7] = [
    ("events", |figures| Some(figures.events)),
    ("system calls", |figures| figures.system_calls),
    ("instructions", |figures| figures.instructions),
    ("wire B", |figures| Some(figures.wire_bytes)),
    ("writes", |figures| Some(figures.writes)),
    ("requests", |figures| Some(figures.requests)),
    ("MiB", |figures| Some(figures.memory_mib)),
];
const SERVERS: [Column; 4] = [
    ("kube-apiserver us", |figures| Some(figures.apiserver_micros)),
    ("etcd us", |figures| Some(figures.etcd_micros)),
    ("p50 ms", |figures| Some(figures.p50_millis)),
    ("p99 ms", |figures| Some(figures.p99_millis)),
];

pub(super) fn render(all: &[Measured]) -> String {
    let parts = [&COSTS[..], &COUNTS, &SERVERS].map(|columns| part(all, columns));
    format!("{}\n\n{}", parts.join("\n\n"), above_the_floor(all))
}

fn part(all: &[Measured], columns: &[Column]) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["load", "subject"].into_iter().chain(columns.iter().map(|(name, _)| *name)));
    for measured in all {
        let base = all.iter().find(|other| other.subject == PODIUM && other.load == measured.load);
        let cells = columns.iter().map(|(_, figure)| {
            cell(&values(measured, *figure), &base.map(|base| values(base, *figure)).unwrap_or_default())
        });
        table.add_row([Cell::new(measured.load), Cell::new(&measured.subject)].into_iter().chain(cells));
    }
    table.to_string()
}

fn values(measured: &Measured, figure: fn(&Figures) -> Option<f64>) -> Vec<f64> {
    measured.runs.iter().filter_map(figure).collect()
}

/// Returns a line for each rate: the processor time above that of [`FLOOR`], as a share of that of the best peer, and
/// the ratio of the totals.
fn above_the_floor(all: &[Measured]) -> String {
    let cpu = |measured: &Measured| median(&values(measured, |figures| Some(figures.cpu_micros)));
    let mut lines = String::new();
    for podium in all.iter().filter(|measured| measured.subject == PODIUM && measured.load != Load::Idle) {
        let of_load = || all.iter().filter(|measured| measured.load == podium.load);
        let floor = of_load().find(|measured| measured.subject == FLOOR).and_then(cpu);
        let peers = of_load().filter(|measured| ![PODIUM, FLOOR].contains(&&*measured.subject));
        let peers = peers.filter_map(|peer| Some((&peer.subject, cpu(peer)?)));
        let best = peers.min_by(|(_, one), (_, other)| one.total_cmp(other));
        let (Some(own), Some(floor), Some((peer, best))) = (cpu(podium), floor, best) else { continue };
        // A String takes every text.
        let _ = writeln!(
            lines,
            "{}: above the floor podium uses {} of {peer}'s processor time, in total {}",
            podium.load,
            ratio((own - floor) / (best - floor)),
            ratio(own / best),
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(subject: &str, micros: &[f64]) -> Measured {
        let run = |micros: &f64| Figures { cpu_micros: *micros, ..Figures::default() };
        Measured { load: Load::Labelled(20), subject: subject.to_owned(), runs: micros.iter().map(run).collect() }
    }

    #[test]
    fn the_share_above_the_floor_is_that_of_the_best_peer() {
        let all = [
            measured(PODIUM, &[900.0, 800.0, 1_000.0]),
            measured(FLOOR, &[400.0]),
            measured("slow", &[9_000.0]),
            measured("fast", &[1_400.0]),
        ];
        let table = render(&all);
        let line = "20/s: above the floor podium uses 0.5 of fast's processor time, in total 0.6";
        assert!(table.contains(line), "{table}");
        assert!(table.contains("900 (800-1000) 1.0x") && table.contains("9000 10x"), "{table}");
        let counts = table.split("\n\n").nth(1).unwrap();
        assert!(counts.lines().all(|line| !line.contains("| fast") || line.split('|').nth(4).unwrap().trim() == "-"));
    }
}
