//! A component's side of the contract: the bindings that are generated from `wit/podium.wit`, the imports, and the
//! export.

pub(crate) mod calls;
mod convert;

use std::{panic, sync::Once};

use super::advice;
use crate::{Outcome, Reconciler, Request, log::Level, outcome::Rest};

#[expect(missing_docs, reason = "generated; wit/podium.wit documents them")]
pub mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "plugin", pub_export_macro: true });
}

pub use bindings::exports::podium::reconcile::reconciler::Guest;
use bindings::{exports::podium::reconcile::reconciler, podium::reconcile::types};

/// Performs one run of the author's function; `reconciler!` exports it.
///
/// # Errors
/// Returns the error of the function.
pub fn run(function: impl Reconciler, request: reconciler::Request) -> Result<types::Outcome, types::Failure> {
    static PANICS: Once = Once::new();
    PANICS.call_once(|| panic::set_hook(Box::new(log_panic)));
    let outcome = Request::try_from(request).and_then(|request| function(&request));
    match outcome.map(Outcome::rest) {
        Ok(Rest::Settled) => Ok(types::Outcome::Settled),
        Ok(Rest::Stop) => Ok(types::Outcome::Stop),
        Ok(Rest::RequeueAfter(duration)) => {
            let millis = duration.as_nanos().div_ceil(1_000_000);
            Ok(types::Outcome::RequeueAfterMillis(u64::try_from(millis).unwrap_or(u64::MAX)))
        }
        Err(error) if error.is_terminal() => Err(types::Failure::Terminal(error.message().to_owned())),
        Err(error) => Err(types::Failure::Retry(error.message().to_owned())),
    }
}

/// Logs the message of a panic with its place, because the trap that follows has neither.
fn log_panic(info: &panic::PanicHookInfo<'_>) {
    let message = info.payload_as_str().unwrap_or("a value that is no text");
    let place = info.location().map(|place| format!(" ({place})")).unwrap_or_default();
    let advice = advice(message);
    // In the message, so that failures at two places are two.
    calls::log(Level::Error, &format!("panic: {message}{place}{advice}"), &[]);
}
