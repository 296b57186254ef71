//! Runs a plugin again that applied an object which another client has changed.

use std::sync::Arc;

use podium_pods::pod::{CachedPod, Change, PodView};
use podium_vocabulary::PodKey;

use super::{Dispatch, LoadedPlugin, gate::is_going, tombstones::slot};
use crate::{queue::Why, wake::Woken};

impl Dispatch {
    /// Queues the Pod, or its group, of the run that applied an object; if that Pod is gone or being deleted, the first
    /// living one of the workload that owns the object. Returns false if the plugin runs for none of them: then it does
    /// not run.
    pub async fn child_changed(&self, plugin: &LoadedPlugin, pod: Option<&PodKey>, workload: Option<&PodKey>) -> bool {
        let view = self.reader.snapshot();
        let present = pod.and_then(|pod| view.get(&pod.namespace, &pod.name)).filter(|pod| !is_going(pod));
        let mut key = present.and_then(|pod| plugin.key_for(&pod));
        if key.is_none()
            && let Some(workload) = workload
        {
            let charge = |cost| self.queue.charge(plugin.lane, cost);
            key = plugin.first_of(workload, &*view, charge).await.and_then(|pod| plugin.key_for(&pod));
        }
        let Some(key) = key else { return false };
        plugin.status.adds.add(1);
        self.queue.add_because([(plugin.lane, slot(&key), key.uid, Why::CHILD)], false);
        true
    }
}

impl LoadedPlugin {
    /// Returns the key for which the plugin runs when this Pod is added, if it does.
    fn key_for(&self, pod: &Arc<CachedPod>) -> Option<PodKey> {
        let added = Change::between(None, Some(pod.clone()))?;
        let Woken { pods, mut groups } = self.wake().concerned(&added);
        if pods.is_empty() { groups.pop().map(|group| group.key) } else { Some(pod.key.clone()) }
    }
}
