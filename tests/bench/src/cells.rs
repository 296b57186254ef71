//! The cells of tables: the median of the runs, their spread, and the ratio to a base.

use comfy_table::{Cell, CellAlignment};

/// Returns a cell with the median, the minimum and the maximum of the values, and the ratio of the medians where there
/// is a base.
pub(crate) fn cell(values: &[f64], base: &[f64]) -> Cell {
    let Some([low, middle, high]) = spread(values) else { return number("-") };
    let ratio = match spread(base) {
        Some([_, of_base, _]) if of_base > 0.0 => format!(" {}x", ratio(middle / of_base)),
        _ => String::new(),
    };
    let spread = if values.len() > 1 { format!(" ({}-{})", digits(low), digits(high)) } else { String::new() };
    number(&format!("{}{spread}{ratio}", digits(middle)))
}

/// Returns a cell that is aligned as numbers are.
pub(crate) fn number(text: &str) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// Returns the median.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    spread(values).map(|[_, middle, _]| middle)
}

/// Returns minimum, median and maximum.
fn spread(values: &[f64]) -> Option<[f64; 3]> {
    let mut all = values.to_vec();
    all.sort_by(f64::total_cmp);
    Some([*all.first()?, all[all.len() / 2], *all.last()?])
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
pub(crate) fn ratio(value: f64) -> String {
    match value {
        10.0.. => format!("{value:.0}"),
        0.1.. => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}
