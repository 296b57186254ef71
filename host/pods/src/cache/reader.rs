//! The readers' side: it loads the present snapshot without waiting, or waits for a later one.

use std::sync::Arc;

use podium_sync::{ArcSwap, watch};

use super::Snapshot;
use crate::pod::{CachedPod, CachedPods, PodView, Staleness};

/// The writer's side: it replaces the present snapshot and signals readers.
#[derive(Debug)]
pub(super) struct Publisher {
    present: Arc<ArcSwap<Snapshot>>,
    signal: watch::Sender<()>,
}

impl Publisher {
    pub(super) fn publish(&self, snapshot: Snapshot) {
        self.present.store(Arc::new(snapshot));
        self.signal.send_replace(());
    }
}

pub(super) fn published(first: Snapshot) -> (Publisher, Reader) {
    let present = Arc::new(ArcSwap::from_pointee(first));
    let (signal, changed) = watch::channel(());
    (Publisher { present: Arc::clone(&present), signal }, Reader { present, changed })
}

/// Reads the cache. Clones are cheap and independent.
#[derive(Debug, Clone)]
pub struct Reader {
    present: Arc<ArcSwap<Snapshot>>,
    changed: watch::Receiver<()>,
}

impl Reader {
    /// Returns the present snapshot. Never waits for the writer or for other readers.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.present.load_full()
    }

    /// Returns why the present snapshot may be old, or `None` if it is up to date.
    #[must_use]
    pub fn staleness(&self) -> Option<Staleness> {
        self.present.load().staleness().cloned()
    }

    /// Returns the first snapshot, beginning with the present one, for which `reached` is true; some may be skipped.
    /// Returns `None` when the writer is dropped. Callers should set a deadline.
    pub async fn wait_for(&mut self, mut reached: impl FnMut(&Snapshot) -> bool) -> Option<Arc<Snapshot>> {
        loop {
            // The signal is marked as seen before the snapshot is loaded, so that a publication between the two is not
            // missed.
            self.changed.mark_unchanged();
            let snapshot = self.snapshot();
            if reached(&snapshot) {
                return Some(snapshot);
            }
            self.changed.changed().await.ok()?;
        }
    }
}

impl CachedPods for Reader {
    fn cached(&self, namespace: &str, name: &str) -> Option<Arc<CachedPod>> {
        self.present.load().get(namespace, name)
    }
}
