//! Output on a terminal: errors, progress bars, tables. There is no animation if stderr is not a terminal.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use anyhow::Context;
use comfy_table::{ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

/// Writes a result to stdout. A reader that has seen enough, such as `head`, closes the pipe: that is no error.
///
/// # Errors
/// Returns an error if stdout takes nothing for another reason, such as a full disk.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// Formats a value as a document of YAML, with a line break at its end.
pub(crate) fn yaml(value: &Value) -> anyhow::Result<String> {
    let text = serde_saphyr::to_string(value).context("cannot write YAML")?;
    Ok(if text.ends_with('\n') { text } else { text + "\n" })
}

/// Formats objects as the documents of a file that `kubectl apply -f` reads.
pub(crate) fn yaml_documents<'a>(objects: impl IntoIterator<Item = &'a Value>) -> anyhow::Result<String> {
    objects.into_iter().map(|object| Ok(format!("---\n{}", yaml(object)?))).collect()
}

/// Writes a line to stderr. If stderr takes nothing, the exit code is the only report that is left.
pub(crate) fn report(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Prints an error with its causes to stderr.
pub fn error(error: &anyhow::Error) {
    report(&format!("error: {error:#}"));
}

/// Formats an error for `--output json`, with the same member `ok` as a success.
#[must_use]
pub fn error_json(error: &anyhow::Error) -> String {
    serde_json::json!({ "ok": false, "error": format!("{error:#}") }).to_string()
}

/// Returns true if stderr is a terminal.
#[must_use]
pub fn interactive() -> bool {
    io::stderr().is_terminal()
}

/// Waits for Ctrl-C or SIGTERM.
pub(crate) async fn stopped() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    tokio::select! {
        biased;
        interrupted = tokio::signal::ctrl_c() => interrupted.context("cannot wait for Ctrl-C"),
        _ = terminate.recv() => Ok(()),
    }
}

/// The number of concurrent runs in `dev` and `demo`.
pub(crate) const WORKERS: usize = 8;

/// Runs `dev` or `demo` to its end, without waiting for a build that is still under way then.
pub(crate) fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    // The host's watch and the cluster continue while every guest computes.
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(WORKERS + 2).enable_all().build().context("cannot start threads")?;
    let result = runtime.block_on(future);
    runtime.shutdown_background();
    result
}

/// Sends log lines to stderr, one line each, filtered as by RUST_LOG.
pub(crate) fn log(filter: &str) -> anyhow::Result<()> {
    podium_host::telemetry::init_terminal(filter, interactive()).context("--log")
}

/// Formats a table for people as kubectl does: columns two spaces apart, without borders.
pub(crate) fn table<const COLUMNS: usize>(
    head: [&str; COLUMNS],
    rows: impl IntoIterator<Item = [String; COLUMNS]>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(head);
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

/// Returns a progress bar of `length` steps on stderr; hidden if stderr is not a terminal.
pub(crate) fn bar(length: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), draw_target());
    bar.set_style(style("{spinner} [{bar:24}] {pos}/{len} {prefix} {wide_msg:.dim}"));
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

pub(crate) fn draw_target() -> ProgressDrawTarget {
    if interactive() { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() }
}

pub(crate) fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

/// Formats a size for people.
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
