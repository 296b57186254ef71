//! A simulated cluster with a history, and a watch that repeats events, resumes from the past, lists late and delivers
//! answers to own writes early. Readers never see the cache go back, and each change is reported once. Queries are
//! compared with a filter over all Pods.

use std::sync::Arc;

use podium_vocabulary::{Cursor, LabelOperator, LabelRequirement, LabelSelector, PodQuery, Revision};
use podium_wire::Workload;
use proptest::{prelude::*, test_runner::TestCaseError};

use crate::{
    cache::{self, Reader, Snapshot, Writer, index::MAX_INDEXED_LABELS},
    pod::{CachedPod, CachedPods, Effort, PodEvent, PodList, PodView, Slice},
    testing::{ChangeChecker, Pods, cached, pod, same_sections},
};

/// An event of one of a few names. There are few labels, so that Pods share values.
#[derive(Debug, Clone)]
struct Step {
    name: u8,
    delete: bool,
    label: u8,
    revisions: u64,
}

#[derive(Debug, Clone)]
enum Delivery {
    /// More events happen in the cluster.
    Advance(usize),
    Events(usize),
    /// The watch resumes this many events earlier.
    Resume(usize),
    /// A list that is this many events old, and from which the watch continues.
    List {
        late: usize,
        ask: bool,
    },
    Bookmark,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..4u8, prop::bool::weighted(0.3), 0..3u8, 1..3u64).prop_map(|(name, delete, label, revisions)| Step {
        name,
        delete,
        label,
        revisions,
    });
    prop::collection::vec(step, 1..40)
}

fn deliveries() -> impl Strategy<Value = Vec<Delivery>> {
    let delivery = prop_oneof![
        4 => (1..6usize).prop_map(Delivery::Advance),
        4 => (1..6usize).prop_map(Delivery::Events),
        1 => (1..8usize).prop_map(Delivery::Resume),
        2 => (0..8usize, any::<bool>()).prop_map(|(late, ask)| Delivery::List { late, ask }),
        1 => Just(Delivery::Bookmark),
    ];
    prop::collection::vec(delivery, 1..60)
}

/// The cluster's events in their order, and the Pods after each.
struct History {
    events: Vec<PodEvent>,
    /// One more than there are events: the first is the state before all events.
    states: Vec<(Revision, Pods)>,
}

impl History {
    fn new(steps: &[Step]) -> Self {
        let mut revision = 1;
        let mut present = Pods::new();
        let mut history = Self { events: Vec::new(), states: vec![(Revision(revision), Pods::new())] };
        for Step { name, delete, label, revisions } in steps {
            revision += revisions;
            let name: Arc<str> = format!("pod-{name}").into();
            let uid = present.get(&name).map_or_else(|| format!("uid-{revision}").into(), |pod| pod.key.uid.clone());
            let delete = *delete && present.contains_key(&name);
            let pod = cached(&pod(&name, &uid, revision, &format!("l{label}")));
            if delete {
                present.remove(&name);
                history.events.push(PodEvent::deleted(pod));
            } else {
                present.insert(name, Arc::clone(&pod));
                history.events.push(PodEvent::applied(pod));
            }
            history.states.push((Revision(revision), present.clone()));
        }
        history
    }
}

/// The cache under test, and a subscriber to its changes.
struct Harness {
    writer: Writer,
    reader: Reader,
    checker: ChangeChecker,
}

fn run(steps: &[Step], deliveries: &[Delivery]) -> Result<(), TestCaseError> {
    let history = History::new(steps);
    let (writer, reader) = cache::new(7);
    let mut harness = Harness { writer, reader, checker: ChangeChecker::default() };
    let mut head = 0_usize;
    let mut position = 0_usize;
    for delivery in deliveries.iter().chain([&Delivery::Advance(usize::MAX), &Delivery::Events(usize::MAX)]) {
        let changes = match *delivery {
            Delivery::Advance(count) => {
                head = history.events.len().min(head.saturating_add(count));
                Vec::new()
            }
            Delivery::Events(count) => {
                let end = head.min(position.saturating_add(count));
                let events = history.events[position..end].to_vec();
                position = end;
                harness.writer.apply(events).publish()
            }
            Delivery::Resume(back) => {
                position = position.saturating_sub(back);
                Vec::new()
            }
            Delivery::List { late, ask } => {
                position = head.saturating_sub(late);
                let (revision, pods) = &history.states[position];
                harness.writer.relist(list(pods, &harness.reader, ask), *revision).publish()
            }
            Delivery::Bookmark => {
                harness.writer.bookmark(history.states[position].0);
                Vec::new()
            }
        };
        harness.checker.apply(&changes).map_err(TestCaseError::fail)?;
        harness.checker.agrees_with(&harness.reader.snapshot()).map_err(TestCaseError::fail)?;
    }
    let (revision, pods) = history.states.last().unwrap();
    same_sections(&harness.reader.snapshot(), pods).map_err(TestCaseError::fail)?;
    prop_assert_eq!(harness.reader.snapshot().revision(), *revision);
    Ok(())
}

fn list(pods: &Pods, known: &Reader, ask: bool) -> PodList {
    let mut list = PodList::default();
    for pod in pods.values() {
        let held = known.cached(&pod.key.namespace, &pod.key.name);
        match held.filter(|held| ask && held.key == pod.key && held.revision == pod.revision) {
            Some(held) => list.held.insert(&held.key.uid),
            None => list.read.push(Arc::clone(pod).into()),
        }
    }
    list
}

/// Owners and workloads of the Pods, and others.
const OWNERS: [&str; 8] = [
    "owner-of-l0",
    "owner-of-l1",
    "owner-of-l2",
    "owner-of-l3",
    "Deployment/web",
    "ReplicaSet/web-h1",
    "StatefulSet/web-h0",
    "Deployment/",
];

/// Makes the owner of some Pods a controller: a ReplicaSet of a Deployment or made by hand, or a StatefulSet.
fn with_controller(mut pod: podium_wire::Pod, choice: u8) -> podium_wire::Pod {
    let hash = format!("h{}", choice % 2);
    let owner = &mut pod.owners[0];
    owner.controller = choice.is_multiple_of(3);
    owner.kind = if choice < 6 { "ReplicaSet" } else { "StatefulSet" }.to_owned();
    owner.name = format!("web-{hash}");
    pod.labels.extend((choice < 4).then(|| ("pod-template-hash".to_owned(), hash)));
    pod
}

fn queries() -> impl Strategy<Value = PodQuery> {
    let label = (prop::sample::select(&[0, 1, 2, 3][..]), prop::collection::vec(0..4u8, 0..3)).prop_map(
        |(operator, values)| LabelRequirement {
            key: "app".into(),
            operator: [LabelOperator::Exists, LabelOperator::Absent, LabelOperator::In, LabelOperator::NotIn][operator],
            values: values.iter().map(|value| format!("l{value}")).collect(),
        },
    );
    let text = |prefix: &'static str| prop::option::of((0..4u8).prop_map(move |at| format!("{prefix}{at}").into()));
    let owner = prop::option::of(prop::sample::select(&OWNERS[..]).prop_map(Into::into));
    let texts = (text("ns-"), text("node-of-l"), owner, text("phase-of-l"));
    (texts, prop::collection::vec(label, 0..3)).prop_map(|((namespace, node, owner_uid, phase), labels)| PodQuery {
        namespace,
        node,
        owner_uid,
        phase,
        labels: LabelSelector(labels),
    })
}

/// Adds labels around "app" to half of the Pods: as many as are indexed, or one more.
fn with_labels(mut pod: podium_wire::Pod, many: u8) -> podium_wire::Pod {
    let count = match many {
        0 => MAX_INDEXED_LABELS - pod.labels.len() + 1,
        1 => MAX_INDEXED_LABELS - pod.labels.len(),
        _ => 0,
    };
    let keys = (0..count).map(|at| format!("{}{at}", if at % 2 == 0 { "a" } else { "z" }));
    pod.labels.extend(keys.map(|key| (key, "l1".to_owned())));
    pod
}

fn matches(query: &PodQuery, pod: &CachedPod) -> bool {
    query.namespace.as_ref().is_none_or(|namespace| *namespace == pod.key.namespace)
        && query.node.as_ref().is_none_or(|node| Some(&**node) == pod.node().as_deref())
        && query
            .owner_uid
            .as_ref()
            .is_none_or(|owner| Workload::is_owner(owner, &pod.owners().unwrap(), &pod.labels().unwrap()))
        && query.phase.as_ref().is_none_or(|phase| **phase == *pod.phase())
        && query.labels.matches(&pod.labels().unwrap())
}

/// Returns the Pods of all pages. Each page is read from a snapshot that `snapshot` returns.
fn all_pages(query: &PodQuery, limit: usize, mut snapshot: impl FnMut() -> Arc<Snapshot>) -> Vec<Arc<CachedPod>> {
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = snapshot().find(query, limit, after.as_ref());
        found.extend(page.pods);
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

proptest! {
    #[test]
    fn the_cache_never_goes_back_and_reports_each_change_once(steps in steps(), deliveries in deliveries()) {
        run(&steps, &deliveries)?;
    }

    #[test]
    fn a_list_repairs_the_effect_of_misordered_events(
        steps in steps(),
        swaps in prop::collection::vec((0..40usize, 0..40usize), 0..10),
    ) {
        let history = History::new(&steps);
        let (mut writer, reader) = cache::new(7);
        let mut events = history.events.clone();
        let count = events.len();
        for (a, b) in swaps {
            events.swap(a % count, b % count);
        }
        writer.apply(events).publish();
        let (revision, pods) = history.states.last().unwrap();
        writer.relist(list(pods, &reader, true), *revision).publish();
        same_sections(&reader.snapshot(), pods).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn find_and_count_equal_a_filter_over_all_pods(
        pods in prop::collection::vec((0..3u8, 0..8u8, 0..4u8, 0..4u8, any::<bool>()), 0..40),
        listed in 0..40usize,
        query in queries(),
        (limit, most) in (1..5usize, 1..5usize),
    ) {
        let (mut writer, reader) = cache::new(7);
        let mut pods: Vec<_> = pods.into_iter().enumerate().map(|(at, (namespace, name, label, many, again))| {
            let uid = if again { format!("u{namespace}{name}") } else { format!("v{at}") };
            let mut pod = pod(&format!("p{name}"), &uid, at as u64 + 1, &format!("l{label}"));
            pod.header.namespace = format!("ns-{namespace}");
            cached(&with_labels(with_controller(pod, 2 * name + many % 2), many))
        }).collect();
        let listed = listed.min(pods.len());
        let read = pods.drain(..listed).map(Into::into).collect();
        writer.relist(PodList { read, ..PodList::default() }, Revision(listed as u64)).publish();
        pods.into_iter().for_each(|pod| _ = writer.apply(vec![PodEvent::applied(pod)]).publish());
        let snapshot = reader.snapshot();
        let expected: Vec<_> = snapshot.iter().filter(|pod| matches(&query, pod)).collect();
        prop_assert_eq!(snapshot.count(&query), expected.len() as u64);
        let page = snapshot.find(&query, limit, None);
        prop_assert!(page.pods.len() <= limit && page.pods.len() <= page.examined);
        prop_assert_eq!(all_pages(&query, limit, || Arc::clone(&snapshot)), expected.clone());
        let mut sliced = Vec::new();
        let mut examined = 0;
        let mut after = None;
        loop {
            let slice = snapshot.search(&query, usize::MAX, most as u64 * Effort::CANDIDATE, after.as_ref());
            prop_assert!((slice.examined <= most || slice.examined == 1) && slice.pods.len() <= slice.examined);
            examined += slice.examined;
            after = slice.next;
            sliced.extend(slice.pods);
            if after.is_none() {
                break;
            }
        }
        prop_assert_eq!(sliced, expected);
        prop_assert_eq!(examined, snapshot.search(&query, usize::MAX, u64::MAX, None).examined);
    }

    #[test]
    fn a_query_of_one_namespace_does_not_depend_on_pods_of_others(
        pods in prop::collection::btree_map((0..3u8, 0..20u8), [0..4u8, 0..4, 0..4, 0..4], 0..60),
        query in queries(),
        (listed, limit, most) in (any::<bool>(), 1..5usize, 1..5usize),
        forged in prop::option::of((0..4u8, 0..20u8)),
    ) {
        let query = PodQuery { namespace: Some("ns-1".into()), ..query };
        let forged = forged.map(|(namespace, name)| Cursor {
            namespace: format!("ns-{namespace}").into(),
            name: format!("p{name:02}").into(),
        });
        let cached = |((namespace, name), [label, node, owner, phase]): (&(u8, u8), &[u8; 4])| {
            let at = u64::from(*namespace) * 100 + u64::from(*name) + 1;
            let mut pod = pod(&format!("p{name:02}"), &format!("u{at}"), at, &format!("l{label}"));
            pod.header.namespace = format!("ns-{namespace}");
            pod.spec.node_name = Some(format!("node-of-l{node}"));
            pod.owners[0].uid = format!("owner-of-l{owner}");
            pod.status.phase = format!("phase-of-l{phase}");
            cached(&with_labels(with_controller(pod, 2 * owner + node % 2), (label + node) % 4))
        };
        // All properties of the answers and of their cost that a plugin can observe.
        let seen = |pods: Vec<Arc<CachedPod>>| {
            let (mut writer, reader) = cache::new(7);
            if listed {
                let read = pods.into_iter().map(Into::into).collect();
                writer.relist(PodList { read, ..PodList::default() }, Revision(1_000)).publish();
            } else {
                pods.into_iter().for_each(|pod| _ = writer.apply(vec![PodEvent::applied(pod)]).publish());
            }
            let snapshot = reader.snapshot();
            let mut seen = vec![format!("{:?} {}", snapshot.known_count(&query), snapshot.count(&query))];
            let mut after = None;
            loop {
                let most = most as u64 * Effort::CANDIDATE;
                let Slice { pods, examined, effort, next, .. } = snapshot.search(&query, limit, most, after.as_ref());
                let keys: Vec<_> = pods.iter().map(|pod| pod.key.to_string()).collect();
                seen.push(format!("{examined} {effort} {keys:?} {next:?}"));
                after = next;
                if after.is_none() {
                    break;
                }
            }
            let mut after = forged.clone();
            loop {
                let page = snapshot.find(&query, limit, after.as_ref());
                let keys: Vec<_> = page.pods.iter().map(|pod| pod.key.to_string()).collect();
                seen.push(format!("{} {keys:?} {:?}", page.examined, page.next));
                after = page.next;
                if after.is_none() {
                    return seen;
                }
            }
        };
        let own = pods.iter().filter(|((namespace, _), _)| *namespace == 1).map(cached).collect();
        prop_assert_eq!(seen(pods.iter().map(cached).collect()), seen(own));
    }

    #[test]
    fn pages_during_changes_contain_each_unchanged_pod_once(
        there in prop::collection::btree_map(0..30u8, 0..2u8, 0..20),
        meanwhile in prop::collection::vec((0..30u8, prop::option::of(0..2u8)), 0..20),
        query in prop_oneof![
            Just(PodQuery::default()),
            Just(PodQuery { phase: Some("phase-of-l1".into()), ..PodQuery::default() }),
            Just(PodQuery { namespace: Some("shop".into()), node: Some("node-of-l1".into()), ..PodQuery::default() }),
        ],
        limit in 1..4usize,
    ) {
        let (mut writer, reader) = cache::new(7);
        let mut revision = 0;
        let mut put = |name: u8, label: Option<u8>| {
            revision += 1;
            let label_value = format!("l{}", label.unwrap_or(0));
            let pod = cached(&pod(&format!("p{name:02}"), &format!("u{name}"), revision, &label_value));
            writer.apply(vec![if label.is_some() { PodEvent::applied(pod) } else { PodEvent::deleted(pod) }]).publish();
        };
        there.iter().for_each(|(name, label)| put(*name, Some(*label)));
        let before = reader.snapshot();
        let expected: Vec<_> = before.iter().filter(|pod| matches(&query, pod)).collect();
        let mut changes = meanwhile.iter();
        let found = all_pages(&query, limit, || {
            if let Some((name, label)) = changes.next() {
                put(*name, *label);
            }
            reader.snapshot()
        });
        prop_assert!(found.is_sorted_by_key(|pod| Arc::clone(&pod.key.name)));
        prop_assert!(found.windows(2).all(|two| two[0].key.name != two[1].key.name), "one was returned twice");
        let touched = |pod: &Arc<CachedPod>| meanwhile.iter().any(|(name, _)| *pod.key.name == format!("p{name:02}"));
        let stay = |pods: Vec<Arc<CachedPod>>| pods.into_iter().filter(|pod| !touched(pod)).collect::<Vec<_>>();
        prop_assert_eq!(stay(found), stay(expected.clone()));
        prop_assert_eq!(all_pages(&query, limit, || Arc::clone(&before)), expected, "a snapshot does not change");
    }
}
