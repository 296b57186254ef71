//! Traces of runs: spans made of run records, and their way to a collector by OTLP over HTTP.
//!
//! Nothing here is in the way of a run: a record that is to be traced is added to the [`Outbox`] or dropped, and one
//! task empties it.

mod exporter;
mod outbox;
mod shares;
mod spans;

pub use exporter::{Exporter, Headers};
pub use outbox::{Outbox, TraceFigures};
#[cfg(test)]
pub(crate) use spans::tests::record;
