//! Every Pod or group that a plugin watches, in slices, between which the ingest loop handles other work: at once after
//! a load, spread over the interval at a resync.

use std::{collections::BTreeSet, sync::Arc};

use podium_pods::{
    cache::Snapshot,
    pod::{Change, Page, PodView},
};
use podium_vocabulary::{Cursor, PodKey, PodQuery};
use tokio::sync::oneshot;

use super::gone::Delivery;
use crate::dispatch::{Lane, LoadedPlugin};
use crate::queue::Why;
use crate::wake::{Wake, Woken};

/// The number of Pods of one slice, which takes about a millisecond.
pub(super) const SLICE: usize = 1_000;

pub(super) struct Sweep {
    pub(super) lane: Lane,
    /// The reason of its runs.
    pub(super) why: Why,
    /// The interest of this plugin only.
    wake: Wake<Lane>,
    /// All Pods, or those of the plugin's namespace.
    query: PodQuery,
    /// The last Pod of the previous slice.
    after: Option<Cursor>,
    /// The deletions of a standby, which are queued first. `None` when they are.
    pub(super) gone: Option<Delivery>,
    /// The deletions that the journal has for the plugin are queued next, behind this key. `None` when they are.
    pub(super) deletions: Option<Option<PodKey>>,
    /// All Pods were queued.
    pub(super) has_all: bool,
    /// The groups that the journal has for the plugin and that have no Pod are queued last, behind this uid. `None`
    /// when they are.
    pub(super) ends: Option<Option<Arc<str>>>,
    /// The groups of the slices so far: their Pods need not be near each other.
    groups: BTreeSet<Arc<str>>,
    /// Dropped at the end of the sweep.
    done: Vec<oneshot::Sender<()>>,
}

impl Sweep {
    /// Returns a sweep. `done` is dropped after the last slice.
    pub(super) fn new(loaded: &LoadedPlugin, done: Option<oneshot::Sender<()>>) -> Self {
        let query = PodQuery { namespace: loaded.spec.id.namespace.clone(), ..PodQuery::default() };
        let wake = loaded.wake();
        let deletions = loaded.entries.is_some().then_some(None);
        let ends = loaded.entries.is_some().then_some(None);
        Self {
            lane: loaded.lane,
            why: Why::LOAD,
            wake,
            query,
            after: None,
            gone: None,
            deletions,
            has_all: false,
            ends,
            groups: BTreeSet::new(),
            done: done.into_iter().collect(),
        }
    }

    /// Returns a sweep of Pods only, because groups that may have Pods were given up.
    pub(super) fn of_groups(loaded: &LoadedPlugin) -> Self {
        Self { why: Why::RESYNC, deletions: None, ends: None, ..Self::new(loaded, None) }
    }

    /// Answers at the end of this sweep what another one was to answer, which it replaces.
    pub(super) fn replaces(&mut self, before: &mut Self) {
        self.why = self.why.and(before.why);
        self.done.append(&mut before.done);
    }

    /// Returns true while deletions are left to be queued.
    pub(super) fn has_deletions(&self) -> bool {
        self.gone.is_some() || self.deletions.is_some()
    }

    /// Returns true if nothing is left to be queued.
    pub(super) fn is_over(&self) -> bool {
        self.has_all && self.ends.is_none() && !self.has_deletions()
    }

    /// Returns true if a slice had a Pod of the group.
    pub(super) fn has_group(&self, group: &PodKey) -> bool {
        self.groups.contains(&group.uid)
    }

    /// Returns the plugin, if the change concerns it.
    pub(super) fn concerned(&self, change: &Change) -> Woken<Lane> {
        self.wake.concerned(change)
    }

    /// Returns the number of all Pods, or of those in the plugin's namespace. They are not searched.
    pub(super) fn count(&self, snapshot: &Snapshot) -> usize {
        usize::try_from(snapshot.count(&self.query)).unwrap_or(usize::MAX)
    }

    /// Returns the watched Pods among the next `most`, or their groups, each once, and whether these were the last
    /// ones. After them the first Pods follow again.
    pub(super) fn slice(&mut self, snapshot: &Snapshot, most: usize) -> (Vec<PodKey>, bool) {
        if self.after.is_none() {
            self.groups.clear();
        }
        let Page { pods, next, .. } = snapshot.find(&self.query, most, self.after.as_ref());
        let mut keys = Vec::new();
        for added in pods.into_iter().filter_map(|pod| Change::between(None, Some(pod))) {
            let Woken { pods, groups } = self.wake.concerned(&added);
            keys.extend(added.key().filter(|_| !pods.is_empty()).cloned());
            let groups = groups.into_iter().map(|group| group.key);
            keys.extend(groups.filter(|group| self.groups.insert(group.uid.clone())));
        }
        self.after = next;
        (keys, self.after.is_none())
    }
}
