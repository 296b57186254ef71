//! Which plugins a change concerns, and the two phases of an update: deletions are recorded, then the update is
//! published.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use podium_pods::{cache::Update, pod::Change};
use podium_vocabulary::PodKey;
use tokio::time::Instant;

use crate::wake::Wake;
use crate::{
    dispatch::{Expectations, Lane, LoadedPlugin, Plan, PodQueue},
    journal::{Journal, Number},
};

/// The changes that were published, and the keys to queue for them.
pub(super) struct Published {
    pub(super) changes: Vec<Change>,
    pub(super) plan: Plan<Lane>,
}

pub(super) struct Interests {
    wake: Wake<Lane>,
    journal: Option<Arc<Journal>>,
    /// The plugins in `wake`, by namespace.
    plugins: BTreeMap<Option<Arc<str>>, Vec<Arc<LoadedPlugin>>>,
    /// Loaded plugins by their number in the journal.
    lanes: BTreeMap<Number, Lane>,
}

impl Interests {
    pub(super) fn new(journal: Option<Arc<Journal>>) -> Self {
        Self { wake: Wake::new([]), journal, plugins: BTreeMap::new(), lanes: BTreeMap::new() }
    }

    /// Returns the plugins of the latest [`Self::set_plugins`].
    pub(super) fn lanes(&self) -> BTreeSet<Lane> {
        self.plugins.values().flatten().map(|loaded| loaded.lane).collect()
    }

    /// Returns how many plugins the namespace of each plugin has.
    pub(super) fn set_plugins(&mut self, plugins: &[Arc<LoadedPlugin>]) -> BTreeMap<Lane, usize> {
        let mut by_namespace: BTreeMap<_, Vec<_>> =
            self.plugins.keys().map(|tenant| (tenant.clone(), Vec::new())).collect();
        for loaded in plugins {
            by_namespace.entry(loaded.spec.id.namespace.clone()).or_default().push(loaded.clone());
        }
        // Only those that have changed are indexed again.
        let same = |one: &Vec<Arc<LoadedPlugin>>, other: &Vec<Arc<LoadedPlugin>>| {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| Arc::ptr_eq(one, other))
        };
        for (namespace, plugins) in &by_namespace {
            if !self.plugins.get(namespace).is_some_and(|before| same(before, plugins)) {
                let plugins = plugins.iter().map(|loaded| (loaded.lane, &loaded.spec, loaded.selector.clone()));
                self.wake.set(namespace.as_ref(), plugins);
            }
        }
        by_namespace.retain(|_, plugins| !plugins.is_empty());
        self.plugins = by_namespace;
        let number = |loaded: &Arc<LoadedPlugin>| Some((loaded.entries.as_ref()?.number(), loaded.lane));
        self.lanes = plugins.iter().filter_map(number).collect();
        let of_namespaces = self.plugins.iter().filter(|(namespace, _)| namespace.is_some());
        of_namespaces.flat_map(|(_, plugins)| plugins.iter().map(|loaded| (loaded.lane, plugins.len()))).collect()
    }

    /// Returns the plugins that watch the Pod. A deletion also concerns plugins that ran on the Pod while it matched
    /// them, or before a restart.
    fn concerned(&self, change: &Change) -> Vec<Lane> {
        let mut lanes = self.wake.concerned(change);
        if let (Some(last), None) = (&change.old, &change.new) {
            let others: Vec<_> = self.ran_on(&last.key).into_iter().filter(|lane| !lanes.contains(lane)).collect();
            lanes.extend(others);
        }
        lanes
    }

    /// Records in the journal that the Pod is gone. Returns the loaded plugins that ran on it.
    pub(super) fn ran_on(&self, key: &PodKey) -> Vec<Lane> {
        let numbers = self.journal.iter().flat_map(|journal| journal.gone(key));
        numbers.filter_map(|number| self.lanes.get(&number).copied()).collect()
    }

    /// Records the deletions among the changes, before readers see them, and returns the keys to queue afterwards.
    pub(super) fn record(&self, changes: &[Change], expectations: &Expectations, queue: &PodQueue) -> Plan<Lane> {
        let near = |key: &PodKey| self.wake.in_scope(&key.namespace);
        expectations.tombstones.plan(queue, changes, |change| self.concerned(change), near, Instant::now())
    }

    /// Publishes an update after its deletions were recorded: a run on one of them always finds the last state.
    pub(super) fn publish(&self, update: Update<'_>, expectations: &Expectations, queue: &PodQueue) -> Published {
        let plan = self.record(update.changes(), expectations, queue);
        Published { changes: update.publish(), plan }
    }
}
