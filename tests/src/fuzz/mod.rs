//! The fuzz targets: one function for each place where the host reads untrusted bytes. It accepts any bytes, passes
//! them through the host's code, and panics if a guarantee is broken. tests/fuzz runs these functions under
//! libFuzzer; the suite `regressions` runs them on the inputs in tests/fuzz/regressions.
//!
//! The host exposes nothing for this purpose: the functions use only the interfaces between its modules.

pub mod abi;
pub mod calls;
pub mod components;
pub mod explore;
pub mod frames;
pub mod journal;
pub mod pods;
pub mod queries;
pub mod records;
mod run;
mod sample;
pub mod seeds;
pub mod selectors;

/// A function that panics if it finds a fault.
pub type Target = fn(&[u8]);

/// All targets by the names of their programs and folders.
pub const TARGETS: &[(&str, Target)] = &[
    ("abi", abi::run),
    ("calls", calls::run),
    ("components", components::run),
    ("frames", frames::run),
    ("journal", journal::run),
    ("pods", pods::run),
    ("queries", queries::run),
    ("records", records::run),
    ("selectors", selectors::run),
];
