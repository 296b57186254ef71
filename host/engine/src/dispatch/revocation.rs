//! [`Revocation`]: ends the runs of a plugin that may do less than it could when they began.
//!
//! A run and its delivery are dropped where they wait. A guest that computes waits at its next tick, after a
//! millisecond. Until then the engine refuses its host calls.

use std::{
    pin::pin,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};

use futures::future::{Either, select};
use podium_pods::sync::watch;

/// Whether a loaded version of a plugin may still run. A revocation is final; the next version has its own.
#[derive(Debug)]
pub(super) struct Revocation {
    revoked: AtomicBool,
    sender: watch::Sender<()>,
    /// Has seen nothing, so that its clones see a revocation that came before them.
    receiver: watch::Receiver<()>,
}

impl Default for Revocation {
    fn default() -> Self {
        let (sender, receiver) = watch::channel(());
        Self { revoked: AtomicBool::new(false), sender, receiver }
    }
}

impl Revocation {
    pub(super) fn revoke(&self) {
        self.revoked.store(true, SeqCst);
        self.sender.send_replace(());
    }

    pub(super) fn is_revoked(&self) -> bool {
        self.revoked.load(SeqCst)
    }

    /// Does `work` until it ends. Returns `None` and drops it at a revocation, also at one that came before.
    pub(super) async fn unless_revoked<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut receiver = self.receiver.clone();
        let (revoked, work) = (pin!(receiver.changed()), pin!(work));
        match select(revoked, work).await {
            Either::Left(_) => None,
            Either::Right((done, _)) => Some(done),
        }
    }
}
