//! Pods in Podium's host: the compact encoding, the cache with its snapshots, and which plugins a
//! change concerns.
//!
//! No IO, no clock, no Kubernetes client and no WebAssembly engine. ARCHITECTURE.md has the map of modules; the
//! suite `tests/tests/architecture` enforces it.

#![warn(missing_docs)]

pub mod cache;
pub mod dump;
pub mod encoding;
pub mod pod;
pub mod sync;
pub mod testing;
