//! The clock of a run's wall limit. It pauses while the host sends: if a commit were cut in the middle of a request,
//! the guest would not have its reports and the cache would not have the writes. Sending has its own deadline, in
//! writeback.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

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

    /// Waits for a call. Returns `None` if the limit is reached first.
    pub(super) async fn within<F: Future>(&self, call: F) -> Option<F::Output> {
        let mut call = pin!(call);
        let mut end = pin!(sleep_until(self.0.lock().end));
        poll_fn(|context| {
            if let Poll::Ready(output) = call.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            let State { end: moved, sending_since, .. } = *self.0.lock();
            if sending_since.is_some() {
                // The clock starts again in a later poll of the call, which is behind this line too.
                return Poll::Pending;
            }
            if end.deadline() != moved {
                end.as_mut().reset(moved);
            }
            end.as_mut().poll(context).map(|()| None)
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
