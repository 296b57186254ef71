//! The benchmark of the cache: Pods as a real API server writes them, a server that replays them, Podium and other
//! clients as processes that follow it, and one table of the results. And that of new Pods on a real control plane, of
//! which the host and other programs label each.
//!
//! docs/benchmarks.md describes how to run it and the meaning of its figures.

mod cells;
pub mod commands;
mod controller;
mod driver;
mod floor;
pub mod generate;
mod load;
pub mod monotonic;
pub mod queue;
pub mod server;
mod subject;
mod threads;
