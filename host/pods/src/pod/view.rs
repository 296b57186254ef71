//! The trait that answers queries, and its answers.

use std::sync::Arc;

use super::CachedPod;
use crate::model::{Cursor, PodQuery, Revision};

/// One page of the Pods that match a query.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// Ordered by namespace, then name.
    pub pods: Vec<Arc<CachedPod>>,
    /// The cursor of the next page; `None` on the last page.
    pub next: Option<Cursor>,
    /// The number of Pods examined to fill the page: the cost of the query.
    pub examined: usize,
}

/// A part of a search: what was found among some of the candidates.
#[derive(Debug, Clone, Default)]
pub struct Slice {
    /// The Pods that match, ordered by namespace, then name.
    pub pods: Vec<Arc<CachedPod>>,
    /// The number of candidates examined: the cost of the slice.
    pub examined: usize,
    /// The last candidate examined, matching or not: the rest of the search is after it. `None` if there is no rest.
    pub next: Option<Cursor>,
}

/// A consistent view of the Pods.
pub trait PodView: Send + Sync {
    /// Returns the Pod with this namespace and name.
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<CachedPod>>;
    /// Returns the Pod with this uid.
    fn by_uid(&self, uid: &str) -> Option<Arc<CachedPod>>;
    /// Returns the matching Pods after `after`, until `limit` Pods are found or `most` candidates are examined. Which
    /// candidates are examined does not depend on how a search is cut into slices.
    fn search(&self, query: &PodQuery, limit: usize, most: usize, after: Option<&Cursor>) -> Slice;
    /// Returns the number of matching Pods if no Pod has to be examined for it.
    fn known_count(&self, query: &PodQuery) -> Option<u64>;
    /// Returns at most `limit` matching Pods after `after`.
    fn find(&self, query: &PodQuery, limit: usize, after: Option<&Cursor>) -> Page {
        if limit == 0 {
            return Page::default();
        }
        // One more, to see whether more follow.
        let Slice { mut pods, examined, .. } = self.search(query, limit.saturating_add(1), usize::MAX, after);
        let next = (pods.len() > limit).then(|| pods.truncate(limit)).and_then(|()| pods.last());
        let next = next.map(|last| last.cursor());
        Page { pods, next, examined }
    }
    /// Returns the number of matching Pods.
    fn count(&self, query: &PodQuery) -> u64 {
        let count = || self.search(query, usize::MAX, usize::MAX, None).pods.len() as u64;
        self.known_count(query).unwrap_or_else(count)
    }
    /// Returns the newest revision that this view contains.
    fn revision(&self) -> Revision;
}
