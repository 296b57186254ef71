//! Decides which plugins a change concerns. Pure.
//!
//! A plugin is woken if a Pod in its scope begins or ceases to match its selector, for any reason, or if a Pod that
//! matches before and after differs in a section that the plugin watches. An added Pod begins to match, and a deleted
//! Pod ceases to.

use std::{
    borrow::Borrow,
    cell::{LazyCell, OnceCell},
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use podium_wire::{Labels, Section, SectionSet};

use podium_pods::pod::{CachedPod, Change};
use podium_vocabulary::{Expressions, LabelOperator, PluginSpec};

/// The interest of one plugin in changes.
#[derive(Debug, Clone)]
struct Interest<L> {
    lane: L,
    selector: Arc<Expressions>,
}

/// The interests of all plugins, arranged so that a change costs nothing for plugins that it does not concern: those of
/// other namespaces, of other sections, those whose selector requires another value of a label, and, for a change of
/// labels that no section of theirs contains, those whose selectors have none of these labels.
#[derive(Debug, Clone)]
pub struct Wake<L> {
    cluster: OfTenant<L>,
    namespaces: BTreeMap<Arc<str>, OfTenant<L>>,
}

/// The interests of the plugins of one tenant.
#[derive(Debug, Clone)]
struct OfTenant<L> {
    groups: Vec<Group<L>>,
    lanes: Vec<L>,
}

/// Interests of one tenant in the same set of sections, of which there are 128.
#[derive(Debug, Clone)]
struct Group<L> {
    sections: SectionSet,
    interests: Vec<Interest<L>>,
    /// Places of interests whose selectors require a value of a label, by label and value.
    labelled: BTreeMap<String, BTreeMap<String, Vec<usize>>>,
    /// Places of all other interests.
    others: Vec<usize>,
    /// Places of interests by the labels of their selectors, without the label that they are in `labelled` for.
    by_key: BTreeMap<String, Vec<usize>>,
}

impl<L: Copy + Ord> Wake<L> {
    /// Indexes the interests of plugins.
    pub fn new<'a>(plugins: impl IntoIterator<Item = (L, &'a PluginSpec)>) -> Self {
        let mut tenants: BTreeMap<Option<&Arc<str>>, Vec<_>> = BTreeMap::new();
        for (lane, spec) in plugins {
            let selector = Arc::new(Expressions::from(&spec.watch.selector));
            tenants.entry(spec.id.namespace.as_ref()).or_default().push((lane, spec, selector));
        }
        let mut wake = Self { cluster: OfTenant::new([]), namespaces: BTreeMap::new() };
        tenants.into_iter().for_each(|(namespace, plugins)| wake.set(namespace, plugins));
        wake
    }

    /// Replaces the interests of a namespace's plugins, or of those of the cluster. The selectors are those of the
    /// specs.
    pub fn set<'a>(
        &mut self,
        namespace: Option<&Arc<str>>,
        plugins: impl IntoIterator<Item = (L, &'a PluginSpec, Arc<Expressions>)>,
    ) {
        let of_tenant = OfTenant::new(plugins);
        match namespace {
            None => self.cluster = of_tenant,
            Some(namespace) if of_tenant.lanes.is_empty() => drop(self.namespaces.remove(namespace)),
            Some(namespace) => drop(self.namespaces.insert(namespace.clone(), of_tenant)),
        }
    }

    /// Returns the lanes of all plugins whose scope contains the namespace, whatever they watch there.
    #[must_use]
    pub fn in_scope(&self, namespace: &str) -> Vec<L> {
        self.near(namespace).flat_map(|of_tenant| &of_tenant.lanes).copied().collect()
    }

    /// Returns the lanes that the change wakes, in their order. In which order they run, the queue decides.
    #[must_use]
    pub fn concerned(&self, change: &Change) -> Vec<L> {
        let old = LazyLabels::new(change.old.as_deref());
        let new = LazyLabels::new(change.new.as_deref());
        // A Pod with unchanged labels neither begins nor ceases to match a selector.
        let moves = change.sections.contains(Section::Labels);
        let mut woken = BTreeSet::new();
        self.visit(change, &old, &new, |interest, watched| {
            let is = new.matches(&interest.selector);
            let was = if moves { old.matches(&interest.selector) } else { is };
            if was != is || (is && watched) {
                woken.insert(interest.lane);
            }
        });
        woken.into_iter().collect()
    }

    fn near(&self, namespace: &str) -> impl Iterator<Item = &OfTenant<L>> {
        [&self.cluster].into_iter().chain(self.namespaces.get(namespace))
    }

    /// Calls `visit` for the interests that a change may concern, for some of them twice, and with true if it is a
    /// change of a section that they watch.
    fn visit(
        &self,
        change: &Change,
        old: &LazyLabels<'_>,
        new: &LazyLabels<'_>,
        mut visit: impl FnMut(&Interest<L>, bool),
    ) {
        let Some(key) = change.key() else { return };
        let moves = change.sections.contains(Section::Labels);
        let left = LazyCell::new(|| old.without(new));
        let entered = LazyCell::new(|| new.without(old));
        for group in self.near(&key.namespace).flat_map(|of_tenant| &of_tenant.groups) {
            let watched = group.sections.intersects(change.sections);
            let mut each = |places: &[usize]| {
                places.iter().filter_map(|at| group.interests.get(*at)).for_each(|interest| visit(interest, watched));
            };
            if watched {
                each(&group.others);
                if !group.labelled.is_empty() {
                    common(&group.labelled, new.labels(), |values, value| each(places(values, value)));
                }
            }
            if !moves || (watched && group.labelled.is_empty()) {
                continue;
            }
            let mut all = |changed: &BTreeMap<&str, &str>| {
                common(&group.labelled, changed, |values, value| each(places(values, value)));
                if !watched {
                    common(&group.by_key, changed, |places, _| each(places));
                }
            };
            all(&left);
            if !watched {
                all(&entered);
            }
        }
    }
}

/// Calls `visit` for the keys that both maps have, in time linear in the smaller map: a Pod may have 40,000 labels,
/// and a tenant may have 64 groups.
fn common<A, B>(
    one: &BTreeMap<impl Borrow<str> + Ord, A>,
    other: &BTreeMap<impl Borrow<str> + Ord, B>,
    mut visit: impl FnMut(&A, &B),
) {
    #[cfg(test)]
    tests::VISITED.set(tests::VISITED.get() + one.len().min(other.len()));
    if one.len() <= other.len() {
        let both = one.iter().filter_map(|(key, of_one)| Some((of_one, other.get(key.borrow())?)));
        both.for_each(|(of_one, of_other)| visit(of_one, of_other));
    } else {
        let both = other.iter().filter_map(|(key, of_other)| Some((one.get(key.borrow())?, of_other)));
        both.for_each(|(of_one, of_other)| visit(of_one, of_other));
    }
}

fn places<'a>(values: &'a BTreeMap<String, Vec<usize>>, value: &str) -> &'a [usize] {
    values.get(value).map_or(&[], Vec::as_slice)
}

impl<L: Copy> OfTenant<L> {
    fn new<'a>(plugins: impl IntoIterator<Item = (L, &'a PluginSpec, Arc<Expressions>)>) -> Self {
        let mut of_tenant = Self { groups: Vec::new(), lanes: Vec::new() };
        for (lane, spec, selector) in plugins {
            of_tenant.lanes.push(lane);
            let sections = spec.watch.sections.with(Section::Lifecycle);
            let groups = &mut of_tenant.groups;
            let at = groups.iter().position(|group| group.sections == sections).unwrap_or_else(|| {
                let (interests, labelled, others, by_key) = <_>::default();
                groups.push(Group { sections, interests, labelled, others, by_key });
                groups.len() - 1
            });
            groups[at].add(Interest { lane, selector });
        }
        of_tenant
    }
}

impl<L> Group<L> {
    fn add(&mut self, interest: Interest<L>) {
        let at = self.interests.len();
        // With one value, the labels of a state lead to an interest once.
        let one = interest.selector.requirements().iter().find_map(|requirement| match &*requirement.values {
            [value] if requirement.operator == LabelOperator::In => Some((&requirement.key, value)),
            _ => None,
        });
        match one {
            Some((key, value)) => {
                let values = self.labelled.entry(key.clone()).or_default();
                values.entry(value.clone()).or_default().push(at);
            }
            None => self.others.push(at),
        }
        let keys: BTreeSet<&String> =
            interest.selector.requirements().iter().map(|requirement| &requirement.key).collect();
        for key in keys.into_iter().filter(|key| one.is_none_or(|(of, _)| of != *key)) {
            self.by_key.entry(key.clone()).or_default().push(at);
        }
        self.interests.push(interest);
    }
}

/// The labels of one state, decoded when the first selector needs them.
struct LazyLabels<'a> {
    pod: Option<&'a CachedPod>,
    labels: OnceCell<Labels>,
}

impl<'a> LazyLabels<'a> {
    fn new(pod: Option<&'a CachedPod>) -> Self {
        Self { pod, labels: OnceCell::new() }
    }

    fn matches(&self, selector: &Expressions) -> bool {
        self.pod.is_some() && (selector.is_empty() || selector.matches(self.labels()))
    }

    /// Returns the labels that the other state lacks, or has with another value.
    fn without<'b>(&'b self, other: &LazyLabels<'_>) -> BTreeMap<&'b str, &'b str> {
        let labels = self.labels();
        #[cfg(test)]
        tests::VISITED.set(tests::VISITED.get() + labels.len());
        let changed = labels.iter().filter(|(key, value)| other.labels().get(*key) != Some(value));
        changed.map(|(key, value)| (&**key, &**value)).collect()
    }

    /// Returns the labels, or an empty map without a Pod.
    fn labels(&self) -> &Labels {
        // The cache encoded the labels, so they can be decoded; otherwise a plugin too would see a Pod without labels.
        self.labels.get_or_init(|| self.pod.and_then(|pod| pod.labels().ok()).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use podium_pods::testing::{self, plugin};
    use podium_vocabulary::{LabelRequirement, LabelSelector, WatchSpec};

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
        let states =
            [("0", "Pending"), ("0", "Running"), ("1", "Running")].map(|(value, phase)| labelled(value, phase));
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
        PluginSpec { watch: WatchSpec { selector, sections, resync: None }, ..plugin(namespace, name) }
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
        Change::between(old, new).map_or_else(Vec::new, |change| Wake::new(specs.iter().enumerate()).concerned(&change))
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
            values: if matches!(operator, In | NotIn) {
                values.iter().map(u8::to_string).collect()
            } else {
                Vec::new()
            },
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
            let old = LazyLabels::new(change.old.as_deref());
            let new = LazyLabels::new(change.new.as_deref());
            let mut visited = 0;
            wake.visit(&change, &old, &new, |_, _| visited += 1);
            assert_eq!(wake.concerned(&change), [plugins]);
            visited
        };
        assert_eq!([10, 1_000].map(visited), [1, 1]);
    }
}
