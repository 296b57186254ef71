//! The plugins that are loaded, by lane.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use podium_vocabulary::{Expressions, Payer, PluginId, PluginSpec, RequestRates, Tenant};
use tokio::time::Instant;

use super::{
    Excess, Inputs, State, budget,
    log_rate::{LogRate, LogRates},
    records::{Book, Records, Ring, RunRecord},
    repeats::Repeats,
    revocation::Revocation,
    states::States,
    trial::Runs,
};
use crate::{
    journal::PluginEntries,
    ports::{Reconcile, Sender},
    queue::{Claim, Claims, Demand, MemoryBudget, Remembered},
    status::{Health, PluginStatus},
};

/// A plugin's place in the queue. The plugin keeps it until it was unloaded and its last job has ended, and no other
/// plugin ever has it. So no run of a plugin that was unloaded and loaded again overlaps a run of its earlier load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u32);

/// A plugin that can be run.
pub struct LoadedPlugin {
    /// The lane of the plugin's keys in the queue.
    pub lane: Lane,
    /// The configuration that the plugin was loaded with.
    pub spec: Arc<PluginSpec>,
    /// The selector of `spec.watch`, for the ingest loop.
    pub selector: Arc<Expressions>,
    /// The plugin's code.
    pub reconcile: Arc<dyn Reconcile>,
    /// The account and the field manager of the plugin's writes.
    pub sender: Sender,
    /// Outlives a swap of the component. The plugins of a state group share it.
    pub state: Arc<Mutex<State>>,
    /// Those of all plugins.
    pub(super) states: Arc<States>,
    /// The objects of the plugin's inputs.
    pub inputs: Inputs,
    /// The plugin's counters, which outlive a swap of the component too.
    pub status: Arc<PluginStatus>,
    /// The failures of the component.
    pub(super) health: Arc<Health>,
    /// `None` if the host keeps no journal.
    pub entries: Option<PluginEntries>,
    /// Log lines about runs and writes that failed.
    pub(super) repeats: Repeats,
    /// Bounds the plugin's own log lines.
    pub(super) log_rate: LogRate,
    /// Where its runs are recorded.
    pub(super) records: Book,
    /// Ends this version's runs.
    /// That of the version before, if this one may do as much: whatever ends this version ends the runs of both.
    pub(super) revocation: Arc<Revocation>,
    /// The results of this version's runs, for its trial and for that of the next version.
    pub(super) runs: Runs,
}

impl LoadedPlugin {
    /// Returns true if this version may not run any more: [`Registry::restrict`], [`Registry::put`] or
    /// [`Registry::remove`] has revoked what it may do.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.revocation.is_revoked()
    }

    /// Counts and reports the deletions and last states that were dropped because the plugin exceeded its bounds.
    pub(super) fn exceeded(&self, excess: Excess) {
        let Excess { states, given_up } = excess;
        if let Some(dropped) = self.status.states_dropped.grow(states) {
            tracing::warn!(
                plugin = %self.spec.id, dropped,
                "too many deletions or ends of groups wait or do not settle: the oldest last states are dropped"
            );
        }
        if let Some(entries) = &self.entries {
            given_up.iter().for_each(|key| entries.settled(key));
        }
        self.gave_up(given_up.len() as u64);
    }

    /// Counts deletions that are not delivered any more.
    pub(super) fn gave_up(&self, deletions: u64) {
        if let Some(given_up) = self.status.deletions_given_up.grow(deletions) {
            tracing::warn!(
                plugin = %self.spec.id, given_up,
                "too many deletions or ends of groups wait or do not settle: the oldest are given up"
            );
        }
    }
}

/// Written by app, read by workers.
#[derive(Default)]
pub struct Registry {
    inner: RwLock<Inner>,
}

#[derive(Default)]
struct Inner {
    plugins: BTreeMap<Lane, Arc<LoadedPlugin>>,
    /// The lane of every plugin that is loaded, or of which the queue has something.
    lanes: BTreeMap<PluginId, Lane>,
    /// The number of the latest lane, and that of the latest tenant.
    latest: (u32, u32),
    log_rates: LogRates,
    /// The number of every tenant of the queue that has a plugin, or of which the queue has something.
    tenants: BTreeMap<Payer, u32>,
    /// The claim and the tokens of a run, for each loaded plugin.
    claims: BTreeMap<Lane, (Claim, Demand)>,
    /// The requests per second of the plugins of a tenant together, where they are not the default.
    rates: BTreeMap<Tenant, RequestRates>,
    states: Arc<States>,
    records: Records,
    /// The memory of all runs.
    memory: MemoryBudget,
    /// The namespaces of plugins that were added, replaced or removed since the ingest loop has read them; `None` for
    /// those of the cluster.
    changed: BTreeSet<Option<Arc<str>>>,
}

impl Inner {
    /// Returns the lane and the tenant of a plugin. New ones have numbers that were never used.
    fn numbers(&mut self, spec: &PluginSpec) -> (Lane, u32) {
        let Self { lanes, tenants, latest: (lane, tenant), .. } = self;
        let next = |latest: &mut u32| {
            *latest = latest.saturating_add(1);
            *latest
        };
        let lane = *lanes.entry(spec.id.clone()).or_insert_with(|| Lane(next(lane)));
        (lane, *tenants.entry(spec.id.payer()).or_insert_with(|| next(tenant)))
    }

    /// Returns the state of a plugin: that of its group while a plugin of the group is loaded, else that of its version
    /// before, else an empty one.
    fn state(&self, lane: Lane, spec: &PluginSpec) -> Arc<Mutex<State>> {
        let shares = |loaded: &&Arc<LoadedPlugin>| match &spec.state_group {
            Some(_) => loaded.spec.state_group == spec.state_group && loaded.spec.tenant() == spec.tenant(),
            None => loaded.lane == lane && loaded.spec.state_group.is_none(),
        };
        self.plugins
            .values()
            .find(shares)
            .map_or_else(|| self.states.create(spec.tenant()), |loaded| loaded.state.clone())
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Registry").field("lanes", &self.inner.read().lanes).finish_non_exhaustive()
    }
}

impl Claims<Lane> for Registry {
    /// Returns an empty claim for a plugin that was unloaded: its keys are only removed from the queue.
    fn claim(&self, lane: Lane) -> Claim {
        self.inner.read().claims.get(&lane).map(|(claim, _)| *claim).unwrap_or_default()
    }

    fn rest(&self, lane: Lane) -> Duration {
        let plugin = self.get(lane);
        let related = plugin.as_ref().and_then(|plugin| plugin.spec.watch.related.as_ref());
        related.map_or(Duration::ZERO, |related| related.debounce)
    }

    /// A configuration with a lower limit ends the runs of the version before.
    fn hold(&self, lane: Lane) -> Duration {
        self.get(lane).map_or(Duration::ZERO, |plugin| plugin.spec.limits.wall)
    }

    fn demand(&self, lane: Lane) -> Demand {
        self.inner.read().claims.get(&lane).map(|(_, demand)| *demand).unwrap_or_default()
    }
}

impl Registry {
    /// Returns the plugin that is loaded in the lane; `None` after it was unloaded.
    #[must_use]
    pub fn get(&self, lane: Lane) -> Option<Arc<LoadedPlugin>> {
        self.inner.read().plugins.get(&lane).cloned()
    }

    /// Returns all loaded plugins in the order of loading.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<LoadedPlugin>> {
        self.inner.read().plugins.values().cloned().collect()
    }

    /// Returns the loaded plugins of each namespace, or of the cluster, that have changed since the last call, in the
    /// order of loading.
    pub(crate) fn take_changed(&self) -> BTreeMap<Option<Arc<str>>, Vec<Arc<LoadedPlugin>>> {
        let mut inner = self.inner.write();
        let changed = std::mem::take(&mut inner.changed);
        let plugins = |namespace: Option<Arc<str>>| {
            let first = PluginId { namespace: namespace.clone(), name: "".into() };
            let lanes = inner.lanes.range(first..).take_while(|(id, _)| id.namespace == namespace);
            let mut plugins: Vec<_> = lanes.filter_map(|(_, lane)| inner.plugins.get(lane).cloned()).collect();
            plugins.sort_unstable_by_key(|loaded| loaded.lane);
            (namespace, plugins)
        };
        changed.into_iter().map(plugins).collect()
    }

    /// The loaded plugin of that name.
    #[must_use]
    pub fn by_id(&self, id: &PluginId) -> Option<Arc<LoadedPlugin>> {
        let inner = self.inner.read();
        inner.plugins.get(inner.lanes.get(id)?).cloned()
    }

    /// The loaded plugin whose writes have this field manager.
    #[must_use]
    pub fn by_manager(&self, manager: &str) -> Option<Arc<LoadedPlugin>> {
        self.inner.read().plugins.values().find(|loaded| loaded.sender.manager == manager).cloned()
    }

    /// Returns the latest `most` runs of a configured plugin, also of one that is not loaded, that meet a condition;
    /// the latest first.
    #[must_use]
    pub fn runs(&self, id: &PluginId, most: usize, wanted: impl Fn(&RunRecord) -> bool) -> Vec<Arc<RunRecord>> {
        let ring = self.inner.read().records.find(id);
        ring.map(|ring| ring.latest(most, |run| run.plugin == *id && wanted(run))).unwrap_or_default()
    }

    /// Returns the last run of a plugin that meets a condition. If the record of a later one may have been displaced,
    /// or there is none, returns the highest number that one may have.
    pub(super) fn last_run(&self, id: &PluginId, wanted: impl Fn(&RunRecord) -> bool) -> Result<Arc<RunRecord>, u64> {
        let ring = self.inner.read().records.find(id).ok_or(0_u64)?;
        ring.last(|run| run.plugin == *id && wanted(run))
    }

    /// Forgets the runs of a plugin that is not configured any more, also those that end later.
    pub fn forget_runs(&self, id: &PluginId) {
        let ring = self.inner.write().records.forget(id);
        if let Some(ring) = ring {
            ring.remove(id);
        }
    }

    /// Returns the runs of all plugins that ended after the one of this number and meet a condition, the earliest
    /// first.
    #[must_use]
    pub fn runs_since(&self, number: u64, wanted: impl Fn(&RunRecord) -> bool) -> Vec<Arc<RunRecord>> {
        let (rings, last) = self.inner.read().records.all();
        let is_later = |run: &RunRecord| (number + 1..=last).contains(&run.number) && wanted(run);
        let later = |ring: &Arc<Ring>| ring.latest(usize::MAX, is_later);
        let mut runs: Vec<_> = rings.iter().flat_map(later).collect();
        runs.sort_unstable_by_key(|run| run.number);
        runs
    }

    /// Returns the senders of the plugins that may emit Events.
    #[must_use]
    pub fn event_senders(&self) -> Vec<Sender> {
        let inner = self.inner.read();
        let may_emit = inner.plugins.values().filter(|plugin| plugin.spec.grants.write.events && !plugin.is_revoked());
        may_emit.map(|plugin| plugin.sender.clone()).collect()
    }

    /// Returns the tenants of the queue that have a plugin, or had one until lately, by the number of their claims: the
    /// namespace, or `cluster/NAME` for a `ClusterReconcilePlugin`.
    #[must_use]
    pub fn tenants(&self) -> BTreeMap<u32, String> {
        let name = |(tenant, plugin): &Payer| match (tenant, plugin) {
            (Tenant::Namespace(namespace), _) => namespace.to_string(),
            (Tenant::Cluster, plugin) => format!("cluster/{}", plugin.as_deref().unwrap_or_default()),
        };
        self.inner.read().tenants.iter().map(|(payer, number)| (*number, name(payer))).collect()
    }

    /// Ends the runs of the loaded version if a new configuration of the plugin does not permit everything that the
    /// version may do. No run of it starts after that; its keys wait for the next version. Returns true if its runs
    /// were ended.
    pub fn restrict(&self, spec: &PluginSpec) -> bool {
        let loaded = self.by_id(&spec.id).filter(|loaded| !loaded.is_revoked() && !spec.permits(&loaded.spec));
        loaded.as_ref().is_some_and(|loaded| {
            loaded.revocation.revoke();
            true
        })
    }

    /// Sets the requests per second of a tenant's plugins together, or of each plugin of the cluster, for those that
    /// are added from now on. The default is [`RequestRates::OF_TENANT`].
    pub fn set_rates(&self, tenant: Tenant, rates: RequestRates) {
        self.inner.write().rates.insert(tenant, rates);
    }

    /// Sets the rates of the tenants of all loaded plugins. Returns the plugins whose rates are others now, which the
    /// queue has to read again.
    pub fn replace_rates(&self, of: impl Fn(&Tenant) -> RequestRates) -> Vec<Lane> {
        let tenants: BTreeSet<Tenant> = self.all().iter().map(|loaded| loaded.spec.tenant()).collect();
        let replaced = tenants.into_iter().map(|tenant| (tenant.clone(), of(&tenant)));
        let replaced: BTreeMap<Tenant, RequestRates> = replaced.collect();
        let mut inner = self.inner.write();
        let Inner { plugins, rates, claims, .. } = &mut *inner;
        let mut changed = Vec::new();
        for (lane, loaded) in plugins.iter() {
            let tenant = loaded.spec.tenant();
            // One that was added since has the rates of its load.
            let Some(rate) = replaced.get(&tenant).copied() else { continue };
            rates.insert(tenant, rate);
            let demand = budget::demand(&loaded.spec, rate);
            if let Some((_, before)) = claims.get_mut(lane).filter(|(_, before)| *before != demand) {
                *before = demand;
                changed.push(*lane);
            }
        }
        changed
    }

    /// Sets the most bytes of the states of all plugins together.
    pub fn bound_states(&self, bytes: usize) {
        self.inner.read().states.set_most(bytes);
    }

    /// Sets the memory of all runs, in whose steps the claims of plugins that are added later are counted.
    pub fn bound_runs(&self, memory: MemoryBudget) {
        self.inner.write().memory = memory;
    }

    /// Adds or replaces a plugin. It has the lane of the plugin of its name, also of one that was removed, or else a
    /// new one. Runs of the version before continue if `spec` permits everything that the version may do, until this
    /// version is revoked too; otherwise they are ended. `inputs` are the objects of its inputs as a JSON mapping.
    pub fn put(
        &self,
        spec: impl Into<Arc<PluginSpec>>,
        reconcile: Arc<dyn Reconcile>,
        sender: Sender,
        status: Arc<PluginStatus>,
        entries: Option<PluginEntries>,
        inputs: Option<Arc<str>>,
    ) -> Lane {
        let spec = spec.into();
        let selector = Arc::new(Expressions::from(&spec.watch.selector));
        let mut inner = self.inner.write();
        inner.changed.insert(spec.id.namespace.clone());
        let (lane, tenant) = inner.numbers(&spec);
        let rates = inner.rates.get(&spec.tenant()).copied().unwrap_or(RequestRates::OF_TENANT);
        let bytes = inner.memory.counted(claimed(&spec));
        inner.claims.insert(lane, (Claim { tenant, bytes }, budget::demand(&spec, rates)));
        let state = inner.state(lane, &spec);
        let states = inner.states.clone();
        let records = inner.records.book(&spec.id);
        let repeats = Repeats::default();
        let log_rate = inner.log_rates.plugin(spec.tenant());
        let revocation = match inner.plugins.get(&lane).filter(|before| !before.is_revoked()) {
            Some(before) if spec.permits(&before.spec) => Arc::clone(&before.revocation),
            Some(before) => {
                before.revocation.revoke();
                Arc::default()
            }
            None => Arc::default(),
        };
        let runs = Runs::default();
        let health = status.health();
        let loaded = Arc::new(LoadedPlugin {
            lane,
            spec,
            selector,
            reconcile,
            sender,
            state,
            states,
            inputs: Inputs::new(inputs),
            status,
            health,
            entries,
            repeats,
            log_rate,
            records,
            revocation,
            runs,
        });
        inner.plugins.insert(lane, loaded);
        lane
    }

    /// Removes a plugin, ends its runs, and returns its lane, or `None` if it is not loaded.
    pub fn remove(&self, id: &PluginId) -> Option<Lane> {
        let mut inner = self.inner.write();
        let lane = *inner.lanes.get(id)?;
        inner.claims.remove(&lane);
        inner.changed.insert(id.namespace.clone());
        inner.plugins.remove(&lane).map(|loaded| {
            loaded.revocation.revoke();
            loaded.lane
        })
    }

    #[cfg(test)]
    pub(super) fn numbered(&self) -> usize {
        self.inner.read().lanes.len()
    }

    /// Forgets the plugins that are not loaded, and the tenants without a loaded plugin, if the queue has nothing of
    /// them.
    pub(super) fn forget_unloaded(&self, remembered: &Remembered<Lane>) {
        let mut inner = self.inner.write();
        let Inner { plugins, lanes, log_rates, tenants, claims, rates, .. } = &mut *inner;
        lanes.retain(|_, lane| plugins.contains_key(lane) || remembered.lanes.contains(lane));
        let used: BTreeSet<u32> = claims.values().map(|(claim, _)| claim.tenant).collect();
        tenants.retain(|_, number| used.contains(number) || remembered.tenants.contains(number));
        let named: BTreeSet<&Tenant> = tenants.keys().map(|(tenant, _)| tenant).collect();
        rates.retain(|tenant, _| named.contains(tenant));
        log_rates.forget_unused(Instant::now());
    }
}

/// The memory that one run of the plugin may use.
pub(super) fn claimed(spec: &PluginSpec) -> u64 {
    u64::try_from(spec.limits.memory_bytes).unwrap_or(u64::MAX)
}
