//! The clock of a run's wall limit. Time in which the process did not run does not count: a run can do nothing about
//! it. The clock pauses while the host sends: if a commit were cut in the middle of a request, the guest would not have
//! its reports and the cache would not have the writes. Sending has its own deadline, in writeback.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::ticker::LOOK;

/// Limits of more than a day are reduced to a day, because a timer further in the future would overflow.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Shared by the run, which reports when it sends, and by the task that waits for the run.
#[derive(Debug)]
pub(super) struct Wall(Mutex<State>);

#[derive(Debug)]
struct State {
    /// When the run has used up its limit. Each sending postpones it by its length.
    end: Instant,
    sending_since: Option<Instant>,
    /// The sum of all sendings that ended.
    sent: Duration,
}

impl Wall {
    /// Returns a clock that begins now.
    pub(super) fn new(limit: Duration) -> Self {
        let end = Instant::now() + limit.min(LONGEST);
        Self(Mutex::new(State { end, sending_since: None, sent: Duration::ZERO }))
    }

    /// How long the host has been sending for the run.
    pub(super) fn sent(&self) -> Duration {
        self.0.lock().sent
    }

    /// Stops the clock until dropped.
    pub(super) fn stop(&self) -> Stopped<'_> {
        self.0.lock().sending_since = Some(Instant::now());
        Stopped(self)
    }

    /// Waits for a call. Returns `None` if the limit is reached first. `lost` returns the time that does not count, or
    /// `None` while it is not known.
    pub(super) async fn within<F: Future>(&self, call: F, lost: impl Fn() -> Option<Duration>) -> Option<F::Output> {
        let mut call = pin!(call);
        let mut end = pin!(sleep_until(self.0.lock().end));
        // The lost time and the sum of sendings when a sending began, and the time that is in both.
        let mut before = None;
        let mut twice = Duration::ZERO;
        poll_fn(|context| {
            if let Poll::Ready(output) = call.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            let State { end: moved, sending_since, sent } = *self.0.lock();
            if sending_since.is_some() {
                before = before.or_else(|| lost().map(|lost| (lost, sent)));
                // The clock starts again in a later poll of the call, which is behind this line too.
                return Poll::Pending;
            }
            if let Some((lost_before, sent_before)) = before
                && let Some(lost) = lost()
            {
                twice += lost.saturating_sub(lost_before).min(sent.saturating_sub(sent_before));
                before = None;
            }
            if end.deadline() < moved {
                end.as_mut().reset(moved);
            }
            while end.as_mut().poll(context).is_ready() {
                let now = Instant::now();
                let until = lost().map_or(now + LOOK, |lost| moved + lost.saturating_sub(twice));
                if until <= now {
                    return Poll::Ready(None);
                }
                end.as_mut().reset(until);
            }
            Poll::Pending
        })
        .await
    }
}

#[must_use]
pub(super) struct Stopped<'a>(&'a Wall);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        let took = state.sending_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        state.sent += took;
        state.end += took;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        future::{pending, ready},
    };

    use super::*;

    const LIMIT: Duration = Duration::from_secs(2);

    #[tokio::test(start_paused = true)]
    async fn a_run_has_its_limit_beside_the_time_that_the_process_was_stopped() {
        let began = Instant::now();
        assert_eq!(Wall::new(LIMIT).within(pending::<()>(), || Some(Duration::ZERO)).await, None);
        assert_eq!(began.elapsed(), LIMIT);

        // A stop of 30 s that ends when the deadline is over. The first tick follows 25 ms later, and another stop of
        // 10 s is known when the deadline is reached again.
        let began = Instant::now();
        let looks = Cell::new(0);
        let lost = || {
            looks.set(looks.get() + 1);
            match looks.get() {
                1..=3 => None,
                4 => Some(Duration::from_secs(30)),
                _ => Some(Duration::from_secs(40)),
            }
        };
        let wall = Wall::new(LIMIT);
        assert_eq!(wall.within(pending::<()>(), lost).await, None);
        assert_eq!((began.elapsed(), looks.get()), (LIMIT + Duration::from_secs(40), 6));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_of_the_process_while_the_host_sends_counts_once() {
        const STOP: Duration = Duration::from_secs(30);
        // A stop while the host sends, and one after that.
        let began = Instant::now();
        let wall = Wall::new(LIMIT);
        let sending = async {
            tokio::time::sleep(LIMIT / 2).await;
            let stopped = wall.stop();
            tokio::time::sleep(STOP + LIMIT).await;
            drop(stopped);
            pending::<()>().await;
        };
        let lost = || match began.elapsed() {
            elapsed if elapsed < STOP => Some(Duration::ZERO),
            elapsed if elapsed < STOP + LIMIT * 2 => Some(STOP),
            _ => Some(STOP * 2),
        };
        assert_eq!(wall.within(sending, lost).await, None);
        assert_eq!(began.elapsed(), LIMIT + (STOP + LIMIT) + STOP);
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_ends_just_after_a_stop_has_its_result() {
        let wall = Wall::new(LIMIT);
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(wall.within(ready(1), || None).await, Some(1));
        let late = async { tokio::time::sleep(Duration::from_millis(15)).await };
        assert_eq!(wall.within(late, || None).await, Some(()));
    }
}
