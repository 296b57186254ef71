//! The trait that answers queries, and its answers.

use std::sync::Arc;

use super::CachedPod;
use crate::model::{Cursor, PodQuery, Revision};

#[derive(Debug, Clone, Default)]
pub struct Page {
    /// Ordered by namespace, then name.
    pub pods: Vec<Arc<CachedPod>>,
    /// None when nothing follows.
    pub next: Option<Cursor>,
    /// Pods that were looked at to fill it: what it cost.
    pub examined: usize,
}

/// One consistent view of the Pods.
pub trait PodView: Send + Sync {
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<CachedPod>>;
    fn by_uid(&self, uid: &str) -> Option<Arc<CachedPod>>;
    /// At most `limit` Pods behind `after`.
    fn find(&self, query: &PodQuery, limit: usize, after: Option<&Cursor>) -> Page;
    fn count(&self, query: &PodQuery) -> u64;
    /// Pods that [`PodView::count`] looks at to answer: what it costs. 0 where the number is known.
    fn candidates(&self, query: &PodQuery) -> usize;
    /// The newest revision that this view has seen.
    fn revision(&self) -> Revision;
}
