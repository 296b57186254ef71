//! Builds the modules, spawns and joins their tasks, and shuts them down. The only module that uses all others.
//!
//! The caller passes the time, the seed and the API server's client, so that a host can run in a simulation as well
//! as in a process ([`process`]).

mod blocking;
mod certificate;
mod checkpoint;
mod cleanup;
mod cluster;
pub mod compile;
mod deliveries;
mod disk;
mod journal;
mod life;
mod memory_limit;
mod metrics_port;
mod object_status;
mod objects;
mod operator;
mod options;
mod policy;
pub mod process;
mod reconcile_status;
mod start_line;
mod thread;
mod wall_clock;
mod watchdog;

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use blocking::BlockingJobs;
pub use checkpoint::CheckpointOptions;
use cluster::Cluster;
use deliveries::Deliveries;
use journal::JournalTask;
use life::{Components, Disk, Driver, Holds, Rules};
pub use life::{LoadFailure, Prepared};
pub use operator::Operator;
use operator::{Observed, stale};
pub use options::Options;
use podium_api::{
    Api, Observer,
    live::LivePods,
    watch::{Counters, Watch, WatchOptions},
};
use podium_encoding::Pool;
use podium_engine::{
    clock::Clock,
    dispatch::{Dispatch, Expectations, PodQueue, Registry},
    ingest::{Ingest, IngestOptions, Reopened},
    journal::{Journal, Opened},
    queue::{Backoff, MemoryBudget, Occupancy, Queue},
    status::{PluginState, Status},
};
use podium_life::Event;
use podium_pods::cache::{self, Reader};
use podium_runtime::{Engine, EngineOptions};
use podium_vocabulary::{PluginId, PluginSpec};
use podium_writeback::Writeback;
pub use policy::PolicyFile;
use thread::Thread;
pub use thread::ingest_runtime;
use tokio::{
    runtime::Handle,
    sync::{Semaphore, mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
pub use wall_clock::WallClock;
use watchdog::{Steps, Watchdog, Watched, is_waiting};

pub use crate::objects::FetchFailure;
use crate::{admin::ReconcileStatus, checkpoint::Coverage, telemetry::ApiRequests};

/// Deadline of one request. A page of a list has a longer one.
const REQUEST_DEADLINE: Duration = Duration::from_secs(5);
/// Capacity of the channel of observations to the ingest loop. A relist is one observation; events come in batches.
const OBSERVATIONS: usize = 16;
/// Time for runs under way to end at shutdown; after it they are dropped. A shutdown takes
/// less than the promised total of 10 s, and far less than Kubernetes' default grace period of 30 s.
const DRAIN: Duration = Duration::from_secs(8);
/// Time for the journal's last entries and the last checkpoint, after [`DRAIN`].
const LAST_ENTRIES: Duration = Duration::from_secs(1);
/// Time for the watch's thread and jobs that read the disk to end, after [`LAST_ENTRIES`].
const LAST_JOBS: Duration = Duration::from_millis(500);

/// A running host. Dropping it ends its tasks without draining; [`App::shutdown`] drains.
#[must_use]
pub struct App {
    driver: Arc<Driver>,
    dispatch: Arc<Dispatch>,
    /// Sends the host's own requests about plugin objects.
    api: Api,
    cleanup_account: Option<String>,
    removals: cleanup::Removals,
    /// The counters of the watch, which knows the Pods that it could not decode.
    counters: Arc<Counters>,
    seed: u64,
    writeback: Arc<Writeback>,
    status: Arc<Status>,
    journal: Option<Arc<Journal>>,
    state_tasks: JoinSet<anyhow::Result<()>>,
    workers: JoinSet<()>,
    deliveries: Deliveries,
    services: JoinSet<anyhow::Result<()>>,
    stop: CancellationToken,
    progress: watch::Sender<Phase>,
    /// `None` in a simulation.
    thread: Option<Thread>,
    blocking: Arc<BlockingJobs>,
    observed: Arc<Observed>,
}

/// The conditions of /readyz other than the cache's state.
#[derive(Debug, Clone, Copy)]
enum Phase {
    Loading,
    Serving,
    Draining,
}

impl App {
    /// Starts the watch and the workers. [`App::load`] adds plugins. Does not wait for the API server.
    ///
    /// # Errors
    /// Returns an error if the WebAssembly engine cannot be created.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        Self::start_on(options, EngineOptions::default()).await
    }

    /// Like [`App::start`], for a simulation on one thread under paused time. Only fuel limits and interleaves runs,
    /// so results do not depend on the machine's speed: the same seed leads to the same writes.
    ///
    /// # Errors
    /// See [`App::start`].
    pub async fn start_simulated(options: Options) -> anyhow::Result<Self> {
        Self::start_on(options, EngineOptions { tick: None, ..EngineOptions::default() }).await
    }

    async fn start_on(options: Options, engine_options: EngineOptions) -> anyhow::Result<Self> {
        let requests = Arc::new(ApiRequests::new(options.operator.api_server.clone()));
        let counted = requests.clone();
        let observer: Observer = Arc::new(move |method, code, took| counted.record(method, code, took));
        let own_api = Api::new(options.client, REQUEST_DEADLINE).observed_by(observer.clone());
        let api = own_api.with_backpressure();
        let components = api.clone();
        let workers = options.workers.max(1);
        let concurrent_runs = u32::try_from(workers).unwrap_or(u32::MAX);
        let simulated = engine_options.tick.is_none();
        let compilation = options.compilation;
        let engine = Engine::new(EngineOptions { concurrent_runs, compilation, ..engine_options })
            .context("cannot set up the WebAssembly engine")?;
        let clock = Clock::starting_at(options.now_millis);
        let (writer, reader) = cache::new(options.seed);
        let coverage = Coverage::new(options.namespace.as_deref(), &options.prune);
        let mut pool = Pool::new(options.seed);
        pool.prune = options.prune;
        let pool = Arc::new(pool);
        let saved = match &options.checkpoint {
            Some(kept) => checkpoint::load(kept, coverage.clone(), &pool, simulated).await?,
            None => None,
        };
        let registry = Arc::new(Registry::default());
        let occupancy = Occupancy::new(workers);
        let queue: PodQueue = Queue::new(Backoff::default(), occupancy.jobs_of_tenant(), options.seed);
        let queue = Arc::new(queue.shared(occupancy).within(MemoryBudget::new(options.run_memory), registry.clone()));
        let expectations = Arc::new(Expectations::default());
        let status = Arc::new(Status::default());

        let mut services = JoinSet::new();
        let stop = CancellationToken::new();
        let (observed, observations) = mpsc::channel(OBSERVATIONS);
        let observations_wait = is_waiting(&observed);
        let namespace = options.namespace;
        let watch_options = WatchOptions { namespace: namespace.clone(), ..WatchOptions::default() };
        let counters = Arc::<Counters>::default();
        let thread = if simulated { None } else { Some(Thread::start(counters.clone())) };
        let thread = thread.transpose().context("cannot start the watch's thread")?;
        let ingest_runtime = thread.as_ref().map_or_else(Handle::current, |thread| thread.runtime().clone());
        let watch_api = Api::new(options.watch_client, REQUEST_DEADLINE).observed_by(observer);
        let watch = Watch::new(watch_api.clone(), watch_options, pool.clone(), Arc::new(reader.clone()), options.seed);
        let mut watch = watch.from_checkpoint(saved).counted_by(counters.clone());
        let has_state = options.journal.is_some() || options.checkpoint.is_some();
        let (journal, reopened, mut state_tasks) = start_journal(options.journal, namespace, simulated, &stop);
        let cluster = Cluster::default();
        let (of_checkpoint, of_journal) = (cluster.clone(), journal.clone());
        let watch = async move {
            if has_state && let Some(uid) = cluster::identify(&watch_api, &observed, options.seed).await {
                if let Some(journal) = of_journal {
                    journal.of_cluster(&uid)?;
                }
                let _ = cluster.set(uid.clone());
                watch = watch.of_cluster(Some(uid));
            }
            watch.run(observed).await;
            anyhow::bail!("the watch ended")
        };
        services.spawn_on(watch, &ingest_runtime);
        if let Some(read) = options.wall_clock {
            services.spawn(wall_clock::follow(clock.clone(), read));
        }
        let mut saved = None;
        let caches = (writer, reader.clone());
        let blocking = Arc::new(BlockingJobs::new((!simulated).then(Handle::current)));
        let ingest_options = IngestOptions {
            observations,
            registry: registry.clone(),
            queue: queue.clone(),
            expectations: expectations.clone(),
            reopened,
            blocking: blocking.clone(),
        };
        let (ingest, ingest_handle) = Ingest::new(caches, ingest_options);
        let (watchdog, steps, jobs) = (Arc::<Watchdog>::default(), Steps(ingest.steps()), ingest_handle.clone());
        let waits = move || observations_wait() || jobs.is_waiting();
        watchdog.watch(Watched::new("events of pods wait, and none was processed", steps, waits));
        let ticker = engine.clone();
        let waits = move || ticker.stalled().is_some();
        watchdog.watch(Watched::new("runs wait, and guests cannot be interrupted", Steps::default(), waits));
        services.spawn(watchdog.clone().run());
        if let Some(kept) = options.checkpoint {
            let task = checkpoint::CheckpointTask::new;
            let counters = counters.clone();
            let saving = task(kept, coverage, reader.clone(), counters, of_checkpoint, clock.clone(), simulated);
            saved = Some(saving.saved());
            state_tasks.spawn(saving.run(stop.clone()));
        }
        let ingest = async move {
            ingest.run().await;
            anyhow::bail!("the ingest loop ended")
        };
        services.spawn_on(ingest, &ingest_runtime);

        let writeback = Arc::new(Writeback::new(&api, Arc::clone(&pool)));
        let (sending, loaded) = (writeback.clone(), registry.clone());
        services.spawn(async move {
            let report = |manager: &str, result| {
                if let Some(plugin) = loaded.by_manager(manager) {
                    plugin.status.event(result);
                }
            };
            match sending.send_waiting_events(|| loaded.event_senders(), report).await {}
        });

        let deliveries = Deliveries::default();
        registry.bound_states(options.state_memory);
        let dispatch = Arc::new(Dispatch {
            queue: queue.clone(),
            registry: registry.clone(),
            expectations,
            reader: reader.clone(),
            deliver: writeback.clone(),
            live: Arc::new(LivePods::new(api, pool.prune.clone())),
            write_through: Arc::new(ingest_handle.clone()),
            tasks: deliveries.tasks(),
            clock,
            seed: options.seed,
        });

        let (progress, phase) = watch::channel(Phase::Loading);
        let removals = cleanup::Removals::default();
        let left = removals.clone();
        let (watched, closed, holding) = (engine.clone(), writeback.clone(), components.clone());
        let observed = Arc::new(Observed {
            status: status.clone(),
            registry: registry.clone(),
            queue: queue.clone(),
            most_runs: occupancy.runs_of_tenant(),
            requests,
            expectations: dispatch.expectations.clone(),
            closed: Box::new(move || closed.closed_kinds()),
            held: Box::new(move || holding.holds()),
            reader: reader.clone(),
            journal: journal.clone(),
            checkpoint: saved,
            phase,
            removals: Box::new(move || left.lock().iter().map(|(id, removal)| (id.clone(), removal.pods)).collect()),
            policy_file: options.policy_file.clone(),
            stalled: Box::new(move || watched.stalled()),
            watchdog,
        });
        observed.serve(options.operator, &own_api, &mut services, &stop);

        let store = options.components.map(|store| Disk::new(store, blocking.clone()));
        let components = Components {
            engine,
            api: components,
            store,
            simulated,
            holds: Holds::default(),
            #[cfg(test)]
            given: <_>::default(),
        };
        let rules = Rules {
            policy: options.policy,
            images: options.images,
            require_service_account: options.require_service_account,
            most_of_a_job: None,
        };
        let driver = Driver::new(dispatch.clone(), status.clone(), ingest_handle, journal.clone(), rules, components);
        services.spawn(driver.clone().run());
        if let Some(file) = options.policy_file {
            services.spawn(file.follow(driver.clone()));
        }
        let mut tasks = JoinSet::new();
        for _ in 0..workers {
            tasks.spawn(dispatch.clone().work());
        }
        Ok(Self {
            driver,
            dispatch,
            api: own_api,
            cleanup_account: options.cleanup_account,
            removals,
            counters,
            seed: options.seed,
            writeback,
            status,
            journal,
            state_tasks,
            workers: tasks,
            deliveries,
            services,
            stop,
            progress,
            thread,
            blocking,
            observed,
        })
    }

    /// Calls [`App::prepare`] and [`App::install`].
    ///
    /// # Errors
    /// See [`App::prepare`].
    pub async fn load(&self, spec: PluginSpec) -> anyhow::Result<()> {
        let prepared = self.prepare(spec).await?;
        self.install(prepared).await;
        Ok(())
    }

    /// Reads, checks and compiles a plugin. Two plugins are compiled at a time.
    ///
    /// An earlier version of the plugin keeps running meanwhile, and continues if this fails, but only if `spec`
    /// permits everything that it may do. Otherwise its runs are ended at once, before the component is read, and no
    /// run starts before the new version is installed. A configuration that cannot be read is rejected before this
    /// call and changes nothing.
    ///
    /// # Errors
    /// Returns an error if the policy does not permit the plugin, or if the file cannot be read, is not a plugin, or
    /// imports more than its grants. A transient failure ([`LoadFailure::is_passing`]) is retried in the background,
    /// first after 1 s and then up to every 5 minutes, until it succeeds, is refused, or a call loads or unloads the
    /// plugin. [`App::plugins`] reports the state.
    pub async fn prepare(&self, spec: PluginSpec) -> Result<Prepared, Arc<LoadFailure>> {
        self.driver.prepare(spec).await
    }

    /// Starts running a plugin on every Pod that it watches. It replaces a plugin of the same name, whose memory and
    /// queue are kept. Runs under way finish on the old version if the new one may do everything that it may do;
    /// otherwise they are ended.
    pub async fn install(&self, prepared: Prepared) {
        self.driver.install(prepared).await;
    }

    /// Follows the plugin objects of a namespace, or all of them: loads the plugins that they define, loads a plugin
    /// again when the spec of its object changes, and unloads it when the object is deleted. `files` are the plugins
    /// of files; an object of the same name is not loaded. While the API server does not serve the kinds, there are no
    /// objects.
    ///
    /// The channel reports true when the first lists are there and an attempt to load each plugin in them has ended.
    pub fn watch_objects(&mut self, namespace: Option<&str>, files: &[PluginSpec]) -> watch::Receiver<bool> {
        let (follower, started) = objects::Follower::new(self.driver.clone(), &self.api, namespace, files, self.seed);
        let status = object_status::StatusTask {
            api: self.api.clone(),
            known: follower.known(),
            driver: self.driver.clone(),
            status: self.status.clone(),
            observed: self.observed.clone(),
            removals: self.removals.clone(),
            clock: self.dispatch.clock.clone(),
        };
        let counters = self.counters.clone();
        let cleanup = cleanup::Cleanup {
            api: self.api.clone(),
            known: follower.known(),
            driver: self.driver.clone(),
            dispatch: self.dispatch.clone(),
            account: self.cleanup_account.clone(),
            undecoded: Box::new(move || counters.undecoded() > 0),
            turn: Semaphore::new(1),
            removals: self.removals.clone(),
        };
        self.observed.watchdog.watch(follower.watched());
        self.services.spawn(follower.run());
        self.services.spawn(cleanup.run());
        self.services.spawn(status.run());
        started
    }

    /// Records that a plugin is configured and will be loaded, so that [`App::plugins`] names it from now on.
    pub fn expect(&self, id: &PluginId) {
        self.driver.expect(id);
    }

    /// Returns the load state of every configured plugin, with the reason if it is not loaded, ordered by namespace,
    /// then name.
    #[must_use]
    pub fn plugins(&self) -> Vec<PluginState> {
        self.driver.plugins()
    }

    /// Records that all plugins of the start are loaded, which /readyz requires.
    pub fn started(&self) {
        if let Some(journal) = &self.journal {
            let loaded: Vec<_> = self.dispatch.registry.all().iter().map(|loaded| loaded.spec.id.clone()).collect();
            for (plugin, pods) in journal.all_absent_but(&loaded, self.dispatch.clock.now_millis()) {
                tracing::warn!(%plugin, pods, "plugin in the journal is not loaded; its entries are kept for a week");
            }
        }
        self.progress.send_replace(Phase::Serving);
    }

    /// Ends the runs of the plugin's loaded version at once if `spec`, its new configuration, does not permit
    /// everything that the version may do; no run starts before a version is installed. [`App::prepare`] does the
    /// same. It is for callers that build a component before they can call that.
    pub fn restrict(&self, spec: &PluginSpec) {
        self.driver.feed(Event::Restricted(Arc::new(spec.clone())));
    }

    /// Removes a plugin and ends its runs, whose staged writes are not sent. Returns false if there was none of that
    /// name.
    pub async fn unload(&self, id: &PluginId) -> bool {
        self.driver.unload(id).await
    }

    /// Returns the results of runs and writes by plugin.
    #[must_use]
    pub fn status(&self) -> Arc<Status> {
        self.status.clone()
    }

    /// Returns a reader of the cache.
    #[must_use]
    pub fn reader(&self) -> Reader {
        self.dispatch.reader.clone()
    }

    /// Returns the runs under way, the keys that wait, and everything that is slowed, as `/debug/reconcile-status`
    /// does.
    #[must_use]
    pub fn reconcile_status(&self) -> ReconcileStatus {
        self.observed.reconcile_status()
    }

    /// Returns why readers may see old data; `None` if they see current data.
    #[must_use]
    pub fn unready(&self) -> Option<String> {
        stale(&self.dispatch.reader)
    }

    /// Returns true if nothing is due and nothing runs. Keys that wait for a delay or a back-off do not count.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.dispatch.queue.is_idle()
    }

    /// Waits until a task ends that should run forever, and returns the reason. Cancel safe.
    pub async fn failed(&mut self) -> anyhow::Error {
        let ended = tokio::select! {
            biased;
            Some(ended) = self.services.join_next() => ended,
            Some(ended) = self.state_tasks.join_next() => ended,
            Some(ended) = self.workers.join_next() => ended.map(|()| Err(anyhow::anyhow!("a worker ended"))),
            else => return anyhow::anyhow!("nothing is running"),
        };
        match ended {
            Ok(Ok(())) => anyhow::anyhow!("a service ended"),
            Ok(Err(error)) => error,
            Err(error) => anyhow::Error::new(error).context("a task panicked"),
        }
    }

    /// Starts no new runs. Runs under way finish and send what they staged; after 8 s they are dropped. Then the
    /// other tasks stop.
    pub async fn shutdown(mut self) {
        self.progress.send_replace(Phase::Draining);
        self.dispatch.queue.close();
        let drained = async {
            while self.workers.join_next().await.is_some() {}
            self.deliveries.join().await;
        };
        if tokio::time::timeout(DRAIN, drained).await.is_err() {
            tracing::warn!(seconds = DRAIN.as_secs(), "runs did not end before the drain timeout; dropping them");
            self.workers.shutdown().await;
            drop(self.deliveries);
        }
        self.stop.cancel();
        // The journal's last entries and the last checkpoint. The timeout bounds the wait for a disk that does not
        // answer.
        let kept = async { while self.state_tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_ENTRIES, kept).await.is_err() {
            tracing::warn!("last journal entries or checkpoint not written: the disk does not respond");
        }
        self.services.shutdown().await;
        let ended = async {
            self.blocking.join().await;
            if let Some(thread) = self.thread {
                thread.join().await;
            }
        };
        if tokio::time::timeout(LAST_JOBS, ended).await.is_err() {
            tracing::warn!("watch thread or a job that uses the disk did not end; abandoning it");
        }
        let events = self.writeback.waiting_events();
        if events > 0 {
            tracing::warn!(events, "waiting Events are lost");
        }
    }
}

type StartedJournal = (Option<Arc<Journal>>, Option<Reopened>, JoinSet<anyhow::Result<()>>);

/// Spawns the journal's task, if there is a journal.
fn start_journal(
    opened: Option<Opened>,
    namespace: Option<String>,
    simulated: bool,
    stop: &CancellationToken,
) -> StartedJournal {
    let mut tasks = JoinSet::new();
    let Some(Opened { journal, store, recovery }) = opened else { return (None, None, tasks) };
    tasks.spawn(JournalTask::new(journal.clone(), store, simulated).run(stop.clone()));
    (Some(journal.clone()), Some(Reopened { journal, recovery, namespace }), tasks)
}
