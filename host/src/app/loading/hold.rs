//! The host's finalizer on the object of a plugin that may hold finalizers of Pods: it is there before the plugin is.

use podium_pods::model::{PluginSpec, text};

use super::{LoadFailure, Loader};
use crate::objects::hold;

impl Loader {
    /// Adds the host's finalizer to an object whose plugin may hold finalizers of Pods, before it can do so.
    pub(super) async fn hold(&self, spec: &PluginSpec) -> Result<(), LoadFailure> {
        let Some(uid) = self.unheld(&spec.id).filter(|_| !spec.grants.write.finalizers.is_empty()) else {
            return Ok(());
        };
        let unheld = |error: &dyn std::fmt::Display| LoadFailure::Unheld(text::line(&error.to_string()));
        let request = hold(&spec.id, &uid, true).map_err(|error| unheld(&error))?;
        self.api.json(request).await.map_err(|error| unheld(&error))?;
        self.is_held(&spec.id);
        Ok(())
    }
}
