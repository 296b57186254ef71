//! The trace of a run: its ids, of which all but the first depend on that one, and the times of its writes.

use std::{fmt, time::Duration};

use tokio::time::Instant;

/// The writes of a run that have a span of their own: those with a lower number. A run record lists as many.
pub const TRACED_WRITES: u32 = 8;

/// The id of a trace, from which the ids of its spans are derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId(pub [u8; 16]);

/// A span of the trace of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TracedPart {
    /// From the event to the end of the last write; the parent of all others.
    Whole,
    /// From the event to the start of the run.
    Queue,
    /// The time in the sandbox.
    Sandbox,
    /// The request of the write with this number.
    Write(u32),
}

impl TraceId {
    /// Returns the id of a span.
    #[must_use]
    pub fn span(self, part: TracedPart) -> [u8; 8] {
        let number = match part {
            TracedPart::Write(number) if number < TRACED_WRITES => u64::from(number) + 3,
            TracedPart::Whole | TracedPart::Write(_) => 0,
            TracedPart::Queue => 1,
            TracedPart::Sandbox => 2,
        };
        // Zero is no id.
        (self.halves().0.wrapping_add(number)).max(1).to_be_bytes()
    }

    /// Returns the number that a sampler by ratio compares: the lower 63 bits of the id, as OpenTelemetry has it.
    #[must_use]
    pub fn drawn(self) -> u64 {
        self.halves().1 & (u64::MAX >> 1)
    }

    /// Returns the header `traceparent` of a request that is part of a span, in the format of the W3C.
    #[must_use]
    pub fn parent(self, part: TracedPart) -> String {
        format!("00-{self}-{:016x}-01", u64::from_be_bytes(self.span(part)))
    }

    fn halves(self) -> (u64, u64) {
        let number = u128::from_be_bytes(self.0);
        ((number >> 64) as u64, number as u64)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// The trace that a run may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    /// Its id.
    pub id: TraceId,
    /// It was drawn before the run began, so requests may name it.
    pub is_sampled: bool,
}

/// The time in which the request of a write was sent and answered. Writes that share a request have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteTime {
    /// The number of the write.
    pub id: u32,
    /// The start.
    pub began: Instant,
    /// The time until the result was known, with the reads that decide about it.
    pub took: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_spans_differ_and_a_request_names_the_one_of_its_write() {
        let id = TraceId(*b"\xff\xff\xff\xff\xff\xff\xff\xf0abcdefgh");
        let mut parts = vec![TracedPart::Whole, TracedPart::Queue, TracedPart::Sandbox];
        parts.extend((0..TRACED_WRITES).map(TracedPart::Write));
        let mut ids: Vec<_> = parts.iter().map(|part| id.span(*part)).collect();
        assert!(ids.iter().all(|id| *id != [0; 8]));
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), parts.len());
        assert_eq!(id.parent(TracedPart::Write(0)), "00-fffffffffffffff06162636465666768-fffffffffffffff3-01");
        assert_eq!(id.span(TracedPart::Write(TRACED_WRITES)), id.span(TracedPart::Whole), "it has no span of its own");
    }
}
