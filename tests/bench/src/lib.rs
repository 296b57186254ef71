//! The benchmark of the cache: Pods as a real API server writes them, a server that replays them, Podium and other
//! clients as processes that follow it, and one table of the results.
//!
//! docs/benchmarks.md describes how to run it and the meaning of its figures.

pub mod commands;
mod controller;
mod driver;
pub mod generate;
pub mod monotonic;
pub mod queue;
pub mod server;
mod subject;
