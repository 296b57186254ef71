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

use futures::{StreamExt, stream};
use http::Request;
use parking_lot::Mutex;
use podium_life::{Plugin, Shown};
use podium_pods::pod::PodView;
use podium_vocabulary::{PluginId, PluginSpec, PodKey, PodQuery, WriteResult, text};
use podium_writeback::manager_name;
use tokio::{task::yield_now, time::Instant};

use super::{CONCURRENT, Cleanup, Line, Progress};
use crate::{
    app::{life::Host, operator::stale},
    objects::{Desired, Object, OnPods, Released, Removing},
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

type Held = BTreeMap<PodKey, Hold>;
/// Pods that are being deleted, with their finalizers and the rests of their grace periods.
type Deleting = Vec<(PodKey, Vec<String>, Duration)>;

/// A finalizer of a plugin on a Pod that is being deleted.
#[derive(Debug, Clone)]
struct Hold {
    name: String,
    /// Since when the host has known that the Pod is being deleted.
    since: Instant,
    /// Since when no run of a version may remove the finalizer, at every look.
    idle: Option<Instant>,
}

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
    /// Begins all times again.
    pub(super) fn forget(&self) {
        self.pods.lock().clear();
    }

    /// Returns true if a Pod is held by the plugin for so long that it may have to be released.
    pub(super) fn is_long(&self, id: &PluginId) -> bool {
        self.pods.lock().get(id).is_some_and(|pods| pods.values().any(|hold| hold.since.elapsed() >= ASK))
    }
}

impl Cleanup {
    /// Finds the Pods that are held, of one namespace after the other.
    pub(super) async fn look(&self) {
        let now = Instant::now();
        self.releases.lock().retain(|_, (_, until)| now < *until);
        self.holding.namespaces.lock().retain(|_, (_, asked)| now < *asked + ASK);
        // Without a current cache nothing is known of Pods.
        if stale(&self.dispatch.reader).is_some() {
            return;
        }
        let owned = self.driver.owns();
        let desired = self.known.lock().desired.clone();
        let before = self.holding.pods.lock().clone();
        let forbidden = (self.forbidden)();
        let mut held: BTreeMap<PluginId, Held> = BTreeMap::new();
        for (namespace, pods) in self.deleting(&desired) {
            // Others have their turns between the namespaces.
            yield_now().await;
            let mut on_pods = OnPods::<_>::default();
            for (at, (_, finalizers, _)) in pods.iter().enumerate() {
                finalizers.iter().for_each(|name| on_pods.add(name, at));
            }
            for (object, spec) in desired.in_order(&namespace, |id| self.has_version(id)) {
                let claimed = on_pods.claim(&spec);
                // Times begin again when this replica runs the plugin.
                if claimed.is_empty()
                    || !owned.has(&spec.id.tenant())
                    || !object.is_some_and(|object| self.holds(object))
                {
                    continue;
                }
                let refused = forbidden.get(&manager_name(&spec.id));
                let is_idle = !self.runs(&spec.id) || refused.is_some_and(|of| of.contains(&*namespace));
                let of_plugin = held.entry(spec.id.clone()).or_default();
                for (name, at) in claimed.iter().flat_map(|(name, all)| all.iter().map(move |at| (name, *at))) {
                    let Some((pod, _, left)) = pods.get(at) else { continue };
                    let known = before.get(&spec.id).and_then(|pods| pods.get(pod));
                    let since = known.map_or(now, |hold| hold.since.min(now));
                    let since = if left.is_zero() { since } else { now + *left };
                    let idle = is_idle.then(|| known.and_then(|hold| hold.idle).unwrap_or(now));
                    let hold = Hold { name: name.clone(), since, idle };
                    of_plugin.entry(pod.clone()).or_insert(hold);
                }
            }
        }
        *self.holding.pods.lock() = held;
    }

    /// Returns the Pods with finalizers that are being deleted and that plugins see whose objects stay, by namespace.
    fn deleting(&self, desired: &Desired) -> BTreeMap<Arc<str>, Deleting> {
        let plugins = desired.staying().filter(|(object, _)| self.holds(object));
        let all: BTreeSet<_> = plugins.map(|(_, spec)| spec.id.namespace.clone()).collect();
        let namespaces = if all.contains(&None) { BTreeSet::from([None]) } else { all };
        let view = self.dispatch.reader.snapshot();
        let query = |namespace| PodQuery { namespace, ..PodQuery::default() };
        let pods = namespaces.into_iter().flat_map(|namespace| view.find(&query(namespace), usize::MAX - 1, None).pods);
        let now_millis = i64::try_from(self.dispatch.clock.now_millis()).unwrap_or(i64::MAX);
        let mut deleting: BTreeMap<_, Deleting> = BTreeMap::new();
        for (pod, lifecycle) in pods.filter_map(|pod| Some((pod.key.clone(), pod.lifecycle().ok()?))) {
            if let Some(at) = lifecycle.deletion_timestamp.filter(|_| !lifecycle.finalizers.is_empty()) {
                let left = u64::try_from(at.0.saturating_sub(now_millis)).unwrap_or_default();
                let left = Duration::from_millis(left).min(LONGEST_GRACE);
                deleting.entry(pod.namespace.clone()).or_default().push((pod, lifecycle.finalizers, left));
            }
        }
        deleting
    }

    /// Returns true if an object stays, and the host has let its plugin hold finalizers.
    fn holds(&self, object: &Object) -> bool {
        !object.deleting && self.driver.components.holds.has(&object.id, &object.uid)
    }

    /// Writes to some Pods that were held for too long. Returns the number of those without the finalizers since.
    pub(super) async fn free(&self, line: &Line, object: &Removing, progress: &mut Progress) -> usize {
        let now = Instant::now();
        let excluded = self.driver.rules().policy.as_ref().and_then(|policy| policy.excluded(&line.tenant.0));
        let Some(spec) = object.spec.as_deref().filter(|_| excluded.is_none()) else { return 0 };
        if now >= progress.scan {
            progress.scan = now + LOOK;
            let due = self.due(spec, &mut progress.ending).await;
            progress.found(due);
        }
        if progress.left.is_empty() || !progress.wait.is_over() || stale(&self.dispatch.reader).is_some() {
            return 0;
        }
        let (done, _) = self.remove_some(line, object, spec, progress).await;
        // One that was gone, or had lost the finalizer, was not released.
        let freed: Vec<_> = done.iter().filter(|(_, result)| *result == WriteResult::Applied).collect();
        if !freed.is_empty() {
            let ends = freed.iter().any(|(pod, _)| progress.ending.contains(pod));
            let released = if ends { Released::NamespaceEnds } else { Released::AfterSeconds };
            let plugin = &spec.id;
            let pods = freed.len();
            let reason = released.reason();
            tracing::warn!(%plugin, pods, reason, "finalizers removed from pods without a run of the plugin");
            self.show_release(spec, released);
        }
        done.len()
    }

    /// Returns the Pods whose time is over. `ending` are those of them whose time is that of their namespace.
    async fn due(&self, spec: &PluginSpec, ending: &mut BTreeSet<PodKey>) -> BTreeMap<PodKey, String> {
        let now = Instant::now();
        let mut held = self.holding.pods.lock().get(&spec.id).cloned().unwrap_or_default();
        let snapshot = self.dispatch.reader.snapshot();
        held.retain(|pod, Hold { name, since, .. }| {
            let lifecycle = snapshot.by_uid(&pod.uid).and_then(|pod| pod.lifecycle().ok());
            now >= *since + ASK && lifecycle.is_some_and(|lifecycle| lifecycle.finalizers.contains(name))
        });
        let asked: BTreeSet<_> = held.keys().map(|pod| pod.namespace.clone()).collect();
        let answers = stream::iter(asked).map(async |namespace| (namespace.clone(), self.namespace(&namespace).await));
        let answers: BTreeMap<_, _> = answers.buffer_unordered(CONCURRENT).collect().await;
        let is_over = |since: Instant, limit: Duration| now >= since + limit;
        let mut due = BTreeMap::new();
        ending.clear();
        for (pod, Hold { name, since, idle }) in held {
            let is_idle = is_over(since, WITHOUT_RUNS) && idle.is_some_and(|idle| is_over(idle, WITHOUT_RUNS));
            let ends = matches!(answers[&pod.namespace], Namespace::Ends) && (is_idle || is_over(since, WITH_RUNS));
            if ends {
                ending.insert(pod.clone());
            }
            if ends || spec.release_after.is_some_and(|limit| is_over(since, limit)) {
                due.insert(pod, name);
            }
        }
        let forbidden = answers.into_values().find_map(|answer| match answer {
            Namespace::Forbidden(error) => Some(error),
            Namespace::Stays | Namespace::Ends | Namespace::Unknown => None,
        });
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

    /// Returns true if a version runs, also one before that of the spec, or may soon.
    fn runs(&self, id: &PluginId) -> bool {
        let loads = |plugin: &Plugin<Host>| matches!(plugin.shown(), Shown::Loading);
        self.has_version(id) || self.driver.read(id, loads).unwrap_or_default()
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
