//! Pods in Podium's host: the cache with its snapshots, and changes.
//!
//! No IO, no clock, no Kubernetes client and no WebAssembly engine. ARCHITECTURE.md has the map of modules; the
//! suite `tests/tests/architecture` enforces it.

#![warn(missing_docs)]

pub mod cache;
pub mod dump;
pub mod pod;
pub mod testing;
