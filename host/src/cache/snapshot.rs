//! One consistent view of the Pods. Immutable once published; a clone costs a few reference counts.

use std::sync::Arc;

use imbl::OrdMap;

use super::index::Indexes;
use crate::model::{CachedPod, Cursor, Page, PodKey, PodQuery, PodView, Revision, Staleness};

/// The Pods of one namespace by name.
pub(super) type Namespace = OrdMap<Arc<str>, Arc<CachedPod>>;

#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// No namespace is empty.
    pub(super) namespaces: OrdMap<Arc<str>, Namespace>,
    pub(super) indexes: Indexes,
    pub(super) len: usize,
    pub(super) revision: Revision,
    pub(super) staleness: Option<Staleness>,
}

impl Snapshot {
    /// How many Pods there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All Pods, by namespace, then name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<CachedPod>> {
        self.namespaces.values().flat_map(OrdMap::values)
    }

    /// Why this view may be old; none when the watch was well as it was published.
    #[must_use]
    pub fn staleness(&self) -> Option<&Staleness> {
        self.staleness.as_ref()
    }

    pub(super) fn entry(&self, namespace: &str, name: &str) -> Option<&Arc<CachedPod>> {
        self.namespaces.get(namespace)?.get(name)
    }

    /// Adds a Pod, or puts a newer state of the same incarnation in the place of what is there.
    pub(super) fn insert(&mut self, pod: &Arc<CachedPod>) {
        let PodKey { namespace, name, .. } = &pod.key;
        let old = match self.namespaces.get_mut(namespace) {
            Some(pods) => pods.insert(Arc::clone(name), Arc::clone(pod)),
            None => {
                self.namespaces.insert(Arc::clone(namespace), Namespace::unit(Arc::clone(name), Arc::clone(pod)));
                None
            }
        };
        self.len += usize::from(old.is_none());
        self.indexes.replace(&cursor(&pod.key), old.as_deref(), Some(pod));
    }

    pub(super) fn remove(&mut self, key: &PodKey) {
        let Some(pods) = self.namespaces.get_mut(&key.namespace) else { return };
        let old = pods.remove(&key.name);
        if pods.is_empty() {
            self.namespaces.remove(&key.namespace);
        }
        self.len -= usize::from(old.is_some());
        self.indexes.replace(&cursor(key), old.as_deref(), None);
    }
}

fn cursor(key: &PodKey) -> Cursor {
    Cursor { namespace: Arc::clone(&key.namespace), name: Arc::clone(&key.name) }
}

impl PodView for Snapshot {
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<CachedPod>> {
        self.entry(namespace, name).cloned()
    }

    fn by_uid(&self, uid: &str) -> Option<Arc<CachedPod>> {
        let name = self.indexes.uids.get(uid)?;
        self.get(&name.namespace, &name.name)
    }

    fn find(&self, query: &PodQuery, limit: usize, after: Option<&Cursor>) -> Page {
        self.find_page(query, limit, after)
    }

    fn count(&self, query: &PodQuery) -> u64 {
        self.count_all(query) as u64
    }

    fn candidates(&self, query: &PodQuery) -> usize {
        self.candidates_of_count(query)
    }

    fn revision(&self) -> Revision {
        self.revision
    }
}
