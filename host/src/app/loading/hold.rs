//! The host's finalizer on the object of a plugin that may hold finalizers of Pods: it is there before the plugin is.

use podium_pods::model::{PluginId, PluginSpec, text};

use super::{LoadFailure, Loader};
use crate::objects::hold;

impl Loader {
    /// Records whether the object of a plugin that is loaded next has no finalizer of the host's: then its uid.
    pub(in crate::app) fn of_object(&self, id: &PluginId, unheld: Option<String>) {
        match unheld {
            Some(uid) => drop(self.unheld.lock().insert(id.clone(), uid)),
            None => drop(self.unheld.lock().remove(id)),
        }
    }

    /// Adds the host's finalizer to an object whose plugin may hold finalizers of Pods, before it can do so.
    pub(super) async fn hold(&self, spec: &PluginSpec) -> Result<(), LoadFailure> {
        let uid = self.unheld.lock().get(&spec.id).cloned();
        let Some(uid) = uid.filter(|_| !spec.grants.write.finalizers.is_empty()) else { return Ok(()) };
        let unheld = |error: &dyn std::fmt::Display| LoadFailure::Unheld(text::line(&error.to_string()));
        let request = hold(&spec.id, &uid, true).map_err(|error| unheld(&error))?;
        self.api.json(request).await.map_err(|error| unheld(&error))?;
        self.unheld.lock().remove(&spec.id);
        Ok(())
    }
}
