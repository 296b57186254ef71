//! Podium's host: one watch, one Pod cache, many tenants' reconcilers in sandboxes.
//!
//! ARCHITECTURE.md has the map: which room may know which. `tests/tests/architecture.rs` holds the code to it.

pub mod admin;
pub mod api;
pub mod app;
pub mod authz;
pub mod cache;
pub mod checkpoint;
pub mod clock;
pub mod config;
pub mod dispatch;
mod frames;
pub mod intervals;
pub mod journal;
pub mod live;
pub mod memory;
pub mod model;
pub mod queue;
pub mod runtime;
pub mod seam;
pub mod shape;
pub mod status;
mod sync;
pub mod telemetry;
pub mod wake;
pub mod watch;
pub mod writeback;
