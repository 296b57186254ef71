//! [`Run`]: what one run did.

use crate::{Event, Outcome, Result, WriteReport, log::Level};

use super::Write;

/// What one run did.
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
    /// What it says.
    pub event: Event,
}

/// A line of the plugin's log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogLine {
    /// How much it matters.
    pub level: Level,
    /// The text.
    pub message: String,
    /// In the plugin's order.
    pub fields: Vec<(String, String)>,
}

impl Run {
    /// What the function returned.
    pub fn result(&self) -> &Result<Outcome> {
        &self.result
    }

    /// The writes that the API server would have got, in staging order: without those that would change nothing, and
    /// without those that a failure dropped.
    #[must_use]
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// The Events that were sent.
    #[must_use]
    pub fn events(&self) -> &[Emitted] {
        &self.events
    }

    /// The results of all writes that were not dropped.
    #[must_use]
    pub fn reports(&self) -> &[WriteReport] {
        &self.reports
    }

    /// How many Pods cached reads handed to the plugin, each as often as it was read: what the run costs beside writes.
    #[must_use]
    pub fn pods_read(&self) -> usize {
        self.pods_read
    }

    /// The plugin's log.
    #[must_use]
    pub fn logs(&self) -> &[LogLine] {
        &self.logs
    }

    /// The run ended well, and so.
    ///
    /// # Panics
    /// Where it did not.
    #[track_caller]
    pub fn assert_outcome(&self, expected: Outcome) -> &Self {
        assert_eq!(self.result.as_ref(), Ok(&expected), "how the run ended");
        self
    }

    /// The run ended well and these are its writes, in this order.
    ///
    /// # Panics
    /// Where they are not.
    #[track_caller]
    pub fn assert_writes(&self, expected: impl IntoIterator<Item = Write>) -> &Self {
        assert!(self.result.is_ok(), "the run failed: {:?}", self.result);
        let expected: Vec<_> = expected.into_iter().collect();
        assert!(self.writes == expected, "writes are\n{:#?}\nexpected were\n{expected:#?}", self.writes);
        self
    }

    /// The run ended well and these are the reasons of its Events, in this order.
    ///
    /// # Panics
    /// Where they are not.
    #[track_caller]
    pub fn assert_events<const N: usize>(&self, reasons: [&str; N]) -> &Self {
        assert!(self.result.is_ok(), "the run failed: {:?}", self.result);
        let found: Vec<_> = self.events.iter().map(|emitted| emitted.event.reason.as_str()).collect();
        assert!(found == reasons, "events are\n{:#?}\nexpected were {reasons:?}", self.events);
        self
    }

    /// The run ended well and would have cost the API server nothing.
    ///
    /// # Panics
    /// Where it was not so.
    #[track_caller]
    pub fn assert_quiet(&self) -> &Self {
        self.assert_writes([]).assert_events([])
    }
}
