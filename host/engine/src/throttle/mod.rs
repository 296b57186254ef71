//! One type for each way in which the host slows something: [`Bucket`] bounds a rate, [`HalfOpen`] closes something and
//! probes it, [`RoundRobin`] takes turns, [`Backoff`] waits longer after each failure.
//!
//! Pure: the caller passes the time, and decides to which requests a type applies and how long they wait.

mod backoff;
mod bucket;
mod half_open;
mod round_robin;

pub use backoff::Backoff;
pub use bucket::{Bucket, Rate};
pub use half_open::{HalfOpen, PROBE_PAUSE};
pub use round_robin::RoundRobin;
