//! Pods for the tests of this crate and of the crates above it. No other code uses it.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod json;
mod real;

pub use json::{pod_json, written};
pub use real::real_pods;
