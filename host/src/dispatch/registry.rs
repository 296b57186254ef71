//! The plugins that are loaded, by lane.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::{Mutex, RwLock};

use super::State;
use crate::{
    journal::Account,
    model::{PluginId, PluginSpec},
    seam::{Reconcile, Sender},
    status::PluginStatus,
};

/// A plugin's place in the queue: kept when its component is swapped, never given to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u32);

/// A plugin that can be run.
pub struct Loaded {
    pub lane: Lane,
    pub spec: PluginSpec,
    pub reconcile: Arc<dyn Reconcile>,
    pub sender: Sender,
    /// Outlives a swap of the component.
    pub state: Arc<Mutex<State>>,
    pub status: Arc<PluginStatus>,
    /// None where the host keeps no journal.
    pub account: Option<Account>,
}

/// Written by app, read by workers.
#[derive(Default)]
pub struct Registry {
    inner: RwLock<Inner>,
}

#[derive(Default)]
struct Inner {
    plugins: BTreeMap<Lane, Arc<Loaded>>,
    lanes: u32,
}

impl Registry {
    #[must_use]
    pub fn get(&self, lane: Lane) -> Option<Arc<Loaded>> {
        self.inner.read().plugins.get(&lane).cloned()
    }

    /// In the order of loading.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Loaded>> {
        self.inner.read().plugins.values().cloned().collect()
    }

    /// Puts a plugin in: into the lane that one of its name has, or into a new one. Runs that are under way end with
    /// what they began with.
    pub fn put(
        &self,
        spec: PluginSpec,
        reconcile: Arc<dyn Reconcile>,
        sender: Sender,
        status: Arc<PluginStatus>,
        account: Option<Account>,
    ) -> Lane {
        let mut inner = self.inner.write();
        let old = inner.plugins.values().find(|loaded| loaded.spec.id == spec.id).cloned();
        let (lane, state) = match old {
            Some(old) => (old.lane, old.state.clone()),
            None => {
                inner.lanes += 1;
                (Lane(inner.lanes), Arc::default())
            }
        };
        inner.plugins.insert(lane, Arc::new(Loaded { lane, spec, reconcile, sender, state, status, account }));
        lane
    }

    /// Takes a plugin out.
    pub fn remove(&self, id: &PluginId) -> Option<Lane> {
        let mut inner = self.inner.write();
        let lane = inner.plugins.values().find(|loaded| loaded.spec.id == *id)?.lane;
        inner.plugins.remove(&lane);
        Some(lane)
    }
}
