//! Deletions in the real ingest loop, queue and workers, with closures as plugins.

mod children;
mod group_bounds;
mod groups;
mod loads;
mod resync;
mod stress;

use std::{
    future::Future,
    path::Path,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use podium_pods::{
    cache,
    pod::{CachedPod, Record},
    testing,
};
use podium_vocabulary::{PluginId, PluginSpec, WatchSpec};
use tokio::task::JoinSet;

use super::*;
use crate::{
    clock::Clock,
    dispatch::{Bounds, Dispatch},
    fixtures::Nowhere,
    journal::{self, Journal, Opened, Recovery},
    ports::{
        Expectation, Failure, FailureKind, Outcome, Reconcile, Request, RunReport, Sender, Shown, Staged, Subject,
        Tasks, Usage, World,
    },
    queue::{Backoff, MemoryBudget, Queue},
    status::PluginStatus,
};

/// The subject of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Delivered {
    Present,
    /// A deletion with the revision of the last state.
    Deleted(Option<u64>),
}

pub(super) type RunOutcome = Result<Outcome, Failure>;
type Body = dyn Fn(Request, Delivered) -> BoxFuture<'static, RunOutcome> + Send + Sync;

struct Closure(Box<Body>);

impl Reconcile for Closure {
    fn reconcile(&self, request: Request, _: Box<dyn World>) -> BoxFuture<'_, RunReport<Staged>> {
        let delivered = match &request.subject {
            Subject::Present(_) => Delivered::Present,
            Subject::Deleted(last) => Delivered::Deleted(last.as_ref().map(|last| last.revision.0)),
        };
        Box::pin(async move {
            let result = (self.0)(request, delivered).await;
            RunReport { result, staged: Staged::default(), usage: Usage::default() }
        })
    }
}

pub(super) fn failure() -> RunOutcome {
    Err(Failure { kind: FailureKind::Retry, message: "later".into() })
}

/// Returns a plugin that watches Pods with this value of the label `app`, or all Pods.
fn spec(app: Option<&str>) -> PluginSpec {
    let selector = app.map(|app| testing::selector("app", app)).unwrap_or_default();
    let watch = WatchSpec { selector, ..WatchSpec::default() };
    PluginSpec { watch, ..testing::plugin(None, "tidy") }
}

pub(super) fn pod(name: &str, uid: &str, app: &str, revision: u64) -> Arc<CachedPod> {
    let mut pod = podium_wire::Pod::default();
    pod.header.namespace = "shop".into();
    pod.header.name = name.into();
    pod.header.uid = uid.into();
    pod.header.resource_version = revision.to_string();
    pod.labels.insert("app".into(), app.into());
    Arc::new(CachedPod::new(&pod).unwrap())
}

/// Blocking jobs, which run when the test says so.
#[derive(Default)]
pub(super) struct Jobs {
    waiting: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
    /// Simulates a disk that does not answer.
    stuck: AtomicBool,
}

/// Runs deliveries on the test's runtime.
struct Spawned;

impl Tasks for Spawned {
    fn start(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}

impl Blocking for Jobs {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        self.waiting.lock().push(job);
    }
}

impl Jobs {
    fn run_all(&self) {
        if !self.stuck.load(SeqCst) {
            let waiting = std::mem::take(&mut *self.waiting.lock());
            waiting.into_iter().for_each(|job| job());
        }
    }
}

/// An ingest loop that is called step by step, with workers.
pub(super) struct Harness {
    pub(super) ingest: Ingest,
    pub(super) observed: mpsc::Sender<Observation>,
    pub(super) dispatch: Arc<Dispatch>,
    pub(super) status: Arc<PluginStatus>,
    journal: Option<Arc<Journal>>,
    jobs: Arc<Jobs>,
    lane: Lane,
    workers: JoinSet<()>,
    /// The most keys that one step has queued.
    most: usize,
}

impl Harness {
    fn new(backoff: Backoff, bounds: Bounds, opened: Option<(Arc<Journal>, Recovery)>) -> Self {
        let registry = Arc::new(Registry::default());
        let (writer, reader) = cache::new(7);
        let queue = Queue::new(backoff, 4, 7).within(MemoryBudget::new(1 << 40), registry.clone());
        let queue: Arc<PodQueue> = Arc::new(queue);
        let expectations = Arc::new(Expectations::new(bounds));
        let (observed, observations) = mpsc::channel(16);
        let journal = opened.as_ref().map(|(journal, _)| journal.clone());
        let reopened = opened.map(|(journal, recovery)| Reopened { journal, recovery, namespace: None });
        let blocking = Arc::new(Jobs::default());
        let options = IngestOptions {
            observations,
            registry: registry.clone(),
            queue: queue.clone(),
            expectations: expectations.clone(),
            reopened,
            gone: Arc::new(GonePods::new(|_| 0)),
            blocking: blocking.clone(),
        };
        let (ingest, _) = Ingest::new((writer, reader.clone()), options);
        let dispatch = Arc::new(Dispatch {
            queue,
            registry,
            expectations,
            reader,
            deliver: Arc::new(Nowhere),
            live: Arc::new(Nowhere),
            tasks: Arc::new(Spawned),
            clock: Clock::starting_at(1_000),
            seed: 1,
            traces: None,
        });
        let status = Arc::default();
        let workers = JoinSet::new();
        Self { ingest, observed, dispatch, status, journal, jobs: blocking, lane: Lane(0), workers, most: 0 }
    }

    /// Returns a harness without a journal.
    pub(super) fn plain(backoff: Backoff) -> Self {
        Self::new(backoff, Bounds::default(), None)
    }

    /// Loads a plugin and queues the Pods that it watches.
    pub(super) fn load<R>(&mut self, app: Option<&str>, body: impl Fn(Request, Delivered) -> R + Send + Sync + 'static)
    where
        R: Future<Output = RunOutcome> + Send + 'static,
    {
        self.load_with(app, None, body);
    }

    /// Loads a plugin with a resync.
    fn load_with<R>(
        &mut self,
        app: Option<&str>,
        resync: Option<Duration>,
        body: impl Fn(Request, Delivered) -> R + Send + Sync + 'static,
    ) where
        R: Future<Output = RunOutcome> + Send + 'static,
    {
        let mut spec = spec(app);
        spec.watch.resync = resync;
        self.load_spec(spec, body);
    }

    fn load_spec<R>(&mut self, spec: PluginSpec, body: impl Fn(Request, Delivered) -> R + Send + Sync + 'static)
    where
        R: Future<Output = RunOutcome> + Send + 'static,
    {
        let reconcile = Arc::new(Closure(Box::new(move |request, delivered| Box::pin(body(request, delivered)))));
        let sender = Sender { manager: "podium/tidy".into(), impersonate: None };
        let entries = self.journal.as_ref().map(|journal| journal.plugin_entries(&spec.id));
        let registry = &self.dispatch.registry;
        self.lane = registry.put(spec, reconcile, sender, self.status.clone(), entries, None);
        let (done, _) = oneshot::channel();
        self.step(|ingest, lane| ingest.plugins_changed(Some((lane, Why::LOAD)), done));
        self.turn();
    }

    /// Runs one iteration of the loop.
    fn turn(&mut self) {
        self.jobs.run_all();
        if self.ingest.replay.read().now_or_never() == Some(true) {
            self.step(|ingest, _| ingest.replay_deletions());
        }
        if self.ingest.unsure_due().is_some_and(|due| due <= Instant::now()) {
            self.step(|ingest, _| ingest.queue_groups_again());
        }
        while self.ingest.is_sweeping() {
            self.step(|ingest, _| ingest.sweep());
        }
    }

    fn step(&mut self, step: impl FnOnce(&mut Ingest, Lane)) {
        let before = self.dispatch.queue.depth(self.lane);
        step(&mut self.ingest, self.lane);
        self.most = self.most.max(self.dispatch.queue.depth(self.lane).saturating_sub(before));
    }

    fn observe(&mut self, observation: Observation) {
        self.ingest.observe(observation);
        self.turn();
    }

    /// Unloads the plugin as podium-host does.
    fn unload(&mut self) {
        assert_eq!(self.dispatch.registry.remove(&spec(None).id), Some(self.lane));
        let (done, _) = oneshot::channel();
        self.ingest.plugins_changed(None, done);
        self.dispatch.queue.remove_lane(self.lane);
        self.dispatch.expectations.forget_lane(self.lane);
    }

    pub(super) fn work(&mut self, workers: usize) {
        (0..workers).for_each(|_| _ = self.workers.spawn(self.dispatch.clone().work()));
    }

    fn apply(&mut self, pod: Arc<CachedPod>) {
        self.observe(Observation::Events(vec![PodEvent::applied(pod)]));
    }

    fn delete(&mut self, pod: Arc<CachedPod>) {
        self.observe(Observation::Events(vec![PodEvent::deleted(pod)]));
    }

    fn list(&mut self, pods: PodList, revision: u64) {
        self.observe(Observation::Relisted { pods, revision: Revision(revision) });
    }

    /// Runs all due keys without advancing the time.
    async fn settle(&self) {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert!(self.dispatch.queue.is_idle());
    }
}

/// The subjects of a plugin's runs, in order.
type Notes = Arc<Mutex<Vec<Delivered>>>;

/// Returns a plugin that records its subjects and returns the result of `outcome`.
fn noting(
    outcome: fn(&Delivered) -> RunOutcome,
) -> (Notes, impl Fn(Request, Delivered) -> std::future::Ready<RunOutcome>) {
    let delivered = Notes::default();
    let noted = delivered.clone();
    let body = move |_: Request, what: Delivered| {
        let outcome = outcome(&what);
        noted.lock().push(what);
        std::future::ready(outcome)
    };
    (delivered, body)
}

#[tokio::test(start_paused = true)]
async fn a_queued_key_gets_the_last_state_outside_the_selector_too() {
    // The key is in back-off, is requeued after a delay, or waits for a worker.
    let outcomes: [fn(&Delivered) -> RunOutcome; 3] = [
        |delivered| if *delivered == Delivered::Present { failure() } else { Ok(Outcome::Settled) },
        |delivered| match delivered {
            Delivered::Present => Ok(Outcome::RequeueAfter(Duration::from_secs(60))),
            Delivered::Deleted(_) => Ok(Outcome::Settled),
        },
        |_| Ok(Outcome::Settled),
    ];
    for (at, outcome) in outcomes.into_iter().enumerate() {
        let mut harness = Harness::plain(Backoff::default());
        let (delivered, body) = noting(outcome);
        harness.load(Some("web"), body);
        harness.apply(pod("cart-0", "u1", "web", 5));
        if at < 2 {
            harness.work(1);
            harness.settle().await;
        }
        harness.apply(pod("cart-0", "u1", "other", 6));
        if at < 2 {
            harness.settle().await;
        }
        harness.delete(pod("cart-0", "u1", "other", 7));
        harness.work(1);
        harness.settle().await;
        assert_eq!(delivered.lock().last(), Some(&Delivered::Deleted(Some(7))), "outcome {at}");
        assert_eq!(
            delivered.lock().iter().filter(|delivered| matches!(delivered, Delivered::Deleted(_))).count(),
            1,
            "outcome {at}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_final_write_left_the_selector_has_its_last_state() {
    let mut harness = Harness::plain(Backoff::default());
    let (delivered, body) = noting(|_| Ok(Outcome::Settled));
    harness.load(Some("web"), body);
    harness.work(1);
    harness.apply(pod("cart-0", "u1", "web", 5));
    harness.settle().await;
    harness.delete(pod("cart-0", "u1", "other", 7));
    harness.settle().await;
    assert_eq!(*delivered.lock(), [Delivered::Present, Delivered::Deleted(Some(7))]);
}

#[tokio::test(start_paused = true)]
async fn a_delivery_learns_of_its_event_by_events_lists_and_bookmarks() {
    let mut harness = Harness::plain(Backoff::default());
    let seen = |harness: &Harness, revision| harness.dispatch.expectations.seen.has(Revision(revision));
    harness.list([Record::from(pod("cart-0", "u1", "web", 5))].into_iter().collect(), 6);
    assert!(seen(&harness, 6) && !seen(&harness, 7));
    let written = Expectation { key: pod("cart-0", "u1", "web", 5).key.clone(), shown: Shown::Revision(Revision(6)) };
    assert!(!harness.dispatch.expectations.see(&[written], Revision(0)).await, "the list may hide a change");
    harness.apply(pod("cart-0", "u1", "web", 7));
    assert!(seen(&harness, 7) && !seen(&harness, 8));
    harness.observe(Observation::Bookmark(Revision(8)));
    assert!(seen(&harness, 8));
}

/// Returns a journal with an entry for the plugin and the Pod.
fn noted(directory: &Path, key: &PodKey) -> Opened {
    noted_all(directory, std::slice::from_ref(key))
}

/// Returns a journal with an entry for the plugin and each Pod.
fn noted_all(directory: &Path, keys: &[PodKey]) -> Opened {
    let mut opened = journal::open(directory, 0).unwrap();
    let entries = opened.journal.plugin_entries(&spec(None).id);
    let mut entering: Vec<_> = keys.iter().map(|key| Box::pin(entries.enter(key))).collect();
    assert!(entering.iter_mut().all(|entering| FutureExt::now_or_never(entering.as_mut()).is_none()));
    opened.store.write(&opened.journal).unwrap();
    drop(opened);
    journal::open(directory, 0).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_pod_of_the_first_list_is_no_deletion() {
    for by_event in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let cart = pod("cart-0", "u1", "web", 5);
        let Opened { journal, recovery, .. } = noted(directory.path(), &cart.key);
        let mut harness = Harness::new(Backoff::default(), Bounds::default(), Some((journal, recovery)));
        let (delivered, body) = noting(|_| Ok(Outcome::Settled));
        harness.load(None, body);
        harness.work(1);
        let undecoded = || {
            let mut list = PodList::default();
            list.held.insert("u1");
            list
        };
        for revision in [9, 10] {
            harness.list(undecoded(), revision);
            harness.settle().await;
            assert!(delivered.lock().is_empty(), "{:?}", delivered.lock());
        }
        let last = if by_event {
            harness.delete(pod("cart-0", "u1", "web", 11));
            Some(11)
        } else {
            harness.list(PodList::default(), 12);
            None
        };
        harness.settle().await;
        assert_eq!(*delivered.lock(), [Delivered::Deleted(last)]);
        assert_eq!(harness.journal.unwrap().figures().entries, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn runs_begin_with_deletions_recovered_during_events() {
    let directory = tempfile::tempdir().unwrap();
    let gone = pod("cart-0", "u1", "web", 5);
    let Opened { journal, recovery, mut store } = noted(directory.path(), &gone.key);
    let mut harness = Harness::new(Backoff::default(), Bounds::default(), Some((journal.clone(), recovery)));
    let ran = Arc::new(Mutex::new(Vec::new()));
    let noted = ran.clone();
    harness.load(None, move |request, delivered| {
        noted.lock().push((request.key.uid.to_string(), delivered));
        std::future::ready(Ok(Outcome::Settled))
    });
    harness.jobs.stuck.store(true, SeqCst);
    // Another Pod has the name; one Pod is deleted while the journal is read; one is created.
    let listed = [pod("cart-0", "u2", "web", 7), pod("cart-1", "u3", "web", 8)];
    harness.list(listed.into_iter().map(Record::from).collect(), 9);
    harness.delete(pod("cart-1", "u3", "web", 10));
    harness.apply(pod("cart-2", "u4", "web", 11));
    harness.work(1);
    harness.settle().await;
    let snapshot = harness.dispatch.reader.snapshot();
    assert!(snapshot.by_uid("u3").is_none() && snapshot.by_uid("u4").is_some(), "the loop waits for the disk");
    assert!(ran.lock().is_empty(), "{:?}", ran.lock());
    harness.jobs.stuck.store(false, SeqCst);
    harness.turn();
    for _ in 0..10 {
        // The first run on a Pod waits for its entry in the journal.
        tokio::task::yield_now().await;
        store.write(&journal).unwrap();
    }
    harness.settle().await;
    // The order of present Pods is not defined: u2 has the name of u1 and waits for its run.
    ran.lock()[2..].sort_by(|(one, _), (other, _)| one.cmp(other));
    let expected = [
        ("u1", Delivered::Deleted(None)),
        ("u3", Delivered::Deleted(Some(10))),
        ("u2", Delivered::Present),
        ("u4", Delivered::Present),
    ];
    assert_eq!(*ran.lock(), expected.map(|(uid, delivered)| (uid.to_owned(), delivered)));
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_pod_deleted_in_recovery_has_its_last_state() {
    let directory = tempfile::tempdir().unwrap();
    let Opened { journal, recovery, .. } = noted(directory.path(), &pod("cart-0", "u1", "web", 5).key);
    let mut harness = Harness::new(Backoff::default(), Bounds::default(), Some((journal, recovery)));
    let (delivered, body) = noting(|_| Ok(Outcome::Settled));
    harness.load(None, body);
    harness.work(1);
    harness.jobs.stuck.store(true, SeqCst);
    let mut undecoded = PodList::default();
    undecoded.held.insert("u1");
    harness.list(undecoded, 9);
    harness.delete(pod("cart-0", "u1", "web", 11));
    harness.jobs.stuck.store(false, SeqCst);
    harness.turn();
    harness.settle().await;
    assert_eq!(*delivered.lock(), [Delivered::Deleted(Some(11))]);
}

#[tokio::test(start_paused = true)]
async fn a_second_list_during_recovery_shows_which_undecodable_pods_are_gone() {
    let directory = tempfile::tempdir().unwrap();
    let Opened { journal, recovery, .. } = noted(directory.path(), &pod("cart-0", "u1", "web", 5).key);
    let mut harness = Harness::new(Backoff::default(), Bounds::default(), Some((journal, recovery)));
    let (delivered, body) = noting(|_| Ok(Outcome::Settled));
    harness.load(None, body);
    harness.work(1);
    harness.jobs.stuck.store(true, SeqCst);
    let mut undecoded = PodList::default();
    undecoded.held.insert("u1");
    harness.list(undecoded, 9);
    harness.list(PodList::default(), 11);
    harness.jobs.stuck.store(false, SeqCst);
    harness.turn();
    harness.settle().await;
    assert_eq!(*delivered.lock(), [Delivered::Deleted(None)]);
}

#[tokio::test(start_paused = true)]
async fn a_plugin_loaded_after_the_start_gets_the_deletions_of_the_journal() {
    let directory = tempfile::tempdir().unwrap();
    let Opened { journal, recovery, .. } = noted(directory.path(), &pod("cart-0", "u1", "web", 5).key);
    let mut harness = Harness::new(Backoff::default(), Bounds::default(), Some((journal, recovery)));
    harness.list(PodList::default(), 9);
    let (delivered, body) = noting(|_| Ok(Outcome::Settled));
    harness.load(None, body);
    harness.work(1);
    harness.settle().await;
    assert_eq!(*delivered.lock(), [Delivered::Deleted(None)]);
}

#[tokio::test(start_paused = true)]
async fn a_load_queues_the_deletions_of_the_journal_in_slices() {
    let directory = tempfile::tempdir().unwrap();
    for count in [1, SLICE, 3 * SLICE + 7] {
        let directory = directory.path().join(count.to_string());
        let keys: Vec<_> =
            (0..count).map(|at| pod(&format!("p{at}"), &format!("u{at}"), "web", 5).key.clone()).collect();
        let Opened { journal, recovery, .. } = noted_all(&directory, &keys);
        let mut harness = Harness::new(Backoff::default(), Bounds::default(), Some((journal, recovery)));
        harness.list(PodList::default(), 9);
        let (_, body) = noting(|_| Ok(Outcome::Settled));
        harness.load(None, body);
        assert_eq!((harness.dispatch.queue.depth(harness.lane), harness.most), (count, count.min(SLICE)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_queues_the_deletions_of_the_journal_in_slices() {
    let directory = tempfile::tempdir().unwrap();
    let count = 3 * SLICE + 7;
    let keys: Vec<_> = (0..count).map(|at| pod(&format!("p{at}"), &format!("u{at}"), "web", 5).key.clone()).collect();
    let Opened { journal, recovery, .. } = noted_all(directory.path(), &keys);
    let mut harness = Harness::new(Backoff::default(), Bounds::default(), Some((journal, recovery)));
    let (_, body) = noting(|_| Ok(Outcome::Settled));
    harness.load(None, body);
    harness.list(PodList::default(), 9);
    assert_eq!((harness.dispatch.queue.depth(harness.lane), harness.most), (count, SLICE));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_seen_between_slices_comes_after_the_deletion_of_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let key = |at: usize| pod(&format!("p{at:04}"), &format!("u{at}"), "web", 5).key.clone();
    let Opened { journal, recovery, .. } = noted_all(directory.path(), &(0..2_500).map(key).collect::<Vec<_>>());
    let mut harness = Harness::new(Backoff::default(), Bounds::default(), Some((journal, recovery)));
    let runs = Arc::<Mutex<Vec<Arc<str>>>>::default();
    let ran = runs.clone();
    harness.load(None, move |request, _| {
        ran.lock().push(request.key.uid);
        std::future::ready(Ok(Outcome::Settled))
    });
    let ingest = &mut harness.ingest;
    ingest.observe(Observation::Relisted { pods: PodList::default(), revision: Revision(9) });
    harness.jobs.run_all();
    assert!(ingest.replay.read().await);
    ingest.replay_deletions();
    ingest.sweep();
    for (at, uid) in [(1, "early"), (2_400, "late")] {
        ingest.observe(Observation::Events(vec![PodEvent::applied(pod(&format!("p{at:04}"), uid, "web", 10))]));
    }
    // One of them is gone before the slices have reached its name.
    ingest.observe(Observation::Events(vec![PodEvent::deleted(pod("p2400", "late", "web", 11))]));
    assert_eq!(harness.dispatch.queue.depth(harness.lane), SLICE);
    harness.turn();
    harness.work(1);
    // Nothing writes the journal's entry of the Pod that is there.
    while !harness.dispatch.queue.is_idle() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let runs = runs.lock();
    let at = |uid: &str| runs.iter().position(|ran| **ran == *uid).unwrap();
    assert!(at("u1") < at("early"));
    assert_eq!(runs.len(), 2_501, "the plugin never ran on the Pod that came and went");
}

#[tokio::test(start_paused = true)]
async fn memory_for_unsettled_deletions_does_not_grow_after_an_hour() {
    const BOUNDS: Bounds = Bounds { states: 5, waiting: 100, unsettled: 20, all: 100 };
    const AN_HOUR: u64 = 60;
    let directory = tempfile::tempdir().unwrap();
    let Opened { journal, recovery, mut store } = journal::open(directory.path(), 0).unwrap();
    let mut harness = Harness::new(Backoff::default(), BOUNDS, Some((journal.clone(), recovery)));
    let states = Arc::new(Mutex::new((0_u64, 0_u64)));
    let counted = states.clone();
    harness.load(None, move |_, delivered| {
        let mut counted = counted.lock();
        counted.0 += u64::from(matches!(delivered, Delivered::Deleted(Some(_))));
        counted.1 += u64::from(delivered == Delivered::Deleted(None));
        std::future::ready(if delivered == Delivered::Present { Ok(Outcome::Settled) } else { failure() })
    });
    harness.work(4);
    harness.list(PodList::default(), 1);
    let mut hours = Vec::new();
    let mut revision = 1;
    for hour in 0..24 {
        for _ in 0..AN_HOUR {
            let name = format!("job-{revision}");
            harness.apply(pod(&name, &name, "job", revision + 1));
            tokio::time::sleep(Duration::from_millis(100)).await;
            store.write(&journal).unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
            harness.delete(pod(&name, &name, "job", revision + 2));
            revision += 2;
            tokio::time::sleep(Duration::from_millis(59_800)).await;
        }
        let kept = harness.dispatch.expectations.tombstones.figures(harness.lane);
        assert!(kept.states <= BOUNDS.states && kept.unsettled <= BOUNDS.unsettled, "hour {hour}: {kept:?}");
        hours.push((kept, journal.figures().entries, journal.figures().pending_deletions));
    }
    assert_eq!(hours[1], hours[23], "{hours:?}");
    assert_eq!(harness.status.deletions_given_up.get(), 24 * AN_HOUR - BOUNDS.unsettled as u64);
    assert_eq!(harness.status.states_dropped.get(), 24 * AN_HOUR - BOUNDS.states as u64);
    let (with, without) = *states.lock();
    assert!(with >= 24 * AN_HOUR && without > 0, "{with} {without}");
}
