//! Pods for the tests of this crate and of the crates above it. No other code uses it.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod checked;
mod json;
mod real;

pub use checked::Checked;
#[cfg(test)]
pub(crate) use checked::same_as_decoded;
pub use json::{pod_json, written};
pub use real::real_pods;
