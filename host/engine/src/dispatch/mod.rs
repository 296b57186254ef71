//! One run from key to settled: takes a key from the queue, runs the plugin on the present, sends what it staged, and
//! decides whether the key rests, comes back or backs off.
//!
//! It knows neither the engine nor the API server; both stand behind the traits of [`crate::ports`].

mod expectations;
mod gate;
mod log_rate;
mod registry;
mod repeats;
mod state;
mod tombstones;
mod unsettled;
mod world;

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

pub use expectations::Expectations;
use futures::FutureExt;
use gate::Gate;
use podium_pods::{
    cache::{Reader, Snapshot},
    model::{PodKey, WriteGrants, WriteReport},
    pod::PodView,
};
pub use registry::{Lane, Loaded, Registry};
pub use state::State;
use tokio::time::Instant;
pub use tombstones::{Bounds, Excess, Figures, Keys, Plan, Slot, Tombstones};
use tombstones::{Ended, Looked};
use tracing::Instrument;
use world::RunWorld;

use crate::{
    clock::Clock,
    ports::{
        Asker, Deliver, Expectation, Failure, FailureKind, Live, Outcome, RUN_TARGET, Request, RunReport, Sent, Staged,
        Subject, Usage, WriteThrough, panic_message,
    },
    queue::{Done, Job, Next},
};

/// The queue of Pods' keys, with a lane for each plugin.
pub type PodQueue = Keys<Lane>;
type PodJob = Job<Lane, Slot, Arc<str>>;

/// How soon a run that waits for the cache to show the plugin's own writes looks again, and less often while live reads
/// fail. An event looks at once.
const GATE_PAUSE: Duration = Duration::from_millis(250);

/// For how long a plugin may ask to be run again on a Pod that is gone, or fail on it; a day is long enough to mend a
/// plugin. [`Bounds`] limits how many such Pods there may be.
const GIVE_UP: Duration = Duration::from_secs(24 * 3_600);
/// A requeue-after is at least this: "at once" means soon, not as fast as a worker can turn.
const LEAST_REQUEUE: Duration = Duration::from_millis(100);
/// Writes of one run that did not settle, each of which has a line in the log.
const LOGGED_WRITES: usize = 3;
/// How long a commit waits for the cache to show what it wrote.
const SEE_WRITES: Duration = Duration::from_secs(2);

/// What a worker needs; shared by all workers.
pub struct Dispatch {
    /// The keys to run, shared with the ingest loop.
    pub queue: Arc<PodQueue>,
    /// The plugins that are loaded.
    pub registry: Arc<Registry>,
    /// Shared with the ingest loop, which records what the cache shows.
    pub expectations: Arc<Expectations>,
    /// The cache that runs read.
    pub reader: Reader,
    /// Sends the writes of runs.
    pub deliver: Arc<dyn Deliver>,
    /// Reads Pods from the API server, for plugins and for expectations that the cache cannot fulfil.
    pub live: Arc<dyn Live>,
    /// Puts the API server's answers to writes into the cache.
    pub write_through: Arc<dyn WriteThrough>,
    /// Dates conditions and Events, and is the time that plugins see.
    pub clock: Clock,
    /// The host's seed. Runs with the same seed and number have the same random numbers.
    pub seed: u64,
    /// Numbers the runs; with the seed it seeds a WASI guest's random numbers.
    pub runs: AtomicU64,
}

/// The result of a job for the queue.
struct Ran {
    next: Next,
    /// The run's subject was the deletion.
    on_deletion: bool,
    /// The run would not have been the last one, but the Pod is gone for [`GIVE_UP`].
    gave_up: bool,
    /// Writes that did not settle, for the next run.
    unsettled: Vec<WriteReport>,
}

impl Ran {
    /// The plugin was not run.
    fn not(next: Next) -> Self {
        Self { next, on_deletion: false, gave_up: false, unsettled: Vec::new() }
    }
}

impl Dispatch {
    /// Runs keys one after another until the queue is closed.
    pub async fn work(self: Arc<Self>) {
        while let Some(job) = self.queue.next().await {
            self.clone().one(&job).await;
        }
    }

    /// Runs a job and returns it to the queue, also after a panic.
    async fn one(self: Arc<Self>, job: &PodJob) -> Next {
        let Some(plugin) = self.registry.get(job.lane) else {
            self.queue.done(job, Next::Settled);
            return Next::Settled;
        };
        // A version with more memory was loaded since the key was taken.
        if job.claim.is_some_and(|claim| claim.bytes < registry::claimed(&plugin.spec)) {
            let next = Next::Postponed(Duration::ZERO);
            self.queue.done(job, next);
            return next;
        }
        let key = PodKey { namespace: job.slot.0.clone(), name: job.slot.1.clone(), uid: job.item.clone() };
        let run = AssertUnwindSafe(self.clone().run(job, &plugin, &key)).catch_unwind();
        let ran = run.await.unwrap_or_else(|panic| {
            tracing::error!(plugin = %plugin.spec.id, error = panic_message(&*panic), "the host panicked beside a run");
            Ran::not(Next::Failed)
        });
        let next = ran.next;
        self.finish(job, &plugin, &key, ran);
        next
    }

    fn finish(&self, job: &PodJob, plugin: &Loaded, key: &PodKey, ran: Ran) {
        let Ran { next, on_deletion, gave_up, unsettled } = ran;
        let settled = || {
            if let Some(account) = &plugin.account {
                account.settled(key);
            }
        };
        let (done, excess) = self.expectations.unsettled.end(job.lane, &job.item, unsettled, || {
            let Ended { done, excess } =
                self.expectations.tombstones.done(&self.queue, job, next, on_deletion, settled);
            (done, excess)
        });
        plugin.exceeded(excess);
        if gave_up && done == Done::Forgotten {
            plugin.gave_up(1);
        }
    }

    async fn run(self: Arc<Self>, job: &PodJob, plugin: &Arc<Loaded>, key: &PodKey) -> Ran {
        if let Some(wait) = self.held(plugin) {
            return self.postponed(job, key, wait);
        }
        if let Some(account) = &plugin.account {
            // Before the snapshot is taken: a Pod that it shows goes later, and whoever sees it go finds the entry.
            account.enter(key).await;
        }
        let Some(snapshot) = self.caught_up(job.lane, key).await else {
            let pause = self.expectations.gates.pause(job.lane, &key.uid, Instant::now());
            return Ran::not(Next::Postponed(pause));
        };
        let number = self.runs.fetch_add(1, Relaxed);
        let Looked { subject, gone_for } =
            self.expectations.tombstones.look(&self.queue, job, &*snapshot, Instant::now());
        let generation = match &subject {
            Subject::Present(pod) | Subject::Deleted(Some(pod)) => pod.generation(),
            Subject::Deleted(None) => 0,
        };
        if let (Some(_), Some(account)) = (gone_for, &plugin.account) {
            account.gone(key);
        }
        let span = tracing::error_span!(
            target: RUN_TARGET,
            "reconcile",
            run = number,
            plugin = %plugin.spec.id,
            namespace = %key.namespace,
            pod = %key.name,
            uid = %key.uid,
            generation,
            attempt = job.attempt,
        );
        let request = Request {
            key: key.clone(),
            subject,
            now_millis: self.clock.now_millis(),
            attempt: job.attempt,
            unsettled: self.expectations.unsettled.take(job.lane, &key.uid),
            seed: self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        };
        let (next, unsettled) = self.clone().attempt(job, plugin, request, snapshot).instrument(span).await;
        let retried = matches!(next, Next::After(_) | Next::Failed | Next::FailedFor(_));
        let gave_up = retried && gone_for.is_some_and(|gone| gone >= GIVE_UP);
        let next = match next {
            _ if gave_up => Next::Settled,
            Next::After(delay) => Next::After(delay.max(LEAST_REQUEUE)),
            next => next,
        };
        Ran { next, on_deletion: gone_for.is_some(), gave_up, unsettled }
    }

    async fn attempt(
        self: Arc<Self>,
        job: &PodJob,
        plugin: &Arc<Loaded>,
        request: Request,
        snapshot: Arc<dyn PodView>,
    ) -> (Next, Vec<WriteReport>) {
        let started = Instant::now();
        plugin.status.begin(started - job.queued, job.attempt);
        let key = request.key.clone();
        let world = RunWorld::new(self.clone(), plugin.clone(), key.clone(), job.queued, snapshot);
        let run = AssertUnwindSafe(plugin.reconcile.reconcile(request, Box::new(world))).catch_unwind();
        let report = run.await.unwrap_or_else(|panic| RunReport {
            result: Err(Failure {
                kind: FailureKind::Host,
                message: format!("the host panicked: {}", panic_message(&*panic)),
            }),
            staged: Staged::default(),
            usage: Usage::default(),
        });
        // The sandbox is gone; what follows waits for the API server.
        self.queue.release(job);
        let mut unsettled = Vec::new();
        let mut retry_after = None;
        if report.result.is_ok() && !(report.staged.writes.is_empty() && report.staged.events.is_empty()) {
            let view = self.reader.snapshot();
            let sent = self.send(plugin, &key, job.queued, &*view, report.staged).await;
            unsettled = sent.reports.into_iter().filter(|report| !report.result.is_settled()).collect();
            retry_after = sent.retry_after;
        }
        let took = started.elapsed();
        let result = plugin.status.end(&report.result, unsettled.len(), took);
        tracing::debug!(
            result = result.name(),
            micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            fuel = report.usage.fuel,
            host_calls = report.usage.host_calls,
            "ran"
        );
        let failed = !unsettled.is_empty();
        for report in unsettled.iter().take(LOGGED_WRITES) {
            let (write, result, error) = (&report.description, report.result.name(), report.result.text());
            match plugin.repeats.occurred(result, &format!("{write}: {error}"), &key, Instant::now()) {
                Some(count) => tracing::warn!(write, result, error, count, "write failed"),
                None => tracing::debug!(write, result, error, "write failed"),
            }
        }
        if let Some(more @ 1..) = unsettled.len().checked_sub(LOGGED_WRITES) {
            match plugin.repeats.occurred("more", "", &key, Instant::now()) {
                Some(count) => tracing::warn!(more, count, "more writes failed"),
                None => tracing::debug!(more, "more writes failed"),
            }
        }
        let next = match report.result {
            // With Retry-After the API server says when, and not the back-off.
            Ok(_) if failed => retry_after.map_or(Next::Failed, Next::FailedFor),
            Ok(Outcome::RequeueAfter(delay)) => Next::After(delay),
            Ok(Outcome::Settled | Outcome::Stop) => Next::Settled,
            Err(failure) => {
                let (reason, error) = (failure.kind.name(), &failure.message);
                match plugin.repeats.occurred(reason, error, &key, Instant::now()) {
                    Some(count) => tracing::warn!(reason, error, count, "run failed"),
                    None => tracing::debug!(reason, error, "run failed"),
                }
                if failure.kind == FailureKind::Terminal { Next::Settled } else { Next::Failed }
            }
        };
        (next, unsettled)
    }

    /// How long the plugin's writes are to wait. A run that may write does not start before: what it decides would be
    /// old when it can be sent, and the key waits without a worker.
    fn held(&self, plugin: &Loaded) -> Option<Duration> {
        if plugin.spec.grants.write == WriteGrants::default() {
            return None;
        }
        self.deliver.held(&plugin.sender)
    }

    /// Puts a job off without a run, unless its Pod has been gone for so long that it is given up, or was given up.
    fn postponed(&self, job: &PodJob, key: &PodKey, wait: Duration) -> Ran {
        let is_gone = self.reader.snapshot().by_uid(&key.uid).is_none();
        let gone_for = self.expectations.tombstones.gone_for(job.lane, &key.uid, Instant::now());
        // Without a tombstone it was given up before, after the key was taken.
        if is_gone && gone_for.is_none_or(|gone| gone >= GIVE_UP) {
            let gave_up = gone_for.is_some();
            return Ran { next: Next::Settled, on_deletion: true, gave_up, unsettled: Vec::new() };
        }
        Ran::not(Next::Postponed(wait))
    }

    /// Takes a snapshot that shows what the plugin wrote to the Pod before. None: the cache has not caught up.
    async fn caught_up(&self, lane: Lane, key: &PodKey) -> Option<Arc<dyn PodView>> {
        let snapshot = self.reader.snapshot();
        match self.expectations.gates.gate(lane, key, &*snapshot, Instant::now()) {
            Gate::Open => Some(snapshot),
            Gate::Wait => None,
            Gate::ReadLive => {
                let open = self.ask_live(lane, key).await == Gate::Open;
                open.then(|| -> Arc<dyn PodView> { self.reader.snapshot() })
            }
        }
    }

    /// Asks the API server what the cache has to show of the Pod, and compares again.
    async fn ask_live(&self, lane: Lane, key: &PodKey) -> Gate {
        // A plugin that was taken out meanwhile waits for nothing.
        let Some(plugin) = self.registry.get(lane) else { return Gate::Wait };
        let live = self.live.get(Asker::Host, &plugin.sender, &key.namespace, &key.name).await;
        self.expectations.gates.answer(lane, key, &live, Instant::now());
        self.expectations.gates.gate(lane, key, &*self.reader.snapshot(), Instant::now())
    }

    /// Waits until the cache shows what a commit wrote, at most [`SEE_WRITES`]. True when it does.
    async fn see(&self, lane: Lane, expected: &[Expectation]) -> bool {
        let gates = &self.expectations.gates;
        let seen = async {
            for Expectation { key, .. } in expected {
                if gates.gate(lane, key, &*self.reader.snapshot(), Instant::now()) == Gate::ReadLive {
                    self.ask_live(lane, key).await;
                }
            }
            let mut reader = self.reader.clone();
            let shown = |snapshot: &Snapshot| {
                let open = |of: &Expectation| gates.gate(lane, &of.key, snapshot, Instant::now()) == Gate::Open;
                expected.iter().all(open)
            };
            reader.wait_for(shown).await.is_some()
        };
        tokio::time::timeout(SEE_WRITES, seen).await.unwrap_or(false)
    }

    /// Sends staged writes, and stores the answers in the cache before any run on these Pods. The Pods of the returned
    /// report are in the cache already.
    async fn send(
        &self,
        plugin: &Loaded,
        subject: &PodKey,
        event: Instant,
        view: &dyn PodView,
        staged: Staged,
    ) -> Sent {
        let now = self.clock.now_millis();
        let mut sent = self.deliver.deliver(&plugin.sender, subject, view, staged, now).await;
        if sent.requests > 0 {
            plugin.status.event_to_write.record(event.elapsed());
        }
        plugin.status.wrote(&sent.reports, sent.requests);
        sent.events.iter().for_each(|result| plugin.status.event(*result));
        if !sent.pods.is_empty() {
            self.write_through.write_through(std::mem::take(&mut sent.pods)).await;
        }
        self.expectations.gates.expect(plugin.lane, &sent.expected, &self.reader, Instant::now());
        sent
    }
}

#[cfg(test)]
mod tests;
