//! Pods in Podium's host: the cache with its snapshots, and changes.
//!
//! No IO, no clock, no Kubernetes client and no WebAssembly engine. ARCHITECTURE.md has the map of modules; the
//! suite `tests/tests/tidy/architecture` keeps it true.

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
pub mod pod;
pub mod testing;
