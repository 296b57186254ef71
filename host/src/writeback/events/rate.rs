//! Token buckets on the host's clock, which a caller gives.

/// So many at once, then one each so many milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    pub(super) burst: u64,
    pub(super) refill_millis: u64,
}

#[derive(Debug)]
pub(super) struct Bucket {
    rate: Rate,
    tokens: u64,
    refilled_millis: u64,
}

impl Bucket {
    pub(super) fn full(rate: Rate, now_millis: u64) -> Self {
        Self { rate, tokens: rate.burst, refilled_millis: now_millis }
    }

    pub(super) fn has_any(&mut self, now_millis: u64) -> bool {
        let refills = now_millis.saturating_sub(self.refilled_millis) / self.rate.refill_millis;
        self.tokens = self.tokens.saturating_add(refills).min(self.rate.burst);
        self.refilled_millis += refills * self.rate.refill_millis;
        self.tokens > 0
    }

    pub(super) fn take(&mut self, now_millis: u64) -> bool {
        let granted = self.has_any(now_millis);
        self.tokens = self.tokens.saturating_sub(1);
        granted
    }
}
