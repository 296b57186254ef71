//! The objects of which a removal of finalizers has ended. Pure.

use std::sync::Arc;

use podium_vocabulary::PluginId;

use super::Desired;

impl Desired {
    /// Returns the objects that have lost the host's finalizer since `before`, while they were being deleted, with
    /// their uids: those that are without it, and those of which `is_gone` holds.
    pub(crate) fn ended_since(
        &self,
        before: &Self,
        is_gone: impl Fn(&PluginId, &str) -> bool,
    ) -> Vec<(PluginId, String)> {
        let changed = before.tenants.iter().filter(|(namespace, of_tenant)| {
            !self.tenants.get(*namespace).is_some_and(|after| Arc::ptr_eq(after, of_tenant))
        });
        let removing = changed.flat_map(|(_, of_tenant)| of_tenant.objects.values());
        let removing = removing.filter(|object| object.deleting && object.held.is_some());
        let ended = removing.filter(|object| match self.object(&object.id).filter(|of| of.uid == object.uid) {
            Some(after) => after.held.is_none(),
            None => is_gone(&object.id, &object.uid),
        });
        ended.map(|object| (object.id.clone(), object.uid.clone())).collect()
    }
}
