//! Tombstones: the last states of deleted Pods, each kept until the plugin's run on the deletion has settled.
//!
//! A deletion goes through four steps:
//! 1. [`Tombstones::plan`], by the ingest loop, before readers miss the Pod: each plugin to be run on the deletion gets
//!    a tombstone;
//! 2. [`Tombstones::queue`], by the ingest loop, after the publication: the keys are queued;
//! 3. [`Tombstones::find_subject`], by a worker: a run that does not find the Pod takes its last state from the
//!    tombstone;
//! 4. [`Tombstones::done`], by the worker after the run: a run on the deletion that settled removes the tombstone.
//!
//! Workers do not wait for step 2: a key that an earlier event queued may be run in between. Therefore only a run on
//! the deletion removes a tombstone, and `queue` leaves out the keys on whose deletion a run has begun, because these
//! are in the queue until that run settles. `queue` and `done` hold the lock while they change the queue, so that
//! neither sees the other half-way. A run of a plugin that was unloaded does not count as one: it would not be
//! tried again.
//!
//! A group of Pods ([`Relation`](podium_vocabulary::Relation)) has the place of a Pod here, of which each deletion may
//! be the last: a tombstone is recorded for each Pod that leaves, the latest one is kept, and a run that finds another
//! Pod of the group drops it, if its snapshot shows that the Pod of the tombstone has left. So the ingest loop counts
//! no Pods. After a run on the end that has not settled, the next one may be on a view of before that end and leave no
//! key, so that `queue` leaves out only the keys of ends whose run is under way.
//!
//! [`Bounds`] limits how many deletions and last states are kept for the plugins of a tenant that do not settle on
//! them. A deletion that is given up goes with its key. That of a group may not be the last one: the ingest loop queues
//! all groups that have Pods again, at most once a minute ([`Tombstones::take_unsure`]).
//!
//! `tests/schedules` runs this file with the queue and the cache in many orders of their threads' steps.

mod bounds;
mod table;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

pub use bounds::{Bounds, Excess, Figures};
use podium_pods::pod::{CachedPod, Change};
use podium_sync::Mutex;
use podium_vocabulary::{PodKey, Revision, is_group};
use table::{Left, TombstoneTable};
use tokio::time::Instant;

use crate::{
    ports::Subject,
    queue::{Done, Job, Next, Queue, Why},
    wake::{Woken, WokenGroup},
};

/// The last states and deletions that are dropped under one lock after the bounds of plugins became smaller.
const AT_ONCE: usize = 500;
/// Those that are dropped with each deletion: its own two, and some of those that are beyond smaller bounds.
const WITH_EACH: usize = 4;

/// Namespace and name of a Pod or a group; at most one run at a time for each plugin.
pub type Slot = (Arc<str>, Arc<str>);
/// Slots are names of Pods and groups, items are their uids.
pub type Keys<L> = Queue<L, Slot, Arc<str>>;

/// A key to be queued.
#[derive(Debug)]
struct QueuedKey<L> {
    lane: L,
    key: PodKey,
    /// The Pod is gone once the changes are published.
    deleted: bool,
    why: Why,
}

/// The keys that changes will queue once they are published.
#[derive(Debug)]
pub struct Plan<L> {
    wakes: Vec<QueuedKey<L>>,
    /// The deletions and last states that were dropped, by lane.
    pub excess: Vec<(L, Excess)>,
}

impl<L> Default for Plan<L> {
    fn default() -> Self {
        Self { wakes: Vec::new(), excess: Vec::new() }
    }
}

impl<L> Plan<L> {
    /// Keeps only the keys of Pods that are gone. Returns none if there are none.
    #[must_use]
    pub fn into_deletions(mut self) -> Option<Self> {
        self.wakes.retain(|wake| wake.deleted);
        (!self.wakes.is_empty()).then_some(self)
    }
}

/// The subject of a run, as found when the run begins.
#[derive(Debug)]
pub struct FoundSubject {
    /// The Pod, or the last state of a deleted one if it is still kept.
    pub subject: Subject,
    /// If the Pod is gone: for how long this process has known it.
    pub gone_for: Option<Duration>,
}

/// The deletions that have not settled, with the last states of their Pods, by plugin and Pod. [`Bounds`] limits them
/// for each tenant.
#[derive(Debug)]
pub struct Tombstones<L> {
    inner: Mutex<TombstoneTable<L>>,
}

impl<L: Copy + Ord + Hash> Default for Tombstones<L> {
    fn default() -> Self {
        Self::new(Bounds::default())
    }
}

impl<L: Copy + Ord + Hash> Tombstones<L> {
    /// Returns an empty set with these bounds for each tenant. Without [`Tombstones::share`] each plugin is one.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self { inner: Mutex::new(TombstoneTable::new(bounds)) }
    }

    /// Sets the plugins of one tenant, which share its bounds, and those that are gone. Then [`Tombstones::enforce`]
    /// has to be called for them.
    pub fn share(&self, gone: &[L], sharing: &[L]) {
        let mut inner = self.inner.lock();
        gone.iter().for_each(|lane| _ = inner.sharing.remove(lane));
        inner.sharing.extend(sharing.iter().map(|lane| (*lane, sharing.len())));
    }

    /// Drops what exceeds the bounds of these plugins, about 500 last states and deletions, and returns it. To be
    /// called again until nothing is dropped.
    #[must_use]
    pub fn enforce(&self, queue: &Keys<L>, lanes: &BTreeSet<L>) -> Vec<(L, Excess)> {
        let mut inner = self.inner.lock();
        let mut left = AT_ONCE;
        let mut all = Vec::new();
        for lane in lanes.iter().copied() {
            let excess = inner.enforce(lane, queue, left);
            left = left.saturating_sub(excess.count());
            all.extend((excess != Excess::default()).then_some((lane, excess)));
        }
        all
    }

    /// To be called with changes before they are published; the plan is for [`Tombstones::queue`] after that.
    ///
    /// `concerned` returns the lanes that a change wakes, `near` all lanes that may have a key of the Pod in the queue.
    /// A deletion concerns also those that have one, and those that an earlier change of the same step wakes, whatever
    /// the Pod's last labels are.
    #[must_use]
    pub fn plan<W: Into<Woken<L>>>(
        &self,
        queue: &Keys<L>,
        changes: &[Change],
        mut concerned: impl FnMut(&Change) -> W,
        near: impl Fn(&PodKey) -> Vec<L>,
        now: Instant,
    ) -> Plan<L> {
        // The Pods that are gone after the last of the changes, and the lanes that earlier changes of them wake.
        let mut gone: BTreeMap<&Arc<str>, Vec<L>> = BTreeMap::new();
        for change in changes {
            match (&change.old, &change.new) {
                (Some(last), None) => _ = gone.insert(&last.key.uid, Vec::new()),
                (None, Some(pod)) => _ = gone.remove(&pod.key.uid),
                _ => {}
            }
        }
        let mut plan = Plan::default();
        for change in changes {
            let Some(key) = change.key() else { continue };
            let why = match (&change.old, &change.new) {
                (_, None) => Why::DELETED,
                (None, Some(_)) => Why::ADDED,
                (Some(_), Some(_)) => Why::changed(change.sections),
            };
            let Woken { pods: mut lanes, groups } = concerned(change).into();
            for WokenGroup { lane, key, left } in groups {
                if let Some(last) = change.old.clone().filter(|_| left) {
                    let at = change.new.as_ref().map_or(last.revision, |pod| pod.revision);
                    let left = Left { uid: last.key.uid.clone(), at, moved: change.new.is_some() };
                    let mut inner = self.inner.lock();
                    inner.record_left(lane, &key, left, last, now);
                    let excess = inner.enforce(lane, queue, WITH_EACH);
                    plan.excess.extend((excess != Excess::default()).then_some((lane, excess)));
                }
                plan.wakes.push(QueuedKey { lane, key, deleted: left, why });
            }
            let deleted = match (&change.old, &change.new, gone.get_mut(&key.uid)) {
                (Some(last), None, Some(earlier)) => {
                    join(&mut lanes, std::mem::take(earlier));
                    join(&mut lanes, queue.lanes_with(near(key), &slot(key), &key.uid));
                    let mut inner = self.inner.lock();
                    for lane in &lanes {
                        inner.record(*lane, key, Some(Arc::clone(last)), now);
                        let mut excess = inner.enforce(*lane, queue, WITH_EACH);
                        excess.given_up.extend(inner.enforce_name(*lane, &slot(key), queue));
                        plan.excess.extend((excess != Excess::default()).then_some((*lane, excess)));
                    }
                    true
                }
                (_, _, Some(earlier)) => {
                    join(earlier, lanes);
                    continue;
                }
                (None, ..) => {
                    // A history that was set back may bring a Pod back.
                    self.inner.lock().forget_uid(&key.uid);
                    false
                }
                _ => false,
            };
            plan.wakes.extend(lanes.into_iter().map(|lane| QueuedKey { lane, key: key.clone(), deleted, why }));
        }
        plan
    }

    /// Queues the keys of a plan, those of a Pod in one step, after the changes were published. Returns the number of
    /// queued keys for each lane.
    pub fn queue(&self, queue: &Keys<L>, plan: Plan<L>) -> BTreeMap<L, u64> {
        let mut counts = BTreeMap::new();
        let inner = self.inner.lock();
        let due = plan.wakes.into_iter().filter(|wake| !wake.deleted || inner.is_unseen(wake.lane, &wake.key.uid));
        let counted = due.inspect(|wake| *counts.entry(wake.lane).or_default() += 1);
        let items = counted.map(|QueuedKey { lane, key, why, .. }| (lane, (key.namespace, key.name), key.uid, why));
        queue.add_because(items, true);
        counts
    }

    /// Queues deletions and ends of groups of which only the keys are known. `pending` is called under the lock, so
    /// that a deletion that it returns has not settled meanwhile. Returns how many were queued; those that do not fit
    /// are given up before.
    pub fn queue_deletions(
        &self,
        queue: &Keys<L>,
        lane: L,
        pending: impl FnOnce() -> Vec<PodKey>,
        now: Instant,
    ) -> (usize, Excess) {
        let mut inner = self.inner.lock();
        let mut keys = pending();
        let mut excess = Excess::default();
        for key in &keys {
            if inner.number(lane, &key.uid).is_none() {
                inner.record(lane, key, None, now);
                excess.add(inner.enforce(lane, queue, WITH_EACH));
            }
        }
        keys.retain(|key| inner.number(lane, &key.uid).is_some());
        let count = keys.len();
        let items = keys.into_iter().map(|key| (lane, (key.namespace, key.name), key.uid, Why::DELETED));
        queue.add_because(items, false);
        (count, excess)
    }

    /// Returns the Pod that is there for the job, or the last state if it is deleted. For a group, `has_left` returns
    /// whether the run's snapshot shows that a Pod has left it at a revision. The caller must end the run by
    /// [`Tombstones::done`]. A deletion without a tombstone was given up after the key was taken; the run is the last
    /// one. If the plugin was unloaded meanwhile, its run does not change the tombstone, which belongs to the plugin
    /// that was loaded since.
    pub fn find_subject(
        &self,
        queue: &Keys<L>,
        job: &Job<L, Slot, Arc<str>>,
        present: Option<Arc<CachedPod>>,
        has_left: impl FnOnce(&str, Revision) -> bool,
        now: Instant,
    ) -> FoundSubject {
        if let Some(pod) = present {
            if is_group(&job.item) {
                self.outlived(job.lane, &job.item, has_left);
            }
            return FoundSubject { subject: Subject::Present(pod), gone_for: None };
        }
        let mut inner = self.inner.lock();
        if is_group(&job.item) && inner.number(job.lane, &job.item).is_none() {
            let (namespace, name) = job.slot.clone();
            // If the one before was given up after the key was taken, this one is no younger.
            inner.record(job.lane, &PodKey { namespace, name, uid: job.item.clone() }, None, job.queued.min(now));
        }
        let Some(tombstone) = inner.tombstone(job.lane, &job.item) else {
            return FoundSubject { subject: Subject::Deleted(None), gone_for: Some(Duration::ZERO) };
        };
        // Under the lock: an unload of the plugin comes before, or else forgets this tombstone.
        if !queue.is_orphaned(job.lane, &job.slot) {
            tombstone.seen = true;
            tombstone.running = true;
        }
        FoundSubject { subject: Subject::Deleted(tombstone.last.clone()), gone_for: Some(now - tombstone.since) }
    }

    /// A run has found a Pod of a group: the tombstone is not that of the group's last Pod, if the run's snapshot shows
    /// that its Pod has left. It may be of a Pod that came after the snapshot. Pods are looked at without the lock.
    fn outlived(&self, lane: L, group: &Arc<str>, has_left: impl FnOnce(&str, Revision) -> bool) {
        let latest = self.inner.lock().left(lane, group);
        let Some((number, left)) = latest else { return };
        if left.is_none_or(|Left { uid, at, .. }| has_left(&uid, at)) {
            self.inner.lock().remove(lane, number);
        }
    }

    /// For how long this process has known that the Pod is gone, if a deletion is kept for the plugin.
    #[must_use]
    pub fn gone_for(&self, lane: L, uid: &Arc<str>, now: Instant) -> Option<Duration> {
        self.inner.lock().tombstone(lane, uid).map(|tombstone| now - tombstone.since)
    }

    /// Returns a job to the queue, and returns where the queue left its item and what it displaced because it is kept.
    /// `on_deletion`: the subject of its run was the deletion. `settled` is called under the lock if with this run the
    /// deletion has settled, or was given up before it and is not run again.
    pub fn done(
        &self,
        queue: &Keys<L>,
        job: &Job<L, Slot, Arc<str>>,
        next: Next,
        on_deletion: bool,
        settled: impl FnOnce(),
    ) -> (Done, Excess) {
        if !on_deletion {
            return (queue.done(job, next), Excess::default());
        }
        let mut inner = self.inner.lock();
        let number = inner.number(job.lane, &job.item);
        // A group has lost another Pod since.
        if is_group(&job.item) && number.is_some_and(|number| !inner.is_running(job.lane, number)) {
            return (queue.done(job, next), Excess::default());
        }
        if let Some(number) = number.filter(|number| inner.is_back(job.lane, *number)) {
            inner.remove(job.lane, number);
            return (queue.done(job, next), Excess::default());
        }
        let next = match number {
            // A group that was added again may have a Pod again.
            Some(_) if next == Next::Settled && is_group(&job.item) => Next::Ended,
            Some(_) if next == Next::Settled => Next::Final,
            Some(_) => next,
            // Its tombstone was dropped, so the job is not kept either.
            None => Next::Settled,
        };
        let done = queue.done(job, next);
        let mut excess = Excess::default();
        match (done, number) {
            // A tombstone, if there is one, is of the plugin that was loaded since.
            (Done::Orphaned, _) | (Done::Kept, None) => {}
            // Given up before the run; the run may have been noted in the journal after that.
            (Done::Forgotten, None) => settled(),
            (Done::Forgotten, Some(number)) => {
                inner.remove(job.lane, number);
                settled();
            }
            (Done::Kept, Some(number)) => {
                inner.fail(job.lane, number);
                excess = inner.enforce(job.lane, queue, WITH_EACH);
            }
        }
        (done, excess)
    }

    /// Returns the uids of Pods whose deletions have not settled for some plugins, at most this number. For a group,
    /// that of its last Pod.
    #[must_use]
    pub fn uids(&self, most: usize, is_of: impl Fn(L) -> bool) -> Vec<Arc<str>> {
        let inner = self.inner.lock();
        let counts = |numbers: &[(L, u64)]| numbers.iter().any(|(lane, _)| is_of(*lane));
        let unsettled = inner.by_uid.iter().filter(|(_, numbers)| counts(numbers));
        let uids = unsettled.flat_map(
            |(uid, numbers)| {
                if is_group(uid) { inner.pods(numbers, &is_of) } else { vec![uid.clone()] }
            },
        );
        uids.take(most).collect()
    }

    /// Returns the last states that are kept, each once.
    #[must_use]
    pub fn states(&self) -> Vec<Arc<CachedPod>> {
        self.inner.lock().last_states()
    }

    /// The plugin was unloaded.
    pub fn forget_lane(&self, lane: L) {
        self.inner.lock().forget_lane(lane);
    }

    /// Returns true if [`Self::take_unsure`] may return plugins.
    #[must_use]
    pub fn has_unsure(&self) -> bool {
        !self.inner.lock().unsure.is_empty()
    }

    /// Returns those of the plugins of which a group was given up since the last call. A group that was given up may
    /// have Pods, so all groups that have some have to be queued after this.
    #[must_use]
    pub fn take_unsure(&self, mut is_of: impl FnMut(L) -> bool) -> Vec<L> {
        self.inner.lock().unsure.extract_if(.., |lane| is_of(*lane)).collect()
    }

    /// Returns how many tombstones are kept for the plugin of the lane.
    #[must_use]
    pub fn figures(&self, lane: L) -> Figures {
        self.inner.lock().figures(lane)
    }
}

pub(super) fn slot(key: &PodKey) -> Slot {
    (Arc::clone(&key.namespace), Arc::clone(&key.name))
}

fn join<L: PartialEq>(lanes: &mut Vec<L>, others: Vec<L>) {
    for lane in others {
        if !lanes.contains(&lane) {
            lanes.push(lane);
        }
    }
}

#[cfg(test)]
mod tests;
