//! Plugins that run for groups of Pods: what a key of the queue stands for. Groups are neither counted nor kept; the
//! Pods of one are those that a search finds when it is run.

use std::{sync::Arc, time::Duration};

use podium_pods::pod::{CachedPod, Change, Effort, PodView, Slice};
use podium_vocabulary::{PodKey, PodQuery, Relation, Revision, is_group};

use super::{LoadedPlugin, gate::is_going};

/// The Pods of a group that are looked at for one that is not being deleted.
const MOST_TERMINATING: usize = 500;
/// The effort of one slice of a search: about a millisecond.
const SLICE: u64 = 200_000;

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

    /// Returns why a Pod is in no group.
    pub(super) fn no_group(&self) -> String {
        let lacks = match self.spec.watch.related.as_ref().map(|related| &related.by) {
            Some(Relation::Workload) => "has no controller".to_owned(),
            Some(Relation::Node) => "is on no node".to_owned(),
            Some(Relation::Label(key)) => format!("has no label {key}"),
            None => "has no value".to_owned(),
        };
        format!("the Pod {lacks}, so it is in no group (watch.related), or the value has more than 317 bytes")
    }

    /// Returns true if a view shows that a Pod has left a group, perhaps to come back. `left` is the revision at which
    /// it left it, or at which it was still there: a view of before that may lack the Pod because it came later.
    pub(super) fn has_left(&self, group: &PodKey, uid: &str, left: Revision, view: &dyn PodView) -> bool {
        match view.by_uid(uid) {
            Some(pod) => pod.revision > left || self.group(&pod).as_ref() != Some(group),
            None => view.revision() >= left,
        }
    }

    /// Returns the Pod of a key, or of a group the first one by namespace and name, if possible one that is not being
    /// deleted. For people who ask; a run uses [`Self::member`].
    pub(super) fn present(&self, key: &PodKey, view: &dyn PodView) -> Option<Arc<CachedPod>> {
        if !is_group(&key.uid) {
            return view.by_uid(&key.uid);
        }
        let pods = view.find(&self.members(key)?, MOST_TERMINATING, None).pods;
        let first = pods.first().cloned();
        pods.into_iter().find(|pod| !is_going(pod)).or(first)
    }

    /// Returns [`Self::present`] of a group, and calls `charge` with the cost of the search, slice by slice: a selector
    /// may match few Pods of many, and other tasks of the thread have their turn in between.
    pub(super) async fn member(
        &self,
        group: &PodKey,
        view: &dyn PodView,
        charge: impl Fn(Duration),
    ) -> Option<Arc<CachedPod>> {
        let query = self.members(group)?;
        let mut first = None;
        let mut after = None;
        let mut left = MOST_TERMINATING;
        loop {
            let Slice { pods, effort, next, .. } = view.search(&query, 1, SLICE, after.as_ref());
            charge(Effort::time(effort));
            for pod in pods {
                if !is_going(&pod) {
                    return Some(pod);
                }
                left = left.saturating_sub(1);
                first.get_or_insert(pod);
            }
            after = next;
            if after.is_none() || left == 0 {
                return first;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Returns the search of the Pods of a group that the plugin's selector matches.
    fn members(&self, group: &PodKey) -> Option<PodQuery> {
        let mut query = self.spec.watch.related.as_ref()?.by.members(group)?;
        query.labels.0.extend(self.spec.watch.selector.0.iter().cloned());
        Some(query)
    }
}
