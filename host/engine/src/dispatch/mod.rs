//! One run from key to settled: a worker takes a key from the queue, runs the plugin on the present state, sends the
//! staged writes, and decides whether the key has settled, is requeued or backs off.
//!
//! This module knows neither the WebAssembly engine nor the API server; both implement traits of [`crate::ports`].

mod breaker;
pub mod budget;
mod children;
mod claims;
mod delivery;
mod expectations;
mod explain;
mod gate;
mod groups;
mod inputs;
mod log_rate;
mod order;
mod probe;
mod records;
mod registry;
mod repeats;
mod revocation;
mod run_writes;
mod seed;
mod seen;
mod state;
mod states;
mod tombstones;
mod traces;
mod trial;
mod under_way;
mod unsettled;
mod values;
mod world;

use std::{any::Any, panic::AssertUnwindSafe, slice::from_ref, sync::Arc, time::Duration};

pub use breaker::{OpenLoop, OpenLoops};
use delivery::Attempt;
pub use expectations::Expectations;
pub use explain::Reason;
use futures::future::BoxFuture;
use futures::{FutureExt, future::Either};
use gate::Gate;
pub use inputs::Inputs;
pub use order::order;
use podium_pods::{
    cache::{Reader, Snapshot},
    pod::{CachedPod, PodView},
};
use podium_vocabulary::{PodKey, Revision, WriteGrants, is_group};
pub use probe::{IsWanted, PROBE_PODS};
pub use records::{HOST_BYTES, RunRecord, TENANT_BYTES, TraceOfRun};
pub use registry::{Lane, LoadedPlugin, Registry};
use run_writes::RunWrites;
pub use seen::Lost;
use seen::SEE_WRITES;
pub use state::State;
use tokio::time::Instant;
use tombstones::FoundSubject;
pub use tombstones::{Bounds, Excess, Figures, Keys, Plan, Slot, Tombstones};
pub use traces::Traces;
use tracing::Instrument;
pub use trial::{TRIAL_RUNS, TRIAL_TIME};
use unsettled::Reports;
use world::RunWorld;

use crate::{
    clock::Clock,
    ports::{
        Asker, Deliver, Expectation, Failure, FailureKind, Live, RUN_TARGET, Request, RunReport, Staged, Subject,
        Tasks, Trace, Usage, panic_message,
    },
    queue::{Done, Job, Next},
};

/// The queue of Pods' keys, with a lane for each plugin.
pub type PodQueue = Keys<Lane>;
type PodJob = Job<Lane, Slot, Arc<str>>;

/// How soon a run that waits for the cache to show the plugin's own writes looks again, and less often while live reads
/// fail. An event looks at once.
const GATE_PAUSE: Duration = Duration::from_millis(250);

/// For how long a plugin may ask to be run again on a Pod that is gone, or fail on it; a day is long enough to correct
/// a plugin. [`Bounds`] limits how many such Pods there may be.
const GIVE_UP: Duration = Duration::from_secs(24 * 3_600);
/// A requeue-after is at least this: "at once" means soon, not as fast as a worker can turn.
const LEAST_REQUEUE: Duration = Duration::from_millis(100);

/// Runs plugins on the keys of the queue; shared by all workers.
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
    /// Starts deliveries, which hold no worker.
    pub tasks: Arc<dyn Tasks>,
    /// Dates conditions and Events, and is the time that plugins see.
    pub clock: Clock,
    /// The host's seed. With the same seed, the runs of a plugin have the same random numbers.
    pub seed: u64,
    /// `None` if runs are not traced.
    pub traces: Option<Traces>,
}

/// The result of a job for the queue.
struct JobResult {
    next: Next,
    /// The run's subject was the deletion.
    on_deletion: bool,
    /// The run would not have been the last one, but the Pod is gone for [`GIVE_UP`].
    gave_up: bool,
    /// Writes that did not settle, for the next run.
    unsettled: Reports,
}

impl JobResult {
    /// The plugin was not run.
    fn without_run(next: Next) -> Self {
        Self { next, on_deletion: false, gave_up: false, unsettled: Reports::default() }
    }
}

/// The state of a job when its worker takes the next one. Either the job is back in the queue, or its run has something
/// to send. The future sends this, and returns the job to the queue.
type NextOrDelivery = Either<Next, BoxFuture<'static, Next>>;

/// The result of [`Dispatch::run`].
enum Step {
    Ended(JobResult),
    Ran(Box<Attempt>),
}

impl Dispatch {
    /// Forgets all of a plugin that was unloaded, and of which the ingest loop queues no keys any more.
    pub fn forget(&self, lane: Lane) {
        self.queue.remove_lane(lane);
        self.expectations.forget_lane(lane);
        self.registry.forget_unloaded(&self.queue.remembered());
    }

    /// Runs keys one after another until the queue is closed.
    pub async fn work(self: Arc<Self>) {
        while let Some(job) = self.queue.next().await {
            if let Either::Right(delivery) = self.clone().begin(job).await {
                self.tasks.start(Box::pin(delivery.map(|_| ())));
            }
        }
    }

    /// Runs a job, and returns it to the queue unless it has something to send; also after a panic.
    async fn begin(self: Arc<Self>, job: PodJob) -> NextOrDelivery {
        let plugin = match self.admit(&job) {
            Ok(plugin) => plugin,
            Err(next) => {
                self.queue.done(&job, next);
                return Either::Left(next);
            }
        };
        let key = job_key(&job);
        let run = AssertUnwindSafe(self.run(&job, &plugin, &key)).catch_unwind();
        let attempt = match run.await {
            Ok(Step::Ended(ran)) => return Either::Left(self.finish(&job, &plugin, &key, ran)),
            Ok(Step::Ran(attempt)) => *attempt,
            Err(panic) => {
                let ran = self.panicked(&job, &plugin, &key, &RunWrites::new(&Subject::Deleted(None), 0), &*panic);
                return Either::Left(self.finish(&job, &plugin, &key, ran));
            }
        };
        let has_nothing_to_send = !attempt.sends();
        let writes = attempt.writes.clone();
        let settle = async move {
            let settled = AssertUnwindSafe(self.settle(&job, &plugin, attempt)).catch_unwind();
            let ran = settled.await.unwrap_or_else(|panic| self.panicked(&job, &plugin, &key, &writes, &*panic));
            self.finish(&job, &plugin, &key, ran)
        };
        if has_nothing_to_send { Either::Left(settle.await) } else { Either::Right(Box::pin(settle)) }
    }

    /// Returns the plugin of a job, or when the job is tried again if it is not run now.
    fn admit(&self, job: &PodJob) -> Result<Arc<LoadedPlugin>, Next> {
        let plugin = self.registry.get(job.lane).ok_or(Next::Settled)?;
        if let Some(pause) = plugin.revocation.pause() {
            return Err(Next::Postponed(pause));
        }
        // A version with more memory was loaded since the key was taken.
        let has_grown = job.claim.is_some_and(|claim| claim.bytes < registry::claimed(&plugin.spec));
        if has_grown { Err(Next::Postponed(Duration::ZERO)) } else { Ok(plugin) }
    }

    fn finish(&self, job: &PodJob, plugin: &LoadedPlugin, key: &PodKey, ran: JobResult) -> Next {
        let JobResult { next, on_deletion, gave_up, unsettled } = ran;
        let settled = || {
            if let Some(entries) = &plugin.entries {
                entries.settled(key);
            }
        };
        let (done, excess) = self.expectations.unsettled.end(job.lane, &job.item, unsettled, || {
            self.expectations.tombstones.done(&self.queue, job, next, on_deletion, settled)
        });
        self.expectations.exceeded(plugin, excess);
        if on_deletion && done == Done::Forgotten {
            self.expectations.gates.forget_group(job.lane, &job.item);
        }
        if gave_up && done == Done::Forgotten {
            plugin.gave_up(1);
        }
        next
    }

    /// Runs the plugin, if it may be run now. `of` is the job's key: that of the Pod, or of its group.
    async fn run(self: &Arc<Self>, job: &PodJob, plugin: &Arc<LoadedPlugin>, of: &PodKey) -> Step {
        if !plugin.runs_for(of) {
            // Added for another configuration. It settles as a deletion does, without a run.
            self.expectations.tombstones.find_subject(&self.queue, job, None, |_, _| true, Instant::now());
            let unsettled = Reports::default();
            return Step::Ended(JobResult { next: Next::Settled, on_deletion: true, gave_up: false, unsettled });
        }
        if let Some(wait) = self.held(plugin) {
            return Step::Ended(self.postponed(job, plugin, of, wait));
        }
        if let Some(entries) = &plugin.entries {
            // Before the snapshot is taken: a Pod that it shows goes later, and whoever sees it go finds the entry.
            entries.enter(of).await;
        }
        let mut snapshot: Arc<dyn PodView> = self.reader.snapshot();
        let mut present = self.present(job, plugin, of, &*snapshot).await;
        let of_group = is_group(&of.uid).then(|| self.written(plugin, of, present.as_ref()));
        match self.caught_up(job, of_group.as_deref().unwrap_or(from_ref(of)), &*snapshot).await {
            Err(pause) => return Step::Ended(JobResult::without_run(Next::Postponed(pause))),
            Ok(None) => {}
            Ok(Some(newer)) => {
                snapshot = newer;
                present = self.present(job, plugin, of, &*snapshot).await;
            }
        }
        let has_left = |uid: &str, left| plugin.has_left(of, uid, left, &*snapshot);
        let FoundSubject { subject, gone_for } =
            self.expectations.tombstones.find_subject(&self.queue, job, present, has_left, Instant::now());
        let (key, generation) = match &subject {
            Subject::Present(pod) | Subject::Deleted(Some(pod)) => (pod.key.clone(), pod.generation()),
            Subject::Deleted(None) => (of.clone(), 0),
        };
        if let (Some(_), Some(entries)) = (gone_for, &plugin.entries) {
            entries.gone(of);
        }
        let started = Instant::now();
        let waited = started - job.queued;
        let number = plugin.status.begin(waited, job.attempt, &key);
        let now_millis = self.clock.now_millis();
        let trace = self.trace(plugin, number, now_millis);
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
            trace_id = trace.filter(|trace| trace.is_sampled).map(|trace| tracing::field::display(trace.id)),
        );
        let before = self.expectations.unsettled.take(job.lane, &of.uid);
        let writes = Arc::new(RunWrites::new(&subject, before.attempts).traced(trace));
        let request = Request {
            key: key.clone(),
            subject,
            now_millis,
            attempt: job.attempt,
            unsettled: before.reports,
            inputs: plugin.inputs.get(),
            seed: seed::of_run(self.seed, &plugin.spec.id, number),
        };
        let world = RunWorld::new(self.clone(), plugin.clone(), key.clone(), job.clone(), snapshot, writes.clone());
        let work = async {
            let run = AssertUnwindSafe(plugin.reconcile.reconcile(request, Box::new(world))).catch_unwind();
            let run = run.await.inspect(|report| plugin.status.used(&report.usage, &plugin.spec.limits));
            let report = run.unwrap_or_else(|panic| {
                let message = format!("the host panicked: {}", panic_message(&*panic));
                failed(Failure { kind: FailureKind::Host, message })
            });
            self.ran(job, plugin, report.usage.cpu);
            report
        };
        let ran = plugin.revocation.unless_revoked(work).instrument(span.clone()).await;
        // The sandbox is gone; the rest of the work waits for the API server.
        plugin.status.left(number);
        let report = ran.unwrap_or_else(|| {
            // The run cannot report its time on the processor. It has had no more than this.
            self.ran(job, plugin, started.elapsed().min(plugin.spec.limits.cpu));
            failed(revoked())
        });
        Step::Ran(Box::new(Attempt { report, key, gone_for, started, waited, span, writes }))
    }

    fn trace(&self, plugin: &LoadedPlugin, number: u64, now_millis: u64) -> Option<Trace> {
        let traces = self.traces.as_ref()?;
        Some(traces.begin(self.seed, &plugin.spec.id, number, now_millis))
    }

    fn panicked(
        &self,
        job: &PodJob,
        plugin: &LoadedPlugin,
        key: &PodKey,
        writes: &RunWrites,
        panic: &(dyn Any + Send),
    ) -> JobResult {
        let error = panic_message(panic);
        tracing::error!(plugin = %plugin.spec.id, error, "the host panicked beside a run");
        let message = format!("the host panicked beside the run: {error}");
        let result = Err(Failure { kind: FailureKind::Host, message });
        let record = plugin.records.add(RunRecord::new(job, plugin, key, writes, &result));
        if let (Some(traces), Some(record)) = (self.traced(writes, true, Duration::ZERO), record) {
            traces.keep(record);
        }
        JobResult::without_run(Next::Failed)
    }

    /// Charges the tenant for a run that has ended.
    fn ran(&self, job: &PodJob, plugin: &LoadedPlugin, cost: Duration) {
        plugin.status.charged(cost);
        self.queue.ran(job, cost);
    }

    /// Returns how long the plugin's writes have to wait. A run that may write does not start before then: its writes
    /// would be based on old data when they can be sent, and a waiting key needs no worker.
    fn held(&self, plugin: &LoadedPlugin) -> Option<Duration> {
        if plugin.spec.grants.write == WriteGrants::default() {
            return None;
        }
        self.deliver.held(&plugin.sender)
    }

    /// Postpones a job without a run. Drops the job instead if its Pod has been gone for [`GIVE_UP`], or if its
    /// deletion was given up before.
    fn postponed(&self, job: &PodJob, plugin: &LoadedPlugin, key: &PodKey, wait: Duration) -> JobResult {
        let gone_for = self.expectations.tombstones.gone_for(job.lane, &key.uid, Instant::now());
        // Without a tombstone the deletion of a Pod was given up before, after the key was taken.
        let is_over = gone_for.map_or(!is_group(&key.uid), |gone| gone >= GIVE_UP);
        if is_over && plugin.present(key, &*self.reader.snapshot()).is_none() {
            self.expectations.tombstones.find_subject(&self.queue, job, None, |_, _| true, Instant::now());
            let gave_up = gone_for.is_some();
            return JobResult { next: Next::Settled, on_deletion: true, gave_up, unsettled: Reports::default() };
        }
        JobResult::without_run(Next::Postponed(wait))
    }

    /// Returns the Pod that a run is about. The tenant is charged for the search of that of a group.
    async fn present(
        &self,
        job: &PodJob,
        plugin: &LoadedPlugin,
        of: &PodKey,
        view: &dyn PodView,
    ) -> Option<Arc<CachedPod>> {
        let charge = |cost| {
            plugin.status.charged(cost);
            self.queue.charge(job.lane, cost);
        };
        plugin.found(of, view, charge).await
    }

    /// Returns the Pods that a run for a group has to see with the plugin's own writes: its Pod, and those that earlier
    /// runs wrote to and that were not seen.
    fn written(&self, plugin: &LoadedPlugin, of: &PodKey, member: Option<&Arc<CachedPod>>) -> Vec<PodKey> {
        let mut written = self.expectations.gates.unseen_of(plugin.lane, &of.uid);
        written.extend(member.map(|pod| pod.key.clone()));
        written
    }

    /// Returns whether a view shows the plugin's earlier writes to these Pods, with a newer view if only that one does,
    /// or how soon the run looks again. Waits for no event, only for the API server's answer about a Pod whose event
    /// is overdue.
    async fn caught_up(
        &self,
        job: &PodJob,
        written: &[PodKey],
        view: &dyn PodView,
    ) -> Result<Option<Arc<dyn PodView>>, Duration> {
        let gates = &self.expectations.gates;
        let mut newer: Option<Arc<dyn PodView>> = None;
        for key in written {
            let view = newer.as_deref().unwrap_or(view);
            let mut gate = gates.gate(job.lane, key, view, Instant::now());
            if gate != Gate::Open {
                self.expectations.look_for_lost(job.lane, &key.uid, &self.reader);
            }
            if gate == Gate::ReadLive {
                gate = self.ask_live(job, key).await;
                newer = Some(self.reader.snapshot());
            }
            if gate != Gate::Open {
                return Err(gates.pause(job.lane, &key.uid, Instant::now()));
            }
        }
        if is_group(&job.item) {
            gates.add_unseen(job.lane, &job.item, &[], newer.as_deref().unwrap_or(view));
        }
        Ok(newer)
    }

    /// Reads the Pod from the API server to learn which revision the cache has to show, and compares again. Costs the
    /// tenant a token, so that many of its Pods that were not seen for long are not read at once.
    async fn ask_live(&self, job: &PodJob, key: &PodKey) -> Gate {
        let lane = job.lane;
        // A plugin that was unloaded meanwhile has no expectations.
        let Some(plugin) = self.registry.get(lane) else { return Gate::Wait };
        if !self.queue.has_tokens(job, budget::WRITES, 0) {
            return Gate::Wait;
        }
        self.queue.spend(job, budget::WRITES, 1);
        let live = self.live.get(Asker::Host, &plugin.sender, &key.namespace, &key.name).await;
        self.expectations.gates.answer(lane, key, &live, Instant::now());
        self.expectations.gates.gate(lane, key, &*self.reader.snapshot(), Instant::now())
    }

    /// Waits at most [`SEE_WRITES`] until the cache shows the writes of a commit. Returns whether it does.
    async fn await_writes(&self, job: &PodJob, expected: &[Expectation], list: Revision, run: &RunWrites) -> bool {
        let lane = job.lane;
        let gates = &self.expectations.gates;
        let mut all_seen = false;
        let shown = async {
            all_seen = self.expectations.see(expected, list).await;
            for Expectation { key, .. } in expected {
                self.expectations.look_for_lost(lane, &key.uid, &self.reader);
                if gates.gate(lane, key, &*self.reader.snapshot(), Instant::now()) == Gate::ReadLive {
                    self.ask_live(job, key).await;
                }
            }
            let mut reader = self.reader.clone();
            let are_open = |snapshot: &Snapshot| {
                let open = |of: &Expectation| gates.gate(lane, &of.key, snapshot, Instant::now()) == Gate::Open;
                expected.iter().all(open)
            };
            reader.wait_for(are_open).await.is_some()
        };
        let is_shown = tokio::time::timeout(SEE_WRITES, shown).await.unwrap_or(false);
        if !all_seen {
            run.withheld(Instant::now());
        }
        is_shown
    }
}

/// Returns the Pod or group of a job.
fn job_key(job: &PodJob) -> PodKey {
    PodKey { namespace: job.slot.0.clone(), name: job.slot.1.clone(), uid: job.item.clone() }
}

/// The report of a run that has no other.
fn failed(failure: Failure) -> RunReport<Staged> {
    RunReport { result: Err(failure), staged: Staged::default(), usage: Usage::default() }
}

fn revoked() -> Failure {
    let message =
        "ended: this version may not run any more: its configuration was removed or permits less, the policy \
                   forbids it, or the host lost the Lease"
            .to_owned();
    Failure { kind: FailureKind::Revoked, message }
}

#[cfg(test)]
mod tests;
