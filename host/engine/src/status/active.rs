//! Runs under way, and the latest panic of a plugin.

use podium_vocabulary::PodKey;
use tokio::time::Instant;

/// A run under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveRun {
    /// The Pod that the run is about.
    pub pod: PodKey,
    /// When the run started.
    pub since: Instant,
}

/// A run that trapped or exceeded a limit, or during which the host panicked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panic {
    /// See [`FailureKind::name`](crate::ports::FailureKind::name).
    pub kind: &'static str,
    /// The failure's message. It may contain text of the plugin, which is not escaped.
    pub message: String,
    /// When the run ended.
    pub at: Instant,
}
