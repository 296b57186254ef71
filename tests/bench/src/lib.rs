//! The measuring rig of the cache: Pods as a real API server writes them, at any number and from a seed.
//!
//! docs/benchmarks.md tells how to run it and what its figures mean.

pub mod generate;
