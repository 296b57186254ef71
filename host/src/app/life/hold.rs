//! The host's finalizer on the object of a plugin that may hold finalizers of Pods: it is there before the plugin is.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use podium_life::Object;
use podium_vocabulary::{PluginId, PluginSpec, text};

use super::{Components, LoadFailure};
use crate::objects::hold;

/// The objects that have the host's finalizer from the host itself, with their uids: anyone who may write an object may
/// write its finalizers too.
#[derive(Debug, Default)]
pub(in crate::app) struct Holds(Mutex<BTreeSet<(PluginId, String)>>);

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
        self.holds.0.lock().insert((spec.id.clone(), uid.to_string()));
        Ok(())
    }
}

impl Holds {
    /// Records the objects of the first list that have the host's finalizer: a host before may have added it.
    pub(in crate::app) fn adopt(&self, held: impl IntoIterator<Item = (PluginId, String)>) {
        self.0.lock().extend(held);
    }

    /// Returns true if the host has added its finalizer to the object, now or before its start.
    pub(in crate::app) fn has(&self, id: &PluginId, uid: &str) -> bool {
        self.0.lock().contains(&(id.clone(), uid.to_owned()))
    }

    /// Forgets the objects that are gone.
    pub(in crate::app) fn forget(&self, is_there: impl Fn(&PluginId, &str) -> bool) {
        self.0.lock().retain(|(id, uid)| is_there(id, uid));
    }
}
