//! [`Config`]: when a crash is worth a word.

use std::time::Duration;

use serde::Deserialize;

/// The plugin's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// Restarts from which a container counts as crash-looping.
    pub threshold: i32,
    /// The same for one that is killed for its memory: the first time says it all.
    pub oom_threshold: i32,
    /// A container that is up counts by its restarts within this time, in seconds.
    pub window_seconds: u64,
    /// How long a container must run until its diagnosis is taken back, in seconds. Above the longest pause of a crash
    /// loop, 5 minutes, or the diagnosis comes and goes.
    pub recovery_seconds: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { threshold: 3, oom_threshold: 1, window_seconds: 3_600, recovery_seconds: 600 }
    }
}

impl Config {
    pub(crate) const fn window(self) -> Duration {
        Duration::from_secs(self.window_seconds)
    }

    pub(crate) const fn recovery(self) -> Duration {
        Duration::from_secs(self.recovery_seconds)
    }
}
