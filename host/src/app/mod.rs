//! Builds the rooms, spawns their tasks, joins them, shuts down. The only room that knows them all.
//!
//! The clock's start, the seed and the API server's client come in from outside, so that a host can be run in a
//! simulation as well as in a process ([`process`]).

mod blocking;
mod checkpoint;
mod cluster;
pub mod compile;
mod disk;
mod journal;
#[allow(missing_docs, reason = "its messages are its documentation")]
mod loading;
mod memory_limit;
mod operator;
pub mod process;
mod thread;
mod wall_clock;

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use blocking::BlockingJobs;
pub use checkpoint::CheckpointOptions;
use cluster::Cluster;
use journal::JournalTask;
use loading::Loader;
pub use loading::{LoadFailure, Prepared};
pub use operator::Operator;
use operator::{Observed, stale};
use podium_engine::{
    clock::Clock,
    dispatch::{Dispatch, Expectations, PodQueue, Registry},
    ingest::{Ingest, IngestOptions, Reopened},
    journal::{Journal, Opened},
    queue::{Backoff, Budget, Queue},
    status::{PluginState, Status},
};
use podium_pods::{
    cache::{self, Reader},
    encoding::SkeletonPool,
    model::{PluginId, PluginSpec, Prune},
};
use thread::Thread;
pub use thread::ingest_runtime;
use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
pub use wall_clock::WallClock;

use crate::{
    api::Api,
    checkpoint::Scope,
    config::Policy,
    live::LivePods,
    runtime::{Compilation, Engine, EngineOptions},
    watch::{Counters, Watch, WatchOptions},
    writeback::Writeback,
};

/// For one answer of the API server; a page of a list has longer.
const REQUEST_DEADLINE: Duration = Duration::from_secs(5);
/// Observations that wait for the ingest loop. A relist is one; events come in batches.
const OBSERVATIONS: usize = 16;
/// How long runs that are under way may take to end at shutdown, before they are dropped. With the time to stop the
/// rest it stays below the 10 s that are promised, and far below Kubernetes' usual 30 s of grace.
const DRAIN: Duration = Duration::from_secs(8);
/// How long the journal's last entries and the last checkpoint may take, of the time that is left after that.
const LAST_ENTRIES: Duration = Duration::from_secs(1);
/// How long the watch's thread and jobs that read the disk may take to end after that.
const LAST_JOBS: Duration = Duration::from_millis(500);
/// Keys worked on at the same time, unless the caller says otherwise.
const WORKERS: usize = 4;
/// Bytes of memory of all runs under way, where nothing limits the host's own. A tenant's half is enough for two runs
/// with the most memory that a configuration may ask for.
const RUN_MEMORY: u64 = 1 << 30;

/// What a host is made of.
pub struct Options {
    /// Made by [`crate::api::client`], or over a service in the process.
    pub client: kube::Client,
    /// For the watch alone. Where it has connections of its own they belong to the watch's thread.
    pub watch_client: kube::Client,
    /// None: all namespaces.
    pub namespace: Option<String>,
    /// Keys worked on at the same time, of which one plugin gets at most half. The tokio runtime should have one thread
    /// more, so that probes are answered while every guest computes.
    pub workers: usize,
    /// Bytes that all runs under way may use together, as the limits of their plugins declare, of which one tenant gets
    /// at most half. A key waits in the queue until its run's memory is free.
    pub run_memory: u64,
    /// Where the host is observed from outside.
    pub operator: Operator,
    /// Opened by [`podium_engine::journal::open`]; none: deletions while the host is down are not delivered.
    pub journal: Option<Opened>,
    /// Beside the journal; none: each start lists all Pods.
    pub checkpoint: Option<CheckpointOptions>,
    /// What of a Pod is not kept.
    pub prune: Prune,
    /// Where components are compiled. The default is this process, without limits: for simulations and benches.
    pub compilation: Compilation,
    /// What plugins may ask for; none: everything that a configuration can have.
    pub policy: Option<Policy>,
    /// Of jitter, and of the random numbers of WASI guests: different in every host.
    pub seed: u64,
    /// Epoch milliseconds now.
    pub now_millis: u64,
    /// Reads epoch milliseconds again, so that the host follows a clock that is set. None: time goes on from
    /// `now_millis`, as in a simulation.
    pub wall_clock: Option<WallClock>,
}

impl Options {
    /// The defaults: all namespaces, 4 workers, 1 GiB for runs, one client for everything, no state on disk, no
    /// ports, and a clock that goes on from `now_millis`.
    #[must_use]
    pub fn new(client: kube::Client, seed: u64, now_millis: u64) -> Self {
        Self {
            watch_client: client.clone(),
            client,
            namespace: None,
            workers: WORKERS,
            run_memory: RUN_MEMORY,
            operator: Operator::default(),
            journal: None,
            checkpoint: None,
            prune: Prune::default(),
            compilation: Compilation::default(),
            policy: None,
            seed,
            now_millis,
            wall_clock: None,
        }
    }
}

/// A host at work. Dropping it ends its tasks without draining; [`App::shutdown`] drains.
#[must_use]
pub struct App {
    loader: Arc<Loader>,
    dispatch: Arc<Dispatch>,
    writeback: Arc<Writeback>,
    status: Arc<Status>,
    journal: Option<Arc<Journal>>,
    state_tasks: JoinSet<anyhow::Result<()>>,
    workers: JoinSet<()>,
    services: JoinSet<anyhow::Result<()>>,
    stop: CancellationToken,
    progress: watch::Sender<Phase>,
    /// None in a simulation.
    thread: Option<Thread>,
    blocking: Arc<BlockingJobs>,
}

/// The part of /readyz that is not the cache's state.
#[derive(Debug, Clone, Copy)]
enum Phase {
    Loading,
    Serving,
    Draining,
}

impl App {
    /// Starts the watch and the workers; plugins come with [`App::load`]. Does not wait for the API server.
    ///
    /// # Errors
    /// When the engine cannot be made.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        Self::start_on(options, EngineOptions::default()).await
    }

    /// As [`App::start`], for a simulation on one thread under paused time: fuel alone cuts and interleaves runs, so
    /// that the machine's own time decides nothing and the same seed leads to the same writes.
    ///
    /// # Errors
    /// As [`App::start`].
    pub async fn start_simulated(options: Options) -> anyhow::Result<Self> {
        Self::start_on(options, EngineOptions { tick: None, ..EngineOptions::default() }).await
    }

    async fn start_on(options: Options, engine_options: EngineOptions) -> anyhow::Result<Self> {
        let api = Api::new(options.client, REQUEST_DEADLINE).with_backpressure();
        let workers = options.workers.max(1);
        let concurrent_runs = u32::try_from(workers).unwrap_or(u32::MAX);
        let simulated = engine_options.tick.is_none();
        let compilation = options.compilation;
        let engine = Engine::new(EngineOptions { concurrent_runs, compilation, ..engine_options })
            .context("cannot set up the WebAssembly engine")?;
        let clock = Clock::starting_at(options.now_millis);
        let (writer, reader) = cache::new(options.seed);
        let scope = Scope::new(options.namespace.as_deref(), &options.prune);
        let pool = Arc::new(SkeletonPool::new(options.seed).pruning(options.prune));
        let saved = match &options.checkpoint {
            Some(kept) => checkpoint::load(kept, scope.clone(), &pool, simulated).await?,
            None => None,
        };
        let registry = Arc::new(Registry::default());
        let queue: PodQueue = Queue::new(Backoff::default(), (workers / 2).max(1), options.seed);
        let queue = Arc::new(queue.within(Budget::new(options.run_memory), registry.clone()));
        let expectations = Arc::new(Expectations::default());
        let status = Arc::new(Status::default());

        let mut services = JoinSet::new();
        let stop = CancellationToken::new();
        let (observed, observations) = mpsc::channel(OBSERVATIONS);
        let namespace = options.namespace;
        let watch_options = WatchOptions { namespace: namespace.clone(), ..WatchOptions::default() };
        let counters = Arc::<Counters>::default();
        let thread = if simulated { None } else { Some(Thread::start(counters.clone())) };
        let thread = thread.transpose().context("cannot start the watch's thread")?;
        let ingest_runtime = thread.as_ref().map_or_else(Handle::current, |thread| thread.runtime().clone());
        let watch_api = Api::new(options.watch_client, REQUEST_DEADLINE);
        let watch = Watch::new(watch_api.clone(), watch_options, pool.clone(), Arc::new(reader.clone()), options.seed);
        let mut watch = watch.from_checkpoint(saved).counted_by(counters);
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
        if let Some(kept) = options.checkpoint {
            let task = checkpoint::CheckpointTask::new;
            let incomplete = ingest.incomplete();
            let saving = task(kept, scope, reader.clone(), incomplete, of_checkpoint, clock.clone(), simulated);
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

        let dispatch = Arc::new(Dispatch {
            queue: queue.clone(),
            registry: registry.clone(),
            expectations,
            reader: reader.clone(),
            deliver: writeback.clone(),
            live: Arc::new(LivePods::new(api, pool.prune().clone())),
            write_through: Arc::new(ingest_handle.clone()),
            clock,
            seed: options.seed,
            runs: 0.into(),
        });

        let (progress, phase) = watch::channel(Phase::Loading);
        let watched = engine.clone();
        let observed = Observed {
            status: status.clone(),
            registry: registry.clone(),
            queue: queue.clone(),
            expectations: dispatch.expectations.clone(),
            reader: reader.clone(),
            journal: journal.clone(),
            checkpoint: saved,
            phase,
            stalled: Box::new(move || watched.stalled()),
        };
        observed.serve(options.operator, &mut services, &stop);

        let loader =
            Loader::new(engine, dispatch.clone(), status.clone(), ingest_handle, journal.clone(), options.policy);
        let loader = Arc::new(loader);
        services.spawn(loader.clone().retry());
        let mut tasks = JoinSet::new();
        for _ in 0..workers {
            tasks.spawn(dispatch.clone().work());
        }
        Ok(Self {
            loader,
            dispatch,
            writeback,
            status,
            journal,
            state_tasks,
            workers: tasks,
            services,
            stop,
            progress,
            thread,
            blocking,
        })
    }

    /// [`App::prepare`] and [`App::install`] in one.
    ///
    /// # Errors
    /// As [`App::prepare`].
    pub async fn load(&self, spec: PluginSpec) -> anyhow::Result<()> {
        let prepared = self.prepare(spec).await?;
        self.install(prepared).await;
        Ok(())
    }

    /// Reads, checks and compiles a plugin. Two plugins are compiled at a time.
    ///
    /// An earlier version of the plugin goes on meanwhile. When this fails, the earlier version goes on only if `spec`
    /// permits everything that it may do; otherwise it is stopped, because its permissions are no longer configured.
    /// A configuration that cannot be read never gets here, and so changes nothing.
    ///
    /// # Errors
    /// When the policy does not permit the plugin, or the file cannot be read, is no plugin, or wants more than its
    /// grants. A failure that may pass ([`LoadFailure::is_passing`]) is tried again in the background, first after 1 s
    /// and then up to every 5 minutes, until it succeeds, is refused, or the plugin is loaded or unloaded by a call.
    /// [`App::plugins`] shows which.
    pub async fn prepare(&self, spec: PluginSpec) -> Result<Prepared, LoadFailure> {
        self.loader.prepare(spec).await
    }

    /// Sets a plugin to work on every Pod that it watches. One of that name is replaced: its runs under way end as they
    /// are, its memory and its queue stay.
    pub async fn install(&self, prepared: Prepared) {
        self.loader.install(prepared).await;
    }

    /// Records that a plugin is configured and will be loaded, so that [`App::plugins`] names it from now on.
    pub fn expect(&self, id: &PluginId) {
        self.loader.expect(id);
    }

    /// The load state of every configured plugin, ordered by namespace, then name: which are loaded, waiting or
    /// refused, with the reason.
    #[must_use]
    pub fn plugins(&self) -> Vec<PluginState> {
        self.loader.plugins()
    }

    /// All plugins that there are at the start are loaded: /readyz may say so.
    pub fn started(&self) {
        if let Some(journal) = &self.journal {
            let loaded: Vec<_> = self.dispatch.registry.all().iter().map(|loaded| loaded.spec.id.clone()).collect();
            for (plugin, pods) in journal.all_absent_but(&loaded, self.dispatch.clock.now_millis()) {
                tracing::warn!(%plugin, pods, "ran before and is not loaded; what it ran on is kept in the journal for a week");
            }
        }
        self.progress.send_replace(Phase::Serving);
    }

    /// Takes a plugin out; its runs under way end as they are. Returns false when there was none of that name.
    pub async fn unload(&self, id: &PluginId) -> bool {
        self.loader.unload(id).await
    }

    /// What runs and writes have come to, by plugin.
    #[must_use]
    pub fn status(&self) -> Arc<Status> {
        self.status.clone()
    }

    /// The cache.
    #[must_use]
    pub fn reader(&self) -> Reader {
        self.dispatch.reader.clone()
    }

    /// Why readers may see old data; none when all is well.
    #[must_use]
    pub fn unready(&self) -> Option<String> {
        stale(&self.dispatch.reader)
    }

    /// True when nothing is due and nothing runs; what waits for a delay or a back-off does not count.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.dispatch.queue.is_idle()
    }

    /// Waits until a task ends that never should, and says why it did. Cancel safe.
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

    /// No new runs; those under way finish and send what they staged, or are dropped after 8 s. Then the rest stops.
    pub async fn shutdown(mut self) {
        self.progress.send_replace(Phase::Draining);
        self.dispatch.queue.close();
        let drained = async { while self.workers.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, drained).await.is_err() {
            tracing::warn!(seconds = DRAIN.as_secs(), "runs under way did not end and are dropped");
            self.workers.shutdown().await;
        }
        self.stop.cancel();
        // The journal's last entries and the last checkpoint; a disk that does not answer is not waited for.
        let kept = async { while self.state_tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_ENTRIES, kept).await.is_err() {
            tracing::warn!("the journal's last entries or the checkpoint were not written: the disk does not answer");
        }
        self.services.shutdown().await;
        let ended = async {
            self.blocking.join().await;
            if let Some(thread) = self.thread {
                thread.join().await;
            }
        };
        if tokio::time::timeout(LAST_JOBS, ended).await.is_err() {
            tracing::warn!("the watch's thread or the reading of the journal did not end and is dropped");
        }
        let events = self.writeback.waiting_events();
        if events > 0 {
            tracing::warn!(events, "Events that waited to be sent are lost");
        }
    }
}

type StartedJournal = (Option<Arc<Journal>>, Option<Reopened>, JoinSet<anyhow::Result<()>>);

/// Sets the journal's task to work, if there is a journal.
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
