//! A timer that a thread sleeps on, and that others start without waking it.

use std::{io, time::Duration};

#[cfg(not(target_os = "linux"))]
pub(super) use portable::Timer;

#[cfg(target_os = "linux")]
use rustix::{
    fd::OwnedFd,
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime},
};

/// A timer of the kernel. To start it costs one system call and no switch to the thread that sleeps.
#[cfg(target_os = "linux")]
pub(super) struct Timer(OwnedFd);

#[cfg(target_os = "linux")]
impl Timer {
    /// # Errors
    /// Returns the kernel's error, such as too many open files.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?))
    }

    /// Ends the sleep of the thread once, after this time.
    pub(super) fn start(&self, after: Duration) {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Zero would stop the timer.
        let after = after.max(Duration::from_nanos(1));
        let seconds = i64::try_from(after.as_secs()).unwrap_or(i64::MAX);
        let value = Timespec { tv_sec: seconds, tv_nsec: after.subsec_nanos().into() };
        // The descriptor is a timer and the time is valid, so the kernel has no reason to refuse.
        let _ =
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: zero, it_value: value });
    }

    /// Sleeps until the timer has run out since the last sleep. Returns false if the kernel does not report it. The
    /// thread then ends, instead of ticking without a pause, and no run is started.
    #[must_use]
    pub(super) fn sleep(&self) -> bool {
        // How often it ran out.
        let mut count = [0_u8; 8];
        loop {
            match rustix::io::read(&self.0, &mut count) {
                Err(rustix::io::Errno::INTR) => {}
                read => return read.is_ok(),
            }
        }
    }
}

/// For systems without such timers: the thread wakes when the timer is started, too.
#[cfg(any(not(target_os = "linux"), test))]
mod portable {
    use super::{Duration, io};
    use parking_lot::{Condvar, Mutex};

    #[derive(Default)]
    pub(crate) struct Timer {
        /// The time of a start that the thread does not know of yet.
        after: Mutex<Option<Duration>>,
        started: Condvar,
    }

    impl Timer {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self::default())
        }

        pub(crate) fn start(&self, after: Duration) {
            *self.after.lock() = Some(after);
            self.started.notify_one();
        }

        #[must_use]
        pub(crate) fn sleep(&self) -> bool {
            let mut after = self.after.lock();
            loop {
                let has_run_out = match after.take() {
                    Some(time) => self.started.wait_for(&mut after, time).timed_out(),
                    // These condition variables do not wake a thread without a reason.
                    None => {
                        self.started.wait(&mut after);
                        false
                    }
                };
                if has_run_out && after.is_none() {
                    return true;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, mpsc},
        thread,
        time::Instant,
    };

    use super::*;

    const LATER: Duration = Duration::from_secs(3_600);
    const PATIENCE: Duration = Duration::from_secs(30);

    macro_rules! tests {
        ($name:ident, $timer:ty) => {
            #[test]
            fn $name() {
                let timer = Arc::new(<$timer>::new().unwrap());
                let sleeper = Arc::clone(&timer);
                let (sleeps, slept) = mpsc::channel();
                thread::spawn(move || while sleeper.sleep() && sleeps.send(()).is_ok() {});
                let wait = || slept.recv_timeout(PATIENCE).unwrap();
                let began = Instant::now();
                timer.start(Duration::from_millis(20));
                wait();
                assert!(began.elapsed() >= Duration::from_millis(20));
                // Once for each start, also for one that ends an earlier one.
                assert!(slept.recv_timeout(Duration::from_millis(50)).is_err());
                timer.start(LATER);
                assert!(slept.recv_timeout(Duration::from_millis(50)).is_err());
                timer.start(Duration::ZERO);
                wait();
                drop(slept);
                timer.start(Duration::ZERO);
            }
        };
    }

    tests!(the_timer_of_the_kernel_ends_a_sleep, Timer);
    tests!(the_portable_timer_ends_a_sleep, portable::Timer);
}
