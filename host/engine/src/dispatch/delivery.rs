//! The end of a job after its run: the staged writes are sent, and the result decides when the key is run next. The
//! sandbox and the worker are free meanwhile; the slot of the key is not, until the cache shows its writes.

use std::{sync::Arc, time::Duration};

use podium_pods::pod::PodView;
use podium_vocabulary::{PodKey, Revision, WriteReport, WriteResult, is_group};
use tokio::time::Instant;
use tracing::{Instrument, Span};

use super::{
    Dispatch, GIVE_UP, JobResult, LEAST_REQUEUE, LoadedPlugin, PodJob, Reports, RunRecord, RunWrites, gate::Gate,
    revoked, seen, under_way::UnderWay, values::Values,
};
use crate::{
    ports::{Expectation, Failure, FailureKind, Outcome, RunReport, Sent, Shown, Staged},
    queue::Next,
};

/// The most unsettled writes of one run that are logged, one line each.
const LOGGED_WRITES: usize = 3;

/// A run that has ended.
pub(super) struct Attempt {
    pub(super) report: RunReport<Staged>,
    /// The Pod of the run.
    pub(super) key: PodKey,
    /// For how long the run's Pod was gone; `None` if it was there.
    pub(super) gone_for: Option<Duration>,
    pub(super) started: Instant,
    /// The time from the oldest event that the run answers to its start.
    pub(super) waited: Duration,
    pub(super) span: Span,
    pub(super) writes: Arc<RunWrites>,
}

impl Attempt {
    /// True if the run has writes or Events to send. A run that failed sends nothing.
    pub(super) fn sends(&self) -> bool {
        let staged = &self.report.staged;
        self.report.result.is_ok() && !(staged.writes.is_empty() && staged.events.is_empty())
    }
}

impl Dispatch {
    /// Sends what the run staged, and decides when the key is run next.
    pub(super) async fn settle(&self, job: &PodJob, plugin: &Arc<LoadedPlugin>, attempt: Attempt) -> JobResult {
        let key = attempt.key.clone();
        let span = attempt.span.clone();
        let gone_for = attempt.gone_for;
        let writes = attempt.writes.clone();
        let (next, unsettled) = self.deliver(job, plugin, &key, attempt).instrument(span).await;
        let retried = next.is_failure() || matches!(next, Next::After(_) | Next::Again(_));
        let gave_up = retried && gone_for.is_some_and(|gone| gone >= GIVE_UP);
        let next = match next {
            _ if gave_up => Next::Settled,
            Next::After(delay) => Next::After(delay.max(LEAST_REQUEUE)),
            Next::Again(delay) => Next::Again(delay.max(LEAST_REQUEUE)),
            Next::Settled | Next::Final | Next::Ended => next,
            Next::Failed | Next::FailedFor(_) | Next::Conflict | Next::Postponed(_) => next,
        };
        if next.is_failure() {
            self.keep_backoff(job, &key, &writes);
        }
        JobResult { next, on_deletion: gone_for.is_some(), gave_up, unsettled }
    }

    /// Forgets that a failed job was added again while it ran, if the changes that added it are only its own writes.
    /// Otherwise they would defeat its back-off.
    fn keep_backoff(&self, job: &PodJob, key: &PodKey, writes: &RunWrites) {
        // It may be another Pod of the group that has changed.
        if is_group(&job.item) {
            return;
        }
        // Changes are published before they are queued: the snapshot shows those that this number includes.
        let Some(added) = self.queue.changed_during(job) else { return };
        if self.reader.snapshot().by_uid(&key.uid).is_some_and(|pod| writes.explain(&pod)) {
            self.queue.answered(job, added);
        }
    }

    async fn deliver(
        &self,
        job: &PodJob,
        plugin: &Arc<LoadedPlugin>,
        key: &PodKey,
        attempt: Attempt,
    ) -> (Next, Reports) {
        let sends = attempt.sends();
        let Attempt { report: RunReport { result, mut staged, usage }, started, writes, waited, gone_for, .. } =
            attempt;
        let mut result = result;
        let mut sent = Sent::default();
        let mut ended = Instant::now();
        if sends {
            self.admit_events(job, plugin, &mut staged);
            let work = async {
                let claim = self.expectations.claims.claim(plugin.lane, &staged).await;
                let list = self.expectations.seen.latest_list();
                let view = self.reader.snapshot();
                (list, self.send(job, plugin, key, &*view, staged, &writes).await, claim)
            };
            let delivered = plugin.revocation.unless_revoked(work).await;
            ended = Instant::now();
            match delivered {
                // The writes are done: a revocation changes nothing any more.
                Some((list, delivered, _claim)) => {
                    sent = delivered;
                    self.see(job, plugin, &sent.expected, list, &writes).await;
                }
                None => result = Err(revoked()),
            }
        }
        let Sent { reports, retry_after, .. } = sent;
        let unsettled: Vec<_> = reports.into_iter().filter(|report| !report.result.is_settled()).collect();
        let took = ended - started;
        let counted = plugin.status.end(&result, unsettled.len(), took);
        plugin.runs.ended(&result, key);
        if let Err(failure) = &result
            && failure.kind != FailureKind::Revoked
        {
            self.fail(plugin, key, failure.kind.name(), &failure.message);
        }
        let traced = self.traced(&writes, result.is_err() || !unsettled.is_empty(), took);
        let settled = result.is_ok() && unsettled.is_empty() && writes.wait(Instant::now()).is_none();
        tracing::debug!(
            result = counted.name(),
            micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            fuel = usage.fuel,
            host_calls = usage.host_calls,
            "ran"
        );
        log_unsettled(plugin, key, &unsettled);
        let wait = writes.wait(Instant::now());
        let next = match &result {
            // A Retry-After of the API server replaces the back-off.
            Ok(_) if !unsettled.is_empty() => {
                let conflicts = unsettled.iter().all(|report| report.result == WriteResult::Conflict);
                retry_after.map_or(if conflicts { Next::Conflict } else { Next::Failed }, Next::FailedFor)
            }
            // Writes of a commit may have been withheld.
            Ok(Outcome::RequeueAfter(delay)) => {
                wait.filter(|wait| wait < delay).map_or(Next::After(*delay), Next::Again)
            }
            Ok(Outcome::Settled | Outcome::Stop) => wait.map_or(Next::Settled, Next::Again),
            Err(failure) => next_after(failure, plugin, key, wait),
        };
        let deleted = gone_for.is_some();
        // A deletion is delivered to every plugin.
        let stops = result == Ok(Outcome::Stop) && !deleted && matches!(next, Next::Settled | Next::Again(_));
        let stopped = if stops { self.queue.stop(job) } else { Vec::new() };
        let record = RunRecord::new(job, plugin, key, &writes, &result);
        let unsettled_writes = !unsettled.is_empty();
        let record = RunRecord { deleted, waited, took, ended, usage, unsettled: unsettled_writes, stopped, ..record };
        if let (Some(traces), Some(record)) = (traced, plugin.records.add(record)) {
            traces.keep(record);
        }
        let (attempts, refused) = writes.attempts(settled, matches!(next, Next::Settled));
        for WriteReport { description, result, .. } in refused {
            self.fail(plugin, key, result.name(), &format!("{description}: {}", result.text()));
        }
        (next, Reports { reports: unsettled, attempts })
    }

    /// Records a failure for the status of the plugin.
    fn fail(&self, plugin: &LoadedPlugin, key: &PodKey, reason: &str, message: &str) {
        plugin.health.failed(reason, message, key, self.clock.now_millis(), Instant::now());
    }

    /// Waits as [`Expectations::see`](super::Expectations::see) does. The tenant may have another job meanwhile.
    async fn see(&self, job: &PodJob, plugin: &LoadedPlugin, written: &[Expectation], list: Revision, run: &RunWrites) {
        let Some(revision) = seen::newest(written) else { return };
        let answered = Instant::now();
        if !self.expectations.seen.has(revision) {
            self.queue.sent(job);
        }
        let mut is_seen = self.expectations.seen.wait(revision, list).await;
        let snapshot = self.reader.snapshot();
        for Expectation { key, shown } in written {
            // An expectation that is fulfilled goes with this, also that of a Pod on which the plugin never runs.
            let gate = self.expectations.gates.gate(plugin.lane, key, &*snapshot, Instant::now());
            self.expectations.look_for_lost(plugin.lane, &key.uid, &self.reader);
            // A watch may lose an event and have later ones.
            is_seen &= matches!(gate, Gate::Open) || !matches!(shown, Shown::Revision(_));
        }
        if !is_seen {
            // The key is run once more, when the cache shows the writes.
            run.withheld(Instant::now());
        }
        plugin.status.write_to_seen.record(answered.elapsed());
    }

    /// Sends staged writes that were admitted, and records what the cache has to show before any run on these Pods.
    pub(super) async fn send(
        &self,
        job: &PodJob,
        plugin: &LoadedPlugin,
        subject: &PodKey,
        view: &dyn PodView,
        mut staged: Staged,
        run: &RunWrites,
    ) -> Sent {
        let now = self.clock.now_millis();
        staged.trace = run.trace();
        staged.forced.clone_from(&plugin.spec.grants.write.forced);
        let values = Values::withhold(&self.expectations, plugin, subject, view, &mut staged, Instant::now());
        let mut under_way = UnderWay::new(self, job, plugin.lane, &staged);
        let mut sent = self.deliver.deliver(&plugin.sender, subject, view, staged, now).await;
        under_way.charge(&sent);
        let events = self.count(plugin, subject, view, values, &mut sent, run);
        if !events.is_empty() {
            let staged = Staged { events, ..Staged::default() };
            let more = self.deliver.deliver(&plugin.sender, subject, view, staged, now).await;
            self.charge(job, &more);
            sent.events.extend(more.events);
            sent.requests += more.requests;
        }
        if sent.requests > 0 {
            plugin.status.event_to_write.record(job.queued.elapsed());
        }
        plugin.status.wrote(&sent.reports, sent.requests);
        run.sent(&sent.reports);
        run.timed(&sent.times);
        run.shown(subject, &sent.expected);
        sent.events.iter().for_each(|result| plugin.status.event(*result));
        self.expectations.gates.expect(plugin.lane, &sent.expected, &self.reader, Instant::now());
        if is_group(&job.item) {
            self.expectations.gates.add_unseen(plugin.lane, &job.item, &sent.expected, &*self.reader.snapshot());
        }
        under_way.end();
        sent
    }
}

/// Logs the failure of a run. Returns when its key is run again.
fn next_after(failure: &Failure, plugin: &LoadedPlugin, key: &PodKey, wait: Option<Duration>) -> Next {
    let reason = failure.kind.name();
    let error = &failure.message;
    match plugin.repeats.occurred(reason, error, key, Instant::now()) {
        Some(count) => tracing::warn!(reason, error, count, "run failed"),
        None => tracing::debug!(reason, error, "run failed"),
    }
    match failure.kind {
        // Writes of a commit may have been withheld; a deletion is settled only by writes that were sent.
        FailureKind::Terminal => wait.map_or(Next::Settled, Next::Again),
        // For the version that follows, if one does.
        FailureKind::Revoked => Next::Postponed(Duration::ZERO),
        FailureKind::Retry
        | FailureKind::Trap
        | FailureKind::Cpu
        | FailureKind::Deadline
        | FailureKind::Memory
        | FailureKind::Host => Next::Failed,
    }
}

fn log_unsettled(plugin: &LoadedPlugin, key: &PodKey, unsettled: &[WriteReport]) {
    for report in unsettled.iter().take(LOGGED_WRITES) {
        let write = &report.description;
        let result = report.result.name();
        let error = report.result.text();
        match plugin.repeats.occurred(result, &format!("{write}: {error}"), key, Instant::now()) {
            Some(count) => tracing::warn!(write, result, error, count, "write failed"),
            None => tracing::debug!(write, result, error, "write failed"),
        }
    }
    if let Some(more @ 1..) = unsettled.len().checked_sub(LOGGED_WRITES) {
        match plugin.repeats.occurred("more", "", key, Instant::now()) {
            Some(count) => tracing::warn!(more, count, "more writes failed"),
            None => tracing::debug!(more, "more writes failed"),
        }
    }
}
