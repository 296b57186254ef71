//! Loads plugins from their files into the registry, two at a time and one of each tenant. It retries with back-off a
//! load that failed for a reason that may pass, and removes a plugin whose new configuration permits less and cannot be
//! loaded.
//!
//! A new version of code or `config` is tried beside the one that runs, see `swap`.
//!
//! Every plugin is compared with the platform's policy here, before its component is read. `runtime` decides which
//! components are accepted.

mod attempt;
mod disk;
mod failure;
mod hold;
mod image;
mod pending;
mod record;
mod retry;
mod swap;
mod turns;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use pending::PendingLoads;
use podium_config::Problem;
use podium_engine::{
    dispatch::{Dispatch, Lane, LoadedPlugin},
    ingest::IngestHandle,
    journal::Journal,
    ports::{Reconcile, Sender},
    status::{LoadState, PluginState, Status},
};
use podium_registry::Reference;
use podium_vocabulary::{PluginId, PluginSpec, text};
use swap::{Predecessor, Swap, Trial};
use tokio::sync::Notify;
use tracing::field;
pub(super) use turns::{Taker, Turns};

use attempt::From;
pub(super) use disk::Disk;
pub use failure::LoadFailure;
use hold::Holds;
pub(super) use record::OfObject;
use record::Recorded;

use super::objects::Began;
use crate::{
    api::Api,
    config::Policy,
    images::{Images, Tried},
    objects::Step,
    runtime::Engine,
    writeback::manager_name,
};

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
    /// With the digest of its manifest; `None` if it is not from a registry.
    pub(super) image: Option<Reference>,
    /// Why the bytes of the disk run although their place was asked, if they do. Escaped.
    pub(super) stored: Option<String>,
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
    /// The object that it is of, if it ran before the host was started.
    pub(super) restored: Option<Began>,
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
    /// With `None`, a restart fetches all components, and runs what the specs say.
    pub(super) store: Option<Disk>,
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
    /// Components and records of objects on disk.
    store: Option<Disk>,
    /// Compiles on the caller's thread. Otherwise other runs would continue for as long as the compiler takes in real
    /// time.
    simulated: bool,
    pending: Arc<Mutex<PendingLoads>>,
    /// Held while a change is decided and made in memory, so that concurrent loads and unloads of a plugin do not mix.
    /// Nothing is awaited meanwhile: what follows a change, on disk or in the ingest loop, comes after it.
    changing: Mutex<()>,
    /// One of them is held while a component is read and compiled.
    turns: Arc<Turns>,
    /// One of them is held from before a component is fetched until it is compiled.
    fetches: Arc<Turns>,
    /// By configured plugin.
    outcomes: Mutex<BTreeMap<PluginId, Outcome>>,
    /// The versions that come back if the trial of those that replaced them fails.
    predecessors: Mutex<BTreeMap<PluginId, Predecessor>>,
    /// The objects of plugins.
    objects: Mutex<BTreeMap<PluginId, Recorded>>,
    holds: Holds,
    /// Trials that no task follows yet.
    begun: Mutex<Vec<Trial>>,
    /// Plugins whose records may differ from those on disk.
    unsaved: Mutex<BTreeSet<PluginId>>,
    /// Notifies [`Self::run`] of a load to retry, a trial or a record.
    work: Notify,
}

/// A plugin that was taken out of the registry, and is still in the queue and in the journal.
#[must_use]
pub(super) struct Removed {
    id: PluginId,
    lane: Lane,
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
        let Preparation { api, images, store, simulated } = preparation;
        let (pending, changing, outcomes, predecessors) = <_>::default();
        let (begun, objects, holds, unsaved, work) = <_>::default();
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
            store,
            simulated,
            pending,
            changing,
            turns,
            fetches,
            outcomes,
            predecessors,
            objects,
            holds,
            begun,
            unsaved,
            work,
        }
    }

    /// Returns the platform's policy.
    pub(super) fn policy(&self) -> Option<&Policy> {
        self.rules.policy.as_ref()
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
        let number = self.begin(&spec, None);
        self.first_attempt(spec, number).await
    }

    /// Begins the load of a plugin, of an object or a file, and supersedes an earlier one that has not ended. Runs
    /// that the new configuration does not permit have ended when this returns. Returns the number of the load.
    pub(super) fn begin(&self, spec: &PluginSpec, of: Option<OfObject>) -> u64 {
        let _changing = self.changing.lock();
        self.of_object(&spec.id, of);
        self.end_trial(&spec.id);
        self.restrict(spec);
        self.expect(&spec.id);
        self.pending.lock().begin(&spec.id)
    }

    /// Continues the load that [`Self::begin`] began: installs the plugin, or logs why it is not loaded and plans
    /// another attempt. A load that was superseded or whose plugin was unloaded meanwhile changes nothing.
    pub(super) async fn load(&self, spec: PluginSpec, number: u64) {
        let id = spec.id.clone();
        let attempt = match self.restored(&spec, number).await {
            Some(failure) => {
                self.failed(spec, 1, number, &failure).await;
                Err(failure)
            }
            None => self.first_attempt(spec, number).await,
        };
        match attempt {
            Ok(prepared) => self.install_if(prepared, |pending| pending.is_current(&id, number)).await,
            Err(LoadFailure::Superseded) => {}
            Err(failure) => {
                let (retry, error) = (failure.is_passing(), failure.to_string());
                tracing::error!(plugin = %id, retry, error, "plugin not loaded");
            }
        }
    }

    /// Records that the configuration of a plugin has mistakes. A version that runs continues only if it is known that
    /// the configuration permits everything that the version may do. Returns the number of the load, and the version
    /// that was removed, for [`Self::forget`].
    pub(super) fn refuse(
        &self,
        id: &PluginId,
        permissions: Option<&PluginSpec>,
        mistakes: Vec<Problem>,
    ) -> (u64, Option<Removed>) {
        let _changing = self.changing.lock();
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
        let removed = if goes_on { None } else { self.take_out(id) };
        if removed.is_some() {
            tracing::warn!(plugin = %id, "plugin stopped: its new configuration has mistakes and may permit less");
            self.note_stopped(id);
            self.save_record(id);
        }
        (number, removed)
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
        let attempt = self.attempt(spec.clone(), number, From::Source).await;
        if let Err(failure) = &attempt {
            self.failed(spec, 1, number, failure).await;
        }
        attempt
    }

    /// Records a failed attempt of a load, unless a later load or an unload has replaced the load. A version that runs
    /// continues only if the new configuration permits everything that the version may do.
    async fn failed(&self, spec: PluginSpec, attempts: u32, number: u64, failure: &LoadFailure) {
        let removed = self.note_failed(spec, attempts, number, failure);
        self.forget(removed).await;
    }

    fn note_failed(&self, spec: PluginSpec, attempts: u32, number: u64, failure: &LoadFailure) -> Option<Removed> {
        let _changing = self.changing.lock();
        if !self.is_current(&spec.id, number) {
            return None;
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
        if let LoadFailure::ProbeFailed(failure) = failure {
            self.note_refused(&id, Tried::Before, failure);
        }
        let removed = if goes_on { None } else { self.take_out(&id) };
        if removed.is_some() {
            self.note_stopped(&id);
            tracing::warn!(
                plugin = %id,
                %file,
                "plugin stopped: its new configuration permits less than the version that ran, and could not be loaded"
            );
        }
        self.save_record(&id);
        removed
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
        let manifest = image.as_ref().and_then(Reference::digest).copied();
        let remembered = image.map(|image| (spec.clone(), image));
        let installed = {
            let _changing = self.changing.lock();
            {
                let mut pending = self.pending.lock();
                if !wanted(&pending) {
                    return;
                }
                pending.forget(&id);
            }
            self.end_trial(&id);
            let installed = match plugin {
                Some(plugin) => {
                    let before = self.predecessor(&spec, swap);
                    let active = component.map(|component| Active { number, component, restored: None });
                    let unprobed = swap == Swap::Tried { pods: 0 };
                    self.outcomes.lock().insert(id.clone(), Outcome { active, failure: None, unprobed });
                    let lane = self.put(spec, plugin);
                    let ran = self.ran(&id, manifest.as_ref());
                    match before {
                        Some(before) => self.begin_trial(&id, number, lane, before, ran),
                        None => self.note_ran(&id, ran),
                    }
                    Ok(lane)
                }
                None => {
                    let removed = self.take_out(&id);
                    self.status.set_load(&id, LoadState::Suspended, false);
                    self.outcomes.lock().insert(id.clone(), Outcome::default());
                    self.note_stopped(&id);
                    Err(removed)
                }
            };
            self.save_record(&id);
            installed
        };
        match installed {
            Ok(lane) => {
                self.ingest_handle.plugins_changed(Some(lane)).await;
                if let Some((spec, image)) = remembered {
                    self.remember(&spec, &image).await;
                }
                tracing::info!(plugin = %id, %file, "plugin loaded");
            }
            Err(removed) => {
                tracing::info!(plugin = %id, %file, "plugin suspended");
                self.forget(removed).await;
            }
        }
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
        let (was_there, removed) = self.remove(id);
        self.forget(removed).await;
        was_there
    }

    /// Removes a plugin, whose runs have ended when this returns, and stops its retries. Returns false if there was
    /// neither a plugin nor a retry, and the version that was removed, for [`Self::forget`].
    pub(super) fn remove(&self, id: &PluginId) -> (bool, Option<Removed>) {
        let _changing = self.changing.lock();
        self.end_trial(id);
        let waited = self.pending.lock().forget(id);
        let is_suspended = |plugin: &PluginState| plugin.id == *id && plugin.load == LoadState::Suspended;
        let suspended = self.plugins().iter().any(is_suspended);
        let file = self.running(id).map(|running| running.spec.source.to_string());
        let removed = self.take_out(id);
        self.status.remove(id);
        self.outcomes.lock().remove(id);
        self.of_object(id, None);
        self.save_record(id);
        let was_loaded = removed.is_some() || suspended;
        if was_loaded {
            tracing::info!(plugin = %id, file = file.map(field::display), "plugin unloaded");
        }
        (was_loaded || waited, removed)
    }

    /// Removes a plugin and ends its runs. The caller holds [`Self::changing`], and calls [`Self::forget`] after that.
    fn take_out(&self, id: &PluginId) -> Option<Removed> {
        self.dispatch.registry.remove(id).map(|lane| Removed { id: id.clone(), lane })
    }

    /// Removes what the queue and the journal have of a plugin, when the ingest loop adds nothing to it any more. A
    /// plugin that was loaded again meanwhile keeps it.
    pub(super) async fn forget(&self, removed: Option<Removed>) {
        let Some(Removed { id, lane }) = removed else { return };
        self.ingest_handle.plugins_changed(None).await;
        let _changing = self.changing.lock();
        let loaded = self.dispatch.registry.by_id(&id).map(|loaded| loaded.lane);
        if loaded != Some(lane) {
            self.dispatch.forget(lane);
        }
        if let (None, Some(journal)) = (loaded, &self.journal) {
            journal.absent(&id, self.dispatch.clock.now_millis());
        }
    }

    /// The version that runs. One whose permissions were revoked does not, and never will again.
    fn running(&self, id: &PluginId) -> Option<Arc<LoadedPlugin>> {
        self.dispatch.registry.by_id(id).filter(|loaded| !loaded.is_revoked())
    }
}

#[cfg(test)]
pub(super) mod tests;
