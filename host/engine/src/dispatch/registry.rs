//! The plugins that are loaded, by lane.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use parking_lot::{Mutex, RwLock};
use podium_pods::model::{PluginId, PluginSpec, Tenant};

use super::{
    Excess, State,
    log_rate::{LogRate, LogRates},
    repeats::Repeats,
};
use crate::{
    journal::PluginEntries,
    ports::{Reconcile, Sender},
    queue::{Claim, Claims},
    status::PluginStatus,
};

/// A plugin's place in the queue: kept for as long as the host runs, also while the plugin is unloaded, and never given
/// to another. So no run of a plugin that was unloaded and loaded again overlaps a run of the plugin as it was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u32);

/// A plugin that can be run.
pub struct Loaded {
    /// The lane of the plugin's keys in the queue.
    pub lane: Lane,
    /// The configuration that the plugin was loaded with.
    pub spec: PluginSpec,
    /// The plugin's code.
    pub reconcile: Arc<dyn Reconcile>,
    /// The account and the field manager of the plugin's writes.
    pub sender: Sender,
    /// Outlives a swap of the component.
    pub state: Arc<Mutex<State>>,
    /// The plugin's counters, which outlive a swap of the component too.
    pub status: Arc<PluginStatus>,
    /// `None` if the host keeps no journal.
    pub account: Option<PluginEntries>,
    /// Log lines about runs and writes that failed.
    pub(super) repeats: Repeats,
    /// Bounds the plugin's own log lines.
    pub(super) log_rate: LogRate,
}

impl Loaded {
    /// Counts and reports what was dropped because too much is kept for the plugin.
    pub fn exceeded(&self, excess: Excess) {
        let Excess { states, given_up } = excess;
        if let Some(dropped) = self.status.dropped_states(states) {
            tracing::warn!(
                plugin = %self.spec.id, dropped,
                "too many deleted pods wait for the plugin or do not settle: the oldest last states are dropped"
            );
        }
        if let Some(account) = &self.account {
            given_up.iter().for_each(|key| account.settled(key));
        }
        self.gave_up(given_up.len() as u64);
    }

    /// Counts deletions that are not delivered any more.
    pub(super) fn gave_up(&self, deletions: u64) {
        if let Some(given_up) = self.status.gave_up(deletions) {
            tracing::warn!(
                plugin = %self.spec.id, given_up,
                "too many deleted pods wait for the plugin or do not settle: the oldest deletions are given up"
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
    plugins: BTreeMap<Lane, Arc<Loaded>>,
    /// Of every plugin that is loaded or was.
    lanes: BTreeMap<PluginId, Lane>,
    log_rates: LogRates,
    /// Of every tenant that has a plugin or had one.
    tenants: BTreeMap<Tenant, u32>,
    /// What a run of a loaded plugin takes.
    claims: HashMap<Lane, Claim>,
}

impl Inner {
    fn share_log(&mut self) {
        let tenants: Vec<_> = self.plugins.values().map(|plugin| plugin.spec.tenant()).collect();
        self.log_rates.set(tenants.iter());
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Registry").field("lanes", &self.inner.read().lanes).finish_non_exhaustive()
    }
}

impl Claims<Lane> for Registry {
    /// A key of a plugin that was unloaded is only taken out of the queue, and takes nothing.
    fn claim(&self, lane: Lane) -> Claim {
        self.inner.read().claims.get(&lane).copied().unwrap_or_default()
    }
}

impl Registry {
    /// Returns the plugin that is loaded in the lane; `None` after it was unloaded.
    #[must_use]
    pub fn get(&self, lane: Lane) -> Option<Arc<Loaded>> {
        self.inner.read().plugins.get(&lane).cloned()
    }

    /// In the order of loading.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Loaded>> {
        self.inner.read().plugins.values().cloned().collect()
    }

    /// The loaded plugin of that name.
    #[must_use]
    pub fn by_id(&self, id: &PluginId) -> Option<Arc<Loaded>> {
        let inner = self.inner.read();
        inner.plugins.get(inner.lanes.get(id)?).cloned()
    }

    /// The loaded plugin whose writes have this field manager.
    #[must_use]
    pub fn by_manager(&self, manager: &str) -> Option<Arc<Loaded>> {
        self.inner.read().plugins.values().find(|loaded| loaded.sender.manager == manager).cloned()
    }

    /// Returns the senders of the plugins that may emit Events.
    #[must_use]
    pub fn event_senders(&self) -> Vec<Sender> {
        let inner = self.inner.read();
        let may_emit = inner.plugins.values().filter(|plugin| plugin.spec.grants.write.events);
        may_emit.map(|plugin| plugin.sender.clone()).collect()
    }

    /// Puts a plugin in: into the lane that one of its name has or had, or into a new one. Runs that are under way end
    /// with what they began with.
    pub fn put(
        &self,
        spec: PluginSpec,
        reconcile: Arc<dyn Reconcile>,
        sender: Sender,
        status: Arc<PluginStatus>,
        account: Option<PluginEntries>,
    ) -> Lane {
        let mut inner = self.inner.write();
        let fresh = Lane(u32::try_from(inner.lanes.len() + 1).unwrap_or(u32::MAX));
        let lane = *inner.lanes.entry(spec.id.clone()).or_insert(fresh);
        let tenant = u32::try_from(inner.tenants.len() + 1).unwrap_or(u32::MAX);
        let tenant = *inner.tenants.entry(spec.tenant()).or_insert(tenant);
        inner.claims.insert(lane, Claim { tenant, bytes: claimed(&spec) });
        let state = inner.plugins.get(&lane).map(|old| old.state.clone()).unwrap_or_default();
        let (repeats, log_rate) = (Repeats::default(), inner.log_rates.plugin(spec.tenant()));
        let loaded = Loaded { lane, spec, reconcile, sender, state, status, account, repeats, log_rate };
        inner.plugins.insert(lane, Arc::new(loaded));
        inner.share_log();
        lane
    }

    /// Takes a plugin out.
    pub fn remove(&self, id: &PluginId) -> Option<Lane> {
        let mut inner = self.inner.write();
        let lane = *inner.lanes.get(id)?;
        inner.claims.remove(&lane);
        let removed = inner.plugins.remove(&lane).map(|loaded| loaded.lane);
        inner.share_log();
        removed
    }
}

/// The memory that one run of the plugin may use.
pub(super) fn claimed(spec: &PluginSpec) -> u64 {
    u64::try_from(spec.limits.memory_bytes).unwrap_or(u64::MAX)
}
