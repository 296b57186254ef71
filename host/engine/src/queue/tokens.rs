//! Token buckets, pure: the time is an argument of every call.
//!
//! A bucket gains tokens at a constant rate up to its burst. It may go into debt: a job starts only when the buckets
//! hold what jobs of its lane lately used, and what it uses beyond that is taken all the same. All arithmetic is in
//! billionths of a token, of which a rate of one token per second gains one per nanosecond, so nothing is rounded.

use std::time::Duration;

use tokio::time::Instant;

/// The number of kinds of tokens. The queue does not know what they stand for.
pub const KINDS: usize = 3;

/// A number of tokens of each kind.
pub type Amounts = [u32; KINDS];

const BILLION: i64 = 1_000_000_000;

/// How fast a bucket gains tokens, and how many it holds at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// At least 1.
    pub per_second: u32,
    /// At least 1.
    pub burst: u32,
}

impl Rate {
    /// A bucket with this rate is never empty.
    pub const UNLIMITED: Self = Self { per_second: u32::MAX, burst: u32::MAX };
}

/// The tokens that a lane's jobs need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// The rates of the lane's own buckets.
    pub lane: [Rate; KINDS],
    /// The rates of the buckets that all lanes of the tenant share.
    pub tenant: [Rate; KINDS],
    /// The tokens that a job needs to start, even when the lane's jobs lately used fewer.
    pub least: Amounts,
}

impl Default for Demand {
    /// No job needs tokens.
    fn default() -> Self {
        Self { lane: [Rate::UNLIMITED; KINDS], tenant: [Rate::UNLIMITED; KINDS], least: [0; KINDS] }
    }
}

/// A token bucket. It is full at first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    rate: Rate,
    /// Billionths of a token at `at`; negative while the bucket is in debt.
    level: i64,
    at: Instant,
}

impl Bucket {
    pub(super) fn full(rate: Rate, now: Instant) -> Self {
        Self { rate, level: billionths(rate.burst), at: now }
    }

    /// Changes the rate from now on. Tokens above a lower burst are lost; a higher burst is not filled at once.
    /// Returns whether the rate was another one.
    pub(super) fn set_rate(&mut self, rate: Rate, now: Instant) -> bool {
        let changes = self.rate != rate;
        if changes {
            self.refill(now);
            self.rate = rate;
            self.level = self.level.min(billionths(rate.burst));
        }
        changes
    }

    pub(super) const fn burst(&self) -> u32 {
        self.rate.burst
    }

    /// Returns after what time the bucket holds this number of tokens, if none are taken until then; zero if it does
    /// now. Needs at most the burst.
    pub(super) fn wait(&mut self, tokens: u32, now: Instant) -> Duration {
        self.refill(now);
        let missing = billionths(tokens).saturating_sub(self.level);
        Duration::from_nanos(u64::try_from(missing).map_or(0, |missing| missing.div_ceil(self.per_second())))
    }

    /// Removes tokens, also those that the bucket does not hold.
    pub(super) fn take(&mut self, tokens: u32, now: Instant) {
        self.refill(now);
        self.level = self.level.saturating_sub(billionths(tokens));
    }

    pub(super) fn give_back(&mut self, tokens: u32, now: Instant) {
        self.refill(now);
        self.level = self.level.saturating_add(billionths(tokens)).min(billionths(self.rate.burst));
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_nanos();
        let gained = i64::try_from(passed.saturating_mul(self.per_second().into())).unwrap_or(i64::MAX);
        self.level = self.level.saturating_add(gained).min(billionths(self.rate.burst));
        self.at = self.at.max(now);
    }

    fn per_second(&self) -> u64 {
        self.rate.per_second.max(1).into()
    }
}

fn billionths(tokens: u32) -> i64 {
    i64::from(tokens) * BILLION
}

/// The tokens that a lane's latest jobs used, each job with a weight of a quarter, in thousandths.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RecentTokens([u64; KINDS]);

impl RecentTokens {
    pub(super) fn used(&mut self, used: Amounts) {
        for (lately, used) in self.0.iter_mut().zip(used) {
            *lately = *lately - *lately / 4 + u64::from(used) * 1_000 / 4;
        }
    }

    /// Returns the tokens that the next job will probably use.
    pub(super) fn next(self) -> Amounts {
        self.0.map(|lately| u32::try_from((lately + 500) / 1_000).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests;
