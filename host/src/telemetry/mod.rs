//! Logs and metrics, in the forms that operators' tools already read.

mod logs;
mod metrics;
mod plugin_fields;

pub use logs::{LogFormat, Logs, LogsError, init as init_logs, init_terminal};
pub use metrics::{CacheFigures, Deletions, Depth, JournalFigures, JournalNow, Metrics};
