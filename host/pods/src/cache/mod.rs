//! The Pod cache: one [`Writer`], many [`Reader`]s, immutable [`Snapshot`]s.
//!
//! A reader loads the present snapshot without waiting and may hold it for any time: a snapshot never changes. The
//! writer applies the observations of the watch ([`Writer::apply`], [`Writer::relist`], [`Writer::bookmark`]), and
//! ensures that revisions only grow. Changes of Pods are an [`Update`], in two phases: the caller reads the changes and
//! records deletions, and then publishes the update in one step. The cache does not decide which plugins a change
//! wakes.

mod find;
mod hash_index;
mod index;
mod page;
mod persistent_vec;
mod position_set;
mod reader;
mod snapshot;
mod store;
#[cfg(test)]
mod tests;
mod writer;

pub use reader::Reader;
pub use snapshot::Snapshot;
pub use writer::{Update, Writer};

/// Creates an empty cache, stale until [`Writer::set_live`]. `seed` is for the hashes and should be a secret of the
/// process.
#[must_use]
pub fn new(seed: u64) -> (Writer, Reader) {
    let first = Snapshot::new(seed);
    let (published, reader) = reader::published(first.clone());
    (Writer::new(first, published), reader)
}
