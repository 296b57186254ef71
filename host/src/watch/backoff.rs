//! How long to wait before the API server is asked again.

use std::time::Duration;

use rand::{Rng, SeedableRng, rngs::SmallRng};

/// Long enough that an API server that restarts is not hit by every host in one moment, short enough not to be felt.
const FIRST: Duration = Duration::from_millis(400);
/// An API server that is back is found within this.
const LONGEST: Duration = Duration::from_secs(5);
/// The most that a Retry-After is believed.
const LONGEST_ASKED: Duration = Duration::from_secs(60);

/// Doubles from wait to wait; each is between half of that and all of it.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    random: SmallRng,
}

impl Backoff {
    /// `seed` is for the jitter.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { next: FIRST, random: SmallRng::seed_from_u64(seed) }
    }

    /// The API server is well: the next wait is a short one.
    pub fn reset(&mut self) {
        self.next = FIRST;
    }

    /// The next wait, and not less than the server asked for.
    pub fn wait(&mut self, retry_after: Option<Duration>) -> Duration {
        let wait = self.random.random_range(self.next / 2..=self.next);
        self.next = (self.next * 2).min(LONGEST);
        retry_after.map_or(wait, |asked| asked.min(LONGEST_ASKED) + wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_from_a_fifth_of_a_second_to_five_and_start_anew_after_a_reset() {
        let mut backoff = Backoff::new(1);
        let waits: Vec<_> = (0..10).map(|_| backoff.wait(None).as_millis()).collect();
        assert!((200..=400).contains(&waits[0]), "{waits:?}");
        assert!((2_500..=5_000).contains(&waits[9]), "{waits:?}");
        backoff.reset();
        assert!(backoff.wait(None) <= FIRST);
    }

    #[test]
    fn a_retry_after_is_kept_and_an_absurd_one_is_not() {
        let mut backoff = Backoff::new(1);
        assert!(backoff.wait(Some(Duration::from_secs(7))) >= Duration::from_secs(7));
        assert!(backoff.wait(Some(Duration::from_secs(1 << 40))) < Duration::from_secs(66));
    }
}
