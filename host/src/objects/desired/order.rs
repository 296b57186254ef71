//! The order in which plugins have the finalizers that several may hold of the same Pods. Pure.

use std::sync::Arc;

use podium_vocabulary::{PluginId, PluginSpec};

use super::{super::finalizers::Earlier, Desired, Namespace, Object};

impl Desired {
    /// Returns the finalizers of the other plugins that see Pods of the plugin of an object and keep theirs when it
    /// goes: those that have theirs before it, and those of which a version runs beside it.
    pub(crate) fn before(&self, id: &PluginId, runs: impl Fn(&PluginId) -> bool) -> Earlier {
        let object = self.object(id);
        let sees = |namespace: &Namespace| namespace.is_none() || id.namespace.is_none() || *namespace == id.namespace;
        let tenants = self.tenants.iter().filter(|(namespace, _)| object.is_some() && sees(namespace));
        let others = tenants.flat_map(|(_, of_tenant)| of_tenant.objects.values());
        // One that is beyond the bounds has no precedence over others.
        let others = others.filter(|other| other.id != *id && !other.is_forgotten());
        let kept = others.filter_map(|other| {
            let spec = other.of_finalizers()?;
            // One that was released has left what it had to others.
            let is_released = other.deleting && other.held.is_none();
            let is_before = object.is_some_and(|object| !is_released && other.precedence() < object.precedence());
            (is_before || runs(&other.id)).then_some(spec)
        });
        Earlier::new(self.files_beside(id).chain(kept))
    }

    /// Returns the plugins that may hold finalizers of a namespace's Pods, in the order in which they have them: those
    /// of files, then with their objects those of which a version runs, and the others. Those beyond the bounds of a
    /// tenant are last.
    pub(crate) fn in_order(
        &self,
        namespace: &Arc<str>,
        runs: impl Fn(&PluginId) -> bool,
    ) -> Vec<(Option<&Object>, Arc<PluginSpec>)> {
        let namespaces = [None, Some(namespace.clone())];
        let tenants = namespaces.iter().filter_map(|of| self.tenants.get(of));
        let mut objects: Vec<_> = tenants.flat_map(|of_tenant| of_tenant.objects.values()).collect();
        objects.sort_by_cached_key(|object| (object.is_forgotten(), !runs(&object.id), object.precedence()));
        let files = namespaces.iter().flat_map(|of| self.rules.of_tenant(of).values()).map(|spec| (None, spec.clone()));
        let objects = objects.into_iter().filter_map(|object| Some((Some(object), object.of_finalizers()?)));
        files.chain(objects).collect()
    }

    /// Returns the finalizers of the plugins that see Pods of a plugin whose object is gone: those of files, and of
    /// objects that stay and that hold some.
    pub(crate) fn beside_gone(&self, id: &PluginId, holds: impl Fn(&Object) -> bool) -> Earlier {
        let sees = |namespace: &Namespace| namespace.is_none() || id.namespace.is_none() || *namespace == id.namespace;
        let staying = self.staying().filter(|(object, _)| sees(&object.id.namespace) && holds(object));
        Earlier::new(self.files_beside(id).chain(staying.map(|(_, spec)| spec)))
    }

    /// Returns the plugins of files that see Pods of a plugin.
    fn files_beside(&self, id: &PluginId) -> impl Iterator<Item = Arc<PluginSpec>> {
        let sees = |namespace: &Namespace| namespace.is_none() || id.namespace.is_none() || *namespace == id.namespace;
        let of_files = self.rules.files.iter().filter(move |(namespace, _)| sees(namespace));
        of_files.flat_map(|(_, files)| files.values().cloned())
    }
}
