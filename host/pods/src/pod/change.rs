//! What the watch saw and what it changed: the words between watch, cache and wake.

use std::sync::Arc;

use podium_wire::SectionSet;

use super::{CachedPod, PodList, Record};
use crate::model::{PodKey, Revision};

/// What the watch tells, in order.
#[derive(Debug)]
pub enum Observation {
    /// A complete list at one revision. What it does not name is gone, if it is not newer than the list.
    Relisted { pods: PodList, revision: Revision },
    /// The API server's history was set back, as when etcd is restored. The list that follows is taken as it is, though
    /// its revisions may be older than those told before.
    Rewound,
    /// Events of a watch, in the order of the stream, at least one.
    Events(Vec<PodEvent>),
    /// Nothing else happened up to this revision.
    Bookmark(Revision),
    /// From here on the cache is up to date again.
    Live,
    /// The watch is cut off; what readers see may be old.
    Stale(Staleness),
}

/// All Pods as they once were: what is kept on the disk, and what a watch can begin with.
#[derive(Debug, Default)]
pub struct Checkpoint {
    /// By namespace, then name, each once.
    pub pods: Vec<Record>,
    /// What the watch had told.
    pub revision: Revision,
    /// The uid of the cluster's namespace kube-system, where it was known.
    pub cluster: Option<Arc<str>>,
}

/// One event of a watch.
#[derive(Debug, Clone)]
pub struct PodEvent {
    /// Of a deletion the last state, at the revision of the deletion.
    pub pod: Arc<CachedPod>,
    pub deleted: bool,
    /// What the cache held when this was read, if anything: it need not be looked up again where it still does.
    pub before: Option<Arc<CachedPod>>,
}

impl PodEvent {
    #[must_use]
    pub fn applied(pod: Arc<CachedPod>) -> Self {
        Self { pod, deleted: false, before: None }
    }

    #[must_use]
    pub fn deleted(pod: Arc<CachedPod>) -> Self {
        Self { pod, deleted: true, before: None }
    }
}

/// Why readers may see old data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staleness {
    /// For people: "connection refused", "no bookmark for 10 s".
    pub reason: String,
}

/// What the watch asks, so that nothing is read twice.
pub trait Known: Send + Sync {
    /// What the cache holds under this namespace and name.
    fn held(&self, namespace: &str, name: &str) -> Option<Arc<CachedPod>>;
}

/// One step of one Pod in the cache. `old` and `new` are of one uid when both are there; a Pod recreated under its name
/// makes two changes, the deletion first.
#[derive(Debug, Clone)]
pub struct Change {
    pub old: Option<Arc<CachedPod>>,
    pub new: Option<Arc<CachedPod>>,
    /// The sections whose bytes differ; all of them for an addition or a deletion.
    pub sections: SectionSet,
}

impl Change {
    /// None when neither state is there, or nothing but the revision differs.
    #[must_use]
    pub fn between(old: Option<Arc<CachedPod>>, new: Option<Arc<CachedPod>>) -> Option<Self> {
        let sections = match (&old, &new) {
            (None, None) => return None,
            (Some(old), Some(new)) => new.changed_from(old),
            _ => SectionSet::ALL,
        };
        (!sections.is_empty()).then_some(Self { old, new, sections })
    }

    /// The incarnation that this is about.
    #[must_use]
    pub fn key(&self) -> Option<&PodKey> {
        self.new.as_ref().or(self.old.as_ref()).map(|pod| &pod.key)
    }
}
