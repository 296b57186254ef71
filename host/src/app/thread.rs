//! A thread for the watch and the ingest loop only.
//!
//! On the workers' threads each step of an event, from the socket to the queue, might wait for a guest or wake
//! another thread. On its own thread an event is handled without a switch, and the kernel schedules the thread no
//! matter how many guests compute.
//!
//! Waking a thread costs more than handling an event. Therefore the thread sleeps shortly before it waits for more
//! events at a high rate, and handles the events of that time as one batch. At a low rate each event is handled at
//! once.

use std::{
    convert::Infallible,
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::Mutex;
use podium_engine::ports::panic_message;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::oneshot,
    time::Instant,
};

use podium_api::watch::Counters;

/// Events per second from which the rate is high.
const FAST: u64 = 5_000;
/// The sleep at a high rate, which is the most that it delays an event.
const REST: Duration = Duration::from_millis(1);
/// Interval in which the rate is measured. It is short, so that a burst that has ended costs only a few sleeps.
const WINDOW: Duration = Duration::from_millis(2);

/// Measures the rate of events.
#[derive(Debug)]
struct Pace {
    since: Instant,
    events: u64,
    is_fast: bool,
}

impl Pace {
    /// Records that there were `events` so far. Returns true if the thread should sleep before it waits for more.
    fn is_fast(&mut self, now: Instant, events: u64) -> bool {
        let passed = now.saturating_duration_since(self.since);
        if passed >= WINDOW {
            let wanted = u128::from(FAST) * passed.as_micros();
            self.is_fast = u128::from(events - self.events) * 1_000_000 >= wanted;
            self.since = now;
            self.events = events;
        }
        self.is_fast
    }
}

/// Returns a runtime with one thread for a watch and the receiver of its observations. `counters` are those of the
/// watch.
///
/// # Errors
/// Returns an error if the process has no file descriptors left.
pub fn ingest_runtime(counters: Arc<Counters>) -> io::Result<Runtime> {
    let pace = Mutex::new(Pace { since: Instant::now(), events: 0, is_fast: false });
    // Called when the thread has nothing left to do except wait.
    #[expect(clippy::disallowed_methods, reason = "the thread has nothing else to do, which is why this is called")]
    let park = move || {
        if pace.lock().is_fast(Instant::now(), counters.events()) {
            thread::sleep(REST);
        }
    };
    Builder::new_current_thread().enable_all().on_thread_park(park).build()
}

pub(super) struct Thread {
    runtime: Handle,
    /// Ends the thread and all its tasks when dropped.
    wanted: oneshot::Sender<Infallible>,
    /// Closed when the thread has dropped its tasks.
    ended: oneshot::Receiver<Infallible>,
    thread: JoinHandle<()>,
}

impl Thread {
    /// # Errors
    /// Returns an error if the process can create no more threads or files.
    pub(super) fn start(counters: Arc<Counters>) -> io::Result<Self> {
        let runtime = ingest_runtime(counters)?;
        let handle = runtime.handle().clone();
        let (wanted, unwanted) = oneshot::channel::<Infallible>();
        let (ends, ended) = oneshot::channel::<Infallible>();
        let thread = thread::Builder::new().name("podium-ingest".to_owned()).spawn(move || {
            // Nothing is ever sent: the wait ends when the sender is dropped.
            let _ = runtime.block_on(unwanted);
            // Drops the tasks. Does not wait for a DNS lookup.
            runtime.shutdown_background();
            drop(ends);
        })?;
        Ok(Self { runtime: handle, wanted, ended, thread })
    }

    /// Ends the thread and joins it. The caller should set a deadline, because a task that blocks delays the thread's
    /// end. Dropping it instead also ends the thread, but does not report a panic.
    pub(super) async fn join(self) {
        drop(self.wanted);
        // Nothing is ever sent: the wait ends when the thread is about to return, or has panicked.
        let _ = self.ended.await;
        if let Err(panic) = self.thread.join() {
            tracing::error!(panic = panic_message(&*panic), "watch thread panicked");
        }
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends when its thread has dropped it.
    async fn holding(_held: Arc<()>) {
        std::future::pending().await
    }

    #[tokio::test]
    async fn a_thread_that_was_joined_has_dropped_its_tasks_and_ended() {
        let thread = Thread::start(Arc::default()).unwrap();
        let held = Arc::new(());
        let task = thread.runtime().spawn(holding(held.clone()));
        let on_thread = thread.runtime().spawn(async { thread::current().name().map(str::to_owned) });
        assert_eq!(on_thread.await.unwrap().as_deref(), Some("podium-ingest"));
        thread.join().await;
        assert_eq!(Arc::strong_count(&held), 1, "the task outlives its thread");
        assert!(task.await.unwrap_err().is_cancelled());
    }

    /// Returns the results of `is_fast` at these times in microseconds, with these numbers of events.
    fn said(looks: &[(u64, u64)]) -> Vec<bool> {
        let begun = Instant::now();
        let mut pace = Pace { since: begun, events: 0, is_fast: false };
        looks.iter().map(|(at, events)| pace.is_fast(begun + Duration::from_micros(*at), *events)).collect()
    }

    #[test]
    fn the_thread_sleeps_only_at_a_high_rate_of_events() {
        let fast: Vec<_> = (1..100).map(|look| (look * 100, look)).collect();
        let (before, after): (Vec<_>, Vec<_>) = fast.iter().zip(said(&fast)).partition(|((at, _), _)| *at < 2_000);
        assert!(before.iter().all(|(_, rests)| !rests) && after.iter().all(|(_, rests)| *rests));
        assert_eq!(said(&[(2_000, 20), (2_100, 21), (4_000, 22)]), [true, true, false]);
    }

    #[test]
    fn the_thread_does_not_sleep_at_a_low_rate_of_events() {
        let slow: Vec<_> = (1..100).map(|look| (look * 500, look)).collect();
        assert!(said(&slow).iter().all(|rests| !rests));
        assert_eq!(said(&[(2_000, 9), (60_000_000, 200)]), [false, false]);
    }
}
