//! Logs and metrics, in the formats that operators' tools read.

mod buffer;
mod families;
mod logs;
mod metrics;
mod plugin_fields;
mod process;
mod requests;
mod version;

pub use buffer::{Dropped, Source};
pub use logs::{Levels, LogFormat, LogWriter, Logs, LogsError, init as init_logs, init_terminal};
pub use metrics::{CacheFigures, Figures, LeaseFigures, Metrics, PluginFigures};
pub use requests::ApiRequests;
pub use version::{COMMIT, VERSION};
