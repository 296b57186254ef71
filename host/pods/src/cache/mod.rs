//! The Pods: one [`Writer`], many [`Reader`]s, immutable [`Snapshot`]s.
//!
//! A reader takes the present snapshot without waiting and may hold it for as long as it likes: it stays what it was.
//! The writer applies the observations of the watch ([`Writer::apply`], [`Writer::relist`], [`Writer::bookmark`]) and
//! the API server's answers to our own writes ([`Writer::write_through`]), and keeps revisions growing. Changes of Pods
//! are an [`Update`], in two phases: the caller reads the changes and records deletions, and then publishes the update
//! in one step. The cache does not decide which plugins a change wakes.

mod find;
mod index;
mod lookup;
mod members;
mod page;
#[cfg(test)]
mod properties;
mod reader;
mod snapshot;
mod store;
mod tree;
mod writer;

pub use reader::Reader;
pub use snapshot::Snapshot;
pub use writer::{Update, Writer};

/// An empty cache, stale until [`Writer::set_live`]. `seed` should be a secret of the process.
#[must_use]
pub fn new(seed: u64) -> (Writer, Reader) {
    let first = Snapshot::new(seed);
    let (published, reader) = reader::published(first.clone());
    (Writer::new(first, published), reader)
}
