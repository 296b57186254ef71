//! The writer's state: the next snapshot, which positions are in use, and every change of their contents.

use std::{cmp::Ordering, sync::Arc};

use podium_vocabulary::PodKey;
use podium_wire::SectionSet;

use super::{
    position_set::{Position, PositionSet},
    snapshot::Snapshot,
};
use crate::pod::{CachedPod, Change, Record};

/// A Pod of the cache and its position.
pub(super) struct Entry {
    pub(super) position: Position,
    pub(super) pod: Arc<CachedPod>,
}

#[derive(Debug)]
pub(super) struct Store {
    /// The next snapshot; a clone of it is published.
    pub(super) next: Snapshot,
    /// Positions below this are in use or were in use.
    end: Position,
    /// Positions below `end` that are free.
    free: Vec<Position>,
    /// Buffer for a record before it is copied into its page.
    record: Vec<u8>,
}

impl Store {
    pub(super) fn new(next: Snapshot) -> Self {
        Self { next, end: 0, free: Vec::new(), record: Vec::new() }
    }

    /// Returns the Pod with the namespace and name of `key`. If `before` is its cached state, the entry contains
    /// `before` instead of a new copy.
    pub(super) fn entry(&self, key: &PodKey, before: Option<Arc<CachedPod>>) -> Option<Entry> {
        let position = self.next.pods.by_name(&key.namespace, &key.name)?;
        let record = self.next.pods.get(position)?;
        let pod = before.filter(|before| record.matches(before)).unwrap_or_else(|| record.pod());
        Some(Entry { position, pod })
    }

    /// Fills a store that has no Pods. Of several records with one name the newest is stored.
    pub(super) fn fill(&mut self, mut pods: Vec<Record>) -> Vec<Change> {
        let order = |one: &Record, other: &Record| one.open().compare_to(&other.open());
        if !pods.is_sorted_by(|one, other| order(one, other) == Ordering::Less) {
            pods.sort_by(order);
            pods.dedup_by(|later, earlier| {
                let same = order(later, earlier) == Ordering::Equal;
                if same && later.revision() > earlier.revision() {
                    std::mem::swap(later, earlier);
                }
                same
            });
        }
        self.free.clear();
        self.end = pods.len() as Position;
        let made: Vec<_> = pods.iter().map(Record::pod).collect();
        self.next.fill(&pods, &made);
        made.into_iter().filter_map(|pod| Change::between(None, Some(pod))).collect()
    }

    /// Replaces the Pod in the position, `old`, with a newer state of the same incarnation.
    pub(super) fn replace(&mut self, position: Position, old: Arc<CachedPod>, pod: Arc<CachedPod>) -> Option<Change> {
        let Snapshot { pods, indexes, .. } = &mut self.next;
        pods.put(position, Some(&pod), &mut self.record);
        let change = Change::between(Some(old), Some(pod))?;
        indexes.replace(pods, position, change.old.as_deref(), change.new.as_deref(), change.sections);
        Some(change)
    }

    /// Inserts a Pod whose name is not in the store.
    pub(super) fn insert(&mut self, pod: &CachedPod) {
        let Snapshot { pods, namespaces, indexes, .. } = &mut self.next;
        let PodKey { namespace, name, .. } = &pod.key;
        let position = self.free.pop().unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        });
        pods.put(position, Some(pod), &mut self.record);
        pods.index(position, &pod.key);
        let place = |other| pods.compare(other, namespace, name);
        match namespaces.get_mut(namespace) {
            Some(set) => set.insert(position, place),
            None => {
                let mut set = PositionSet::default();
                set.insert(position, place);
                namespaces.insert(Arc::clone(namespace), set);
            }
        }
        indexes.replace(pods, position, None, Some(pod), SectionSet::ALL);
    }

    /// Removes a Pod; `held` is its cached state.
    pub(super) fn remove(&mut self, held: &CachedPod) {
        let Snapshot { pods, namespaces, indexes, .. } = &mut self.next;
        let PodKey { namespace, name, .. } = &held.key;
        let Some(position) = pods.by_name(namespace, name) else { return };
        indexes.replace(pods, position, Some(held), None, SectionSet::ALL);
        if let Some(set) = namespaces.get_mut(namespace) {
            set.remove(position, |other| pods.compare(other, namespace, name));
            if set.is_empty() {
                namespaces.remove(namespace);
            }
        }
        pods.unindex(position, &held.key);
        pods.put(position, None, &mut self.record);
        self.free.push(position);
    }
}
