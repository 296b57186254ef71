//! Decides which plugins a change concerns. Pure.
//!
//! A plugin is woken if a Pod in its scope begins or ceases to match its selector, for any reason, or if a Pod that
//! matches before and after differs in a section that the plugin watches. An added Pod begins to match, and a deleted
//! Pod ceases to.
//!
//! A plugin that runs for groups of Pods is woken for a group if a Pod joins or leaves it in this way, or if a Pod of
//! it differs in a section that the plugin watches.

mod lazy_pod;

use std::{
    borrow::Borrow,
    cell::LazyCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use lazy_pod::LazyPod;
use podium_wire::{Section, SectionSet};

use podium_pods::pod::{CachedPod, Change};
use podium_vocabulary::{Expressions, LabelOperator, PluginSpec, PodKey, Relation, Scope};

/// The interest of one plugin in changes.
#[derive(Debug, Clone)]
struct Interest<L> {
    lane: L,
    selector: Arc<Expressions>,
    related: Option<RelatedInterest>,
}

/// The interest of a plugin that runs for groups.
#[derive(Debug, Clone)]
struct RelatedInterest {
    by: Relation,
    scope: Scope,
    /// Without those that the relation needs.
    sections: SectionSet,
}

/// The plugins that a change wakes, each at most once, in the order of their lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Woken<L> {
    /// Those that run on the Pod.
    pub pods: Vec<L>,
    /// Those that run for a group of it, with both groups of a Pod that went from one to another one.
    pub groups: Vec<WokenGroup<L>>,
}

/// A group that a change wakes a plugin for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WokenGroup<L> {
    /// The plugin.
    pub lane: L,
    /// The group.
    pub key: PodKey,
    /// The Pod is not in it any more.
    pub left: bool,
}

impl<L> From<Vec<L>> for Woken<L> {
    fn from(pods: Vec<L>) -> Self {
        Self { pods, groups: Vec::new() }
    }
}

impl<L> Woken<L> {
    /// Returns true if the change wakes none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.groups.is_empty()
    }
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

/// Interests of one tenant in the same set of sections, of which there are 64, because everyone watches the life cycle.
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

    /// Returns the group of a Pod for which a plugin runs; `None` if there is none. For the interests of one plugin.
    #[must_use]
    pub fn group(&self, pod: &Arc<CachedPod>) -> Option<PodKey> {
        let added = Change::between(None, Some(pod.clone()))?;
        self.concerned(&added).groups.pop().map(|group| group.key)
    }

    /// Returns the lanes that the change wakes, in their order. In which order they run, the queue decides.
    #[must_use]
    pub fn concerned(&self, change: &Change) -> Woken<L> {
        let old = LazyPod::new(change.old.as_deref());
        let new = LazyPod::new(change.new.as_deref());
        // A Pod with unchanged labels neither begins nor ceases to match a selector.
        let moves = change.sections.contains(Section::Labels);
        let is_update = change.old.is_some() && change.new.is_some();
        let mut pods = BTreeSet::new();
        let mut groups = BTreeMap::new();
        self.visit(change, &old, &new, |interest, watched| {
            let is = new.matches(&interest.selector);
            let was = if moves { old.matches(&interest.selector) } else { is };
            let Some(related) = &interest.related else {
                if was != is || (is && watched) {
                    pods.insert(interest.lane);
                }
                return;
            };
            let watched = watched && related.sections.intersects(change.sections);
            // The value is the same in both states, so that of one of them is decoded, or of none.
            let stays = is_update && !change.sections.intersects(related.by.sections());
            if stays && was == is && !watched {
                return;
            }
            let now = is.then(|| new.group(related)).flatten();
            let before = was.then(|| if stays { new.group(related) } else { old.group(related) }).flatten();
            if before != now || watched {
                let left = before.filter(|before| now.as_ref() != Some(before));
                groups.extend(left.map(|key| ((interest.lane, true), key)));
                groups.extend(now.map(|key| ((interest.lane, false), key)));
            }
        });
        let groups = groups.into_iter().map(|((lane, left), key)| WokenGroup { lane, key, left });
        Woken { pods: pods.into_iter().collect(), groups: groups.collect() }
    }

    fn near(&self, namespace: &str) -> impl Iterator<Item = &OfTenant<L>> {
        [&self.cluster].into_iter().chain(self.namespaces.get(namespace))
    }

    /// Calls `visit` for the interests that a change may concern, for some of them twice, and with true if it is a
    /// change of a section that they watch.
    fn visit(&self, change: &Change, old: &LazyPod<'_>, new: &LazyPod<'_>, mut visit: impl FnMut(&Interest<L>, bool)) {
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
            let watched = spec.watch.sections.with(Section::Lifecycle);
            let related = spec.watch.related.as_ref().map(|related| RelatedInterest {
                by: related.by.clone(),
                scope: spec.scope(),
                sections: watched,
            });
            let sections = related.as_ref().map_or(watched, |related| watched.union(related.by.sections()));
            let groups = &mut of_tenant.groups;
            let at = groups.iter().position(|group| group.sections == sections).unwrap_or_else(|| {
                let (interests, labelled, others, by_key) = <_>::default();
                groups.push(Group { sections, interests, labelled, others, by_key });
                groups.len() - 1
            });
            groups[at].add(Interest { lane, selector, related });
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

#[cfg(test)]
mod tests;
