//! The demo's output: a row for each plugin, and checks.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use podium_engine::status::Status;
use podium_vocabulary::PluginId;
use serde::Serialize;

use super::{checks::Result, latency};
use crate::ui;

/// The figures of one plugin.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) runs: u64,
    /// Writes that the API server accepted.
    pub(super) writes: u64,
    /// Runs that failed.
    pub(super) failures: u64,
    /// Time from the event's arrival to the response to the resulting write, in milliseconds; `None` before the
    /// first.
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
}

/// The rows of all plugins that ever ran. An unloaded plugin keeps its last row.
pub(super) struct Statistics {
    status: Arc<Status>,
    rows: Mutex<BTreeMap<PluginId, Row>>,
    /// Latencies of the first sync, which are those of a queue of 200 keys instead of a single event.
    before: BTreeMap<PluginId, Vec<u64>>,
}

impl Statistics {
    /// Returns statistics whose latencies count from now on; runs and writes from the start.
    pub(super) fn new(status: Arc<Status>) -> Self {
        let before = status.plugins().into_iter().map(|(id, status)| (id, status.event_to_write.counts())).collect();
        Self { status, rows: Mutex::default(), before }
    }

    /// Returns the present rows, by name.
    pub(super) fn rows(&self) -> Vec<Row> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        for (id, status) in self.status.plugins() {
            let before = self.before.get(&id).map_or([].as_slice(), Vec::as_slice);
            let millis = |quantile| status.event_to_write.quantile_since(before, quantile).map(latency::millis);
            let row = Row {
                name: id.to_string(),
                runs: status.runs(),
                writes: status.writes_applied(),
                failures: status.failures().values().sum(),
                p50_ms: millis(0.5),
                p99_ms: millis(0.99),
            };
            rows.insert(id, row);
        }
        rows.values().cloned().collect()
    }
}

/// Formats the rows for people.
pub(super) fn table(rows: &[Row]) -> String {
    let cells = |row: &Row| {
        let p50 = millis(row.p50_ms);
        let p99 = millis(row.p99_ms);
        [row.name.clone(), row.runs.to_string(), row.writes.to_string(), row.failures.to_string(), p50, p99]
    };
    ui::table(["PLUGIN", "RUNS", "WRITES", "FAILURES", "P50", "P99"], rows.iter().map(cells))
}

fn millis(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1} ms"))
}

/// Formats the results of the checks for people.
pub(super) fn list(results: &[Result]) -> String {
    let mut text = String::new();
    for result in results {
        let mark = if result.ok { "ok    " } else { "FAILED" };
        text += &format!("{mark}  {}\n        {}\n", result.name, result.detail);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_that_wrote_nothing_has_no_latency() {
        let row = Row { name: "idle".into(), runs: 3, writes: 0, failures: 0, p50_ms: None, p99_ms: None };
        let text = table(&[row]);
        assert!(text.lines().nth(1).unwrap().ends_with('-'), "{text}");
    }

    #[test]
    fn a_failed_check_stands_out_with_its_detail() {
        let text = list(&[Result { name: "a rollout", ok: false, detail: "web-0 is still there".into() }]);
        assert!(text.contains("FAILED  a rollout\n        web-0 is still there"), "{text}");
    }
}
