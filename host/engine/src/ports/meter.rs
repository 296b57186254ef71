//! Clocks that measure the cost of runs.

use std::time::Duration;

/// The clocks that the processor time of runs is measured with. Implemented by `runtime` with those of the system.
///
/// A simulation has no meter and reads no clock: there the cost of a run is its fuel, in which the host's work for the
/// run has fixed prices. In both cases the cost is [`Usage::cpu`](super::Usage::cpu).
pub trait Meter: Send + Sync {
    /// Returns the processor time of the calling thread since the thread began. A system call of about 0.4 us.
    fn thread_time(&self) -> Duration;
    /// Returns the time since a fixed point. Never advances more slowly than [`Self::thread_time`], and costs a
    /// fifteenth of it.
    fn time(&self) -> Duration;
}
