//! The Pods of each label. Most labels of a cluster belong to many Pods; but a Pod may have labels that no other has, a
//! StatefulSet's Pods have one each, and the strings and nodes of a map take twenty times the bytes of a position.
//!
//! A label that two Pods had is in a map until no Pod has it. A label of one Pod is in a hash index, and the Pod is
//! asked for its labels when the label is looked up.

use std::{borrow::Cow, cmp::Ordering, collections::BTreeMap, sync::Arc};

use imbl::OrdMap;

use super::{
    hash_index::HashIndex,
    index::{Index, labels},
    position_set::{Position, PositionSet},
    snapshot::Pods,
};

/// Persistent: a clone shares everything.
#[derive(Debug, Clone, Default)]
pub(super) struct LabelIndex {
    /// By key, then value.
    shared: OrdMap<Arc<str>, Index>,
    /// By the hash of key and value. None of these labels is in `shared`.
    single: HashIndex,
}

impl LabelIndex {
    /// Builds an index from the positions of each value of each key, which must be in order.
    pub(super) fn from_positions(labels: BTreeMap<String, BTreeMap<String, Vec<Position>>>, pods: &Pods) -> Self {
        let mut single = Vec::new();
        let shared = labels.into_iter().filter_map(|(key, mut values)| {
            values.retain(|value, positions| match positions[..] {
                [only] => {
                    single.push((pods.label_hash(&key, value), only));
                    false
                }
                _ => true,
            });
            let values = values.iter().map(|(value, positions)| (&**value, positions.clone()));
            let index = Index::from_positions(values);
            (!index.is_empty()).then(|| (Arc::from(key.as_str()), index))
        });
        Self { shared: shared.collect(), single: HashIndex::from_entries(&single) }
    }

    /// Returns the Pods with a label, or `None` if there is none.
    pub(super) fn get(&self, pods: &Pods, key: &str, value: &str) -> Option<Cow<'_, PositionSet>> {
        if let Some(set) = self.shared.get(key).and_then(|values| values.get(value)) {
            return Some(Cow::Borrowed(set));
        }
        let only = self.singles(pods, key, value).next()?;
        Some(Cow::Owned(PositionSet::from_ordered(&[only])))
    }

    /// Adds a Pod that did not have the label before. `place` compares the Pod of another position with this one.
    pub(super) fn insert(
        &mut self,
        pods: &Pods,
        position: Position,
        (key, value): (&str, &str),
        place: impl Fn(Position) -> Ordering,
    ) {
        if let Some(set) = self.shared.get_mut(key).and_then(|values| values.get_mut(value)) {
            return set.insert(position, place);
        }
        let hash = pods.label_hash(key, value);
        // The Pod may have another label with this hash.
        let first = self.singles(pods, key, value).find(|first| *first != position);
        let Some(first) = first else { return self.single.insert(hash, position) };
        self.single.remove(hash, first);
        let values = match self.shared.get_mut(key) {
            Some(values) => values,
            None => self.shared.entry(key.into()).or_default(),
        };
        values.insert(value, first, |_| Ordering::Equal);
        values.insert(value, position, place);
    }

    /// Removes a Pod that had the label.
    pub(super) fn remove(
        &mut self,
        pods: &Pods,
        position: Position,
        (key, value): (&str, &str),
        place: impl Fn(Position) -> Ordering,
    ) {
        let Some(values) = self.shared.get_mut(key).filter(|values| values.get(value).is_some()) else {
            return self.single.remove(pods.label_hash(key, value), position);
        };
        values.remove(value, position, place);
        if values.is_empty() {
            self.shared.remove(key);
        }
    }

    /// Returns the Pod with a label that no other Pod has.
    fn singles(&self, pods: &Pods, key: &str, value: &str) -> impl Iterator<Item = Position> {
        self.single.get(pods.label_hash(key, value)).filter(move |position| {
            let pod = pods.get(*position).map(|pod| pod.pod());
            labels(pod.as_deref()).get(key).is_some_and(|other| other == value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cache::{self, Reader},
        model::{LabelOperator, LabelRequirement, LabelSelector, PodQuery, Revision},
        pod::{CachedPod, PodEvent, PodView, Record},
    };

    fn pod(name: &str, revision: u64, label: Option<(&str, &str)>) -> Arc<CachedPod> {
        let mut pod = podium_wire::Pod::default();
        (pod.header.namespace, pod.header.name, pod.header.uid) = ("shop".into(), name.into(), format!("u-{name}"));
        pod.header.resource_version = revision.to_string();
        pod.labels.extend(label.map(|(key, value)| (key.to_owned(), value.to_owned())));
        Arc::new(CachedPod::new(&pod).unwrap())
    }

    /// Returns the names of the Pods with a label, and the numbers of shared labels and of those of one Pod.
    fn found(reader: &Reader, key: &str, value: &str) -> (String, usize, usize) {
        let (operator, values) = (LabelOperator::In, vec![value.to_owned()]);
        let labels = LabelSelector(vec![LabelRequirement { key: key.to_owned(), operator, values }]);
        let snapshot = reader.snapshot();
        let pods = snapshot.find(&PodQuery { labels, ..PodQuery::default() }, 10, None).pods;
        let names: Vec<_> = pods.iter().map(|pod| &*pod.key.name).collect();
        let index = &snapshot.indexes.labels;
        (names.join(" "), index.shared.len(), index.single.len())
    }

    #[test]
    fn a_label_of_one_pod_is_found_without_a_map_until_a_second_pod_has_it() {
        let (mut writer, reader) = cache::new(7);
        let listed = ["a", "b"].map(|name| Record::from(pod(name, 1, Some((name, "x")))));
        writer.relist(listed.into_iter().collect(), Revision(2)).publish();
        assert_eq!(found(&reader, "a", "x"), ("a".to_owned(), 0, 2));
        assert_eq!(found(&reader, "a", "y"), (String::new(), 0, 2));
        let mut apply = |name: &str, revision: u64, label: Option<(&str, &str)>, deleted: bool| {
            let pod = pod(name, revision, label);
            let event = if deleted { PodEvent::deleted(pod) } else { PodEvent::applied(pod) };
            writer.apply(vec![event]).publish();
        };
        apply("c", 3, Some(("a", "x")), false);
        assert_eq!(found(&reader, "a", "x"), ("a c".to_owned(), 1, 1));
        // The other value of the key is one Pod's.
        apply("d", 4, Some(("a", "y")), false);
        assert_eq!(found(&reader, "a", "y"), ("d".to_owned(), 1, 2));
        apply("d", 5, Some(("a", "x")), false);
        assert_eq!(found(&reader, "a", "x"), ("a c d".to_owned(), 1, 1));
        assert_eq!(found(&reader, "a", "y"), (String::new(), 1, 1));
        apply("a", 6, None, false);
        apply("c", 7, Some(("a", "x")), true);
        assert_eq!(found(&reader, "a", "x"), ("d".to_owned(), 1, 1));
        apply("d", 8, None, false);
        assert_eq!(found(&reader, "a", "x"), (String::new(), 0, 1));
        apply("b", 9, None, true);
        assert_eq!(found(&reader, "b", "x"), (String::new(), 0, 0));
        apply("e", 10, Some(("a", "x")), false);
        assert_eq!(found(&reader, "a", "x"), ("e".to_owned(), 0, 1));
    }

    #[test]
    fn a_list_has_shared_labels_and_those_of_one_pod() {
        let (mut writer, reader) = cache::new(7);
        let label = |name: &str| if name == "c" { ("k", "own") } else { ("k", "all") };
        let listed = ["a", "b", "c"].map(|name| Record::from(pod(name, 1, Some(label(name)))));
        writer.relist(listed.into_iter().collect(), Revision(2)).publish();
        assert_eq!(found(&reader, "k", "all"), ("a b".to_owned(), 1, 1));
        assert_eq!(found(&reader, "k", "own"), ("c".to_owned(), 1, 1));
    }
}
