//! The release of Pods that are being deleted and that a plugin holds although its object stays: in a namespace that is
//! being deleted, because Kubernetes deletes Pods before plugin objects and waits for them; elsewhere only if the
//! plugin's spec says so.
//!
//! Times begin when the host has seen that the Pod is being deleted, and its grace period is over; a restart begins
//! them again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use http::Request;
use parking_lot::Mutex;
use podium_life::{Plugin, Shown};
use podium_pods::pod::PodView;
use podium_vocabulary::{PluginId, PluginSpec, PodKey, PodQuery, text};
use tokio::time::Instant;

use super::{Cleanup, Line, Progress, owned};
use crate::{
    app::{life::Host, operator::stale},
    objects::{Earlier, Released, Removing},
};

/// How often the Pods that are held are looked for, which takes about a microsecond for each Pod in the namespaces of
/// plugins with finalizers.
pub(super) const LOOK: Duration = Duration::from_secs(10);
/// After so long it is asked whether the namespace of a Pod that is held is being deleted, and then again.
const ASK: Duration = Duration::from_secs(30);
/// In a namespace that is being deleted, the time of a plugin that does not run, and of one that does.
const WITHOUT_RUNS: Duration = Duration::from_secs(60);
const WITH_RUNS: Duration = Duration::from_secs(600);
/// The longest rest of a grace period that is waited for.
const LONGEST_GRACE: Duration = Duration::from_secs(24 * 3_600);
/// A release is shown for so long after the last Pod.
const SHOWN: Duration = Duration::from_secs(600);

/// By plugin, the latest release and the time until which it is shown.
pub(in crate::app) type Releases = Arc<Mutex<BTreeMap<PluginId, (Released, Instant)>>>;

/// Pods with a finalizer of a plugin, and since when the host has known that they are being deleted.
type Held = BTreeMap<PodKey, (String, Instant)>;

/// The Pods that are being deleted and held by plugins whose objects stay, and their namespaces.
#[derive(Default)]
pub(in crate::app) struct Holding {
    pods: Mutex<BTreeMap<PluginId, Held>>,
    namespaces: Mutex<BTreeMap<String, (Namespace, Instant)>>,
}

/// The answer about a namespace.
#[derive(Debug, Clone)]
enum Namespace {
    Stays,
    Ends,
    /// The host has no right to see it. Escaped.
    Forbidden(String),
    Unknown,
}

impl Holding {
    /// Returns true if a Pod is held by the plugin for so long that it may have to be released.
    pub(super) fn is_long(&self, id: &PluginId) -> bool {
        self.pods.lock().get(id).is_some_and(|pods| pods.values().any(|(_, since)| since.elapsed() >= ASK))
    }
}

impl Cleanup {
    /// Finds the Pods that are held.
    pub(super) fn look(&self) {
        let now = Instant::now();
        self.releases.lock().retain(|_, (_, until)| now < *until);
        self.holding.namespaces.lock().retain(|_, (_, asked)| now < *asked + ASK);
        // Without a current cache nothing is known of Pods.
        if stale(&self.dispatch.reader).is_some() {
            return;
        }
        let desired = self.known.lock().desired.clone();
        let holds = &self.driver.components.holds;
        let plugins: Vec<_> = desired.staying().filter(|(object, _)| holds.has(&object.id, &object.uid)).collect();
        let all: BTreeSet<_> = plugins.iter().map(|(_, spec)| spec.id.namespace.clone()).collect();
        let namespaces = if all.contains(&None) { BTreeSet::from([None]) } else { all };
        let view = self.dispatch.reader.snapshot();
        let query = |namespace| PodQuery { namespace, ..PodQuery::default() };
        let pods = namespaces.into_iter().flat_map(|namespace| view.find(&query(namespace), usize::MAX - 1, None).pods);
        let now_millis = i64::try_from(self.dispatch.clock.now_millis()).unwrap_or(i64::MAX);
        let mut deleting: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (pod, lifecycle) in pods.filter_map(|pod| Some((pod.key.clone(), pod.lifecycle().ok()?))) {
            if let Some(at) = lifecycle.deletion_timestamp.filter(|_| !lifecycle.finalizers.is_empty()) {
                let left = u64::try_from(at.0.saturating_sub(now_millis)).unwrap_or_default();
                let left = Duration::from_millis(left).min(LONGEST_GRACE);
                deleting.entry(pod.namespace.clone()).or_default().push((pod, lifecycle.finalizers, left));
            }
        }
        let before = self.holding.pods.lock().clone();
        let mut held: BTreeMap<PluginId, Held> = BTreeMap::new();
        for (_, spec) in plugins {
            let of_namespace = match &spec.id.namespace {
                Some(namespace) => deleting.get_key_value(namespace).into_iter().collect::<Vec<_>>(),
                None => deleting.iter().collect(),
            };
            let earlier = if of_namespace.is_empty() { Earlier::default() } else { desired.before(&spec.id) };
            for (pod, finalizers, left) in of_namespace.into_iter().flat_map(|(_, pods)| pods) {
                if let Some(name) = finalizers.iter().find(|name| owned(&spec, &earlier, pod, name)) {
                    let known = before.get(&spec.id).and_then(|pods| pods.get(pod));
                    let since = known.map_or(now, |(_, since)| (*since).min(now));
                    let since = if left.is_zero() { since } else { now + *left };
                    held.entry(spec.id.clone()).or_default().insert(pod.clone(), (name.clone(), since));
                }
            }
        }
        *self.holding.pods.lock() = held;
    }

    /// Writes to some Pods that were held for too long. Returns the number of those without the finalizers since.
    pub(super) async fn free(&self, line: &Line, object: &Removing, progress: &mut Progress) -> usize {
        let now = Instant::now();
        let excluded = self.driver.rules().policy.as_ref().and_then(|policy| policy.excluded(&line.tenant.0));
        let Some(spec) = object.spec.as_deref().filter(|_| excluded.is_none()) else { return 0 };
        if now >= progress.scan {
            progress.scan = now + LOOK;
            let due = self.due(spec).await;
            progress.found(due);
        }
        if progress.left.is_empty() || !progress.wait.is_over() || stale(&self.dispatch.reader).is_some() {
            return 0;
        }
        let pods: Vec<_> = progress.left.iter().take(progress.batch).map(|(pod, _)| pod.namespace.clone()).collect();
        let (done, _) = self.remove_some(line, spec, progress).await;
        if done > 0 {
            let ends = pods.iter().any(|namespace| {
                matches!(self.holding.namespaces.lock().get(&**namespace), Some((Namespace::Ends, _)))
            });
            let released = if ends { Released::NamespaceEnds } else { Released::AfterSeconds };
            let (plugin, reason) = (&spec.id, released.reason());
            tracing::warn!(%plugin, pods = done, reason, "finalizers removed from pods without a run of the plugin");
            self.show_release(spec, released);
        }
        done
    }

    /// Returns the Pods whose time is over.
    async fn due(&self, spec: &PluginSpec) -> BTreeMap<PodKey, String> {
        let held = self.holding.pods.lock().get(&spec.id).cloned().unwrap_or_default();
        let mut due = BTreeMap::new();
        let mut forbidden = None;
        let mut limits: BTreeMap<Arc<str>, Option<Duration>> = BTreeMap::new();
        for (pod, (name, since)) in held {
            let waited = since.elapsed();
            let now = self.dispatch.reader.snapshot().by_uid(&pod.uid).and_then(|pod| pod.lifecycle().ok());
            if waited < ASK || !now.is_some_and(|now| now.finalizers.contains(&name)) {
                continue;
            }
            let of_namespace = match limits.get(&pod.namespace) {
                Some(limit) => *limit,
                None => {
                    let limit = match self.namespace(&pod.namespace).await {
                        Namespace::Ends if self.runs(spec, &pod.namespace) => Some(WITH_RUNS),
                        Namespace::Ends => Some(WITHOUT_RUNS),
                        Namespace::Forbidden(error) => {
                            forbidden.get_or_insert(error);
                            None
                        }
                        Namespace::Stays | Namespace::Unknown => None,
                    };
                    limits.insert(pod.namespace.clone(), limit);
                    limit
                }
            };
            if of_namespace.into_iter().chain(spec.release_after).any(|limit| waited >= limit) {
                due.insert(pod, name);
            }
        }
        // With a time in the spec the Pods are released anyway.
        if let Some(error) = forbidden.filter(|_| spec.release_after.is_none()) {
            let released = Released::NamespaceForbidden(format!(
                "pods that are being deleted wait for finalizers of the plugin, and the host may not see whether their \
                 namespace is being deleted: {error}; grant its account the verb get on namespaces, or delete this \
                 object, which releases the pods: {}",
                delete(&spec.id)
            ));
            self.show_release(spec, released);
        }
        due
    }

    /// Returns whether a namespace is being deleted, as the API server has answered within [`ASK`].
    async fn namespace(&self, name: &str) -> Namespace {
        let known = self.holding.namespaces.lock().get(name).cloned();
        if let Some((namespace, _)) = known.filter(|(_, asked)| asked.elapsed() < ASK) {
            return namespace;
        }
        let Ok(request) = Request::get(format!("/api/v1/namespaces/{name}")).body(Vec::new()) else {
            return Namespace::Unknown;
        };
        let namespace = match self.api.json(request).await {
            Ok(found) if found["metadata"]["deletionTimestamp"].is_string() => Namespace::Ends,
            Ok(_) => Namespace::Stays,
            Err(error) if error.code() == Some(403) => Namespace::Forbidden(text::line(&error.to_string())),
            Err(_) => Namespace::Unknown,
        };
        self.holding.namespaces.lock().insert(name.to_owned(), (namespace.clone(), Instant::now()));
        namespace
    }

    /// Returns true if runs of a version may still remove finalizers in the namespace.
    fn runs(&self, spec: &PluginSpec, namespace: &str) -> bool {
        // Also a version before that of the spec.
        let runs = |plugin: &Plugin<Host>| plugin.running().is_some() || matches!(plugin.shown(), Shown::Loading);
        self.driver.read(&spec.id, runs).unwrap_or_default() && !(self.is_forbidden)(&spec.id, namespace)
    }

    /// Records a release for the status.
    fn show_release(&self, spec: &PluginSpec, released: Released) {
        self.releases.lock().insert(spec.id.clone(), (released, Instant::now() + SHOWN));
    }
}

/// Returns the command that deletes a plugin's object.
fn delete(PluginId { namespace, name }: &PluginId) -> String {
    match namespace {
        Some(namespace) => format!("kubectl --namespace {namespace} delete reconcileplugin {name}"),
        None => format!("kubectl delete clusterreconcileplugin {name}"),
    }
}
