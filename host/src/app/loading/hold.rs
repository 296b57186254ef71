//! The host's finalizer on the object of a plugin that may hold finalizers of Pods: it is there before the plugin is.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use podium_vocabulary::{PluginId, PluginSpec, Tenant, text};

use super::{LoadFailure, Loader};
use crate::objects::{Object, hold};

/// The objects that have the host's finalizer from the host itself, with their uids: anyone who may write an object may
/// write its finalizers too.
#[derive(Debug, Default)]
pub(super) struct Holds(Mutex<BTreeSet<(PluginId, String)>>);

impl Loader {
    /// Adds the host's finalizer to an object whose plugin may hold finalizers of Pods, before it can do so.
    pub(super) async fn hold(&self, spec: &PluginSpec) -> Result<(), LoadFailure> {
        let of_object = self.object(&spec.id).filter(|_| !spec.grants.write.finalizers.is_empty());
        let Some((uid, held)) = of_object else { return Ok(()) };
        if !held {
            let unheld = |error: &dyn std::fmt::Display| LoadFailure::Unheld(text::line(&error.to_string()));
            let request = hold(&spec.id, &uid, true).map_err(|error| unheld(&error))?;
            self.api.json(request).await.map_err(|error| unheld(&error))?;
        }
        self.holds.0.lock().insert((spec.id.clone(), uid));
        Ok(())
    }

    /// Records the objects of the first list that have the host's finalizer: a host before may have added it.
    pub(in crate::app) fn adopt(&self, listed: &[Object]) {
        let held = listed.iter().filter(|object| object.held);
        self.holds.0.lock().extend(held.map(|object| (object.id.clone(), object.uid.clone())));
    }

    /// Returns true if the host has added its finalizer to the object, now or before its start.
    pub(in crate::app) fn has_held(&self, id: &PluginId, uid: &str) -> bool {
        self.holds.0.lock().contains(&(id.clone(), uid.to_owned()))
    }

    /// Forgets the objects that are gone.
    pub(in crate::app) fn forget_holds(&self, is_there: impl Fn(&PluginId, &str) -> bool) {
        self.holds.0.lock().retain(|(id, uid)| is_there(id, uid));
    }

    /// Returns why no plugin of the tenant may run, if the policy excludes it.
    pub(in crate::app) fn excluded(&self, tenant: &Tenant) -> Option<String> {
        self.rules.policy.as_ref()?.excluded(tenant)
    }
}
