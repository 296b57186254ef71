//! The whole way of a key: queue, journal, dispatch, sandbox, writes, the cache. After a number of polls either the run
//! is dropped, as its limit of time does it, or the worker, as a shutdown does it.

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    task::Poll,
    time::Duration,
};

use futures::future::BoxFuture;
use podium_engine::{
    clock::Clock,
    dispatch::{Dispatch, Expectations, Lane, PodQueue, Registry},
    journal::{self, Opened},
    ports::{
        Asker, Deliver, Expectation, Failure, FailureKind, Live, Reconcile, Request, RunReport, Sender, Sent, Shown,
        Staged, Tasks, Usage, World,
    },
    queue::{Backoff, MemoryBudget, Queue},
    status::PluginStatus,
};
use podium_pods::{
    cache,
    pod::{CachedPod, PodEvent, PodView},
};
use podium_runtime::{Engine, EngineOptions, Plugin};
use podium_tests::{programs::Choices, wait::until};
use podium_vocabulary::{PluginSpec, PodKey, Refused, Revision, WriteReport, WriteResult};
use podium_wire::{Header, Pod};
use tempfile::TempDir;

use super::{Dropped, caller, drop_after, load, pending, program};

const WITHIN: Duration = Duration::from_secs(3_600);

fn pod(revision: u64) -> Arc<CachedPod> {
    let header = Header {
        namespace: "shop".into(),
        name: "cart-0".into(),
        uid: "u1".into(),
        resource_version: revision.to_string(),
        ..Header::default()
    };
    Arc::new(CachedPod::new(&Pod { header, ..Pod::default() }).unwrap())
}

/// A plugin whose next run is dropped after a number of polls.
struct Cut {
    plugin: Arc<Plugin>,
    /// `u32::MAX`: it is not dropped.
    polls: AtomicU32,
    /// Set when a run has ended before it was dropped.
    ended: AtomicU32,
}

impl Reconcile for Cut {
    fn reconcile(&self, request: Request, world: Box<dyn World>) -> BoxFuture<'_, RunReport<Staged>> {
        Box::pin(async move {
            let mut left = self.polls.swap(u32::MAX, SeqCst);
            let mut run = Some(self.plugin.reconcile(request, world));
            std::future::poll_fn(move |context| {
                if left == 0 {
                    run = None;
                    let message = "ran longer than its limit".to_owned();
                    let result = Err(Failure { kind: FailureKind::Deadline, message });
                    return Poll::Ready(RunReport { result, staged: Staged::default(), usage: Usage::default() });
                }
                left = left.saturating_sub(1);
                let polled = run.as_mut().unwrap().as_mut().poll(context);
                if polled.is_ready() {
                    self.ended.fetch_add(1, SeqCst);
                }
                polled
            })
            .await
        })
    }
}

/// An API server and its watch, which wait before they answer.
struct Slow {
    waits: Mutex<Choices>,
    revision: AtomicU32,
    writer: Arc<Mutex<cache::Writer>>,
    reader: cache::Reader,
    expectations: Arc<Expectations>,
    /// Events that come after their response.
    tasks: Arc<Deliveries>,
}

impl Slow {
    async fn wait(&self) {
        let waits = self.waits.lock().unwrap().below(3);
        pending(u32::try_from(waits).unwrap()).await;
    }
}

impl Deliver for Slow {
    fn deliver<'a>(
        &'a self,
        _: &'a Sender,
        subject: &'a PodKey,
        _: &'a dyn PodView,
        staged: Staged,
        _: u64,
    ) -> BoxFuture<'a, Sent> {
        Box::pin(async move {
            self.wait().await;
            let revision = 1 + self.revision.fetch_add(1, SeqCst);
            // The watch reports it, even if the delivery is dropped: before the response, or soon after it.
            let writer = self.writer.clone();
            let reader = self.reader.clone();
            let expectations = self.expectations.clone();
            let late = self.waits.lock().unwrap().below(3);
            let event = async move {
                let mut writer = writer.lock().unwrap();
                writer.apply(vec![PodEvent::applied(pod(revision.into()))]).publish();
                expectations.seen.up_to(reader.snapshot().revision());
            };
            match u32::try_from(late).unwrap() {
                0 => event.await,
                late => self.tasks.start(Box::pin(async move {
                    pending(late).await;
                    event.await;
                })),
            }
            let shown = Shown::Revision(Revision(revision.into()));
            let report = |write: podium_vocabulary::Write| WriteReport {
                id: write.id,
                description: write.action.describe(),
                result: WriteResult::Applied,
            };
            let reports = staged.writes.into_iter().map(|write| report(write.into_inner())).collect();
            self.wait().await;
            Sent {
                reports,
                expected: vec![Expectation { key: subject.clone(), shown }],
                requests: 1,
                ..Sent::default()
            }
        })
    }
    fn held(&self, _: &Sender) -> Option<Duration> {
        None
    }
}

impl Live for Slow {
    fn get<'a>(
        &'a self,
        _: Asker,
        _: &'a Sender,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<CachedPod>>, Refused>> {
        Box::pin(async move {
            self.wait().await;
            Ok(Some(pod(self.revision.load(SeqCst).into())))
        })
    }
}

/// Deliveries, which are polled with the worker that started them.
#[derive(Default)]
struct Deliveries(Mutex<Vec<BoxFuture<'static, ()>>>);

impl Tasks for Deliveries {
    fn start(&self, task: BoxFuture<'static, ()>) {
        self.0.lock().unwrap().push(task);
    }
}

impl Deliveries {
    /// Drops them, as a shutdown does it.
    fn drop_all(&self) {
        let tasks = std::mem::take(&mut *self.0.lock().unwrap());
        drop(tasks);
    }

    async fn run(&self) {
        std::future::poll_fn(|context| {
            let mut tasks = std::mem::take(&mut *self.0.lock().unwrap());
            tasks.retain_mut(|task| task.as_mut().poll(context).is_pending());
            self.0.lock().unwrap().append(&mut tasks);
            Poll::Pending
        })
        .await
    }
}

struct Rig {
    dispatch: Arc<Dispatch>,
    slow: Arc<Slow>,
    cut: Arc<Cut>,
    status: Arc<PluginStatus>,
    lane: Lane,
    opened: Opened,
    deliveries: Arc<Deliveries>,
}

impl Rig {
    fn new(plugin: &Arc<Plugin>, spec: &PluginSpec, seed: u64, journal: &Path) -> Self {
        let (mut writer, reader) = cache::new(7);
        writer.apply(vec![PodEvent::applied(pod(5))]).publish();
        let writer = Arc::new(Mutex::new(writer));
        let expectations = Arc::<Expectations>::default();
        let waits = Mutex::new(Choices::new(seed));
        let deliveries = Arc::<Deliveries>::default();
        let slow = Arc::new(Slow {
            waits,
            revision: 5.into(),
            writer,
            reader: reader.clone(),
            expectations: expectations.clone(),
            tasks: deliveries.clone(),
        });
        let cut = Cut { plugin: Arc::clone(plugin), polls: u32::MAX.into(), ended: 0.into() };
        let cut = Arc::new(cut);
        let registry = Arc::new(Registry::default());
        let status = Arc::new(PluginStatus::default());
        let opened = journal::open(journal, 0).unwrap();
        let entries = opened.journal.plugin_entries(&spec.id);
        let sender = Sender { manager: "podium/shop/caller".into(), impersonate: None };
        let lane = registry.put(spec.clone(), cut.clone(), sender, status.clone(), Some(entries), None);
        // Memory for one run of the tenant: a claim that is not released stops the next one.
        let budget = MemoryBudget::new(2 * u64::try_from(spec.limits.memory_bytes).unwrap());
        let queue: PodQueue = Queue::new(Backoff::default(), 1, 1);
        let dispatch = Arc::new(Dispatch {
            queue: Arc::new(queue.within(budget, registry.clone())),
            registry,
            expectations,
            reader,
            deliver: slow.clone(),
            live: slow.clone(),
            tasks: deliveries.clone(),
            clock: Clock::starting_at(1_000),
            seed: 1,
            traces: None,
        });
        let plugin = dispatch.registry.get(lane).unwrap();
        plugin.state.lock().put("program", program().bytes(), None).unwrap();
        Self { dispatch, slow, cut, status, lane, opened, deliveries }
    }

    fn add(&self) {
        self.dispatch.queue.add([(self.lane, ("shop".into(), "cart-0".into()), "u1".into())]);
    }

    /// Deletes the Pod, as the ingest loop does.
    fn delete(&self) {
        let (dispatch, lane) = (&self.dispatch, self.lane);
        let now = tokio::time::Instant::now();
        let mut writer = self.slow.writer.lock().unwrap();
        let update = writer.apply(vec![PodEvent::deleted(pod(1_000))]);
        let expectations = &dispatch.expectations;
        let plan = expectations.tombstones.plan(&dispatch.queue, update.changes(), |_| vec![lane], |_| vec![lane], now);
        update.publish();
        expectations.queue(&dispatch.queue, plan);
    }

    /// Runs deliveries, and writes the journal's entries whenever there are some, until the work is done.
    async fn with_journal<T>(&mut self, work: impl Future<Output = T>) -> T {
        let deliveries = self.deliveries.clone();
        let Opened { journal, store, .. } = &mut self.opened;
        let write = async {
            loop {
                journal.due().await;
                store.write(journal).unwrap();
            }
        };
        tokio::select! {
            biased;
            done = work => done,
            () = deliveries.run() => unreachable!("it never ends"),
            () = write => unreachable!("it never ends"),
        }
    }

    /// Waits until the plugin has run so often, and nothing is left to do.
    async fn settled(&mut self, runs: u64) {
        let (status, queue) = (self.status.clone(), self.dispatch.queue.clone());
        let worker = self.dispatch.clone().work();
        let settled = until("the key to settle", WITHIN, async || {
            anyhow::ensure!(status.runs() >= runs && queue.is_idle(), "{} runs", status.runs());
            Ok(())
        });
        let done = async {
            tokio::select! {
                biased;
                () = worker => unreachable!("the queue is open"),
                settled = settled => settled.unwrap(),
            }
        };
        self.with_journal(done).await;
    }

    fn entries(&self) -> (usize, usize) {
        let figures = self.opened.journal.figures();
        (figures.entries, figures.pending_deletions)
    }
}

/// A folder for journals, in memory where the machine has a place for that.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

fn engine() -> Arc<Engine> {
    Engine::new(EngineOptions { concurrent_runs: 1, tick: None, ..EngineOptions::default() }).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_key_of_a_run_cut_at_any_await_point_runs_again() {
    let engine = engine();
    let spec = caller();
    let plugin = Arc::new(load(&engine, &spec));
    let folder = folder();
    let mut choices = Choices::new(2);
    let mut dropped = Dropped::new("keys of runs", 500, 5);
    let mut number = 0;
    while !dropped.is_enough() {
        let seed = choices.number();
        for polls in 0.. {
            number += 1;
            let journal = folder.path().join(number.to_string());
            let mut rig = Rig::new(&plugin, &spec, seed, &journal);
            rig.cut.polls.store(polls, SeqCst);
            rig.add();
            rig.settled(1).await;
            let was_cut = rig.status.failures_by(FailureKind::Deadline) == 1;
            // A cut run backs off first.
            rig.settled(1 + u64::from(was_cut)).await;
            assert_eq!(rig.status.runs(), 1 + u64::from(was_cut), "seed {seed}, {polls} polls");
            assert_eq!((rig.status.active(), rig.entries()), (0, (1, 0)), "seed {seed}, {polls} polls");
            assert_eq!(rig.cut.ended.load(SeqCst), 1, "the run after it ended by itself");

            // The gate is open, and the journal's entry goes with the Pod.
            rig.delete();
            rig.settled(rig.status.runs() + 1).await;
            assert_eq!(rig.entries(), (0, 0), "seed {seed}, {polls} polls");
            assert_eq!(rig.dispatch.expectations.tombstones.figures(rig.lane).all, 0);
            assert_eq!(Arc::strong_count(&rig.dispatch), 1, "seed {seed}, {polls} polls: a world is left");
            std::fs::remove_dir_all(&journal).unwrap();
            if !was_cut {
                break;
            }
            dropped.add();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_dropped_at_any_await_point_releases_everything() {
    let engine = engine();
    let spec = caller();
    let plugin = Arc::new(load(&engine, &spec));
    let folder = folder();
    let mut choices = Choices::new(3);
    let mut dropped = Dropped::new("workers", 500, 5);
    let mut number = 0;
    while !dropped.is_enough() {
        let seed = choices.number();
        for polls in 1.. {
            number += 1;
            let journal = folder.path().join(number.to_string());
            let mut rig = Rig::new(&plugin, &spec, seed, &journal);
            rig.add();
            // The journal is written at once, so that no poll waits for it.
            let ran = drop_after(polls, {
                let work = rig.dispatch.clone().work();
                rig.with_journal(work)
            });
            assert!(ran.is_none(), "the queue is open");
            let ended = rig.cut.ended.load(SeqCst) > 0 && rig.dispatch.queue.is_idle();
            rig.deliveries.drop_all();
            assert_eq!(Arc::strong_count(&rig.dispatch), 1, "seed {seed}, {polls} polls: a world is left");
            assert_eq!(Arc::strong_count(&rig.cut), 2, "the registry and the rig");
            // The sandbox is free for a host that starts again on the same journal.
            drop(rig);
            let mut next = Rig::new(&plugin, &spec, seed, &journal);
            next.add();
            next.settled(1).await;
            assert_eq!((next.status.runs(), next.entries().0), (1, 1), "seed {seed}, {polls} polls");
            drop(next);
            std::fs::remove_dir_all(&journal).unwrap();
            if ended {
                break;
            }
            dropped.add();
        }
    }
}
