//! Keeps the host's Leases, by which one of several replicas runs the plugins, or each runs those of its shards of
//! tenants: sends the requests that `podium_lease` decides on, and applies its decisions.
//!
//! The requests have a connection of their own, and the task waits for nothing else: neither for a plugin nor for a
//! disk. The right to write ends at a time of the clock that also advances while the machine is suspended, whether this
//! task runs then or not.

mod beside;
mod leadership;
mod requests;

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

pub use beside::Beside;
use http::{Request, header};
pub(super) use leadership::Leadership;
use leadership::{Inner, Seen};
use podium_api::{Api, ApiError, Connection, METADATA};
use podium_engine::{ingest::GonePods, intervals::Intervals};
use podium_lease::{Call, Effect, Fitness, Input, Mark, Mode, Ownership, Part, Place, Sharing, State, Why};
use podium_life::Event;
use podium_pods::{cache::Reader, pod::PodView};
use podium_vocabulary::{Revision, Shards, text};
use requests::Requests;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{Phase, life::Driver, operator::stale, watchdog::Watchdog};

/// The name of the Lease, and of the first one of replicas that share the shards.
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
    /// Whether one replica runs all plugins, or each those of its shards.
    pub active_replicas: Mode,
    /// With `None`, tokio's clock, as in a simulation.
    pub boot_time: Option<BootTime>,
}

/// The task that keeps the Leases.
pub(super) struct Keeper {
    options: LeaseOptions,
    leadership: Arc<Leadership>,
    driver: Arc<Driver>,
    watchdog: Arc<Watchdog>,
    reader: Reader,
    gone: Arc<GonePods>,
    phase: watch::Receiver<Phase>,
    /// The shards whose plugins run.
    owned: Shards,
    /// The marks of shards that are being handed over.
    last: BTreeMap<usize, Option<Mark>>,
    /// By Lease, the mark of which deletions were forgotten.
    forgotten: BTreeMap<usize, Option<Mark>>,
}

/// The times at which the parts of the host are looked at.
struct Looks {
    /// When the cache was current last.
    current: Instant,
    /// When marks were published.
    marked: Instant,
    /// When the fitness was decided.
    decided: Option<Instant>,
    /// The revision of the first list.
    since: Option<Revision>,
}

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
        let (last, forgotten) = <_>::default();
        let owned = Shards::ALL;
        let mut keeper = Self { options, leadership, driver, watchdog, reader, gone, phase, owned, last, forgotten };
        keeper.end_runs(Shards::ALL);
        keeper
    }

    /// Never returns.
    pub(super) async fn run(mut self) -> anyhow::Result<()> {
        let leadership = self.leadership.clone();
        let place = tokio::select! {
            place = self.place() => place,
            () = leadership.stop.notified() => {
                leadership.stopped.send_replace(true);
                return std::future::pending().await;
            }
        };
        let now = || (leadership.now)();
        let LeaseOptions { holder, duration, active_replicas, connection, .. } = &self.options;
        let mut sharing = Sharing::new(holder.clone(), *duration, *active_replicas, now());
        *leadership.inner.lock() = Inner::new(&sharing);
        let mut requests = Requests::new(connection.clone(), place.clone(), *duration, *active_replicas);
        let mut looks = Looks { current: Instant::now(), marked: Instant::now(), decided: None, since: None };
        loop {
            let wait = sharing.due().saturating_sub(now()).min(LOOK).min(requests.due());
            let mut inputs = VecDeque::new();
            let moved = |part: &Part| self.watchdog.still(*part).is_none();
            let beats = || Part::ALL.into_iter().filter(moved).map(Input::Beat);
            let mut of_all: Vec<_>;
            tokio::select! {
                biased;
                Some(answers) = requests.next(&leadership) => {
                    of_all = beats().collect();
                    inputs.extend(answers?);
                }
                () = leadership.stop.notified() => of_all = beats().chain([Input::Stop]).collect(),
                () = sleep(wait) => of_all = beats().chain([Input::Tick]).collect(),
            }
            for input in of_all.drain(..) {
                let effects = sharing.step_all(&input, now());
                self.applied(effects, &mut inputs, &mut requests);
            }
            self.look(&mut looks, &sharing, &mut inputs);
            while let Some((index, input)) = inputs.pop_front() {
                let effects = sharing.step(index, input, now());
                self.applied(effects, &mut inputs, &mut requests);
            }
            self.note(&sharing);
            requests.begin_reads();
            if sharing.leases().iter().all(|lease| lease.state() == State::Stopped) {
                leadership.stopped.send_replace(true);
            }
        }
    }

    /// Records the state of the parts of the host: how fit it is, and which deletions have settled.
    fn look(&mut self, looks: &mut Looks, sharing: &Sharing, inputs: &mut VecDeque<(usize, Input)>) {
        if stale(&self.reader).is_none() {
            looks.current = Instant::now();
        }
        looks.since = looks.since.or_else(|| Some(self.reader.snapshot().revision()).filter(|of| of.0 > 0));
        let pause = self.options.duration / 32;
        if sharing.mode() == Mode::One || looks.decided.is_none_or(|decided| decided.elapsed() >= pause) {
            looks.decided = Some(Instant::now());
            for (index, lease) in sharing.leases().iter().enumerate() {
                inputs.push_front((index, Input::Fitness(self.fitness(looks, lease))));
                let seen = lease.seen();
                let mark = seen.and_then(|record| record.mark.as_ref());
                // A replica that runs all plugins has the mark of all shards.
                let is_of_all = seen.is_some_and(|record| !record.shared);
                let shards = if is_of_all { Shards::ALL } else { sharing.mode().shards(index) };
                let forgotten = self.forgotten.entry(index).or_default();
                if lease.state() == State::Standby && mark != forgotten.as_ref() {
                    *forgotten = mark.cloned();
                    self.forget_settled(shards, mark);
                }
            }
        }
        if looks.marked.elapsed() >= MARK {
            let held = |(_, lease): &(usize, &Ownership)| lease.state() == State::Holding;
            for (index, _) in sharing.leases().iter().enumerate().filter(held) {
                looks.marked = Instant::now();
                let mark = self.mark(index, sharing.mode().shards(index));
                inputs.extend(mark.map(|mark| (index, Input::Mark(mark))));
            }
        }
    }

    /// Returns how fit the replica is to run the plugins of a Lease.
    fn fitness(&self, looks: &Looks, lease: &Ownership) -> Fitness {
        let Some(since) = looks.since else { return Fitness::Unfit };
        let mark = lease.seen().and_then(|record| record.mark.as_ref());
        let is_fresh = |mark: &Mark| mark.revision < since.0 || !self.gone.has_all(&mark.unsettled);
        let is_standby = lease.state() == State::Standby;
        match () {
            // Another replica may know deletions that this one does not.
            () if is_standby && (mark.is_some_and(is_fresh) || matches!(*self.phase.borrow(), Phase::Loading)) => {
                Fitness::Late
            }
            () if looks.current.elapsed() >= STALE => Fitness::Late,
            () if self.rejects_writes() => Fitness::Late,
            () => Fitness::Fit,
        }
    }

    fn applied(
        &mut self,
        effects: Vec<(usize, Effect)>,
        inputs: &mut VecDeque<(usize, Input)>,
        requests: &mut Requests,
    ) {
        for (index, effect) in effects {
            let input = self.apply(index, effect, requests);
            inputs.extend(input.map(|input| (index, input)));
        }
    }

    fn apply(&mut self, index: usize, effect: Effect, requests: &mut Requests) -> Option<Input> {
        let leadership = self.leadership.clone();
        let shards = self.options.active_replicas.shards(index);
        match effect {
            Effect::Send { request, call: Call::Read, .. } => {
                requests.wants(index, request);
                None
            }
            Effect::Send { request, call, within } => {
                requests.send(index, request, &call, within, self.driver.dispatch.clock.now_millis());
                None
            }
            Effect::Own { term, until, mark } => {
                self.forget_settled(shards, mark.as_ref());
                let (deletions, dropped) = self.gone.end_standby(shards);
                leadership.inner.lock().own(index, term, until);
                let lease = Sharing::name(NAME, index);
                tracing::info!(lease, term, deletions, dropped, "this replica holds the Lease and runs the plugins");
                self.owned = self.owned.with(shards);
                self.driver.feed(Event::Owned(self.owned));
                None
            }
            Effect::Until(until) => {
                leadership.inner.lock().extend(index, until);
                None
            }
            // The next holder runs the keys again, so a host that is not stopping waits at most for requests that it
            // sent before it was asked to hand over.
            Effect::Drain(why) => {
                let mark = self.mark(index, shards);
                self.end_runs(shards);
                let reason = self.reason(why);
                let lease = Sharing::name(NAME, index);
                tracing::info!(lease, reason, "handing the Lease over; runs have ended");
                leadership.inner.lock().ended = Some(reason);
                if why == Why::Given {
                    // Requests that were sent already have until the Lease is released.
                    self.last.insert(index, mark);
                    return None;
                }
                Some(Input::Drained(mark))
            }
            Effect::Close(why) => {
                let was_leading = leadership.inner.lock().extend(index, Duration::ZERO) > Duration::ZERO;
                self.end_runs(shards);
                if was_leading && !shards.is_empty() && matches!(why, Why::Deadline | Why::Taken) {
                    let reason = self.reason(why);
                    let lease = Sharing::name(NAME, index);
                    tracing::error!(lease, reason, "this replica does not hold the Lease any more; runs have ended");
                    leadership.inner.lock().ended = Some(reason);
                }
                self.last.remove(&index).map(Input::Drained)
            }
            Effect::Blocked(unusable) => {
                let error = text::line(&unusable.to_string());
                tracing::error!(
                    namespace = requests.place().namespace,
                    lease = Sharing::name(NAME, index),
                    error,
                    "the Lease cannot be used, and its plugins rest; end the installation that it names, or delete it"
                );
                if let Some(held) = leadership.inner.lock().leases.get_mut(index) {
                    held.unusable = Some(error);
                }
                None
            }
            Effect::Stopped => None,
        }
    }

    /// Ends a term. The deletions that have not settled are delivered if this replica takes the Lease again.
    fn end_runs(&mut self, shards: Shards) {
        let expectations = &self.driver.dispatch.expectations;
        self.gone.begin_standby(shards, self.reader.snapshot().revision(), || expectations.tombstones.states());
        self.owned = self.owned.without(shards);
        self.driver.feed(Event::Owned(self.owned));
    }

    /// Returns which deletions are settled. All up to the revision have a tombstone until then. It is `None` while
    /// plugins that are being loaded may still get deletions of before the term.
    fn mark(&self, index: usize, shards: Shards) -> Option<Mark> {
        if shards.is_empty() || self.gone.delivering().intersects(shards) {
            return None;
        }
        let revision = self.reader.snapshot().revision().0;
        let plugins = self.driver.dispatch.registry.all();
        let plugins: BTreeMap<_, _> = plugins.iter().map(|plugin| (plugin.lane, plugin.spec.tenant())).collect();
        // One that is being unloaded may be of any.
        let is_of = |lane| plugins.get(&lane).is_none_or(|tenant| shards.has(tenant));
        let unsettled = self.driver.dispatch.expectations.tombstones.uids(Mark::MOST + 1, is_of);
        let unsettled = unsettled.iter().map(|uid| Mark::hash(uid)).collect();
        let term = self.leadership.inner.lock().term(index);
        Some(Mark { term, epoch: self.gone.epoch(), revision, unsettled })
    }

    /// Forgets the deletions that a holder has delivered.
    fn forget_settled(&self, shards: Shards, mark: Option<&Mark>) {
        let Some(Mark { epoch, revision, unsettled, .. }) = mark.filter(|_| !shards.is_empty()) else { return };
        let unsettled: HashSet<_> = unsettled.iter().collect();
        self.gone.settled(shards, *epoch, Revision(*revision), |uid| unsettled.contains(&Mark::hash(uid)));
    }

    /// Returns true while the state directory rejects the journal.
    fn rejects_writes(&self) -> bool {
        self.driver.journal.as_ref().is_some_and(|journal| journal.figures().failing)
    }

    fn reason(&self, why: Why) -> String {
        match why {
            Why::Stop => "the host is stopping".to_owned(),
            Why::Stuck(part) => {
                self.watchdog.still(part).unwrap_or_else(|| "a part of the host stands still".to_owned())
            }
            Why::Unfit => stale(&self.reader).unwrap_or_else(|| match self.options.active_replicas {
                Mode::All if !self.rejects_writes() => "shards are not shared any more".to_owned(),
                _ => "the state directory rejects writes".to_owned(),
            }),
            Why::Given => "another replica has fewer shards".to_owned(),
            Why::Deadline => "the API server has not answered a renewal in time".to_owned(),
            Why::Taken => "another replica has taken it, or it was changed".to_owned(),
        }
    }

    /// Shows the state of the Leases, and logs another holder.
    fn note(&self, sharing: &Sharing) {
        let now = (self.leadership.now)();
        let mut inner = self.leadership.inner.lock();
        for index in inner.saw(sharing, now) {
            let seen = inner.leases.get(index).and_then(|held| held.seen.as_ref());
            let is_other = |seen: &&Seen| !seen.holder.is_empty() && seen.holder != self.options.holder;
            if let Some(Seen { holder, term, .. }) = seen.filter(is_other) {
                let holder = text::line(holder);
                let lease = Sharing::name(NAME, index);
                tracing::info!(lease, holder, term, "another replica holds the Lease; this one is a standby");
            }
        }
    }

    /// Returns the place of the Lease, however long it takes to find out.
    async fn place(&self) -> Place {
        let namespace = match &self.options.namespace {
            Some(namespace) => namespace.clone(),
            None => self.named().await.unwrap_or_else(|| self.options.own_namespace.clone()),
        };
        self.leadership.inner.lock().nowhere = None;
        Place { namespace, name: NAME.to_owned(), installation: self.options.own_namespace.clone() }
    }

    /// Returns the namespace that the definition of the kinds names, however long it takes to find out.
    async fn named(&self) -> Option<String> {
        let mut failures = Intervals::new();
        loop {
            let api = Api::new(self.options.connection.clone(), self.options.duration / 4);
            let error = match named_namespace(&api).await {
                Ok(named) => return named,
                Err(error) => text::line(&error.to_string()),
            };
            let next = "no plugin is run before the definition of the kinds can be read, which names the Lease's \
                namespace; grant get on it to the host's account";
            if let Some(count) = failures.occurred(Instant::now()) {
                tracing::warn!(resource = "customresourcedefinitions", error, count, "{next}");
            }
            self.leadership.inner.lock().nowhere = Some(format!("{next}: {error}"));
            sleep(LOOK).await;
        }
    }
}

/// Returns the namespace that the definition of the kinds names. It is `None` if there is no such definition or it
/// names none.
///
/// # Errors
/// Returns an error if the definition may not be read, or the API server does not answer.
async fn named_namespace(api: &Api) -> Result<Option<String>, ApiError> {
    let request = Request::get(DEFINITION).header(header::ACCEPT, METADATA).body(Vec::new());
    let Ok(request) = request else { return Ok(None) };
    match api.json(request).await {
        Ok(found) => Ok(found["metadata"]["annotations"][ANNOTATION].as_str().map(str::to_owned)),
        Err(error) if error.code() == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}
