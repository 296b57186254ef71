//! Answers queries: candidates come from the index that leaves the fewest, and the rest of the query filters them.
//!
//! A label index answers equality and sets of values. Existence, absence and exclusion are filtered. Pods with very
//! many labels are in no label index, and are candidates of every query that one answers.
//!
//! A query of one namespace is answered from this namespace's own sets: the choice of the index, the number of Pods
//! examined, the effort, the result and the time are the same whatever Pods other namespaces have. Plugins can observe
//! the cost through their search budget and the time from outside, so neither may depend on Pods that a plugin may not
//! see. The node is indexed for the whole cluster only; in a namespace it is compared with that of each candidate.

use std::{
    cell::Cell,
    cmp::Ordering,
    collections::{BinaryHeap, binary_heap::PeekMut},
    ops::Bound,
    sync::Arc,
};

use podium_vocabulary::{Cursor, LabelOperator, LabelRequirement, PodQuery};
use podium_wire::{Labels, Workload};

use super::{
    index::{Sets, Value, labels},
    position_set::{Position, PositionSet},
    snapshot::{Pods, Snapshot},
};
use crate::pod::{CachedPod, Effort, RecordRef, Slice};

/// The most bytes of candidates that one slice copies: a Pod has some hundred bytes of its own, and a hostile one a
/// megabyte.
const MAX_COPIED: usize = 1 << 20;

/// The set that candidates are taken from.
enum Source<'a> {
    Everything,
    Namespace(&'a PositionSet),
    /// The sets of several values of an index; they do not overlap.
    Index(Sets<'a>),
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
    pub(super) fn slice_of(&self, query: &PodQuery, limit: usize, most: u64, after: Option<&Cursor>) -> Slice {
        let (source, satisfied) = self.source(query);
        let merges = Cell::new(0);
        let candidates = match &source {
            Source::Everything => self.walk(after),
            Source::Namespace(set) => self.walk_namespace(set, query.namespace.as_ref(), after),
            Source::Index(sets) => self.walk_index(sets.iter().map(|set| &**set).collect(), after, &merges),
        };
        let mut slice = Slice::default();
        let mut last = None;
        let mut copied = 0;
        for slot in candidates {
            slice.effort += Effort::MERGE * merges.take();
            slice.early = copied > MAX_COPIED;
            if slice.pods.len() == limit || slice.examined > 0 && (slice.effort >= most || slice.early) {
                slice.next = last.map(|last: Arc<CachedPod>| last.cursor()).or_else(|| after.cloned());
                return slice;
            }
            slice.examined += 1;
            slice.effort += Effort::CANDIDATE;
            let Some(record) = self.pods.get(slot) else { continue };
            copied += record.own_size();
            let pod = record.pod();
            if matches(query, satisfied, &pod, &mut slice.effort) {
                slice.pods.push(Arc::clone(&pod));
            }
            last = Some(pod);
        }
        slice.early = false;
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

    fn source<'a>(&'a self, query: &'a PodQuery) -> (Source<'a>, Satisfied) {
        let mut size = self.len();
        let mut best = (Source::Everything, Satisfied::Nothing);
        let namespace = query.namespace.as_deref();
        if let Some(namespace) = namespace {
            let Some(set) = self.namespaces.get(namespace) else {
                return (Source::Index(Sets::new()), Satisfied::Nothing);
            };
            size = set.len();
            best = (Source::Namespace(set), Satisfied::Nothing);
        }
        let indexed = |value| self.indexes.get(&self.pods, namespace, value);
        let mut offer = |sets: Sets<'a>, satisfied| {
            let candidates = sets.iter().map(|set| set.len()).sum();
            if candidates <= size {
                size = candidates;
                best = (Source::Index(sets), satisfied);
            }
        };
        // Among sets of equal size the last one wins: its condition costs the most to filter by.
        if let Some(phase) = &query.phase {
            offer(indexed(Value::Phase(phase)), Satisfied::Phase);
        }
        if let Some(node) = query.node.as_deref().map(Value::Node).filter(|node| node.is_indexed(namespace)) {
            offer(indexed(node), Satisfied::Node);
        }
        if let Some(uid) = &query.owner_uid {
            let value = if Workload::is_text(uid) { Value::Workload(uid) } else { Value::Owner(uid) };
            offer(indexed(value), Satisfied::Owner);
        }
        let unindexed = indexed(Value::ManyLabels);
        for (at, requirement) in query.labels.0.iter().enumerate() {
            if let LabelRequirement { key, operator: LabelOperator::In, values } = requirement {
                let mut values: Vec<_> = values.iter().collect();
                values.sort_unstable();
                values.dedup();
                let sets = values.into_iter().flat_map(|value| indexed(Value::Label(key, value)));
                let satisfied = if unindexed.is_empty() { Satisfied::Label(at) } else { Satisfied::Nothing };
                offer(sets.chain(unindexed.iter().cloned()).collect(), satisfied);
            }
        }
        best
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

    /// `merges` counts comparisons of names.
    fn walk_index<'a>(
        &'a self,
        mut sets: Vec<&'a PositionSet>,
        after: Option<&'a Cursor>,
        merges: &'a Cell<u64>,
    ) -> Positions<'a> {
        let before = move |position| after.is_some_and(|after| !is_after(&self.pods, position, after));
        let walk = move |set: &'a PositionSet| set.iter_from(before);
        match sets.pop() {
            Some(only) if sets.is_empty() => Box::new(walk(only)),
            Some(last) => {
                sets.push(last);
                Box::new(Merged::new(sets.into_iter().map(walk).collect(), &self.pods, merges))
            }
            None => Box::new(std::iter::empty()),
        }
    }
}

fn is_after(pods: &Pods, position: Position, after: &Cursor) -> bool {
    pods.compare(position, &after.namespace, &after.name) == Ordering::Greater
}

/// Adds what it costs to `effort`. That must depend on the query and the Pod only, and not on how the Pod is stored.
fn matches(query: &PodQuery, satisfied: Satisfied, pod: &CachedPod, effort: &mut u64) -> bool {
    let PodQuery { namespace, node, owner_uid, phase, labels: selector } = query;
    if namespace.as_ref().is_some_and(|namespace| pod.key.namespace != *namespace) {
        return false;
    }
    if let Some(node) = node.as_ref().filter(|_| satisfied != Satisfied::Node) {
        *effort += Effort::FIELD;
        if pod.node().as_deref() != Some(&**node) {
            return false;
        }
    }
    if let Some(phase) = phase.as_ref().filter(|_| satisfied != Satisfied::Phase) {
        *effort += Effort::FIELD;
        if *pod.phase() != **phase {
            return false;
        }
    }
    if let Some(owner) = owner_uid.as_ref().filter(|_| satisfied != Satisfied::Owner) {
        let owners = pod.owners().unwrap_or_default();
        let labels = if Workload::is_text(owner) { labels(Some(pod)) } else { Labels::new() };
        *effort += Effort::FIELD + Effort::ENTRY * (owners.len() + labels.len()) as u64;
        if !Workload::is_owner(owner, &owners, &labels) {
            return false;
        }
    }
    match (selector.0.len(), satisfied) {
        (0, _) | (1, Satisfied::Label(_)) => true,
        _ => {
            let labels = labels(Some(pod));
            *effort += Effort::FIELD + Effort::ENTRY * labels.len() as u64;
            let keys = Effort::KEY * u64::from(usize::BITS - labels.len().leading_zeros());
            selector.0.iter().all(|requirement| {
                *effort += keys + Effort::VALUE * requirement.values.len() as u64;
                requirement.matches(&labels)
            })
        }
    }
}

/// Merges several ordered sets into one ordered iterator.
struct Merged<'a, I> {
    sets: Vec<I>,
    /// The next Pod of each set that has one; the least is the greatest of the heap.
    heads: BinaryHeap<Head<'a>>,
    pods: &'a Pods,
    merges: &'a Cell<u64>,
}

struct Head<'a> {
    pod: RecordRef<'a>,
    position: Position,
    set: usize,
    merges: &'a Cell<u64>,
}

impl<'a, I: Iterator<Item = Position>> Merged<'a, I> {
    fn new(sets: Vec<I>, pods: &'a Pods, merges: &'a Cell<u64>) -> Self {
        let mut merged = Self { sets, heads: BinaryHeap::new(), pods, merges };
        let heads: Vec<_> = (0..merged.sets.len()).filter_map(|set| merged.head(set)).collect();
        merged.heads = heads.into();
        merged
    }

    fn head(&mut self, set: usize) -> Option<Head<'a>> {
        let pods = self.pods;
        let merges = self.merges;
        // Every position of a set has a Pod.
        self.sets[set].find_map(|position| Some(Head { pod: pods.get(position)?, position, set, merges }))
    }
}

impl<I: Iterator<Item = Position>> Iterator for Merged<'_, I> {
    type Item = Position;

    fn next(&mut self) -> Option<Position> {
        let Head { position, set, .. } = *self.heads.peek()?;
        let next = self.head(set);
        let mut top = self.heads.peek_mut()?;
        match next {
            Some(next) => *top = next,
            None => _ = PeekMut::pop(top),
        }
        Some(position)
    }
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.merges.set(self.merges.get() + 1);
        other.pod.compare_to(&self.pod)
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head<'_> {}

#[cfg(test)]
mod tests {
    use std::{borrow::Cow, sync::Arc};

    use podium_encoding::{Pool, Scratch, testing::pod_json};
    use podium_vocabulary::{LabelOperator, LabelRequirement, LabelSelector, PodQuery};

    use super::{Sets, Source};
    use crate::{
        pod::{CachedPod, Effort, PodEvent, PodView},
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
        let examined = |query: &PodQuery| snapshot.search(query, usize::MAX, u64::MAX, None).examined;
        let cost = |query: &PodQuery| (examined(query), snapshot.count(query));
        assert_eq!([node, owned, phased, labelled].map(|query| cost(&query)), [(8, 8), (4, 4), (2, 2), (1, 1)]);
        let nowhere = PodQuery { phase: Some("Running".into()), node: Some("true".into()), ..PodQuery::default() };
        assert_eq!(cost(&nowhere), (0, 0), "in a phase that no Pod is in");
    }

    #[test]
    fn a_query_of_one_namespace_reads_only_sets_with_pods_of_this_namespace() {
        // Two Pods of each namespace have all values that are searched for. An index of the whole cluster would have
        // six candidates, fewer than the ten Pods of the namespace.
        let pods = (0..30_u64).map(|at| {
            let mut pod = pod(&format!("p{at:02}"), &format!("u{at}"), at + 1, "shared");
            let word = if at < 6 { "shared" } else { "other" };
            pod.header.namespace = ["bank", "cart", "shop"][at as usize % 3].into();
            pod.spec.node_name = Some(word.to_owned());
            pod.status.phase = word.to_owned();
            pod.owners[0].uid = word.to_owned();
            pod.labels = [("app".to_owned(), word.to_owned())].into();
            if at < 3 {
                pod.labels.extend((0..100).map(|label| (format!("l{label}"), String::new())));
            }
            cached(&pod)
        });
        let pods: Vec<_> = pods.collect();
        let (mut listed, of_list) = crate::cache::new(7);
        let list = pods.iter().cloned().map(Into::into).collect();
        listed.relist(list, podium_vocabulary::Revision(100)).publish();
        let (mut followed, of_events) = crate::cache::new(7);
        followed.apply(pods.iter().cloned().map(PodEvent::applied).collect()).publish();
        let labels = LabelSelector(vec![requirement("app", LabelOperator::In, &["shared".to_owned()])]);
        let shared = || Some("shared".into());
        let of = |namespace: &str| {
            let everything = PodQuery { namespace: Some(namespace.into()), ..PodQuery::default() };
            [
                PodQuery { labels: labels.clone(), ..everything.clone() },
                PodQuery { node: shared(), ..everything.clone() },
                PodQuery { owner_uid: shared(), ..everything.clone() },
                PodQuery { phase: shared(), ..everything.clone() },
                everything,
            ]
        };
        for (snapshot, namespace) in [&of_list, &of_events]
            .into_iter()
            .flat_map(|reader| ["bank", "cart", "shop", "none"].map(|namespace| (reader.snapshot(), namespace)))
        {
            for query in of(namespace) {
                let sets = match snapshot.source(&query).0 {
                    Source::Everything => panic!("{query:?} reads everything"),
                    Source::Namespace(set) => Sets::from_iter([Cow::Borrowed(set)]),
                    Source::Index(sets) => sets,
                };
                assert_eq!(sets.is_empty(), namespace == "none", "{query:?}");
                for position in sets.iter().flat_map(|set| set.iter()) {
                    let pod = snapshot.pods.get(position).unwrap();
                    assert_eq!(&**pod.namespace(), namespace, "{query:?} reads a Pod of another namespace");
                }
            }
        }
    }

    #[test]
    fn a_pod_is_found_only_in_its_present_phase() {
        let (mut writer, reader) = crate::cache::new(7);
        let found =
            |phase: &str| reader.snapshot().count(&PodQuery { phase: Some(phase.into()), ..PodQuery::default() });
        let mut changed = pod("cart", "u", 1, "x");
        for (revision, phase) in [(1, ""), (2, "Pending"), (3, "Running")] {
            changed.header.resource_version = revision.to_string();
            changed.status.phase = phase.into();
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

    /// 32 Pods with label `app` of 8 values in turn, and one more label each.
    fn labelled() -> (crate::cache::Writer, crate::cache::Reader) {
        let (mut writer, reader) = crate::cache::new(7);
        for at in 0..32 {
            let mut pod = pod(&format!("p{at:02}"), &format!("u{at}"), at + 1, "x");
            pod.labels = [("app".to_owned(), format!("v{}", at % 8)), ("own".to_owned(), String::new())].into();
            writer.apply(vec![PodEvent::applied(cached(&pod))]).publish();
        }
        (writer, reader)
    }

    fn requirement(key: &str, operator: LabelOperator, values: &[String]) -> LabelRequirement {
        LabelRequirement { key: key.to_owned(), operator, values: values.to_vec() }
    }

    fn values(of: std::ops::Range<usize>) -> Vec<String> {
        of.map(|value| format!("v{value}")).collect()
    }

    #[test]
    fn the_effort_follows_conditions_values_and_merged_sources() {
        let (_writer, reader) = labelled();
        let snapshot = reader.snapshot();
        let effort = |requirements: &[LabelRequirement]| {
            let query = PodQuery { labels: LabelSelector(requirements.to_vec()), ..PodQuery::default() };
            let slice = snapshot.search(&query, usize::MAX, u64::MAX, None);
            (slice.examined as u64, slice.effort)
        };
        let plain = |pods: u64| pods * Effort::CANDIDATE;
        assert_eq!(effort(&[]), (32, plain(32)));
        // Two labels are decoded, and a key is found among two with two comparisons.
        let decoded = |pods: u64| plain(pods) + pods * (Effort::FIELD + 2 * Effort::ENTRY);
        for count in [1, 64] {
            let not_in = requirement("app", LabelOperator::NotIn, &values(100..100 + count));
            let conditions = |times: usize| vec![not_in.clone(); times];
            for times in [1, 32] {
                let each = times as u64 * (2 * Effort::KEY + count as u64 * Effort::VALUE);
                assert_eq!(effort(&conditions(times)), (32, decoded(32) + 32 * each), "{times} of {count} values");
            }
        }
        // One source is not merged; each further one makes each candidate dearer by a digit or two of comparisons.
        let merged = |count: usize| effort(&[requirement("app", LabelOperator::In, &values(0..count))]);
        assert_eq!(merged(1), (4, plain(4)));
        for (count, digits) in [(2, 1), (4, 2), (8, 3)] {
            let (examined, effort) = merged(count);
            let merges = (effort - plain(examined)) / Effort::MERGE;
            let least = examined - count as u64;
            let most = 2 * digits * examined + 2 * count as u64;
            assert!((least..=most).contains(&merges), "{merges} comparisons of {examined} candidates, {count} sources");
        }
        let phase = PodQuery { phase: Some("none".into()), node: Some("none".into()), ..PodQuery::default() };
        assert_eq!(snapshot.search(&phase, usize::MAX, u64::MAX, None).effort, 0, "an index has no candidates");
    }

    #[test]
    fn labels_that_are_decoded_are_paid_by_their_number() {
        let (mut writer, reader) = labelled();
        let mut large = pod("large", "large", 100, "x");
        large.labels = (0..10_000).map(|label| (format!("l{label}"), String::new())).collect();
        writer.apply(vec![PodEvent::applied(cached(&large))]).publish();
        let query = |key: &str, operator, values: &[String]| {
            let labels = LabelSelector(vec![requirement(key, operator, values)]);
            PodQuery { labels, ..PodQuery::default() }
        };
        let snapshot = reader.snapshot();
        let by_index = snapshot.search(&query("app", LabelOperator::In, &values(0..1)), usize::MAX, u64::MAX, None);
        assert_eq!((by_index.pods.len(), by_index.examined), (4, 5), "the large one has no index");
        assert!(by_index.effort > 10_000 * Effort::ENTRY, "{}", by_index.effort);
    }

    #[test]
    fn a_slice_is_bounded_by_effort_and_copied_bytes() {
        let (mut writer, reader) = labelled();
        let snapshot = reader.snapshot();
        for (most, examined) in [(0, 1), (1, 1), (Effort::CANDIDATE, 1), (Effort::CANDIDATE + 1, 2), (u64::MAX, 32)] {
            let slice = snapshot.search(&PodQuery::default(), usize::MAX, most, None);
            assert_eq!((slice.examined, slice.early, slice.next.is_none()), (examined, false, most == u64::MAX));
        }
        // Read as from the API server, with an annotation that no other Pod has.
        let pool = Pool::new(7);
        let mut scratch = Scratch::default();
        for at in 0..8_u64 {
            let mut json = pod_json(1, at, "Running");
            let letter = |state: &mut u64| {
                *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(at | 1);
                Some(char::from(b'g' + (*state >> 60) as u8))
            };
            let text: String = (0..400 << 10).scan(at, |state, _| letter(state)).collect();
            json["metadata"]["annotations"]["large"] = text.into();
            let (pod, _) = CachedPod::read(json.to_string().as_bytes(), &pool, &mut scratch, |_, _| None).unwrap();
            writer.apply(vec![PodEvent::applied(Arc::new(pod))]).publish();
        }
        let snapshot = reader.snapshot();
        let slice = snapshot.search(&PodQuery::default(), usize::MAX, u64::MAX, None);
        assert!(slice.early && slice.next.is_some() && slice.examined < 40, "{}", slice.examined);
        let page = snapshot.find(&PodQuery::default(), 100, None);
        assert_eq!((page.pods.len(), page.examined, page.next), (40, 40, None));
    }
}
