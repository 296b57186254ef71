//! Which plugins and groups changes wake, compared with a plain evaluation of their configurations.

use std::{sync::Arc, time::Duration};

use podium_pods::{
    pod::CachedPod,
    testing::{self, plugin},
};
use podium_vocabulary::{LabelRequirement, LabelSelector, Related, WatchSpec};
use proptest::prelude::*;

use super::*;

thread_local! {
    /// The labels that were looked at.
    pub(super) static VISITED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[test]
fn a_pods_labels_are_walked_once_for_a_change_and_not_for_each_group() {
    let labelled = |value: &str, phase: &str| {
        let mut pod = wire_pod("web", phase);
        pod.labels.extend((0..10_000).map(|at| (format!("k{at}"), value.to_owned())));
        Some(Arc::new(CachedPod::new(&pod).unwrap()))
    };
    let visited = |groups: u8, old, new| {
        let of_bits = |bits: u8| Section::ALL.into_iter().filter(move |section| bits & 1 << *section as u8 != 0);
        let sections = |bits| of_bits(bits).fold(SectionSet::EMPTY, SectionSet::with);
        let spec = |bits: u8| spec(Some("shop"), &bits.to_string(), sections(bits), Some("web"));
        let specs: Vec<_> = (0..groups).map(spec).collect();
        VISITED.set(0);
        woken(&specs, old, new);
        VISITED.get()
    };
    let states = [("0", "Pending"), ("0", "Running"), ("1", "Running")].map(|(value, phase)| labelled(value, phase));
    let [pending, running, relabelled] = &states;
    for (old, new, walks) in [(pending, running, 0), (running, relabelled, 2), (&None, running, 2)] {
        for groups in [1, 64] {
            let visited = visited(groups, old.clone(), new.clone());
            assert!(visited <= walks * 10_010 + 4 * usize::from(groups), "{visited} labels for {groups} groups");
        }
    }
}

fn spec(namespace: Option<&str>, name: &str, sections: SectionSet, app: Option<&str>) -> PluginSpec {
    let selector = app.map(|app| testing::selector("app", app)).unwrap_or_default();
    PluginSpec { watch: WatchSpec { selector, sections, ..WatchSpec::default() }, ..plugin(namespace, name) }
}

fn pod(app: &str, phase: &str) -> Arc<CachedPod> {
    Arc::new(CachedPod::new(&wire_pod(app, phase)).unwrap())
}

fn wire_pod(app: &str, phase: &str) -> podium_wire::Pod {
    let mut pod = podium_wire::Pod::default();
    pod.header.namespace = "shop".into();
    pod.header.name = "cart-0".into();
    pod.header.uid = "u1".into();
    pod.header.resource_version = "1".into();
    pod.labels.insert("app".into(), app.into());
    pod.status.phase = phase.into();
    pod
}

fn woken(specs: &[PluginSpec], old: Option<Arc<CachedPod>>, new: Option<Arc<CachedPod>>) -> Vec<usize> {
    Change::between(old, new)
        .map_or_else(Vec::new, |change| Wake::new(specs.iter().enumerate()).concerned(&change).pods)
}

#[test]
fn only_a_change_of_a_watched_section_wakes() {
    let status = SectionSet::EMPTY.with(Section::Status);
    let labels = SectionSet::EMPTY.with(Section::Labels);
    let specs = [spec(None, "a", status, None), spec(None, "b", labels, None)];
    assert_eq!(woken(&specs, Some(pod("web", "Pending")), Some(pod("web", "Running"))), [0]);
    assert_eq!(woken(&specs, Some(pod("web", "Running")), Some(pod("api", "Running"))), [1]);
    assert_eq!(woken(&specs, None, Some(pod("web", "Running"))), [0, 1]);
}

/// Returns the groups that a change of one Pod wakes a plugin of the namespace for; `-` before one that the Pod left.
fn groups(by: Relation, watched: &[Section], old: Option<podium_wire::Pod>, new: Option<podium_wire::Pod>) -> String {
    let mut spec = spec(Some("shop"), "a", watched.iter().copied().collect(), Some("web"));
    spec.watch.related = Some(Related { by, debounce: Duration::ZERO });
    let [old, new] = [old, new].map(|pod| pod.map(|pod| Arc::new(CachedPod::new(&pod).unwrap())));
    let change = Change::between(old, new).unwrap();
    let woken = Wake::new([(1, &spec)]).concerned(&change);
    assert!(woken.pods.is_empty());
    let text = |group: WokenGroup<i32>| format!("{}{}", if group.left { "-" } else { "" }, group.key);
    woken.groups.into_iter().map(text).collect::<Vec<_>>().join(" ")
}

fn replica(app: &str, phase: &str, node: Option<&str>, hash: Option<&str>) -> podium_wire::Pod {
    let mut pod = wire_pod(app, phase);
    pod.spec.node_name = node.map(Into::into);
    let owner = podium_wire::Owner { kind: "ReplicaSet".into(), name: "web-5d9".into(), ..Default::default() };
    pod.owners.push(podium_wire::Owner { uid: "r1".into(), controller: true, ..owner });
    pod.labels.extend(hash.map(|hash| ("pod-template-hash".to_owned(), hash.to_owned())));
    pod
}

#[test]
fn a_plugin_with_a_relation_is_woken_for_the_groups_of_a_pod() {
    let pod = |phase: &str| Some(replica("web", phase, Some("n1"), Some("5d9")));
    let status = [Section::Status];
    let workload = "shop/workload/Deployment/web";
    assert_eq!(groups(Relation::Workload, &status, None, pod("Pending")), workload);
    assert_eq!(groups(Relation::Workload, &status, pod("Pending"), pod("Running")), workload);
    assert_eq!(groups(Relation::Workload, &[], pod("Pending"), pod("Running")), "");
    assert_eq!(groups(Relation::Workload, &[], pod("Running"), None), format!("-{workload}"));
    assert_eq!(groups(Relation::Node, &[], pod("Running"), None), "-shop/node/n1");
    assert_eq!(groups(Relation::Label("app".into()), &[], pod("Running"), None), "-shop/label/app=web");
    assert_eq!(groups(Relation::Label("tier".into()), &[], pod("Running"), None), "");
}

#[test]
fn a_pod_that_goes_from_one_group_to_another_wakes_the_plugin_for_both() {
    let pod = |app: &str, node: Option<&str>, hash: Option<&str>| Some(replica(app, "Running", node, hash));
    // None of these sections is watched: the relation needs them.
    let moved = groups(Relation::Node, &[], pod("web", None, None), pod("web", Some("n1"), None));
    assert_eq!(moved, "shop/node/n1");
    let by_hand = groups(Relation::Workload, &[], pod("web", None, Some("5d9")), pod("web", None, None));
    assert_eq!(by_hand, "shop/workload/ReplicaSet/web-5d9 -shop/workload/Deployment/web");
    // Another label is no reason, and a Pod that the selector does not match is in no group.
    let mut labelled = replica("web", "Running", None, Some("5d9"));
    labelled.labels.insert("tier".into(), "a".into());
    assert_eq!(groups(Relation::Workload, &[], pod("web", None, Some("5d9")), Some(labelled)), "");
    let app = Relation::Label("app".into());
    assert_eq!(groups(app.clone(), &[], pod("web", None, None), pod("api", None, None)), "-shop/label/app=web");
    assert_eq!(groups(app, &[], pod("api", None, None), pod("old", None, None)), "");
}

#[test]
fn entering_or_leaving_the_selector_wakes_the_plugin() {
    let specs = [spec(None, "a", SectionSet::EMPTY.with(Section::Status), Some("web"))];
    assert_eq!(woken(&specs, Some(pod("web", "Running")), Some(pod("api", "Running"))), [0]);
    assert_eq!(woken(&specs, Some(pod("api", "Running")), Some(pod("web", "Running"))), [0]);
    assert!(woken(&specs, Some(pod("api", "Running")), Some(pod("api", "Failed"))).is_empty());
}

#[test]
fn a_namespaced_plugin_is_woken_only_by_its_own_namespace() {
    let specs = [spec(Some("shop"), "a", SectionSet::ALL, None), spec(Some("bank"), "b", SectionSet::ALL, None)];
    assert_eq!(woken(&specs, Some(pod("web", "Running")), None), [0]);
}

fn selector() -> impl Strategy<Value = LabelSelector> {
    use LabelOperator::*;
    let operator = prop::sample::select(&[In, NotIn, Exists, Absent][..]);
    let values = prop::collection::vec(0..3_u8, 1..3);
    let requirement = ("[a-d]", operator, values).prop_map(|(key, operator, values)| LabelRequirement {
        key,
        operator,
        values: if matches!(operator, In | NotIn) { values.iter().map(u8::to_string).collect() } else { Vec::new() },
    });
    prop::collection::vec(requirement, 0..3).prop_map(LabelSelector)
}

fn state() -> impl Strategy<Value = Option<podium_wire::Pod>> {
    let labels = prop::collection::btree_map("[a-d]", prop::sample::select(&["0", "1", "2"][..]), 0..4);
    prop::option::weighted(0.8, (labels, any::<bool>(), any::<bool>())).prop_map(|state| {
        let (labels, running, annotated) = state?;
        let mut pod = podium_wire::Pod::default();
        pod.header.namespace = "shop".into();
        pod.header.name = "cart-0".into();
        pod.header.uid = "u1".into();
        pod.header.resource_version = "1".into();
        pod.labels = labels.into_iter().map(|(key, value)| (key, value.to_owned())).collect();
        pod.status.phase = if running { "Running".into() } else { "Pending".into() };
        pod.annotations.extend(annotated.then(|| ("note".to_owned(), "x".to_owned())));
        Some(pod)
    })
}

proptest! {
    #[test]
    fn selectors_and_sections_decide_which_plugins_are_woken(
        plugins in prop::collection::vec((selector(), 0..1_u8 << Section::COUNT, 0..3_u8), 0..12),
        old in state(),
        new in state(),
    ) {
        let specs: Vec<_> = plugins
            .into_iter()
            .enumerate()
            .map(|(at, (selector, sections, namespace))| {
                let sections = Section::ALL.into_iter().filter(|section| sections & 1 << *section as u8 != 0);
                let namespace = [None, Some("shop"), Some("bank")][usize::from(namespace)];
                let sections = sections.fold(SectionSet::EMPTY, SectionSet::with);
                let mut spec = spec(namespace, &at.to_string(), sections, None);
                spec.watch.selector = selector;
                spec
            })
            .collect();
        let cached =
            |pod: &Option<podium_wire::Pod>| pod.as_ref().map(|pod| Arc::new(CachedPod::new(pod).unwrap()));
        let change = Change::between(cached(&old), cached(&new));
        let mut expected = Vec::new();
        if let Some(change) = &change {
            for (at, spec) in specs.iter().enumerate() {
                let matches = |pod: &Option<podium_wire::Pod>| {
                    pod.as_ref().is_some_and(|pod| spec.watch.selector.matches(&pod.labels))
                };
                let here = spec.id.namespace.as_deref().is_none_or(|namespace| namespace == "shop");
                let watched = spec.watch.sections.with(Section::Lifecycle).intersects(change.sections);
                if here && (matches(&old) != matches(&new) || (matches(&new) && watched)) {
                    expected.push(at);
                }
            }
        }
        prop_assert_eq!(woken(&specs, cached(&old), cached(&new)), expected);
    }
}

#[test]
fn a_change_of_a_label_looks_at_no_selector_of_other_labels() {
    let visited = |plugins: usize| {
        let mut specs: Vec<PluginSpec> = (0..plugins)
            .map(|at| {
                let requirement = |key: usize| LabelRequirement {
                    key: format!("k{key}"),
                    operator: LabelOperator::NotIn,
                    values: (0..8).map(|value| format!("{at}-{value}")).collect(),
                };
                let mut spec = spec(Some("shop"), &at.to_string(), SectionSet::EMPTY.with(Section::Status), None);
                spec.watch.selector = LabelSelector((0..8).map(requirement).collect());
                spec
            })
            .collect();
        specs.push(spec(Some("shop"), "app", SectionSet::EMPTY, Some("web")));
        let wake = Wake::new(specs.iter().enumerate());
        let change = Change::between(Some(pod("api", "Running")), Some(pod("web", "Running"))).unwrap();
        let old = LazyPod::new(change.old.as_deref());
        let new = LazyPod::new(change.new.as_deref());
        let mut visited = 0;
        wake.visit(&change, &old, &new, |_, _| visited += 1);
        assert_eq!(wake.concerned(&change).pods, [plugins]);
        visited
    };
    assert_eq!([10, 1_000].map(visited), [1, 1]);
}
