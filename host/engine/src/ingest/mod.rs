//! The ingest loop: watch -> cache -> wake -> queue, and our own writes back into the cache. It owns the cache's
//! writer, so every change of the cache happens here, one after the other, and wakes whom it concerns.
//!
//! It never waits for a plugin. It reads the journal's file once, after the first list, before anything of the list is
//! queued: deletions come before what took the Pods' names.

mod sweep;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use podium_pods::{
    cache::{Reader, Update, Writer},
    model::{BoxFuture, PodKey, Revision},
    pod::{CachedPod, Change, Observation, PodEvent, PodList, PodView, SortedUids, Uids},
    wake::Wake,
};
use sweep::Sweep;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::{
    dispatch::{Debts, Lane, Loaded, Plan, PodQueue, Registry},
    journal::{Found, Journal, Number, Recovery},
    memory::GiveBack,
    ports::WriteThrough,
};

/// Messages that wait for the loop. Each comes from a worker that waits for its answer.
const MESSAGES: usize = 64;

enum Message {
    Written { pods: Vec<Arc<CachedPod>>, done: oneshot::Sender<()> },
    Plugins { fresh: Option<Lane>, done: oneshot::Sender<()> },
}

/// The way into the loop.
#[derive(Clone)]
pub struct IngestHandle(mpsc::Sender<Message>);

impl IngestHandle {
    /// The registry changed; `fresh` is run on every Pod that it watches.
    pub async fn plugins_changed(&self, fresh: Option<Lane>) {
        self.pass(|done| Message::Plugins { fresh, done }).await;
    }

    /// Returns when the message was dealt with, or when the loop has ended and nothing matters any more.
    async fn pass(&self, message: impl FnOnce(oneshot::Sender<()>) -> Message) {
        let (done, dealt_with) = oneshot::channel();
        if self.0.send(message(done)).await.is_ok() {
            // An error means that the loop has ended.
            let _ = dealt_with.await;
        }
    }
}

impl WriteThrough for IngestHandle {
    fn write_through(&self, pods: Vec<Arc<CachedPod>>) -> BoxFuture<'_, ()> {
        Box::pin(self.pass(|done| Message::Written { pods, done }))
    }
}

pub struct Ingest {
    writer: Writer,
    reader: Reader,
    observations: mpsc::Receiver<Observation>,
    messages: mpsc::Receiver<Message>,
    registry: Arc<Registry>,
    queue: Arc<PodQueue>,
    debts: Arc<Debts>,
    interests: Interests,
    past: Past,
    /// Pods that plugins ran on before a restart, that the API server has and the cache has not: they cannot be
    /// decoded.
    undecoded: BTreeMap<Arc<str>, PodKey>,
    /// The cache lacks Pods that the journal knows: a checkpoint of it would make them look deleted.
    incomplete: Arc<AtomicBool>,
    /// When a plugin is to be run on all its Pods again, and how often.
    resyncs: BTreeMap<(Instant, Lane), Duration>,
    /// Plugins that are being run on all their Pods.
    sweeps: VecDeque<Sweep>,
    memory: GiveBack,
}

/// What the journal knows of the time before this process.
pub enum Past {
    /// There is no journal, or what it knew is owed by now.
    Told,
    /// What of it is gone only the first list can say, which is of one namespace or of all.
    Unlisted { journal: Arc<Journal>, recovery: Recovery, namespace: Option<String> },
}

/// Changes that readers see, and the keys that they queue.
struct Published {
    changes: Vec<Change>,
    plan: Plan<Lane>,
}

/// Whom a change concerns.
struct Interests {
    wake: Wake<Lane>,
    journal: Option<Arc<Journal>>,
    /// Loaded plugins by their number in the journal.
    lanes: BTreeMap<Number, Lane>,
}

impl Interests {
    /// Those that watch the Pod, and of a deletion also those that ran on it when it matched them or before a restart.
    fn concerned(&self, change: &Change) -> Vec<Lane> {
        let mut lanes = self.wake.concerned(change);
        if let (Some(journal), Some(last), None) = (&self.journal, &change.old, &change.new) {
            let ran: Vec<_> =
                journal.gone(&last.key).iter().filter_map(|number| self.lanes.get(number)).copied().collect();
            let others: Vec<_> = ran.into_iter().filter(|lane| !lanes.contains(lane)).collect();
            lanes.extend(others);
        }
        lanes
    }

    /// Records the deletions among the changes, before readers see them, and returns the keys to queue afterwards.
    fn record(&self, changes: &[Change], debts: &Debts, queue: &PodQueue) -> Plan<Lane> {
        let near = |key: &PodKey| self.wake.in_scope(&key.namespace);
        debts.tombstones.plan(queue, changes, |change| self.concerned(change), near, Instant::now())
    }

    /// Publishes an update after its deletions were recorded: a run on one of them always finds the last state.
    fn publish(&self, update: Update<'_>, debts: &Debts, queue: &PodQueue) -> Published {
        let plan = self.record(update.changes(), debts, queue);
        Published { changes: update.publish(), plan }
    }
}

impl Ingest {
    pub fn new(
        (writer, reader): (Writer, Reader),
        observations: mpsc::Receiver<Observation>,
        registry: Arc<Registry>,
        queue: Arc<PodQueue>,
        debts: Arc<Debts>,
        past: Past,
    ) -> (Self, IngestHandle) {
        let (sender, messages) = mpsc::channel(MESSAGES);
        let journal = match &past {
            Past::Told => None,
            Past::Unlisted { journal, .. } => Some(journal.clone()),
        };
        let interests = Interests { wake: Wake::new([]), journal, lanes: BTreeMap::new() };
        let ingest = Self {
            writer,
            reader,
            observations,
            messages,
            registry,
            queue,
            debts,
            interests,
            past,
            undecoded: BTreeMap::new(),
            incomplete: Arc::default(),
            resyncs: BTreeMap::new(),
            sweeps: VecDeque::new(),
            memory: GiveBack::default(),
        };
        (ingest, IngestHandle(sender))
    }

    /// True while the cache lacks Pods that the journal knows and the API server has.
    pub fn incomplete(&self) -> Arc<AtomicBool> {
        self.incomplete.clone()
    }

    /// Runs until the watch ends.
    pub async fn run(mut self) {
        loop {
            self.sweep();
            let resync = self.resyncs.first_key_value().map(|((due, _), _)| *due);
            let resync_due = async {
                match resync {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(message) = self.messages.recv() => self.hear(message),
                observation = self.observations.recv() => match observation {
                    Some(observation) => self.observe(observation),
                    None => return,
                },
                () = resync_due => self.resync(),
                // The watch may share the thread.
                () = tokio::task::yield_now(), if !self.sweeps.is_empty() => {}
                never = self.memory.run() => match never {},
            }
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
                let published = self.interests.publish(update, &self.debts, &self.queue);
                self.wake(published);
                if !gone.is_empty() {
                    // The cache does not have these Pods, so its changes do not contain their deletions.
                    let plan = self.interests.record(&gone, &self.debts, &self.queue);
                    self.wake(Published { changes: gone, plan });
                }
            }
            Observation::Bookmark(revision) => self.writer.bookmark(revision),
            Observation::Rewound => {
                tracing::warn!("the API server's history was set back; revisions start afresh");
                self.writer.rewind();
            }
            Observation::Live => self.writer.set_live(),
            Observation::Stale(staleness) => self.writer.set_stale(staleness),
        }
    }

    fn relist(&mut self, pods: PodList, revision: Revision) {
        let first = matches!(self.past, Past::Unlisted { .. });
        let held = if first || !self.undecoded.is_empty() { pods.held.clone() } else { Uids::default() };
        // Before anybody can save what is published.
        self.incomplete.fetch_or(first && !held.is_empty(), Relaxed);
        let update = self.writer.relist(pods, revision);
        let published = self.interests.publish(update, &self.debts, &self.queue);
        self.memory.plan();
        let held = held.sorted();
        self.tell_past(&held);
        self.tell_undecoded(&held);
        self.wake(published);
    }

    fn hear(&mut self, message: Message) {
        // Whoever waits may have been cut at its deadline.
        match message {
            Message::Written { pods, done } => {
                let update = self.writer.write_through(pods);
                let published = self.interests.publish(update, &self.debts, &self.queue);
                self.wake(published);
                let _ = done.send(());
            }
            Message::Plugins { fresh, done } => self.plugins_changed(fresh, done),
        }
    }

    /// Queues the keys of published changes, all in one step.
    fn wake(&self, Published { changes, mut plan }: Published) {
        for gone in changes.iter().filter(|change| change.new.is_none()).filter_map(Change::key) {
            self.debts.seen_gone(&gone.uid);
        }
        for (lane, excess) in std::mem::take(&mut plan.excess) {
            if let Some(loaded) = self.registry.get(lane) {
                loaded.exceeded(excess);
            }
        }
        for (lane, count) in self.debts.tombstones.queue(&self.queue, plan) {
            if let Some(loaded) = self.registry.get(lane) {
                loaded.status.added(count);
            }
        }
    }

    /// After the first list: queues what went while the host was down. Nothing of the list was queued yet, so that a
    /// deletion comes before the Pod that took the name.
    fn tell_past(&mut self, held: &SortedUids) {
        let Past::Unlisted { journal, recovery, namespace } = std::mem::replace(&mut self.past, Past::Told) else {
            return;
        };
        let snapshot = self.reader.snapshot();
        let found = |uid: &str| match () {
            () if snapshot.by_uid(uid).is_some() => Found::Cached,
            () if held.contains(uid) => Found::Undecoded,
            () => Found::Absent,
        };
        let undecoded = recovery.owe(&journal, namespace.as_deref(), found);
        self.undecoded = undecoded.into_iter().map(|key| (key.uid.clone(), key)).collect();
        let owed = journal.figures().owed;
        if owed > 0 {
            tracing::info!(
                deletions = owed,
                "pods went while the host was down; the plugins that ran on them are told"
            );
        }
        for plugin in self.registry.all() {
            self.run_on_owed(plugin.lane);
        }
    }

    /// Queues the deletions of Pods that could not be decoded and that this list does not have any more.
    fn tell_undecoded(&mut self, held: &SortedUids) {
        let snapshot = self.reader.snapshot();
        self.undecoded.retain(|uid, _| snapshot.by_uid(uid).is_none());
        let gone: Vec<_> = self.undecoded.extract_if(.., |uid, _| !held.contains(uid)).map(|(_, key)| key).collect();
        for key in gone {
            let ran: Vec<_> = {
                let numbers = self.interests.journal.iter().flat_map(|journal| journal.gone(&key));
                numbers.filter_map(|number| self.interests.lanes.get(&number).copied()).collect()
            };
            ran.into_iter().for_each(|lane| self.owe(lane, || vec![key.clone()]));
        }
        self.incomplete.store(!self.undecoded.is_empty(), Relaxed);
    }

    /// The events that delete Pods that could not be decoded, as changes.
    fn undecoded_deletions(&mut self, events: &[PodEvent]) -> Vec<Change> {
        if self.undecoded.is_empty() {
            return Vec::new();
        }
        let mut gone = Vec::new();
        for PodEvent { pod, deleted, .. } in events {
            if self.undecoded.remove(&pod.key.uid).is_some() && *deleted {
                gone.extend(Change::between(Some(pod.clone()), None));
            }
        }
        self.incomplete.store(!self.undecoded.is_empty(), Relaxed);
        gone
    }

    /// Queues the deletions that are owed to the plugin.
    fn run_on_owed(&self, lane: Lane) {
        let loaded = self.registry.get(lane);
        self.owe(lane, || loaded.and_then(|loaded| Some(loaded.account.as_ref()?.owed())).unwrap_or_default());
    }

    fn owe(&self, lane: Lane, owed: impl FnOnce() -> Vec<PodKey>) {
        let Some(loaded) = self.registry.get(lane) else { return };
        let (count, excess) = self.debts.tombstones.owe(&self.queue, lane, owed, Instant::now());
        loaded.status.added(count as u64);
        loaded.exceeded(excess);
    }

    fn plugins_changed(&mut self, fresh: Option<Lane>, done: oneshot::Sender<()>) {
        let plugins = self.registry.all();
        self.interests.wake = Wake::new(plugins.iter().map(|loaded| (loaded.lane, &loaded.spec)));
        let number = |loaded: &Arc<Loaded>| Some((loaded.account.as_ref()?.number(), loaded.lane));
        self.interests.lanes = plugins.iter().filter_map(number).collect();
        let stays = |lane: Lane| Some(lane) != fresh && plugins.iter().any(|loaded| loaded.lane == lane);
        self.resyncs.retain(|(_, lane), _| stays(*lane));
        self.sweeps.retain(|sweep| stays(sweep.lane));
        match fresh {
            Some(lane) => {
                self.plan_resync(lane);
                self.run_on_owed(lane);
                self.run_on_all(lane, Some(done));
            }
            None => _ = done.send(()),
        }
    }

    fn plan_resync(&mut self, lane: Lane) {
        if let Some(every) = self.registry.get(lane).and_then(|loaded| loaded.spec.watch.resync) {
            self.resyncs.insert((Instant::now() + every, lane), every);
        }
    }

    fn resync(&mut self) {
        let now = Instant::now();
        while let Some(entry) = self.resyncs.first_entry() {
            let (due, lane) = *entry.key();
            if due > now {
                return;
            }
            entry.remove();
            self.run_on_all(lane, None);
            self.plan_resync(lane);
        }
    }

    /// Begins to queue every Pod that the plugin watches. `done` is dropped when all are queued.
    fn run_on_all(&mut self, lane: Lane, done: Option<oneshot::Sender<()>>) {
        let under_way = self.sweeps.iter().any(|sweep| sweep.lane == lane);
        if let Some(loaded) = self.registry.get(lane).filter(|_| !under_way) {
            self.sweeps.push_back(Sweep::new(&loaded, done));
        }
    }

    /// Queues a slice of the Pods that a plugin is to be run on.
    fn sweep(&mut self) {
        let Some(mut sweep) = self.sweeps.pop_front() else { return };
        let (keys, last) = sweep.slice(&self.reader.snapshot());
        if let Some(loaded) = self.registry.get(sweep.lane) {
            loaded.status.added(keys.len() as u64);
            self.queue.add(keys.into_iter().map(|key| (sweep.lane, (key.namespace, key.name), key.uid)));
        }
        if !last {
            self.sweeps.push_back(sweep);
        }
    }
}

#[cfg(test)]
mod tests;
