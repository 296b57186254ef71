//! The ingest loop: watch -> cache -> wake -> queue. The loop owns the cache's writer, so all changes of the cache
//! happen here, one after the other.
//!
//! The loop never waits for a plugin, and no blocking call runs on its thread: free memory is returned to the kernel
//! and the journal is read through [`Blocking`].

mod gone;
mod handle;
mod interests;
mod replay;
mod resync;
mod sweep;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use gone::Delivery;
pub use gone::GonePods;
pub use handle::IngestHandle;
use handle::Request;
use interests::{Interests, Published};
use podium_pods::{
    cache::{Reader, Writer},
    pod::{Change, Observation, PodEvent, PodList, PodView, SortedUids, Uids},
};
use podium_vocabulary::{PodKey, Revision};
pub use replay::Reopened;
use replay::{DeferredObservations, Reading, Replay};
use resync::Resyncs;
use sweep::{SLICE, Sweep};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::{
    dispatch::{Excess, Expectations, Lane, Plan, PodQueue, Registry, order},
    memory::{TrimSchedule, trim},
    ports::Blocking,
    queue::Why,
};

/// How often the groups of a plugin that have Pods are queued again while groups of it are given up.
const GROUPS_AGAIN: Duration = Duration::from_secs(60);

/// The channels and shared state of the ingest loop.
pub struct IngestOptions {
    /// Events, lists and the state of the watch, sent by the watch's task.
    pub observations: mpsc::Receiver<Observation>,
    /// The loaded plugins, whose selectors are matched against changes.
    pub registry: Arc<Registry>,
    /// The queue to which keys are added.
    pub queue: Arc<PodQueue>,
    /// The tombstones and gates, which the loop keeps up to date with the cache.
    pub expectations: Arc<Expectations>,
    /// The journal of an earlier process; `None` without a journal.
    pub reopened: Option<Reopened>,
    /// The deletions of a standby.
    pub gone: Arc<GonePods>,
    /// Runs blocking jobs: reading the journal and trimming the heap.
    pub blocking: Arc<dyn Blocking>,
}

/// The state of the loop: the cache's writer and everything that follows its changes in order.
pub struct Ingest {
    writer: Writer,
    reader: Reader,
    observations: mpsc::Receiver<Observation>,
    requests: mpsc::Receiver<Request>,
    registry: Arc<Registry>,
    queue: Arc<PodQueue>,
    expectations: Arc<Expectations>,
    blocking: Arc<dyn Blocking>,
    gone: Arc<GonePods>,
    interests: Interests,
    replay: Replay,
    /// The only namespace that is listed; `None` for all.
    listed: Option<String>,
    /// Pods on which plugins ran before a restart, and which the API server has and the cache lacks because they
    /// cannot be decoded.
    undecoded: BTreeMap<Arc<str>, PodKey>,
    /// The steps of the loop so far.
    steps: Arc<AtomicU64>,
    resyncs: Resyncs,
    /// When groups that may have Pods are queued again at the earliest, after they were given up.
    groups_again: Instant,
    /// Plugins whose Pods are being queued.
    sweeps: VecDeque<Sweep>,
    /// Plugins whose tombstones may exceed their bounds since the plugins of their tenant became more.
    exceeding: BTreeSet<Lane>,
    trims: TrimSchedule,
}

impl Ingest {
    /// Returns the loop, and the handle through which other tasks announce plugins.
    #[must_use]
    pub fn new((writer, reader): (Writer, Reader), options: IngestOptions) -> (Self, IngestHandle) {
        let IngestOptions { observations, registry, queue, expectations, reopened, gone, blocking } = options;
        let (handle, requests) = handle::channel();
        let listed = reopened.as_ref().and_then(|reopened| reopened.namespace.clone());
        let replay = reopened.map_or(Replay::Done, Replay::AwaitingFirstList);
        let ingest = Self {
            writer,
            reader,
            observations,
            requests,
            registry,
            queue,
            expectations,
            blocking,
            gone,
            interests: Interests::new(replay.journal()),
            replay,
            listed,
            undecoded: BTreeMap::new(),
            steps: Arc::default(),
            resyncs: Resyncs::default(),
            groups_again: Instant::now(),
            sweeps: VecDeque::new(),
            exceeding: BTreeSet::new(),
            trims: TrimSchedule::default(),
        };
        (ingest, handle)
    }

    /// Returns the number of steps that the loop has completed, for a watchdog.
    pub fn steps(&self) -> Arc<AtomicU64> {
        self.steps.clone()
    }

    /// Runs until the watch ends.
    pub async fn run(mut self) {
        loop {
            self.sweep();
            let resync = self.resyncs.due().filter(|_| self.replay.meanwhile().is_none());
            let resync_due = async {
                match resync {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            let unsure = self.unsure_due();
            let unsure_due = async {
                match unsure {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            let is_sweeping = self.is_sweeping();
            tokio::select! {
                biased;
                Some(Request { fresh, done }) = self.requests.recv() => self.plugins_changed(fresh, done),
                read = self.replay.read() => match read {
                    true => self.replay_deletions(),
                    // The thread that read the journal has panicked.
                    false => return,
                },
                observation = self.observations.recv() => match observation {
                    Some(observation) => self.observe(observation),
                    None => return,
                },
                () = resync_due => self.resync(),
                () = unsure_due => self.queue_groups_again(),
                // The watch may share the thread.
                () = tokio::task::yield_now(), if is_sweeping => {}
                () = self.trims.due() => self.blocking.run(Box::new(trim)),
            }
            self.steps.fetch_add(1, Relaxed);
        }
    }

    fn observe(&mut self, observation: Observation) {
        match observation {
            Observation::Relisted { pods, revision } => {
                tracing::info!(pods = pods.len(), %revision, "pods listed");
                self.relist(pods, revision);
            }
            Observation::Events(events) => {
                let gone = self.undecoded_deletions(&events);
                let update = self.writer.apply(events);
                let published = self.interests.publish(update, &self.expectations, &self.queue);
                self.wake(published);
                self.wake_unknown(gone);
            }
            Observation::Bookmark(revision) => self.writer.bookmark(revision),
            Observation::RolledBack => {
                tracing::warn!("API server's history was rolled back; replacing all pods");
                self.gone.rolled_back();
                self.writer.roll_back();
            }
            Observation::Live => self.writer.set_live(),
            Observation::Stale(staleness) => self.writer.set_stale(staleness),
        }
        // Behind the queue: a delivery that ends with this finds its own events in it.
        self.expectations.seen.up_to(self.reader.snapshot().revision());
    }

    fn relist(&mut self, pods: PodList, revision: Revision) {
        let is_needed = !matches!(self.replay, Replay::Done) || !self.undecoded.is_empty();
        let held = if is_needed { pods.held.clone() } else { Uids::default() };
        let update = self.writer.relist(pods, revision);
        let published = self.interests.publish(update, &self.expectations, &self.queue);
        self.expectations.seen.listed(self.reader.snapshot().revision());
        self.trims.plan();
        let held = Arc::new(held.sorted());
        match std::mem::replace(&mut self.replay, Replay::Done) {
            Replay::Done => self.queue_undecoded(&held),
            Replay::AwaitingFirstList(reopened) => {
                let reading = Reading::start(reopened, self.reader.snapshot(), held, &*self.blocking);
                self.replay = Replay::Reading(reading);
            }
            mut replay @ (Replay::Reading(_) | Replay::Queueing(..)) => {
                replay.meanwhile().into_iter().for_each(|meanwhile| meanwhile.held = held.clone());
                self.replay = replay;
            }
        }
        self.wake(published);
    }

    /// Queues the keys of published changes in one step. Until the deletions of the journal are queued, only the keys
    /// of deleted Pods are kept for later, because afterwards each plugin runs on all its Pods.
    fn wake(&mut self, Published { changes, mut plan }: Published) {
        self.trims.changed(changes.len(), self.reader.snapshot().len());
        self.gone.record(&changes, self.reader.snapshot().revision());
        for gone in changes.iter().filter(|change| change.new.is_none()).filter_map(Change::key) {
            self.expectations.seen_gone(&gone.uid);
        }
        self.exceeded(std::mem::take(&mut plan.excess));
        if let Some(meanwhile) = self.replay.meanwhile() {
            meanwhile.plans.extend(plan.into_deletions());
        } else {
            self.queue(plan);
        }
    }

    fn exceeded(&self, excess: Vec<(Lane, Excess)>) {
        for (lane, excess) in excess {
            if let Some(loaded) = self.registry.get(lane) {
                self.expectations.exceeded(&loaded, excess);
            }
        }
    }

    fn queue(&self, plan: Plan<Lane>) {
        for (lane, count) in self.expectations.queue(&self.queue, plan) {
            if let Some(loaded) = self.registry.get(lane) {
                loaded.status.adds.add(count);
            }
        }
    }

    /// Queues deletions of Pods that the cache does not have and that its changes therefore lack.
    fn wake_unknown(&mut self, changes: Vec<Change>) {
        if !changes.is_empty() {
            let plan = self.interests.record(&changes, &self.expectations, &self.queue);
            self.wake(Published { changes, plan });
        }
    }

    /// Handles the end of reading the journal: begins to queue the deletions of Pods that were deleted while the host
    /// was down, and then all Pods.
    fn replay_deletions(&mut self) {
        // A plugin whose load is not known here yet gets its deletions and its Pods with it.
        for lane in self.interests.lanes() {
            let Some(loaded) = self.registry.get(lane) else { continue };
            let sweep = Sweep::new(&loaded, None);
            match self.sweeps.iter_mut().find(|sweep| sweep.lane == lane) {
                Some(under_way) => {
                    under_way.deletions = sweep.deletions;
                    under_way.ends = sweep.ends;
                }
                None => self.sweeps.push_back(sweep),
            }
        }
    }

    /// Queues the deletions that were observed before those of the journal were queued.
    fn replayed(&mut self) {
        let replay = std::mem::replace(&mut self.replay, Replay::Done);
        let Replay::Queueing(undecoded, DeferredObservations { held, plans, deletions }) = replay else { return };
        self.undecoded = undecoded.into_iter().map(|key| (key.uid.clone(), key)).collect();
        plans.into_iter().for_each(|plan| self.queue(plan));
        let deletions: Vec<_> = deletions.into_iter().map(PodEvent::deleted).collect();
        let gone = self.undecoded_deletions(&deletions);
        self.wake_unknown(gone);
        self.queue_undecoded(&held);
    }

    /// Queues the deletions of undecodable Pods that are not in this list.
    fn queue_undecoded(&mut self, held: &SortedUids) {
        let snapshot = self.reader.snapshot();
        self.undecoded.retain(|uid, _| snapshot.by_uid(uid).is_none());
        let gone: Vec<_> = self.undecoded.extract_if(.., |uid, _| !held.contains(uid)).map(|(_, key)| key).collect();
        for key in gone {
            self.interests.ran_on(&key).into_iter().for_each(|lane| self.queue_deletions(lane, || vec![key.clone()]));
        }
    }

    /// Returns, as changes, the events that delete undecodable Pods.
    fn undecoded_deletions(&mut self, events: &[PodEvent]) -> Vec<Change> {
        if let Some(meanwhile) = self.replay.meanwhile() {
            meanwhile.observe(events);
        }
        if self.undecoded.is_empty() {
            return Vec::new();
        }
        let mut gone = Vec::new();
        for PodEvent { pod, deleted, .. } in events {
            if self.undecoded.remove(&pod.key.uid).is_some() && *deleted {
                gone.extend(Change::between(Some(pod.clone()), None));
            }
        }
        gone
    }

    /// Queues the next deletions that the journal has for the plugin behind a key. Returns the last of them; `None` if
    /// no more follow.
    fn queue_pending_deletions(&self, lane: Lane, after: Option<&PodKey>, most: usize) -> Option<PodKey> {
        let loaded = self.registry.get(lane)?;
        let entries = loaded.entries.as_ref()?;
        let mut last = None;
        self.queue_deletions(lane, || {
            let keys = entries.pending_deletions_after(after, most);
            last = keys.get(most.saturating_sub(1)).cloned();
            keys
        });
        last
    }

    /// Queues the next groups that the journal has for the plugin behind a uid and of which the sweep found no Pod.
    /// Returns the uid of the last of them; `None` if no more follow.
    fn queue_ends(&self, sweep: &Sweep, after: Option<&str>) -> Option<Arc<str>> {
        let loaded = self.registry.get(sweep.lane)?;
        let entries = loaded.entries.as_ref()?;
        let mut last = None;
        self.queue_deletions(sweep.lane, || {
            let groups = entries.groups_after(after, SLICE);
            last = groups.get(SLICE - 1).map(|group| group.uid.clone());
            // A Pod of another namespace is not listed, and is not gone for that.
            let is_listed = |key: &PodKey| self.listed.as_ref().is_none_or(|listed| *listed == *key.namespace);
            groups.into_iter().filter(|group| is_listed(group) && !sweep.has_group(group)).collect()
        });
        last
    }

    fn queue_deletions(&self, lane: Lane, keys: impl FnOnce() -> Vec<PodKey>) {
        let Some(loaded) = self.registry.get(lane) else { return };
        let (count, excess) = self.expectations.tombstones.queue_deletions(&self.queue, lane, keys, Instant::now());
        loaded.status.adds.add(count as u64);
        self.expectations.exceeded(&loaded, excess);
    }

    /// Applies the changes of the registry, and looks only at the plugins of tenants that have changed. Returns false
    /// if there are none: of many removals that come at once, the first request that is handled applies all.
    fn follow_registry(&mut self) -> bool {
        let changed = self.registry.take_changed();
        for (namespace, plugins) in &changed {
            let (group, gone) = self.interests.set_plugins(namespace, plugins);
            let lanes: Vec<Lane> = plugins.iter().map(|loaded| loaded.lane).collect();
            // Each plugin of the cluster has the bounds by itself.
            let sharing = if namespace.is_some() { &lanes[..] } else { &[] };
            self.expectations.tombstones.share(&gone, sharing);
            self.exceeding.extend(lanes);
            self.queue.set_order(&[group], order(group, plugins));
            if !gone.is_empty() {
                self.resyncs.retain(|lane| !gone.contains(&lane));
                self.sweeps.retain(|sweep| !gone.contains(&sweep.lane));
            }
        }
        self.enforce();
        !changed.is_empty()
    }

    fn plugins_changed(&mut self, fresh: Option<(Lane, Why)>, done: oneshot::Sender<()>) {
        self.follow_registry();
        let Some((lane, why)) = fresh else {
            // An error means that nothing waits for the answer any more.
            let _ = done.send(());
            return;
        };
        self.resyncs.retain(|other| other != lane);
        let mut before = self.sweeps.iter().position(|sweep| sweep.lane == lane).and_then(|at| self.sweeps.remove(at));
        let Some(loaded) = self.registry.get(lane) else { return };
        self.resyncs.plan(&loaded, &self.reader.snapshot(), Instant::now());
        let mut sweep = Sweep::new(&loaded, Some(done));
        sweep.why = why;
        if let Some(before) = &mut before {
            sweep.replaces(before);
        }
        let left = before.and_then(|before| before.gone);
        sweep.gone = left.or_else(|| self.gone.begin_delivery(lane, loaded.spec.id.namespace.clone()));
        self.sweeps.push_back(sweep);
    }

    /// Queues a slice of the deletions of while another replica ran the plugin. Returns those that are left.
    fn deliver_gone(&self, sweep: &Sweep, delivery: &Delivery) -> Option<Delivery> {
        let (changes, left) = self.gone.next_slice(delivery, SLICE);
        let near = |_: &PodKey| vec![sweep.lane];
        let tombstones = &self.expectations.tombstones;
        let concerned = |change: &Change| sweep.concerned(change);
        let mut plan = tombstones.plan(&self.queue, &changes, concerned, near, Instant::now());
        self.exceeded(std::mem::take(&mut plan.excess));
        self.queue(plan);
        left
    }

    /// Drops some of the deletions that exceed the bounds. Further steps of the loop drop the others.
    fn enforce(&mut self) {
        let excess = self.expectations.tombstones.enforce(&self.queue, &self.exceeding);
        if excess.is_empty() {
            self.exceeding.clear();
        }
        self.exceeded(excess);
    }

    /// Queues the Pods of resyncs that are due.
    fn resync(&mut self) {
        let snapshot = self.reader.snapshot();
        let now = Instant::now();
        while let Some((lane, keys)) = self.resyncs.next(&snapshot, now) {
            self.add(lane, keys, Why::RESYNC);
        }
    }

    fn is_sweeping(&self) -> bool {
        !self.exceeding.is_empty() || self.has_slices()
    }

    fn has_slices(&self) -> bool {
        match self.replay {
            Replay::Reading(_) => false,
            Replay::Queueing(..) => true,
            Replay::Done | Replay::AwaitingFirstList(_) => !self.sweeps.is_empty(),
        }
    }

    /// Queues a slice of a plugin's deletions or Pods, and drops deletions that exceed the bounds.
    fn sweep(&mut self) {
        if !self.exceeding.is_empty() {
            self.enforce();
        }
        if !self.has_slices() {
            return;
        }
        let only_deletions = matches!(self.replay, Replay::Queueing(..));
        let next = self.sweeps.iter().position(|sweep| !only_deletions || sweep.has_deletions());
        let Some(mut sweep) = next.and_then(|at| self.sweeps.remove(at)) else { return self.replayed() };
        if let Some(delivery) = sweep.gone.take() {
            sweep.gone = self.deliver_gone(&sweep, &delivery);
            return self.sweeps.push_back(sweep);
        }
        // Before the first list nothing says that a Pod or a group is gone; after it all are queued.
        if matches!(self.replay, Replay::AwaitingFirstList(_)) {
            sweep.deletions = None;
            sweep.ends = None;
        }
        if let Some(after) = sweep.deletions.take() {
            sweep.deletions = self.queue_pending_deletions(sweep.lane, after.as_ref(), SLICE).map(Some);
            return self.sweeps.push_back(sweep);
        }
        if !sweep.has_all {
            let (keys, last) = sweep.slice(&self.reader.snapshot(), SLICE);
            self.add(sweep.lane, keys, sweep.why);
            sweep.has_all = last;
        } else if let Some(after) = sweep.ends.take() {
            sweep.ends = self.queue_ends(&sweep, after.as_deref()).map(Some);
        }
        if !sweep.is_over() {
            self.sweeps.push_back(sweep);
        }
    }

    /// Returns when groups that may have Pods are queued again because they were given up; `None` if none were.
    fn unsure_due(&self) -> Option<Instant> {
        self.expectations.tombstones.has_unsure().then_some(self.groups_again)
    }

    /// Queues all groups that have Pods, of plugins of which groups were given up.
    fn queue_groups_again(&mut self) {
        self.groups_again = Instant::now() + GROUPS_AGAIN;
        // A sweep under way may have passed a Pod before its group was given up.
        let is_swept = |lane| self.sweeps.iter().any(|sweep| sweep.lane == lane);
        let unsure = self.expectations.tombstones.take_unsure(|lane| !is_swept(lane));
        let loaded = unsure.into_iter().filter_map(|lane| self.registry.get(lane));
        self.sweeps.extend(loaded.map(|loaded| Sweep::of_groups(&loaded)).collect::<Vec<_>>());
    }

    fn add(&self, lane: Lane, keys: Vec<PodKey>, why: Why) {
        if let Some(loaded) = self.registry.get(lane) {
            loaded.status.adds.add(keys.len() as u64);
            let items = keys.into_iter().map(|key| (lane, (key.namespace, key.name), key.uid, why));
            self.queue.add_because(items, false);
        }
    }
}

#[cfg(test)]
mod tests;
