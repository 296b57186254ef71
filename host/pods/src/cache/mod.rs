//! The Pods: one [`Writer`], many [`Reader`]s, immutable [`Snapshot`]s.
//!
//! A reader takes the present snapshot without waiting and may hold it for as long as it likes: it stays what it was.
//! The writer is told what the watch saw ([`Writer::apply`], [`Writer::relist`], [`Writer::bookmark`]) and what the
//! API server answered to our own writes ([`Writer::write_through`]), lets time go forward alone, publishes once per
//! call, and says what changed. Who is woken by a change is not its affair.

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
pub use writer::Writer;

/// An empty cache, stale until [`Writer::set_live`]. `seed` should be a secret of the process.
#[must_use]
pub fn new(seed: u64) -> (Writer, Reader) {
    let first = Snapshot::new(seed);
    let (published, reader) = reader::published(first.clone());
    (Writer::new(first, published), reader)
}
