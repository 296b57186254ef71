//! The host calls, one function each, in the SDK's own types: the generated bindings in a component, the fake of
//! `testing` elsewhere. Nothing else in this crate knows where it runs.
//!
//! One function for each import, never one for several: a component imports what it can reach, and its imports are the
//! list of what it can do.

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
    /// Goes into `after` of the next call.
    pub(crate) next: Option<String>,
}
