//! [`Traces`]: which runs are traced, and where their records go. Spans are made of the records by the caller.

use std::{fmt, sync::Arc, time::Duration};

use podium_vocabulary::PluginId;
use tracing::{Span, field::display};

use super::{Dispatch, RunRecord, RunWrites, seed};
use crate::ports::Trace;

/// Which runs are traced: those that are drawn before they begin, those that fail, and those that take long.
pub struct Traces {
    /// The least number of a trace that is not drawn.
    not_drawn: u64,
    slow: Duration,
    keep: Box<dyn Fn(Arc<RunRecord>) + Send + Sync>,
}

impl fmt::Debug for Traces {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { not_drawn, slow, keep: _ } = self;
        formatter.debug_struct("Traces").field("not_drawn", not_drawn).field("slow", slow).finish_non_exhaustive()
    }
}

impl Traces {
    /// Returns traces of this part of all runs, and of those that fail or take longer than `slow`. `keep` gets their
    /// records and must not block.
    #[must_use]
    pub fn new(ratio: f64, slow: Duration, keep: impl Fn(Arc<RunRecord>) + Send + Sync + 'static) -> Self {
        let all = (1_u64 << 63) as f64;
        Self { not_drawn: (ratio * all) as u64, slow, keep: Box::new(keep) }
    }

    /// Returns the trace of a run that begins.
    pub(super) fn begin(&self, host: u64, plugin: &PluginId, number: u64, now_millis: u64) -> Trace {
        let id = seed::trace_of_run(host, plugin, number, now_millis);
        Trace { id, is_sampled: id.drawn() < self.not_drawn }
    }

    pub(super) fn keep(&self, record: Arc<RunRecord>) {
        (self.keep)(record);
    }
}

impl Dispatch {
    /// Returns where the record of a run goes if it is traced; the later log lines of the run then have the id of its
    /// trace.
    pub(super) fn traced(&self, run: &RunWrites, is_failure: bool, took: Duration) -> Option<&Traces> {
        let traces = self.traces.as_ref()?;
        let Trace { id, is_sampled } = run.trace()?;
        if !is_sampled {
            if !is_failure && took <= traces.slow {
                return None;
            }
            Span::current().record("trace_id", display(id));
        }
        Some(traces)
    }
}
