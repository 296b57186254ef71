//! The sandbox: the only crate that uses wasmtime.
//!
//! [`Engine::compile`] compiles a component with its plugin's configuration into a [`Plugin`], or returns the reason
//! for a refusal: a component that imports more than its grants is refused at load, before any of its code has run.
//! [`Engine::prepare`] makes a plugin of a script and the [`Runner`] of its language.
//! [`Plugin`] implements [`Reconcile`](podium_engine::ports::Reconcile): every run has its own sandbox, which is
//! discarded afterwards unless the plugin's configuration has the instance reused.
//!
//! This crate does not decide when a plugin runs, and sends nothing: it asks the
//! [`World`](podium_engine::ports::World) of the run. Components are compiled in their own jailed process;
//! [`Compilation`] has the exceptions.

#![warn(missing_docs)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests have files and tasks of their own"
    )
)]

mod bindings;
mod caps;
mod compile;
mod convert;
mod engine;
mod failure;
mod hostcalls;
mod inspect;
mod invoke;
mod limits;
mod linking;
mod meter;
mod object;
mod offer;
mod plugin;
mod profile;
mod reads;
mod run;
mod sandboxes;
mod script;
mod sending;
mod signature;
mod staging;
mod text;
mod ticker;
mod validate;
mod wall;
mod wasi;

#[cfg(test)]
mod tests;

pub use compile::{Artifact, Cache, Compilation, DEFAULT_TENANT_CODE_BYTES, Program, Room, compile_stdin};
pub use engine::{Engine, EngineError, EngineOptions};
pub use inspect::{Import, InspectError, Interface, inspect};
pub use plugin::Plugin;
pub use profile::Samples;
pub use script::Runner;
pub use validate::{LoadError, LoadProblem, check, max_component_bytes};
