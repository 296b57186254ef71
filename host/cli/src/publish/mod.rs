//! `podium push` and `podium pull`: components to and from registries, and into ConfigMaps.

mod access;
pub(crate) mod configmap;
mod docker;
pub(crate) mod pull;
pub(crate) mod push;

use std::time::Duration;

use indicatif::ProgressBar;
use podium_vocabulary::LimitClass;

use crate::ui;

/// The most bytes of a component that is pushed or pulled: those of the largest that a host loads.
const MAX_BYTES: u64 = podium_runtime::max_component_bytes(LimitClass::Interpreter) as u64;
/// How long an operation takes before it is reported.
const QUIET: Duration = Duration::from_secs(2);

/// Waits for an operation, and reports it on stderr when it takes more than two seconds.
async fn reported<T>(what: &str, operation: impl Future<Output = T>) -> T {
    tokio::pin!(operation);
    tokio::select! {
        biased;
        done = &mut operation => return done,
        () = tokio::time::sleep(QUIET) => {}
    }
    if !ui::interactive() {
        ui::report(&format!("{what} .."));
        return operation.await;
    }
    let spinner = ProgressBar::new_spinner().with_message(format!("{what} .."));
    spinner.enable_steady_tick(Duration::from_millis(120));
    let done = operation.await;
    spinner.finish_and_clear();
    done
}
