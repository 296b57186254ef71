//! Answers queries: candidates come from the index that leaves the fewest, and the rest of the query filters them.
//!
//! A label index answers equality and sets of values. Existence, absence and exclusion are filtered.
//!
//! A query of one namespace is answered from the Pods of that namespace only: the choice of the index, the number of
//! Pods examined and the result are the same whatever Pods other namespaces have. Plugins can observe the cost through
//! their search budget, so it must not depend on Pods that they may not see. Only the time can differ: a binary search
//! over the whole set of an index finds the start of the namespace, in a few microseconds at most.

use std::{cmp::Ordering, iter::Peekable, ops::Bound, sync::Arc};

use super::{
    index::labels,
    position_set::{Position, PositionSet},
    snapshot::{Pods, Snapshot},
};
use crate::{
    model::{Cursor, LabelOperator, LabelRequirement, PodQuery},
    pod::{CachedPod, Slice},
};

/// The set that candidates are taken from.
enum Source<'a> {
    Everything,
    Namespace(&'a PositionSet),
    /// The sets of several values of an index; they do not overlap.
    Index(Vec<&'a PositionSet>),
}

/// The condition of the query that every candidate of the source satisfies and that is not filtered again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Satisfied {
    Nothing,
    Node,
    Owner,
    Phase,
    /// The label requirement with this index.
    Label(usize),
}

type Positions<'a> = Box<dyn Iterator<Item = Position> + 'a>;

impl Snapshot {
    pub(super) fn slice_of(&self, query: &PodQuery, limit: usize, most: usize, after: Option<&Cursor>) -> Slice {
        let (source, satisfied) = self.source(query);
        let candidates = match source {
            Source::Everything => self.walk(after),
            Source::Namespace(set) => self.walk_namespace(set, query.namespace.as_ref(), after),
            Source::Index(sets) => self.walk_index(&sets, query.namespace.as_deref(), after),
        };
        let (mut slice, mut last) = (Slice::default(), None);
        for slot in candidates {
            if slice.pods.len() == limit || slice.examined == most {
                slice.next = last.map(|last: Arc<CachedPod>| last.cursor()).or_else(|| after.cloned());
                break;
            }
            slice.examined += 1;
            let Some(pod) = self.pods.get(slot).map(|pod| pod.pod()) else { continue };
            if matches(query, satisfied, &pod) {
                slice.pods.push(Arc::clone(&pod));
            }
            last = Some(pod);
        }
        slice
    }

    pub(super) fn count_without_search(&self, query: &PodQuery) -> Option<usize> {
        let PodQuery { namespace, node, owner_uid, phase, labels } = query;
        if node.is_some() || owner_uid.is_some() || phase.is_some() || !labels.0.is_empty() {
            return None;
        }
        Some(match namespace {
            Some(namespace) => self.namespaces.get(namespace).map_or(0, PositionSet::len),
            None => self.len(),
        })
    }

    fn source<'a>(&'a self, query: &PodQuery) -> (Source<'a>, Satisfied) {
        let mut size = self.len();
        let mut best = (Source::Everything, Satisfied::Nothing);
        if let Some(namespace) = &query.namespace {
            let Some(set) = self.namespaces.get(namespace) else {
                return (Source::Index(Vec::new()), Satisfied::Nothing);
            };
            size = set.len();
            best = (Source::Namespace(set), Satisfied::Nothing);
        }
        let mut offer = |sets: Vec<&'a PositionSet>, satisfied| {
            let candidates = self.count_candidates(&sets, query);
            if candidates <= size {
                size = candidates;
                best = (Source::Index(sets), satisfied);
            }
        };
        // Among sets of equal size the last one wins: its condition costs the most to filter by.
        if let Some(phase) = &query.phase {
            offer(self.indexes.phases.get(phase).into_iter().collect(), Satisfied::Phase);
        }
        if let Some(node) = &query.node {
            offer(self.indexes.nodes.get(node).into_iter().collect(), Satisfied::Node);
        }
        if let Some(uid) = &query.owner_uid {
            offer(self.indexes.owners.get(uid).into_iter().collect(), Satisfied::Owner);
        }
        for (at, requirement) in query.labels.0.iter().enumerate() {
            if let LabelRequirement { key, operator: LabelOperator::In, values } = requirement {
                let mut values: Vec<_> = values.iter().collect();
                values.sort_unstable();
                values.dedup();
                let sets = values.into_iter().filter_map(|value| self.indexes.label(key, value)).collect();
                offer(sets, Satisfied::Label(at));
            }
        }
        best
    }

    /// Returns the number of candidates in the sets; for a query of one namespace only Pods of that namespace count.
    fn count_candidates(&self, sets: &[&PositionSet], query: &PodQuery) -> usize {
        let sizes = sets.iter().map(|set| match &query.namespace {
            None => set.len(),
            Some(namespace) => set.count_within(
                |position| self.pods.compare(position, namespace, "") == Ordering::Less,
                |position| self.is_in_namespace(position, namespace),
            ),
        });
        sizes.sum()
    }

    fn is_in_namespace(&self, position: Position, namespace: &str) -> bool {
        self.pods.get(position).is_some_and(|pod| **pod.namespace() == *namespace)
    }

    fn walk<'a>(&'a self, after: Option<&'a Cursor>) -> Positions<'a> {
        let from = after.map_or(Bound::Unbounded, |after| Bound::Included(&*after.namespace));
        let namespaces = self.namespaces.range::<_, str>((from, Bound::Unbounded));
        Box::new(namespaces.flat_map(move |(namespace, set)| self.walk_namespace(set, Some(namespace), after)))
    }

    fn walk_namespace<'a>(
        &'a self,
        set: &'a PositionSet,
        namespace: Option<&Arc<str>>,
        after: Option<&'a Cursor>,
    ) -> Positions<'a> {
        match (namespace, after) {
            (Some(namespace), Some(after)) if after.namespace == *namespace => {
                Box::new(set.iter_from(|position| !is_after(&self.pods, position, after)))
            }
            (Some(namespace), Some(after)) if after.namespace > *namespace => Box::new(std::iter::empty()),
            _ => Box::new(set.iter()),
        }
    }

    fn walk_index<'a>(
        &'a self,
        sets: &[&'a PositionSet],
        namespace: Option<&'a str>,
        after: Option<&'a Cursor>,
    ) -> Positions<'a> {
        let before = move |position| {
            namespace.is_some_and(|namespace| self.pods.compare(position, namespace, "") == Ordering::Less)
                || after.is_some_and(|after| !is_after(&self.pods, position, after))
        };
        let sets = sets.iter().map(|set| set.iter_from(before).peekable()).collect();
        let within =
            move |position: &Position| namespace.is_none_or(|namespace| self.is_in_namespace(*position, namespace));
        Box::new(Merged { sets, pods: &self.pods }.take_while(within))
    }
}

fn is_after(pods: &Pods, position: Position, after: &Cursor) -> bool {
    pods.compare(position, &after.namespace, &after.name) == Ordering::Greater
}

fn matches(query: &PodQuery, satisfied: Satisfied, pod: &CachedPod) -> bool {
    let PodQuery { namespace, node, owner_uid, phase, labels: selector } = query;
    namespace.as_ref().is_none_or(|namespace| pod.key.namespace == *namespace)
        && (satisfied == Satisfied::Node || node.as_ref().is_none_or(|node| pod.node().as_deref() == Some(&**node)))
        && (satisfied == Satisfied::Phase || phase.as_ref().is_none_or(|phase| *pod.phase() == **phase))
        && (satisfied == Satisfied::Owner
            || owner_uid.as_ref().is_none_or(|uid| pod.owner_uids().iter().any(|owner| **owner == **uid)))
        && match (selector.0.len(), satisfied) {
            (0, _) | (1, Satisfied::Label(_)) => true,
            _ => selector.matches(&labels(Some(pod))),
        }
}

/// Merges several ordered sets into one ordered iterator.
struct Merged<'a, I: Iterator> {
    sets: Vec<Peekable<I>>,
    pods: &'a Pods,
}

impl<I: Iterator<Item = Position>> Iterator for Merged<'_, I> {
    type Item = Position;

    fn next(&mut self) -> Option<Position> {
        if let [only] = &mut *self.sets {
            return only.next();
        }
        let pods = self.pods;
        let heads = self.sets.iter_mut().enumerate();
        let heads = heads.filter_map(|(at, positions)| Some((pods.get(*positions.peek()?)?, at)));
        let least =
            heads.min_by(|(one, _), (other, _)| one.compare(other.namespace(), &other.name()).then(Ordering::Less));
        let (_, at) = least?;
        self.sets[at].next()
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        model::{LabelOperator, LabelRequirement, LabelSelector, PodQuery},
        pod::{PodEvent, PodView},
        testing::{cached, pod},
    };

    #[test]
    fn the_index_with_the_fewest_candidates_is_used() {
        let (mut writer, reader) = crate::cache::new(7);
        // Each field has the value "true" in half as many Pods as the field before it.
        for at in 0..16 {
            let (mut pod, word) =
                (pod(&format!("p{at:02}"), &format!("u{at}"), at + 1, "x"), |of| (at < of).to_string());
            pod.spec.node_name = Some(word(8));
            pod.owners[0].uid = word(4);
            pod.status.phase = word(2);
            pod.labels = [("app".to_owned(), word(1))].into();
            writer.apply(vec![PodEvent::applied(cached(&pod))]).publish();
        }
        let snapshot = reader.snapshot();
        let [node, owner_uid, phase] = [0; 3].map(|_| Some("true".into()));
        let labels = LabelSelector(vec![LabelRequirement {
            key: "app".into(),
            operator: LabelOperator::In,
            values: vec!["true".into()],
        }]);
        let node = PodQuery { node, ..PodQuery::default() };
        let owned = PodQuery { owner_uid, ..node.clone() };
        let phased = PodQuery { phase, ..owned.clone() };
        let labelled = PodQuery { labels, ..phased.clone() };
        let examined = |query: &PodQuery| snapshot.search(query, usize::MAX, usize::MAX, None).examined;
        let cost = |query: &PodQuery| (examined(query), snapshot.count(query));
        assert_eq!([node, owned, phased, labelled].map(|query| cost(&query)), [(8, 8), (4, 4), (2, 2), (1, 1)]);
        let nowhere = PodQuery { phase: Some("Running".into()), node: Some("true".into()), ..PodQuery::default() };
        assert_eq!(cost(&nowhere), (0, 0), "in a phase that no Pod is in");
    }

    #[test]
    fn a_pod_is_found_only_in_its_present_phase() {
        let (mut writer, reader) = crate::cache::new(7);
        let found =
            |phase: &str| reader.snapshot().count(&PodQuery { phase: Some(phase.into()), ..PodQuery::default() });
        let mut changed = pod("cart", "u", 1, "x");
        for (revision, phase) in [(1, ""), (2, "Pending"), (3, "Running")] {
            (changed.header.resource_version, changed.status.phase) = (revision.to_string(), phase.into());
            writer.apply(vec![PodEvent::applied(cached(&changed))]).publish();
            let expected = ["", "Pending", "Running"].map(|other| u64::from(other == phase));
            assert_eq!(["", "Pending", "Running"].map(found), expected, "{phase:?}");
        }
        changed.header.resource_version = "4".into();
        writer.apply(vec![PodEvent::deleted(cached(&changed))]).publish();
        assert_eq!(found("Running"), 0, "deleted");
    }

    #[test]
    fn a_search_costs_the_pods_it_examines_not_those_it_returns() {
        let (mut writer, reader) = crate::cache::new(7);
        for at in 0..10 {
            let label = if at == 0 { "rare" } else { "usual" };
            let pod = pod(&format!("p{at}"), &format!("u{at}"), at + 1, label);
            writer.apply(vec![PodEvent::applied(cached(&pod))]).publish();
        }
        let snapshot = reader.snapshot();
        let key =
            reader.snapshot().iter().next().map(|pod| super::labels(Some(&pod)).into_keys().next().unwrap()).unwrap();
        let by = |operator, values: &[&str]| {
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            let labels = LabelSelector(vec![LabelRequirement { key: key.clone(), operator, values }]);
            PodQuery { labels, ..PodQuery::default() }
        };
        let cost = |query: &PodQuery| snapshot.find(query, 100, None).examined;
        assert_eq!(cost(&by(LabelOperator::In, &["rare"])), 1, "by index");
        assert_eq!(cost(&by(LabelOperator::NotIn, &["usual"])), 10, "no index excludes");
        assert_eq!((snapshot.known_count(&PodQuery::default()), cost(&PodQuery::default())), (Some(10), 10));
        assert_eq!(snapshot.known_count(&by(LabelOperator::In, &["rare"])), None);
        assert_eq!(snapshot.find(&PodQuery::default(), 3, None).examined, 4, "one more, to see whether more follow");
    }
}
