//! [`Bucket`]: a token bucket that may go into debt.
//!
//! All arithmetic is in billionths of a token, of which a rate of one token per second gains one per nanosecond, so
//! nothing is rounded. For a rate below one per second the caller counts each item as several tokens.

use std::time::Duration;

use tokio::time::Instant;

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

/// A token bucket. It is full at first.
#[derive(Debug, Clone, Copy)]
pub struct Bucket {
    rate: Rate,
    /// Billionths of a token at `at`; negative while the bucket is in debt.
    level: i64,
    at: Instant,
}

impl Bucket {
    /// Returns a full bucket.
    #[must_use]
    pub fn full(rate: Rate, now: Instant) -> Self {
        Self { rate, level: billionths(rate.burst), at: now }
    }

    /// Changes the rate from now on. Tokens above a lower burst are lost; a higher burst is not filled at once.
    pub fn set_rate(&mut self, rate: Rate, now: Instant) {
        self.refill(now);
        self.rate = rate;
        self.level = self.level.min(billionths(rate.burst));
    }

    /// Returns the most tokens that the bucket holds.
    #[must_use]
    pub const fn burst(&self) -> u32 {
        self.rate.burst
    }

    /// Returns after what time the bucket holds this number of tokens, or is full, if none are taken until then; zero
    /// if it does now.
    #[must_use]
    pub fn wait(&self, tokens: u32, now: Instant) -> Duration {
        let mut then = *self;
        then.refill(now);
        let missing = billionths(tokens.min(self.rate.burst)).saturating_sub(then.level);
        Duration::from_nanos(u64::try_from(missing).map_or(0, |missing| missing.div_ceil(self.per_second())))
    }

    /// Removes tokens, also those that the bucket does not hold. Returns the time for which it is in debt after that.
    pub fn take(&mut self, tokens: u32, now: Instant) -> Duration {
        self.refill(now);
        self.level = self.level.saturating_sub(billionths(tokens));
        self.wait(0, now)
    }

    /// Removes tokens if the bucket holds them, or is full. Returns whether it did.
    pub fn try_take(&mut self, tokens: u32, now: Instant) -> bool {
        let has_them = self.wait(tokens, now).is_zero();
        if has_them {
            self.take(tokens, now);
        }
        has_them
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

#[cfg(test)]
mod tests;
