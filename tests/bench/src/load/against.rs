//! The counts of a measurement beside those of an earlier one.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};

use super::{Column, Load, Measured, Report};
use crate::cells::median;

/// How many times the count of before a count may be. An idle second has few, and a watch ends in some of them.
const MARGIN: f64 = 1.1;
const MARGIN_IDLE: f64 = 2.0;
/// As much more is one event in the whole measurement.
const SLACK: f64 = 0.05;
/// The figures that repeat; times do not.
const COUNTS: [Column; 6] = [
    ("switches", |figures| Some(figures.switches)),
    ("system calls", |figures| figures.system_calls),
    ("instructions", |figures| figures.instructions),
    ("bytes on the wire", |figures| Some(figures.wire_bytes)),
    ("writes", |figures| Some(figures.writes)),
    ("requests", |figures| Some(figures.requests)),
];

/// Reads the output of an earlier measurement.
///
/// # Errors
/// Returns an error if it cannot be read.
pub(super) fn read(file: &Path) -> Result<Report> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no output of load --output json", file.display()))
}

/// Compares the medians of all counts.
///
/// # Errors
/// Returns an error that names each count that is more than a tenth greater than before, of an idle second twice as
/// great, and each load and subject that was not measured before.
pub(super) fn compare(now: &[Measured], before: &[Measured]) -> Result<()> {
    let mut grown = Vec::new();
    for measured in now {
        let (load, subject) = (measured.load, &measured.subject);
        let same = before.iter().find(|before| before.load == load && before.subject == *subject);
        let Some(same) = same else {
            grown.push(format!("{load} {subject} was not measured before"));
            continue;
        };
        let margin = if load == Load::Idle { MARGIN_IDLE } else { MARGIN };
        for (name, figure) in COUNTS {
            let of = |measured: &Measured| median(&measured.runs.iter().filter_map(figure).collect::<Vec<_>>());
            if let (Some(now), Some(before)) = (of(measured), of(same))
                && now > before * margin + SLACK
            {
                grown.push(format!("{load} {subject}: {now:.1} {name} instead of {before:.1}"));
            }
        }
    }
    match grown.is_empty() {
        true => Ok(()),
        false => bail!("more than before; renew the file with a line in the changelog:\n{}", grown.join("\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Figures, *};

    fn measured(switches: f64, system_calls: Option<f64>) -> Vec<Measured> {
        let run = Figures { switches, system_calls, cpu_micros: switches * 9.0, ..Figures::default() };
        vec![Measured { load: Load::Labelled(20), subject: "podium".to_owned(), runs: vec![run] }]
    }

    #[test]
    fn a_count_may_be_a_tenth_greater_and_a_count_of_one_side_is_not_compared() {
        let before = measured(100.0, Some(50.0));
        compare(&measured(109.0, Some(55.0)), &before).unwrap();
        compare(&measured(60.0, None), &before).unwrap();
        let error = compare(&measured(111.0, Some(56.0)), &before).unwrap_err().to_string();
        assert!(error.contains("20/s podium: 111.0 switches instead of 100.0"), "{error}");
        assert!(error.contains("56.0 system calls instead of 50.0") && !error.contains("micros"), "{error}");
        assert!(compare(&measured(1.0, None), &[]).unwrap_err().to_string().contains("not measured before"));
    }

    #[test]
    fn the_output_of_a_measurement_is_read_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let report = Report { pods: 1, namespaces: 2, measured: measured(7.0, None) };
        fs::write(file.path(), serde_json::to_string(&report).unwrap()).unwrap();
        let again = read(file.path()).unwrap().measured;
        assert_eq!((again[0].load, again[0].runs[0].switches), (Load::Labelled(20), 7.0));
    }
}
