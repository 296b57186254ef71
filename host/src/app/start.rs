//! Builds the parts of a host and spawns their tasks. [`start_on`] has the order; a builder makes each part of those
//! before it.

use std::sync::{Arc, atomic::AtomicBool};

use anyhow::Context;
use parking_lot::Mutex;
use podium_api::{
    Api, Observer,
    live::LivePods,
    watch::{Counters, Watch, WatchOptions},
};
use podium_encoding::Pool;
use podium_engine::{
    clock::Clock,
    dispatch::{Dispatch, Expectations, PodQueue, Registry, Traces},
    ingest::{GonePods, Ingest, IngestHandle, IngestOptions, Reopened},
    journal::{Journal, Opened},
    ports::Deliver,
    queue::{Backoff, MemoryBudget, Occupancy, Queue},
    status::Status,
};
use podium_lease::Part;
use podium_pods::{
    cache::{self, Reader, Writer},
    pod::Observation,
};
use podium_runtime::{Engine, EngineOptions};
use podium_writeback::Writeback;
use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{
    App, Beside, OBSERVATIONS, Options, Phase, PolicyFile, REQUEST_DEADLINE, TraceOptions,
    blocking::BlockingJobs,
    children::Children,
    cleanup, cluster,
    deliveries::Deliveries,
    inputs::{InputStates, Inputs},
    journal::JournalTask,
    lease::{Keeper, Leadership},
    life::{Code, Components, Disk, Driver, Files, Holds, Rules, Runners},
    operator::Observed,
    profiles::Profiler,
    thread::Thread,
    wall_clock,
    watchdog::{Steps, Watchdog, Watched, is_waiting},
    why,
};
use crate::telemetry::{ApiRequests, Outbox};

type Services = JoinSet<anyhow::Result<()>>;

/// Starts a host.
///
/// # Errors
/// See [`App::start`].
pub(super) async fn start_on(mut options: Options, engine_options: EngineOptions) -> anyhow::Result<App> {
    let (writer, reader) = cache::new(options.seed);
    let core = Core::new(&options, engine_options, reader)?;
    let stop = CancellationToken::new();
    let mut services = Services::new();
    let watching = core.watch(writer, &mut options, &mut services, &stop).await?;
    let Watching { thread, counters, ingest_handle, gone, watchdog, mut state } = watching;

    let rules = rules(&mut options);
    let writeback = core.writeback(&mut services);
    let deliveries = Deliveries::default();
    let (traces, outbox) = options.traces.map(|traces| core.traces(traces, &mut state.tasks, &stop)).unzip();
    let dispatch = core.dispatch((options.around_deliver)(writeback.clone()), &deliveries, traces);
    let (progress, phase) = watch::channel(Phase::Loading);
    let removals = cleanup::Removals::default();
    let closed = writeback.clone();
    let held = core.api.clone();
    let left = removals.clone();
    let ticker = core.engine.clone();
    let observed = Arc::new(Observed {
        status: core.status.clone(),
        registry: core.registry.clone(),
        queue: core.queue.clone(),
        most_runs: core.occupancy.runs_of_tenant(),
        requests: core.requests,
        expectations: core.expectations.clone(),
        closed: Box::new(move || closed.closed_kinds()),
        explain: why::explain(&dispatch),
        held: Box::new(move || held.holds()),
        reader: core.reader.clone(),
        journal: state.journal.clone(),
        phase,
        removals: Box::new(move || left.lock().iter().map(|(id, removal)| (id.clone(), removal.pods)).collect()),
        policy_file: options.policy_file.clone(),
        stalled: Box::new(move || ticker.stalled()),
        watchdog: watchdog.clone(),
        leadership: core.leadership.clone(),
        gone: gone.clone(),
        other_holds: options.beside.map(|beside| look_beside(beside, &mut services)),
        outbox,
    });
    let profiler = Arc::new(Profiler { engine: core.engine.clone(), status: core.status.clone() });
    observed.serve(options.operator, profiler, &core.review_api, &mut services, &stop);

    let components = Components {
        engine: core.engine,
        inputs: Arc::new(InputStates::new(core.api.clone())),
        api: core.api,
        store: options.components.map(|store| Disk::new(store, core.blocking.clone())),
        simulated: core.simulated,
        files: Files::new(),
        holds: Holds::default(),
        runners: Runners::new(options.runners),
        given: Mutex::new(options.code.into_iter().map(|(id, code)| (id, Some(Code::compiled(code)))).collect()),
    };
    let driver = Driver::new(dispatch.clone(), core.status.clone(), ingest_handle, state.journal, rules, components);
    if let (Some(options), Some(leadership)) = (options.lease, core.leadership.clone()) {
        services.spawn(Keeper::new(options, leadership, driver.clone(), watchdog, gone, progress.subscribe()).run());
    }
    follow_plugins(&core.own_api, &counters, &driver, &writeback, options.policy_file, &mut services);
    Ok(App {
        workers: (0..options.workers.max(1)).map(|_| dispatch.clone().work()).collect(),
        driver,
        dispatch,
        api: core.own_api,
        cleanup_account: options.cleanup_account,
        removals,
        counters,
        seed: options.seed,
        writeback,
        status: core.status,
        state_tasks: state.tasks,
        deliveries,
        services,
        stop,
        progress,
        thread,
        blocking: core.blocking,
        observed,
        leadership: core.leadership,
    })
}

/// Spawns the task of a host without a Lease that looks for another host's. Returns whether there is one.
fn look_beside(beside: Beside, services: &mut Services) -> Arc<AtomicBool> {
    let is_held = Arc::<AtomicBool>::default();
    services.spawn(beside.look(is_held.clone()));
    is_held
}

/// Spawns the tasks of plugins' lives, the watches of their inputs and of the objects that they apply, and the task
/// that reads the policy again.
fn follow_plugins(
    api: &Api,
    pods: &Arc<Counters>,
    driver: &Arc<Driver>,
    writeback: &Arc<Writeback>,
    policy_file: Option<Arc<PolicyFile>>,
    services: &mut Services,
) {
    services.spawn(Inputs::new(api, pods, driver).run());
    services.spawn(Children::new(api, pods, driver, writeback).run());
    services.spawn(driver.clone().run());
    if let Some(file) = policy_file {
        services.spawn(file.follow(driver.clone()));
    }
}

/// Returns the platform's requirements.
fn rules(options: &mut Options) -> Rules {
    Rules {
        policy: options.policy.take(),
        images: options.images.take(),
        require_service_account: options.require_service_account,
        most_of_a_job: None,
    }
}

/// The watch of Pods, and the loop that reads it.
struct Watching {
    /// `None` in a simulation.
    thread: Option<Thread>,
    counters: Arc<Counters>,
    ingest_handle: IngestHandle,
    gone: Arc<GonePods>,
    watchdog: Arc<Watchdog>,
    state: State,
}

/// The parts that write to the state directory, and all tasks that do something at the end.
struct State {
    journal: Option<Arc<Journal>>,
    tasks: Services,
}

/// The parts that most others use.
struct Core {
    /// Sends the host's own requests.
    own_api: Api,
    /// Sends reviews of the clients of metrics, which change nothing.
    review_api: Api,
    /// `None` if plugins run without a Lease.
    leadership: Option<Arc<Leadership>>,
    /// Sends the requests of plugins.
    api: Api,
    /// Sends the requests of the watch, on its thread.
    watch_api: Api,
    requests: Arc<ApiRequests>,
    seed: u64,
    simulated: bool,
    engine: Arc<Engine>,
    clock: Clock,
    pool: Arc<Pool>,
    reader: Reader,
    registry: Arc<Registry>,
    occupancy: Occupancy,
    queue: Arc<PodQueue>,
    expectations: Arc<Expectations>,
    status: Arc<Status>,
    blocking: Arc<BlockingJobs>,
}

impl Core {
    fn new(options: &Options, engine_options: EngineOptions, reader: Reader) -> anyhow::Result<Self> {
        let requests = Arc::new(ApiRequests::new(options.operator.api_server.clone()));
        let counted = requests.clone();
        let observer: Observer = Arc::new(move |method, code, took| counted.record(method, code, took));
        let review_api = Api::new(options.client.clone(), REQUEST_DEADLINE).observed_by(observer.clone());
        let leadership = options.lease.as_ref().map(Leadership::new);
        let own_api = match &leadership {
            Some(leadership) => review_api.fenced_by(leadership.fence()),
            None => review_api.clone(),
        };
        let seed = options.seed;
        let workers = options.workers.max(1);
        let simulated = engine_options.tick.is_none();
        let concurrent_runs = u32::try_from(workers).unwrap_or(u32::MAX);
        let compilation = options.compilation.clone();
        let engine = Engine::new(EngineOptions { concurrent_runs, compilation, ..engine_options })
            .context("cannot set up the WebAssembly engine")?;
        let mut pool = Pool::new(seed);
        pool.prune = options.prune.clone();
        let registry = Arc::new(Registry::default());
        let occupancy = Occupancy::new(workers);
        let queue: PodQueue = Queue::new(Backoff::default(), occupancy.jobs_of_tenant(), seed);
        let memory = MemoryBudget::new(options.run_memory);
        registry.bound_runs(memory);
        registry.bound_states(options.state_memory);
        let queue = queue.shared(occupancy).within(memory, registry.clone());
        Ok(Self {
            api: own_api.with_backpressure(),
            own_api,
            review_api,
            leadership,
            watch_api: Api::new(options.watch_client.clone(), REQUEST_DEADLINE).observed_by(observer),
            requests,
            seed,
            simulated,
            engine,
            clock: Clock::starting_at(options.now_millis),
            pool: Arc::new(pool),
            reader,
            registry,
            occupancy,
            queue: Arc::new(queue),
            expectations: Arc::default(),
            status: Arc::default(),
            blocking: Arc::new(BlockingJobs::new((!simulated).then(Handle::current))),
        })
    }

    /// Spawns the watch, the loop that reads it, and the tasks of the state directory.
    async fn watch(
        &self,
        writer: Writer,
        options: &mut Options,
        services: &mut Services,
        stop: &CancellationToken,
    ) -> anyhow::Result<Watching> {
        let namespace = options.namespace.clone();
        let (journal, reopened, tasks) = start_journal(options.journal.take(), namespace.clone(), self.simulated, stop);
        let counters = Arc::<Counters>::default();
        let thread = (!self.simulated).then(|| Thread::start(counters.clone()));
        let thread = thread.transpose().context("cannot start the watch's thread")?;
        let runtime = thread.as_ref().map_or_else(Handle::current, |thread| thread.runtime().clone());
        let (observed, observations) = mpsc::channel(OBSERVATIONS);
        let observations_wait = is_waiting(&observed);
        let watch_options = WatchOptions { namespace, ..WatchOptions::default() };
        let known = Arc::new(self.reader.clone());
        let watch = Watch::new(self.watch_api.clone(), watch_options, self.pool.clone(), known, self.seed);
        let watch = watch.counted_by(counters.clone()).listing_when(self.expectations.seen.lost());
        let identity = journal.clone().map(|journal| (self.watch_api.clone(), journal));
        services.spawn_on(run_watch(watch, observed, identity, self.seed), &runtime);
        if let Some(read) = options.wall_clock.take() {
            services.spawn(wall_clock::follow(self.clock.clone(), read));
        }
        let gone = Arc::new(GonePods::new(podium_lease::Mark::hash));
        let ingest_options = IngestOptions {
            observations,
            registry: self.registry.clone(),
            queue: self.queue.clone(),
            expectations: self.expectations.clone(),
            reopened,
            gone: gone.clone(),
            blocking: self.blocking.clone(),
        };
        let (ingest, ingest_handle) = Ingest::new((writer, self.reader.clone()), ingest_options);
        let watchdog = Arc::<Watchdog>::default();
        let steps = Steps(ingest.steps());
        let jobs = ingest_handle.clone();
        let waits = move || observations_wait() || jobs.is_waiting();
        watchdog.watch(Watched::new(Part::Ingest, "events of pods wait, and none was processed", steps, waits));
        let ticker = self.engine.clone();
        let waits = move || ticker.stalled().is_some();
        watchdog.watch(Watched::new(
            Part::Epoch,
            "runs wait, and guests cannot be interrupted",
            Steps::default(),
            waits,
        ));
        let keys = self.queue.clone();
        let waits = move || keys.beat();
        watchdog.watch(Watched::new(Part::Dispatch, "no worker took a key", Steps::default(), waits));
        services.spawn(watchdog.clone().run());
        let ingest = async move {
            ingest.run().await;
            anyhow::bail!("the ingest loop ended")
        };
        services.spawn_on(ingest, &runtime);
        Ok(Watching { thread, counters, ingest_handle, gone, watchdog, state: State { journal, tasks } })
    }

    /// Spawns the task that sends Events.
    fn writeback(&self, services: &mut Services) -> Arc<Writeback> {
        let writeback = Arc::new(Writeback::new(&self.api, self.pool.prune.clone()));
        let sending = writeback.clone();
        let loaded = self.registry.clone();
        services.spawn(async move {
            let report = |manager: &str, result| {
                if let Some(plugin) = loaded.by_manager(manager) {
                    plugin.status.event(result);
                }
            };
            match sending.send_waiting_events(|| loaded.event_senders(), report).await {}
        });
        writeback
    }

    /// Spawns the task that exports traces.
    fn traces(&self, options: TraceOptions, tasks: &mut Services, stop: &CancellationToken) -> (Traces, Arc<Outbox>) {
        let outbox = Arc::<Outbox>::default();
        let TraceOptions { exporter, ratio, slow } = options;
        let export = exporter.run(outbox.clone(), self.clock.clone(), stop.clone());
        tasks.spawn(async {
            export.await;
            Ok(())
        });
        let kept = outbox.clone();
        (Traces::new(ratio, slow, move |record| kept.keep(record)), outbox)
    }

    fn dispatch(&self, deliver: Arc<dyn Deliver>, tasks: &Deliveries, traces: Option<Traces>) -> Arc<Dispatch> {
        Arc::new(Dispatch {
            queue: self.queue.clone(),
            registry: self.registry.clone(),
            expectations: self.expectations.clone(),
            reader: self.reader.clone(),
            deliver,
            live: Arc::new(LivePods::new(self.api.clone(), self.pool.prune.clone())),
            tasks: tasks.tasks(),
            clock: self.clock.clone(),
            seed: self.seed,
            traces,
        })
    }
}

/// Runs the watch, which never ends. A host with a journal first asks for the identity of the cluster.
async fn run_watch(
    watch: Watch,
    observed: mpsc::Sender<Observation>,
    identity: Option<(Api, Arc<Journal>)>,
    seed: u64,
) -> anyhow::Result<()> {
    if let Some((api, journal)) = identity
        && let Some(uid) = cluster::identify(&api, &observed, seed).await
    {
        journal.of_cluster(&uid)?;
    }
    watch.run(observed).await;
    anyhow::bail!("the watch ended")
}

type StartedJournal = (Option<Arc<Journal>>, Option<Reopened>, Services);

/// Spawns the journal's task, if there is a journal.
fn start_journal(
    opened: Option<Opened>,
    namespace: Option<String>,
    simulated: bool,
    stop: &CancellationToken,
) -> StartedJournal {
    let mut tasks = Services::new();
    let Some(Opened { journal, store, recovery }) = opened else { return (None, None, tasks) };
    tasks.spawn(JournalTask::new(journal.clone(), store, simulated).run(stop.clone()));
    (Some(journal.clone()), Some(Reopened { journal, recovery, namespace }), tasks)
}
