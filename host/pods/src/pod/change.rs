//! Observations of the watch and the changes that they cause: the types between watch, cache and wake.

use std::sync::Arc;

use podium_vocabulary::{PodKey, Revision};
use podium_wire::SectionSet;

use super::{CachedPod, PodList};

/// A report of the watch. The cache applies them in order.
#[derive(Debug)]
pub enum Observation {
    /// A complete list at one revision. Cached Pods that are not in it are deleted, unless they are newer than the
    /// list.
    Relisted {
        /// The Pods that were read, and the uids of the others.
        pods: PodList,
        /// The revision of the list.
        revision: Revision,
    },
    /// The API server's history was rolled back, as when etcd is restored. The list that follows is applied although
    /// its revisions may be older than those reported before.
    RolledBack,
    /// Events of a watch, in the order of the stream; at least one.
    Events(Vec<PodEvent>),
    /// No other event happened up to this revision.
    Bookmark(Revision),
    /// The cache is up to date again.
    Live,
    /// The watch is interrupted; readers may see old data.
    Stale(Staleness),
}

/// One event of a watch.
#[derive(Debug, Clone)]
pub struct PodEvent {
    /// For a deletion, the last state at the revision of the deletion.
    pub pod: Arc<CachedPod>,
    /// The Pod is gone.
    pub deleted: bool,
    /// The cached state when this event was read, if any. The cache uses it instead of a new copy while it is still
    /// current.
    pub before: Option<Arc<CachedPod>>,
}

impl PodEvent {
    /// Returns the event of an addition or a change.
    #[must_use]
    pub fn applied(pod: Arc<CachedPod>) -> Self {
        Self { pod, deleted: false, before: None }
    }

    /// Returns the event of a deletion.
    #[must_use]
    pub fn deleted(pod: Arc<CachedPod>) -> Self {
        Self { pod, deleted: true, before: None }
    }
}

/// Why readers may see old data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staleness {
    /// A message for people: "connection refused", "no bookmark for 10 s".
    pub reason: String,
}

/// Access of the watch to cached Pods, so that nothing is read twice.
pub trait CachedPods: Send + Sync {
    /// Returns the cached Pod with this namespace and name.
    fn cached(&self, namespace: &str, name: &str) -> Option<Arc<CachedPod>>;
}

/// One step of one Pod in the cache. If both `old` and `new` are present they have one uid; a Pod recreated under its
/// name makes two changes, the deletion first.
#[derive(Debug, Clone)]
pub struct Change {
    /// The state before; `None` for an addition.
    pub old: Option<Arc<CachedPod>>,
    /// The state after; `None` for a deletion.
    pub new: Option<Arc<CachedPod>>,
    /// The sections whose bytes differ; all sections for an addition or a deletion.
    pub sections: SectionSet,
}

impl Change {
    /// Returns the change between two states, or `None` if neither is present or only the revision differs.
    #[must_use]
    pub fn between(old: Option<Arc<CachedPod>>, new: Option<Arc<CachedPod>>) -> Option<Self> {
        let sections = match (&old, &new) {
            (None, None) => return None,
            (Some(old), Some(new)) => new.changed_from(old),
            _ => SectionSet::ALL,
        };
        (!sections.is_empty()).then_some(Self { old, new, sections })
    }

    /// Returns the key of the Pod that changed.
    #[must_use]
    pub fn key(&self) -> Option<&PodKey> {
        self.new.as_ref().or(self.old.as_ref()).map(|pod| &pod.key)
    }
}
