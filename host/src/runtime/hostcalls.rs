//! The one choke point: every host call of both worlds is authorised, accounted, done and recorded here, in this order.
//!
//! Reads are in [`reads`](super::reads), staging is in [`staging`](super::staging), and both come through here; calls
//! of WASI are accounted here, and what a WASI guest prints joins the log.

use std::{sync::Arc, time::Duration};

use podium_engine::ports::{LogLevel, StateEntry, StateError};
use podium_pods::model::{Refused, WriteReport};
use tokio::time::Instant;

use super::{function::Function, run::Run, text::at_most};

/// The host may send for so long before a run can commit no more: the run's wall clock stands still meanwhile.
const SENDING: Duration = Duration::from_secs(30);
const STATE_KEY_BYTES: usize = 256;
const STATE_VALUE_BYTES: usize = 64 << 10;

/// Whether a call goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Admitted,
    /// A read that is not granted: it returns the same as a read of a Pod that does not exist.
    Withheld,
}

impl Run {
    /// Counts a call of the contract or of WASI. One that is refused counts as well, so that refusals cannot be had for
    /// nothing.
    pub(super) fn account_call(&mut self) -> Result<(), Refused> {
        self.ledger.host_calls = self.ledger.host_calls.saturating_add(1);
        if self.ledger.host_calls > self.terms.limits.host_calls {
            return Err(Refused::OverBudget);
        }
        Ok(())
    }

    /// Authorises and accounts.
    pub(super) fn admit(&mut self, function: Function) -> Result<Admission, Refused> {
        self.drain_output();
        let granted = function.need().is_met(&self.terms.grants);
        self.account_call()?;
        match granted {
            true => Ok(Admission::Admitted),
            false if function.is_read() => Ok(Admission::Withheld),
            false => Err(Refused::NotGranted),
        }
    }

    /// Says how the call ended, to whoever traces.
    pub(super) fn record(&self, function: Function, refused: Option<&Refused>) {
        tracing::trace!(
            plugin = %self.terms.id,
            interface = function.interface(),
            function = function.name(),
            refused = refused.map(tracing::field::display),
            "host call"
        );
    }

    /// A host call that does not wait.
    pub(super) fn call<T: Default>(
        &mut self,
        function: Function,
        work: impl FnOnce(&mut Self) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let began = Instant::now();
        let answer = match self.admit(function) {
            Ok(Admission::Admitted) => work(self),
            Ok(Admission::Withheld) => Ok(T::default()),
            Err(refused) => Err(refused),
        };
        self.computed += began.elapsed();
        self.record(function, answer.as_ref().err());
        answer
    }

    /// Sends the staged writes, while the wall clock is paused. An empty commit does not reach the world.
    pub(super) async fn commit_staged(&mut self) -> Result<Vec<WriteReport>, Refused> {
        let admitted = self.admit(Function::Commit);
        self.record(Function::Commit, admitted.as_ref().err());
        admitted?;
        if self.staged.writes.is_empty() && self.staged.events.is_empty() {
            return Ok(Vec::new());
        }
        if self.wall.sent() >= SENDING {
            return Err(Refused::OverBudget);
        }
        let staged = std::mem::take(&mut self.staged);
        let wall = Arc::clone(&self.wall);
        let _stopped = wall.stop();
        Ok(self.world.commit(staged).await)
    }

    pub(super) fn get_state(&mut self, key: &str) -> Result<Option<StateEntry>, Refused> {
        self.call(Function::StateGet, |run| {
            at_most("key", key, STATE_KEY_BYTES)?;
            Ok(run.world.state_get(key))
        })
    }

    pub(super) fn put_state(&mut self, key: &str, value: Vec<u8>, expected: Option<u64>) -> Result<u64, StateError> {
        let mut conflict = None;
        let version = self.call(Function::StatePut, |run| {
            at_most("key", key, STATE_KEY_BYTES)?;
            if value.len() > STATE_VALUE_BYTES {
                let length = value.len();
                return Err(Refused::Invalid(format!("value: {length} bytes, at most {STATE_VALUE_BYTES}")));
            }
            settle(run.world.state_put(key, value, expected), &mut conflict)
        })?;
        conflict.map_or(Ok(version), Err)
    }

    pub(super) fn remove_state(&mut self, key: &str, expected: Option<u64>) -> Result<(), StateError> {
        let mut conflict = None;
        self.call(Function::StateRemove, |run| {
            at_most("key", key, STATE_KEY_BYTES)?;
            settle(run.world.state_remove(key, expected), &mut conflict)
        })?;
        conflict.map_or(Ok(()), Err)
    }

    /// Says nothing when over budget: the function has no answer.
    pub(super) fn write_log(&mut self, level: LogLevel, message: &str, fields: &[(String, String)]) {
        let written = self.call(Function::Log, |run| {
            run.log(level, message, fields);
            Ok(())
        });
        if written.is_err() {
            self.drop_line(message, fields);
        }
    }
}

/// A conflict is an answer, not a refusal: it goes around the choke point's result.
fn settle<T: Default>(result: Result<T, StateError>, conflict: &mut Option<StateError>) -> Result<T, Refused> {
    match result {
        Ok(value) => Ok(value),
        Err(StateError::Refused(refused)) => Err(refused),
        Err(error @ StateError::Conflict(_)) => {
            *conflict = Some(error);
            Ok(T::default())
        }
    }
}
