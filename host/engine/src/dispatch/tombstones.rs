//! Tombstones: the last states of deleted Pods, each kept until the plugin's run on the deletion has settled.
//!
//! A deletion goes through four steps:
//! 1. [`Tombstones::plan`], by the ingest loop, before readers miss the Pod: each plugin to be run on the deletion gets
//!    a tombstone;
//! 2. [`Tombstones::queue`], by the ingest loop, after the publication: the keys are queued;
//! 3. [`Tombstones::look`], by a worker: a run that does not find the Pod takes its last state from the tombstone;
//! 4. [`Tombstones::done`], by the worker after the run: a run on the deletion that settled removes the tombstone.
//!
//! Workers do not wait for step 2: a key that an earlier event queued may be run in between. Therefore only a run on
//! the deletion removes a tombstone, and `queue` leaves out the keys on whose deletion a run has begun, because these
//! are in the queue until that run settles. `queue` and `done` hold the lock while they change the queue, so that
//! neither sees the other half-way.
//!
//! What a plugin keeps by not settling on deletions is bounded by [`Bounds`].
//!
//! `tests/schedules` runs this file with the queue and the cache in many orders of their threads' steps.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use podium_pods::{
    model::PodKey,
    pod::{CachedPod, Change, PodView},
    sync::Mutex,
};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::{
    ports::Subject,
    queue::{Done, Job, Next, Queue},
};

/// Namespace and name of a Pod; at most one run at a time for each plugin.
pub type Slot = (Arc<str>, Arc<str>);
/// Slots are names of Pods, items are their uids.
pub type Keys<L> = Queue<L, Slot, Arc<str>>;

/// How much is kept for one plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Last states of deletions on which a run did not settle. Beyond it the oldest ones are dropped; their deletions
    /// are delivered without.
    pub states: usize,
    /// Deletions on which a run did not settle. Beyond it the oldest ones are given up.
    pub unsettled: usize,
    /// Deletions, including those that wait for their first run. Beyond it the oldest ones are given up.
    pub all: usize,
}

impl Default for Bounds {
    /// About 12 MB of last states and 25 MB of keys for a plugin that never settles. A cluster of 150,000 Pods can be
    /// deleted at once.
    fn default() -> Self {
        Self { states: 5_000, unsettled: 50_000, all: 250_000 }
    }
}

/// What did not fit into the [`Bounds`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Excess {
    /// How many last states were dropped.
    pub states: u64,
    /// Deletions that are not delivered any more.
    pub given_up: Vec<PodKey>,
}

/// What is kept for one plugin now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// As in [`Bounds`].
    pub states: usize,
    pub unsettled: usize,
    pub all: usize,
}

/// A key to be queued.
#[derive(Debug)]
struct Wake<L> {
    lane: L,
    key: PodKey,
    /// The Pod is gone once the changes are published.
    deleted: bool,
}

/// What changes that are about to be published will queue.
#[derive(Debug)]
pub struct Plan<L> {
    wakes: Vec<Wake<L>>,
    /// By lane.
    pub excess: Vec<(L, Excess)>,
}

impl<L> Default for Plan<L> {
    fn default() -> Self {
        Self { wakes: Vec::new(), excess: Vec::new() }
    }
}

/// What a run finds of its Pod.
#[derive(Debug)]
pub struct Looked {
    pub subject: Subject,
    /// If the Pod is gone: for how long this process has known it.
    pub gone_for: Option<Duration>,
}

/// What became of a job.
#[derive(Debug)]
pub struct Ended {
    pub done: Done,
    pub excess: Excess,
}

#[derive(Debug)]
pub struct Tombstones<L> {
    inner: Mutex<Inner<L>>,
}

#[derive(Debug)]
struct Inner<L> {
    bounds: Bounds,
    numbers: u64,
    /// By uid, the plugins that have a tombstone of the Pod, and the tombstones' numbers.
    by_uid: HashMap<Arc<str>, SmallVec<[(L, u64); 1]>>,
    /// By plugin, the oldest first.
    stones: BTreeMap<(L, u64), Tombstone>,
    /// Those on which a run did not settle.
    unsettled: BTreeSet<(L, u64)>,
    /// Those of `unsettled` that have a last state.
    states: BTreeSet<(L, u64)>,
    figures: BTreeMap<L, Figures>,
}

#[derive(Debug)]
struct Tombstone {
    key: PodKey,
    /// None if the Pod was deleted while the host was down, or the state was dropped.
    last: Option<Arc<CachedPod>>,
    since: Instant,
    /// A run on the deletion has begun; until it settles the key is in the queue.
    seen: bool,
    /// A run on the deletion is under way.
    running: bool,
}

impl<L> Default for Tombstones<L> {
    fn default() -> Self {
        Self::new(Bounds::default())
    }
}

impl<L> Tombstones<L> {
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self {
            inner: Mutex::new(Inner {
                bounds,
                numbers: 0,
                by_uid: HashMap::new(),
                stones: BTreeMap::new(),
                unsettled: BTreeSet::new(),
                states: BTreeSet::new(),
                figures: BTreeMap::new(),
            }),
        }
    }
}

impl<L: Copy + Ord + Hash> Tombstones<L> {
    /// To be called with changes before they are published; the plan is for [`Tombstones::queue`] after that.
    ///
    /// `concerned` returns the lanes that a change wakes, `near` all lanes that may have a key of the Pod in the queue.
    /// A deletion concerns also those that have one, and those that an earlier change of the same step wakes, whatever
    /// the Pod's last labels are.
    #[must_use]
    pub fn plan(
        &self,
        queue: &Keys<L>,
        changes: &[Change],
        mut concerned: impl FnMut(&Change) -> Vec<L>,
        near: impl Fn(&PodKey) -> Vec<L>,
        now: Instant,
    ) -> Plan<L> {
        // The Pods that are gone after the last of the changes, and whom earlier ones concern.
        let mut gone: HashMap<&Arc<str>, Vec<L>> = HashMap::new();
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
            let mut lanes = concerned(change);
            let deleted = match (&change.old, &change.new, gone.get_mut(&key.uid)) {
                (Some(last), None, Some(earlier)) => {
                    join(&mut lanes, std::mem::take(earlier));
                    join(&mut lanes, queue.lanes_with(near(key), &slot(key), &key.uid));
                    let mut inner = self.inner.lock();
                    for lane in &lanes {
                        inner.bury(*lane, key, Some(Arc::clone(last)), now);
                        let excess = inner.enforce(*lane, queue);
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
                    self.inner.lock().exhume(&key.uid);
                    false
                }
                _ => false,
            };
            plan.wakes.extend(lanes.into_iter().map(|lane| Wake { lane, key: key.clone(), deleted }));
        }
        plan
    }

    /// Queues what [`Tombstones::plan`] planned, in one step, after the changes were published. Returns how many keys
    /// it queued for each lane.
    pub fn queue(&self, queue: &Keys<L>, plan: Plan<L>) -> BTreeMap<L, u64> {
        let mut counts = BTreeMap::new();
        let inner = self.inner.lock();
        let due = plan.wakes.into_iter().filter(|wake| !wake.deleted || inner.is_unseen(wake.lane, &wake.key.uid));
        let counted = due.inspect(|wake| *counts.entry(wake.lane).or_default() += 1);
        queue.add(counted.map(|Wake { lane, key, .. }| (lane, (key.namespace, key.name), key.uid)));
        counts
    }

    /// Queues deletions of which only the keys are known. `owed` is asked under the lock: a deletion that it names has
    /// not settled meanwhile. Returns how many there are.
    pub fn owe(&self, queue: &Keys<L>, lane: L, owed: impl FnOnce() -> Vec<PodKey>, now: Instant) -> (usize, Excess) {
        let mut inner = self.inner.lock();
        let keys = owed();
        for key in &keys {
            if inner.number(lane, &key.uid).is_none() {
                inner.bury(lane, key, None, now);
            }
        }
        let count = keys.len();
        queue.add(keys.into_iter().map(|key| (lane, (key.namespace, key.name), key.uid)));
        (count, inner.enforce(lane, queue))
    }

    /// What a run finds in `view`, and if the Pod is not there, its last state. The run is to be ended by
    /// [`Tombstones::done`].
    pub fn look(&self, lane: L, key: &PodKey, view: &dyn PodView, now: Instant) -> Looked {
        if let Some(pod) = view.by_uid(&key.uid) {
            return Looked { subject: Subject::Present(pod), gone_for: None };
        }
        let mut inner = self.inner.lock();
        let Some(stone) = inner.stone(lane, &key.uid) else {
            return Looked { subject: Subject::Deleted(None), gone_for: Some(Duration::ZERO) };
        };
        (stone.seen, stone.running) = (true, true);
        Looked { subject: Subject::Deleted(stone.last.clone()), gone_for: Some(now - stone.since) }
    }

    /// For how long this process has known that the Pod is gone, if a deletion is kept for the plugin.
    #[must_use]
    pub fn gone_for(&self, lane: L, uid: &Arc<str>, now: Instant) -> Option<Duration> {
        self.inner.lock().stone(lane, uid).map(|stone| now - stone.since)
    }

    /// Gives a job back to the queue. `on_deletion`: its run was told that the Pod is gone. `settled` is called under
    /// the lock if with this run the deletion has settled.
    pub fn done(
        &self,
        queue: &Keys<L>,
        job: &Job<L, Slot, Arc<str>>,
        next: Next,
        on_deletion: bool,
        settled: impl FnOnce(),
    ) -> Ended {
        if !on_deletion {
            return Ended { done: queue.done(job, next), excess: Excess::default() };
        }
        let mut inner = self.inner.lock();
        let number = inner.number(job.lane, &job.item);
        let next = if next == Next::Settled && number.is_some() { Next::Final } else { next };
        let done = queue.done(job, next);
        let mut excess = Excess::default();
        match (done, number) {
            // A tombstone, if there is one, is of the plugin that was loaded since.
            (Done::Orphaned, _) | (_, None) => {}
            (Done::Forgotten, Some(number)) => {
                inner.remove(job.lane, number);
                settled();
            }
            (Done::Kept, Some(number)) => {
                inner.fail(job.lane, number);
                excess = inner.enforce(job.lane, queue);
            }
        }
        Ended { done, excess }
    }

    /// The plugin was unloaded.
    pub fn forget_lane(&self, lane: L) {
        let mut inner = self.inner.lock();
        let numbers: Vec<_> = inner.stones.range(of(lane)).map(|((_, number), _)| *number).collect();
        for number in numbers {
            inner.remove(lane, number);
        }
        inner.figures.remove(&lane);
    }

    #[must_use]
    pub fn figures(&self, lane: L) -> Figures {
        self.inner.lock().figures.get(&lane).copied().unwrap_or_default()
    }
}

impl<L: Copy + Ord + Hash> Inner<L> {
    fn number(&self, lane: L, uid: &Arc<str>) -> Option<u64> {
        self.by_uid.get(uid)?.iter().find(|(of, _)| *of == lane).map(|(_, number)| *number)
    }

    fn stone(&mut self, lane: L, uid: &Arc<str>) -> Option<&mut Tombstone> {
        let number = self.number(lane, uid)?;
        self.stones.get_mut(&(lane, number))
    }

    /// True if there is a tombstone and no run on the deletion has begun.
    fn is_unseen(&self, lane: L, uid: &Arc<str>) -> bool {
        let stone = self.number(lane, uid).and_then(|number| self.stones.get(&(lane, number)));
        stone.is_some_and(|stone| !stone.seen)
    }

    fn bury(&mut self, lane: L, key: &PodKey, last: Option<Arc<CachedPod>>, now: Instant) {
        if let Some(number) = self.number(lane, &key.uid) {
            self.remove(lane, number);
        }
        self.numbers += 1;
        let stone = Tombstone { key: key.clone(), last, since: now, seen: false, running: false };
        self.stones.insert((lane, self.numbers), stone);
        self.by_uid.entry(Arc::clone(&key.uid)).or_default().push((lane, self.numbers));
        self.figures.entry(lane).or_default().all += 1;
    }

    /// The Pod is there again.
    fn exhume(&mut self, uid: &Arc<str>) {
        for (lane, number) in self.by_uid.get(uid).cloned().unwrap_or_default() {
            self.remove(lane, number);
        }
    }

    /// A run on the deletion did not settle.
    fn fail(&mut self, lane: L, number: u64) {
        let Some(stone) = self.stones.get_mut(&(lane, number)) else { return };
        stone.running = false;
        let fresh = self.unsettled.insert((lane, number));
        let state = stone.last.is_some() && self.states.insert((lane, number));
        let figures = self.figures.entry(lane).or_default();
        figures.unsettled += usize::from(fresh);
        figures.states += usize::from(state);
    }

    fn remove(&mut self, lane: L, number: u64) -> Option<Tombstone> {
        let stone = self.stones.remove(&(lane, number))?;
        if let Some(lanes) = self.by_uid.get_mut(&stone.key.uid) {
            lanes.retain(|(of, _)| *of != lane);
            if lanes.is_empty() {
                self.by_uid.remove(&stone.key.uid);
                self.shrink();
            }
        }
        let (unsettled, state) = (self.unsettled.remove(&(lane, number)), self.states.remove(&(lane, number)));
        if let Some(figures) = self.figures.get_mut(&lane) {
            figures.all -= 1;
            figures.unsettled -= usize::from(unsettled);
            figures.states -= usize::from(state);
        }
        Some(stone)
    }

    /// Gives back the room of a burst.
    fn shrink(&mut self) {
        const LEAST: usize = 1_024;
        if self.by_uid.capacity() > LEAST && self.by_uid.len() < self.by_uid.capacity() / 8 {
            self.by_uid.shrink_to(2 * self.by_uid.len());
        }
    }

    /// Drops and gives up what exceeds the bounds.
    fn enforce(&mut self, lane: L, queue: &Keys<L>) -> Excess {
        let (bounds, mut excess) = (self.bounds, Excess::default());
        let figures = |inner: &Self| inner.figures.get(&lane).copied().unwrap_or_default();
        while figures(self).states > bounds.states {
            let Some((_, oldest)) = self.states.range(of(lane)).next().copied() else { break };
            self.states.remove(&(lane, oldest));
            if let Some(stone) = self.stones.get_mut(&(lane, oldest)) {
                stone.last = None;
            }
            self.figures.entry(lane).or_default().states -= 1;
            excess.states += 1;
        }
        while figures(self).unsettled > bounds.unsettled {
            let Some(oldest) =
                self.unsettled.range(of(lane)).map(|(_, number)| *number).find(|at| self.waits(lane, *at))
            else {
                break;
            };
            excess.given_up.extend(self.give_up(lane, oldest, queue));
        }
        while figures(self).all > bounds.all {
            let oldest = self.stones.range(of(lane)).find(|(_, stone)| !stone.running);
            let Some(oldest) = oldest.map(|((_, number), _)| *number) else { break };
            excess.given_up.extend(self.give_up(lane, oldest, queue));
        }
        excess
    }

    fn waits(&self, lane: L, number: u64) -> bool {
        self.stones.get(&(lane, number)).is_some_and(|stone| !stone.running)
    }

    fn give_up(&mut self, lane: L, number: u64, queue: &Keys<L>) -> Option<PodKey> {
        let Tombstone { key, .. } = self.remove(lane, number)?;
        queue.remove(lane, slot(&key), &key.uid);
        Some(key)
    }
}

fn slot(key: &PodKey) -> Slot {
    (Arc::clone(&key.namespace), Arc::clone(&key.name))
}

/// All tombstones of a lane.
fn of<L: Copy>(lane: L) -> std::ops::RangeInclusive<(L, u64)> {
    (lane, 0)..=(lane, u64::MAX)
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
