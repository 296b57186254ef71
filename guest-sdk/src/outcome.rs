//! [`Outcome`]: how a run ended well.

use std::time::Duration;

/// How a run ended well. What was staged is sent after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Outcome(Rest);

/// What the host does with the key. Apart from [`Outcome`], so that a new kind of rest breaks no author's `match`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    Settled,
    RequeueAfter(Duration),
    Stop,
}

impl Outcome {
    /// Rest until something changes.
    pub const fn settled() -> Self {
        Self(Rest::Settled)
    }

    /// Run again after this time, or sooner if something changes. Counted in milliseconds, rounded up, so that a run
    /// never comes before its time.
    pub const fn requeue_after(duration: Duration) -> Self {
        Self(Rest::RequeueAfter(duration))
    }

    /// Like settled; and plugins ordered after this one need not run on this revision of the Pod.
    ///
    /// At present it is treated as settled: the order of plugins is that in which one change queues them, and none
    /// waits for another's run.
    pub const fn stop() -> Self {
        Self(Rest::Stop)
    }

    /// When it is to run again, where that was asked for.
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
