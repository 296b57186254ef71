//! The readers' side: the present snapshot without waiting, and waiting for one to come.

use std::sync::Arc;

use super::Snapshot;
use crate::{
    model::Revision,
    pod::{CachedPod, Known, PodView, Staleness},
    sync::{ArcSwap, watch},
};

/// The writer's end: the place where the present snapshot is.
#[derive(Debug)]
pub(super) struct Published {
    present: Arc<ArcSwap<Snapshot>>,
    signal: watch::Sender<()>,
}

impl Published {
    pub(super) fn publish(&self, snapshot: Snapshot) {
        self.present.store(Arc::new(snapshot));
        self.signal.send_replace(());
    }
}

pub(super) fn published(first: Snapshot) -> (Published, Reader) {
    let present = Arc::new(ArcSwap::from_pointee(first));
    let (signal, changed) = watch::channel(());
    (Published { present: Arc::clone(&present), signal }, Reader { present, changed })
}

/// Reads the cache. Clones are cheap and independent.
#[derive(Debug, Clone)]
pub struct Reader {
    present: Arc<ArcSwap<Snapshot>>,
    changed: watch::Receiver<()>,
}

impl Reader {
    /// The present state. Never waits, neither for the writer nor for other readers.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.present.load_full()
    }

    /// Why the present state may be old.
    #[must_use]
    pub fn staleness(&self) -> Option<Staleness> {
        self.present.load().staleness().cloned()
    }

    /// The first snapshot, from now on, of which `reached` holds; some may be skipped. None when the writer is gone.
    /// Put a deadline around it.
    pub async fn wait_for(&mut self, mut reached: impl FnMut(&Snapshot) -> bool) -> Option<Arc<Snapshot>> {
        loop {
            // Marked as seen before it is read: a publication between the two is then not missed.
            self.changed.mark_unchanged();
            let snapshot = self.snapshot();
            if reached(&snapshot) {
                return Some(snapshot);
            }
            self.changed.changed().await.ok()?;
        }
    }

    /// As [`Self::wait_for`], for a revision of the watch. A write-through does not move it: to wait for an object,
    /// ask for the object.
    pub async fn wait_for_revision(&mut self, revision: Revision) -> Option<Arc<Snapshot>> {
        self.wait_for(|snapshot| snapshot.revision() >= revision).await
    }
}

impl Known for Reader {
    fn held(&self, namespace: &str, name: &str) -> Option<Arc<CachedPod>> {
        self.present.load().get(namespace, name)
    }
}
