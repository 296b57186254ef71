//! Plugins that run for groups of Pods: what a key of the queue stands for. Groups are neither counted nor kept; the
//! Pods of one are those that a search finds when it is run.

use std::{
    ops::ControlFlow::{self, Break, Continue},
    sync::Arc,
    time::Duration,
};

use podium_pods::pod::{CachedPod, Effort, PodView, Slice};
use podium_vocabulary::{Cursor, PodKey, PodQuery, Relation, Revision, is_group};

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
        self.wake().group(pod)
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
    pub(crate) fn has_left(&self, group: &PodKey, uid: &str, left: Revision, view: &dyn PodView) -> bool {
        match view.by_uid(uid) {
            // Before it joined the group, a Pod may be in another one.
            Some(pod) => pod.revision > left || (pod.revision == left && self.group(&pod).as_ref() != Some(group)),
            None => view.revision() >= left,
        }
    }

    /// Returns the Pod of a key, or of a group the first one by namespace and name, if possible one that is not being
    /// deleted. For people who ask; a run uses [`Self::found`].
    pub(super) fn present(&self, key: &PodKey, view: &dyn PodView) -> Option<Arc<CachedPod>> {
        if !is_group(&key.uid) {
            return view.by_uid(&key.uid);
        }
        let mut search = Search::new(self.members(key)?);
        loop {
            if let (Break(found), _) = search.slice(view) {
                return found;
            }
        }
    }

    /// Returns [`Self::present`], and calls `charge` with the cost of a search, slice by slice: a selector may match
    /// few of many Pods, and other tasks of the thread have their turn in between.
    pub(super) async fn found(
        &self,
        key: &PodKey,
        view: &dyn PodView,
        charge: impl Fn(Duration),
    ) -> Option<Arc<CachedPod>> {
        if !is_group(&key.uid) {
            return view.by_uid(&key.uid);
        }
        search(self.members(key)?, view, charge).await
    }

    /// Returns the search of the Pods of a group that the plugin's selector matches.
    fn members(&self, group: &PodKey) -> Option<PodQuery> {
        Some(self.matching(self.spec.watch.related.as_ref()?.by.members(group)?))
    }

    fn matching(&self, mut query: PodQuery) -> PodQuery {
        query.labels.0.extend(self.spec.watch.selector.0.iter().cloned());
        query
    }

    /// Returns the first Pod of a workload that the plugin's selector matches, as [`Self::found`] does.
    pub(super) async fn first_of(
        &self,
        workload: &PodKey,
        view: &dyn PodView,
        charge: impl Fn(Duration),
    ) -> Option<Arc<CachedPod>> {
        search(self.matching(Relation::Workload.members(workload)?), view, charge).await
    }
}

/// Returns the first Pod that a query finds, if possible one that is not being deleted.
async fn search(query: PodQuery, view: &dyn PodView, charge: impl Fn(Duration)) -> Option<Arc<CachedPod>> {
    let mut search = Search::new(query);
    loop {
        let (found, effort) = search.slice(view);
        charge(Effort::time(effort));
        if let Break(found) = found {
            return found;
        }
        tokio::task::yield_now().await;
    }
}

/// The search for the Pod of a group that a run is about.
struct Search {
    query: PodQuery,
    /// The first Pod, which is being deleted.
    first: Option<Arc<CachedPod>>,
    after: Option<Cursor>,
    /// The Pods that may be looked at.
    left: usize,
}

impl Search {
    fn new(query: PodQuery) -> Self {
        Self { query, first: None, after: None, left: MOST_TERMINATING }
    }

    /// Searches one slice. Returns its effort, and the Pod if the search is over.
    fn slice(&mut self, view: &dyn PodView) -> (ControlFlow<Option<Arc<CachedPod>>>, u64) {
        let Slice { mut pods, effort, next, .. } = view.search(&self.query, 1, SLICE, self.after.as_ref());
        self.after = next;
        let found = match pods.pop() {
            Some(living) if !is_going(&living) => return (Break(Some(living)), effort),
            found => found,
        };
        self.left = self.left.saturating_sub(usize::from(found.is_some()));
        self.first = self.first.take().or(found);
        let is_over = self.after.is_none() || self.left == 0;
        (if is_over { Break(self.first.take()) } else { Continue(()) }, effort)
    }
}
