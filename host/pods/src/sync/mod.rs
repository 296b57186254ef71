//! What threads share state through in this crate and in the queue of the engine: cells, locks and signals.
//!
//! With `--cfg podium_model="loom"` or `"shuttle"` these are a model checker's, so that `tests/schedules` tries the
//! orders in which threads can do their steps on the code as it is. Nobody else sets this.

#[cfg(podium_model = "loom")]
mod loom;
#[cfg(podium_model = "shuttle")]
mod notify;
#[cfg(podium_model = "shuttle")]
mod shuttle;
#[cfg(not(any(podium_model = "loom", podium_model = "shuttle")))]
mod threads;
#[cfg(any(podium_model = "loom", podium_model = "shuttle"))]
pub mod watch;

#[cfg(podium_model = "loom")]
pub use loom::*;
#[cfg(podium_model = "shuttle")]
pub use shuttle::*;
#[cfg(not(any(podium_model = "loom", podium_model = "shuttle")))]
pub use threads::*;
