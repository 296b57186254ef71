//! The host calls, one function each, in the SDK's own types: the generated bindings in a component, the fake of
//! `testing` elsewhere. No other module of this crate depends on where it runs.
//!
//! Each import has its own function: a component imports the functions that it can reach, so its imports list what it
//! can do.

#[cfg(target_arch = "wasm32")]
pub(crate) mod component;

#[cfg(target_arch = "wasm32")]
pub(crate) use component::calls::*;

#[cfg(not(target_arch = "wasm32"))]
pub(crate) use crate::testing::calls::*;

/// A page of `pods.find`.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// Each record is preceded by its length.
    pub(crate) pods: Vec<u8>,
    /// The value of `after` for the next call.
    pub(crate) next: Option<String>,
}
