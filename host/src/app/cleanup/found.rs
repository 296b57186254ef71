//! The Pods with finalizers of plugins whose objects are gone or are being deleted.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use podium_pods::pod::PodView;
use podium_vocabulary::{PluginId, PluginSpec, PodKey, PodQuery};
use tokio::time::Instant;

use super::{Cleanup, INTERVAL, SCAN};
use crate::objects::{Earlier, Object, OnPods, Removing};

/// A look at the Pods of a namespace, or of all.
struct Found {
    at: Instant,
    on_pods: OnPods<PodKey>,
    /// Pods may have had others, which could not be decoded.
    undecoded: bool,
    /// The finalizers of the plugins that stay when an object is gone.
    beside_gone: Earlier,
    /// The finalizers that objects that are being deleted may have held, by plugin and uid.
    removing: BTreeMap<(PluginId, String), Held>,
}

/// Pods with a finalizer that a plugin may hold and no plugin that keeps it, and the first of these.
type Held = BTreeMap<PodKey, String>;

/// The looks at the Pods of a namespace, or of all, which those share who work on its objects.
pub(super) struct Looks {
    next: Mutex<Instant>,
    latest: tokio::sync::Mutex<Option<Arc<Found>>>,
}

/// The part of a look that is about one object.
pub(super) struct OfObject {
    pub(super) at: Instant,
    /// Without those that were removed since.
    pub(super) held: Held,
    /// No Pod had a finalizer.
    pub(super) is_none: bool,
    pub(super) undecoded: bool,
}

impl Default for Looks {
    fn default() -> Self {
        Self { next: Mutex::new(Instant::now()), latest: tokio::sync::Mutex::default() }
    }
}

impl Looks {
    /// Returns the time of the next look, which is the same for all.
    pub(super) fn next(&self) -> Instant {
        let now = Instant::now();
        let mut next = self.next.lock();
        if now >= *next {
            *next = now + SCAN;
        }
        *next
    }
}

impl Cleanup {
    /// Finds the Pods that the plugin of an object holds. Returns `None` if the object has changed.
    pub(super) async fn held(&self, object: &Removing, looks: &Looks) -> Option<OfObject> {
        let Removing { id, uid, position, spec } = object;
        let Some(spec) = spec else {
            return Some(OfObject { at: Instant::now(), held: Held::new(), is_none: true, undecoded: false });
        };
        let found = self.found(&id.namespace, looks).await;
        let mut held = match position {
            Some(_) => found.removing.get(&(id.clone(), uid.clone()))?.clone(),
            None => held(&found.on_pods, spec, &found.beside_gone),
        };
        let is_none = held.is_empty();
        let snapshot = self.dispatch.reader.snapshot();
        held.retain(|pod, name| {
            let lifecycle = snapshot.by_uid(&pod.uid).and_then(|pod| pod.lifecycle().ok());
            lifecycle.is_some_and(|lifecycle| lifecycle.finalizers.contains(name))
        });
        Some(OfObject { at: found.at, held, is_none, undecoded: found.undecoded })
    }

    /// Returns a look of the latest [`INTERVAL`].
    async fn found(&self, namespace: &Option<Arc<str>>, looks: &Looks) -> Arc<Found> {
        // Held during a look, which waits for nothing: the others wait for its result, and their threads do not.
        let mut latest = looks.latest.lock().await;
        if let Some(found) = latest.as_ref().filter(|found| found.at.elapsed() < INTERVAL) {
            return found.clone();
        }
        let found = Arc::new(self.find(namespace));
        *latest = Some(found.clone());
        found
    }

    /// Finds the finalizers of all Pods of a namespace, or of all.
    fn find(&self, namespace: &Option<Arc<str>>) -> Found {
        let at = Instant::now();
        let is_undecoded = || (self.undecoded)(namespace.as_deref());
        let was_undecoded = is_undecoded();
        let query = PodQuery { namespace: namespace.clone(), ..PodQuery::default() };
        let mut on_pods = OnPods::default();
        for pod in self.dispatch.reader.snapshot().find(&query, usize::MAX - 1, None).pods {
            // A Pod that cannot be decoded has no finalizer that could be removed by name.
            let finalizers = pod.lifecycle().map(|lifecycle| lifecycle.finalizers).unwrap_or_default();
            finalizers.iter().for_each(|name| on_pods.add(name, pod.key.clone()));
        }
        let undecoded = was_undecoded || is_undecoded();
        let desired = self.known.lock().desired.clone();
        let holds = |other: &Object| self.driver.components.holds.has(&other.id, &other.uid);
        let beside_gone = desired.beside_gone(namespace, holds);
        let mut removing = BTreeMap::new();
        desired.removing_in_order(
            namespace,
            |id| self.has_version(id),
            |object, spec, kept| {
                removing.insert((object.id.clone(), object.uid.clone()), held(&on_pods, spec, kept));
            },
        );
        Found { at, on_pods, undecoded, beside_gone, removing }
    }
}

fn held(on_pods: &OnPods<PodKey>, spec: &PluginSpec, kept: &Earlier) -> Held {
    let mut held = Held::new();
    for (name, pods) in on_pods.of_plugin(spec) {
        for pod in pods.iter().filter(|pod| !kept.has(&pod.namespace, name)) {
            held.entry(pod.clone()).or_insert_with(|| name.clone());
        }
    }
    held
}
