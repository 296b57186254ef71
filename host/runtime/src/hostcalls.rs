//! The entry point of host calls: each host call of both worlds is counted, authorised, executed and traced here, in
//! this order, and charged when it returns to the guest.
//!
//! Reads are in [`reads`](super::reads) and staging is in [`staging`](super::staging); both use this entry point. Calls
//! of WASI are counted here, and the output of a WASI guest is appended to the log here.

use std::{sync::Arc, time::Duration};

use podium_engine::ports::{LogLevel, StateEntry, StateError};
use podium_vocabulary::{Function, Refused, WriteReport};
use podium_wire::refusal;
use wasmtime::{CallHook, StoreContextMut, Trap};

use super::{
    limits::CutReason,
    meter::{Size, price},
    run::Run,
    sending,
    text::check_argument_length,
};

/// The longest time for which the host sends before a run can commit no more. The run's wall clock pauses meanwhile.
pub(super) const SENDING: Duration = Duration::from_secs(30);
const STATE_KEY_BYTES: usize = 256;
const STATE_VALUE_BYTES: usize = 64 << 10;

/// The decision about a host call that is not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Admitted,
    /// A read that is not granted: it returns the same as a read of a Pod that does not exist.
    Withheld,
}

/// Called by wasmtime at each change between guest and host. The guest pays when a host call returns to it, also for a
/// call that was refused: for all that was copied, done and returned. The next call may copy as much as the rest of the
/// fuel pays for.
///
/// # Errors
/// The run must end: it has used up its fuel or its time, or repeats calls that are refused.
pub(super) fn hook(mut store: StoreContextMut<'_, Run>, hook: CallHook) -> wasmtime::Result<()> {
    match hook {
        CallHook::CallingHost => {
            let fuel = store.get_fuel()?;
            store.data_mut().bill.open(fuel);
            Ok(())
        }
        CallHook::ReturningFromHost => {
            let run = store.data_mut();
            run.ticks = run.context.profiler.ticks();
            run.charge_output();
            // Nothing is owed for wasmtime's own functions, in which fuel must not be set.
            let Some(owed) = run.bill.close() else { return Ok(()) };
            let limit = run.context.limits.host_calls;
            if run.budget.host_calls > limit.saturating_mul(2) {
                return Err(CutReason::Refusals { limit }.into());
            }
            run.spent.check()?;
            pay(store, owed)
        }
        CallHook::CallingWasm => {
            let run = store.data_mut();
            run.ticks = run.context.profiler.ticks();
            Ok(())
        }
        CallHook::ReturningFromWasm => Ok(()),
    }
}

/// Charges fuel to the run, and sets how many bytes the next host call may copy.
///
/// # Errors
/// Returns an error if the run has less fuel than that.
pub(super) fn pay(mut store: StoreContextMut<'_, Run>, fuel: u64) -> wasmtime::Result<()> {
    let left = store.get_fuel()?.saturating_sub(fuel);
    store.set_fuel(left)?;
    if left == 0 {
        return Err(Trap::OutOfFuel.into());
    }
    let affordable = usize::try_from(left / price::COPIED_BYTE).unwrap_or(usize::MAX);
    let run = store.data_mut();
    run.allowance = run.call_bytes().min(affordable);
    let allowance = run.allowance;
    store.set_hostcall_fuel(allowance);
    Ok(())
}

impl Run {
    /// The most bytes that a call may pass.
    pub(super) fn call_bytes(&self) -> usize {
        self.context.call_bytes
    }

    /// Counts a call of the contract or of WASI. A refused call counts too, so that refusals are never free.
    pub(super) fn account_call(&mut self) -> Result<(), Refused> {
        self.bill.add(price::CALL);
        self.budget.host_calls = self.budget.host_calls.saturating_add(1);
        if self.budget.host_calls > self.context.limits.host_calls {
            return Err(Refused::OverBudget);
        }
        Ok(())
    }

    /// Accounts and authorises a call with arguments of this size. A run whose grants were revoked may do nothing more,
    /// and is ended where it next waits.
    pub(super) fn admit(&mut self, function: Function, arguments: Size) -> Result<Admission, Refused> {
        self.bill.add(arguments.copied());
        self.drain_output();
        self.account_call()?;
        if self.world.is_revoked() {
            return Err(Refused::NotGranted);
        }
        let Some(need) = function.grant().filter(|need| !need.is_in(&self.context.grants)) else {
            return Ok(Admission::Admitted);
        };
        let why = refusal::needs(need.field());
        self.world.not_granted(&why);
        if function.is_read() {
            return Ok(Admission::Withheld);
        }
        self.refusal = Some(why);
        Err(Refused::NotGranted)
    }

    /// Traces how the call ended, and records which budget refused it.
    pub(super) fn record(&mut self, function: Function, refused: Option<&Refused>) {
        if refused == Some(&Refused::OverBudget) {
            self.refusal = Some(self.used_up(function));
        }
        tracing::trace!(
            plugin = %self.context.id,
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
        arguments: Size,
        work: impl FnOnce(&mut Self) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let answer = match self.admit(function, arguments) {
            Ok(Admission::Admitted) => work(self),
            Ok(Admission::Withheld) => Ok(T::default()),
            Err(refused) => Err(refused),
        };
        self.record(function, answer.as_ref().err());
        answer
    }

    /// Sends the staged writes, while the wall clock is paused. The cost is paid before, and a run that cannot pay it
    /// sends nothing. An empty commit does not reach the world.
    pub(super) async fn commit_staged(&mut self) -> Result<Vec<WriteReport>, Refused> {
        let admitted = self.admit(Function::Commit, Size::default());
        self.record(Function::Commit, admitted.as_ref().err());
        admitted?;
        if self.staged.writes.is_empty() && self.staged.events.is_empty() {
            return Ok(Vec::new());
        }
        if self.wall.sent() >= SENDING {
            return Err(Refused::OverBudget);
        }
        self.bill.add(sending::price_of(&self.staged, self.objects, self.world.view(), self.bill.rest()));
        if self.bill.rest() == 0 {
            return Err(Refused::OverBudget);
        }
        let staged = std::mem::take(&mut self.staged);
        self.objects = Size::default();
        let wall = Arc::clone(&self.wall);
        let stopped = wall.stop();
        let reports = self.world.commit(staged).await;
        drop(stopped);
        let bytes = reports.iter().map(|report| report.description.len()).sum();
        self.bill.add(Size { bytes, values: reports.len() }.rendered());
        Ok(reports)
    }

    pub(super) fn get_state(&mut self, key: &str) -> Result<Option<StateEntry>, Refused> {
        self.call(Function::StateGet, Size::of_texts(&[key]), |run| {
            check_argument_length("key", key, STATE_KEY_BYTES)?;
            let entry = run.world.state_get(key);
            run.bill.add(size_of_entry(entry.as_ref()).rendered());
            Ok(entry)
        })
    }

    pub(super) fn put_state(&mut self, key: &str, value: Vec<u8>, expected: Option<u64>) -> Result<u64, StateError> {
        let mut conflict = None;
        let arguments = Size::of_texts(&[key]).and(Size { bytes: value.len(), values: 1 });
        let version = self.call(Function::StatePut, arguments, |run| {
            check_argument_length("key", key, STATE_KEY_BYTES)?;
            if value.len() > STATE_VALUE_BYTES {
                let length = value.len();
                return Err(Refused::Invalid(format!("value: {length} bytes, at most {STATE_VALUE_BYTES}")));
            }
            let put = run.world.state_put(key, value, expected);
            run.settle(put, &mut conflict)
        })?;
        conflict.map_or(Ok(version), Err)
    }

    pub(super) fn remove_state(&mut self, key: &str, expected: Option<u64>) -> Result<(), StateError> {
        let mut conflict = None;
        self.call(Function::StateRemove, Size::of_texts(&[key]), |run| {
            check_argument_length("key", key, STATE_KEY_BYTES)?;
            let removed = run.world.state_remove(key, expected);
            run.settle(removed, &mut conflict)
        })?;
        conflict.map_or(Ok(()), Err)
    }

    /// A conflict is an answer, not a refusal: it goes around the choke point's result.
    fn settle<T: Default>(
        &mut self,
        result: Result<T, StateError>,
        conflict: &mut Option<StateError>,
    ) -> Result<T, Refused> {
        match result {
            Ok(value) => Ok(value),
            Err(StateError::Refused(refused)) => Err(refused),
            Err(StateError::Conflict(entry)) => {
                self.bill.add(size_of_entry(entry.as_ref()).rendered());
                *conflict = Some(StateError::Conflict(entry));
                Ok(T::default())
            }
        }
    }

    /// Returns the prepared bytes of a script, which the run pays for. It needs no grant: they are the plugin's own.
    pub(super) fn program(&mut self) -> Arc<[u8]> {
        let program = Arc::clone(&self.context.program);
        self.bill.add(price::CALL);
        self.bill.add(Size { bytes: program.len(), values: 1 }.rendered());
        program
    }

    /// Appends a line to the log, or drops it when over budget: the function has no result to report that in.
    pub(super) fn write_log(&mut self, level: LogLevel, message: &str, fields: &[(String, String)]) {
        let bytes = fields.iter().fold(message.len(), |sum, (key, value)| sum + key.len() + value.len());
        // A list of tuples of two texts.
        let arguments = Size { bytes, values: 2 + 3 * fields.len() };
        let written = self.call(Function::Log, arguments, |run| {
            run.log(level, message, fields);
            Ok(())
        });
        if written.is_err() {
            self.drop_line(message, fields);
        }
    }
}

fn size_of_entry(entry: Option<&StateEntry>) -> Size {
    entry.map_or(Size::default(), |entry| Size { bytes: entry.value.len(), values: 1 })
}
