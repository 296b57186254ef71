//! The configuration of a plugin after validation: no field needs to be checked again.

use std::{
    borrow::Cow,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use podium_wire::SectionSet;

use super::{Grants, Input, LabelSelector, PluginId, Related, Scope, Tenant, text};

/// A plugin's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginSpec {
    /// Its namespace, if it has one, and its name.
    pub id: PluginId,
    /// Where its component or its script is.
    pub source: Source,
    /// The language of its script; `None` for a component.
    pub language: Option<Language>,
    /// True if the plugin is configured and not run.
    pub suspend: bool,
    /// The account `system:serviceaccount:<namespace>:<name>` that the plugin's writes are sent as; `None` for the
    /// host's own.
    pub impersonate: Option<String>,
    /// The Pods and the changes that wake it.
    pub watch: WatchSpec,
    /// Its permissions.
    pub grants: Grants,
    /// The limits of each of its runs.
    pub limits: Limits,
    /// Its place among the plugins that one change wakes.
    pub phase: Phase,
    /// Names of plugins of the same tenant that run first.
    pub after: Vec<String>,
    /// The plugins of the tenant with the same group share one state; with `None` no other plugin has it.
    pub state_group: Option<String>,
    /// The time after which its finalizers are removed from a Pod that is being deleted, without its run. `None` if
    /// they never are.
    pub release_after: Option<Duration>,
    /// The configuration's `config` as JSON text; `{}` by default. All copies share it.
    pub config: Arc<str>,
    /// The objects that its runs receive beside their Pod, each with another id.
    pub inputs: Vec<Input>,
}

impl PluginSpec {
    /// Returns the owner of the plugin.
    #[must_use]
    pub fn tenant(&self) -> Tenant {
        self.id.tenant()
    }

    /// Returns the namespace and the name of the ServiceAccount that its writes are sent as, if it has one.
    #[must_use]
    pub fn account(&self) -> Option<(&str, &str)> {
        self.impersonate.as_deref()?.strip_prefix("system:serviceaccount:")?.split_once(':')
    }

    /// Returns the namespaces whose Pods it sees.
    #[must_use]
    pub fn scope(&self) -> Scope {
        match self.tenant() {
            Tenant::Namespace(namespace) => Scope::Namespace(namespace),
            Tenant::Cluster => Scope::Cluster,
        }
    }

    /// Returns true if this configuration permits everything that `other` permits: scope, grants, the account that
    /// writes are sent as, the shared state, limits and inputs. Selectors and order are no permissions. A
    /// suspended plugin is permitted nothing.
    #[must_use]
    pub fn permits(&self, other: &Self) -> bool {
        !self.suspend
            && self.scope() == other.scope()
            && self.impersonate == other.impersonate
            && (other.state_group.is_none() || self.state_group == other.state_group)
            && self.grants.covers(&other.grants)
            && self.limits.covers(&other.limits)
            && other.inputs.iter().all(|input| self.inputs.contains(input))
    }
}

/// The language of a script, which a runner of the host executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// JavaScript.
    JavaScript,
    /// Python.
    Python,
}

/// The texts about a language.
struct LanguageTexts {
    name: &'static str,
    title: &'static str,
    runner: &'static str,
    file: &'static str,
}

impl Language {
    /// All languages, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::JavaScript, Self::Python];
    /// The most bytes of a script in a ConfigMap.
    pub const MOST_BYTES: usize = 512 << 10;

    const fn texts(self) -> LanguageTexts {
        match self {
            Self::JavaScript => {
                LanguageTexts { name: "javascript", title: "JavaScript", runner: "javascript-1", file: "plugin.js" }
            }
            Self::Python => LanguageTexts { name: "python", title: "Python", runner: "python-1", file: "plugin.py" },
        }
    }

    /// Returns the name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.texts().name
    }

    /// Returns the name in texts for people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        self.texts().title
    }

    /// Returns the name of the runner, which is that of its file without `.wasm`.
    #[must_use]
    pub const fn runner(self) -> &'static str {
        self.texts().runner
    }

    /// Returns the name of a script's file beside its plugin.yaml.
    #[must_use]
    pub const fn file(self) -> &'static str {
        self.texts().file
    }
}

/// Where a component or a script is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The script itself.
    Inline(Arc<str>),
    /// A file of the host.
    File(PathBuf),
    /// A key of a ConfigMap.
    ConfigMap {
        /// The ConfigMap's namespace.
        namespace: String,
        /// The ConfigMap's name.
        name: String,
        /// The key below `binaryData` or `data`.
        key: String,
        /// The digest of the component or script in hexadecimal digits.
        sha256: String,
    },
    /// An image of an OCI registry.
    Oci {
        /// The reference, with a tag or a digest.
        image: String,
        /// The Secret with credentials for the registry.
        pull_secret: Option<PullSecret>,
    },
}

/// A Secret with credentials for a registry. It is read as an account of its plugin: the host's own right to read
/// Secrets would be every tenant's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullSecret {
    /// The account that reads it, `system:serviceaccount:<namespace>:<name>`.
    pub account: String,
    /// The Secret's namespace.
    pub namespace: String,
    /// The Secret's name.
    pub name: String,
}

/// The most bytes of a reference to an image in a message: as many as it can have.
const MAX_SHOWN_BYTES: usize = podium_wire::image::MAX_IMAGE_BYTES;

impl Source {
    /// Returns the path of a file, or the place of a component elsewhere as one, for messages.
    #[must_use]
    pub fn path(&self) -> Cow<'_, Path> {
        match self {
            Self::File(path) => path.into(),
            elsewhere @ (Self::Inline(_) | Self::ConfigMap { .. } | Self::Oci { .. }) => {
                PathBuf::from(elsewhere.to_string()).into()
            }
        }
    }

    /// Returns the path of a file.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Inline(_) | Self::ConfigMap { .. } | Self::Oci { .. } => None,
        }
    }
}

impl fmt::Display for Source {
    /// Writes the path of a file as part of one line, or the place of a component elsewhere.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(_) => formatter.write_str("spec.source.script.inline"),
            Self::File(path) => formatter.write_str(&text::path(path)),
            Self::ConfigMap { namespace, name, key, .. } => {
                write!(formatter, "configMap {namespace}/{name} {}", text::name(key))
            }
            Self::Oci { image, .. } => formatter.write_str(&text::bounded(image, MAX_SHOWN_BYTES)),
        }
    }
}

/// The Pods and the changes that wake a plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchSpec {
    /// Labels of the Pods on which it runs.
    pub selector: LabelSelector,
    /// A change of one of these wakes the plugin; a change of the lifecycle always does.
    pub sections: SectionSet,
    /// The interval after which the plugin runs again on every matching Pod.
    pub resync: Option<Duration>,
    /// The groups of these Pods that it runs for; `None` to run for each Pod.
    pub related: Option<Related>,
}

/// The order of plugins that one change wakes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Before all plugins of the other phases.
    Before,
    /// Between the other phases.
    #[default]
    Main,
    /// After all plugins of the other phases.
    After,
}

/// Limits on the size of a component and on its compilation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LimitClass {
    /// 8 MiB, 16 core instances, 10 s of processor time.
    #[default]
    Native,
    /// 32 MiB, 64 core instances, 60 s: for guests that contain an interpreter.
    Interpreter,
}

impl LimitClass {
    /// Returns the name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Interpreter => "interpreter",
        }
    }
}

/// The limits of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The class of its component.
    pub class: LimitClass,
    /// Bytes of linear memory, over all memories of the run.
    pub memory_bytes: usize,
    /// Processor time; enforced by fuel, and by the epoch as a second bound.
    pub cpu: Duration,
    /// Time from start to end, including waits, except while the host sends writes.
    pub wall: Duration,
    /// Calls of the contract and of WASI.
    pub host_calls: u32,
    /// Writes and Events together.
    pub writes: u32,
    /// Bytes of log lines, with a fixed amount for each line.
    pub log_bytes: usize,
    /// Runs that one instance may perform. With 1 each run has its own instance.
    pub reuse: u32,
    /// The requests per second of all runs of the plugin together.
    pub requests: RequestRates,
}

/// Requests to the API server per second. For ten seconds' worth of them at once there need not be a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestRates {
    /// Patches, deletions, evictions and applied objects.
    pub writes: u32,
    /// Reads of Pods that plugins ask for.
    pub live_reads: u32,
    /// Events that are created or counted.
    pub events: u32,
}

impl RequestRates {
    /// For a plugin whose configuration does not say otherwise. Kubernetes' clients have 20 and 30 at once by default,
    /// its scheduler 50 and 100.
    pub const OF_PLUGIN: Self = Self { writes: 50, live_reads: 50, events: 20 };
    /// For all plugins of a tenant, without a policy: those of four plugins.
    pub const OF_TENANT: Self = Self { writes: 200, live_reads: 200, events: 80 };
    /// The seconds whose requests may be sent at once.
    pub const BURST_SECONDS: u32 = 10;

    /// Returns true if no rate is lower than the `other`'s.
    #[must_use]
    pub const fn covers(&self, other: &Self) -> bool {
        let Self { writes, live_reads, events } = self;
        *writes >= other.writes && *live_reads >= other.live_reads && *events >= other.events
    }
}

impl Limits {
    /// The most that a configuration may request, and therefore the address space that an engine reserves.
    pub const MOST_MEMORY_BYTES: usize = 256 << 20;

    /// Returns true if no limit is lower than the `other`'s.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let Self { class, memory_bytes, cpu, wall, host_calls, writes, log_bytes, reuse, requests } = self;
        (*class == other.class || *class == LimitClass::Interpreter)
            && *memory_bytes >= other.memory_bytes
            && *cpu >= other.cpu
            && *wall >= other.wall
            && *host_calls >= other.host_calls
            && *writes >= other.writes
            && *log_bytes >= other.log_bytes
            && *reuse >= other.reuse
            && requests.covers(&other.requests)
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
            reuse: 1,
            requests: RequestRates::OF_PLUGIN,
        }
    }
}
