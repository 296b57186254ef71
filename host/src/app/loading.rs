//! Plugins from their files to the registry: two at a time, again with back-off when an attempt failed for a reason
//! that may pass, and out of it when a new configuration permits less.
//!
//! Nothing here decides what a component may be; that is `runtime`'s. Every plugin is compared with the platform's
//! policy here, before its component is read.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use podium_config::Problem;
use podium_engine::ingest::IngestHandle;
use podium_engine::{
    backoff::Backoff,
    dispatch::{Dispatch, Lane},
    journal::Journal,
    ports::{Reconcile, Sender},
    status::{LoadState, PluginState, Status},
};
use podium_pods::model::{PluginId, PluginSpec, text};
use tokio::{
    sync::{Notify, Semaphore},
    time::{Instant, sleep_until},
};

use crate::{
    config::{
        Policy,
        file::{self, FileError},
    },
    runtime::{Engine, LoadError, LoadProblem, max_component_bytes},
    writeback::manager_name,
};

/// The waits between attempts, without jitter. The longest is so long that a component that takes all of its 60 s to
/// compile costs a fifth of a processor at most.
const RETRIES: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(300) };

/// Components that are read and compiled at the same time, so that a slow one does not delay the others. Each may take
/// 1 or 2 GiB in the compiler's process.
pub(super) const CONCURRENT_LOADS: usize = 2;

/// A plugin that was found good and does not run yet.
#[must_use]
pub struct Prepared {
    spec: PluginSpec,
    /// `None` for a suspended plugin, whose component is not read.
    plugin: Option<Arc<dyn Reconcile>>,
}

/// Why a plugin was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadFailure {
    #[error("the policy does not permit it: {}", listed(.0))]
    Forbidden(Vec<Problem>),
    #[error(
        "spec.limits.memoryMiB is {mib}, and the runs of one tenant may use {most_mib} MiB together; lower it, or raise \
         --run-memory-mib to at least {}", 2 * .mib
    )]
    OverMemory { mib: usize, most_mib: u64 },
    #[error("spec.source.file: {path} {error}")]
    Unreadable {
        /// Escaped.
        path: String,
        error: FileError,
    },
    #[error(transparent)]
    Refused(#[from] LoadError),
    #[error("the compilation did not end: {0}")]
    Panicked(String),
}

impl LoadFailure {
    /// Returns true when another attempt with the same configuration may succeed.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreadable { error: FileError::Io(_), .. } => true,
            Self::Forbidden(_) | Self::OverMemory { .. } | Self::Unreadable { .. } | Self::Panicked(_) => false,
            Self::Refused(error) => error.problem.is_passing(),
        }
    }
}

/// The parts of the host that loading and unloading a plugin concern.
pub(super) struct Loader {
    pub(super) engine: Arc<Engine>,
    pub(super) dispatch: Arc<Dispatch>,
    pub(super) status: Arc<Status>,
    pub(super) ingest_handle: IngestHandle,
    pub(super) journal: Option<Arc<Journal>>,
    /// `None` permits everything.
    pub(super) policy: Option<Policy>,
    /// Compiles on the caller's thread: beside it, runs would go on for as long as the compiler takes in real time.
    simulated: bool,
    retries: Mutex<Retries>,
    retries_changed: Notify,
    /// Held while a plugin is put in or taken out, which takes the ingest loop's answer: of what a load put in the
    /// registry, the queue and the journal an unload that is under way would take a part out again. Not held while a
    /// component is compiled.
    changing: tokio::sync::Mutex<()>,
    /// A permit of it is held while a component is read and compiled.
    turns: Semaphore,
}

#[derive(Default)]
struct Retries {
    /// By plugin, the number of the load whose attempts count: the latest one, until it succeeds or is refused and
    /// until the plugin is unloaded.
    current: BTreeMap<PluginId, u64>,
    /// Plugins whose load is to be tried again.
    waiting: BTreeMap<PluginId, Waiting>,
    /// Loads so far.
    made: u64,
}

#[derive(Clone)]
struct Waiting {
    spec: PluginSpec,
    /// Attempts that failed in a row.
    attempts: u32,
    due: Instant,
    /// Of the load, as in [`Retries::current`].
    number: u64,
}

impl Loader {
    pub(super) fn new(
        engine: Arc<Engine>,
        dispatch: Arc<Dispatch>,
        status: Arc<Status>,
        ingest_handle: IngestHandle,
        journal: Option<Arc<Journal>>,
        policy: Option<Policy>,
        simulated: bool,
    ) -> Self {
        let (retries, retries_changed, changing) = <_>::default();
        let turns = Semaphore::new(CONCURRENT_LOADS);
        Self {
            engine,
            dispatch,
            status,
            ingest_handle,
            journal,
            policy,
            simulated,
            retries,
            retries_changed,
            changing,
            turns,
        }
    }

    /// The load state of every configured plugin.
    pub(super) fn plugins(&self) -> Vec<PluginState> {
        self.status.loads()
    }

    /// Records a configured plugin before its first attempt.
    pub(super) fn expect(&self, id: &PluginId) {
        self.status.set_load(id, LoadState::Loading, self.running(id).is_some());
    }

    /// Reads, checks and compiles a plugin, and plans another attempt when that fails for a reason that may pass.
    pub(super) async fn prepare(&self, spec: PluginSpec) -> Result<Prepared, LoadFailure> {
        let number = {
            let _changing = self.changing.lock().await;
            self.expect(&spec.id);
            self.retries.lock().begin(&spec.id)
        };
        let attempt = self.attempt(spec.clone()).await;
        if let Err(failure) = &attempt {
            self.failed(spec, 1, number, failure).await;
        }
        attempt
    }

    async fn attempt(&self, spec: PluginSpec) -> Result<Prepared, LoadFailure> {
        let problems = self.policy.as_ref().map_or_else(Vec::new, |policy| policy.problems(&spec));
        if !problems.is_empty() {
            return Err(LoadFailure::Forbidden(problems));
        }
        if let Some(most) = self.dispatch.queue.most_of_a_job().filter(|most| spec.limits.memory_bytes as u64 > *most) {
            return Err(LoadFailure::OverMemory { mib: spec.limits.memory_bytes >> 20, most_mib: most >> 20 });
        }
        if spec.suspend {
            return Ok(Prepared { spec, plugin: None });
        }
        // It is never closed.
        let _turn = self.turns.acquire().await;
        let engine = self.engine.clone();
        let compile = move || {
            let plugin = Arc::new(engine.compile(&spec, &component(&spec)?)?);
            Ok(Prepared { spec, plugin: Some(plugin) })
        };
        if self.simulated {
            return compile();
        }
        tokio::task::spawn_blocking(compile).await.unwrap_or_else(|error| Err(LoadFailure::Panicked(error.to_string())))
    }

    /// Records a failed attempt of a load, unless the load was overtaken by another or by an unload. A version that
    /// runs goes on only when the new configuration permits what it may do.
    async fn failed(&self, spec: PluginSpec, attempts: u32, number: u64, failure: &LoadFailure) {
        let _changing = self.changing.lock().await;
        if !self.is_current(&spec.id, number) {
            return;
        }
        let id = spec.id.clone();
        let running = self.running(&id);
        let goes_on = running.as_ref().is_some_and(|running| spec.permits(running));
        let reason = failure.to_string();
        let state = if failure.is_passing() {
            self.try_later(spec, attempts, number);
            LoadState::Waiting { reason, attempts }
        } else {
            self.retries.lock().forget(&id);
            LoadState::Refused { reason }
        };
        self.status.set_load(&id, state, goes_on);
        if running.is_some() && !goes_on && self.take_out(&id).await {
            tracing::warn!(
                plugin = %id,
                "plugin stopped: its new configuration permits less than the version that ran, and could not be loaded"
            );
        }
    }

    fn try_later(&self, spec: PluginSpec, attempts: u32, number: u64) {
        let waiting = Waiting { attempts, due: Instant::now() + RETRIES.doubled(attempts), number, spec };
        self.retries.lock().waiting.insert(waiting.spec.id.clone(), waiting);
        self.retries_changed.notify_one();
    }

    /// Tries what waits again when it is due; never ends.
    pub(super) async fn retry(self: Arc<Self>) -> anyhow::Result<()> {
        loop {
            let next = self.retries.lock().waiting.values().min_by_key(|waiting| waiting.due).cloned();
            let Some(next) = next else {
                self.retries_changed.notified().await;
                continue;
            };
            tokio::select! {
                biased;
                () = self.retries_changed.notified() => {}
                () = sleep_until(next.due) => self.retry_one(next).await,
            }
        }
    }

    async fn retry_one(&self, waiting: Waiting) {
        let Waiting { spec, attempts, number, .. } = waiting;
        let attempt = self.attempt(spec.clone()).await;
        if !self.is_current(&spec.id, number) {
            return;
        }
        match attempt {
            Ok(prepared) => self.install_if(prepared, |retries| retries.is_current(&spec.id, number)).await,
            Err(failure) => {
                let attempts = attempts.saturating_add(1);
                if failure.is_passing() {
                    let seconds = RETRIES.doubled(attempts).as_secs();
                    let error = failure.to_string();
                    tracing::warn!(plugin = %spec.id, attempts, seconds, error, "plugin not loaded, to be retried");
                } else {
                    tracing::error!(plugin = %spec.id, attempts, error = failure.to_string(), "plugin not loaded");
                }
                self.failed(spec, attempts, number, &failure).await;
            }
        }
    }

    fn is_current(&self, id: &PluginId, number: u64) -> bool {
        self.retries.lock().is_current(id, number)
    }

    /// Sets a plugin to work on every Pod that it watches, in the place of one of that name. With a suspended plugin,
    /// the one of its name is taken out.
    pub(super) async fn install(&self, prepared: Prepared) {
        self.install_if(prepared, |_| true).await;
    }

    /// Looks and installs in one step, so that nothing that was unloaded meanwhile comes back.
    async fn install_if(&self, prepared: Prepared, wanted: impl FnOnce(&Retries) -> bool) {
        let Prepared { spec, plugin } = prepared;
        let id = spec.id.clone();
        let file = spec.source.clone();
        let lane = {
            let _changing = self.changing.lock().await;
            {
                let mut retries = self.retries.lock();
                if !wanted(&retries) {
                    return;
                }
                retries.forget(&id);
            }
            let Some(plugin) = plugin else {
                self.take_out(&id).await;
                self.status.set_load(&id, LoadState::Suspended, false);
                tracing::info!(plugin = %id, "plugin suspended");
                return;
            };
            self.put(spec, plugin)
        };
        self.ingest_handle.plugins_changed(Some(lane)).await;
        tracing::info!(plugin = %id, file = %text::path(&file), "plugin loaded");
    }

    fn put(&self, spec: PluginSpec, plugin: Arc<dyn Reconcile>) -> Lane {
        let sender = Sender { manager: manager_name(&spec.id), impersonate: spec.impersonate.clone() };
        let status = self.status.plugin(&spec.id);
        let account = self.journal.as_ref().map(|journal| journal.account(&spec.id));
        self.status.set_load(&spec.id, LoadState::Loaded, true);
        self.dispatch.registry.put(spec, plugin, sender, status, account)
    }

    /// Takes a plugin out and forgets it, also one that was not loaded yet. Returns false when there was none.
    pub(super) async fn unload(&self, id: &PluginId) -> bool {
        let _changing = self.changing.lock().await;
        let waited = self.retries.lock().forget(id);
        let is_suspended = |plugin: &PluginState| plugin.id == *id && plugin.load == LoadState::Suspended;
        let suspended = self.plugins().iter().any(is_suspended);
        let ran = self.take_out(id).await;
        self.status.remove(id);
        if ran || suspended {
            tracing::info!(plugin = %id, "plugin unloaded");
        }
        ran || suspended || waited
    }

    /// Takes a plugin out; its runs under way end as they are. To be called under [`Self::changing`].
    async fn take_out(&self, id: &PluginId) -> bool {
        let Some(lane) = self.dispatch.registry.remove(id) else { return false };
        self.ingest_handle.plugins_changed(None).await;
        self.dispatch.queue.remove_lane(lane);
        self.dispatch.expectations.forget_lane(lane);
        if let Some(journal) = &self.journal {
            journal.absent(id, self.dispatch.clock.now_millis());
        }
        true
    }

    /// The configuration of the version that runs.
    fn running(&self, id: &PluginId) -> Option<PluginSpec> {
        let all = self.dispatch.registry.all();
        all.iter().find(|loaded| loaded.spec.id == *id).map(|loaded| loaded.spec.clone())
    }
}

impl Retries {
    /// Overtakes an earlier load of the plugin.
    fn begin(&mut self, id: &PluginId) -> u64 {
        self.made += 1;
        self.waiting.remove(id);
        self.current.insert(id.clone(), self.made);
        self.made
    }

    fn is_current(&self, id: &PluginId, number: u64) -> bool {
        self.current.get(id) == Some(&number)
    }

    /// Ends the load of a plugin. Returns false if none is under way.
    fn forget(&mut self, id: &PluginId) -> bool {
        self.waiting.remove(id);
        self.current.remove(id).is_some()
    }
}

fn listed(problems: &[Problem]) -> String {
    let line = |problem: &Problem| format!("{} {}", problem.field, problem.message);
    problems.iter().map(line).collect::<Vec<_>>().join("; ")
}

/// The component's bytes, at most as many as its class may have.
fn component(spec: &PluginSpec) -> Result<Vec<u8>, LoadFailure> {
    let limit = max_component_bytes(spec.limits.class);
    file::read(&spec.source, limit as u64).map_err(|error| match error {
        FileError::TooLarge { bytes, .. } => {
            let problem = Box::new(LoadProblem::too_large(bytes, spec.limits.class));
            LoadFailure::Refused(LoadError { file: spec.source.clone(), problem })
        }
        error => LoadFailure::Unreadable { path: text::path(&spec.source), error },
    })
}

#[cfg(test)]
mod tests;
