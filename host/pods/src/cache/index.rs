//! Membership indexes: they map a value, such as a node's name, to the Pods that have it.
//!
//! The indexes store positions instead of Pods, so an event that changes no indexed value of a Pod does not change
//! them. All are persistent: a clone shares everything, and a change copies one path.

use std::{cmp::Ordering, collections::BTreeMap, ops::Range, sync::Arc};

use imbl::OrdMap;
use podium_wire::{Labels, Section, SectionSet};

use super::{
    label_index::LabelIndex,
    position_set::{Position, PositionSet},
    snapshot::Pods,
};
use crate::pod::CachedPod;

/// The Pods of each value. No set is empty.
#[derive(Debug, Clone)]
pub(super) enum Index {
    /// At most one value, without a map: many keys of labels have one, and a map takes more than a kilobyte.
    One(Option<(Arc<str>, PositionSet)>),
    Many(OrdMap<Arc<str>, PositionSet>),
}

impl Default for Index {
    fn default() -> Self {
        Self::One(None)
    }
}

impl Index {
    pub(super) fn get(&self, value: &str) -> Option<&PositionSet> {
        match self {
            Self::One(one) => one.as_ref().filter(|(only, _)| **only == *value).map(|(_, set)| set),
            Self::Many(sets) => sets.get(value),
        }
    }

    pub(super) fn get_mut(&mut self, value: &str) -> Option<&mut PositionSet> {
        match self {
            Self::One(one) => one.as_mut().filter(|(only, _)| **only == *value).map(|(_, set)| set),
            Self::Many(sets) => sets.get_mut(value),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::One(one) => one.is_none(),
            Self::Many(sets) => sets.is_empty(),
        }
    }

    pub(super) fn insert(&mut self, value: &str, position: Position, place: impl Fn(Position) -> Ordering) {
        if let Some(set) = self.get_mut(value) {
            return set.insert(position, place);
        }
        let mut set = PositionSet::default();
        set.insert(position, place);
        match self {
            Self::One(one) => match one.take() {
                None => *one = Some((value.into(), set)),
                Some(first) => *self = Self::Many([first, (value.into(), set)].into_iter().collect()),
            },
            Self::Many(sets) => _ = sets.insert(value.into(), set),
        }
    }

    /// Builds an index from the positions of each value, which must be in order.
    pub(super) fn from_positions<'a>(values: impl IntoIterator<Item = (&'a str, Vec<Position>)>) -> Self {
        let mut sets = values
            .into_iter()
            .map(|(value, positions)| (Arc::<str>::from(value), PositionSet::from_ordered(&positions)));
        match (sets.next(), sets.next()) {
            (one, None) => Self::One(one),
            (first, second) => Self::Many(first.into_iter().chain(second).chain(sets).collect()),
        }
    }

    pub(super) fn remove(&mut self, value: &str, position: Position, place: impl Fn(Position) -> Ordering) {
        let Some(set) = self.get_mut(value) else { return };
        set.remove(position, place);
        if set.is_empty() {
            match self {
                Self::One(one) => *one = None,
                Self::Many(sets) => _ = sets.remove(value),
            }
        }
    }
}

/// The most labels of a Pod that are indexed. Kubernetes has no limit of its own except the size of the object, with
/// which a Pod may have 100,000 labels, each with its own key.
pub(super) const MAX_INDEXED_LABELS: usize = 64;

/// All indexes of a snapshot. A selector may name any label, so every label is indexed by key and value, except those
/// of Pods with more than [`MAX_INDEXED_LABELS`]: a search by label examines each of these Pods.
#[derive(Debug, Clone, Default)]
pub(super) struct Indexes {
    pub(super) nodes: Index,
    pub(super) owners: Index,
    pub(super) phases: Index,
    pub(super) labels: LabelIndex,
    /// The Pods with too many labels; none of them is in `labels`.
    pub(super) many_labels: PositionSet,
}

impl Indexes {
    /// Builds the indexes of Pods in their order; their positions are numbered from 0. `stored` hashes labels.
    pub(super) fn from_pods(pods: &[Arc<CachedPod>], stored: &Pods) -> Self {
        let (mut nodes, mut phases, mut owners) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::<String, Vec<Position>>::new());
        let mut labelled: BTreeMap<String, BTreeMap<String, Vec<Position>>> = BTreeMap::new();
        for (position, pod) in (0..).zip(pods) {
            if let Some(node) = pod.node() {
                add(&mut nodes, &node, position);
            }
            add(&mut phases, pod.phase(), position);
        }
        let mut many_labels = Vec::new();
        for (positions, pod) in groups_with_equal(pods, Section::Labels) {
            let labels = labels(Some(pod));
            if labels.len() > MAX_INDEXED_LABELS {
                many_labels.extend(positions);
                continue;
            }
            for (key, value) in labels {
                labelled.entry(key).or_default().entry(value).or_default().extend(positions.clone());
            }
        }
        for (positions, pod) in groups_with_equal(pods, Section::Owners) {
            for uid in owner_uids(Some(pod)) {
                owners.entry(uid).or_default().extend(positions.clone());
            }
        }
        Self {
            nodes: Index::from_positions(nodes.iter().map(|(node, positions)| (&**node, positions.clone()))),
            phases: Index::from_positions(phases.iter().map(|(phase, positions)| (&**phase, positions.clone()))),
            owners: Index::from_positions(owners.iter().map(|(uid, positions)| (&**uid, positions.clone()))),
            labels: LabelIndex::from_positions(labelled, stored),
            many_labels: PositionSet::from_ordered(&many_labels),
        }
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
        if sections.contains(Section::Spec) {
            let (from, to) = (old.and_then(CachedPod::node), new.and_then(CachedPod::node));
            if from != to {
                from.into_iter().for_each(|node| self.nodes.remove(&node, position, place));
                to.into_iter().for_each(|node| self.nodes.insert(&node, position, place));
            }
        }
        if sections.contains(Section::Status) {
            let (from, to) = (old.map(CachedPod::phase), new.map(CachedPod::phase));
            if from != to {
                from.into_iter().for_each(|phase| self.phases.remove(phase, position, place));
                to.into_iter().for_each(|phase| self.phases.insert(phase, position, place));
            }
        }
        if sections.contains(Section::Owners) {
            let (from, to) = (owner_uids(old), owner_uids(new));
            from.iter()
                .filter(|uid| to.binary_search(uid).is_err())
                .for_each(|uid| self.owners.remove(uid, position, place));
            to.iter()
                .filter(|uid| from.binary_search(uid).is_err())
                .for_each(|uid| self.owners.insert(uid, position, place));
        }
        if sections.contains(Section::Labels) {
            let (from, to) = (labels(old), labels(new));
            let is_many = |labels: &Labels| labels.len() > MAX_INDEXED_LABELS;
            match (is_many(&from), is_many(&to)) {
                (true, false) => self.many_labels.remove(position, place),
                (false, true) => self.many_labels.insert(position, place),
                _ => {}
            }
            let indexed = |labels| if is_many(&labels) { Labels::new() } else { labels };
            let (from, to) = (indexed(from), indexed(to));
            for (key, value) in from.iter().filter(|(key, value)| to.get(*key) != Some(value)) {
                self.labels.remove(pods, position, (key, value), place);
            }
            for (key, value) in to.iter().filter(|(key, value)| from.get(*key) != Some(value)) {
                self.labels.insert(pods, position, (key, value), place);
            }
        }
    }
}

/// Groups adjacent Pods that have a section in common, and returns the positions of each group with its first Pod.
/// Pods of one owner are adjacent and have the same labels and owners, so these are decoded once for a group.
fn groups_with_equal(pods: &[Arc<CachedPod>], section: Section) -> impl Iterator<Item = (Range<Position>, &CachedPod)> {
    let mut next = 0;
    pods.chunk_by(move |one, other| one.has_in_common(other, section)).filter_map(move |alike| {
        let first = next;
        next += alike.len() as Position;
        Some((first..next, &**alike.first()?))
    })
}

fn add(values: &mut BTreeMap<String, Vec<Position>>, value: &str, position: Position) {
    match values.get_mut(value) {
        Some(positions) => positions.push(position),
        None => _ = values.insert(value.to_owned(), vec![position]),
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
