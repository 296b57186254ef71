//! Builds the modules, spawns and joins their tasks, and shuts them down. The only module that uses all others.
//!
//! The caller passes the time, the seed and the API server's client, so that a host can run in a simulation as well
//! as in a process ([`process`]).

mod blocking;
mod certificate;
mod children;
mod cleanup;
mod cluster;
pub mod compile;
mod deliveries;
mod disk;
mod inputs;
mod journal;
mod lease;
mod life;
mod memory_limit;
mod metrics_port;
mod object_status;
mod objects;
mod operator;
mod options;
mod policy;
pub mod process;
mod profiles;
mod reconcile_status;
mod run_reports;
mod spaced;
mod start;
mod start_line;
mod thread;
mod traces;
mod turns;
mod wall_clock;
mod watchdog;
mod watches;
mod why;

use std::{sync::Arc, time::Duration};

use blocking::BlockingJobs;
use deliveries::Deliveries;
use lease::Leadership;
pub use lease::{Beside, BootTime, LeaseOptions};
use life::Driver;
pub use life::{LoadFailure, Prepared};
pub use operator::Operator;
use operator::{Observed, stale};
pub use options::{AroundDeliver, Options};
use podium_api::{Api, watch::Counters};
use podium_engine::{
    dispatch::Dispatch,
    status::{PluginState, Status},
};
pub use podium_lease::Mode;
use podium_life::Event;
use podium_pods::{cache::Reader, pod::Change};
use podium_runtime::EngineOptions;
use podium_vocabulary::{PluginId, PluginSpec};
use podium_writeback::{ClosedKind, Writeback};
pub use policy::PolicyFile;
use thread::Thread;
pub use thread::ingest_runtime;
use tokio::{
    sync::{Semaphore, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
pub use traces::TraceOptions;
pub use wall_clock::WallClock;

use crate::admin::{PluginRuns, PodRuns, ReconcileStatus, Run};
pub use crate::objects::FetchFailure;

/// Deadline of one request. A page of a list has a longer one.
const REQUEST_DEADLINE: Duration = Duration::from_secs(5);
/// Capacity of the channel of observations to the ingest loop. A relist is one observation; events come in batches.
const OBSERVATIONS: usize = 16;
/// Time for runs under way to end at shutdown; after it they are dropped. A shutdown takes
/// less than the promised total of 10 s, and far less than Kubernetes' default grace period of 30 s.
const DRAIN: Duration = Duration::from_secs(8);
/// The same of a host that another replica waits for, which runs the keys again.
const DRAIN_BEFORE_HANDOVER: Duration = Duration::from_millis(500);
/// Time for the journal's last entries, after [`DRAIN`].
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
    leadership: Option<Arc<Leadership>>,
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
        start::start_on(options, EngineOptions::default()).await
    }

    /// Like [`App::start`], for a simulation on one thread under paused time. Only fuel limits and interleaves runs,
    /// so results do not depend on the machine's speed: the same seed leads to the same writes.
    ///
    /// # Errors
    /// See [`App::start`].
    pub async fn start_simulated(options: Options) -> anyhow::Result<Self> {
        start::start_on(options, EngineOptions { tick: None, ..EngineOptions::default() }).await
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
        let follower = follower.beside(&self.counters);
        let counters = self.counters.clone();
        let sending = self.writeback.clone();
        let releases = cleanup::Releases::default();
        let status = object_status::StatusTask {
            api: self.api.clone(),
            known: follower.known(),
            driver: self.driver.clone(),
            status: self.status.clone(),
            observed: self.observed.clone(),
            removals: self.removals.clone(),
            releases: releases.clone(),
            clock: self.dispatch.clock.clone(),
        };
        let cleanup = cleanup::Cleanup {
            api: self.api.clone(),
            known: follower.known(),
            driver: self.driver.clone(),
            dispatch: self.dispatch.clone(),
            account: self.cleanup_account.clone(),
            undecoded: Box::new(move |namespace| counters.undecoded(namespace) > 0),
            turn: Semaphore::new(1),
            removals: self.removals.clone(),
            holding: cleanup::Holding::default(),
            releases,
            forbidden: Box::new(move || {
                let mut forbidden = cleanup::Forbidden::new();
                for ClosedKind { manager, namespace, only, verb, resource, .. } in sending.closed_kinds() {
                    if let (Some(namespace), None, "patch", "pods") = (namespace, only, verb, &*resource) {
                        forbidden.entry(manager).or_default().insert(namespace);
                    }
                }
                forbidden
            }),
        };
        let reports = run_reports::RunReports {
            api: self.api.clone(),
            namespace: namespace.map(str::to_owned),
            driver: self.driver.clone(),
            observed: self.observed.clone(),
            clock: self.dispatch.clock.clone(),
            seed: self.seed,
        };
        self.observed.watchdog.watch(follower.watched());
        self.services.spawn(reports.run());
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
        for (plugin, pods) in self.driver.note_absent() {
            tracing::warn!(%plugin, pods, "plugin in the journal is not loaded; its entries are kept for a week");
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

    /// Returns the plugins that may concern a Pod, as `/debug/pods/{namespace}/{name}` does.
    #[must_use]
    pub fn pod_runs(&self, namespace: &str, name: &str, plugin: Option<&str>) -> Option<PodRuns> {
        self.observed.pod_runs(namespace, name, plugin, true)
    }

    /// Returns the latest runs of a plugin, as `/debug/plugins/{name}` does.
    #[must_use]
    pub fn plugin_runs(&self, plugin: &str) -> Option<PluginRuns> {
        self.observed.plugin_runs(plugin)
    }

    /// Returns the runs of all plugins that ended after the one of this number, the earliest first.
    #[must_use]
    pub fn runs_since(&self, number: u64) -> Vec<Run> {
        self.observed.runs_since(number)
    }

    /// Returns the names of the plugins that run on Pods of the namespace, and that a change of a Pod does not wake.
    #[must_use]
    pub fn unconcerned(&self, change: &Change) -> Vec<String> {
        self.observed.unconcerned(change)
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

    /// Starts no new runs. Runs under way finish and send what they staged; after 8 s, or with a Lease after 500 ms,
    /// they are dropped. Then the Lease is released, and the other tasks stop.
    pub async fn shutdown(mut self) {
        self.progress.send_replace(Phase::Draining);
        let standby = self.leadership.as_ref().filter(|leadership| !leadership.leads());
        if let Some(leadership) = standby {
            leadership.hand_over().await;
        }
        let holder = self.leadership.as_ref().filter(|_| standby.is_none());
        self.dispatch.queue.close();
        let drained = async {
            while self.workers.join_next().await.is_some() {}
            self.deliveries.join().await;
        };
        let drain = holder.map_or(DRAIN, |_| DRAIN_BEFORE_HANDOVER);
        if tokio::time::timeout(drain, drained).await.is_err() {
            tracing::warn!(seconds = drain.as_secs_f32(), "runs did not end before the drain timeout; dropping them");
            self.workers.shutdown().await;
            drop(self.deliveries);
        }
        if let Some(leadership) = holder {
            leadership.hand_over().await;
        }
        self.stop.cancel();
        // The journal's last entries. The timeout bounds the wait for a disk that does not answer.
        let kept = async { while self.state_tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_ENTRIES, kept).await.is_err() {
            tracing::warn!("last journal entries not written: the disk does not respond");
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
