//! The trait that answers queries, and its answers.

use std::{sync::Arc, time::Duration};

use podium_vocabulary::{Cursor, PodQuery, Revision};

use super::CachedPod;

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

/// Units of the cost of a search. One is the time of a short comparison, about 5 ns. The figures are of a release build
/// on a 2-core x86-64 cloud machine with 10,000 Pods that share nothing, and in proportion to each other: no kind of
/// search takes more than 1.3 times as long for the same effort as one that compares nothing.
#[derive(Debug, Clone, Copy)]
pub struct Effort;

impl Effort {
    /// A candidate: it is found in its page, and its record is read.
    pub const CANDIDATE: u64 = 100;
    /// A comparison of two names, which brings candidates of several values of an index into one order.
    pub const MERGE: u64 = 10;
    /// A field of a candidate that is compared: the node, the phase, or all of its owners or labels.
    pub const FIELD: u64 = 20;
    /// An owner or a label of such a field, which is decoded.
    pub const ENTRY: u64 = 20;
    /// A comparison of a label's key with one of the Pod's labels. A lookup takes as many comparisons as the number of
    /// labels has binary digits.
    pub const KEY: u64 = 2;
    /// A value of the query that a label is compared with.
    pub const VALUE: u64 = 1;

    /// Returns the time that an effort stands for.
    #[must_use]
    pub const fn time(effort: u64) -> Duration {
        Duration::from_nanos(effort.saturating_mul(5))
    }
}

/// The result of a part of a search: the matches among some of the candidates.
#[derive(Debug, Clone, Default)]
pub struct Slice {
    /// The Pods that match, ordered by namespace, then name.
    pub pods: Vec<Arc<CachedPod>>,
    /// The number of candidates examined.
    pub examined: usize,
    /// The cost of examining them, in [`Effort`]s: candidates, comparisons and decoded values.
    pub effort: u64,
    /// True if the slice ended because the candidates are large, before `limit` and `most`. This is no part of the
    /// effort, because the size of a Pod in the cache depends on other Pods.
    pub early: bool,
    /// The last candidate examined, matching or not: the rest of the search is after it. `None` if there is no rest.
    pub next: Option<Cursor>,
}

/// A consistent view of the Pods.
pub trait PodView: Send + Sync {
    /// Returns the Pod with this namespace and name.
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<CachedPod>>;
    /// Returns the Pod with this uid.
    fn by_uid(&self, uid: &str) -> Option<Arc<CachedPod>>;
    /// Returns the matching Pods after `after`, until `limit` Pods are found, or the effort is `most` or more; at least
    /// one candidate is examined. Which candidates are examined does not depend on how a search is cut into slices.
    fn search(&self, query: &PodQuery, limit: usize, most: u64, after: Option<&Cursor>) -> Slice;
    /// Returns the number of matching Pods if no Pod has to be examined for it.
    fn known_count(&self, query: &PodQuery) -> Option<u64>;
    /// Returns at most `limit` matching Pods after `after`.
    fn find(&self, query: &PodQuery, limit: usize, after: Option<&Cursor>) -> Page {
        if limit == 0 {
            return Page::default();
        }
        // One more, to see whether more follow.
        let Slice { mut pods, examined, .. } = self.whole(query, limit.saturating_add(1), after);
        let next = (pods.len() > limit).then(|| pods.truncate(limit)).and_then(|()| pods.last());
        let next = next.map(|last| last.cursor());
        Page { pods, next, examined }
    }
    /// Returns the number of matching Pods.
    fn count(&self, query: &PodQuery) -> u64 {
        let count = || self.whole(query, usize::MAX, None).pods.len() as u64;
        self.known_count(query).unwrap_or_else(count)
    }
    /// Returns the matching Pods after `after`, until `limit` Pods are found, in one slice.
    fn whole(&self, query: &PodQuery, limit: usize, after: Option<&Cursor>) -> Slice {
        let mut all = self.search(query, limit, u64::MAX, after);
        while all.early && all.pods.len() < limit {
            let Slice { pods, examined, effort, early, next } =
                self.search(query, limit - all.pods.len(), u64::MAX, all.next.as_ref());
            all.pods.extend(pods);
            let examined = all.examined + examined;
            let effort = all.effort.saturating_add(effort);
            all = Slice { examined, effort, early, next, ..all };
        }
        all
    }
    /// Returns the newest revision that this view contains.
    fn revision(&self) -> Revision;
}
