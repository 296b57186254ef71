//! A consistent view of the Pods. Immutable once published; a clone costs a few reference counts.

use std::{cmp::Ordering, hash::BuildHasher, sync::Arc};

use foldhash::quality::FixedState;
use imbl::OrdMap;
use podium_vocabulary::{Cursor, PodKey, PodQuery, Revision};

use super::{
    hash_index::HashIndex,
    index::Indexes,
    page::{BufferPool, PODS, Page},
    persistent_vec::PersistentVec,
    position_set::{Position, PositionSet},
};
use crate::pod::{CachedPod, PodView, Record, RecordRef, Slice, Staleness};

/// All Pods at one revision, with their indexes; immutable. Cloning is cheap and shares everything.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(super) pods: Pods,
    /// The Pods of each namespace, ordered by name. No namespace is empty.
    pub(super) namespaces: OrdMap<Arc<str>, PositionSet>,
    pub(super) indexes: Indexes,
    pub(super) revision: Revision,
    pub(super) staleness: Option<Staleness>,
}

/// The Pods by position, by name and by uid.
#[derive(Debug, Clone)]
pub(super) struct Pods {
    pages: PersistentVec<Page>,
    buffers: Arc<BufferPool>,
    names: HashIndex,
    uids: HashIndex,
    hasher: FixedState,
    pub(super) len: usize,
}

impl Pods {
    pub(super) fn get(&self, position: Position) -> Option<RecordRef<'_>> {
        self.pages.get(position as usize / PODS)?.get(position as usize % PODS)
    }

    /// Compares the Pod of a position with a namespace and name; a position without a Pod is greater than all names.
    pub(super) fn compare(&self, position: Position, namespace: &str, name: &str) -> Ordering {
        self.get(position).map_or(Ordering::Greater, |pod| pod.compare(namespace, name))
    }

    fn name_hash(&self, namespace: &str, name: &str) -> u32 {
        self.hasher.hash_one((namespace, name)) as u32
    }

    fn uid_hash(&self, uid: &str) -> u32 {
        self.hasher.hash_one(uid) as u32
    }

    pub(super) fn by_name(&self, namespace: &str, name: &str) -> Option<Position> {
        let mut positions = self.names.get(self.name_hash(namespace, name));
        positions.find(|position| self.compare(*position, namespace, name) == Ordering::Equal)
    }

    pub(super) fn by_uid(&self, uid: &str) -> Option<Position> {
        let mut positions = self.uids.get(self.uid_hash(uid));
        positions.find(|position| self.get(*position).is_some_and(|pod| pod.has_uid(uid)))
    }

    fn new(hasher: FixedState) -> Self {
        Self {
            pages: PersistentVec::default(),
            buffers: Arc::default(),
            names: HashIndex::default(),
            uids: HashIndex::default(),
            hasher,
            len: 0,
        }
    }

    /// Stores Pods whose positions are numbered from 0.
    fn from_records(hasher: FixedState, records: &[Record], pods: &[Arc<CachedPod>]) -> Self {
        let mut empty = Self { len: pods.len(), ..Self::new(hasher) };
        let pages = records.chunks(PODS).map(|pods| Page::from_records(pods, &empty.buffers));
        pages.enumerate().for_each(|(at, page)| empty.pages.set(at, Arc::new(page)));
        let keys = (0..).zip(pods).map(|(position, pod)| {
            let PodKey { namespace, name, uid } = &pod.key;
            ((empty.name_hash(namespace, name), position), (empty.uid_hash(uid), position))
        });
        let (names, uids): (Vec<_>, Vec<_>) = keys.unzip();
        Self { names: HashIndex::from_entries(&names), uids: HashIndex::from_entries(&uids), ..empty }
    }

    /// Stores a Pod in a position, or clears the position. Overwrites the buffer `record`.
    pub(super) fn put(&mut self, position: Position, pod: Option<&CachedPod>, record: &mut Vec<u8>) {
        let page = position as usize / PODS;
        let place = position as usize % PODS;
        let with = match self.pages.get(page) {
            Some(page) => page.with(place, pod, record),
            None => Page::empty(&self.buffers).with(place, pod, record),
        };
        self.pages.set(page, Arc::new(with));
    }

    pub(super) fn index(&mut self, position: Position, key: &PodKey) {
        self.names.insert(self.name_hash(&key.namespace, &key.name), position);
        self.uids.insert(self.uid_hash(&key.uid), position);
        self.len += 1;
    }

    pub(super) fn unindex(&mut self, position: Position, key: &PodKey) {
        self.names.remove(self.name_hash(&key.namespace, &key.name), position);
        self.uids.remove(self.uid_hash(&key.uid), position);
        self.len -= 1;
    }
}

impl Snapshot {
    /// Creates an empty snapshot. Hashes are seeded, so that no client of the API server can choose names that fill one
    /// bucket.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            pods: Pods::new(FixedState::with_seed(seed)),
            namespaces: OrdMap::new(),
            indexes: Indexes::new(seed),
            revision: Revision::default(),
            staleness: None,
        }
    }

    /// Fills an empty snapshot, in a fifth of the time of single insertions. `records` and `pods` are the same Pods, in
    /// order.
    pub(super) fn fill(&mut self, records: &[Record], pods: &[Arc<CachedPod>]) {
        self.pods = Pods::from_records(self.pods.hasher.clone(), records, pods);
        self.indexes = self.indexes.rebuild(pods);
        let mut positions = 0..;
        let namespaces = pods.chunk_by(|one, other| one.key.namespace == other.key.namespace);
        let namespaces = namespaces.filter_map(|pods| {
            let namespace_slots: Vec<_> = positions.by_ref().take(pods.len()).collect();
            Some((Arc::clone(&pods.first()?.key.namespace), PositionSet::from_ordered(&namespace_slots)))
        });
        self.namespaces = namespaces.collect();
    }

    /// Returns the number of Pods.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pods.len
    }

    /// Returns true if there is no Pod.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pods.len == 0
    }

    /// Returns all Pods by namespace, then name.
    pub fn iter(&self) -> impl Iterator<Item = Arc<CachedPod>> {
        self.records().map(|pod| pod.pod())
    }

    pub(super) fn records(&self) -> impl Iterator<Item = RecordRef<'_>> {
        self.namespaces.values().flat_map(PositionSet::iter).filter_map(|position| self.pods.get(position))
    }

    /// Returns why this view may be old, or `None` if the watch was healthy when the view was published.
    #[must_use]
    pub fn staleness(&self) -> Option<&Staleness> {
        self.staleness.as_ref()
    }

    pub(super) fn entry(&self, namespace: &str, name: &str) -> Option<Arc<CachedPod>> {
        let position = self.pods.by_name(namespace, name)?;
        self.pods.get(position).map(|pod| pod.pod())
    }
}

impl PodView for Snapshot {
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<CachedPod>> {
        self.entry(namespace, name)
    }

    fn by_uid(&self, uid: &str) -> Option<Arc<CachedPod>> {
        let position = self.pods.by_uid(uid)?;
        self.pods.get(position).map(|pod| pod.pod())
    }

    fn search(&self, query: &PodQuery, limit: usize, most: u64, after: Option<&Cursor>) -> Slice {
        self.slice_of(query, limit, most, after)
    }

    fn known_count(&self, query: &PodQuery) -> Option<u64> {
        self.count_without_search(query).map(|count| count as u64)
    }

    fn revision(&self) -> Revision {
        self.revision
    }
}
