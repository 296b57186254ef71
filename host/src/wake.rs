//! Which plugins a change concerns. Pure.
//!
//! A plugin is woken if a Pod in its scope enters or leaves its selector, whatever made it so, or if a Pod that stays in
//! it differs in a section that the plugin watches. An addition enters, a deletion leaves.

use std::{cell::OnceCell, collections::HashMap, sync::Arc};

use podium_wire::{Labels, Section, SectionSet};

use crate::model::{CachedPod, Change, LabelSelector, PluginId, PluginSpec, Scope};

/// One plugin's interest.
#[derive(Debug, Clone)]
struct Interest<L> {
    lane: L,
    selector: LabelSelector,
    sections: SectionSet,
    rank: usize,
}

/// The interests of all plugins, so arranged that a change costs nothing for plugins of other namespaces.
#[derive(Debug, Clone)]
pub struct Wake<L> {
    cluster: Vec<Interest<L>>,
    namespaces: HashMap<Arc<str>, Vec<Interest<L>>>,
}

impl<L: Copy> Wake<L> {
    /// Lanes are named in the order in which one change queues them: by phase, within a phase predecessors first.
    pub fn new<'a>(plugins: impl IntoIterator<Item = (L, &'a PluginSpec)>) -> Self {
        let plugins: Vec<_> = plugins.into_iter().collect();
        let ranks = ranks(plugins.iter().map(|(_, spec)| *spec));
        let mut wake = Self { cluster: Vec::new(), namespaces: HashMap::new() };
        for (lane, spec) in plugins {
            let interest = Interest {
                lane,
                selector: spec.watch.selector.clone(),
                sections: spec.watch.sections.with(Section::Lifecycle),
                rank: ranks[&spec.id],
            };
            match spec.scope() {
                Scope::Cluster => wake.cluster.push(interest),
                Scope::Namespace(namespace) => wake.namespaces.entry(namespace).or_default().push(interest),
            }
        }
        wake
    }

    /// The lanes that the change wakes, in order.
    #[must_use]
    pub fn concerned(&self, change: &Change) -> Vec<L> {
        let Some(key) = change.key() else { return Vec::new() };
        let old = Lazy::new(change.old.as_deref());
        let new = Lazy::new(change.new.as_deref());
        let concerns =
            |interest: &&Interest<L>| match (old.matches(&interest.selector), new.matches(&interest.selector)) {
                (true, true) => interest.sections.intersects(change.sections),
                (was, is) => was != is,
            };
        let mut woken: Vec<_> = self.near(&key.namespace).filter(concerns).collect();
        woken.sort_by_key(|interest| interest.rank);
        woken.into_iter().map(|interest| interest.lane).collect()
    }

    fn near(&self, namespace: &str) -> impl Iterator<Item = &Interest<L>> {
        self.cluster.iter().chain(self.namespaces.get(namespace).into_iter().flatten())
    }
}

/// Labels of one state, decoded when the first selector asks.
struct Lazy<'a> {
    pod: Option<&'a CachedPod>,
    labels: OnceCell<Labels>,
}

impl<'a> Lazy<'a> {
    fn new(pod: Option<&'a CachedPod>) -> Self {
        Self { pod, labels: OnceCell::new() }
    }

    fn matches(&self, selector: &LabelSelector) -> bool {
        let Some(pod) = self.pod else { return false };
        // The cache encoded them itself; were they unreadable, a Pod without labels is what a plugin would see too.
        selector.0.is_empty() || selector.matches(self.labels.get_or_init(|| pod.labels().unwrap_or_default()))
    }
}

/// Phase first, then the longest chain of predecessors within the tenant. Cycles were refused by the configuration; a
/// chain is cut at the number of plugins all the same.
fn ranks<'a>(specs: impl Iterator<Item = &'a PluginSpec>) -> HashMap<PluginId, usize> {
    let specs: HashMap<_, _> = specs.map(|spec| (&spec.id, spec)).collect();
    let mut depths: HashMap<&PluginId, usize> = specs.keys().map(|id| (*id, 0)).collect();
    for _ in 0..specs.len() {
        let mut moved = false;
        for (id, spec) in &specs {
            let predecessors = spec.after.iter().filter_map(|name| {
                let id = PluginId { namespace: id.namespace.clone(), name: name.as_str().into() };
                depths.get(&id).copied()
            });
            let depth = predecessors.max().map_or(0, |depth| depth + 1);
            moved |= depths.insert(id, depth) != Some(depth);
        }
        if !moved {
            break;
        }
    }
    let most = specs.len() + 1;
    specs.iter().map(|(id, spec)| ((*id).clone(), spec.phase as usize * most + depths[id].min(most - 1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Grants, LabelOperator, LabelRequirement, Limits, Phase, WatchSpec};

    fn spec(namespace: Option<&str>, name: &str, sections: SectionSet, app: Option<&str>) -> PluginSpec {
        let selector = LabelSelector(
            app.map(|app| LabelRequirement {
                key: "app".into(),
                operator: LabelOperator::In,
                values: vec![app.to_owned()],
            })
            .into_iter()
            .collect(),
        );
        PluginSpec {
            id: PluginId { namespace: namespace.map(Arc::from), name: name.into() },
            source: "plugin.wasm".into(),
            impersonate: None,
            watch: WatchSpec { selector, sections, resync: None },
            grants: Grants::default(),
            limits: Limits::default(),
            phase: Phase::Main,
            after: Vec::new(),
            config: "{}".into(),
        }
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
    fn a_pod_that_enters_or_leaves_the_selector_wakes_also_when_no_watched_section_differs() {
        let specs = [spec(None, "a", SectionSet::EMPTY.with(Section::Status), Some("web"))];
        assert_eq!(woken(&specs, Some(pod("web", "Running")), Some(pod("api", "Running"))), [0]);
        assert_eq!(woken(&specs, Some(pod("api", "Running")), Some(pod("web", "Running"))), [0]);
        assert!(woken(&specs, Some(pod("api", "Running")), Some(pod("api", "Failed"))).is_empty());
    }

    #[test]
    fn a_namespaced_plugin_hears_of_its_own_namespace_alone() {
        let specs = [spec(Some("shop"), "a", SectionSet::ALL, None), spec(Some("bank"), "b", SectionSet::ALL, None)];
        assert_eq!(woken(&specs, Some(pod("web", "Running")), None), [0]);
    }

    #[test]
    fn phases_and_predecessors_set_the_order_whatever_the_order_of_loading() {
        let mut specs = ["last", "third", "second", "first"].map(|name| spec(None, name, SectionSet::ALL, None));
        specs[0].phase = Phase::After;
        specs[1].after = vec!["second".into(), "unknown".into()];
        specs[2].after = vec!["first".into()];
        assert_eq!(woken(&specs, None, Some(pod("web", "Running"))), [3, 2, 1, 0]);
    }
}
