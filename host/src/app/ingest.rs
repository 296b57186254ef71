//! The ingest loop: watch -> cache -> wake -> queue, and our own writes back into the cache. It owns the cache's writer,
//! so every change of the cache happens here, one after the other, and wakes whom it concerns.
//!
//! It never waits for a plugin. It reads the journal's file once, after the first list, before anything of the list is
//! queued: deletions come before what took the Pods' names.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::RwLock;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::{
    cache::{Reader, Writer},
    dispatch::{Debts, Home, Lane, Loaded, PodQueue, Registry},
    journal::{Account, Journal, Number, Recovery},
    memory::GiveBack,
    model::{BoxFuture, CachedPod, Change, Observation, PodView},
    wake::Wake,
};

/// Messages that wait for the loop. Each comes from a worker that waits for its answer.
const MESSAGES: usize = 64;

enum Message {
    Written { pods: Vec<Arc<CachedPod>>, done: oneshot::Sender<()> },
    Plugins { fresh: Option<Lane>, done: oneshot::Sender<()> },
}

/// The way into the loop.
#[derive(Clone)]
pub(super) struct Door(mpsc::Sender<Message>);

impl Door {
    /// The registry changed; `fresh` is run on every Pod that it watches.
    pub(super) async fn plugins_changed(&self, fresh: Option<Lane>) {
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

impl Home for Door {
    fn written(&self, pods: Vec<Arc<CachedPod>>) -> BoxFuture<'_, ()> {
        Box::pin(self.pass(|done| Message::Written { pods, done }))
    }
}

pub(super) struct Ingest {
    writer: Writer,
    reader: Reader,
    observations: mpsc::Receiver<Observation>,
    messages: mpsc::Receiver<Message>,
    registry: Arc<Registry>,
    queue: Arc<PodQueue>,
    debts: Arc<Debts>,
    /// Shared with the writer's witness, which runs within this loop's own calls.
    interests: Arc<RwLock<Interests>>,
    past: Past,
    /// When a plugin is to be run on all its Pods again, and how often.
    resyncs: BTreeMap<(Instant, Lane), Duration>,
    memory: GiveBack,
}

/// What the journal knows of the time before this process.
pub(super) enum Past {
    /// There is no journal, or what it knew is owed by now.
    Told,
    /// What of it is gone only the first list can say, which is of one namespace or of all.
    Unlisted { journal: Arc<Journal>, recovery: Recovery, namespace: Option<String> },
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
}

impl Ingest {
    pub(super) fn new(
        (mut writer, reader): (Writer, Reader),
        observations: mpsc::Receiver<Observation>,
        registry: Arc<Registry>,
        queue: Arc<PodQueue>,
        debts: Arc<Debts>,
        past: Past,
    ) -> (Self, Door) {
        let (door, messages) = mpsc::channel(MESSAGES);
        let journal = match &past {
            Past::Told => None,
            Past::Unlisted { journal, .. } => Some(journal.clone()),
        };
        let interests = Interests { wake: Wake::new([]), journal, lanes: BTreeMap::new() };
        let interests = Arc::new(RwLock::new(interests));
        // Before readers miss a Pod its last state is in place: no run on its deletion can come too early to find it.
        let (shared, tombstones) = (interests.clone(), debts.clone());
        writer.tell_first(move |changes| {
            let interests = shared.read();
            for change in changes {
                if let (Some(last), None) = (&change.old, &change.new) {
                    let now = Instant::now();
                    interests.concerned(change).into_iter().for_each(|lane| tombstones.bury(lane, last, now));
                }
            }
        });
        let (resyncs, memory) = (BTreeMap::new(), GiveBack::default());
        let ingest =
            Self { writer, reader, observations, messages, registry, queue, debts, interests, past, resyncs, memory };
        (ingest, Door(door))
    }

    /// Runs until the watch ends.
    pub(super) async fn run(mut self) {
        loop {
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
                never = self.memory.run() => match never {},
            }
        }
    }

    fn observe(&mut self, observation: Observation) {
        let changes = match observation {
            Observation::Relisted { pods, revision } => {
                tracing::info!(pods = pods.len(), %revision, "pods listed");
                let changes = self.writer.relist(pods, revision);
                self.memory.plan();
                self.tell_past();
                changes
            }
            Observation::Events(events) => self.writer.apply(events),
            Observation::Bookmark(revision) => {
                self.writer.bookmark(revision);
                return;
            }
            Observation::Rewound => {
                tracing::warn!("the API server's history was set back; revisions start afresh");
                self.writer.rewind();
                return;
            }
            Observation::Live => {
                self.writer.set_live();
                return;
            }
            Observation::Stale(staleness) => {
                self.writer.set_stale(staleness);
                return;
            }
        };
        self.wake(&changes);
    }

    fn hear(&mut self, message: Message) {
        let done = match message {
            Message::Written { pods, done } => {
                let changes: Vec<Change> = pods.into_iter().filter_map(|pod| self.writer.write_through(pod)).collect();
                self.wake(&changes);
                done
            }
            Message::Plugins { fresh, done } => {
                self.plugins_changed(fresh);
                done
            }
        };
        // The one who waited may have been cut at its deadline.
        let _ = done.send(());
    }

    /// Queues what the changes concern, all in one step.
    fn wake(&self, changes: &[Change]) {
        let mut items = Vec::new();
        let interests = self.interests.read();
        for change in changes {
            let Some(key) = change.key() else { continue };
            for lane in interests.concerned(change) {
                items.push((lane, (key.namespace.clone(), key.name.clone()), key.uid.clone()));
            }
            if change.new.is_none() {
                self.debts.seen_gone(&key.uid);
            }
        }
        drop(interests);
        self.count(items.iter().map(|(lane, ..)| *lane));
        self.queue.add(items);
    }

    /// After the first list: queues what went while the host was down. Nothing of the list was queued yet, so that a
    /// deletion comes before the Pod that took the name.
    fn tell_past(&mut self) {
        let Past::Unlisted { journal, recovery, namespace } = std::mem::replace(&mut self.past, Past::Told) else {
            return;
        };
        let snapshot = self.reader.snapshot();
        recovery.owe(&journal, namespace.as_deref(), |uid| snapshot.by_uid(uid).is_some());
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

    /// Queues the deletions that are owed to the plugin.
    fn run_on_owed(&self, lane: Lane) {
        let Some(loaded) = self.registry.get(lane) else { return };
        let owed = loaded.account.as_ref().map(Account::owed).unwrap_or_default();
        loaded.status.added(owed.len() as u64);
        self.queue.add(owed.into_iter().map(|key| (lane, (key.namespace, key.name), key.uid)));
    }

    fn count(&self, lanes: impl Iterator<Item = Lane>) {
        let mut counts: BTreeMap<Lane, u64> = BTreeMap::new();
        lanes.for_each(|lane| *counts.entry(lane).or_default() += 1);
        for (lane, count) in counts {
            if let Some(loaded) = self.registry.get(lane) {
                loaded.status.added(count);
            }
        }
    }

    fn plugins_changed(&mut self, fresh: Option<Lane>) {
        let plugins = self.registry.all();
        {
            let mut interests = self.interests.write();
            interests.wake = Wake::new(plugins.iter().map(|loaded| (loaded.lane, &loaded.spec)));
            let number = |loaded: &Arc<Loaded>| Some((loaded.account.as_ref()?.number(), loaded.lane));
            interests.lanes = plugins.iter().filter_map(number).collect();
        }
        self.resyncs.retain(|(_, lane), _| Some(*lane) != fresh && plugins.iter().any(|loaded| loaded.lane == *lane));
        if let Some(lane) = fresh {
            self.plan_resync(lane);
            self.run_on_owed(lane);
            self.run_on_all(lane);
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
            self.run_on_all(lane);
            self.plan_resync(lane);
        }
    }

    /// Queues every Pod that the plugin watches.
    fn run_on_all(&self, lane: Lane) {
        let Some(loaded) = self.registry.get(lane) else { return };
        let alone = Wake::new([(lane, &loaded.spec)]);
        let snapshot = self.reader.snapshot();
        let concerned = |pod: &Arc<CachedPod>| {
            let added = Change::between(None, Some(pod.clone()));
            added.is_some_and(|added| !alone.concerned(&added).is_empty())
        };
        let pods = snapshot.iter().filter(concerned);
        let items: Vec<_> =
            pods.map(|pod| (lane, (pod.key.namespace.clone(), pod.key.name.clone()), pod.key.uid.clone())).collect();
        loaded.status.added(items.len() as u64);
        self.queue.add(items);
    }
}
