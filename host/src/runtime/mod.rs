//! The sandbox: the only module that uses wasmtime.
//!
//! [`Engine::compile`] turns a component and its plugin's configuration into a [`Plugin`], or says why it will not:
//! what a plugin could do beyond its grants is refused at load, before any of its code has run. [`Plugin`] implements
//! [`Reconcile`](podium_engine::ports::Reconcile): every run has a sandbox of its own, thrown away afterwards.
//!
//! This module does not decide when a plugin runs, and sends nothing: it asks the
//! [`World`](podium_engine::ports::World) that it is given. Components are compiled in a jailed process of their own;
//! [`Compilation`] says when they are not.

mod bindings;
mod caps;
mod compile;
mod convert;
mod engine;
mod failure;
mod function;
mod hostcalls;
mod inspect;
mod invoke;
mod limits;
mod linking;
mod meter;
mod object;
mod plugin;
mod reads;
mod run;
mod staging;
mod text;
mod ticker;
mod validate;
mod wall;
mod wasi;

#[cfg(test)]
mod tests;

pub use compile::{Artifact, Cache, Compilation, Program, compile_stdin};
pub use engine::{Engine, EngineError, EngineOptions};
pub use inspect::{Import, InspectError, Interface, inspect};
pub use plugin::Plugin;
pub use validate::{LoadError, LoadProblem, check, max_component_bytes};
