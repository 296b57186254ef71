//! Token buckets on the monotonic clock, which the caller passes.

use std::time::Duration;

use tokio::time::Instant;

/// A rate: `burst` at once, then one per `refill`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    pub(super) burst: u64,
    pub(super) refill: Duration,
}

#[derive(Debug)]
pub(super) struct Bucket {
    rate: Rate,
    tokens: u64,
    refilled: Instant,
}

impl Bucket {
    pub(super) fn full(rate: Rate, now: Instant) -> Self {
        Self { rate, tokens: rate.burst, refilled: now }
    }

    pub(super) fn has_any(&mut self, now: Instant) -> bool {
        let refills = now.saturating_duration_since(self.refilled).as_nanos() / self.rate.refill.as_nanos();
        let refills = u32::try_from(refills).unwrap_or(u32::MAX);
        self.tokens = self.tokens.saturating_add(u64::from(refills)).min(self.rate.burst);
        self.refilled += self.rate.refill * refills;
        self.tokens > 0
    }

    pub(super) fn take(&mut self, now: Instant) -> bool {
        let granted = self.has_any(now);
        self.tokens = self.tokens.saturating_sub(1);
        granted
    }
}
