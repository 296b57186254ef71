//! Which load of each plugin counts, and which are tried again. Pure.

use std::collections::BTreeMap;

use podium_vocabulary::{PluginId, PluginSpec};
use tokio::time::Instant;

/// Loads that have not succeeded yet and are not refused.
#[derive(Default)]
pub(super) struct PendingLoads {
    /// By plugin, the number of the load whose attempts count: the latest one, until it succeeds or is refused and
    /// until the plugin is unloaded.
    pub(super) current: BTreeMap<PluginId, u64>,
    /// Plugins whose load is to be tried again.
    pub(super) waiting: BTreeMap<PluginId, Waiting>,
    /// Loads so far.
    pub(super) made: u64,
}

#[derive(Clone)]
pub(super) struct Waiting {
    pub(super) spec: PluginSpec,
    /// Attempts that failed in a row.
    pub(super) attempts: u32,
    pub(super) due: Instant,
    /// The number of the load, as in [`PendingLoads::current`].
    pub(super) number: u64,
}

impl PendingLoads {
    /// Supersedes an earlier load of the plugin.
    pub(super) fn begin(&mut self, id: &PluginId) -> u64 {
        self.made += 1;
        self.waiting.remove(id);
        self.current.insert(id.clone(), self.made);
        self.made
    }

    /// Removes the attempts that are due from those that wait. Their loads stay the current ones.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Waiting> {
        self.waiting.extract_if(.., |_, waiting| waiting.due <= now).map(|(_, waiting)| waiting).collect()
    }

    pub(super) fn is_current(&self, id: &PluginId, number: u64) -> bool {
        self.current.get(id) == Some(&number)
    }

    /// Ends the load of a plugin. Returns false if none is under way.
    pub(super) fn forget(&mut self, id: &PluginId) -> bool {
        self.waiting.remove(id);
        self.current.remove(id).is_some()
    }
}
