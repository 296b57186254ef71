//! Membership indexes: they map a value, such as a node's name, to the Pods that have it.
//!
//! The indexes store slots instead of Pods, so an event that changes no indexed value of a Pod does not change them.
//! All are persistent: a clone shares everything, and a change copies one path.

use std::{cmp::Ordering, collections::BTreeMap, ops::Range, sync::Arc};

use imbl::OrdMap;
use podium_wire::{Labels, Section, SectionSet};

use super::{
    slot_set::{Slot, SlotSet},
    snapshot::Pods,
};
use crate::pod::CachedPod;

#[derive(Debug, Clone, Default)]
pub(super) struct Index(OrdMap<Arc<str>, SlotSet>);

impl Index {
    pub(super) fn get(&self, value: &str) -> Option<&SlotSet> {
        self.0.get(value)
    }

    fn insert(&mut self, value: &str, slot: Slot, place: impl Fn(Slot) -> Ordering) {
        match self.0.get_mut(value) {
            Some(set) => set.insert(slot, place),
            None => {
                let mut set = SlotSet::default();
                set.insert(slot, place);
                self.0.insert(value.into(), set);
            }
        }
    }

    /// Builds an index from the slots of each value, which must be in order.
    fn from_slots<'a>(values: impl IntoIterator<Item = (&'a str, Vec<Slot>)>) -> Self {
        Self(values.into_iter().map(|(value, slots)| (Arc::from(value), SlotSet::from_ordered(&slots))).collect())
    }

    fn remove(&mut self, value: &str, slot: Slot, place: impl Fn(Slot) -> Ordering) {
        if let Some(set) = self.0.get_mut(value) {
            set.remove(slot, place);
            if set.is_empty() {
                self.0.remove(value);
            }
        }
    }
}

/// All indexes of a snapshot. Every label is indexed by key and value: a selector may name any, and a Pod has few.
#[derive(Debug, Clone, Default)]
pub(super) struct Indexes {
    pub(super) nodes: Index,
    pub(super) owners: Index,
    pub(super) phases: Index,
    labels: OrdMap<Arc<str>, Index>,
}

impl Indexes {
    /// Returns the Pods that have the label `key` with `value`.
    pub(super) fn label(&self, key: &str, value: &str) -> Option<&SlotSet> {
        self.labels.get(key).and_then(|values| values.get(value))
    }

    /// Builds the indexes of Pods in their order; their slots are numbered from 0.
    pub(super) fn from_pods(pods: &[Arc<CachedPod>]) -> Self {
        let (mut nodes, mut phases, mut owners) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::<String, Vec<Slot>>::new());
        let mut labelled: BTreeMap<String, BTreeMap<String, Vec<Slot>>> = BTreeMap::new();
        for (slot, pod) in (0..).zip(pods) {
            if let Some(node) = pod.node() {
                add(&mut nodes, &node, slot);
            }
            add(&mut phases, pod.phase(), slot);
        }
        for (slots, pod) in alike(pods, Section::Labels) {
            for (key, value) in labels(Some(pod)) {
                labelled.entry(key).or_default().entry(value).or_default().extend(slots.clone());
            }
        }
        for (slots, pod) in alike(pods, Section::Owners) {
            for uid in owner_uids(Some(pod)) {
                owners.entry(uid).or_default().extend(slots.clone());
            }
        }
        let labels = labelled.into_iter().map(|(key, values)| {
            let values = values.iter().map(|(value, slots)| (&**value, slots.clone()));
            (Arc::from(key.as_str()), Index::from_slots(values))
        });
        Self {
            nodes: Index::from_slots(nodes.iter().map(|(node, slots)| (&**node, slots.clone()))),
            phases: Index::from_slots(phases.iter().map(|(phase, slots)| (&**phase, slots.clone()))),
            owners: Index::from_slots(owners.iter().map(|(uid, slots)| (&**uid, slots.clone()))),
            labels: labels.collect(),
        }
    }

    /// Updates the entries of a slot from the Pod's old state to its new one. If both are present, they are of one
    /// incarnation and differ in `sections`. `pods` must have one of the two in the slot.
    pub(super) fn replace(
        &mut self,
        pods: &Pods,
        slot: Slot,
        old: Option<&CachedPod>,
        new: Option<&CachedPod>,
        sections: SectionSet,
    ) {
        let Some(key) = new.or(old).map(|pod| &pod.key) else { return };
        let place = |other| pods.compare(other, &key.namespace, &key.name);
        if sections.contains(Section::Spec) {
            let (from, to) = (old.and_then(CachedPod::node), new.and_then(CachedPod::node));
            if from != to {
                from.into_iter().for_each(|node| self.nodes.remove(&node, slot, place));
                to.into_iter().for_each(|node| self.nodes.insert(&node, slot, place));
            }
        }
        if sections.contains(Section::Status) {
            let (from, to) = (old.map(CachedPod::phase), new.map(CachedPod::phase));
            if from != to {
                from.into_iter().for_each(|phase| self.phases.remove(phase, slot, place));
                to.into_iter().for_each(|phase| self.phases.insert(phase, slot, place));
            }
        }
        if sections.contains(Section::Owners) {
            let (from, to) = (owner_uids(old), owner_uids(new));
            from.iter().filter(|uid| !to.contains(uid)).for_each(|uid| self.owners.remove(uid, slot, place));
            to.iter().filter(|uid| !from.contains(uid)).for_each(|uid| self.owners.insert(uid, slot, place));
        }
        if sections.contains(Section::Labels) {
            self.replace_labels(slot, place, &labels(old), &labels(new));
        }
    }

    fn replace_labels(&mut self, slot: Slot, place: impl Fn(Slot) -> Ordering, from: &Labels, to: &Labels) {
        for (key, value) in from.iter().filter(|(key, value)| to.get(*key) != Some(value)) {
            if let Some(values) = self.labels.get_mut(key.as_str()) {
                values.remove(value, slot, &place);
                if values.0.is_empty() {
                    self.labels.remove(key.as_str());
                }
            }
        }
        for (key, value) in to.iter().filter(|(key, value)| from.get(*key) != Some(value)) {
            match self.labels.get_mut(key.as_str()) {
                Some(values) => values.insert(value, slot, &place),
                None => {
                    let mut values = Index::default();
                    values.insert(value, slot, &place);
                    self.labels.insert(key.as_str().into(), values);
                }
            }
        }
    }
}

/// Groups adjacent Pods that have a section in common, and returns the slots of each group with its first Pod. Pods of
/// one owner are adjacent and have the same labels and owners, so these are decoded once for a group.
fn alike(pods: &[Arc<CachedPod>], section: Section) -> impl Iterator<Item = (Range<Slot>, &CachedPod)> {
    let mut next = 0;
    pods.chunk_by(move |one, other| one.has_in_common(other, section)).filter_map(move |alike| {
        let first = next;
        next += alike.len() as Slot;
        Some((first..next, &**alike.first()?))
    })
}

fn add(values: &mut BTreeMap<String, Vec<Slot>>, value: &str, slot: Slot) {
    match values.get_mut(value) {
        Some(slots) => slots.push(slot),
        None => _ = values.insert(value.to_owned(), vec![slot]),
    }
}

/// Returns the labels, or an empty map without a Pod. Decoding does not fail, because `podium_wire` encoded the
/// section.
pub(super) fn labels(pod: Option<&CachedPod>) -> Labels {
    pod.and_then(|pod| pod.labels().ok()).unwrap_or_default()
}

/// Returns the uids of the owners without duplicates: an object may name an owner twice.
fn owner_uids(pod: Option<&CachedPod>) -> Vec<String> {
    let mut uids = pod.map(CachedPod::owner_uids).unwrap_or_default();
    uids.sort_unstable();
    uids.dedup();
    uids
}
