//! [`Run`]: the effects of one run.

use crate::{Event, Outcome, Result, WriteReport, log::Level};

use super::Write;

/// The effects of one run.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a run asserts nothing by itself"]
pub struct Run {
    pub(super) result: Result<Outcome>,
    pub(super) writes: Vec<Write>,
    pub(super) events: Vec<Emitted>,
    pub(super) reports: Vec<WriteReport>,
    pub(super) logs: Vec<LogLine>,
    pub(super) pods_read: usize,
}

/// An Event that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Emitted {
    /// `namespace/name`
    pub pod: String,
    /// The Event.
    pub event: Event,
}

/// A line of the plugin's log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogLine {
    /// The severity.
    pub level: Level,
    /// The text.
    pub message: String,
    /// Fields in the plugin's order.
    pub fields: Vec<(String, String)>,
}

impl Run {
    /// Returns the function's result.
    pub fn result(&self) -> &Result<Outcome> {
        &self.result
    }

    /// Returns the writes that the API server would have received, in staging order, without those that would change
    /// nothing or were dropped because of a failure.
    #[must_use]
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Returns the Events that were sent.
    #[must_use]
    pub fn events(&self) -> &[Emitted] {
        &self.events
    }

    /// Returns the results of all writes that were not dropped.
    #[must_use]
    pub fn reports(&self) -> &[WriteReport] {
        &self.reports
    }

    /// Returns how many Pods cached reads returned, each counted as often as it was read: the cost of the run beside
    /// its writes.
    #[must_use]
    pub fn pods_read(&self) -> usize {
        self.pods_read
    }

    /// Returns the plugin's log.
    #[must_use]
    pub fn logs(&self) -> &[LogLine] {
        &self.logs
    }

    /// Asserts that the run succeeded with this outcome.
    ///
    /// # Panics
    /// Panics if it did not.
    #[track_caller]
    pub fn assert_outcome(&self, expected: Outcome) -> &Self {
        assert_eq!(self.result.as_ref(), Ok(&expected), "how the run ended");
        self
    }

    /// Asserts that the run succeeded and that these are its writes, in this order.
    ///
    /// # Panics
    /// Panics if they differ.
    #[track_caller]
    pub fn assert_writes(&self, expected: impl IntoIterator<Item = Write>) -> &Self {
        assert!(self.result.is_ok(), "the run failed: {:?}", self.result);
        let expected: Vec<_> = expected.into_iter().collect();
        assert!(self.writes == expected, "writes are\n{:#?}\nexpected were\n{expected:#?}", self.writes);
        self
    }

    /// Asserts that the run succeeded and that these are the reasons of its Events, in this order.
    ///
    /// # Panics
    /// Panics if they differ.
    #[track_caller]
    pub fn assert_events<const N: usize>(&self, reasons: [&str; N]) -> &Self {
        assert!(self.result.is_ok(), "the run failed: {:?}", self.result);
        let found: Vec<_> = self.events.iter().map(|emitted| emitted.event.reason.as_str()).collect();
        assert!(found == reasons, "events are\n{:#?}\nexpected were {reasons:?}", self.events);
        self
    }

    /// Asserts that the run succeeded and would have sent nothing to the API server.
    ///
    /// # Panics
    /// Panics if it would.
    #[track_caller]
    pub fn assert_quiet(&self) -> &Self {
        self.assert_writes([]).assert_events([])
    }
}
