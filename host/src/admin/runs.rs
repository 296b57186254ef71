//! The responses of `/debug/pods/{namespace}/{name}`, `/debug/plugins/{name}` and `/debug/plugins`: the latest runs,
//! why a plugin does not run on a Pod now, and the use of each plugin. Texts are escaped and bounded by whoever fills
//! them.

use serde::{Deserialize, Serialize};

use super::Listed;

/// A Pod, and the plugins that may concern it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRuns {
    /// Namespace and name.
    pub pod: String,
    /// The uid; `None` if the cache has no Pod of this name.
    pub uid: Option<String>,
    /// The revision in the cache.
    pub revision: Option<u64>,
    /// Why the cache may lag behind; `None` if it does not.
    pub stale: Option<String>,
    /// The plugins of the Pod's namespace and of the cluster, or the one that was asked for.
    pub plugins: Listed<PluginOnPod>,
}

/// One plugin and one Pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginOnPod {
    /// The plugin.
    pub plugin: String,
    /// `loading`, `loaded`, `standby`, `suspended`, `waiting` or `refused`; `None` for a plugin of another namespace.
    pub state: Option<String>,
    /// Why the plugin does not run on the Pod now, or that it does; at least one.
    pub reasons: Vec<WhyNot>,
    /// The latest runs on the Pod, the latest first.
    pub runs: Vec<Run>,
}

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WhyNot {
    /// A word for programs.
    pub reason: String,
    /// The reason for people.
    pub message: String,
    /// For how long it will be in the way, if that is known.
    pub wait_millis: Option<u64>,
}

/// The latest runs of one plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginRuns {
    /// The plugin.
    pub plugin: String,
    /// As in [`PluginOnPod`], never `None`.
    pub state: String,
    /// Why the latest attempt to load the plugin failed.
    pub reason: Option<String>,
    /// The latest first.
    pub runs: Vec<Run>,
}

/// The use of all plugins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginsUsed {
    /// Pods in the cache.
    pub pods: usize,
    /// Why the cache may lag behind; `None` if it does not.
    pub stale: Option<String>,
    /// All configured plugins, by name.
    pub plugins: Vec<PluginUsed>,
}

/// The use of one plugin. Counters begin at 0 when the plugin is loaded for the first time since the host started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginUsed {
    /// The plugin.
    pub plugin: String,
    /// As in [`PluginRuns`].
    pub state: String,
    /// Counter: runs that have ended.
    pub runs: u64,
    /// Counter: those of them that failed.
    pub failed: u64,
    /// Counter: writes that changed an object.
    pub writes: u64,
    /// Counter: requests to the API server.
    pub requests: u64,
    /// Counter: processor time.
    pub cpu_micros: u64,
    /// Runs under way now.
    pub running: usize,
    /// Pods that wait for a run now.
    pub waiting: usize,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Grows with each run of the host.
    pub number: u64,
    /// The plugin.
    pub plugin: String,
    /// Namespace and name of the Pod.
    pub pod: String,
    /// The uid of the Pod.
    pub uid: String,
    /// The group that the plugin ran for, such as `workload/Deployment/web`; `None` for one that runs for each Pod.
    #[serde(default)]
    pub group: Option<String>,
    /// The Pod was gone.
    pub deleted: bool,
    /// Changed sections, and `added`, `deleted`, `load`, `resync`, `retry`, `requeue`,
    /// `writes`.
    pub causes: Vec<String>,
    /// The plugin whose write made the state that the run read, if its record is kept.
    pub written_by: Option<String>,
    /// 1 for a first attempt, and one more for each failure in a row.
    pub attempt: u32,
    /// The time since the run ended.
    pub millis_ago: u64,
    /// The time from the oldest event that the run answers to its start.
    pub waited_micros: u64,
    /// The time from the start to the response to the last write.
    pub took_micros: u64,
    /// Processor time.
    pub cpu_micros: u64,
    /// Instructions of the guest.
    pub fuel: u64,
    /// Calls of the host's functions: reads, writes and others.
    pub host_calls: u32,
    /// `settled`, `stop`, `requeueAfter`, `unsettled`, or the reason of a failure.
    pub result: String,
    /// When the run asked for the next one.
    pub requeue_after_millis: Option<u64>,
    /// The message of a failure.
    pub message: Option<String>,
    /// At most 8 of the writes.
    pub writes: Vec<RunWrite>,
    /// Writes that `writes` does not list.
    pub writes_unlisted: u32,
}

/// One write of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunWrite {
    /// `set label team=web on shop/cart`.
    pub write: String,
    /// As in `podium_writes_total`.
    pub result: String,
    /// The message of the API server, if there is one.
    pub message: Option<String>,
}
