//! Podium's host: one watch, one Pod cache, many tenants' reconcilers in sandboxes.
//!
//! An event goes from the watch of `podium_api` through the cache and the queue of `podium_engine` to a run in
//! `podium_runtime`, and its writes through `podium_writeback` to the API server. [`app`] builds all of them.
//!
//! ARCHITECTURE.md has the map of modules; the suite `tests/tests/tidy/architecture` keeps it true.

#![warn(missing_docs)]

pub mod admin;
pub mod app;
pub mod config;
pub mod images;
mod objects;
pub mod telemetry;
