//! Plugins that run for groups of Pods: what a key of the queue stands for. Groups are neither counted nor kept; the
//! Pods of one are those that a search finds when it is run.

use std::sync::Arc;

use podium_pods::pod::{CachedPod, Change, Page, PodView};
use podium_vocabulary::{PodKey, Revision, is_group};

use super::{LoadedPlugin, gate::is_going};

/// The Pods of a group that are looked at for one that is not being deleted.
const MOST_TERMINATING: usize = 500;

impl LoadedPlugin {
    /// Returns true if the plugin runs for keys of this kind: Pods, or the groups of its relation.
    pub(super) fn runs_for(&self, key: &PodKey) -> bool {
        match &self.spec.watch.related {
            Some(related) => related.by.members(key).is_some(),
            None => !is_group(&key.uid),
        }
    }

    /// Returns the group that the plugin runs for if this Pod changes; `None` for a plugin that runs for each Pod, and
    /// for a Pod that it does not run for.
    #[must_use]
    pub fn group(&self, pod: &Arc<CachedPod>) -> Option<PodKey> {
        let added = Change::between(None, Some(pod.clone()))?;
        self.wake().concerned(&added).groups.pop().map(|group| group.key)
    }

    /// Returns true if a view shows that a Pod has left a group. `left` is the revision at which it left it, or at
    /// which it was still there: a view of before that may lack the Pod because it came later.
    pub(super) fn has_left(&self, group: &PodKey, uid: &str, left: Revision, view: &dyn PodView) -> bool {
        view.revision() >= left && view.by_uid(uid).is_none_or(|pod| self.group(&pod).as_ref() != Some(group))
    }

    /// Returns the Pod of a key, or of a group the first one by namespace and name, if possible one that is not being
    /// deleted.
    pub(super) fn present(&self, key: &PodKey, view: &dyn PodView) -> Option<Arc<CachedPod>> {
        let related = self.spec.watch.related.as_ref().filter(|_| is_group(&key.uid));
        let Some(related) = related else { return view.by_uid(&key.uid) };
        let mut query = related.by.members(key)?;
        query.labels.0.extend(self.spec.watch.selector.0.iter().cloned());
        let first = view.find(&query, 1, None).pods.pop()?;
        if !is_going(&first) {
            return Some(first);
        }
        let Page { pods, .. } = view.find(&query, MOST_TERMINATING, None);
        Some(pods.into_iter().find(|pod| !is_going(pod)).unwrap_or(first))
    }
}
