//! Lines over 120 columns. Markdown is wrapped by whatever shows it, except the changelog.

use std::path::Path;

const COLUMNS: usize = 120;

/// Returns the lines of one file that are too long.
pub(crate) fn long_lines(path: &Path, text: &str) -> Vec<usize> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_comment = |line: &str| line.trim_start().starts_with(['#', '/']);
    // Rows of tables cannot be wrapped.
    let is_row = |line: &str| is_comment(line) && line.contains(" | ");
    let is_read = |line: &str| match &*name {
        "CHANGELOG.md" => true,
        name if name.ends_with(".md") => false,
        name if name.ends_with(".yaml") => is_comment(line),
        _ => !is_row(line),
    };
    let over = text.lines().enumerate().filter(|(_, line)| line.chars().count() > COLUMNS && is_read(line));
    over.map(|(at, _)| at + 1).collect()
}
