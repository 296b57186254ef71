//! Pods in Podium's host: the compact encoding, and the cache with its snapshots.
//!
//! No IO, no clock, no Kubernetes client and no WebAssembly engine. ARCHITECTURE.md has the map of modules; the
//! suite `tests/tests/architecture` keeps it true.

#![warn(missing_docs)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests have files and tasks of their own"
    )
)]

pub mod cache;
pub mod dump;
pub mod encoding;
pub mod pod;
pub mod sync;
pub mod testing;
