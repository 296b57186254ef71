//! Keeps the host's Lease, by which one of several replicas runs the plugins: sends the requests that `podium_lease`
//! decides on, and applies its decisions.
//!
//! The requests have a connection of their own, and the task waits for nothing else: neither for a plugin nor for a
//! disk. The right to write ends at a time of the clock that also advances while the machine is suspended, whether this
//! task runs then or not.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use http::{Method, Request, header};
use parking_lot::Mutex;
use podium_api::{Api, ApiError, Connection, Fence, METADATA, Permit};
use podium_engine::{ingest::GonePods, intervals::Intervals};
use podium_lease::{Answer, Call, Effect, Fitness, Input, Lease, Mark, Ownership, Part, Place, State, Why};
use podium_life::Event;
use podium_pods::{cache::Reader, pod::PodView};
use podium_vocabulary::{Revision, text};
use podium_wire::Timestamp;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use super::{Phase, life::Driver, operator::stale, watchdog::Watchdog};
use crate::{admin::Check, telemetry::LeaseFigures};

/// The name of the Lease.
const NAME: &str = "podium-host";
/// The definition whose annotation names the namespace of the Lease.
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/reconcileplugins.podium.dev";
const ANNOTATION: &str = "podium.dev/lease-namespace";
/// How often the parts of the host are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// A watch that is interrupted for so long is a reason to hand over.
const STALE: Duration = Duration::from_secs(10);
/// How often the holder publishes which deletions it has delivered.
const MARK: Duration = Duration::from_secs(10);
/// The most time for the last request at a shutdown.
const RELEASE: Duration = Duration::from_secs(2);

/// Returns the time since the machine's start, also while it was suspended.
pub type BootTime = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The Lease that a host needs before it runs plugins.
pub struct LeaseOptions {
    /// The connection of the Lease.
    pub connection: Connection,
    /// The namespace of the Lease. With `None` it is the one that the definition of `ReconcilePlugin` names in its
    /// annotation `podium.dev/lease-namespace`, or else that of the host.
    pub namespace: Option<String>,
    /// The namespace of the host, which names the installation.
    pub own_namespace: String,
    /// The name of this process, which no other one has.
    pub holder: String,
    /// The duration of the Lease.
    pub duration: Duration,
    /// With `None`, tokio's clock, as in a simulation.
    pub boot_time: Option<BootTime>,
}

/// Whether this replica may run plugins and write, for all parts of the host.
pub(super) struct Leadership {
    now: BootTime,
    duration: Duration,
    inner: Mutex<Inner>,
    stop: Notify,
    stopped: watch::Sender<bool>,
}

#[derive(Default)]
struct Inner {
    /// The end of the right to write.
    until: Duration,
    term: u32,
    takeovers: u64,
    /// The Lease's holder and term, as they were read last.
    seen: Option<(String, u32)>,
    /// When the API server answered last.
    answered: Option<Duration>,
    unowned: Duration,
    /// Why the latest request failed.
    failure: Option<String>,
    /// Why the Lease cannot be used.
    unusable: Option<String>,
}

impl Inner {
    /// Records the holder and the term that were read. Returns false if they are as before.
    fn saw(&mut self, seen: Option<(String, u32)>) -> bool {
        if seen.is_some() {
            self.unusable = None;
        }
        std::mem::replace(&mut self.seen, seen) != self.seen
    }
}

impl Leadership {
    pub(super) fn new(options: &LeaseOptions) -> Arc<Self> {
        let began = Instant::now();
        let now = options.boot_time.clone().unwrap_or_else(|| Arc::new(move || began.elapsed()));
        let (stopped, _) = watch::channel(false);
        let duration = options.duration;
        Arc::new(Self { now, duration, inner: Mutex::default(), stop: Notify::new(), stopped })
    }

    /// Returns the right to write, for each request that changes something.
    pub(super) fn fence(self: &Arc<Self>) -> Fence {
        let this = self.clone();
        Arc::new(move || this.permit())
    }

    fn permit(&self) -> Option<Permit> {
        let inner = self.inner.lock();
        let left = inner.until.checked_sub((self.now)()).filter(|left| !left.is_zero())?;
        Some(Permit { left, term: inner.term.into() })
    }

    /// Returns the line of `/readyz`. A standby is ready.
    pub(super) fn check(&self) -> Check {
        let leads = self.leads();
        let inner = self.inner.lock();
        let is_known = inner.answered.is_some_and(|at| (self.now)().saturating_sub(at) < self.duration);
        let reason = || inner.failure.as_deref().unwrap_or("no answer yet");
        let unknown = || (!is_known).then(|| format!("the Lease is not known: {}", reason()));
        let failure = inner.unusable.clone().or_else(unknown);
        let note = match &inner.seen {
            _ if leads => format!("this replica holds it, term {}", inner.term),
            Some((holder, term)) if !holder.is_empty() => format!("standby; {holder} holds it, term {term}"),
            _ => "standby; no replica holds it".to_owned(),
        };
        Check { failure, required: true, ..Check::passed("lease", text::line(&note)) }
    }

    pub(super) fn figures(&self) -> LeaseFigures {
        let leads = self.leads();
        let inner = self.inner.lock();
        LeaseFigures { leads, takeovers: inner.takeovers, unowned: inner.unowned }
    }

    /// Returns true while this replica may write.
    pub(super) fn leads(&self) -> bool {
        self.permit().is_some()
    }

    /// Ends the runs that are left, releases the Lease, and takes it no more, at a shutdown.
    pub(super) async fn hand_over(&self) {
        self.stop.notify_one();
        let mut stopped = self.stopped.subscribe();
        if timeout(RELEASE, stopped.wait_for(|stopped| *stopped)).await.is_err() {
            tracing::warn!("the API server does not answer; the Lease, if this replica holds it, expires by itself");
        }
    }
}

/// The task that keeps the Lease.
pub(super) struct Keeper {
    options: LeaseOptions,
    leadership: Arc<Leadership>,
    driver: Arc<Driver>,
    watchdog: Arc<Watchdog>,
    reader: Reader,
    gone: Arc<GonePods>,
    phase: watch::Receiver<Phase>,
}

type Requests = JoinSet<(u64, Result<Answer, ApiError>)>;

impl Keeper {
    /// Returns the task of a standby, before a plugin is known.
    pub(super) fn new(
        options: LeaseOptions,
        leadership: Arc<Leadership>,
        driver: Arc<Driver>,
        watchdog: Arc<Watchdog>,
        gone: Arc<GonePods>,
        phase: watch::Receiver<Phase>,
    ) -> Self {
        let reader = driver.dispatch.reader.clone();
        let keeper = Self { options, leadership, driver, watchdog, reader, gone, phase };
        keeper.end_runs();
        keeper
    }

    /// Never returns.
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let place = tokio::select! {
            place = self.place() => place,
            () = self.leadership.stop.notified() => {
                self.leadership.stopped.send_replace(true);
                return std::future::pending().await;
            }
        };
        let now = || (self.leadership.now)();
        let mut ownership = Ownership::new(self.options.holder.clone(), self.options.duration, now());
        let mut requests = Requests::new();
        let mut failures = Intervals::new();
        let mut current = Instant::now();
        let mut marked = current;
        let mut since = None;
        let mut forgotten = None;
        loop {
            let wait = ownership.due().saturating_sub(now()).min(LOOK);
            let mut inputs = VecDeque::new();
            tokio::select! {
                biased;
                Some(ended) = requests.join_next() => {
                    let (request, answer) = ended?;
                    let answer = answer.unwrap_or_else(|error| {
                        self.leadership.inner.lock().failure = Some(text::line(&error.to_string()));
                        if let Some(count) = failures.occurred(Instant::now()) {
                            let error = text::line(&error.to_string());
                            tracing::warn!(namespace = place.namespace, lease = NAME, error, count, "request failed");
                        }
                        Answer::Failed
                    });
                    inputs.push_back(Input::Answer { request, answer });
                }
                () = self.leadership.stop.notified() => inputs.push_back(Input::Stop),
                () = sleep(wait) => inputs.push_back(Input::Tick),
            }
            if stale(&self.reader).is_none() {
                current = Instant::now();
            }
            since = since.or_else(|| Some(self.reader.snapshot().revision()).filter(|revision| revision.0 > 0));
            inputs.push_front(Input::Fitness(self.fitness(current, since, &ownership)));
            if self.watchdog.still().is_none() {
                // The watchdog watches them together.
                Part::ALL.into_iter().for_each(|part| inputs.push_front(Input::Beat(part)));
            }
            if ownership.state() == State::Holding && marked.elapsed() >= MARK {
                marked = Instant::now();
                inputs.extend(self.mark().map(Input::Mark));
            }
            while let Some(input) = inputs.pop_front() {
                for effect in ownership.step(input, now()) {
                    inputs.extend(self.apply(effect, &place, &mut requests));
                }
            }
            let mark = ownership.seen().and_then(|record| record.mark.as_ref());
            if ownership.state() == State::Standby && mark != forgotten.as_ref() {
                self.forget_settled(mark);
                forgotten = mark.cloned();
            }
            self.note(&ownership);
        }
    }

    /// Returns how fit the replica is to run the plugins. `current` is when the cache was current last, `since` the
    /// revision of its first list.
    fn fitness(&self, current: Instant, since: Option<Revision>, ownership: &Ownership) -> Fitness {
        let Some(since) = since else { return Fitness::Unfit };
        let mark = ownership.seen().and_then(|record| record.mark.as_ref());
        let is_fresh = |mark: &Mark| mark.revision < since.0 || !self.gone.has_all(&mark.unsettled);
        let is_standby = ownership.state() == State::Standby;
        match () {
            // Another replica may know deletions that this one does not.
            () if is_standby && (mark.is_some_and(is_fresh) || matches!(*self.phase.borrow(), Phase::Loading)) => {
                Fitness::Late
            }
            () if current.elapsed() >= STALE => Fitness::Late,
            () if self.driver.journal.as_ref().is_some_and(|journal| journal.figures().failing) => Fitness::Late,
            () => Fitness::Fit,
        }
    }

    fn apply(&self, effect: Effect, place: &Place, requests: &mut Requests) -> Option<Input> {
        let inner = &self.leadership.inner;
        match effect {
            Effect::Send { request, call, within } => {
                let sending = self.send(call, place, within);
                requests.spawn(async move { (request, sending.await) });
                None
            }
            Effect::Own { term, until, mark, .. } => {
                self.forget_settled(mark.as_ref());
                let (deletions, dropped) = self.gone.end_standby();
                {
                    let mut inner = inner.lock();
                    inner.until = until;
                    inner.term = term;
                    inner.takeovers += 1;
                }
                tracing::info!(term, deletions, dropped, "this replica holds the Lease and runs the plugins");
                self.driver.feed(Event::Owned(true));
                None
            }
            Effect::Until(until) => {
                inner.lock().until = until;
                None
            }
            // Of a host that is not stopping nothing is waited for: the next holder runs the keys again.
            Effect::Drain(why) => {
                let mark = self.mark();
                self.end_runs();
                let reason = self.reason(why);
                tracing::info!(reason, "handing the Lease over; runs have ended");
                Some(Input::Drained(mark))
            }
            Effect::Close(why) => {
                let was_leading = std::mem::take(&mut inner.lock().until) > Duration::ZERO;
                self.end_runs();
                if was_leading && matches!(why, Why::Deadline | Why::Taken) {
                    let reason = self.reason(why);
                    tracing::error!(reason, "this replica does not hold the Lease any more; runs have ended");
                }
                None
            }
            Effect::Blocked(unusable) => {
                let error = text::line(&unusable.to_string());
                tracing::error!(
                    namespace = place.namespace,
                    lease = NAME,
                    error,
                    "the Lease cannot be used, and no plugin is run; end the installation that it names, or delete it"
                );
                inner.lock().unusable = Some(error);
                None
            }
            Effect::Stopped => {
                self.leadership.stopped.send_replace(true);
                None
            }
        }
    }

    /// Ends the term. The deletions that have not settled are delivered if this replica takes the Lease again.
    fn end_runs(&self) {
        let expectations = &self.driver.dispatch.expectations;
        self.gone.begin_standby(self.reader.snapshot().revision(), || expectations.tombstones.states());
        self.driver.feed(Event::Owned(false));
    }

    /// Returns which deletions are settled. All up to the revision have a tombstone until then. It is `None` while
    /// plugins that are being loaded may still get deletions of before the term.
    fn mark(&self) -> Option<Mark> {
        if self.gone.is_delivering() {
            return None;
        }
        let revision = self.reader.snapshot().revision().0;
        let unsettled = self.driver.dispatch.expectations.tombstones.uids(Mark::MOST + 1);
        let unsettled = unsettled.iter().map(|uid| Mark::hash(uid)).collect();
        let term = self.leadership.inner.lock().term;
        Some(Mark { term, epoch: self.gone.epoch(), revision, unsettled })
    }

    /// Forgets the deletions that a holder has delivered.
    fn forget_settled(&self, mark: Option<&Mark>) {
        let Some(Mark { epoch, revision, unsettled, .. }) = mark else { return };
        let unsettled: HashSet<_> = unsettled.iter().collect();
        self.gone.settled(*epoch, Revision(*revision), |uid| unsettled.contains(&Mark::hash(uid)));
    }

    fn reason(&self, why: Why) -> String {
        match why {
            Why::Stop => "the host is stopping".to_owned(),
            Why::Stuck(_) => self.watchdog.still().unwrap_or_else(|| "a part of the host stands still".to_owned()),
            Why::Unfit => stale(&self.reader).unwrap_or_else(|| "the state directory rejects writes".to_owned()),
            Why::Deadline => "the API server has not answered a renewal in time".to_owned(),
            Why::Taken => "another replica has taken it, or it was changed".to_owned(),
        }
    }

    /// Shows the state of the Lease, and logs another holder.
    fn note(&self, ownership: &Ownership) {
        let now = (self.leadership.now)();
        let seen = ownership.seen().map(|record| (record.holder.clone(), record.term));
        let mut inner = self.leadership.inner.lock();
        inner.answered = ownership.answered();
        inner.unowned = ownership.unowned(now);
        if !inner.saw(seen) {
            return;
        }
        let is_other = |holder: &str| !holder.is_empty() && holder != self.options.holder;
        if let Some((holder, term)) = inner.seen.as_ref().filter(|(holder, _)| is_other(holder)) {
            let holder = text::line(holder);
            tracing::info!(holder, term, "another replica holds the Lease; this one is a standby");
        }
    }

    fn send(
        &self,
        call: Call,
        place: &Place,
        within: Duration,
    ) -> impl Future<Output = Result<Answer, ApiError>> + Send + use<> {
        let api = Api::new(self.options.connection.clone(), within);
        let installation = place.installation.clone();
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", place.namespace);
        let seconds = i64::try_from(self.driver.dispatch.clock.now_millis() / 1_000 * 1_000).unwrap_or(i64::MAX);
        let time = format!("{}.000000Z", Timestamp(seconds).to_string().trim_end_matches('Z'));
        let lease = |record, revision| serde_json::to_vec(&Lease::new(record, place, revision, time));
        let is_read = matches!(call, Call::Read);
        let is_new = matches!(call, Call::Create(_));
        let namespace = place.namespace.clone();
        let (method, path, body) = match &call {
            Call::Read => (Method::GET, format!("{path}/{NAME}"), Ok(Vec::new())),
            Call::Create(record) => (Method::POST, path, lease(record, None)),
            Call::Update { revision, record } => {
                (Method::PUT, format!("{path}/{NAME}"), lease(record, Some(revision.as_str())))
            }
        };
        async move {
            let unusable = |message: String| ApiError::Transport { sent: false, message };
            let body = body.map_err(|error| unusable(error.to_string()))?;
            let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
            let request = request.body(body).map_err(|error| unusable(error.to_string()))?;
            // A renewal of the credentials takes longer than the deadline of the request.
            let answer = timeout(within, api.bytes(request)).await.unwrap_or(Err(ApiError::Timeout(within)));
            let answer = match answer {
                Err(error) if error.code() == Some(404) && is_read => return Ok(Answer::Read(None)),
                Err(error) if error.code() == Some(404) && is_new => {
                    return Err(unusable(format!("create the namespace {namespace}: {error}")));
                }
                Err(error) if matches!(error.code(), Some(404 | 409)) => return Ok(Answer::Conflict),
                answer => answer?,
            };
            let lease: Lease =
                serde_json::from_slice(&answer).map_err(|error| ApiError::Malformed(text::line(&error.to_string())))?;
            let revision = lease.revision().to_owned();
            Ok(match is_read {
                true => Answer::Read(Some((revision, lease.record(&installation)))),
                false => Answer::Written(revision),
            })
        }
    }

    /// Returns the place of the Lease, however long it takes to find out.
    async fn place(&self) -> Place {
        let namespace = match &self.options.namespace {
            Some(namespace) => namespace.clone(),
            None => self.named().await.unwrap_or_else(|| self.options.own_namespace.clone()),
        };
        self.leadership.inner.lock().unusable = None;
        Place { namespace, name: NAME.to_owned(), installation: self.options.own_namespace.clone() }
    }

    /// Returns the namespace that the definition of the kinds names. It is `None` if there is no such definition or it
    /// names none.
    async fn named(&self) -> Option<String> {
        let mut failures = Intervals::new();
        loop {
            let request = Request::get(DEFINITION).header(header::ACCEPT, METADATA).body(Vec::new());
            let Ok(request) = request else { return None };
            let api = Api::new(self.options.connection.clone(), self.options.duration / 4);
            let error = match api.json(request).await {
                Ok(found) => return found["metadata"]["annotations"][ANNOTATION].as_str().map(str::to_owned),
                Err(error) if error.code() == Some(404) => return None,
                Err(error) => text::line(&error.to_string()),
            };
            let next = "no plugin is run before the definition of the kinds can be read, which names the Lease's \
                namespace; grant get on it to the host's account";
            if let Some(count) = failures.occurred(Instant::now()) {
                tracing::warn!(resource = "customresourcedefinitions", error, count, "{next}");
            }
            self.leadership.inner.lock().unusable = Some(format!("{next}: {error}"));
            sleep(LOOK).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_cannot_be_used_stays_so_until_one_is_read() {
        let mut inner = Inner { seen: Some(("a".to_owned(), 1)), ..Inner::default() };
        inner.unusable = Some("of another installation".to_owned());
        assert!(inner.saw(None));
        assert!(inner.unusable.is_some());
        assert!(inner.saw(Some(("a".to_owned(), 1))) && !inner.saw(Some(("a".to_owned(), 1))));
        assert!(inner.unusable.is_none());
    }
}
