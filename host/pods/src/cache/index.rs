//! Membership indexes: they map a value, such as a node's name, to the Pods that have it.
//!
//! Each namespace has its own sets, so the entry that answers a query of one namespace has only Pods of this namespace:
//! neither the answer nor the time depends on which values Pods of other namespaces have. A query of the whole cluster
//! looks in the namespaces that have the value.
//!
//! The indexes store positions instead of Pods, so an event that changes no indexed value of a Pod does not change
//! them. All are persistent: a clone shares everything, and a change copies one path.

use std::{
    borrow::Cow,
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    hash::BuildHasher,
    ops::Range,
    sync::Arc,
};

use foldhash::quality::FixedState;
use imbl::OrdMap;
use podium_wire::{Labels, Owner, Section, SectionSet, Workload};
use smallvec::SmallVec;

use super::{
    hash_index::HashIndex,
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
    /// Kind and name, as [`Workload::owner_text`] returns them.
    Workload(&'a str),
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
/// the way to it do not depend on similar texts. The entries of a namespace are next to each other, so a change of a
/// Pod copies few nodes of the map.
type Fingerprint = [u64; 2];

/// The Pods of one value: a set for each namespace with such Pods.
pub(super) type Sets<'a> = SmallVec<[Cow<'a, PositionSet>; 1]>;

/// All indexes of a snapshot. A selector may name any label, so every label is indexed by key and value, except those
/// of Pods with more than [`MAX_INDEXED_LABELS`]: a search by label examines each of these Pods.
#[derive(Debug, Clone)]
pub(super) struct Indexes {
    hashers: [FixedState; 2],
    /// The Pods of a value in one namespace, once a second one had it. No set is empty.
    within: OrdMap<Fingerprint, PositionSet>,
    /// The Pods of values that one Pod of a namespace has, by a hash of both. Most values of a Pod that has many of its
    /// own are here; the Pod is asked for them.
    single: HashIndex,
    /// The first Pod of each value in each namespace, by a hash of the value: where a search of the cluster looks.
    first: HashIndex,
    /// The Pods of each node.
    nodes: OrdMap<Fingerprint, PositionSet>,
}

impl Indexes {
    pub(super) fn new(seed: u64) -> Self {
        // Any other number that follows from the seed makes the halves of a fingerprint independent.
        let hashers = [seed, !seed.rotate_left(32)].map(FixedState::with_seed);
        let single = HashIndex::default();
        let first = HashIndex::default();
        Self { hashers, within: OrdMap::new(), single, first, nodes: OrdMap::new() }
    }

    fn within(&self, namespace: &str, value: Value<'_>) -> Fingerprint {
        let [first, second] = &self.hashers;
        [first.hash_one(namespace), second.hash_one((namespace, value))]
    }

    fn everywhere(&self, value: Value<'_>) -> Fingerprint {
        self.hashers.each_ref().map(|hasher| hasher.hash_one(value))
    }

    /// Returns the Pods that have the value, in one namespace or in the whole cluster, in the order of namespaces.
    pub(super) fn get(&self, pods: &Pods, namespace: Option<&str>, value: Value<'_>) -> Sets<'_> {
        if let Some(namespace) = namespace {
            return self.get_within(pods, namespace, value).into_iter().collect();
        }
        let everywhere = self.everywhere(value);
        if let Value::Node(_) = value {
            return self.nodes.get(&everywhere).map(Cow::Borrowed).into_iter().collect();
        }
        // Pods of other values may have the same hash.
        let firsts = self.first.get(short(everywhere)).filter_map(|position| pods.get(position));
        let namespaces: BTreeSet<Arc<str>> = firsts.map(|pod| Arc::clone(pod.namespace())).collect();
        namespaces.iter().filter_map(|namespace| self.get_within(pods, namespace, value)).collect()
    }

    fn get_within(&self, pods: &Pods, namespace: &str, value: Value<'_>) -> Option<Cow<'_, PositionSet>> {
        let within = self.within(namespace, value);
        if let Some(set) = self.within.get(&within) {
            return Some(Cow::Borrowed(set));
        }
        let single = self.single(pods, namespace, value, short(within)).next()?;
        Some(Cow::Owned(PositionSet::from_ordered(&[single])))
    }

    /// Returns the single Pod that has a value in a namespace.
    fn single(&self, pods: &Pods, namespace: &str, value: Value<'_>, hash: u32) -> impl Iterator<Item = Position> {
        self.single.get(hash).filter(move |position| {
            let pod = pods.get(*position).filter(|pod| **pod.namespace() == *namespace).map(|pod| pod.pod());
            pod.is_some_and(|pod| has(&pod, value))
        })
    }

    fn insert(
        &mut self,
        pods: &Pods,
        namespace: &str,
        value: Value<'_>,
        position: Position,
        place: impl Fn(Position) -> Ordering,
    ) {
        let within = self.within(namespace, value);
        let everywhere = self.everywhere(value);
        if let Value::Node(_) = value {
            return self.nodes.entry(everywhere).or_default().insert(position, place);
        }
        // A map copies the path to a key also if it does not have the key.
        if self.within.contains_key(&within) {
            return self.change(within, everywhere, |set| set.insert(position, place));
        }
        // The Pod may have another value with this hash.
        let other = self.single(pods, namespace, value, short(within)).find(|other| *other != position);
        let Some(other) = other else {
            self.single.insert(short(within), position);
            return self.first.insert(short(everywhere), position);
        };
        self.single.remove(short(within), other);
        self.within.insert(within, PositionSet::from_ordered(&[other]));
        self.change(within, everywhere, |set| set.insert(position, place));
    }

    fn remove(&mut self, namespace: &str, value: Value<'_>, position: Position, place: impl Fn(Position) -> Ordering) {
        let within = self.within(namespace, value);
        let everywhere = self.everywhere(value);
        if let Value::Node(_) = value {
            if let Some(set) = self.nodes.get_mut(&everywhere) {
                set.remove(position, place);
                if set.is_empty() {
                    self.nodes.remove(&everywhere);
                }
            }
        } else if self.within.contains_key(&within) {
            self.change(within, everywhere, |set| set.remove(position, place));
        } else {
            self.single.remove(short(within), position);
            self.first.remove(short(everywhere), position);
        }
    }

    /// Changes the set of a value in a namespace, which the map has, and removes it if it is empty then.
    fn change(&mut self, within: Fingerprint, everywhere: Fingerprint, change: impl FnOnce(&mut PositionSet)) {
        let Some(set) = self.within.get_mut(&within) else { return };
        let before = set.iter().next();
        change(set);
        let after = set.iter().next();
        if after.is_none() {
            self.within.remove(&within);
        }
        if before != after {
            before.into_iter().for_each(|first| self.first.remove(short(everywhere), first));
            after.into_iter().for_each(|first| self.first.insert(short(everywhere), first));
        }
    }

    /// Builds the indexes of Pods in their order, with the same seed; their positions are numbered from 0.
    pub(super) fn rebuild(&self, pods: &[Arc<CachedPod>]) -> Self {
        let mut within = OrdMap::new();
        let mut nodes = OrdMap::new();
        let mut single = Vec::new();
        let mut first = Vec::new();
        let mut found = Found::default();
        for (position, pod) in (0..).zip(pods) {
            if let Some(node) = pod.node() {
                found.add(self.everywhere(Value::Node(&node)), position..position + 1, || 0);
            }
        }
        found.sets(|node, _, positions| Some((node, PositionSet::from_ordered(positions))), &mut nodes);
        let mut start = 0;
        // One namespace after the other: less memory is needed at once.
        for pods in pods.chunk_by(|one, other| one.key.namespace == other.key.namespace) {
            let mut add = |positions: Range<Position>, pod: &CachedPod, value: Value<'_>| {
                let positions = start + positions.start..start + positions.end;
                found.add(self.within(&pod.key.namespace, value), positions, || short(self.everywhere(value)));
            };
            for (position, pod) in (0..).zip(pods) {
                add(position..position + 1, pod, Value::Phase(pod.phase()));
            }
            for (positions, pod) in groups_with_equal(pods, Section::Labels) {
                let labels = labels(Some(pod));
                for value in values_of(&labels) {
                    add(positions.clone(), pod, value);
                }
            }
            for (positions, pod) in groups_with_equal(pods, Section::Owners) {
                let owners = pod.owners().unwrap_or_default();
                for uid in uids(&owners) {
                    add(positions.clone(), pod, Value::Owner(uid));
                }
                let Some(controller) = Workload::controller(&owners) else { continue };
                if !Workload::needs_labels(controller) {
                    let workload = Workload::above(controller, &Labels::new());
                    add(positions, pod, Value::Workload(&workload.owner_text()));
                    continue;
                }
                let alike = &pods[positions.start as usize..positions.end as usize];
                for (of_alike, pod) in groups_with_equal(alike, Section::Labels) {
                    let workload = Workload::above(controller, &labels(Some(pod))).owner_text();
                    let [start, end] = [of_alike.start, of_alike.end].map(|position| positions.start + position);
                    add(start..end, pod, Value::Workload(&workload));
                }
            }
            let set = |value, everywhere, positions: &[Position]| {
                first.push((everywhere, positions[0]));
                if let [only] = positions {
                    single.push((short(value), *only));
                    return None;
                }
                Some((value, PositionSet::from_ordered(positions)))
            };
            found.sets(set, &mut within);
            start += pods.len() as Position;
        }
        let single = HashIndex::from_entries(&single);
        let first = HashIndex::from_entries(&first);
        Self { hashers: self.hashers.clone(), within, single, first, nodes }
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
                self.insert(pods, &key.namespace, *value, position, place);
            }
        };
        if sections.contains(Section::Spec) {
            let from = old.and_then(CachedPod::node);
            let to = new.and_then(CachedPod::node);
            change(from.as_deref().map(Value::Node).as_slice(), to.as_deref().map(Value::Node).as_slice());
        }
        if sections.contains(Section::Status) {
            let from = old.map(CachedPod::phase);
            let to = new.map(CachedPod::phase);
            change(from.map(Value::Phase).as_slice(), to.map(Value::Phase).as_slice());
        }
        let changes_labels = sections.contains(Section::Labels);
        if !changes_labels && !sections.contains(Section::Owners) {
            return;
        }
        let [from, to] = [old, new].map(labels);
        if changes_labels {
            change(&values_of(&from), &values_of(&to));
        }
        if sections.contains(Section::Owners) || Workload::may_differ(&from, &to) {
            let [from, to] = [(old, from), (new, to)].map(|(pod, labels)| Owned::new(pod, &labels));
            change(&from.values(), &to.values());
        }
    }
}

/// The positions of values, collected before their sets are made.
#[derive(Default)]
struct Found {
    numbers: BTreeMap<Fingerprint, usize>,
    /// A value's hash in the whole cluster, and its positions. Those beyond the number of values are empty, and keep
    /// their capacity: memory that is freed between the sets would leave gaps.
    values: Vec<(u32, Vec<Position>)>,
}

impl Found {
    /// Adds positions of a value; `everywhere` returns its hash in the whole cluster.
    fn add(&mut self, value: Fingerprint, positions: Range<Position>, everywhere: impl FnOnce() -> u32) {
        let next = self.numbers.len();
        let number = *self.numbers.entry(value).or_insert(next);
        if number == self.values.len() {
            self.values.push(Default::default());
        }
        let (hash, all) = &mut self.values[number];
        if all.is_empty() {
            *hash = everywhere();
        }
        all.extend(positions);
    }

    /// Adds the sets that `set` returns for the values, and forgets all.
    fn sets(
        &mut self,
        mut set: impl FnMut(Fingerprint, u32, &[Position]) -> Option<(Fingerprint, PositionSet)>,
        sets: &mut OrdMap<Fingerprint, PositionSet>,
    ) {
        // In order, a node of the map is split when it is full and stays half full. The second half fills them.
        for odd in [0, 1] {
            for number in self.numbers.iter().skip(odd).step_by(2) {
                let (value, (everywhere, positions)) = (*number.0, &mut self.values[*number.1]);
                sets.extend(set(value, *everywhere, positions));
                positions.clear();
            }
        }
        self.numbers.clear();
    }
}

/// Returns the part of a fingerprint that a hash index has.
fn short([_, hash]: Fingerprint) -> u32 {
    hash as u32
}

/// Returns true if the Pod has the value.
fn has(pod: &CachedPod, value: Value<'_>) -> bool {
    match value {
        Value::Node(node) => pod.node().as_deref() == Some(node),
        Value::Owner(uid) => pod.owner_uids().iter().any(|owner| **owner == *uid),
        Value::Workload(text) => {
            pod.workload(|| labels(Some(pod))).is_some_and(|workload| workload.owner_text() == text)
        }
        Value::Phase(phase) => pod.phase() == phase,
        Value::Label(..) | Value::ManyLabels => values_of(&labels(Some(pod))).contains(&value),
    }
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

/// Returns the uids of owners in order and without duplicates: an object may name an owner twice.
fn uids(owners: &[Owner]) -> Vec<&str> {
    let mut uids: Vec<_> = owners.iter().map(|owner| &*owner.uid).collect();
    uids.sort_unstable();
    uids.dedup();
    uids
}

/// The owners of a Pod and its workload.
struct Owned {
    owners: Vec<Owner>,
    workload: Option<String>,
}

impl Owned {
    fn new(pod: Option<&CachedPod>, labels: &Labels) -> Self {
        let owners = pod.and_then(|pod| pod.owners().ok()).unwrap_or_default();
        let controller = Workload::controller(&owners);
        let workload = controller.map(|controller| Workload::above(controller, labels).owner_text());
        Self { owners, workload }
    }

    /// Returns the indexed values, in order.
    fn values(&self) -> Vec<Value<'_>> {
        let uids = uids(&self.owners).into_iter().map(Value::Owner);
        uids.chain(self.workload.as_deref().map(Value::Workload)).collect()
    }
}

#[cfg(test)]
mod tests {
    use podium_vocabulary::{LabelOperator, LabelRequirement, LabelSelector, PodQuery, Revision};

    use super::*;
    use crate::{
        cache::{self, Reader},
        pod::{PodEvent, PodView, Record},
    };

    fn pod(namespace: &str, name: &str, revision: u64, label: Option<(&str, &str)>) -> Arc<CachedPod> {
        let mut pod = podium_wire::Pod::default();
        let header = &mut pod.header;
        header.namespace = namespace.into();
        header.name = name.into();
        header.uid = format!("u-{namespace}-{name}");
        header.resource_version = revision.to_string();
        pod.labels.extend(label.map(|(key, value)| (key.to_owned(), value.to_owned())));
        Arc::new(CachedPod::new(&pod).unwrap())
    }

    /// Returns the Pods with a label in the whole cluster, and those in the namespace `shop`.
    fn found(reader: &Reader, key: &str, value: &str) -> [String; 2] {
        let operator = LabelOperator::In;
        let values = vec![value.to_owned()];
        let labels = LabelSelector(vec![LabelRequirement { key: key.to_owned(), operator, values }]);
        [None, Some("shop".into())].map(|namespace| {
            let pods = reader.snapshot().find(
                &PodQuery { labels: labels.clone(), namespace, ..PodQuery::default() },
                10,
                None,
            );
            pods.pods.iter().map(|pod| format!("{}/{}", pod.key.namespace, pod.key.name)).collect::<Vec<_>>().join(" ")
        })
    }

    /// Returns the numbers of sets, of values that one Pod of a namespace has, and of values, without the phase, which
    /// all Pods have.
    fn sizes(reader: &Reader) -> [usize; 3] {
        let Indexes { within, single, first, .. } = &reader.snapshot().indexes;
        [within.len() - 1, single.len(), first.len() - 1]
    }

    #[test]
    fn a_value_of_one_pod_of_a_namespace_has_no_set_until_a_second_one_has_it() {
        let (mut writer, reader) = cache::new(7);
        let listed = ["a", "b"].map(|name| Record::from(pod("shop", name, 1, Some((name, "x")))));
        writer.relist(listed.into_iter().collect(), Revision(2)).publish();
        assert_eq!((found(&reader, "a", "x"), sizes(&reader)), (["shop/a", "shop/a"].map(Into::into), [0, 2, 2]));
        let mut apply = |name: &str, revision: u64, label: Option<(&str, &str)>, deleted: bool| {
            let pod = pod("shop", name, revision, label);
            writer.apply(vec![if deleted { PodEvent::deleted(pod) } else { PodEvent::applied(pod) }]).publish();
        };
        apply("c", 3, Some(("a", "x")), false);
        assert_eq!((found(&reader, "a", "x")[0].as_str(), sizes(&reader)), ("shop/a shop/c", [1, 1, 2]));
        apply("d", 4, Some(("a", "x")), false);
        assert_eq!((found(&reader, "a", "x")[0].as_str(), sizes(&reader)), ("shop/a shop/c shop/d", [1, 1, 2]));
        // The first one is another Pod then.
        apply("a", 5, None, false);
        assert_eq!((found(&reader, "a", "x")[0].as_str(), sizes(&reader)), ("shop/c shop/d", [1, 1, 2]));
        apply("c", 6, Some(("a", "x")), true);
        assert_eq!((found(&reader, "a", "x")[1].as_str(), sizes(&reader)), ("shop/d", [1, 1, 2]));
        apply("d", 7, Some(("a", "y")), false);
        assert_eq!((found(&reader, "a", "x")[0].as_str(), sizes(&reader)), ("", [0, 2, 2]));
        assert_eq!(found(&reader, "a", "y")[0], "shop/d");
    }

    #[test]
    fn a_search_of_the_cluster_finds_a_value_in_each_namespace() {
        let (mut writer, reader) = cache::new(7);
        let mut apply = |namespace: &str, name: &str, label: Option<(&str, &str)>, revision: u64| {
            writer.apply(vec![PodEvent::applied(pod(namespace, name, revision, label))]).publish();
        };
        for (namespace, revision) in [("shop", 1), ("bank", 3), ("cart", 5)] {
            apply(namespace, "b", Some(("app", "web")), revision);
            apply(namespace, "a", Some(("app", "web")), revision + 1);
        }
        apply("bank", "a", None, 20);
        apply("cart", "a", None, 21);
        apply("cart", "b", Some(("app", "api")), 22);
        assert_eq!(found(&reader, "app", "web"), ["bank/b shop/a shop/b", "shop/a shop/b"]);
        assert_eq!(found(&reader, "app", "api"), ["cart/b", ""]);
    }
}
