//! The memory that a deletion takes which waits for a plugin. Its own suite, because it counts the allocations of the
//! whole process.

#[path = "../benches/store/memory.rs"]
mod memory;

use podium_engine::{
    dispatch::{Keys, Tombstones},
    queue::Backoff,
};
use podium_vocabulary::PodKey;
use tokio::time::Instant;

/// That of docs/disk.md.
const BYTES: usize = 1_060;
/// The most for the plugins of a namespace.
const KEYS: usize = 250_000;

#[test]
fn the_key_of_a_deletion_takes_the_memory_that_the_page_says() {
    let namespace = "shop".into();
    let key = |number: usize| PodKey {
        namespace: std::sync::Arc::clone(&namespace),
        name: format!("cart-5d8f7c9b6d-{number:05}").into(),
        uid: format!("0f8fad5b-d9cb-469f-a165-{number:012}").into(),
    };
    let queue = Keys::<u32>::new(Backoff::default(), usize::MAX, 1);
    let tombstones = Tombstones::<u32>::default();
    let (_, bytes) = memory::measure(|| {
        let keys = || (0..KEYS).map(key).collect();
        drop(tombstones.queue_deletions(&queue, 1, keys, Instant::now()));
    });
    assert_eq!(tombstones.figures(1).all, KEYS);
    let each = bytes / KEYS;
    assert!((BYTES * 9 / 10..=BYTES * 11 / 10).contains(&each), "{each} bytes");
}
