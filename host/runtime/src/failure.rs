//! From an error of the engine to the kind of failure that people and back-off act on.

use std::any::Any;

use podium_engine::ports::{Failure, FailureKind, panic_message};
use podium_vocabulary::text::MESSAGE_BYTES;
use wasmtime::{PoolConcurrencyLimitError, Trap, WasmBacktrace};

use super::{
    limits::CutReason,
    text::{cut, line},
};

const FRAMES: usize = 8;
const FRAME_BYTES: usize = 120;

pub(super) fn failure(kind: FailureKind, message: &str) -> Failure {
    Failure { kind, message: line(message) }
}

/// `last_words` are the newest errors that the guest logged or printed: a panic's text is among them, if anywhere.
pub(super) fn of_error(error: &wasmtime::Error, last_words: Option<String>) -> Failure {
    let kind = kind_of(error);
    let mut message = match (error.downcast_ref::<CutReason>(), error.downcast_ref::<Trap>()) {
        (Some(cut), _) => cut.to_string(),
        (None, Some(Trap::OutOfFuel)) => "used up its limit of processor time".to_owned(),
        (None, Some(trap)) => trap.to_string(),
        (None, None) => error.root_cause().to_string(),
    };
    if let Some(words) = last_words {
        message = format!("{message}: {words}");
    }
    if let Some(frames) = error.downcast_ref::<WasmBacktrace>().map(frames_of).filter(|frames| !frames.is_empty()) {
        message = format!("{} (in {frames})", cut(&message, MESSAGE_BYTES / 2));
    }
    failure(kind, &message)
}

fn kind_of(error: &wasmtime::Error) -> FailureKind {
    match error.downcast_ref::<CutReason>() {
        Some(CutReason::Memory { .. } | CutReason::Tables { .. }) => return FailureKind::Memory,
        Some(CutReason::Time { .. }) => return FailureKind::Cpu,
        Some(
            CutReason::Calls { .. }
            | CutReason::Refusals { .. }
            | CutReason::Arguments { .. }
            | CutReason::Exit(_)
            | CutReason::Random(_),
        ) => {
            return FailureKind::Trap;
        }
        None => {}
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel | Trap::Interrupt) => return FailureKind::Cpu,
        Some(Trap::AllocationTooLarge) => return FailureKind::Memory,
        Some(_) => return FailureKind::Trap,
        None => {}
    }
    if error.is::<PoolConcurrencyLimitError>() {
        return FailureKind::Host;
    }
    // wasmtime has no type for this error.
    if error.chain().any(|cause| cause.to_string().starts_with("resource limit exceeded")) {
        return FailureKind::Memory;
    }
    // In all other cases the guest broke a rule of the component model, for example by text that is no UTF-8.
    FailureKind::Trap
}

/// Whether a call was cut because its arguments are larger than the allowance of a call. The error of
/// wasmtime has no type.
pub(super) fn is_argument_too_large(error: &wasmtime::Error) -> bool {
    error.chain().any(|cause| cause.to_string().contains("fuel allocated for hostcalls has been exhausted"))
}

/// Names of the guest's functions, innermost first; nothing where the component was stripped of them.
fn frames_of(backtrace: &WasmBacktrace) -> String {
    if backtrace.frames().iter().all(|frame| frame.func_name().is_none()) {
        return String::new();
    }
    // Only its text has the names demangled: "  0:   0x1f2 - module!crate::function".
    let text = backtrace.to_string();
    let names = text.lines().filter_map(|line| line.split_once(" - ")).map(|(_, name)| cut(name, FRAME_BYTES));
    names.filter(|name| !is_runtime(name)).take(FRAMES).collect::<Vec<_>>().join(" < ")
}

/// Rust's own machinery, through which every panic goes. The crate's name is followed by `::`, or by `[` and its hash.
fn is_runtime(name: &str) -> bool {
    let path = name.split_once('!').map_or(name, |(_, path)| path).trim_start_matches('<');
    ["std", "core", "alloc", "__rustc"]
        .iter()
        .any(|own| path.strip_prefix(own).is_some_and(|rest| rest.starts_with("::") || rest.starts_with('[')))
}

/// A panic of the host inside a host call ends the run, not the process.
pub(super) fn of_panic(panic: &(dyn Any + Send)) -> Failure {
    failure(FailureKind::Host, &format!("a host call panicked: {}", panic_message(panic)))
}

#[cfg(test)]
mod tests {
    use podium_vocabulary::LimitClass;
    use wasmtime::{
        Store,
        component::{Component, Linker},
    };

    use super::{super::limits::Limiter, *};

    /// A component that instantiates an empty module a number of times.
    fn instances(count: u8) -> Vec<u8> {
        let mut component = b"\0asm\x0d\0\x01\0\x01\x08\0asm\x01\0\0\0".to_vec();
        component.extend([2, 1 + 3 * count, count]);
        component.extend([0, 0, 0].repeat(usize::from(count)));
        component
    }

    #[test]
    fn more_instances_than_the_class_allows_count_as_memory() {
        let engine = wasmtime::Engine::default();
        let instantiate = |count| {
            let component = Component::new(&engine, instances(count)).unwrap();
            let mut store = Store::new(&engine, Limiter::new(1 << 20, LimitClass::Native));
            store.limiter(|limiter| limiter);
            Linker::new(&engine).instantiate(&mut store, &component).map(drop)
        };
        assert!(instantiate(16).is_ok());
        let failure = of_error(&instantiate(17).unwrap_err(), None);
        assert_eq!(failure.kind, FailureKind::Memory, "{}", failure.message);
    }

    #[test]
    fn frames_of_rusts_own_machinery_are_left_out() {
        for own in ["a.wasm!std::panicking::begin", "a.wasm!core[0f]::panicking", "a.wasm!<alloc::vec::Vec<u8>>::push"]
        {
            assert!(is_runtime(own), "{own}");
        }
        for guest in ["a.wasm!stdlib::f", "a.wasm!plugin::core::f", "a.wasm!reconcile"] {
            assert!(!is_runtime(guest), "{guest}");
        }
    }
}
