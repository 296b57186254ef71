//! The response of `/debug/reconcile-status`: the runs under way, the keys that wait, and everything that is slowed.

use serde::{Deserialize, Serialize};

/// The most entries of one list. With texts of at most [`TEXT`] bytes a response is shorter than 2 MiB.
pub const ENTRIES: usize = 100;
/// The most bytes of a text in the response.
pub const TEXT: usize = 512;

/// The response. Texts are escaped and bounded by the caller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReconcileStatus {
    /// The Pods that runs read.
    pub cache: CacheSize,
    /// Runs that hold a worker, the longest first.
    pub active_runs: Listed<ActiveRun>,
    /// Tenants that have a key or a run, those with most stale keys first.
    pub tenants: Listed<Tenant>,
    /// Pods that a plugin changed too often, those that wait longest first.
    pub loops: Listed<Loop>,
    /// Kinds of writes that are not sent because RBAC refused one, those that wait longest first.
    pub closed_by_forbidden: Listed<Closed>,
    /// Requests that are not sent because the API server answered Retry-After, or refused the host's credentials, those
    /// that wait longest first.
    pub held_by_retry_after: Listed<Held>,
    /// The latest run of each plugin that trapped or exceeded a limit, the latest first.
    pub last_panics: Listed<Panic>,
}

/// A list of bounded length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed<T> {
    /// Entries, with those that are left out.
    pub total: usize,
    /// Entries that are not in `items`, because there are too many.
    pub left_out: usize,
    /// At most 100.
    pub items: Vec<T>,
}

/// The cache.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CacheSize {
    /// Pods in the cache.
    pub pods: usize,
    /// The newest observed revision.
    pub revision: u64,
    /// Why the cache may lag behind; `None` if it does not.
    pub stale: Option<String>,
}

/// A run under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActiveRun {
    /// The plugin.
    pub plugin: String,
    /// Namespace and name of the Pod.
    pub pod: String,
    /// The time since the run started.
    pub millis: u64,
}

/// The keys and runs of one tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tenant {
    /// A namespace, or `cluster/NAME` for a `ClusterReconcilePlugin`.
    pub tenant: String,
    /// Runs that hold a worker.
    pub runs: usize,
    /// Runs that have ended and whose writes are being sent.
    pub deliveries: usize,
    /// Keys that are due.
    pub waiting: usize,
    /// Those of them that have been due for more than 30 s.
    pub stale: usize,
    /// Those of them that wait because the requests per second are used up.
    pub throttled: usize,
    /// The processor time by which the tenant is ahead of the one whose turn it is.
    pub debt_millis: u64,
}

/// A Pod whose changes by a plugin wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Loop {
    /// The plugin that changed the Pod.
    pub plugin: String,
    /// Namespace and name of the Pod.
    pub pod: String,
    /// The kind and the name of the field that changed most often.
    pub field: String,
    /// The sender of the field's other values.
    pub counterpart: String,
    /// How long the next change waits; 0 if the plugin has not sent one since the wait was over.
    pub wait_millis: u64,
}

/// Requests that are not sent for a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// Which requests.
    pub scope: String,
    /// The account, if they are those of one other than the host's own.
    pub account: Option<String>,
    /// The plugin, if they are its live reads.
    pub plugin: Option<String>,
    /// How long the next one waits; 0 if it is sent as a probe.
    pub wait_millis: u64,
}

/// Writes that are not sent because the plugin's account has no right to them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Closed {
    /// The plugin.
    pub plugin: String,
    /// The account; `None` for the host's own.
    pub account: Option<String>,
    /// The verb of RBAC.
    pub verb: String,
    /// The resource of RBAC.
    pub resource: String,
    /// The namespace of the objects.
    pub namespace: Option<String>,
    /// The only object that waits, if writes to others are permitted.
    pub only: Option<String>,
    /// The time until the next probe; 0 if there was no write since then.
    pub wait_millis: u64,
}

/// A run that trapped or exceeded a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Panic {
    /// The plugin.
    pub plugin: String,
    /// The reason, as in `podium_run_failures_total`.
    pub reason: String,
    /// The message of the failure.
    pub message: String,
    /// The time since the run ended.
    pub millis_ago: u64,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self { total: 0, left_out: 0, items: Vec::new() }
    }
}

impl<T> Listed<T> {
    /// Returns the first entries, in order of `key`. `more` is the number of entries that are not in `items`.
    #[must_use]
    pub fn new<K: Ord>(mut items: Vec<T>, more: usize, key: impl FnMut(&T) -> K) -> Self {
        let total = items.len() + more;
        items.sort_by_cached_key(key);
        items.truncate(ENTRIES);
        Self { total, left_out: total - items.len(), items }
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use super::*;

    #[test]
    fn a_response_of_the_longest_lists_is_shorter_than_2_mib() {
        // In JSON a quotation mark takes two bytes.
        let text = || "\"".repeat(TEXT);
        let some = || Some(text());
        let millis = u64::MAX;
        let runs = vec![ActiveRun { plugin: text(), pod: text(), millis }; 1_000];
        let tenant = |stale| {
            let [runs, deliveries, waiting, throttled] = [usize::MAX; 4];
            Tenant { tenant: text(), runs, deliveries, waiting, stale, throttled, debt_millis: millis }
        };
        let loops = Loop { plugin: text(), pod: text(), field: text(), counterpart: text(), wait_millis: millis };
        let closed = Closed {
            plugin: text(),
            account: some(),
            verb: text(),
            resource: text(),
            namespace: some(),
            only: some(),
            wait_millis: millis,
        };
        let held = Held { scope: text(), account: some(), plugin: some(), wait_millis: millis };
        let panic = Panic { plugin: text(), reason: text(), message: text(), millis_ago: millis };
        let status = ReconcileStatus {
            cache: CacheSize { pods: usize::MAX, revision: millis, stale: some() },
            active_runs: Listed::new(runs, 5, |_| 0),
            tenants: Listed::new((0..1_000).map(tenant).collect(), 0, |tenant| Reverse(tenant.stale)),
            loops: Listed::new(vec![loops; 1_000], 0, |_| 0),
            closed_by_forbidden: Listed::new(vec![closed; 1_000], 0, |_| 0),
            held_by_retry_after: Listed::new(vec![held; 1_000], 0, |_| 0),
            last_panics: Listed::new(vec![panic; 1_000], 0, |_| 0),
        };
        assert_eq!((status.active_runs.total, status.active_runs.left_out), (1_005, 905));
        assert_eq!(status.tenants.items.first().map(|tenant| tenant.stale), Some(999));
        let text = serde_json::to_string_pretty(&status).unwrap();
        assert!(text.len() < 2 << 20, "{} bytes", text.len());
    }
}
