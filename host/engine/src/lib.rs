//! From a change of a Pod to a run of a plugin and its writes: the queue of keys, dispatch with its expectations and
//! tombstones, the journal, and the ingest loop that owns the cache's writer.
//!
//! The Kubernetes API server and the WebAssembly engine are behind the traits of [`ports`]. ARCHITECTURE.md has the map
//! of modules; the suite `tests/tests/tidy/architecture` keeps it true.

#![warn(missing_docs)]
// A new action has a place in every match.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests have files and tasks of their own"
    )
)]

pub mod clock;
pub mod dispatch;
pub mod fixtures;
pub mod frames;
pub mod ingest;
pub mod intervals;
pub mod journal;
pub mod memory;
pub mod ports;
pub mod private_file;
pub mod queue;
pub mod status;
pub mod throttle;
pub mod wake;
