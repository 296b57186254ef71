//! Which plugins a change concerns, and the two phases of an update: deletions are recorded, then the update is
//! published.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use podium_pods::{cache::Update, pod::Change};
use podium_vocabulary::PodKey;
use tokio::time::Instant;

use crate::wake::{Wake, Woken};
use crate::{
    dispatch::{Expectations, Lane, LoadedPlugin, Plan, PodQueue},
    journal::{Journal, Number},
};

/// The changes that were published, and the keys to queue for them.
pub(super) struct Published {
    pub(super) changes: Vec<Change>,
    pub(super) plan: Plan<Lane>,
}

struct OfNamespace {
    /// Its group in the order of the queue.
    group: usize,
    plugins: Vec<Arc<LoadedPlugin>>,
}

pub(super) struct Interests {
    wake: Wake<Lane>,
    journal: Option<Arc<Journal>>,
    /// The plugins in `wake`, by namespace.
    plugins: BTreeMap<Option<Arc<str>>, OfNamespace>,
    /// The number of the next group.
    groups: usize,
    /// Loaded plugins by their number in the journal.
    lanes: BTreeMap<Number, Lane>,
}

impl Interests {
    pub(super) fn new(journal: Option<Arc<Journal>>) -> Self {
        Self { wake: Wake::new([]), journal, plugins: BTreeMap::new(), groups: 0, lanes: BTreeMap::new() }
    }

    /// Returns the plugins of the latest [`Self::set_plugins`].
    pub(super) fn lanes(&self) -> BTreeSet<Lane> {
        self.plugins.values().flat_map(|of| &of.plugins).map(|loaded| loaded.lane).collect()
    }

    /// Replaces the plugins of a namespace, or those of the cluster. Returns the number of the namespace, which it
    /// keeps while it has plugins, and the lanes that are gone.
    pub(super) fn set_plugins(
        &mut self,
        namespace: &Option<Arc<str>>,
        plugins: &[Arc<LoadedPlugin>],
    ) -> (usize, Vec<Lane>) {
        let indexed = plugins.iter().map(|loaded| (loaded.lane, &*loaded.spec, loaded.selector.clone()));
        self.wake.set(namespace.as_ref(), indexed);
        let new = OfNamespace { group: self.groups, plugins: Vec::new() };
        let OfNamespace { group, plugins: before } = self.plugins.remove(namespace).unwrap_or(new);
        self.groups = self.groups.max(group + 1);
        let number = |loaded: &Arc<LoadedPlugin>| Some((loaded.entries.as_ref()?.number(), loaded.lane));
        for (number, lane) in before.iter().filter_map(number) {
            // Another plugin may have its number by now.
            if self.lanes.get(&number) == Some(&lane) {
                self.lanes.remove(&number);
            }
        }
        self.lanes.extend(plugins.iter().filter_map(number));
        let stay: BTreeSet<Lane> = plugins.iter().map(|loaded| loaded.lane).collect();
        let gone = before.iter().map(|loaded| loaded.lane).filter(|lane| !stay.contains(lane)).collect();
        if !plugins.is_empty() {
            self.plugins.insert(namespace.clone(), OfNamespace { group, plugins: plugins.to_vec() });
        }
        (group, gone)
    }

    /// Returns the plugins that watch the Pod. A deletion also concerns plugins that ran on the Pod while it matched
    /// them, or before a restart.
    fn concerned(&self, change: &Change) -> Woken<Lane> {
        let mut woken = self.wake.concerned(change);
        if let (Some(last), None) = (&change.old, &change.new) {
            let others = self.ran_on(&last.key).into_iter();
            let others: Vec<_> = others.filter(|lane| !woken.pods.contains(lane)).collect();
            woken.pods.extend(others);
        }
        woken
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
