//! The types of loom for the publish path: loom tries every order of their steps, and every result that the memory
//! orderings allow. The other types are those of an ordinary build, since only one thread uses them there.

pub use std::sync::Weak;
use std::sync::{Arc, atomic::Ordering};

use ::loom::sync::atomic::AtomicUsize;
pub use parking_lot::Mutex;
pub use tokio::sync::Notify;

pub use super::watch;

/// A load and a store are one step each, with the ordering that `arc_swap` guarantees and not a stronger one.
#[derive(Debug)]
pub struct ArcSwap<T> {
    present: AtomicUsize,
    /// All values that were ever stored. Loom does not see this lock, and no step happens while it is held.
    stored: Mutex<Vec<Arc<T>>>,
}

impl<T> ArcSwap<T> {
    pub fn from_pointee(value: T) -> Self {
        Self { present: AtomicUsize::new(0), stored: Mutex::new(vec![Arc::new(value)]) }
    }

    pub fn store(&self, value: Arc<T>) {
        let mut stored = self.stored.lock();
        stored.push(value);
        let at = stored.len() - 1;
        drop(stored);
        self.present.swap(at, Ordering::AcqRel);
    }

    pub fn load_full(&self) -> Arc<T> {
        let at = self.present.load(Ordering::Acquire);
        Arc::clone(&self.stored.lock()[at])
    }

    pub fn load(&self) -> Arc<T> {
        self.load_full()
    }
}

pub fn downgrade<T>(of: &Arc<T>) -> Weak<T> {
    Arc::downgrade(of)
}
