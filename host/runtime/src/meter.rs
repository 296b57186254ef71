//! The cost of a run in fuel and processor time, and the decision when a run exceeds its limit.
//!
//! The host's work for a run has fixed prices in fuel, which the run pays after each host call, also after a refused
//! one: so the same run always ends at the same instruction. Prices are averages and fuel is not exact, so outside
//! simulations the processor time of the run is measured as well. It decides where fuel is too slow: a run ends at
//! whichever comes first.

#![expect(clippy::disallowed_methods, reason = "the meter of processor time; a simulation has none")]

use std::{future::poll_fn, pin::pin, sync::Arc, time::Duration};

use parking_lot::Mutex;
use podium_engine::ports::Meter;
use rustix::time::{ClockId, clock_gettime};

use super::limits::{self, CutReason};

/// Prices in fuel, of which 5,000 stand for a microsecond. Rounded figures of a release build on a 2-core x86-64 cloud
/// machine, rather too high than too low.
pub(super) mod price {
    /// A host call: the way to the host and back, the checks of grants and budgets, the record.
    pub(crate) const CALL: u64 = 2_500;
    /// A byte of an argument: copied and checked to be UTF-8. Several times the time of ASCII, a fifth of that of
    /// UTF-16.
    pub(crate) const COPIED_BYTE: u64 = 2;
    /// A text, list or tuple among the arguments: an allocation.
    pub(crate) const COPIED_VALUE: u64 = 300;
    /// A byte that the host renders or returns, or of an object that it parses.
    pub(crate) const RENDERED_BYTE: u64 = 5;
    /// A Pod rendered, or a value of an object parsed.
    pub(crate) const RENDERED_VALUE: u64 = 500;
    /// A value of a Pod that is rendered as JSON: a node of the tree that is built of the Pod, and its text.
    pub(crate) const JSON_VALUE: u64 = 1_000;
    /// A write or an Event that is sent, without the Pod that it is about or the object that is applied.
    pub(crate) const WRITE: u64 = 25_000;
    /// A byte of an object that is sent: rendered twice, digested, escaped for the API server's YAML reader, and
    /// compared with the API server's.
    pub(crate) const SENT_BYTE: u64 = 40;
    /// A value of an object that is sent.
    pub(crate) const SENT_VALUE: u64 = 1_000;
    /// A line of the log, without its text.
    pub(crate) const LOGGED_LINE: u64 = 10_000;
    /// An entry of a list that a WASI guest waits for.
    pub(crate) const POLLED: u64 = 1_000;
    /// A unit of the effort of a search.
    pub(crate) const EFFORT: u64 = 25;
    /// A value of a selector or a field of a query for which an index is looked up: binary searches.
    pub(crate) const LOOKUP: u64 = 5_000;
}

/// The most of a poll that is counted without a reading of the thread's clock, as if the run had the processor to
/// itself meanwhile. A reading costs 0.4 us and a short run takes 40, so a short run is read for once.
const UNREAD: Duration = Duration::from_micros(100);

/// The size of a host call's arguments, or of data that the host parsed or rendered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) bytes: usize,
    /// Texts, lists and tuples; Pods; values of JSON.
    pub(super) values: usize,
}

impl Size {
    pub(super) fn of_texts(texts: &[&str]) -> Self {
        Self { bytes: texts.iter().map(|text| text.len()).sum(), values: texts.len() }
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), values: self.values.saturating_add(other.values) }
    }

    pub(super) fn copied(self) -> u64 {
        self.priced(price::COPIED_BYTE, price::COPIED_VALUE)
    }

    pub(super) fn rendered(self) -> u64 {
        self.priced(price::RENDERED_BYTE, price::RENDERED_VALUE)
    }

    pub(super) fn sent(self) -> u64 {
        self.priced(price::SENT_BYTE, price::SENT_VALUE)
    }

    fn priced(self, byte: u64, value: u64) -> u64 {
        let bytes = (self.bytes as u64).saturating_mul(byte);
        bytes.saturating_add((self.values as u64).saturating_mul(value))
    }
}

/// The host's account of a run's fuel: the rest that the guest has, and the price of the host's work that is not paid
/// yet.
///
/// A host call has others within it: while it returns, the guest allocates memory, and its code calls wasmtime to grow
/// the memory or because of a tick. Only the outermost is paid for, because fuel that is set within the others is lost:
/// the guest's code has a part of it in a register.
#[derive(Debug, Default)]
pub(super) struct Bill {
    /// At the beginning of the outermost call under way.
    left: u64,
    owed: u64,
    /// Calls under way.
    depth: u32,
}

impl Bill {
    /// A call begins, of the guest or of wasmtime for the guest.
    pub(super) fn open(&mut self, left: u64) {
        if self.depth == 0 {
            self.left = left;
        }
        self.depth = self.depth.saturating_add(1);
    }

    pub(super) fn add(&mut self, fuel: u64) {
        self.owed = self.owed.saturating_add(fuel);
    }

    /// Returns the fuel that the run can still pay in this call.
    pub(super) fn rest(&self) -> u64 {
        self.left.saturating_sub(self.owed)
    }

    /// Ends the call and returns the price. `None` if another is still under way, or if no function of the contract was
    /// called.
    pub(super) fn close(&mut self) -> Option<u64> {
        self.depth = self.depth.saturating_sub(1);
        if self.depth > 0 {
            return None;
        }
        let owed = std::mem::take(&mut self.owed);
        (owed > 0).then_some(owed)
    }
}

/// The clocks of the system.
#[derive(Debug)]
pub(super) struct SystemMeter;

impl Meter for SystemMeter {
    fn thread_time(&self) -> Duration {
        read(ClockId::ThreadCPUTime)
    }

    fn time(&self) -> Duration {
        read(ClockId::Monotonic)
    }
}

/// Both clocks begin at zero, so no part of them is negative.
fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or_default(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// The processor time of one run, as the sum over its polls, because several threads may poll the run one after
/// another. Shared by the run's future, which records when a poll begins and ends, and by the sandbox within.
pub(super) struct Spent {
    /// None in a simulation: nothing is measured, and nothing is cut by time.
    meter: Option<Arc<dyn Meter>>,
    limit: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The time that the polls that ended used.
    earlier: Duration,
    poll: Option<Poll>,
}

impl State {
    /// Returns the processor time until now. `unread` is passed the time that is known to be spent, and returns how
    /// much more may be estimated by the time that passed.
    fn spent(&mut self, meter: &dyn Meter, unread: impl FnOnce(Duration) -> Duration) -> Duration {
        let Some(poll) = &mut self.poll else { return self.earlier };
        let unread = unread(self.earlier + poll.known());
        self.earlier + poll.spent(meter, unread)
    }
}

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy)]
struct Reading {
    thread: Duration,
    time: Duration,
}

#[derive(Debug)]
struct Poll {
    began: Duration,
    last: Reading,
}

impl Poll {
    fn known(&self) -> Duration {
        self.last.thread.saturating_sub(self.began)
    }

    /// The processor time of this poll at the most, with at most `unread` of it estimated by the time that passed.
    fn spent(&mut self, meter: &dyn Meter, unread: Duration) -> Duration {
        let mut passed = meter.time().saturating_sub(self.last.time);
        if passed > unread {
            self.last = reading(meter);
            passed = Duration::ZERO;
        }
        self.known() + passed
    }
}

fn reading(meter: &dyn Meter) -> Reading {
    Reading { thread: meter.thread_time(), time: meter.time() }
}

impl Spent {
    pub(super) fn new(meter: Option<Arc<dyn Meter>>, cpu: Duration) -> Self {
        Self { meter, limit: limits::most_time(cpu), state: Mutex::default() }
    }

    /// Polls a future, and counts the processor time of each poll.
    pub(super) async fn within<F: Future>(&self, run: F) -> F::Output {
        let Some(meter) = self.meter.as_deref() else { return run.await };
        let mut run = pin!(run);
        poll_fn(|context| {
            let last = reading(meter);
            self.state.lock().poll = Some(Poll { began: last.thread, last });
            let polled = run.as_mut().poll(context);
            let mut state = self.state.lock();
            if let Some(mut poll) = state.poll.take() {
                state.earlier += poll.spent(meter, UNREAD);
            }
            polled
        })
        .await
    }

    /// # Errors
    /// Returns an error if the run has cost more than it may.
    pub(super) fn check(&self) -> Result<(), CutReason> {
        let Some(meter) = self.meter.as_deref() else { return Ok(()) };
        let mut state = self.state.lock();
        let limit = self.limit;
        // While the limit is not reached by the time that passed, the thread's clock need not be read.
        let spent = state.spent(meter, |known| limit.saturating_sub(known));
        if spent > limit { Err(CutReason::Time { spent, limit }) } else { Ok(()) }
    }

    /// None in a simulation.
    pub(super) fn cpu(&self) -> Option<Duration> {
        self.meter.as_ref().map(|_| self.state.lock().earlier)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll as Polled;

    use super::*;

    /// Clocks that a test sets, in milliseconds.
    #[derive(Default)]
    struct Set(Mutex<(u64, u64)>);

    impl Set {
        fn advance(&self, thread: u64, time: u64) {
            let mut clocks = self.0.lock();
            *clocks = (clocks.0 + thread, clocks.1 + time);
        }
    }

    impl Meter for Set {
        fn thread_time(&self) -> Duration {
            Duration::from_millis(self.0.lock().0)
        }
        fn time(&self) -> Duration {
            Duration::from_millis(self.0.lock().1)
        }
    }

    fn spent(cpu: u64) -> (Arc<Set>, Spent) {
        let meter = Arc::<Set>::default();
        (meter.clone(), Spent::new(Some(meter), Duration::from_millis(cpu)))
    }

    #[tokio::test]
    async fn time_between_polls_does_not_count() {
        let (meter, spent) = spent(100);
        let mut polls = 0;
        let run = poll_fn(|context| {
            polls += 1;
            meter.advance(2, 3);
            context.waker().wake_by_ref();
            if polls < 3 { Polled::Pending } else { Polled::Ready(()) }
        });
        // Another thread's clock, or another run's time on this one.
        let others = async {
            for _ in 0..2 {
                meter.advance(900, 900);
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(spent.within(run), others);
        assert_eq!(spent.cpu(), Some(Duration::from_millis(6)));
    }

    #[tokio::test]
    async fn only_time_on_the_processor_beyond_the_limit_cuts() {
        let (meter, spent) = spent(20);
        let run = async {
            meter.advance(0, 1_000);
            assert_eq!(spent.check(), Ok(()), "off the processor");
            meter.advance(26, 26);
            assert_eq!(spent.check(), Ok(()), "20 ms, a quarter more and 1 ms");
            meter.advance(1, 1);
            let [spent_in_all, limit] = [27, 26].map(Duration::from_millis);
            assert_eq!(spent.check(), Err(CutReason::Time { spent: spent_in_all, limit }));
        };
        spent.within(run).await;
        assert_eq!(spent.cpu(), Some(Duration::from_millis(27)));
    }

    #[test]
    fn a_call_is_paid_once_and_the_rest_is_known_meanwhile() {
        let mut bill = Bill::default();
        bill.open(10_000);
        bill.add(price::CALL);
        bill.add(Size { bytes: 100, values: 2 }.copied());
        assert_eq!(bill.rest(), 10_000 - 2_500 - 200 - 600);
        bill.add(u64::MAX);
        assert_eq!(bill.rest(), 0);
        assert_eq!((bill.close(), bill.close()), (Some(u64::MAX), None));
    }

    #[test]
    fn the_outermost_call_is_paid_for_when_it_ends() {
        let mut bill = Bill::default();
        bill.open(10_000);
        bill.add(price::CALL);
        bill.open(9_000);
        assert_eq!((bill.rest(), bill.close()), (7_500, None));
        assert_eq!(bill.close(), Some(2_500));
    }
}
