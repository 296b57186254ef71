//! Deletions between the ingest loop, the queue and the workers, in many orders: each is delivered once, with the
//! last state, also to a plugin that was reloaded, from then on. The loop and the workers here call the same
//! functions in the same order as `ingest` and `dispatch`.

#![cfg(podium_model = "shuttle")]
#![expect(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use podium_engine::{
    dispatch::{Figures, Keys, Tombstones},
    ports::Subject,
    queue::{Backoff, Done, Next, Queue},
};
use podium_pods::{
    cache::{self, Reader, Update, Writer},
    pod::{CachedPod, Change, PodEvent, PodView, Record},
};
use podium_vocabulary::{PodKey, Revision};
use podium_wire::{Header, Pod};
use shuttle::{
    future::block_on,
    rand::{Rng, thread_rng},
    sync::mpsc,
    thread,
};
use tokio::time::Instant;

const NAMES: usize = 2;
const UIDS: usize = 2;
/// The number of lanes; each watches the Pods of one label.
const LANES: usize = 2;
const WORKERS: usize = 2;

/// Pods by name, incarnation and label, created once, because encoding a Pod takes longer than a schedule.
static PODS: LazyLock<Vec<CachedPod>> = LazyLock::new(|| {
    let made = (0..NAMES * UIDS * LANES).map(|at| {
        let (name, uid, label) = (at / (UIDS * LANES), at / LANES % UIDS, at % LANES);
        let header = Header {
            namespace: "shop".to_owned(),
            name: format!("pod-{name}"),
            uid: format!("uid-{name}-{uid}"),
            resource_version: "1".to_owned(),
            ..Header::default()
        };
        let labels = [("app".to_owned(), format!("l{label}"))].into();
        CachedPod::new(&Pod { header, labels, ..Pod::default() }).unwrap()
    });
    made.collect()
});

/// Reads the label of a state, which is the same number as its revision.
fn label(pod: &CachedPod) -> usize {
    pod.revision.0 as usize % LANES
}

fn pod(name: usize, uid: usize, revision: u64) -> Arc<CachedPod> {
    let mut pod = PODS[(name * UIDS + uid) * LANES + revision as usize % LANES].clone();
    pod.revision = Revision(revision);
    Arc::new(pod)
}

/// The revisions of the last states with which deletions have settled, by lane and uid.
type Settled = BTreeMap<(usize, Arc<str>), Vec<u64>>;

/// State that a worker and the ingest loop share.
struct Shared {
    queue: Keys<usize>,
    stones: Tombstones<usize>,
    settled: Mutex<Settled>,
}

/// A cluster, and the ingest loop that receives its changes.
struct Ingest {
    writer: Writer,
    shared: Arc<Shared>,
    revision: u64,
    /// The incarnation and the revision of the present state, by name.
    present: BTreeMap<usize, (usize, u64)>,
    made: [usize; NAMES],
    /// The last states of gone Pods.
    gone: BTreeMap<Arc<str>, u64>,
    /// By lane, the Pods that were deleted before the lane was last loaded.
    before: [BTreeSet<Arc<str>>; LANES],
}

fn concerned(change: &Change) -> Vec<usize> {
    let mut lanes: Vec<_> = [&change.old, &change.new].into_iter().flatten().map(|pod| label(pod)).collect();
    lanes.dedup();
    lanes
}

impl Ingest {
    fn new(writer: Writer, shared: Arc<Shared>) -> Self {
        let (present, gone, before) = <_>::default();
        Self { writer, shared, revision: 0, present, made: [0; NAMES], gone, before }
    }

    fn publish(&mut self, step: impl for<'a> FnOnce(&'a mut Writer) -> Update<'a>) {
        let Shared { queue, stones, .. } = &*self.shared;
        let all = |_: &PodKey| (0..LANES).collect();
        let update = step(&mut self.writer);
        let plan = stones.plan(queue, update.changes(), concerned, all, Instant::now());
        update.publish();
        stones.queue(queue, plan);
    }

    /// Creates, changes or deletes a Pod.
    fn event(&mut self) -> Option<PodEvent> {
        let name = thread_rng().gen_range(0..NAMES);
        self.revision += thread_rng().gen_range(1..3);
        let revision = self.revision;
        match self.present.get(&name).copied() {
            Some((uid, _)) if thread_rng().r#gen() => {
                self.present.remove(&name);
                let last = pod(name, uid, revision);
                self.gone.insert(Arc::clone(&last.key.uid), revision);
                Some(PodEvent::deleted(last))
            }
            None if self.made[name] == UIDS => None,
            held => {
                let uid = held.map_or(self.made[name], |(uid, _)| uid);
                self.made[name] += usize::from(held.is_none());
                self.present.insert(name, (uid, revision));
                Some(PodEvent::applied(pod(name, uid, revision)))
            }
        }
    }

    /// Unloads a plugin, loads it again and queues all its Pods.
    fn reload(&mut self) {
        let lane = thread_rng().gen_range(0..LANES);
        self.shared.queue.remove_lane(lane);
        self.shared.stones.forget_lane(lane);
        self.before[lane] = self.gone.keys().cloned().collect();
        let pods = self.present.iter().map(|(name, (uid, revision))| pod(*name, *uid, *revision));
        let keys = pods.filter(|pod| label(pod) == lane).map(|pod| pod.key.clone());
        self.shared.queue.add(keys.map(|key| (lane, (key.namespace, key.name), key.uid)));
    }

    fn step(&mut self) {
        if thread_rng().gen_range(0..6) == 0 {
            self.reload();
        } else if thread_rng().gen_range(0..5) == 0 {
            // A Pod was deleted without an event: a list lacks it.
            let Some((name, (uid, revision))) = self.present.pop_first() else { return };
            self.gone.insert(Arc::clone(&pod(name, uid, revision).key.uid), revision);
            self.revision += 1;
            let listed = self.present.iter().map(|(name, (uid, revision))| pod(*name, *uid, *revision).into());
            let (listed, at) = (listed.collect::<Vec<Record>>().into_iter().collect(), Revision(self.revision));
            self.publish(|writer| writer.relist(listed, at));
        } else {
            let events: Vec<_> = (0..thread_rng().gen_range(1..3)).filter_map(|_| self.event()).collect();
            self.publish(|writer| writer.apply(events));
        }
    }
}

fn worker(shared: Arc<Shared>, reader: Reader, ran: mpsc::Sender<()>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        while let Some(job) = block_on(shared.queue.next()) {
            let looked = shared.stones.find_subject(
                &shared.queue,
                &job,
                reader.snapshot().by_uid(&job.item),
                |_, _| true,
                Instant::now(),
            );
            thread::yield_now();
            let next = match thread_rng().gen_range(0..6) {
                0 => Next::Failed,
                1 => Next::After(Duration::ZERO),
                2 => Next::Postponed(Duration::ZERO),
                _ => Next::Settled,
            };
            let ended = shared.stones.done(&shared.queue, &job, next, looked.gone_for.is_some(), || {});
            // Deliveries to an unloaded plugin do not count for the one that was loaded since.
            if let (Subject::Deleted(last), true) = (&looked.subject, ended.0 != Done::Orphaned) {
                let last = last
                    .as_ref()
                    .unwrap_or_else(|| panic!("{} was delivered to {} without its state", job.item, job.lane));
                if next == Next::Settled {
                    let delivered = (job.lane, job.item.clone());
                    shared.settled.lock().unwrap().entry(delivered).or_default().push(last.revision.0);
                }
            }
            ran.send(()).unwrap();
        }
    })
}

#[test]
fn every_deletion_is_delivered_once_in_every_order() {
    common::check(100_000, 1, || {
        // Delays need a clock, which is not modelled here: failed keys are due at once.
        let backoff = Backoff { first: Duration::ZERO, most: Duration::ZERO };
        let shared = Arc::new(Shared {
            queue: Queue::new(backoff, WORKERS, 7),
            stones: Tombstones::default(),
            settled: Mutex::default(),
        });
        let (writer, reader) = cache::new(7);
        let mut ingest = Ingest::new(writer, Arc::clone(&shared));
        let (ran, runs) = mpsc::channel();
        let workers = [(); WORKERS].map(|()| worker(Arc::clone(&shared), reader.clone(), ran.clone()));
        (0..4).for_each(|_| ingest.step());
        // A lost wake-up leaves every thread waiting, which the checker reports.
        while !shared.queue.is_idle() {
            runs.recv().unwrap();
        }
        shared.queue.close();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        let settled = shared.settled.lock().unwrap();
        for (uid, last) in &ingest.gone {
            for lane in 0..LANES {
                let delivered = settled.get(&(lane, Arc::clone(uid))).map_or(&[][..], Vec::as_slice);
                let once = delivered == [*last];
                let may_miss = *last as usize % LANES != lane || ingest.before[lane].contains(uid);
                let never = delivered.is_empty() && may_miss;
                assert!(once || never, "{uid} of revision {last} was delivered to {lane} as {delivered:?}");
            }
        }
        assert!(settled.keys().all(|(_, uid)| ingest.gone.contains_key(uid)));
        for lane in 0..LANES {
            assert_eq!(shared.stones.figures(lane), Figures::default(), "a settled deletion is kept");
        }
    });
}
