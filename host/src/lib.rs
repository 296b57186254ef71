//! Podium's host: one watch, one Pod cache, many tenants' reconcilers in sandboxes.
//!
//! ARCHITECTURE.md has the map: which room may know which. `tests/tests/architecture.rs` holds the code to it.

#![warn(missing_docs)]

pub mod admin;
pub mod api;
pub mod app;
pub mod checkpoint;
pub mod config;
mod live;
pub mod runtime;
pub mod telemetry;
pub mod watch;
pub mod writeback;
