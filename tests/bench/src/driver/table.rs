//! The table: a row for each population and subject; each cell has the median, the spread of the runs, and the ratio
//! to podium. It is split in two, because it would be wider than a screen.

use comfy_table::{Cell, CellAlignment, Table, presets::ASCII_MARKDOWN};

use super::{Figures, Measured};

type Column = (&'static str, fn(&Figures) -> f64);

/// Columns with the same value in every run and for every subject of a population.
const OF_POPULATION: [Column; 2] =
    [("Pods", |figures| figures.pods), ("own B/Pod", |figures| figures.own_bytes_per_pod)];
const COSTS: [Column; 5] = [
    ("A: CPU us/event", |figures| figures.event_cpu_micros),
    ("B: B/Pod", |figures| figures.bytes_per_pod),
    ("B: after events", |figures| figures.bytes_per_pod_after_events),
    ("C: relist peak", |figures| figures.relist_peak_ratio),
    ("M: CPU us/Pod", |figures| figures.start_cpu_micros_per_pod),
];
const TIMES: [Column; 6] = [
    ("M: wall s", |figures| figures.start_wall_seconds),
    ("N: p50 us", |figures| figures.latency_p50_micros),
    ("N: p99 us", |figures| figures.latency_p99_micros),
    ("L: CPU %", |figures| figures.pace_processor_percent),
    ("G: snapshot us", |figures| figures.snapshot_micros),
    ("get us", |figures| figures.get_micros),
];

pub(super) fn render(all: &[Measured]) -> String {
    format!("{}\n\n{}", half(all, &OF_POPULATION, &COSTS), half(all, &[], &TIMES))
}

fn half(all: &[Measured], of_population: &[Column], columns: &[Column]) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    let names = of_population.iter().chain(columns).map(|(name, _)| *name);
    table.set_header(["population", "subject"].into_iter().chain(names));
    for measured in all {
        let is_base = |other: &&Measured| other.subject == "podium" && other.population == measured.population;
        let base = all.iter().find(is_base);
        let first = |figure: fn(&Figures) -> f64| measured.runs.first().map_or(f64::NAN, figure);
        let same = of_population.iter().map(|(_, figure)| Cell::new(format!("{:.0}", first(*figure))));
        let cells = same.chain(columns.iter().map(|(_, figure)| Cell::new(cell(measured, base, *figure))));
        let cells = cells.map(|cell| cell.set_alignment(CellAlignment::Right));
        table.add_row([Cell::new(&measured.population), Cell::new(measured.subject)].into_iter().chain(cells));
    }
    table.to_string()
}

fn cell(measured: &Measured, base: Option<&Measured>, figure: fn(&Figures) -> f64) -> String {
    let Some((low, middle, high)) = spread(measured, figure) else { return "-".to_owned() };
    let ratio = match base.and_then(|base| spread(base, figure)) {
        Some((_, of_base, _)) if of_base > 0.0 => format!(" {}x", ratio(middle / of_base)),
        _ => String::new(),
    };
    let spread = if measured.runs.len() > 1 { format!(" ({}-{})", digits(low), digits(high)) } else { String::new() };
    format!("{}{spread}{ratio}", digits(middle))
}

/// Returns minimum, median and maximum.
fn spread(measured: &Measured, figure: fn(&Figures) -> f64) -> Option<(f64, f64, f64)> {
    let mut all: Vec<f64> = measured.runs.iter().map(figure).collect();
    all.sort_by(f64::total_cmp);
    Some((*all.first()?, all[all.len() / 2], *all.last()?))
}

/// Formats three digits, or all before the decimal point.
fn digits(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Formats two digits, which show the better one and by how much.
fn ratio(value: f64) -> String {
    match value {
        10.0.. => format!("{value:.0}"),
        0.1.. => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(population: &str, subject: &'static str, events: &[f64]) -> Measured {
        let run = |micros: &f64| Figures { pods: 60.0, event_cpu_micros: *micros, ..Figures::default() };
        Measured { population: population.to_owned(), subject, runs: events.iter().map(run).collect() }
    }

    #[test]
    fn a_cell_has_the_median_the_spread_and_the_ratio_to_podium() {
        let all =
            [measured("status", "podium", &[6.0, 5.0, 9.0]), measured("status", "kube-rs", &[120.0, 131.0, 126.0])];
        let table = render(&all);
        assert!(table.contains("| 6.00 (5.00-9.00) 1.0x |"), "{table}");
        assert!(table.contains("126 (120-131) 21x"), "{table}");
    }

    #[test]
    fn a_ratio_is_to_podium_on_the_same_population() {
        let all = [
            measured("status", "podium", &[6.0]),
            measured("cni", "podium", &[12.0]),
            measured("cni", "kube-rs", &[120.0]),
        ];
        let table = render(&all);
        assert!(table.contains("120 10x") && table.contains("12.0 1.0x"), "{table}");
        let row = table.lines().find(|line| line.contains("| cni") && line.contains("kube-rs")).unwrap();
        assert!(row.split('|').nth(3).is_some_and(|pods| pods.trim() == "60"), "{row}");
    }
}
