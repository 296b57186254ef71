//! Claims about a worker, with closures for plugins and scripted answers for the API server, under paused time.

mod budget;
mod deletions;
mod delivery;
mod explain;
mod gate;
mod health;
mod loops;
mod memory;
mod order;
mod probe;
mod revocation;
mod state_groups;
mod traces;

use std::{
    collections::{BTreeSet, VecDeque},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use podium_pods::{
    cache,
    pod::{CachedPod, Change, PodEvent},
    testing,
};
use podium_vocabulary::{
    Action, EventResult, Grants, KeyPattern, PluginSpec, Refused, Revision, Write, WriteReport, WriteResult,
    authz::authorize,
};

use super::*;
use crate::{
    fixtures::{Nowhere, Warnings, log_to},
    journal::{self, PluginEntries},
    ports::{Closing, Expectation, Outcome, Reconcile, Sender, Sent, Shown, World},
    queue::{Backoff, MemoryBudget, Queue},
    status::PluginStatus,
};

/// Runs deliveries on the test's runtime.
struct Spawned;

impl Tasks for Spawned {
    fn start(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}

type Body = dyn Fn(Request, Box<dyn World>) -> RunReport<Staged> + Send + Sync;

struct Closure(Box<Body>);

impl Reconcile for Closure {
    fn reconcile(&self, request: Request, world: Box<dyn World>) -> BoxFuture<'_, RunReport<Staged>> {
        Box::pin(async move { (self.0)(request, world) })
    }
}

/// Answers each staged write with the next result of the script; then with `applied`.
#[derive(Default)]
struct Script {
    results: Mutex<VecDeque<WriteResult>>,
    retry_after: Mutex<Option<Duration>>,
    /// Until when the sender may not send.
    held: Mutex<Option<Instant>>,
    /// The state that the cache has to show of a Pod whose patch was applied.
    shown: Mutex<Option<Shown>>,
    sent: Mutex<Vec<String>>,
    /// The results of Events beside the next writes.
    events: Mutex<Vec<EventResult>>,
    /// The kinds that are closed by the next writes.
    closings: Mutex<Vec<Closing>>,
    /// Called when writes are sent.
    sending: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl Deliver for Script {
    fn deliver<'a>(
        &'a self,
        _: &'a Sender,
        _: &'a PodKey,
        _: &'a dyn PodView,
        staged: Staged,
        _: u64,
    ) -> BoxFuture<'a, Sent> {
        Box::pin(async move {
            if let Some(sending) = &*self.sending.lock() {
                sending();
            }
            let retry_after = self.retry_after.lock().take();
            let events = std::mem::take(&mut *self.events.lock());
            let closings = std::mem::take(&mut *self.closings.lock());
            let event_requests = super::budget::count(staged.events.len());
            let mut sent = Sent { retry_after, events, event_requests, closings, ..Sent::default() };
            sent.requests = event_requests;
            for write in staged.writes {
                let Write { id, action } = write.into_inner();
                self.sent.lock().push(action.describe());
                let result = self.results.lock().pop_front().unwrap_or(WriteResult::Applied);
                let shown = match (&action, &result) {
                    (Action::DeletePod { .. }, WriteResult::Applied) => Some(Shown::Deletion),
                    (_, WriteResult::Applied) => *self.shown.lock(),
                    (_, WriteResult::Unknown) => Some(Shown::Unknown),
                    _ => None,
                };
                let key = action.pod().cloned();
                sent.expected.extend(key.zip(shown).map(|(key, shown)| Expectation { key, shown }));
                sent.reports.push(WriteReport { id, description: action.describe(), result });
                sent.requests += 1;
            }
            sent
        })
    }

    fn held(&self, _: &Sender) -> Option<Duration> {
        self.held.lock().map(|until| until - Instant::now()).filter(|left| !left.is_zero())
    }
}

#[derive(Default)]
struct Server {
    pod: Mutex<Option<Arc<CachedPod>>>,
    asked: AtomicBool,
    /// Its answers cannot be read.
    broken: AtomicBool,
    reads: AtomicUsize,
}

impl Live for Server {
    fn get<'a>(
        &'a self,
        asker: Asker,
        _: &'a Sender,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<CachedPod>>, Refused>> {
        assert_eq!(asker, Asker::Host, "no plugin of these tests reads live");
        self.asked.store(true, SeqCst);
        self.reads.fetch_add(1, SeqCst);
        let answer = match self.broken.load(SeqCst) {
            true => Err(Refused::Unavailable("not the pod that was asked for".to_owned())),
            false => Ok(self.pod.lock().clone()),
        };
        Box::pin(std::future::ready(answer))
    }
}

/// A cache's writer that records deletions as the ingest loop does.
#[derive(Clone)]
struct Ingested {
    writer: Arc<Mutex<cache::Writer>>,
    lane: Lane,
    queue: Arc<PodQueue>,
    expectations: Arc<Expectations>,
    /// The plan of the last publication.
    plan: Arc<Mutex<Plan<Lane>>>,
}

impl Ingested {
    fn apply(&mut self, events: Vec<PodEvent>) {
        let newest = events.iter().map(|event| event.pod.revision).max();
        let mut writer = self.writer.lock();
        let update = writer.apply(events);
        let all = |_: &Change| vec![self.lane];
        let near = |_: &PodKey| vec![self.lane];
        *self.plan.lock() = self.expectations.tombstones.plan(&self.queue, update.changes(), all, near, Instant::now());
        update.publish();
        newest.into_iter().for_each(|newest| self.expectations.seen.up_to(newest));
    }
}

struct Rig {
    dispatch: Arc<Dispatch>,
    writer: Ingested,
    lane: Lane,
    script: Arc<Script>,
    server: Arc<Server>,
    status: Arc<PluginStatus>,
}

fn spec() -> PluginSpec {
    testing::plugin(Some("shop"), "tidy")
}

fn rig(body: impl Fn(Request, Box<dyn World>) -> RunReport<Staged> + Send + Sync + 'static) -> Rig {
    rig_with(None, body)
}

fn rig_with(
    entries: Option<PluginEntries>,
    body: impl Fn(Request, Box<dyn World>) -> RunReport<Staged> + Send + Sync + 'static,
) -> Rig {
    let (writer, reader) = cache::new(7);
    let registry = Arc::new(Registry::default());
    let status = Arc::new(PluginStatus::default());
    let sender = Sender { manager: "podium/shop/tidy".into(), impersonate: None };
    let lane = registry.put(spec(), Arc::new(Closure(Box::new(body))), sender, status.clone(), entries, None);
    let script = Arc::new(Script::default());
    let server = Arc::new(Server::default());
    // A tenant has place for one run.
    let budget = MemoryBudget::new(2 * registry::claimed(&spec()));
    let queue = Arc::new(Queue::new(Backoff::default(), 1, 1).within(budget, registry.clone()));
    let expectations = Arc::<Expectations>::default();
    let writer = Arc::new(Mutex::new(writer));
    let writer =
        Ingested { writer, lane, queue: queue.clone(), expectations: expectations.clone(), plan: Arc::default() };
    let dispatch = Arc::new(Dispatch {
        queue,
        registry,
        expectations,
        reader,
        deliver: script.clone(),
        live: server.clone(),
        tasks: Arc::new(Spawned),
        clock: Clock::starting_at(1_000),
        seed: 1,
        traces: None,
    });
    Rig { dispatch, writer, lane, script, server, status }
}

fn pod(revision: u64) -> Arc<CachedPod> {
    let mut pod = podium_wire::Pod::default();
    pod.header.namespace = "shop".into();
    pod.header.name = "cart-0".into();
    pod.header.uid = "u1".into();
    pod.header.resource_version = revision.to_string();
    Arc::new(CachedPod::new(&pod).unwrap())
}

impl Rig {
    /// Loads the plugin again, with a right to write.
    fn grant_labels(&mut self) {
        let old = self.dispatch.registry.get(self.lane).unwrap();
        let mut spec = PluginSpec::clone(&old.spec);
        spec.grants.write.labels = vec![KeyPattern("team".into())];
        self.dispatch.registry.put(spec, old.reconcile.clone(), old.sender.clone(), self.status.clone(), None, None);
    }

    fn add(&self) {
        self.dispatch.queue.add([(self.lane, ("shop".into(), "cart-0".into()), "u1".into())]);
    }

    /// Publishes a deletion, as the ingest loop does before it queues it.
    fn publish_deletion(&mut self) {
        self.writer.apply(vec![PodEvent::applied(pod(4)), PodEvent::deleted(pod(5))]);
    }

    /// Plays the ingest loop's part after a publication.
    fn queue_planned(&self) {
        let plan = std::mem::take(&mut *self.writer.plan.lock());
        self.dispatch.expectations.queue(&self.dispatch.queue, plan);
    }

    fn tombstones(&self) -> usize {
        self.dispatch.expectations.tombstones.figures(self.lane).all
    }

    /// Waits until the next job is due, runs it, and sends what it staged.
    async fn turn(&self) -> Next {
        let job = self.dispatch.queue.next().await.unwrap();
        self.finish(job).await
    }

    async fn finish(&self, job: PodJob) -> Next {
        finish(self.dispatch.clone(), job).await
    }
}

/// Runs a job, and sends what it staged.
async fn finish(dispatch: Arc<Dispatch>, job: PodJob) -> Next {
    match dispatch.begin(job).await {
        Either::Left(next) => next,
        Either::Right(delivery) => delivery.await,
    }
}

/// The journal entries of the rigs' plugin in its own journal, and what writes it.
fn entries(directory: &std::path::Path) -> (PluginEntries, journal::Opened) {
    let opened = journal::open(directory, 0).unwrap();
    (opened.journal.plugin_entries(&spec().id), opened)
}

fn report(result: Result<Outcome, Failure>, actions: Vec<Action>) -> RunReport<Staged> {
    let pattern = || vec![KeyPattern("team".into())];
    let mut grants = Grants::default();
    grants.write.labels = pattern();
    grants.write.delete = true;
    let writes =
        (0..).zip(actions).map(|(id, action)| authorize(&spec().scope(), &grants, Write { id, action }).unwrap());
    RunReport { result, staged: Staged { writes: writes.collect(), ..Staged::default() }, usage: Usage::default() }
}

fn label(request: &Request) -> Action {
    Action::SetLabel { target: request.key.clone(), key: "team".into(), value: "web".into() }
}

#[tokio::test(start_paused = true)]
async fn an_unsettled_write_is_reported_to_the_next_run() {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let seen = reported.clone();
    let mut rig = rig(move |request, _| {
        seen.lock().push((request.attempt, request.unsettled.clone()));
        report(Ok(Outcome::Settled), vec![label(&request)])
    });
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    rig.script.results.lock().push_back(WriteResult::Forbidden("no patch".into()));
    rig.add();
    assert_eq!(rig.turn().await, Next::Failed);
    assert_eq!(rig.turn().await, Next::Settled);
    let reported = reported.lock();
    assert_eq!((reported[0].0, reported[0].1.len()), (1, 0));
    assert_eq!((reported[1].0, &reported[1].1[0].result), (2, &WriteResult::Forbidden("no patch".into())));
}

#[tokio::test(start_paused = true)]
async fn a_plugin_sees_nothing_of_how_often_others_run() {
    let seeds = async |with_others: bool| {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = seen.clone();
        let idle = || report(Ok(Outcome::Settled), Vec::new());
        let mut rig = rig(move |request, _| {
            record.lock().push(request.seed);
            idle()
        });
        let other = Arc::new(Closure(Box::new(move |_, _| idle())));
        let sender = Sender { manager: "podium/bank/other".into(), impersonate: None };
        let spec = testing::plugin(Some("bank"), "other");
        let lane = rig.dispatch.registry.put(spec, other, sender, Arc::default(), None, None);
        rig.writer.apply(vec![PodEvent::applied(pod(5))]);
        for _ in 0..3 {
            if with_others {
                rig.dispatch.queue.add([(lane, ("shop".into(), "cart-0".into()), "u1".into())]);
                assert_eq!(rig.turn().await, Next::Settled);
            }
            rig.add();
            assert_eq!(rig.turn().await, Next::Settled);
        }
        std::mem::take(&mut *seen.lock())
    };
    let seen = seeds(false).await;
    assert_eq!(seen, seeds(true).await);
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 3, "each run has numbers of its own");
}

#[tokio::test(start_paused = true)]
async fn conflicts_wait_less_than_other_failures() {
    let mut rig = rig(|request, _| report(Ok(Outcome::Settled), vec![label(&request), label(&request)]));
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    let forbidden = WriteResult::Forbidden("no patch".into());
    rig.script.results.lock().extend([WriteResult::Conflict, WriteResult::Conflict, WriteResult::Conflict, forbidden]);
    rig.add();
    assert_eq!(rig.turn().await, Next::Conflict);
    assert_eq!(rig.turn().await, Next::Failed);
    assert_eq!(rig.turn().await, Next::Settled);
}

#[tokio::test(start_paused = true)]
async fn results_of_events_are_counted() {
    let mut rig = rig(|request, _| report(Ok(Outcome::Settled), vec![label(&request)]));
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    *rig.script.events.lock() =
        vec![EventResult::Dropped, EventResult::Sent, EventResult::Delayed, EventResult::Dropped];
    rig.add();
    assert_eq!(rig.turn().await, Next::Settled);
    assert_eq!(rig.status.events(), [("delayed", 1), ("dropped", 2), ("sent", 1)].into());
}

#[tokio::test(start_paused = true)]
async fn a_key_waits_as_long_as_the_api_server_asks() {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let seen = reported.clone();
    let mut rig = rig(move |request, _| {
        seen.lock().push(request.attempt);
        report(Ok(Outcome::Settled), vec![label(&request)])
    });
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    rig.script.results.lock().push_back(WriteResult::NotSent);
    *rig.script.retry_after.lock() = Some(Duration::from_secs(7));
    rig.add();
    let start = Instant::now();
    assert_eq!(rig.turn().await, Next::FailedFor(Duration::from_secs(7)));
    assert_eq!(rig.turn().await, Next::Settled);
    assert_eq!((start.elapsed().as_secs(), &*reported.lock()), (7, &vec![1, 2]));
}

#[tokio::test(start_paused = true)]
async fn no_run_that_may_write_starts_while_its_account_is_held() {
    let mut rig = rig(|_, _| report(Ok(Outcome::Settled), Vec::new()));
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    *rig.script.held.lock() = Some(Instant::now() + Duration::from_secs(9));
    rig.add();
    assert_eq!(rig.turn().await, Next::Settled, "it is granted no write");
    rig.grant_labels();
    rig.add();
    let start = Instant::now();
    assert_eq!(rig.turn().await, Next::Postponed(Duration::from_secs(9)));
    assert_eq!((rig.turn().await, start.elapsed().as_secs(), rig.status.runs()), (Next::Settled, 9, 2));
}

#[tokio::test(start_paused = true)]
async fn failures_of_the_same_kind_are_logged_as_one_warning() {
    let failure = || Err(Failure { kind: FailureKind::Retry, message: "later".into() });
    for writes in [false, true] {
        let warnings = Warnings::default();
        let _logged = log_to(warnings.clone());
        let mut rig = rig(move |request, _| match writes {
            true => report(Ok(Outcome::Settled), vec![label(&request)]),
            false => report(failure(), Vec::new()),
        });
        rig.writer.apply(vec![PodEvent::applied(pod(5))]);
        rig.script.results.lock().extend(vec![WriteResult::Forbidden("no patch".into()); 8]);
        rig.add();
        for _ in 0..8 {
            assert_eq!(rig.turn().await, Next::Failed);
        }
        assert_eq!(warnings.count(), 1, "writes: {writes}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_fails_sends_nothing_of_what_it_staged() {
    let mut rig = rig(|request, _| {
        let failure = Failure { kind: FailureKind::Retry, message: "later".into() };
        report(Err(failure), vec![label(&request)])
    });
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    rig.add();
    assert_eq!(rig.turn().await, Next::Failed);
    assert!(rig.script.sent.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_run_counts_the_processor_time_that_its_tenant_is_charged() {
    let failed = || Err(Failure { kind: FailureKind::Trap, message: String::new() });
    for result in [|| Ok(Outcome::Settled), failed] {
        let usage = Usage { cpu: Duration::from_millis(7), ..Usage::default() };
        let mut rig = rig(move |_, _| RunReport { usage, ..report(result(), Vec::new()) });
        rig.writer.apply(vec![PodEvent::applied(pod(5))]);
        rig.add();
        rig.turn().await;
        assert_eq!(rig.status.cpu(), usage.cpu);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_after_an_unload_leaves_no_expectations() {
    let hook = Arc::new(Mutex::new(None::<Box<dyn FnOnce() + Send>>));
    let during = hook.clone();
    let mut rig = rig(move |request, _| {
        if let Some(hook) = during.lock().take() {
            hook();
        }
        report(Ok(Outcome::Settled), vec![label(&request)])
    });
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    rig.script.results.lock().push_back(WriteResult::Forbidden("no patch".into()));
    rig.add();
    let dispatch = rig.dispatch.clone();
    let lane = rig.lane;
    *hook.lock() = Some(Box::new(move || {
        dispatch.registry.remove(&spec().id);
        dispatch.queue.remove_lane(lane);
        dispatch.expectations.forget_lane(lane);
    }));
    assert_eq!(rig.turn().await, Next::Postponed(Duration::ZERO));
    assert!(rig.script.sent.lock().is_empty());
    assert_eq!(rig.dispatch.expectations.unsettled.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_host_is_a_failure_that_loses_no_key() {
    let mut rig = rig(|_, _| panic!("a bug"));
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    rig.add();
    assert_eq!(rig.turn().await, Next::Failed);
    assert_eq!(rig.status.failures_by(FailureKind::Host), 1);
    assert_eq!(rig.status.last_failure().as_deref(), Some("the host panicked: a bug"));
    assert_eq!(rig.turn().await, Next::Failed);
}

#[tokio::test(start_paused = true)]
async fn state_of_a_run_is_found_by_the_next_one() {
    let mut rig = rig(|request, mut world| {
        match request.attempt {
            1 => drop(world.state_put("k", b"v".to_vec(), Some(0)).unwrap()),
            _ => assert_eq!(world.state_get("k").unwrap().value, b"v"),
        }
        let failure = Failure { kind: FailureKind::Retry, message: "later".into() };
        report(if request.attempt == 1 { Err(failure) } else { Ok(Outcome::Settled) }, Vec::new())
    });
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    rig.add();
    assert_eq!(rig.turn().await, Next::Failed);
    assert_eq!(rig.turn().await, Next::Settled);
}

#[tokio::test(start_paused = true)]
async fn only_the_first_run_on_a_pod_waits_for_the_journal() {
    let directory = tempfile::tempdir().unwrap();
    let (entries, mut opened) = entries(directory.path());
    let mut rig = rig_with(Some(entries), |_, _| report(Ok(Outcome::Settled), Vec::new()));
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    rig.add();
    let mut turn = Box::pin(rig.turn());
    assert!(turn.as_mut().now_or_never().is_none() && rig.status.runs() == 0);
    opened.store.write(&opened.journal).unwrap();
    assert_eq!(turn.as_mut().now_or_never(), Some(Next::Settled));
    rig.add();
    assert_eq!(rig.turn().now_or_never(), Some(Next::Settled));
    assert_eq!((rig.status.runs(), opened.journal.figures().entries), (2, 1), "the pod is there");
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_cannot_be_written_holds_no_run_up_for_long() {
    let directory = tempfile::tempdir().unwrap();
    let (entries, opened) = entries(directory.path());
    let mut rig = rig_with(Some(entries), |_, _| report(Ok(Outcome::Settled), Vec::new()));
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    rig.add();
    let start = Instant::now();
    assert_eq!(rig.turn().await, Next::Settled);
    assert_eq!(start.elapsed().as_secs(), 5);
    assert!(opened.journal.figures().failing);
}
