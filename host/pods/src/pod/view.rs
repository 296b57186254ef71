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

/// A consistent view of the Pods.
pub trait PodView: Send + Sync {
    /// Returns the Pod with this namespace and name.
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<CachedPod>>;
    /// Returns the Pod with this uid.
    fn by_uid(&self, uid: &str) -> Option<Arc<CachedPod>>;
    /// Returns at most `limit` matching Pods after `after`.
    fn find(&self, query: &PodQuery, limit: usize, after: Option<&Cursor>) -> Page;
    /// Returns the number of matching Pods.
    fn count(&self, query: &PodQuery) -> u64;
    /// Returns the number of Pods that [`PodView::count`] examines: the cost of the query. 0 if the result is known.
    fn candidates(&self, query: &PodQuery) -> usize;
    /// Returns the newest revision that this view contains.
    fn revision(&self) -> Revision;
}
