//! Drives the automaton of `podium_life`: applies its effects to the host, and feeds it with the results.
//!
//! Effects that end or begin runs are applied under the automaton's lock, which nothing waits for: those of two events
//! do not mix. Everything that takes time is a task of its own, and none delays another one.

mod component;
mod disk;
mod failure;
mod hold;
mod image;
mod parts;
mod script;

use std::{sync::Arc, time::Duration};

pub(super) use component::Components;
pub(super) use disk::{Disk, Files};
pub use failure::LoadFailure;
use futures::future::BoxFuture;
pub(super) use hold::Holds;
use parking_lot::{Mutex, MutexGuard};
use parts::BACKOFF;
pub(super) use parts::{Code, Component, Host, Rules};
use podium_engine::{
    dispatch::{Dispatch, IsWanted, Lane, LoadedPlugin},
    ingest::IngestHandle,
    journal::Journal,
    ports::Sender,
    status::{LoadState, PluginState, Status, VersionId},
};
use podium_life::{Effect, Event, Life, Plugin, Record, Report, Shown, Source, Ticket, Want};
use podium_vocabulary::{PluginId, PluginSpec, Shards};
use podium_writeback::manager_name;
pub(super) use script::Runners;
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        watch,
    },
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    config::Policy,
    images::{Images, Store},
};

/// How often a trial looks whether another attempt has ended it.
const TRIAL_LOOK: Duration = Duration::from_secs(1);

/// A plugin that was checked and compiled, and does not run yet.
#[must_use]
pub struct Prepared {
    id: PluginId,
    /// The number of the load.
    load: u64,
}

type Task = BoxFuture<'static, ()>;

/// The automaton, and the parts of the host that its effects concern.
pub(super) struct Driver {
    pub(super) dispatch: Arc<Dispatch>,
    pub(super) status: Arc<Status>,
    pub(super) ingest_handle: IngestHandle,
    pub(super) journal: Option<Arc<Journal>>,
    pub(super) components: Components,
    life: Mutex<Life<Host>>,
    /// The automaton's time 0.
    began: Instant,
    tasks: UnboundedSender<Task>,
    begun: Mutex<Option<UnboundedReceiver<Task>>>,
    /// Changes with each step.
    changed: watch::Sender<()>,
    policy: watch::Sender<Option<Policy>>,
}

impl Driver {
    pub(super) fn new(
        dispatch: Arc<Dispatch>,
        status: Arc<Status>,
        ingest_handle: IngestHandle,
        journal: Option<Arc<Journal>>,
        rules: Rules,
        components: Components,
    ) -> Arc<Self> {
        let rules = Rules { most_of_a_job: dispatch.queue.most_of_a_job(), ..rules };
        let (policy, _) = watch::channel(rules.policy.clone());
        let life = Mutex::new(Life::new(Arc::new(rules), components.store.is_some()));
        let (tasks, begun) = unbounded_channel();
        let (changed, _) = watch::channel(());
        let began = Instant::now();
        let begun = Mutex::new(Some(begun));
        Arc::new(Self {
            dispatch,
            status,
            ingest_handle,
            journal,
            components,
            life,
            began,
            tasks,
            begun,
            changed,
            policy,
        })
    }

    /// Runs the tasks; never returns.
    ///
    /// # Errors
    /// Returns an error if one of the tasks panicked.
    pub(super) async fn run(self: Arc<Self>) -> anyhow::Result<()> {
        let Some(mut begun) = self.begun.lock().take() else { anyhow::bail!("the plugins are driven already") };
        let mut tasks = JoinSet::new();
        loop {
            let due = self.life.lock().due().map(|due| self.began + due);
            let time = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(ended) = tasks.join_next() => ended?,
                Some(task) = begun.recv() => drop(tasks.spawn(task)),
                () = time => self.feed(Event::Time),
            }
        }
    }

    /// Has the automaton process an event, and applies the effects. Runs that are not permitted any more have ended
    /// when this returns.
    pub(super) fn feed(self: &Arc<Self>, event: Event<Host>) {
        self.step(&mut self.life.lock(), event);
    }

    /// Begins the load of a plugin, and returns its number.
    fn begin(self: &Arc<Self>, spec: PluginSpec, source: Source) -> u64 {
        let id = spec.id.clone();
        let mut life = self.life.lock();
        self.step(&mut life, Event::Seen(id.clone(), source, Want::Run(Arc::new(spec))));
        life.plugin(&id).map_or(0, Plugin::load)
    }

    /// Reads the state of a plugin.
    pub(super) fn read<T>(&self, id: &PluginId, read: impl FnOnce(&Plugin<Host>) -> T) -> Option<T> {
        self.life.lock().plugin(id).map(read)
    }

    /// Returns the present configurations of plugins that may run.
    pub(super) fn permitted(&self) -> Vec<Arc<PluginSpec>> {
        let life = self.life.lock();
        life.plugins().filter_map(|id| life.plugin(id)?.permissions().cloned()).collect()
    }

    /// Returns the shards of tenants whose plugins this host may run, and about which it may write.
    pub(super) fn owns(&self) -> Shards {
        self.life.lock().owns()
    }

    /// Returns the platform's requirements.
    pub(super) fn rules(&self) -> Arc<Rules> {
        self.life.lock().rules().clone()
    }

    /// Replaces the policy in force. Runs that it does not permit have ended when this returns.
    pub(super) fn set_policy(self: &Arc<Self>, policy: Policy, images: Option<Images>) {
        let rules = Rules { policy: Some(policy.clone()), images, ..Rules::clone(&self.rules()) };
        self.feed(Event::Rules(Arc::new(rules)));
        // One at a time: the judgement of all takes longer than others may wait for the lock.
        let plugins: Vec<_> = self.life.lock().plugins().cloned().collect();
        plugins.into_iter().for_each(|plugin| self.feed(Event::Judged(plugin)));
        for lane in self.dispatch.registry.replace_rates(|tenant| policy.request_rates(tenant)) {
            self.dispatch.queue.claim_changed(lane);
        }
        self.policy.send_replace(Some(policy));
    }

    /// Returns the policy in force, and its changes.
    pub(super) fn policy(&self) -> watch::Receiver<Option<Policy>> {
        self.policy.subscribe()
    }

    /// Returns a signal that changes with each step.
    pub(super) fn changed(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Waits until the state has a result.
    async fn until<T>(&self, result: impl Fn(&Life<Host>) -> Option<T>) -> T {
        let mut changed = self.changed();
        loop {
            let found = result(&self.life.lock());
            if let Some(found) = found {
                return found;
            }
            // The sender is here.
            let _ = changed.changed().await;
        }
    }

    /// Waits for the first attempt of a load.
    async fn result(&self, id: &PluginId, load: u64) -> Result<(), Arc<LoadFailure>> {
        let superseded = || Arc::new(LoadFailure::Superseded);
        let result = |life: &Life<Host>| life.plugin(id).map_or(Some(Err(None)), |plugin| plugin.result(load));
        self.until(result).await.map_err(|failure| failure.unwrap_or_else(superseded))
    }

    /// Reads, checks and compiles a plugin of a file.
    pub(super) async fn prepare(self: &Arc<Self>, spec: PluginSpec) -> Result<Prepared, Arc<LoadFailure>> {
        let id = spec.id.clone();
        let load = self.begin(spec, Source::File(false));
        self.result(&id, load).await?;
        Ok(Prepared { id, load })
    }

    /// Installs a plugin, and returns when it runs on every Pod that it watches. Nothing changes if the plugin was
    /// loaded or unloaded since.
    pub(super) async fn install(self: &Arc<Self>, prepared: Prepared) {
        let Prepared { id, load } = prepared;
        self.feed(Event::Install(id.clone(), load));
        // A failure now is that of a later load.
        let _ = self.result(&id, load).await;
    }

    /// Unloads the plugin of a file. Returns false if there was none.
    pub(super) async fn unload(self: &Arc<Self>, id: &PluginId) -> bool {
        let is_of_file = |plugin: &Plugin<Host>| plugin.is_wanted() && plugin.generation().is_none();
        let was_there = self.read(id, is_of_file).unwrap_or_default();
        self.feed(Event::Gone(id.clone(), true));
        // Only the status knows one that was expected and never loaded.
        if !self.read(id, Plugin::is_wanted).unwrap_or_default() {
            self.status.remove(id);
        }
        self.until(|life| life.plugin(id).is_none_or(Plugin::is_removed).then_some(())).await;
        was_there
    }

    /// Records a configured plugin before its first attempt.
    pub(super) fn expect(&self, id: &PluginId) {
        let runs = self.read(id, |plugin| plugin.running().is_some()).unwrap_or_default();
        self.status.set_load(id, LoadState::Loading, runs);
    }

    /// The load state of every configured plugin.
    pub(super) fn plugins(&self) -> Vec<PluginState> {
        self.status.loads()
    }

    fn step(self: &Arc<Self>, life: &mut MutexGuard<'_, Life<Host>>, event: Event<Host>) {
        for effect in life.step(event, self.began.elapsed()) {
            self.apply(life, effect);
        }
        self.changed.send_replace(());
    }

    /// Applies an effect, or begins it.
    fn apply(self: &Arc<Self>, life: &Life<Host>, effect: Effect<Host>) {
        let this = self.clone();
        let rules = life.rules().clone();
        match effect {
            Effect::Restrict(spec) => drop(self.dispatch.registry.restrict(&spec)),
            Effect::Remove(id) => {
                let lane = self.dispatch.registry.remove(&id);
                self.begin_task(async move { this.forget(id, lane).await });
            }
            Effect::Read(ticket) => self.begin_task(async move {
                let recorded = this.components.record(ticket.plugin.clone()).await;
                this.feed(Event::Read(ticket, recorded));
            }),
            Effect::Fetch(ticket, spec, object, from) => self.begin_task(async move {
                // Another policy may not list the registry.
                let is_over = |life: &Life<Host>| (!life.is_present(&ticket)).then_some(LoadFailure::Superseded);
                let fetched = tokio::select! {
                    failure = this.until(is_over) => Err(failure),
                    fetched = this.components.fetch(&rules, &spec, object.as_ref(), from) => fetched,
                };
                this.feed(Event::Fetched(ticket, fetched.map_err(Arc::new)));
            }),
            Effect::Compile(ticket, spec, fetched) => self.begin_task(async move {
                let compiled = this.components.compile(&rules, spec, fetched).await;
                this.feed(Event::Compiled(ticket, compiled.map_err(Arc::new)));
            }),
            Effect::Probe(ticket, spec, code) => {
                let before = self.dispatch.registry.by_id(&spec.id);
                self.begin_task(async move {
                    let probed = this.probe(before, &ticket, &spec, &code).await;
                    this.feed(Event::Probed(ticket, probed));
                });
            }
            Effect::Install { ticket, spec, code, trial } => self.put(ticket, &spec, &code, trial, &rules),
            Effect::Save(id, record) => self.begin_task(async move { this.save(id, record).await }),
            Effect::Publish(id) => self.show(&id, life.plugin(&id)),
            Effect::Report(id, report) => self.report(&id, life.plugin(&id), report),
        }
    }

    fn begin_task(&self, task: impl Future<Output = ()> + Send + 'static) {
        // The receiver is here, or in `run`; without it the host ends.
        let _ = self.tasks.send(Box::pin(task));
    }

    async fn probe(
        self: &Arc<Self>,
        before: Option<Arc<LoadedPlugin>>,
        ticket: &Ticket,
        spec: &PluginSpec,
        code: &Code,
    ) -> Result<usize, String> {
        let Some(before) = before else { return Ok(0) };
        let this = self.clone();
        let ticket = ticket.clone();
        let is_wanted: IsWanted = Arc::new(move || this.life.lock().is_present(&ticket));
        let inputs = self.components.inputs.mapping(spec);
        self.dispatch.probe(&before, spec, &*code.reconcile, inputs, is_wanted).await
    }

    /// Adds a version to the registry. Pods are queued for it, and its trial begins.
    fn put(self: &Arc<Self>, ticket: Ticket, spec: &Arc<PluginSpec>, code: &Code, trial: bool, rules: &Rules) {
        let registry = &self.dispatch.registry;
        let before = registry.by_id(&spec.id).filter(|_| trial);
        let sender = Sender { manager: manager_name(&spec.id), impersonate: spec.impersonate.clone() };
        let status = self.status.plugin(&spec.id);
        status.installed(VersionId { uid: ticket.uid.to_string(), sha256: code.component.sha256.clone() });
        let entries = self.journal.as_ref().map(|journal| journal.plugin_entries(&spec.id));
        if let Some(policy) = &rules.policy {
            registry.set_rates(spec.tenant(), policy.request_rates(&spec.tenant()));
        }
        let inputs = self.components.inputs.mapping(spec);
        let reconcile = code.reconcile.clone();
        let lane = registry.put(spec.clone(), reconcile, sender, status, entries, inputs);
        // A change in between was for the version before.
        if let Some(loaded) = registry.get(lane) {
            loaded.inputs.set(self.components.inputs.mapping(spec));
        }
        self.dispatch.queue.claim_changed(lane);
        if let (Some(before), Some(loaded)) = (before, registry.get(lane)) {
            let this = self.clone();
            let id = spec.id.clone();
            let ticket = ticket.clone();
            self.begin_task(async move {
                // A trial that another attempt has ended keeps the code of neither version. It looks once a second:
                // there may be a trial of each plugin, and each step of any of them would wake all.
                let is_tried = || this.life.lock().plugin(&id).is_some_and(|plugin| plugin.is_tried(&ticket));
                let is_over = async {
                    while is_tried() {
                        sleep(TRIAL_LOOK).await;
                    }
                };
                tokio::select! {
                    () = is_over => {}
                    result = loaded.trial(&before) => this.feed(Event::Tried(ticket.clone(), result)),
                }
            });
        }
        let this = self.clone();
        let spec = spec.clone();
        let component = code.component.clone();
        self.begin_task(async move {
            this.ingest_handle.plugins_changed(Some(lane)).await;
            tracing::info!(plugin = %spec.id, file = %spec.source, "plugin loaded");
            this.feed(Event::Installed(ticket));
            if let Some(image) = &component.image {
                this.components.remember(&spec, image).await;
            }
        });
    }

    /// Removes what the queue and the journal have of a plugin, when the ingest loop adds nothing to it any more. A
    /// plugin that was loaded again meanwhile keeps it.
    async fn forget(self: Arc<Self>, id: PluginId, lane: Option<Lane>) {
        self.ingest_handle.plugins_changed(None).await;
        let mut life = self.life.lock();
        let loaded = self.dispatch.registry.by_id(&id).map(|loaded| loaded.lane);
        if let Some(lane) = lane.filter(|lane| loaded != Some(*lane)) {
            self.dispatch.forget(lane);
        }
        if loaded.is_none() && !is_elsewhere(&life, &id) {
            self.absent(&id);
        }
        self.step(&mut life, Event::Removed(id));
    }

    /// Records in the journal that a plugin is not loaded: its entries are kept for a while from now on.
    fn absent(&self, id: &PluginId) {
        if let Some(journal) = &self.journal {
            journal.absent(id, self.dispatch.clock.now_millis());
        }
    }

    /// Records in the journal which of its plugins are not loaded, and returns them with the numbers of their Pods.
    /// None is loaded meanwhile.
    pub(super) fn note_absent(&self) -> Vec<(PluginId, usize)> {
        let Some(journal) = &self.journal else { return Vec::new() };
        let life = self.life.lock();
        let elsewhere = life.plugins().filter(|id| is_elsewhere(&life, id)).cloned();
        let loaded = self.dispatch.registry.all();
        let loaded: Vec<_> = loaded.iter().map(|loaded| loaded.spec.id.clone()).chain(elsewhere).collect();
        journal.all_absent_but(&loaded, self.dispatch.clock.now_millis())
    }

    /// Writes or removes the record of a plugin, however long the disk takes, and again after a failure until the
    /// plugin has another record.
    async fn save(self: Arc<Self>, id: PluginId, record: Option<Record>) {
        // The file names objects of a host before, too.
        self.components.recall().await;
        let mut failures = 0;
        while let Some(disk) = &self.components.store {
            let this = self.clone();
            let plugin = id.clone();
            let record = record.clone();
            let keep = move |store: &Store| {
                store.keep_record(&plugin, record.as_ref(), || this.components.holds.kept(&plugin))
            };
            let kept = disk.call(keep).await;
            let error = match kept {
                Some(Ok(())) => break,
                Some(Err(error)) => error.to_string(),
                None => "the call panicked".to_owned(),
            };
            failures += 1;
            let wait = BACKOFF.doubled(failures);
            let seconds = wait.as_secs();
            tracing::warn!(plugin = %id, seconds, error, "record of a plugin not written, to be retried");
            sleep(wait).await;
            if self.read(&id, Plugin::has_later_record).unwrap_or_default() {
                break;
            }
        }
        self.feed(Event::Saved(id));
    }

    /// Shows the state of a plugin in metrics and readiness.
    fn show(&self, id: &PluginId, plugin: Option<&Plugin<Host>>) {
        let Some(plugin) = plugin.filter(|plugin| plugin.is_wanted()) else {
            self.status.remove(id);
            return;
        };
        let load = match plugin.shown() {
            Shown::Loading => LoadState::Loading,
            Shown::Running { .. } => LoadState::Loaded,
            Shown::Standby => LoadState::Standby,
            Shown::Suspended => LoadState::Suspended,
            Shown::Waiting(failure, attempts) => LoadState::Waiting { reason: failure.to_string(), attempts },
            Shown::Refused(failure) => LoadState::Refused { reason: failure.to_string() },
        };
        self.status.set_load(id, load, plugin.running().is_some());
    }

    fn report(&self, plugin: &PluginId, state: Option<&Plugin<Host>>, report: Report<Host>) {
        let file = state.and_then(Plugin::permissions).map(|spec| tracing::field::display(&spec.source));
        let is_object = state.is_some_and(|state| state.generation().is_some());
        match report {
            Report::Restricted => {
                tracing::info!(%plugin, file, "runs ended: the new configuration permits less");
            }
            // The caller of a first attempt reports its failure itself.
            Report::Failed(_, 1, _) if !is_object => {}
            Report::Failed(error, 1, wait) => {
                let retry = wait.is_some();
                let error = error.to_string();
                tracing::error!(%plugin, retry, error, "plugin not loaded");
            }
            Report::Failed(error, attempts, Some(wait)) => {
                let seconds = wait.as_secs();
                let error = error.to_string();
                tracing::warn!(%plugin, file, attempts, seconds, error, "plugin not loaded, to be retried");
            }
            Report::Failed(error, attempts, None) => {
                let error = error.to_string();
                tracing::error!(%plugin, file, attempts, error, "plugin not loaded");
            }
            Report::Stopped => {
                tracing::warn!(
                    %plugin,
                    file,
                    "plugin stopped: it is not known to be permitted any more, and could not be loaded again"
                );
            }
            Report::Suspended => tracing::info!(%plugin, file, "plugin suspended"),
            Report::Unloaded(was_loaded) => {
                self.status.remove(plugin);
                self.dispatch.registry.forget_runs(plugin);
                // Of one that is being removed, `forget` records it.
                if state.is_none_or(Plugin::is_removed) {
                    self.absent(plugin);
                }
                if was_loaded {
                    tracing::info!(%plugin, "plugin unloaded");
                }
            }
            Report::RolledBack(error) => {
                let error = error.to_string();
                tracing::warn!(%plugin, error, "plugin rolled back to the version before");
            }
            Report::Restored(generation) => {
                tracing::info!(%plugin, generation, "plugin runs again in the version before its spec");
            }
            Report::NotRestored(generation, error) => {
                tracing::warn!(%plugin, generation, error, "version that ran before does not run again");
            }
        }
    }
}

/// Returns true if a plugin is configured and another replica runs it, or would.
fn is_elsewhere(life: &Life<Host>, id: &PluginId) -> bool {
    !life.owns().has(&id.tenant()) && life.plugin(id).is_some_and(Plugin::is_wanted)
}

#[cfg(test)]
pub(super) mod tests;
