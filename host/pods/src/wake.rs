//! Decides which plugins a change concerns. Pure.
//!
//! A plugin is woken if a Pod in its scope begins or ceases to match its selector, for any reason, or if a Pod that
//! matches before and after differs in a section that the plugin watches. An added Pod begins to match, and a deleted
//! Pod ceases to.

use std::{cell::OnceCell, collections::BTreeMap, sync::Arc};

use podium_wire::{Labels, Section, SectionSet};

use crate::{
    model::{LabelOperator, LabelSelector, PluginId, PluginSpec, Scope, components},
    pod::{CachedPod, Change},
};

/// The interest of one plugin in changes.
#[derive(Debug, Clone)]
struct Interest<L> {
    lane: L,
    selector: LabelSelector,
    /// The rank of phase and predecessors, and among equals the order of loading.
    rank: (usize, usize),
}

/// The interests of all plugins, arranged so that a change costs nothing for plugins that it does not concern: those of
/// other namespaces, of other sections, and those whose selector requires another value of a label.
#[derive(Debug, Clone)]
pub struct Wake<L> {
    cluster: Vec<Group<L>>,
    namespaces: BTreeMap<Arc<str>, Vec<Group<L>>>,
    /// All plugins with the scope of the cluster, and all plugins of each namespace.
    cluster_lanes: Vec<L>,
    namespace_lanes: BTreeMap<Arc<str>, Vec<L>>,
}

/// Interests of one scope in the same set of sections, of which there are 128.
#[derive(Debug, Clone)]
struct Group<L> {
    sections: SectionSet,
    /// Interests whose selectors require a value of a label, by label and value.
    labelled: BTreeMap<String, BTreeMap<String, Vec<Interest<L>>>>,
    others: Vec<Interest<L>>,
}

impl<L: Copy> Wake<L> {
    /// Indexes the interests of plugins. Lanes are returned in the order in which one change queues them: by phase, and
    /// within a phase predecessors first.
    pub fn new<'a>(plugins: impl IntoIterator<Item = (L, &'a PluginSpec)>) -> Self {
        let plugins: Vec<_> = plugins.into_iter().collect();
        let ranks = ranks(plugins.iter().map(|(_, spec)| *spec));
        let mut wake = Self {
            cluster: Vec::new(),
            namespaces: BTreeMap::new(),
            cluster_lanes: Vec::new(),
            namespace_lanes: BTreeMap::new(),
        };
        for (at, (lane, spec)) in plugins.into_iter().enumerate() {
            let interest = Interest { lane, selector: spec.watch.selector.clone(), rank: (ranks[&spec.id], at) };
            let (groups, lanes) = match spec.scope() {
                Scope::Cluster => (&mut wake.cluster, &mut wake.cluster_lanes),
                Scope::Namespace(namespace) => (
                    wake.namespaces.entry(namespace.clone()).or_default(),
                    wake.namespace_lanes.entry(namespace).or_default(),
                ),
            };
            lanes.push(lane);
            let sections = spec.watch.sections.with(Section::Lifecycle);
            match groups.iter_mut().find(|group| group.sections == sections) {
                Some(group) => group.add(interest),
                None => {
                    let mut group = Group { sections, labelled: BTreeMap::new(), others: Vec::new() };
                    group.add(interest);
                    groups.push(group);
                }
            }
        }
        wake
    }

    /// Returns the lanes of all plugins whose scope contains the namespace, whatever they watch there.
    #[must_use]
    pub fn in_scope(&self, namespace: &str) -> Vec<L> {
        self.cluster_lanes.iter().chain(self.namespace_lanes.get(namespace).into_iter().flatten()).copied().collect()
    }

    /// Returns the lanes that the change wakes, in order.
    #[must_use]
    pub fn concerned(&self, change: &Change) -> Vec<L> {
        let Some(key) = change.key() else { return Vec::new() };
        let (old, new) = (LazyLabels::new(change.old.as_deref()), LazyLabels::new(change.new.as_deref()));
        // A Pod with unchanged labels neither begins nor ceases to match a selector.
        let moves = change.sections.contains(Section::Labels);
        let mut woken: Vec<((usize, usize), L)> = Vec::new();
        let near = self.cluster.iter().chain(self.namespaces.get(&key.namespace).into_iter().flatten());
        for group in near {
            let watched = group.sections.intersects(change.sections);
            let mut visit = |interest: &Interest<L>| {
                let is = new.matches(&interest.selector);
                let was = if moves { old.matches(&interest.selector) } else { is };
                if was != is || (is && watched) {
                    woken.push((interest.rank, interest.lane));
                }
            };
            if !watched && !moves {
                continue;
            }
            group.others.iter().for_each(&mut visit);
            if group.labelled.is_empty() {
                continue;
            }
            for (key, value) in new.labels() {
                group.labelled(key, value).iter().for_each(&mut visit);
            }
            if moves {
                // Only interests that the labels of the new state do not lead to.
                let left = old.labels().iter().filter(|(key, value)| new.labels().get(*key) != Some(value));
                left.for_each(|(key, value)| group.labelled(key, value).iter().for_each(&mut visit));
            }
        }
        woken.sort_by_key(|(rank, _)| *rank);
        woken.into_iter().map(|(_, lane)| lane).collect()
    }
}

impl<L> Group<L> {
    fn add(&mut self, interest: Interest<L>) {
        // With one value, the labels of a state lead to an interest once; with several, two states could lead to it
        // twice.
        let one = interest.selector.0.iter().find_map(|requirement| match &*requirement.values {
            [value] if requirement.operator == LabelOperator::In => Some((requirement.key.clone(), value.clone())),
            _ => None,
        });
        match one {
            Some((key, value)) => self.labelled.entry(key).or_default().entry(value).or_default().push(interest),
            None => self.others.push(interest),
        }
    }

    fn labelled(&self, key: &str, value: &str) -> &[Interest<L>] {
        self.labelled.get(key).and_then(|values| values.get(value)).map_or(&[], Vec::as_slice)
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

    fn matches(&self, selector: &LabelSelector) -> bool {
        self.pod.is_some() && (selector.0.is_empty() || selector.matches(self.labels()))
    }

    /// Returns the labels, or an empty map without a Pod.
    fn labels(&self) -> &Labels {
        // The cache encoded the labels, so they can be decoded; otherwise a plugin too would see a Pod without labels.
        self.labels.get_or_init(|| self.pod.and_then(|pod| pod.labels().ok()).unwrap_or_default())
    }
}

/// Returns the rank of each plugin: by phase, then by the longest chain of predecessors within the tenant. The
/// configuration refused cycles; the plugins of one have the same rank.
fn ranks<'a>(specs: impl Iterator<Item = &'a PluginSpec>) -> BTreeMap<PluginId, usize> {
    let specs: Vec<_> = specs.collect();
    let places: BTreeMap<_, _> = specs.iter().enumerate().map(|(at, spec)| (&spec.id, at)).collect();
    let predecessors = |spec: &&PluginSpec| -> Vec<usize> {
        let of = |name: &String| PluginId { namespace: spec.id.namespace.clone(), name: name.as_str().into() };
        spec.after.iter().filter_map(|name| places.get(&of(name)).copied()).collect()
    };
    let predecessors: Vec<Vec<usize>> = specs.iter().map(predecessors).collect();
    let mut depths = vec![None; specs.len()];
    for plugins in components(specs.len(), |at| &predecessors[at]) {
        // Those of the same cycle have no depth yet.
        let before = plugins.iter().flat_map(|at| &predecessors[*at]).filter_map(|before| depths[*before]);
        let depth = before.map(|before: usize| before + 1).max().unwrap_or_default();
        plugins.into_iter().for_each(|at| depths[at] = Some(depth));
    }
    let most = specs.len() + 1;
    let rank = |(spec, depth): (&&PluginSpec, Option<usize>)| spec.phase as usize * most + depth.unwrap_or_default();
    specs.iter().zip(depths).map(|of| (of.0.id.clone(), rank(of))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        model::{LabelRequirement, Phase, WatchSpec},
        testing::{self, plugin},
    };

    fn spec(namespace: Option<&str>, name: &str, sections: SectionSet, app: Option<&str>) -> PluginSpec {
        let selector = app.map(|app| testing::selector("app", app)).unwrap_or_default();
        PluginSpec { watch: WatchSpec { selector, sections, resync: None }, ..plugin(namespace, name) }
    }

    fn pod(app: &str, phase: &str) -> Arc<CachedPod> {
        let mut pod = podium_wire::Pod::default();
        (pod.header.namespace, pod.header.name, pod.header.uid) = ("shop".into(), "cart-0".into(), "u1".into());
        pod.header.resource_version = "1".into();
        pod.labels.insert("app".into(), app.into());
        pod.status.phase = phase.into();
        Arc::new(CachedPod::new(&pod).unwrap())
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
        let requirement = ("[ab]", operator, values).prop_map(|(key, operator, values)| LabelRequirement {
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
        let labels = prop::collection::btree_map("[ab]", prop::sample::select(&["0", "1", "2"][..]), 0..3);
        prop::option::weighted(0.8, (labels, any::<bool>(), any::<bool>())).prop_map(|state| {
            let (labels, running, annotated) = state?;
            let mut pod = podium_wire::Pod::default();
            (pod.header.namespace, pod.header.name, pod.header.uid) = ("shop".into(), "cart-0".into(), "u1".into());
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
    fn phases_and_predecessors_set_the_order_not_the_loading() {
        let mut specs = ["last", "third", "second", "first"].map(|name| spec(None, name, SectionSet::ALL, None));
        specs[0].phase = Phase::After;
        specs[1].after = vec!["second".into(), "unknown".into()];
        specs[2].after = vec!["first".into()];
        assert_eq!(woken(&specs, None, Some(pod("web", "Running"))), [3, 2, 1, 0]);
    }
}
