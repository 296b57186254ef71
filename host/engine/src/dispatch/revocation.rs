//! [`Revocation`]: ends the runs of a plugin that may do less than it could when they began.
//!
//! A run and its delivery are dropped where they wait. A guest that computes waits at its next tick, after a
//! millisecond. Until then the engine refuses its host calls.

use std::{sync::OnceLock, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How soon a key is tried again whose plugin waits for a version that its new configuration permits: after as long as
/// it has waited so far, between these. Keys of a plugin that waits for days cost little, and the new version, which
/// tries the keys of all Pods at once, finds a deletion soon.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Whether a loaded version of a plugin may still run. A revocation is final. A version shares it with the versions
/// that it replaced and whose runs go on, so that it ends those too; the version after a revocation has its own.
#[derive(Debug, Default)]
pub(super) struct Revocation {
    since: OnceLock<Instant>,
    token: CancellationToken,
}

impl Revocation {
    pub(super) fn revoke(&self) {
        self.since.get_or_init(Instant::now);
        self.token.cancel();
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
        // `run_until_cancelled` prefers work that ends at the same time.
        tokio::select! {
            biased;
            () = self.token.cancelled() => None,
            done = work => Some(done),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_revocation_wins_over_work_that_ends_at_the_same_time() {
        let revocation = Revocation::default();
        let (end, ended) = oneshot::channel();
        let mut work = Box::pin(revocation.unless_revoked(ended));
        assert!(work.as_mut().now_or_never().is_none());
        end.send(()).unwrap();
        revocation.revoke();
        assert_eq!(work.await, None);
        assert_eq!(revocation.unless_revoked(std::future::ready(())).await, None);
    }
}
