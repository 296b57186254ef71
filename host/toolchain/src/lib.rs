//! The Rust toolchain that compiles plugins: whether it has a compilation target, and the installation of a missing
//! one through rustup.
//!
//! This crate has no dependencies and does not read its own setting from the environment: callers pass [`Install`].

mod environment;
mod error;
mod install;
mod toolchain;

pub use environment::{forget_build_settings, forget_package};
pub use error::Error;
pub use install::Install;
pub use toolchain::Toolchain;
