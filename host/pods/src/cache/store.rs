//! The writer's side of a snapshot: which slots are taken, and every change of what is in them.

use std::{cmp::Ordering, sync::Arc};

use podium_wire::SectionSet;

use super::{members::Slot, snapshot::Snapshot};
use crate::{
    model::PodKey,
    pod::{CachedPod, Change, Record},
};

/// A Pod and where it is.
pub(super) struct Held {
    pub(super) slot: Slot,
    pub(super) pod: Arc<CachedPod>,
}

#[derive(Debug)]
pub(super) struct Store {
    /// The next snapshot; the published one is a clone.
    pub(super) next: Snapshot,
    /// Slots below this were taken at some time.
    end: Slot,
    /// Those of them that are free again.
    free: Vec<Slot>,
    /// Room in which a record is written before it goes into its page.
    record: Vec<u8>,
}

impl Store {
    pub(super) fn new(next: Snapshot) -> Self {
        Self { next, end: 0, free: Vec::new(), record: Vec::new() }
    }

    /// What is held under the namespace and name of `key`. It is not made anew where it is `before`.
    pub(super) fn held(&self, key: &PodKey, before: Option<Arc<CachedPod>>) -> Option<Held> {
        let slot = self.next.pods.by_name(&key.namespace, &key.name)?;
        let kept = self.next.pods.get(slot)?;
        let pod = before.filter(|before| kept.is(before)).unwrap_or_else(|| kept.pod());
        Some(Held { slot, pod })
    }

    /// Puts Pods into a store that has none, each name once.
    pub(super) fn fill(&mut self, mut pods: Vec<Record>) -> Vec<Change> {
        let order = |one: &Record, other: &Record| match (one.kept(), other.kept()) {
            (Some(one), Some(other)) => one.compare_to(&other),
            _ => Ordering::Equal,
        };
        if !pods.is_sorted_by(|one, other| order(one, other) == Ordering::Less) {
            pods.sort_by(order);
            pods.dedup_by(|later, earlier| {
                let revision = |pod: &Record| pod.kept().map(|pod| pod.revision);
                let same = order(later, earlier) == Ordering::Equal;
                if same && revision(later) > revision(earlier) {
                    std::mem::swap(later, earlier);
                }
                same
            });
        }
        self.free.clear();
        self.end = pods.len() as Slot;
        // None is left out, as each was made from one.
        let made: Vec<_> = pods.iter().filter_map(Record::pod).collect();
        self.next.fill(&pods, &made);
        made.into_iter().filter_map(|pod| Change::between(None, Some(pod))).collect()
    }

    /// Puts a newer state of the same incarnation in the place of what is in the slot: of `old`.
    pub(super) fn replace(&mut self, slot: Slot, old: Arc<CachedPod>, pod: Arc<CachedPod>) -> Option<Change> {
        let Snapshot { pods, indexes, .. } = &mut self.next;
        pods.put(slot, Some(&pod), &mut self.record);
        let change = Change::between(Some(old), Some(pod))?;
        indexes.replace(pods, slot, change.old.as_deref(), change.new.as_deref(), change.sections);
        Some(change)
    }

    /// Adds a Pod under a name that nobody has.
    pub(super) fn insert(&mut self, pod: &CachedPod) {
        let Snapshot { pods, namespaces, indexes, .. } = &mut self.next;
        let PodKey { namespace, name, .. } = &pod.key;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        });
        pods.put(slot, Some(pod), &mut self.record);
        pods.enter(slot, &pod.key);
        let place = |other| pods.compare(other, namespace, name);
        match namespaces.get_mut(namespace) {
            Some(members) => members.insert(slot, place),
            None => {
                let mut members = Default::default();
                super::members::Members::insert(&mut members, slot, place);
                namespaces.insert(Arc::clone(namespace), members);
            }
        }
        indexes.replace(pods, slot, None, Some(pod), SectionSet::ALL);
    }

    /// Takes the Pod out that is held, in this state.
    pub(super) fn remove(&mut self, held: &CachedPod) {
        let Snapshot { pods, namespaces, indexes, .. } = &mut self.next;
        let PodKey { namespace, name, .. } = &held.key;
        let Some(slot) = pods.by_name(namespace, name) else { return };
        indexes.replace(pods, slot, Some(held), None, SectionSet::ALL);
        if let Some(members) = namespaces.get_mut(namespace) {
            members.remove(slot, |other| pods.compare(other, namespace, name));
            if members.is_empty() {
                namespaces.remove(namespace);
            }
        }
        pods.leave(slot, &held.key);
        pods.put(slot, None, &mut self.record);
        self.free.push(slot);
    }
}
