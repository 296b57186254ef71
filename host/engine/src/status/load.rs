//! Whether each configured plugin runs, and the reason when it does not.

use podium_vocabulary::PluginId;

/// The result of the latest attempt to load a plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LoadState {
    /// The first attempt has not ended.
    #[default]
    Loading,
    /// The attempt succeeded.
    Loaded,
    /// The plugin is compiled, and another replica of the host runs it.
    Standby,
    /// The plugin's configuration suspends it: no version of it runs.
    Suspended,
    /// The attempt failed for a reason that may pass, such as a component file that cannot be read. The host retries
    /// with back-off.
    Waiting {
        /// One line, escaped and bounded.
        reason: String,
        /// Attempts that failed in a row.
        attempts: u32,
    },
    /// The component or its configuration was refused. The host does not retry until one of them changes.
    Refused {
        /// One line, escaped and bounded.
        reason: String,
    },
}

impl LoadState {
    /// Returns `loading`, `loaded`, `standby`, `suspended`, `waiting` or `refused`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Loaded => "loaded",
            Self::Standby => "standby",
            Self::Suspended => "suspended",
            Self::Waiting { .. } => "waiting",
            Self::Refused { .. } => "refused",
        }
    }

    /// Returns why the latest attempt failed.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Loading | Self::Loaded | Self::Standby | Self::Suspended => None,
            Self::Waiting { reason, .. } | Self::Refused { reason } => Some(reason),
        }
    }
}

/// The state of one configured plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginState {
    /// The plugin's namespace and name.
    pub id: PluginId,
    /// The result of the latest attempt.
    pub load: LoadState,
    /// True while a version of the plugin runs. It may be true although `load` is not [`LoadState::Loaded`]: an
    /// earlier version keeps running while a new one is compiled, and after a new one with at least its permissions
    /// failed to load.
    pub runs: bool,
}
