//! Logs, metrics and traces, in the formats that operators' tools read.

mod buffer;
mod families;
mod logs;
mod metrics;
mod plugin_fields;
mod process;
mod requests;
mod traces;
mod version;

pub use buffer::{Dropped, Source};
pub use logs::{Levels, LogFormat, LogWriter, Logs, LogsError, init as init_logs, init_terminal};
pub use metrics::{CacheFigures, CertificateFigures, Figures, LeaseFigures, Metrics, PluginFigures};
pub use requests::ApiRequests;
#[cfg(test)]
pub(crate) use traces::record;
pub use traces::{Exporter, Headers, Outbox, TraceFigures};
pub use version::{COMMIT, VERSION};
