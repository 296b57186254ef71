//! The compact encoding of Pods: text that Pods share is stored once, and each Pod has the values in which it differs.
//!
//! Pods of one workload differ in their name, uid, revision, times, addresses, container ids, node, and in strings of
//! their own. A Pod's JSON has three fragments (the object around spec and status, the spec, the status). Each
//! fragment is stored as a reference to a skeleton, the JSON with a placeholder for each of these values, and the
//! values, in a few hundred bytes ([`Packed`]). A skeleton also contains the encoded sections with holes for the
//! values, so that the next Pod with this skeleton is not decoded. A new skeleton is decoded once by
//! `podium_wire::json`, the one decoder, and its sections are compared with the decoder's output before the first
//! use.
//!
//! # Invariants
//! - A fragment reuses a known skeleton only if its own skeleton is byte-identical and has as many placeholders, or if
//!   filling the known skeleton with the Pod's values reproduces the JSON. Nothing is stored that the decoder would
//!   have rejected; pruned fields are not checked.
//! - The section `full` is the object byte for byte, except managedFields and the annotations of
//!   [`Prune`](podium_vocabulary::Prune), which are removed before anything is stored, and `kind` and `apiVersion`,
//!   which every Pod has.
//! - Sections are byte-identical to the output of `podium_wire`; a Pod for which this cannot be proven is stored
//!   unshared, with its JSON.
//! - A fragment with a structure that no other Pod of its workload has is stored unshared (`unshared.rs`): it takes
//!   bytes of its own Pod only.
//! - A skeleton is freed with the last Pod that has it.
//! - Each namespace learns separately which strings become values (`learned.rs`), and only at positions that the
//!   decoder passes on unread (`structure.rs`).

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests have files and tasks of their own"
    )
)]
#![warn(missing_docs)]

mod candidates;
mod chunks;
mod compact;
mod forms;
mod fragment;
mod hot_fields;
mod json_string;
mod learned;
mod matcher;
mod packed;
mod placeholder;
mod pool;
mod read;
mod scan;
mod skeleton;
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "instructions that the processor may lack"))]
mod skip;
mod sorted_map;
mod stored;
mod strings;
mod structure;
mod template;
pub mod testing;
#[cfg(test)]
mod tests;
mod tokens;
mod unshared;
mod whole;
mod words;
mod workloads;

use std::sync::Arc;

use fragment::FRAGMENTS;
pub use packed::Packed;
pub use pool::Pool;
use pool::Shape;
pub use read::{Names, PodJson, Read, ReadError};
pub use scan::Scratch;
pub use skeleton::PodIdentity;
pub use stored::{Stored, Uid};

/// The parts that Pods have in common: their namespace and all text. Pods with the same parts share one reference.
pub type Shared = Arc<Shape>;
