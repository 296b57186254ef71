//! What `podium` does, as a library for its tests and the harness.

pub mod build;
pub mod demo;
pub mod dev;
