//! How long to wait before the API server is asked again.

use std::time::Duration;

use podium_engine::throttle::Backoff;
use rand::{SeedableRng, rngs::SmallRng};

const BACKOFF: Backoff = Backoff {
    // Long enough that a restarting API server is not asked by every host at the same moment, and short enough for
    // users.
    first: Duration::from_millis(400),
    // A recovered API server is noticed within this time.
    most: Duration::from_secs(5),
};
/// How many watches in a row may be refused at once for want of history, within about a minute, until lists become
/// rare: readers of a server that loses its history for a moment are not late.
const MAX_EXPIRED: u32 = 16;
/// How much longer the waits are after that: up to 30 s, as in client-go.
const RARER: u32 = 6;
/// The longest Retry-After that is followed.
const LONGEST_ASKED: Duration = Duration::from_secs(60);

/// The waits of one retry loop.
#[derive(Debug)]
pub struct Retries {
    failures: u32,
    /// How many watches in a row the API server refused at once because it has no history.
    expired: u32,
    random: SmallRng,
}

impl Retries {
    /// Returns the waits of one loop; `seed` is for the jitter.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { failures: 0, expired: 0, random: SmallRng::seed_from_u64(seed) }
    }

    /// Records a success: the next wait is the shortest.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Records a watch that the API server did not refuse for want of history.
    pub fn accepted(&mut self) {
        self.expired = 0;
    }

    /// Returns the wait before the list that follows such a refusal.
    pub fn wait_expired(&mut self) -> Duration {
        self.expired = self.expired.saturating_add(1);
        let wait = self.wait(None);
        if self.expired > MAX_EXPIRED { wait * RARER } else { wait }
    }

    /// Returns the next wait: the server's Retry-After, at most one minute of it, plus the back-off.
    pub fn wait(&mut self, retry_after: Option<Duration>) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let wait = BACKOFF.delay(self.failures, &mut self.random);
        retry_after.map_or(wait, |asked| asked.min(LONGEST_ASKED) + wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_from_200_ms_to_5_s_until_a_reset() {
        let mut retries = Retries::new(1);
        let waits: Vec<_> = (0..10).map(|_| retries.wait(None).as_millis()).collect();
        assert!((200..=400).contains(&waits[0]), "{waits:?}");
        assert!((2_500..=5_000).contains(&waits[9]), "{waits:?}");
        retries.reset();
        assert!(retries.wait(None) <= BACKOFF.first);
    }

    #[test]
    fn a_retry_after_is_followed_up_to_a_minute() {
        let mut retries = Retries::new(1);
        assert!(retries.wait(Some(Duration::from_secs(7))) >= Duration::from_secs(7));
        assert!(retries.wait(Some(Duration::from_secs(1 << 40))) < Duration::from_secs(66));
    }
}
