//! What a terminal is shown: errors, bars, tables. Nothing moves when stderr is not a terminal.

use std::{io::IsTerminal, time::Duration};

use anyhow::Context;
use comfy_table::{ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Prints an error with its causes to stderr.
pub fn error(error: &anyhow::Error) {
    eprintln!("error: {error:#}");
}

/// Whether people look on.
#[must_use]
pub fn interactive() -> bool {
    std::io::stderr().is_terminal()
}

/// The runtime that `dev` and `demo` run on.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")
}

/// A table for people, with one line under its head.
pub(crate) fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(head);
    table
}

/// A bar of `length` steps on stderr; hidden when nobody looks on.
pub(crate) fn bar(length: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), draw_target());
    bar.set_style(style("{spinner} [{bar:24}] {pos}/{len} {prefix} {wide_msg:.dim}"));
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

fn draw_target() -> ProgressDrawTarget {
    if interactive() { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

/// A size for people.
pub(crate) fn size(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
    let bytes_float = bytes as f64;
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{:.1} KiB", bytes_float / 1_024.0),
        _ => format!("{:.1} MiB", bytes_float / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes_are_in_units_that_people_read() {
        assert_eq!(super::size(1_023), "1023 B");
        assert_eq!(super::size(16 * 1_024 + 512), "16.5 KiB");
        assert_eq!(super::size(18 << 20), "18.0 MiB");
    }
}
