//! Logs and metrics, in the forms that operators' tools already read.

mod logs;
mod metrics;

pub use logs::{LogFormat, Logs, LogsError, init as init_logs};
pub use metrics::{CacheFigures, Depth, JournalFigures, JournalNow, Metrics};
