//! [`Revocation`]: ends the runs of a plugin that may do less than it could when they began.
//!
//! A run and its delivery are dropped where they wait. A guest that computes waits at its next tick, after a
//! millisecond. Until then the engine refuses its host calls.

use std::{pin::pin, sync::OnceLock, time::Duration};

use futures::future::{Either, select};
use podium_sync::watch;
use tokio::time::Instant;

/// How soon a key is tried again whose plugin waits for a version that its new configuration permits: after as long as
/// it has waited so far, between these. Keys of a plugin that waits for days cost little, and the new version, which
/// tries the keys of all Pods at once, finds a deletion soon.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Whether a loaded version of a plugin may still run. A revocation is final; the next version has its own.
#[derive(Debug)]
pub(super) struct Revocation {
    since: OnceLock<Instant>,
    sender: watch::Sender<()>,
    /// Has seen nothing, so that its clones see a revocation that came before them.
    receiver: watch::Receiver<()>,
}

impl Default for Revocation {
    fn default() -> Self {
        let (sender, receiver) = watch::channel(());
        Self { since: OnceLock::new(), sender, receiver }
    }
}

impl Revocation {
    pub(super) fn revoke(&self) {
        self.since.get_or_init(Instant::now);
        self.sender.send_replace(());
    }

    pub(super) fn is_revoked(&self) -> bool {
        self.since.get().is_some()
    }

    /// Returns how long a key waits before it is tried again; `None` if the version may run.
    pub(super) fn pause(&self) -> Option<Duration> {
        let (least, most) = PAUSES;
        self.since.get().map(|since| since.elapsed().clamp(least, most))
    }

    /// Does `work` until it ends. Returns `None` and drops it at a revocation, also at one that came before.
    pub(super) async fn unless_revoked<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut receiver = self.receiver.clone();
        let revoked = pin!(receiver.changed());
        let work = pin!(work);
        match select(revoked, work).await {
            Either::Left(_) => None,
            Either::Right((done, _)) => Some(done),
        }
    }
}
