//! [`Outcome`]: the result of a successful run.

use std::time::Duration;

/// The result of a successful run. Its staged writes are sent afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Outcome(Rest);

/// The host's next step for the key. Separate from [`Outcome`], so that a new variant does not break an author's
/// `match`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    Settled,
    RequeueAfter(Duration),
    Stop,
}

impl Outcome {
    /// Wait for the next change.
    pub const fn settled() -> Self {
        Self(Rest::Settled)
    }

    /// Run again after this time, or earlier if something changes. The time is rounded up to milliseconds, so that a
    /// run is never early.
    pub const fn requeue_after(duration: Duration) -> Self {
        Self(Rest::RequeueAfter(duration))
    }

    /// Like settled, and plugins of the tenant that are ordered after this one do not run on this revision of the Pod,
    /// unless they run for another reason, such as a retry.
    pub const fn stop() -> Self {
        Self(Rest::Stop)
    }

    /// Returns the time after which the run is repeated, if there is one.
    #[must_use]
    pub const fn requeues_after(&self) -> Option<Duration> {
        match self.0 {
            Rest::RequeueAfter(duration) => Some(duration),
            Rest::Settled | Rest::Stop => None,
        }
    }

    #[cfg_attr(not(target_arch = "wasm32"), expect(dead_code, reason = "only a component hands it to the host"))]
    pub(crate) const fn rest(self) -> Rest {
        self.0
    }
}
