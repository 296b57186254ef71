//! The objects that have not, or not any more, the host's finalizer, and whose plugins may hold finalizers of Pods.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use podium_vocabulary::{PluginId, PluginSpec};
use tokio::time::Instant;

use super::Cleanup;
use crate::{
    app::objects::{Known, is_gone},
    objects::Desired,
};

/// A replica that runs the plugins of a tenant removes their finalizers in this time, or another one takes over.
const ELSEWHERE: Duration = Duration::from_secs(3_600);

/// The objects that are left to another replica, by plugin and uid, with the times since which they are.
pub(super) type Elsewhere = BTreeMap<(PluginId, String), Instant>;

impl Cleanup {
    /// Returns the objects of a namespace, or of all, that are gone, or are being deleted, without the host's
    /// finalizer. `desired` has those of the namespace.
    pub(super) fn left(
        &self,
        desired: &Desired,
        namespace: Option<&Option<Arc<str>>>,
    ) -> Vec<(PluginId, String, Arc<PluginSpec>)> {
        let (names, within) = {
            let Known { names, namespace: within, .. } = &*self.known.lock();
            (names.clone(), within.clone())
        };
        let is_left = |id: &PluginId, uid: &str| match desired.object(id).filter(|object| object.uid == uid) {
            Some(object) => object.deleting && object.held.is_none(),
            // Nothing is known of the objects of other namespaces.
            None => (within.is_none() || id.namespace == within) && is_gone(&names, id, uid),
        };
        self.driver.components.holds.which(namespace, is_left)
    }

    /// Forgets objects that have been left to another replica for long: the finalizers of Pods may be those of others
    /// by then.
    pub(super) fn forget_elsewhere(&self, elsewhere: &mut Elsewhere) {
        let desired = {
            let known = self.known.lock();
            known.is_listed.then(|| known.desired.clone())
        };
        let Some(desired) = desired else { return };
        let owned = self.driver.owns();
        let left = self.left(&desired, None).into_iter().filter(|(id, ..)| !owned.has(&id.tenant()));
        let now = Instant::now();
        let before = std::mem::take(elsewhere);
        elsewhere.extend(left.map(|(id, uid, _)| {
            let key = (id, uid);
            let since = before.get(&key).copied().unwrap_or(now);
            (key, since)
        }));
        for ((id, uid), _) in elsewhere.extract_if(.., |_, since| since.elapsed() >= ELSEWHERE) {
            self.driver.let_go_later(id, uid);
        }
    }
}
