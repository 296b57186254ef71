//! Podium's host: one watch, one Pod cache, many tenants' reconcilers in sandboxes.
//!
//! An event goes from [`watch`] through the cache and the queue of `podium_engine` to a run in [`runtime`], and its
//! writes through [`writeback`] to the API server. [`app`] builds all of them.
//!
//! ARCHITECTURE.md has the map of modules; the suite `tests/tests/architecture` enforces it.

#![warn(missing_docs)]

pub mod admin;
pub mod api;
pub mod app;
pub mod checkpoint;
pub mod config;
pub mod images;
mod live;
mod objects;
mod private_file;
pub mod runtime;
pub mod telemetry;
pub mod watch;
pub mod writeback;
