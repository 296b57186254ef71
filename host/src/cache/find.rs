//! Answers queries by the index that leaves the fewest candidates; what the index does not decide is filtered.
//!
//! A label decides by equality or a set of values. Existence, absence and exclusion are filtered.

use std::{cell::Cell, iter::Peekable, ops::Bound, sync::Arc};

use super::{
    index::{Names, labels},
    snapshot::{Namespace, Snapshot},
};
use crate::model::{CachedPod, Cursor, LabelOperator, LabelRequirement, Page, PodQuery};

/// Where candidates come from.
enum Source<'a> {
    Everything,
    Namespace(&'a Namespace),
    /// Pods that have one of some values; the sets do not overlap.
    Index(Vec<&'a Names>),
}

/// What every candidate of the chosen source is known to satisfy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Decided {
    Nothing,
    Node,
    Owner,
    /// The label requirement at this place.
    Label(usize),
}

type Pods<'a> = Box<dyn Iterator<Item = &'a Arc<CachedPod>> + 'a>;

impl Snapshot {
    pub(super) fn find_page(&self, query: &PodQuery, limit: usize, after: Option<&Cursor>) -> Page {
        if limit == 0 {
            return Page::default();
        }
        let examined = Cell::new(0);
        let mut matching = self.matching(query, after, &examined);
        let pods: Vec<_> = matching.by_ref().take(limit).cloned().collect();
        let next = if matching.next().is_some() { pods.last() } else { None };
        let next =
            next.map(|last| Cursor { namespace: Arc::clone(&last.key.namespace), name: Arc::clone(&last.key.name) });
        Page { pods, next, examined: examined.get() }
    }

    pub(super) fn count_all(&self, query: &PodQuery) -> usize {
        if is_known(query) {
            return match &query.namespace {
                Some(namespace) => self.namespaces.get(namespace).map_or(0, Namespace::len),
                None => self.len,
            };
        }
        self.matching(query, None, &Cell::new(0)).count()
    }

    pub(super) fn candidates_of_count(&self, query: &PodQuery) -> usize {
        if is_known(query) {
            return 0;
        }
        match self.source(query).0 {
            Source::Everything => self.len,
            Source::Namespace(pods) => pods.len(),
            Source::Index(sets) => sets.iter().map(|names| names.len()).sum(),
        }
    }

    /// Counts into `examined` what is looked at, matching or not.
    fn matching<'a>(&'a self, query: &'a PodQuery, after: Option<&'a Cursor>, examined: &'a Cell<usize>) -> Pods<'a> {
        let (source, decided) = self.source(query);
        let candidates = match source {
            Source::Everything => self.walk(after),
            Source::Namespace(pods) => walk_namespace(pods, query.namespace.as_ref(), after),
            Source::Index(sets) => self.walk_index(&sets, query.namespace.as_ref(), after),
        };
        let candidates = candidates.inspect(|_| examined.set(examined.get() + 1));
        Box::new(candidates.filter(move |pod| matches(query, decided, pod)))
    }

    fn source<'a>(&'a self, query: &PodQuery) -> (Source<'a>, Decided) {
        let mut size = self.len;
        let mut best = (Source::Everything, Decided::Nothing);
        if let Some(namespace) = &query.namespace {
            let Some(pods) = self.namespaces.get(namespace) else {
                return (Source::Index(Vec::new()), Decided::Nothing);
            };
            size = pods.len();
            best = (Source::Namespace(pods), Decided::Nothing);
        }
        let mut offer = |sets: Vec<&'a Names>, decided| {
            let members = sets.iter().map(|names| names.len()).sum();
            if members <= size {
                size = members;
                best = (Source::Index(sets), decided);
            }
        };
        if let Some(node) = &query.node {
            offer(self.indexes.nodes.get(node).into_iter().collect(), Decided::Node);
        }
        if let Some(uid) = &query.owner_uid {
            offer(self.indexes.owners.get(uid).into_iter().collect(), Decided::Owner);
        }
        for (at, requirement) in query.labels.0.iter().enumerate() {
            if let LabelRequirement { key, operator: LabelOperator::In, values } = requirement {
                let mut values: Vec<_> = values.iter().collect();
                values.sort_unstable();
                values.dedup();
                let sets = values.into_iter().filter_map(|value| self.indexes.label(key, value)).collect();
                offer(sets, Decided::Label(at));
            }
        }
        best
    }

    fn walk<'a>(&'a self, after: Option<&'a Cursor>) -> Pods<'a> {
        let from = after.map_or(Bound::Unbounded, |after| Bound::Included(&*after.namespace));
        let namespaces = self.namespaces.range::<_, str>((from, Bound::Unbounded));
        Box::new(namespaces.flat_map(move |(namespace, pods)| walk_namespace(pods, Some(namespace), after)))
    }

    fn walk_index<'a>(
        &'a self,
        sets: &[&'a Names],
        namespace: Option<&'a Arc<str>>,
        after: Option<&'a Cursor>,
    ) -> Pods<'a> {
        let begin = namespace.map(|namespace| Cursor { namespace: Arc::clone(namespace), name: "".into() });
        let from = match (begin, after) {
            (Some(begin), Some(after)) if begin > *after => Bound::Included(begin),
            (_, Some(after)) => Bound::Excluded(after.clone()),
            (Some(begin), None) => Bound::Included(begin),
            (None, None) => Bound::Unbounded,
        };
        let sets = sets.iter().map(|names| names.range((from.clone(), Bound::Unbounded)).peekable()).collect();
        let names = Merged(sets).take_while(move |name| namespace.is_none_or(|namespace| name.namespace == *namespace));
        Box::new(names.filter_map(|name| self.entry(&name.namespace, &name.name)))
    }
}

/// How many Pods match is known without looking at any.
fn is_known(query: &PodQuery) -> bool {
    query.node.is_none() && query.owner_uid.is_none() && query.labels.0.is_empty()
}

fn walk_namespace<'a>(pods: &'a Namespace, namespace: Option<&Arc<str>>, after: Option<&'a Cursor>) -> Pods<'a> {
    let from = match (namespace, after) {
        (Some(namespace), Some(after)) if after.namespace == *namespace => Bound::Excluded(&*after.name),
        (Some(namespace), Some(after)) if after.namespace > *namespace => return Box::new(std::iter::empty()),
        _ => Bound::Unbounded,
    };
    Box::new(pods.range::<_, str>((from, Bound::Unbounded)).map(|(_, pod)| pod))
}

fn matches(query: &PodQuery, decided: Decided, pod: &CachedPod) -> bool {
    let PodQuery { namespace, node, owner_uid, labels: selector } = query;
    namespace.as_ref().is_none_or(|namespace| pod.key.namespace == *namespace)
        && (decided == Decided::Node || node.as_ref().is_none_or(|node| pod.node() == Some(&**node)))
        && (decided == Decided::Owner
            || owner_uid.as_ref().is_none_or(|uid| pod.owner_uids().iter().any(|owner| **owner == **uid)))
        && match (selector.0.len(), decided) {
            (0, _) | (1, Decided::Label(_)) => true,
            _ => selector.matches(&labels(Some(pod))),
        }
}

/// Several ordered sets as one, in order.
struct Merged<I: Iterator>(Vec<Peekable<I>>);

impl<I: Iterator<Item: Ord + Copy>> Iterator for Merged<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let heads = self.0.iter_mut().enumerate().filter_map(|(at, names)| Some((*names.peek()?, at)));
        let (_, least) = heads.min()?;
        self.0[least].next()
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        cache::testing::{cached, pod},
        model::{LabelOperator, LabelRequirement, LabelSelector, PodEvent, PodQuery, PodView},
    };

    #[test]
    fn a_search_costs_the_pods_that_it_looks_at_and_not_those_that_it_gives() {
        let (mut writer, reader) = crate::cache::new();
        for at in 0..10 {
            let label = if at == 0 { "rare" } else { "usual" };
            let pod = pod(&format!("p{at}"), &format!("u{at}"), at + 1, label);
            writer.apply(vec![PodEvent::Applied(cached(&pod))]);
        }
        let snapshot = reader.snapshot();
        let key =
            reader.snapshot().iter().next().map(|pod| super::labels(Some(pod)).into_keys().next().unwrap()).unwrap();
        let by = |operator, values: &[&str]| {
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            let labels = LabelSelector(vec![LabelRequirement { key: key.clone(), operator, values }]);
            PodQuery { labels, ..PodQuery::default() }
        };
        let cost = |query: &PodQuery| (snapshot.candidates(query), snapshot.find(query, 100, None).examined);
        assert_eq!(cost(&by(LabelOperator::In, &["rare"])), (1, 1), "by index");
        assert_eq!(cost(&by(LabelOperator::NotIn, &["usual"])), (10, 10), "no index excludes");
        assert_eq!(cost(&PodQuery::default()), (0, 10), "how many there are is known");
        assert_eq!(snapshot.find(&PodQuery::default(), 3, None).examined, 4, "one more tells whether more follow");
    }
}
