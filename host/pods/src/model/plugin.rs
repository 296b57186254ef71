//! A plugin as configured, checked: no field here is to be doubted again.

use std::{path::PathBuf, time::Duration};

use podium_wire::SectionSet;

use super::{Grants, LabelSelector, PluginId, Scope};

#[derive(Debug, Clone, PartialEq)]
pub struct PluginSpec {
    pub id: PluginId,
    /// The component's file.
    pub source: PathBuf,
    /// `system:serviceaccount:<namespace>:<name>` whose rights the plugin's writes have; none: the host's own.
    pub impersonate: Option<String>,
    pub watch: WatchSpec,
    pub grants: Grants,
    pub limits: Limits,
    pub phase: Phase,
    /// Names of plugins of the same tenant that run first.
    pub after: Vec<String>,
    /// The configuration's `config` as JSON text; `{}` where there is none.
    pub config: String,
}

impl PluginSpec {
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.id.namespace.clone().map_or(Scope::Cluster, Scope::Namespace)
    }

    /// Returns true when this configuration permits everything that `other` permits: scope, grants, the account that
    /// writes are sent as, and limits. Selectors and order are no permissions.
    #[must_use]
    pub fn permits(&self, other: &Self) -> bool {
        self.scope() == other.scope()
            && self.impersonate == other.impersonate
            && self.grants.covers(&other.grants)
            && self.limits.covers(&other.limits)
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct WatchSpec {
    pub selector: LabelSelector,
    /// A change of one of these wakes the plugin; lifecycle always does.
    pub sections: SectionSet,
    /// Every Pod that matches is run again after this time.
    pub resync: Option<Duration>,
}

/// When a plugin runs among those that one change wakes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Before,
    #[default]
    Main,
    After,
}

/// How large a component may be and how long its compilation may take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LimitClass {
    /// 8 MiB, 16 core instances, 10 s of processor time.
    #[default]
    Native,
    /// 32 MiB, 64 core instances, 60 s: for guests that bring an interpreter along.
    Interpreter,
}

impl LimitClass {
    /// As the configuration names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Interpreter => "interpreter",
        }
    }
}

/// What one run may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub class: LimitClass,
    pub memory_bytes: usize,
    /// Time on the processor; enforced by fuel, with the epoch behind it.
    pub cpu: Duration,
    /// From start to end, waiting included; but not while the host sends.
    pub wall: Duration,
    pub host_calls: u32,
    pub writes: u32,
    pub log_bytes: usize,
}

impl Limits {
    /// What a configuration may ask for at most, and hence what an engine sets address space aside for.
    pub const MOST_MEMORY_BYTES: usize = 256 << 20;

    /// Returns true when no limit is lower than the `other`'s.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let Self { class, memory_bytes, cpu, wall, host_calls, writes, log_bytes } = self;
        (*class == other.class || *class == LimitClass::Interpreter)
            && *memory_bytes >= other.memory_bytes
            && *cpu >= other.cpu
            && *wall >= other.wall
            && *host_calls >= other.host_calls
            && *writes >= other.writes
            && *log_bytes >= other.log_bytes
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            class: LimitClass::Native,
            memory_bytes: 32 << 20,
            cpu: Duration::from_millis(20),
            wall: Duration::from_secs(2),
            host_calls: 1_000,
            writes: 20,
            log_bytes: 16 << 10,
        }
    }
}
