//! Lines over 120 columns. Markdown is wrapped by whatever shows it, except the changelog.

use std::{collections::BTreeSet, path::Path};

use crate::{rust, texts::is_rust};

const COLUMNS: usize = 120;
/// A text of so many columns may make its line of Rust longer, because rustfmt does not break texts.
const LONG_TEXT: usize = 60;

/// Returns the lines of one file that are too long.
pub(crate) fn long_lines(path: &Path, text: &str) -> Vec<usize> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_comment = |line: &str| line.trim_start().starts_with(['#', '/']);
    // Rows of tables cannot be wrapped.
    let is_row = |line: &str| is_comment(line) && line.contains(" | ");
    let of_texts = if is_rust(path) { in_texts(text) } else { BTreeSet::new() };
    let is_read = |line: &str| match &*name {
        "CHANGELOG.md" => true,
        name if name.ends_with(".md") => false,
        name if name.ends_with(".yaml") => is_comment(line),
        _ => !is_row(line),
    };
    let over = text.lines().enumerate().filter(|(_, line)| line.chars().count() > COLUMNS && is_read(line));
    over.map(|(at, _)| at + 1).filter(|line| !of_texts.contains(line)).collect()
}

/// Returns the lines of Rust that a long text makes longer than they may be.
fn in_texts(code: &str) -> BTreeSet<usize> {
    let lines: Vec<&str> = code.lines().collect();
    let mut found = BTreeSet::new();
    for span in rust::read(code).unwrap_or_default().literals {
        let (start, end) = (span.start(), span.end());
        for number in start.line..=end.line {
            let from = if number == start.line { start.column } else { 0 };
            let length = lines.get(number - 1).map_or(0, |line| line.chars().count());
            let to = if number == end.line { end.column } else { length };
            if to > COLUMNS - 20 && to.saturating_sub(from) >= LONG_TEXT {
                found.insert(number);
            }
        }
    }
    found
}
