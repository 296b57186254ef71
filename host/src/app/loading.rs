//! Loads plugins from their files into the registry, two at a time and one of each tenant. It retries with back-off a
//! load that failed for a reason that may pass, and removes a plugin whose new configuration permits less and cannot be
//! loaded.
//!
//! A new version of code or `config` is tried beside the one that runs, see `swap`.
//!
//! Every plugin is compared with the platform's policy here, before its component is read. `runtime` decides which
//! components are accepted.

mod failure;
mod hold;
mod image;
mod swap;
mod turns;

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use parking_lot::Mutex;
use podium_config::Problem;
use podium_engine::ingest::IngestHandle;
use podium_engine::{
    backoff::Backoff,
    dispatch::{Dispatch, Lane, LoadedPlugin},
    journal::Journal,
    ports::{Reconcile, Sender},
    status::{LoadState, PluginState, Status},
};
use podium_pods::model::{LimitClass, PluginId, PluginSpec, Source, text};
use swap::{Predecessor, Swap, Trial};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};
use tracing::field;
use turns::Turns;

pub use failure::LoadFailure;
use image::{Fetched, Image};

use crate::{
    api::Api,
    config::{
        Policy,
        file::{self, FileError},
    },
    images::Images,
    objects::{ConfigMapKey, Step, config_map, sha256},
    runtime::{DEFAULT_TENANT_CODE_BYTES, Engine, LoadError, LoadProblem, max_component_bytes},
    writeback::manager_name,
};

/// The waits between attempts, without jitter. With the longest wait, a component that takes all of its 60 s to compile
/// uses at most a fifth of a processor.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(300) };

/// Components that are read and compiled at the same time, so that a slow one does not delay those of other tenants.
/// Each may take 1 or 2 GiB in the compiler's process.
const CONCURRENT_LOADS: usize = 2;
/// Components that are fetched or wait, fetched, for their compilation; each has up to 32 MiB.
const CONCURRENT_FETCHES: usize = 4;

/// A plugin that was checked and compiled, and does not run yet.
#[must_use]
pub struct Prepared {
    spec: PluginSpec,
    /// The number of the load.
    number: u64,
    /// `None` for a suspended plugin.
    component: Option<Component>,
    /// `None` for a suspended plugin, whose component is not read.
    plugin: Option<Arc<dyn Reconcile>>,
    swap: Swap,
}

/// A component that was compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Component {
    /// The SHA-256 in hexadecimal digits.
    pub(super) sha256: String,
    /// Its imports, such as `podium:reconcile/writes@0.1.0.label`.
    pub(super) imports: Vec<String>,
    /// `None` if it is not from a registry.
    pub(super) image: Option<Image>,
}

/// The version that was installed last, and the failure since.
#[derive(Debug, Clone, Default)]
pub(super) struct Outcome {
    /// `None` if no version runs.
    pub(super) active: Option<Active>,
    /// `None` if the latest load succeeded.
    pub(super) failure: Option<Failed>,
    /// The active version replaced another one, and no Pod was there to try it on before.
    pub(super) unprobed: bool,
}

/// The version of a plugin that runs.
#[derive(Debug, Clone)]
pub(super) struct Active {
    /// The number of the load that installed it.
    pub(super) number: u64,
    pub(super) component: Component,
}

/// A load that failed.
#[derive(Debug, Clone)]
pub(super) struct Failed {
    pub(super) number: u64,
    pub(super) step: Step,
    /// In CamelCase.
    pub(super) reason: &'static str,
    /// Escaped.
    pub(super) message: String,
}

/// The platform's requirements for every plugin.
#[derive(Default)]
pub(super) struct Rules {
    /// `None` permits everything.
    pub(super) policy: Option<Policy>,
    pub(super) require_service_account: bool,
}

/// How components are fetched and compiled.
pub(super) struct Preparation {
    /// Fetches components from the API server.
    pub(super) api: Api,
    /// Fetches components from registries. With `None` there are none.
    pub(super) images: Option<Images>,
    /// See [`Loader::simulated`].
    pub(super) simulated: bool,
}

/// The parts of the host that loading and unloading a plugin concern.
pub(super) struct Loader {
    pub(super) engine: Arc<Engine>,
    pub(super) dispatch: Arc<Dispatch>,
    pub(super) status: Arc<Status>,
    pub(super) ingest_handle: IngestHandle,
    pub(super) journal: Option<Arc<Journal>>,
    rules: Rules,
    /// Fetches components from the API server.
    api: Api,
    /// Fetches components from registries.
    images: Option<Images>,
    /// Compiles on the caller's thread. Otherwise other runs would continue for as long as the compiler takes in real
    /// time.
    simulated: bool,
    pending: Arc<Mutex<PendingLoads>>,
    pending_changed: Notify,
    /// Held while a plugin is installed or removed, which waits for the ingest loop's answer. Otherwise a concurrent
    /// unload could remove a part of a load from the registry, the queue or the journal. Not held while a component is
    /// compiled.
    changing: tokio::sync::Mutex<()>,
    /// One of them is held while a component is read and compiled.
    turns: Arc<Turns>,
    /// One of them is held from before a component is fetched until it is compiled.
    fetches: Arc<Turns>,
    /// By configured plugin.
    outcomes: Mutex<BTreeMap<PluginId, Outcome>>,
    /// The versions that come back if the trial of those that replaced them fails.
    predecessors: Mutex<BTreeMap<PluginId, Predecessor>>,
    /// The uids of objects that need the host's finalizer before their plugins are loaded.
    unheld: Mutex<BTreeMap<PluginId, String>>,
    /// Trials that nothing waits for yet.
    begun: Mutex<Vec<Trial>>,
}

/// Loads that have not succeeded yet and are not refused.
#[derive(Default)]
struct PendingLoads {
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
    /// The number of the load, as in [`PendingLoads::current`].
    number: u64,
}

impl Loader {
    pub(super) fn new(
        engine: Arc<Engine>,
        dispatch: Arc<Dispatch>,
        status: Arc<Status>,
        ingest_handle: IngestHandle,
        journal: Option<Arc<Journal>>,
        rules: Rules,
        preparation: Preparation,
    ) -> Self {
        let Preparation { api, images, simulated } = preparation;
        let (pending, pending_changed, changing, outcomes) = <_>::default();
        let (predecessors, begun, unheld) = <_>::default();
        let (turns, fetches) = (Turns::new(CONCURRENT_LOADS), Turns::new(CONCURRENT_FETCHES));
        Self {
            engine,
            dispatch,
            status,
            ingest_handle,
            journal,
            rules,
            api,
            images,
            simulated,
            pending,
            pending_changed,
            changing,
            turns,
            fetches,
            outcomes,
            predecessors,
            begun,
            unheld,
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

    /// Ends the runs of the version that runs, if a new configuration does not permit everything that it may do. Done
    /// before the new version is built or compiled, which takes time and may fail.
    pub(super) fn restrict(&self, spec: &PluginSpec) {
        if self.dispatch.registry.restrict(spec) {
            let file = spec.source.to_string();
            tracing::info!(plugin = %spec.id, %file, "runs ended: the new configuration permits less");
        }
    }

    /// Reads, checks and compiles a plugin, and plans another attempt when that fails for a reason that may pass.
    pub(super) async fn prepare(&self, spec: PluginSpec) -> Result<Prepared, LoadFailure> {
        let number = self.begin(&spec).await;
        self.first_attempt(spec, number).await
    }

    /// Begins the load of a plugin, and supersedes an earlier one that has not ended. Returns the number of the load.
    pub(super) async fn begin(&self, spec: &PluginSpec) -> u64 {
        let _changing = self.changing.lock().await;
        self.end_trial(&spec.id);
        self.restrict(spec);
        self.expect(&spec.id);
        self.pending.lock().begin(&spec.id)
    }

    /// Continues the load that [`Self::begin`] began: installs the plugin, or logs why it is not loaded and plans
    /// another attempt. A load that was superseded or whose plugin was unloaded meanwhile changes nothing.
    pub(super) async fn load(&self, spec: PluginSpec, number: u64) {
        let id = spec.id.clone();
        match self.first_attempt(spec, number).await {
            Ok(prepared) => self.install_if(prepared, |pending| pending.is_current(&id, number)).await,
            Err(failure) => {
                let (retry, error) = (failure.is_passing(), failure.to_string());
                tracing::error!(plugin = %id, retry, error, "plugin not loaded");
            }
        }
    }

    /// Records that the configuration of a plugin has mistakes. A version that runs continues only if it is known that
    /// the configuration permits everything that the version may do. Returns the number of the load.
    pub(super) async fn refuse(&self, id: &PluginId, permissions: Option<&PluginSpec>, mistakes: Vec<Problem>) -> u64 {
        let _changing = self.changing.lock().await;
        self.end_trial(id);
        if let Some(spec) = permissions {
            self.restrict(spec);
        }
        let number = self.pending.lock().begin(id);
        let failure = LoadFailure::Mistaken(mistakes);
        let error = failure.to_string();
        tracing::error!(plugin = %id, error, "plugin not loaded");
        let goes_on = |running: Arc<LoadedPlugin>| permissions.is_some_and(|spec| spec.permits(&running.spec));
        let goes_on = self.running(id).is_some_and(goes_on);
        self.pending.lock().forget(id);
        self.status.set_load(id, LoadState::Refused { reason: error }, goes_on);
        self.record(id, number, &failure);
        if !goes_on && self.take_out(id).await {
            tracing::warn!(plugin = %id, "plugin stopped: its new configuration has mistakes and may permit less");
        }
        number
    }

    /// Returns which version runs, and why a later one does not.
    pub(super) fn outcome(&self, id: &PluginId) -> Outcome {
        let outcome = self.outcomes.lock().get(id).cloned().unwrap_or_default();
        Outcome { active: outcome.active.filter(|_| self.running(id).is_some()), ..outcome }
    }

    fn record(&self, id: &PluginId, number: u64, failure: &LoadFailure) {
        let (step, reason) = failure.step();
        let message = text::line(&failure.to_string());
        self.outcomes.lock().entry(id.clone()).or_default().failure = Some(Failed { number, step, reason, message });
    }

    async fn first_attempt(&self, spec: PluginSpec, number: u64) -> Result<Prepared, LoadFailure> {
        let attempt = self.attempt(spec.clone(), number).await;
        if let Err(failure) = &attempt {
            self.failed(spec, 1, number, failure).await;
        }
        attempt
    }

    async fn attempt(&self, spec: PluginSpec, number: u64) -> Result<Prepared, LoadFailure> {
        if self.rules.require_service_account && spec.impersonate.is_none() {
            return Err(LoadFailure::WithoutAccount);
        }
        let problems = self.rules.policy.as_ref().map_or_else(Vec::new, |policy| policy.problems(&spec));
        if !problems.is_empty() {
            return Err(LoadFailure::Forbidden(problems));
        }
        if let Some(most) = self.dispatch.queue.most_of_a_job().filter(|most| spec.limits.memory_bytes as u64 > *most) {
            return Err(LoadFailure::OverMemory { mib: spec.limits.memory_bytes >> 20, most_mib: most >> 20 });
        }
        if spec.suspend {
            return Ok(Prepared { spec, number, component: None, plugin: None, swap: Swap::Direct });
        }
        self.hold(&spec).await?;
        let own = spec.id.namespace.is_none().then(|| spec.id.name.clone());
        let taker = (spec.tenant(), own);
        let fetching = match spec.source.file() {
            Some(_) => None,
            None => Some(self.fetches.take(taker.clone()).await),
        };
        let fetched = self.fetched(&spec).await?;
        let _turn = self.turns.take(taker).await;
        drop(fetching);
        let engine = self.engine.clone();
        let policy = self.rules.policy.as_ref().and_then(|policy| policy.compiled_code_bytes(&spec.tenant()));
        let code_bytes = policy.unwrap_or(DEFAULT_TENANT_CODE_BYTES);
        let compile = move || {
            let in_file = || component(spec.source.file().unwrap_or(Path::new("")), spec.limits.class);
            let Fetched { bytes: wasm, image } = match fetched {
                Some(fetched) => fetched,
                None => Fetched { bytes: in_file()?.into(), image: None },
            };
            let plugin = engine.compile_within(&spec, &wasm, code_bytes)?;
            let component = Component { sha256: sha256(&wasm), imports: plugin.imports(), image };
            let plugin: Option<Arc<dyn Reconcile>> = Some(Arc::new(plugin));
            Ok(Prepared { spec, number, component: Some(component), plugin, swap: Swap::Direct })
        };
        let compiled = if self.simulated {
            compile()
        } else {
            let compiled = tokio::task::spawn_blocking(compile).await;
            compiled.unwrap_or_else(|error| Err(LoadFailure::Panicked(error.to_string())))
        };
        // In the same turn: the memory of a few runs is less than the compiler's, which has ended.
        self.probed(compiled?).await
    }

    /// Fetches the component; `None` for one in a file, which is read where blocking is allowed.
    async fn fetched(&self, spec: &PluginSpec) -> Result<Option<Fetched>, LoadFailure> {
        match &spec.source {
            Source::File(_) => Ok(None),
            Source::ConfigMap { namespace, name, key, sha256 } => {
                let sender = Sender { manager: manager_name(&spec.id), impersonate: spec.impersonate.clone() };
                let limit = max_component_bytes(spec.limits.class);
                let source = ConfigMapKey { namespace, name, key, sha256 };
                let bytes = config_map(&self.api, &sender, source, limit).await?.into();
                Ok(Some(Fetched { bytes, image: None }))
            }
            Source::Oci { image, pull_secret } => Ok(Some(self.image(spec, image, pull_secret.as_ref()).await?)),
        }
    }

    /// Records a failed attempt of a load, unless a later load or an unload has replaced the load. A version that runs
    /// continues only if the new configuration permits everything that the version may do.
    async fn failed(&self, spec: PluginSpec, attempts: u32, number: u64, failure: &LoadFailure) {
        let _changing = self.changing.lock().await;
        if !self.is_current(&spec.id, number) {
            return;
        }
        let (id, file) = (spec.id.clone(), spec.source.to_string());
        let goes_on = self.running(&id).is_some_and(|running| spec.permits(&running.spec));
        let reason = failure.to_string();
        let state = if failure.is_passing() {
            self.try_later(spec, attempts, number, failure.retry_after());
            LoadState::Waiting { reason, attempts }
        } else {
            self.pending.lock().forget(&id);
            LoadState::Refused { reason }
        };
        self.status.set_load(&id, state, goes_on);
        self.record(&id, number, failure);
        if !goes_on && self.take_out(&id).await {
            tracing::warn!(
                plugin = %id,
                %file,
                "plugin stopped: its new configuration permits less than the version that ran, and could not be loaded"
            );
        }
    }

    fn try_later(&self, spec: PluginSpec, attempts: u32, number: u64, at_least: Duration) {
        let due = Instant::now() + BACKOFF.doubled(attempts).max(at_least);
        let waiting = Waiting { attempts, due, number, spec };
        self.pending.lock().waiting.insert(waiting.spec.id.clone(), waiting);
        self.pending_changed.notify_one();
    }

    /// Retries waiting loads when they are due, and waits for the ends of trials; never returns. A slow attempt delays
    /// no other.
    pub(super) async fn retry(self: Arc<Self>) -> anyhow::Result<()> {
        let (mut attempts, mut trials) = (FuturesUnordered::new(), FuturesUnordered::new());
        loop {
            let next = self.pending.lock().waiting.values().map(|waiting| waiting.due).min();
            let due = async {
                match next {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(()) = attempts.next() => {}
                Some(()) = trials.next() => {}
                () = self.pending_changed.notified() => {
                    let begun = std::mem::take(&mut *self.begun.lock());
                    trials.extend(begun.into_iter().map(|trial| self.follow(trial)));
                }
                () = due => {
                    let due = self.pending.lock().take_due(Instant::now());
                    attempts.extend(due.into_iter().map(|waiting| self.retry_one(waiting)));
                }
            }
        }
    }

    async fn retry_one(&self, waiting: Waiting) {
        let Waiting { spec, attempts, number, .. } = waiting;
        let attempt = self.attempt(spec.clone(), number).await;
        if !self.is_current(&spec.id, number) {
            return;
        }
        match attempt {
            Ok(prepared) => self.install_if(prepared, |pending| pending.is_current(&spec.id, number)).await,
            Err(failure) => {
                let attempts = attempts.saturating_add(1);
                let (plugin, file, error) = (&spec.id, spec.source.to_string(), failure.to_string());
                if failure.is_passing() {
                    let seconds = BACKOFF.doubled(attempts).as_secs();
                    tracing::warn!(%plugin, %file, attempts, seconds, error, "plugin not loaded, to be retried");
                } else {
                    tracing::error!(%plugin, %file, attempts, error, "plugin not loaded");
                }
                self.failed(spec, attempts, number, &failure).await;
            }
        }
    }

    fn is_current(&self, id: &PluginId, number: u64) -> bool {
        self.pending.lock().is_current(id, number)
    }

    /// Installs a plugin, which then runs on every Pod that it watches, and replaces the plugin of its name. If the new
    /// plugin is suspended, the old one is removed.
    pub(super) async fn install(&self, prepared: Prepared) {
        self.install_if(prepared, |_| true).await;
    }

    /// Installs a plugin if `wanted`, under one lock, so that a plugin that was unloaded meanwhile stays unloaded.
    async fn install_if(&self, prepared: Prepared, wanted: impl FnOnce(&PendingLoads) -> bool) {
        let Prepared { spec, number, component, plugin, swap } = prepared;
        let id = spec.id.clone();
        let file = spec.source.to_string();
        let image = component.as_ref().and_then(|component| component.image.clone());
        let remembered = image.map(|image| (spec.clone(), image));
        let lane = {
            let _changing = self.changing.lock().await;
            {
                let mut pending = self.pending.lock();
                if !wanted(&pending) {
                    return;
                }
                pending.forget(&id);
            }
            self.end_trial(&id);
            let Some(plugin) = plugin else {
                self.take_out(&id).await;
                self.status.set_load(&id, LoadState::Suspended, false);
                self.outcomes.lock().insert(id.clone(), Outcome::default());
                tracing::info!(plugin = %id, %file, "plugin suspended");
                return;
            };
            let before = self.predecessor(&spec, swap);
            let active = component.map(|component| Active { number, component });
            let unprobed = swap == Swap::Tried { pods: 0 };
            self.outcomes.lock().insert(id.clone(), Outcome { active, failure: None, unprobed });
            let lane = self.put(spec, plugin);
            if let Some(before) = before {
                self.begin_trial(&id, number, lane, before);
            }
            lane
        };
        self.ingest_handle.plugins_changed(Some(lane)).await;
        if let Some((spec, image)) = remembered {
            self.remember(&spec, &image).await;
        }
        tracing::info!(plugin = %id, %file, "plugin loaded");
    }

    fn put(&self, spec: PluginSpec, plugin: Arc<dyn Reconcile>) -> Lane {
        let sender = Sender { manager: manager_name(&spec.id), impersonate: spec.impersonate.clone() };
        let status = self.status.plugin(&spec.id);
        let entries = self.journal.as_ref().map(|journal| journal.plugin_entries(&spec.id));
        self.status.set_load(&spec.id, LoadState::Loaded, true);
        if let Some(policy) = &self.rules.policy {
            self.dispatch.registry.set_rates(spec.tenant(), policy.request_rates(&spec.tenant()));
        }
        let lane = self.dispatch.registry.put(spec, plugin, sender, status, entries);
        self.dispatch.queue.claim_changed(lane);
        lane
    }

    /// Unloads a plugin and stops its retries. Returns false if there was neither a plugin nor a retry.
    pub(super) async fn unload(&self, id: &PluginId) -> bool {
        let _changing = self.changing.lock().await;
        self.end_trial(id);
        let waited = self.pending.lock().forget(id);
        let is_suspended = |plugin: &PluginState| plugin.id == *id && plugin.load == LoadState::Suspended;
        let suspended = self.plugins().iter().any(is_suspended);
        let file = self.running(id).map(|running| running.spec.source.to_string());
        let ran = self.take_out(id).await;
        self.status.remove(id);
        self.outcomes.lock().remove(id);
        if ran || suspended {
            tracing::info!(plugin = %id, file = file.map(field::display), "plugin unloaded");
        }
        ran || suspended || waited
    }

    /// Removes a plugin and ends its runs. The caller holds [`Self::changing`].
    async fn take_out(&self, id: &PluginId) -> bool {
        let Some(lane) = self.dispatch.registry.remove(id) else { return false };
        self.ingest_handle.plugins_changed(None).await;
        self.dispatch.forget(lane);
        if let Some(journal) = &self.journal {
            journal.absent(id, self.dispatch.clock.now_millis());
        }
        true
    }

    /// The version that runs. One whose permissions were revoked does not, and never will again.
    fn running(&self, id: &PluginId) -> Option<Arc<LoadedPlugin>> {
        self.dispatch.registry.by_id(id).filter(|loaded| !loaded.is_revoked())
    }
}

impl PendingLoads {
    /// Supersedes an earlier load of the plugin.
    fn begin(&mut self, id: &PluginId) -> u64 {
        self.made += 1;
        self.waiting.remove(id);
        self.current.insert(id.clone(), self.made);
        self.made
    }

    /// Removes the attempts that are due from those that wait. Their loads stay the current ones.
    fn take_due(&mut self, now: Instant) -> Vec<Waiting> {
        self.waiting.extract_if(.., |_, waiting| waiting.due <= now).map(|(_, waiting)| waiting).collect()
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

/// The component's bytes from a file, at most as many as its class may have.
fn component(path: &Path, class: LimitClass) -> Result<Vec<u8>, LoadFailure> {
    file::read(path, max_component_bytes(class) as u64).map_err(|error| match error {
        FileError::TooLarge { bytes, .. } => {
            let problem = Box::new(LoadProblem::too_large(bytes, class));
            LoadFailure::Refused(LoadError { file: path.to_owned(), problem })
        }
        error => LoadFailure::Unreadable { path: text::path(path), error },
    })
}

#[cfg(test)]
pub(super) mod tests;
