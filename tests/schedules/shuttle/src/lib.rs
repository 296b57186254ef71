//! The host's rooms in which threads meet, as they are, over shuttle's locks: `tests` runs them in many orders.
//!
//! Built here and not as the host under a flag, so that an ordinary build knows nothing of it and this one no engine.

// The rooms' own tests run where they live.
#![cfg(not(test))]
#![expect(clippy::unwrap_used, reason = "a checker has no poisoned locks that it did not tell of")]
#![expect(clippy::large_enum_variant, reason = "a checker's locks are larger than the host's")]

#[path = "../../../../host/src/cache/mod.rs"]
pub mod cache;
#[path = "../../../../host/src/model/mod.rs"]
pub mod model;
#[path = "../../../../host/src/queue/mod.rs"]
pub mod queue;
#[expect(dead_code, reason = "checkpoints are not written here")]
#[path = "../../../../host/src/shape/mod.rs"]
pub mod shape;
mod sync;
#[path = "../../../../host/src/dispatch/tombstones.rs"]
pub mod tombstones;
