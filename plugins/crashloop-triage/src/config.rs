//! [`Config`]: when a crash is reported.

use std::time::Duration;

use serde::Deserialize;

/// The plugin's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// Restarts from which a container counts as crash-looping.
    pub threshold: i32,
    /// The same for a container that is killed because of its memory, which the first time shows.
    pub oom_threshold: i32,
    /// The window in which restarts of a running container count, in seconds.
    pub window_seconds: u64,
    /// How long a container must run until its diagnosis is removed, in seconds. It should exceed the longest pause
    /// of a crash loop, 5 minutes; otherwise the diagnosis appears and disappears.
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
