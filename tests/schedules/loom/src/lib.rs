//! The host's cache as it is over loom's counters and locks: `tests` runs its publish path in every order.

// The rooms' own tests run where they live.
#![cfg(not(test))]
#![expect(clippy::unwrap_used, reason = "a checker has no poisoned locks that it did not tell of")]

#[path = "../../../../host/src/cache/mod.rs"]
pub mod cache;
#[path = "../../../../host/src/model/mod.rs"]
pub mod model;
#[expect(dead_code, reason = "checkpoints are not written here")]
#[path = "../../../../host/src/shape/mod.rs"]
pub mod shape;
mod sync;
