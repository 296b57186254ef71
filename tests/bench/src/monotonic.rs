//! The monotonic clock in nanoseconds, which all processes of one machine share.
//!
//! `std::time::Instant` reads the same clock without exposing its value, which two processes need to compare times.

use std::ffi::{c_int, c_long};

#[repr(C)]
struct Timespec {
    seconds: c_long,
    nanoseconds: c_long,
}

#[expect(unsafe_code, reason = "the declaration of a function of the C library")]
unsafe extern "C" {
    fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
}

/// Linux's value; the benchmark reads /proc and hence only runs on Linux.
const CLOCK_MONOTONIC: c_int = 1;

#[must_use]
#[expect(unsafe_code, reason = "std does not return the clock's value")]
pub fn now() -> u64 {
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the pointer is to a timespec of C's layout that lives through the call, and the clock exists on Linux.
    unsafe { clock_gettime(CLOCK_MONOTONIC, &raw mut time) };
    time.seconds.cast_unsigned() * 1_000_000_000 + time.nanoseconds.cast_unsigned()
}

#[cfg(test)]
mod tests {
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the clock that is compared with")]
    fn the_clock_advances_like_instant() {
        use std::time::{Duration, Instant};

        let outer = Instant::now();
        let first = super::now();
        let inner = Instant::now();
        while inner.elapsed() < Duration::from_millis(20) {}
        let within = inner.elapsed();
        let time = Duration::from_nanos(super::now() - first);
        assert!((within..=outer.elapsed()).contains(&time), "{time:?}, {within:?}");
    }
}
