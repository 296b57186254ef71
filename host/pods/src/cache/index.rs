//! Membership indexes: they map a value, such as a node's name, to the Pods that have it.
//!
//! A value is looked up in one namespace or in the whole cluster, and the two are separate entries. So the entry that
//! answers a query of one namespace has only Pods of this namespace: neither the answer nor the time depends on which
//! values Pods of other namespaces have.
//!
//! The indexes store positions instead of Pods, so an event that changes no indexed value of a Pod does not change
//! them. All are persistent: a clone shares everything, and a change copies one path.

use std::{cmp::Ordering, collections::BTreeMap, hash::BuildHasher, ops::Range, sync::Arc};

use foldhash::quality::FixedState;
use imbl::OrdMap;
use podium_wire::{Labels, Section, SectionSet};

use super::{
    position_set::{Position, PositionSet},
    snapshot::Pods,
};
use crate::pod::CachedPod;

/// The most labels of a Pod that are indexed. Kubernetes has no limit of its own except the size of the object, with
/// which a Pod may have 100,000 labels, each with its own key.
pub(super) const MAX_INDEXED_LABELS: usize = 64;

/// A value that Pods can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Value<'a> {
    Node(&'a str),
    Owner(&'a str),
    Phase(&'a str),
    Label(&'a str, &'a str),
    /// More than [`MAX_INDEXED_LABELS`] labels, of which none is indexed.
    ManyLabels,
}

impl Value<'_> {
    /// Returns true if the value is indexed in one namespace, or in the whole cluster. Nodes are not indexed by
    /// namespace, because nearly every Pod of a namespace would need an entry of its own.
    pub(super) fn is_indexed(self, namespace: Option<&str>) -> bool {
        namespace.is_none() || !matches!(self, Self::Node(_))
    }
}

/// Keyed hashes of a namespace and of a value, which stand for them: two of them are never the same by chance. The key
/// is a secret of the process, so the place of an entry in the map says nothing about the text, and the comparisons on
/// the way to it do not depend on similar texts. The entries of a namespace are next to each other, so a change of a Pod
/// copies few nodes of the map.
type Fingerprint = [u64; 2];

/// All indexes of a snapshot. A selector may name any label, so every label is indexed by key and value, except those
/// of Pods with more than [`MAX_INDEXED_LABELS`]: a search by label examines each of these Pods.
#[derive(Debug, Clone)]
pub(super) struct Indexes {
    hashers: [FixedState; 2],
    /// The Pods of a value in one namespace.
    within: OrdMap<Fingerprint, PositionSet>,
    /// The namespace of each value that only Pods of this namespace have had.
    only: OrdMap<Fingerprint, Arc<str>>,
    /// The Pods of every other value in the whole cluster. No set is empty.
    across: OrdMap<Fingerprint, PositionSet>,
}

impl Indexes {
    pub(super) fn new(seed: u64) -> Self {
        // Any other number that follows from the seed makes the halves of a fingerprint independent.
        let hashers = [seed, !seed.rotate_left(32)].map(FixedState::with_seed);
        Self { hashers, within: OrdMap::new(), only: OrdMap::new(), across: OrdMap::new() }
    }

    fn within(&self, namespace: &str, value: Value<'_>) -> Fingerprint {
        let [first, second] = &self.hashers;
        [first.hash_one(namespace), second.hash_one((namespace, value))]
    }

    fn everywhere(&self, value: Value<'_>) -> Fingerprint {
        self.hashers.each_ref().map(|hasher| hasher.hash_one(value))
    }

    /// Returns the Pods that have the value, in one namespace or in the whole cluster.
    pub(super) fn get(&self, namespace: Option<&str>, value: Value<'_>) -> Option<&PositionSet> {
        if let Some(namespace) = namespace {
            return self.within.get(&self.within(namespace, value));
        }
        let everywhere = self.everywhere(value);
        match self.only.get(&everywhere) {
            Some(only) => self.within.get(&self.within(only, value)),
            None => self.across.get(&everywhere),
        }
    }

    fn insert(
        &mut self,
        namespace: &Arc<str>,
        value: Value<'_>,
        position: Position,
        place: impl Fn(Position) -> Ordering,
    ) {
        let everywhere = self.everywhere(value);
        match self.only.get(&everywhere) {
            Some(only) if only == namespace => {}
            Some(only) => {
                let mut set = self.within.get(&self.within(only, value)).cloned().unwrap_or_default();
                set.insert(position, &place);
                self.only.remove(&everywhere);
                self.across.insert(everywhere, set);
            }
            None if value.is_indexed(Some(namespace)) && !self.across.contains_key(&everywhere) => {
                self.only.insert(everywhere, Arc::clone(namespace));
            }
            None => self.across.entry(everywhere).or_default().insert(position, &place),
        }
        if value.is_indexed(Some(namespace)) {
            self.within.entry(self.within(namespace, value)).or_default().insert(position, place);
        }
    }

    fn remove(&mut self, namespace: &str, value: Value<'_>, position: Position, place: impl Fn(Position) -> Ordering) {
        let (within, everywhere) = (self.within(namespace, value), self.everywhere(value));
        // A map copies the path to a key also if it does not have the key.
        if self.across.contains_key(&everywhere) {
            remove(&mut self.across, &everywhere, position, &place);
        }
        if value.is_indexed(Some(namespace)) && remove(&mut self.within, &within, position, place) {
            self.only.remove(&everywhere);
        }
    }

    /// Builds the indexes of Pods in their order, with the same seed; their positions are numbered from 0.
    pub(super) fn of(&self, pods: &[Arc<CachedPod>]) -> Self {
        let (mut within, mut everywhere) = (BTreeMap::new(), BTreeMap::new());
        let mut add = |positions: Range<Position>, pod: &CachedPod, value: Value<'_>| {
            let by_namespace = value.is_indexed(Some(&pod.key.namespace));
            let all = everywhere.entry(self.everywhere(value)).or_insert_with(|| (by_namespace, Vec::new()));
            all.1.extend(positions.clone());
            if by_namespace {
                let own = within.entry(self.within(&pod.key.namespace, value));
                own.or_insert_with(Vec::new).extend(positions);
            }
        };
        for (position, pod) in (0..).zip(pods) {
            if let Some(node) = pod.node() {
                add(position..position + 1, pod, Value::Node(&node));
            }
            add(position..position + 1, pod, Value::Phase(pod.phase()));
        }
        for (positions, pod) in groups_with_equal(pods, Section::Labels) {
            let labels = labels(Some(pod));
            for value in values_of(&labels) {
                add(positions.clone(), pod, value);
            }
        }
        for (positions, pod) in groups_with_equal(pods, Section::Owners) {
            for uid in owner_uids(Some(pod)) {
                add(positions.clone(), pod, Value::Owner(&uid));
            }
        }
        let sets = within.into_iter().map(|(value, positions)| (value, PositionSet::from_ordered(&positions)));
        let mut indexes = Self { hashers: self.hashers.clone(), within: sets.collect(), ..Self::new(0) };
        let namespace = |position: Option<&Position>| Some(&pods.get(*position? as usize)?.key.namespace);
        for (value, (by_namespace, positions)) in everywhere {
            // The Pods are ordered by namespace.
            let only = namespace(positions.first()).filter(|first| Some(*first) == namespace(positions.last()));
            match only.filter(|_| by_namespace) {
                Some(only) => _ = indexes.only.insert(value, Arc::clone(only)),
                None => _ = indexes.across.insert(value, PositionSet::from_ordered(&positions)),
            }
        }
        indexes
    }

    /// Updates the entries of a position from the Pod's old state to its new one. If both are present, they are of one
    /// incarnation and differ in `sections`. `pods` must have one of the two in the position.
    pub(super) fn replace(
        &mut self,
        pods: &Pods,
        position: Position,
        old: Option<&CachedPod>,
        new: Option<&CachedPod>,
        sections: SectionSet,
    ) {
        let Some(key) = new.or(old).map(|pod| &pod.key) else { return };
        let place = |other| pods.compare(other, &key.namespace, &key.name);
        let mut change = |from: &[Value<'_>], to: &[Value<'_>]| {
            for value in from.iter().filter(|value| to.binary_search(value).is_err()) {
                self.remove(&key.namespace, *value, position, place);
            }
            for value in to.iter().filter(|value| from.binary_search(value).is_err()) {
                self.insert(&key.namespace, *value, position, place);
            }
        };
        if sections.contains(Section::Spec) {
            let (from, to) = (old.and_then(CachedPod::node), new.and_then(CachedPod::node));
            change(from.as_deref().map(Value::Node).as_slice(), to.as_deref().map(Value::Node).as_slice());
        }
        if sections.contains(Section::Status) {
            let (from, to) = (old.map(CachedPod::phase), new.map(CachedPod::phase));
            change(from.map(Value::Phase).as_slice(), to.map(Value::Phase).as_slice());
        }
        if sections.contains(Section::Owners) {
            let (from, to) = (owner_uids(old), owner_uids(new));
            let [from, to] = [&from, &to].map(|uids| uids.iter().map(|uid| Value::Owner(uid)).collect::<Vec<_>>());
            change(&from, &to);
        }
        if sections.contains(Section::Labels) {
            let (from, to) = (labels(old), labels(new));
            change(&values_of(&from), &values_of(&to));
        }
    }
}

/// Removes a position from the set of a value, and the set if it is empty then. Returns whether it was removed.
fn remove(
    sets: &mut OrdMap<Fingerprint, PositionSet>,
    value: &Fingerprint,
    position: Position,
    place: impl Fn(Position) -> Ordering,
) -> bool {
    let Some(set) = sets.get_mut(value) else { return false };
    set.remove(position, place);
    let is_empty = set.is_empty();
    if is_empty {
        sets.remove(value);
    }
    is_empty
}

/// Returns the indexed values of labels, in order; without labels, none.
fn values_of(labels: &Labels) -> Vec<Value<'_>> {
    if labels.len() > MAX_INDEXED_LABELS {
        return vec![Value::ManyLabels];
    }
    labels.iter().map(|(key, value)| Value::Label(key, value)).collect()
}

/// Groups adjacent Pods of a namespace that have a section in common, and returns the positions of each group with its
/// first Pod. Pods of one owner are adjacent and have the same labels and owners, so these are decoded once for a
/// group.
fn groups_with_equal(pods: &[Arc<CachedPod>], section: Section) -> impl Iterator<Item = (Range<Position>, &CachedPod)> {
    let mut next = 0;
    let is_alike = move |one: &Arc<CachedPod>, other: &Arc<CachedPod>| {
        one.key.namespace == other.key.namespace && one.has_in_common(other, section)
    };
    pods.chunk_by(is_alike).filter_map(move |alike| {
        let first = next;
        next += alike.len() as Position;
        Some((first..next, &**alike.first()?))
    })
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
