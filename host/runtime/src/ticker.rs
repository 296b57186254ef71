//! The thread that moves the epoch, and the watch over it.
//!
//! Only a tick of the epoch interrupts a guest that calls nothing. So if the thread ends, or gets no processor, no run
//! is started: a run waits for the next tick. Runs in progress end at the latest when their fuel does.
//!
//! After a time without the processor for the whole process, runs wait for a tick too, but nothing is reported: see
//! [`Watchdog`].

#![expect(clippy::disallowed_types, reason = "the thread that advances the epoch")]

mod timer;
mod watchdog;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use parking_lot::Mutex;
use podium_engine::{intervals::Intervals, ports::Meter};
use timer::Timer;
use tokio::time::Instant;
use watchdog::Watchdog;

use super::{Engine, EngineError, meter::SystemMeter, profile::Profiler};

/// The time without a tick after which no run is started; ten ticks if these are longer. A hundred ticks of the
/// default.
const STALL: Duration = Duration::from_millis(100);
/// How often a run that waits for a tick looks for one.
pub(super) const LOOK: Duration = Duration::from_millis(10);
/// A time without ticks that is logged as an error.
const LONG: Duration = Duration::from_secs(1);

/// Moves the epoch, on its own thread: a task would starve with the guests that it is there to interrupt. It rests
/// while nothing runs, and the run that begins then starts the timer of the next tick.
pub(super) struct Ticker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    stall: Duration,
}

struct Shared {
    timer: Timer,
    tick: Duration,
    running: AtomicU32,
    /// While it takes a profile the epoch ticks more often, and also while nothing runs, because a run that ends before
    /// the first tick after its beginning would never be seen.
    profiler: Arc<Profiler>,
    /// The timer is not started.
    resting: AtomicBool,
    stop: AtomicBool,
    /// When the last tick was, or when the timer was started after a rest, in microseconds of the clock.
    last: AtomicU64,
    /// The sum of all times without a tick that were longer than the stall, in microseconds. Written before `last`.
    lost: AtomicU64,
    /// Set by whoever finds that there were no ticks although the process ran, cleared by the next tick.
    stalled: AtomicBool,
    watchdog: Mutex<Watchdog>,
    /// About short and about long times without ticks.
    reports: Mutex<[Intervals; 2]>,
    /// The log has a line about the present time without ticks.
    reported: AtomicBool,
}

impl Ticker {
    pub(super) fn start(
        engine: wasmtime::Engine,
        tick: Duration,
        profiler: Arc<Profiler>,
    ) -> Result<Self, EngineError> {
        let timer = Timer::new().map_err(|error| EngineError(format!("no timer for the epoch: {error}")))?;
        let shared = Arc::new(Shared::new(timer, tick, profiler));
        let seen = Arc::clone(&shared);
        let stall = STALL.max(tick.saturating_mul(10));
        let thread = std::thread::Builder::new()
            .name("podium-epoch".into())
            .spawn(move || seen.tick(&engine, stall))
            .map_err(|error| EngineError(format!("no thread for the epoch: {error}")))?;
        Ok(Self { shared, thread: Some(thread), stall })
    }

    /// Starts a run: keeps the epoch ticking while the result lives. Waits while there are no ticks.
    pub(super) async fn ticking(&self) -> Ticking<'_> {
        let mut ticking = self.begin();
        while self.is_late() || self.shared.stalled.load(Ordering::SeqCst) {
            tokio::time::sleep(LOOK).await;
        }
        ticking.lost_before = self.shared.lost.load(Ordering::SeqCst);
        ticking
    }

    fn begin(&self) -> Ticking<'_> {
        self.shared.running.fetch_add(1, Ordering::SeqCst);
        self.end_rest();
        Ticking { ticker: self, lost_before: 0 }
    }

    /// Starts the timer if the ticker rests. Either the caller, which has counted a run or begun a profile, sees that
    /// the ticker rests, or the ticker, which checks again after it has set the flag, sees the run or the profile. Only
    /// one caller starts the timer, so further ones do not extend the time of a ticker that has ended.
    pub(super) fn end_rest(&self) {
        if self.shared.resting.load(Ordering::SeqCst) {
            self.shared.last.store(now(), Ordering::SeqCst);
            self.shared.end_rest();
        }
    }

    /// Returns why no run is started, or `None` if runs are started.
    pub(super) fn stalled(&self) -> Option<String> {
        self.is_late();
        let stalled = self.shared.stalled.load(Ordering::SeqCst);
        stalled.then(|| format!("no run is started: the epoch has not advanced for {:.1?}", self.silence()))
    }

    fn silence(&self) -> Duration {
        Duration::from_micros(now().saturating_sub(self.shared.last.load(Ordering::SeqCst)))
    }

    /// Returns true if a tick is overdue. Sets `stalled` if only the ticking thread did not run, and not if the whole
    /// process was stopped.
    fn is_late(&self) -> bool {
        if self.silence() <= self.stall || self.shared.resting.load(Ordering::SeqCst) {
            return false;
        }
        let last = Duration::from_micros(self.shared.last.load(Ordering::SeqCst));
        let ran = self.shared.watchdog.lock().look(SystemMeter.time(), last);
        if ran <= self.stall {
            return true;
        }
        self.shared.stalled.store(true, Ordering::SeqCst);
        self.shared.report(self.silence());
        true
    }
}

/// Microseconds since a fixed point.
fn now() -> u64 {
    u64::try_from(SystemMeter.time().as_micros()).unwrap_or(u64::MAX)
}

impl Shared {
    fn new(timer: Timer, tick: Duration, profiler: Arc<Profiler>) -> Self {
        Self {
            timer,
            tick,
            running: AtomicU32::new(0),
            profiler,
            resting: AtomicBool::new(true),
            stop: AtomicBool::new(false),
            last: AtomicU64::new(now()),
            lost: AtomicU64::new(0),
            stalled: AtomicBool::new(false),
            watchdog: Mutex::default(),
            reports: Mutex::default(),
            reported: AtomicBool::new(false),
        }
    }

    /// Logs a time without ticks: a long one is an error, a short one may be that of a busy machine.
    fn report(&self, silence: Duration) {
        let is_long = silence >= LONG;
        if self.reports.lock()[usize::from(is_long)].occurred(Instant::now()).is_none() {
            return;
        }
        self.reported.store(true, Ordering::SeqCst);
        let millis = u64::try_from(silence.as_millis()).unwrap_or(u64::MAX);
        let message = "the epoch does not advance, so guests cannot be interrupted; starting no run";
        if is_long { tracing::error!(millis, "{message}") } else { tracing::warn!(millis, "{message}") }
    }

    /// Starts the timer unless it is started.
    fn end_rest(&self) {
        if self.resting.swap(false, Ordering::SeqCst) {
            self.start();
        }
    }

    fn start(&self) {
        self.timer.start(if self.profiler.is_on() { self.tick.min(Engine::SAMPLED_EVERY) } else { self.tick });
    }

    fn is_needed(&self) -> bool {
        self.running.load(Ordering::SeqCst) > 0 || self.profiler.is_on()
    }

    fn tick(&self, engine: &wasmtime::Engine, stall: Duration) {
        while self.timer.sleep() && !self.stop.load(Ordering::SeqCst) {
            engine.increment_epoch();
            self.profiler.tick();
            let now = now();
            let silence = now.saturating_sub(self.last.load(Ordering::SeqCst));
            if u128::from(silence) > stall.as_micros() {
                self.lost.fetch_add(silence, Ordering::SeqCst);
            }
            self.last.store(now, Ordering::SeqCst);
            if self.stalled.swap(false, Ordering::SeqCst) && self.reported.swap(false, Ordering::SeqCst) {
                tracing::info!("the epoch advances again; starting runs");
            }
            if self.is_needed() {
                self.start();
                continue;
            }
            self.resting.store(true, Ordering::SeqCst);
            // One may have begun before the flag was set.
            if self.is_needed() {
                self.end_rest();
            }
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.timer.start(Duration::ZERO);
        if let Some(thread) = self.thread.take() {
            // The thread does not panic, and `drop` could not handle it.
            let _ = thread.join();
        }
    }
}

/// One run in progress.
#[must_use]
pub(super) struct Ticking<'a> {
    ticker: &'a Ticker,
    /// [`Shared::lost`] when the run began.
    lost_before: u64,
}

impl Ticking<'_> {
    /// Returns for how long the process did not run, or could not interrupt the run, since the run began.
    /// `None` until the first tick after a stop.
    pub(super) fn lost(&self) -> Option<Duration> {
        let shared = &self.ticker.shared;
        if self.ticker.is_late() && !shared.stalled.load(Ordering::SeqCst) {
            return None;
        }
        Some(Duration::from_micros(shared.lost.load(Ordering::SeqCst).saturating_sub(self.lost_before)))
    }
}

impl Drop for Ticking<'_> {
    fn drop(&mut self) {
        self.ticker.shared.running.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use podium_engine::fixtures::{Warnings, log_to};
    use tokio::time::timeout;

    use super::*;

    impl Ticker {
        /// As if the thread had panicked: without a report.
        fn end_thread(&mut self) {
            self.shared.stop.store(true, Ordering::SeqCst);
            self.shared.timer.start(Duration::ZERO);
            self.thread.take().unwrap().join().unwrap();
        }
    }

    fn ticker() -> Ticker {
        Ticker::start(wasmtime::Engine::default(), Duration::from_millis(1), Arc::default()).unwrap()
    }

    #[test]
    fn dropping_the_ticker_joins_its_thread_also_while_it_rests() {
        let ticker = ticker();
        let shared = Arc::clone(&ticker.shared);
        drop(ticker);
        assert_eq!(Arc::strong_count(&shared), 1, "the thread has let go of it");
    }

    #[tokio::test]
    async fn no_run_starts_from_100_ms_after_the_last_tick_to_the_next() {
        let mut ticker = ticker();
        drop(ticker.ticking().await);
        assert_eq!(ticker.stalled(), None);
        ticker.end_thread();
        let in_progress = ticker.begin();
        // Runs that try do not make the ticker look alive.
        let try_for_ever = async {
            loop {
                drop(ticker.ticking().await);
                tokio::task::yield_now().await;
            }
        };
        let tried: Result<(), _> = timeout(STALL * 3, try_for_ever).await;
        assert!(tried.is_err() && timeout(STALL * 2, ticker.ticking()).await.is_err(), "no run starts");
        drop(in_progress);
        assert!(timeout(STALL * 2, ticker.ticking()).await.is_err(), "nor when nothing runs any more");
        assert!(ticker.stalled().unwrap().starts_with("no run is started: the epoch has not advanced for "));

        ticker.shared.last.store(now(), Ordering::SeqCst);
        ticker.shared.stalled.store(false, Ordering::SeqCst);
        assert!(timeout(STALL, ticker.ticking()).await.is_ok(), "after a tick");
    }

    #[tokio::test]
    async fn a_stopped_process_reports_no_stalled_ticker() {
        let ticker = ticker();
        let in_progress = ticker.begin();
        for stopped_at in 1..100 {
            ticker.shared.last.store(stopped_at, Ordering::SeqCst);
            assert_eq!(ticker.stalled(), None);
            drop(timeout(STALL * 10, ticker.ticking()).await.unwrap());
        }
        drop(in_progress);
    }

    #[tokio::test]
    async fn a_stop_of_the_process_is_lost_to_the_runs_under_way() {
        const STOP: Duration = Duration::from_secs(30);
        let ticker = ticker();
        let under_way = ticker.ticking().await;
        let stop = || loop {
            ticker.shared.last.store(now().saturating_sub(30_000_000), Ordering::SeqCst);
            if let Some(lost) = under_way.lost().filter(|lost| *lost >= STOP) {
                return lost;
            }
            std::thread::yield_now();
        };
        let lost = stop();
        let later = timeout(STALL * 10, ticker.ticking()).await.unwrap();
        assert!(later.lost().is_none_or(|lost| lost < STOP), "{lost:?} were before it: {:?}", later.lost());
    }

    #[test]
    fn a_short_time_without_ticks_is_logged_once_and_as_a_warning() {
        let shared = Shared::new(Timer::new().unwrap(), Duration::ZERO, Arc::default());
        let warnings = Warnings::default();
        let _logged = log_to(warnings.clone());
        for millis in [101, 200, 999].repeat(10) {
            shared.report(Duration::from_millis(millis));
        }
        assert_eq!(warnings.count(), 1);
        shared.report(LONG);
        assert_eq!(warnings.count(), 1, "this one is an error");
    }

    #[tokio::test]
    async fn a_ticker_that_rests_is_not_late() {
        let ticker = ticker();
        drop(ticker.ticking().await);
        rested(&ticker).await;
        ticker.shared.last.store(0, Ordering::SeqCst);
        assert_eq!(ticker.stalled(), None);
        assert!(timeout(STALL, ticker.ticking()).await.is_ok());
    }

    async fn until(holds: impl Fn() -> bool) {
        let wait = async {
            while !holds() {
                tokio::task::yield_now().await;
            }
        };
        timeout(STALL * 300, wait).await.unwrap();
    }

    async fn rested(ticker: &Ticker) {
        until(|| ticker.shared.resting.load(Ordering::SeqCst)).await;
    }

    #[tokio::test]
    async fn the_epoch_moves_while_runs_are_under_way_and_rests_after_them() {
        let ticker = ticker();
        let last = || ticker.shared.last.load(Ordering::SeqCst);
        for _ in 0..3 {
            let [one, other] = [ticker.ticking().await, ticker.ticking().await];
            drop(one);
            let mut ticks = last();
            for _ in 0..5 {
                until(|| last() != ticks).await;
                ticks = last();
            }
            drop(other);
            rested(&ticker).await;
            let rests_since = last();
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert_eq!(last(), rests_since);
        }
    }

    #[tokio::test]
    async fn a_ticker_that_died_while_it_rested_is_found_out_too() {
        let mut ticker = ticker();
        ticker.end_thread();
        ticker.shared.resting.store(true, Ordering::SeqCst);
        drop(ticker.ticking().await);
        let refused = timeout(STALL * 10, async {
            while ticker.stalled().is_none() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        assert!(refused.await.is_ok());
    }
}
