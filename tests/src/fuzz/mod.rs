//! What is fuzzed: for each place where the host takes bytes that others made, a function that takes any bytes, goes
//! the host's own way with them, and panics where something is wrong. tests/fuzz runs them under libFuzzer; the suite
//! `regressions` runs them on what is kept in tests/fuzz/regressions.
//!
//! Nothing of the host is opened for this: everything goes through what its rooms show each other.

pub mod checkpoint;
pub mod frames;
pub mod journal;
pub mod pods;
pub mod queries;
pub mod records;
mod sample;
pub mod seeds;
pub mod selectors;

/// Panics where it finds something.
pub type Target = fn(&[u8]);

/// By the names of their programs and folders.
pub const TARGETS: &[(&str, Target)] = &[
    ("checkpoint", checkpoint::run),
    ("frames", frames::run),
    ("journal", journal::run),
    ("pods", pods::run),
    ("queries", queries::run),
    ("records", records::run),
    ("selectors", selectors::run),
];
