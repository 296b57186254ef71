//! The objects whose plugins may hold finalizers of Pods, and the host's finalizer on them, which is there before the
//! plugin is.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use podium_life::{Object, Record};
use podium_vocabulary::{PluginId, PluginSpec, text};
use serde_json::Value;
use tokio::sync::OnceCell;

use super::{Components, Driver, LoadFailure, disk::on_disk};
use crate::{
    images::Store,
    objects::{finalizing, hold, of_finalizers},
};

/// The objects that have the host's finalizer from the host itself, with their uids: anyone who may write an object may
/// write its finalizers too. An object that is gone is known until no Pod has a finalizer of its plugin.
#[derive(Debug, Default)]
pub(in crate::app) struct Holds {
    all: Mutex<BTreeMap<(PluginId, String), Arc<PluginSpec>>>,
    recalled: OnceCell<()>,
}

impl Components {
    /// Adds the host's finalizer to an object whose plugin may hold finalizers of Pods, before it can do so.
    pub(super) async fn hold(&self, spec: &PluginSpec, object: Option<&Object>) -> Result<(), LoadFailure> {
        let of_object = object.filter(|_| !spec.grants.write.finalizers.is_empty());
        let Some(Object { uid, held, .. }) = of_object else { return Ok(()) };
        if !held {
            let unheld = |error: &dyn std::fmt::Display| LoadFailure::Unheld(text::line(&error.to_string()));
            let request = hold(&spec.id, uid).map_err(|error| unheld(&error))?;
            self.api.json(request).await.map_err(|error| unheld(&error))?;
        }
        self.holds.let_hold(spec, uid);
        Ok(())
    }

    /// Reads once which objects held finalizers when the host was started before, however long the disk takes.
    pub(in crate::app) async fn recall(&self) {
        let reading = async || {
            let Some(store) = &self.store else { return };
            let held = store.call(Store::held).await.unwrap_or_default();
            let mut all = self.holds.all.lock();
            for (id, uid, spec) in held {
                if let Some(spec) = finalizing(&id, &spec.to_string()) {
                    all.entry((id, uid)).or_insert_with(|| spec.into());
                }
            }
        };
        self.holds.recalled.get_or_init(reading).await;
    }
}

impl Driver {
    /// Forgets an object that is gone and without finalizers on Pods, also on disk.
    pub(in crate::app) async fn let_go(self: &Arc<Self>, id: &PluginId, uid: &str) {
        if self.components.holds.all.lock().remove(&(id.clone(), uid.to_owned())).is_none() {
            return;
        }
        let Some(disk) = self.components.store.clone() else { return };
        let (this, id, uid) = (self.clone(), id.clone(), uid.to_owned());
        let gone = move |store: &Store| {
            // A host before did not know that the object is gone.
            let others = |record: Option<Record>| record.filter(|record| record.uid != uid);
            store.keep_record(&id, |record| (others(record), this.components.holds.of(&id)));
        };
        on_disk(disk, gone).await;
    }
}

impl Holds {
    /// Records an object whose plugin may hold finalizers of Pods. Earlier objects of its name leave theirs to it.
    fn let_hold(&self, spec: &PluginSpec, uid: &str) {
        // Of the spec only this is needed when the object is gone.
        let known = finalizing(&spec.id, &of_finalizers(spec).to_string()).unwrap_or_else(|| spec.clone());
        let own: BTreeSet<_> = known.grants.write.finalizers.iter().map(|pattern| &pattern.0).collect();
        let is_own = |of: &PluginSpec| of.grants.write.finalizers.iter().all(|pattern| own.contains(&pattern.0));
        let mut all = self.all.lock();
        all.retain(|(id, _), of| *id != spec.id || !is_own(of));
        all.insert((spec.id.clone(), uid.to_owned()), known.into());
    }

    /// Records the objects of the first list that have the host's finalizer: a host before may have added it.
    pub(in crate::app) fn adopt<'a>(&self, held: impl IntoIterator<Item = (&'a PluginSpec, &'a str)>) {
        held.into_iter().for_each(|(spec, uid)| self.let_hold(spec, uid));
    }

    /// Returns true if the host has added its finalizer to the object, now or before its start.
    pub(in crate::app) fn has(&self, id: &PluginId, uid: &str) -> bool {
        self.all.lock().contains_key(&(id.clone(), uid.to_owned()))
    }

    /// Returns the objects, with the part of their specs that is about finalizers, of which a condition holds.
    pub(in crate::app) fn which(
        &self,
        condition: impl Fn(&PluginId, &str) -> bool,
    ) -> Vec<(PluginId, String, Arc<PluginSpec>)> {
        let all = self.all.lock();
        let which = all.iter().filter(|((id, uid), _)| condition(id, uid));
        which.map(|((id, uid), spec)| (id.clone(), uid.clone(), spec.clone())).collect()
    }

    /// Returns the objects of a plugin's name, by uid, as a file has them.
    pub(super) fn of(&self, id: &PluginId) -> BTreeMap<String, Value> {
        let all = self.all.lock();
        let own = all.range((id.clone(), String::new())..).take_while(|((of, _), _)| of == id);
        own.map(|((_, uid), spec)| (uid.clone(), of_finalizers(spec))).collect()
    }
}
