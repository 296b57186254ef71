//! The order in which plugins have the finalizers that several may hold of the same Pods. Pure.

use std::{collections::BTreeSet, sync::Arc};

use podium_vocabulary::{PluginId, PluginSpec};

use super::{super::finalizers::Earlier, Desired, Namespace, Object};

impl Desired {
    /// Calls `each` with the objects of a namespace, or with `None` of the cluster, that [`Self::removing`] returns and
    /// whose plugins may hold finalizers, in order. The third argument has the finalizers of the other plugins that see
    /// their Pods and keep theirs when the object goes: those that have theirs before it, and those of which a version
    /// runs beside it.
    pub(crate) fn removing_in_order<K: Ord + Clone + AsRef<str> + for<'k> From<&'k str>>(
        &self,
        namespace: &Namespace,
        runs: impl Fn(&PluginId) -> bool,
        mut each: impl FnMut(&Object, &PluginSpec, &Earlier<K>),
    ) {
        let seeing = self.tenants.iter().filter(|(of, _)| is_seen(namespace, of));
        // One that is beyond the bounds has no precedence over others.
        let running = seeing.flat_map(|(_, of_tenant)| of_tenant.objects.values());
        let running = running.filter(|object| !object.deleting && !object.is_forgotten() && runs(&object.id));
        let mut earlier =
            Earlier::<K>::new(self.files_beside(namespace).chain(running.filter_map(Object::of_finalizers)));
        let tenants = BTreeSet::from([None, namespace.clone()]);
        let tenants = tenants.iter().filter_map(|of| self.tenants.get(of));
        let objects = tenants.flat_map(|of_tenant| of_tenant.objects.values().map(move |object| (object, of_tenant)));
        let mut objects: Vec<_> = objects.collect();
        objects.sort_by_key(|(object, _)| object.precedence());
        for (object, of_tenant) in objects {
            let Some(spec) = object.of_finalizers() else { continue };
            if object.id.namespace == *namespace && of_tenant.is_removing(object) {
                each(object, &spec, &earlier);
            }
            // One that was released has left what it had to others.
            let is_released = object.deleting && object.held.is_none();
            if !is_released && !object.is_forgotten() {
                earlier.add(&spec);
            }
        }
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

    /// Returns the finalizers of the plugins that see Pods of the plugins of a namespace, or with `None` of the
    /// cluster, whose objects are gone: those of files, and of objects that stay and that hold some.
    pub(crate) fn beside_gone(&self, namespace: &Namespace, holds: impl Fn(&Object) -> bool) -> Earlier {
        let staying = self.staying().filter(|(object, _)| is_seen(namespace, &object.id.namespace) && holds(object));
        Earlier::new(self.files_beside(namespace).chain(staying.map(|(_, spec)| spec)))
    }

    /// Returns the plugins of files that see Pods of the plugins of a namespace.
    fn files_beside(&self, namespace: &Namespace) -> impl Iterator<Item = Arc<PluginSpec>> {
        let of_files = self.rules.files.iter().filter(move |(of, _)| is_seen(namespace, of));
        of_files.flat_map(|(_, files)| files.values().cloned())
    }
}

/// Returns true if plugins of a namespace, or with `None` of the cluster, see Pods that those of another one see.
fn is_seen(namespace: &Namespace, other: &Namespace) -> bool {
    namespace.is_none() || other.is_none() || namespace == other
}
