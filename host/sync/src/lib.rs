//! Cells, locks and signals for state that threads share.
//!
//! With `--cfg podium_model="loom"` or `"shuttle"` these are the types of a model checker, so that `tests/schedules`
//! tries the orders of the threads' steps on the unchanged code. No other build sets this.

#[cfg(podium_model = "loom")]
mod loom_types;
#[cfg(podium_model = "shuttle")]
mod notify;
#[cfg(podium_model = "shuttle")]
mod shuttle_types;
#[cfg(not(any(podium_model = "loom", podium_model = "shuttle")))]
mod threads;
#[cfg(any(podium_model = "loom", podium_model = "shuttle"))]
pub mod watch;

#[cfg(podium_model = "loom")]
pub use loom_types::*;
#[cfg(podium_model = "shuttle")]
pub use shuttle_types::*;
#[cfg(not(any(podium_model = "loom", podium_model = "shuttle")))]
pub use threads::*;
