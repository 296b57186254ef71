//! Properties of the API server and of proxies before it, learned from lists: whether streaming lists work, and how
//! large a page may be. Pure; the caller passes the time.

use std::time::Duration;

use tokio::time::Instant;

/// Consecutive failures after which streaming lists are not tried for [`SUSPENSION`].
const MAX_STREAMING_FAILURES: u32 = 2;
/// How long streaming lists are suspended. A proxy that cuts every long response will do so tomorrow too; an API
/// server that was restarted twice will not.
const SUSPENSION: Duration = Duration::from_secs(3_600);
/// Consecutive successful pages after which a reduced page size is doubled.
const GROW_AFTER: u32 = 8;
/// How often in a row a failed page is retried at once. Later retries wait, because the API server may be down.
const MAX_AT_ONCE: u32 = 3;

/// Whether lists are requested as streams.
#[derive(Debug, Default)]
pub(super) struct Streaming {
    unsupported: bool,
    /// Consecutive failures.
    failures: u32,
    suspended_until: Option<Instant>,
}

impl Streaming {
    pub(super) fn is_on(&self, now: Instant) -> bool {
        !self.unsupported && self.suspended_until.is_none_or(|until| now >= until)
    }

    /// Records that the API server does not support streaming lists.
    pub(super) fn unsupported(&mut self) {
        self.unsupported = true;
    }

    pub(super) fn failed(&mut self, now: Instant) {
        self.failures += 1;
        if self.failures >= MAX_STREAMING_FAILURES {
            self.suspended_until = Some(now + SUSPENSION);
        }
    }

    pub(super) fn succeeded(&mut self) {
        *self = Self::default();
    }
}

/// The page size of paged lists.
#[derive(Debug)]
pub(super) struct PageSize {
    usual: u32,
    now: u32,
    /// Consecutive successful pages of this size.
    good: u32,
    /// Consecutive failures.
    bad: u32,
}

impl PageSize {
    pub(super) fn new(usual: u32) -> Self {
        Self { usual: usual.max(1), now: usual.max(1), good: 0, bad: 0 }
    }

    pub(super) fn get(&self) -> u32 {
        self.now
    }

    /// Returns true if the last page failed.
    pub(super) fn is_failing(&self) -> bool {
        self.bad > 0
    }

    /// Records that a page took too long or was cut, and halves the size. Returns true if the page should be retried
    /// at once.
    pub(super) fn failed(&mut self) -> bool {
        self.good = 0;
        self.bad += 1;
        let again = self.now > 1 && self.bad < MAX_AT_ONCE;
        self.now = (self.now / 2).max(1);
        if !again {
            self.bad = 0;
        }
        again
    }

    pub(super) fn succeeded(&mut self) {
        self.bad = 0;
        self.good += 1;
        if self.good >= GROW_AFTER {
            self.now = self.now.saturating_mul(2).min(self.usual);
            self.good = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn two_failed_streaming_lists_suspend_them_for_an_hour_then_one() {
        let now = Instant::now();
        let mut streaming = Streaming::default();
        streaming.failed(now);
        streaming.succeeded();
        streaming.failed(now);
        assert!(streaming.is_on(now));
        streaming.failed(now);
        assert!(!streaming.is_on(now + SUSPENSION - Duration::from_secs(1)) && streaming.is_on(now + SUSPENSION));
        streaming.failed(now + SUSPENSION);
        assert!(!streaming.is_on(now + SUSPENSION));
    }

    #[test]
    fn pages_halve_down_to_one_and_grow_back_to_their_usual_size() {
        let mut size = PageSize::new(500);
        let sizes: Vec<_> = (0..9).map(|_| (size.failed(), size.get())).collect();
        let expected = [250, 125, 62, 31, 15, 7, 3, 1, 1].map(|now| now);
        assert_eq!(sizes.iter().map(|(_, now)| *now).collect::<Vec<_>>(), expected);
        let at_once: Vec<_> = sizes.iter().map(|(at_once, _)| *at_once).collect();
        assert_eq!(at_once, [true, true, false, true, true, false, true, true, false]);
        (0..8 * 8).for_each(|_| size.succeeded());
        assert_eq!(size.get(), 256);
        (0..8 * 8).for_each(|_| size.succeeded());
        assert_eq!(size.get(), 500);
    }
}
