//! The writer's side of a snapshot: which slots are taken, and every change of what is in them.

use std::sync::Arc;

use super::{members::Slot, snapshot::Snapshot};
use crate::model::{CachedPod, PodKey};

#[derive(Debug)]
pub(super) struct Store {
    /// The next snapshot; the published one is a clone.
    pub(super) next: Snapshot,
    /// Slots below this were taken at some time.
    end: Slot,
    /// Those of them that are free again.
    free: Vec<Slot>,
}

impl Store {
    pub(super) fn new(next: Snapshot) -> Self {
        Self { next, end: 0, free: Vec::new() }
    }

    pub(super) fn entry(&self, namespace: &str, name: &str) -> Option<Arc<CachedPod>> {
        self.next.entry(namespace, name)
    }

    /// Room for so many Pods.
    pub(super) fn reserve(&mut self, len: usize) {
        self.next.pods.reserve(len);
    }

    /// Adds a Pod, or puts a newer state of the same incarnation in the place of what is there: of `old`.
    pub(super) fn insert(&mut self, pod: &CachedPod, old: Option<&CachedPod>) {
        let Snapshot { pods, namespaces, indexes, .. } = &mut self.next;
        let PodKey { namespace, name, .. } = &pod.key;
        if let (Some(old), Some(slot)) = (old, pods.by_name(namespace, name)) {
            pods.put(slot, Some(pod));
            indexes.replace(pods, slot, Some(old), Some(pod));
            return;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        });
        pods.put(slot, Some(pod));
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
        indexes.replace(pods, slot, None, Some(pod));
    }

    /// Takes the Pod out that is held, in this state.
    pub(super) fn remove(&mut self, held: &CachedPod) {
        let Snapshot { pods, namespaces, indexes, .. } = &mut self.next;
        let PodKey { namespace, name, .. } = &held.key;
        let Some(slot) = pods.by_name(namespace, name) else { return };
        indexes.replace(pods, slot, Some(held), None);
        if let Some(members) = namespaces.get_mut(namespace) {
            members.remove(slot, |other| pods.compare(other, namespace, name));
            if members.is_empty() {
                namespaces.remove(namespace);
            }
        }
        pods.leave(slot, &held.key);
        pods.put(slot, None);
        self.free.push(slot);
    }
}
