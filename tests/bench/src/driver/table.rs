//! The table: a row for each population and subject; each cell has the median, the spread of the runs, and the ratio
//! to podium. It is split in three, because it would be wider than a screen.

use comfy_table::{Cell, Table, presets::ASCII_MARKDOWN};

use super::{Figures, Measured};
use crate::cells::{cell, number};

type Column = (String, Box<dyn Fn(&Figures) -> f64>);

fn column(name: &str, figure: impl Fn(&Figures) -> f64 + 'static) -> Column {
    (name.to_owned(), Box::new(figure))
}

pub(super) fn render(all: &[Measured]) -> String {
    // With the same value in every run and for every subject of a population.
    let of_population =
        [column("Pods", |figures| figures.pods), column("own B/Pod", |figures| figures.own_bytes_per_pod)];
    let costs = [
        column("A: CPU us/event", |figures| figures.event_cpu_micros),
        column("B: B/Pod", |figures| figures.bytes_per_pod),
        column("B: after events", |figures| figures.bytes_per_pod_after_events),
        column("C: relist peak", |figures| figures.relist_peak_ratio),
        column("M: CPU us/Pod", |figures| figures.start_cpu_micros_per_pod),
        column("M: wall s", |figures| figures.start_wall_seconds),
        column("G: snapshot us", |figures| figures.snapshot_micros),
        column("get us", |figures| figures.get_micros),
    ];
    let (of_costs, of_reads) = costs.split_at(5);
    let rates = all.iter().find_map(|measured| measured.runs.first()).map_or(&[][..], |run| &run.rates);
    let paced: Vec<Column> = (rates.iter().enumerate())
        .flat_map(|(at, paced)| {
            let rate = paced.rate;
            [
                column(&format!("L: CPU us/event at {rate}/s"), move |figures| figures.rates[at].event_cpu_micros),
                column(&format!("N: p50 us at {rate}/s"), move |figures| figures.rates[at].latency_p50_micros),
                column(&format!("N: p99 us at {rate}/s"), move |figures| figures.rates[at].latency_p99_micros),
            ]
        })
        .collect();
    let parts = [part(all, &of_population, of_costs), part(all, &[], &paced), part(all, &[], of_reads)];
    parts.join("\n\n")
}

fn part(all: &[Measured], of_population: &[Column], columns: &[Column]) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    let names = of_population.iter().chain(columns).map(|(name, _)| name.as_str());
    table.set_header(["population", "subject"].into_iter().chain(names));
    for measured in all {
        let is_base = |other: &&Measured| other.subject == "podium" && other.population == measured.population;
        let base = all.iter().find(is_base);
        let of = |measured: &Measured, figure: &dyn Fn(&Figures) -> f64| -> Vec<f64> {
            measured.runs.iter().map(figure).collect()
        };
        let first = |figure: &dyn Fn(&Figures) -> f64| measured.runs.first().map_or(f64::NAN, figure);
        let same = of_population.iter().map(|(_, figure)| number(&format!("{:.0}", first(figure))));
        let cells =
            same.chain(columns.iter().map(|(_, figure)| {
                cell(&of(measured, figure), &base.map(|base| of(base, figure)).unwrap_or_default())
            }));
        table.add_row([Cell::new(&measured.population), Cell::new(measured.subject)].into_iter().chain(cells));
    }
    table.to_string()
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
