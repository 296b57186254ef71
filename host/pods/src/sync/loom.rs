//! The counterparts of loom for the publish path: it tries every order of their steps, and what each memory ordering
//! allows. The rest is as in an ordinary build, since one thread uses it there.

pub use std::sync::Weak;
use std::sync::{Arc, atomic::Ordering};

use ::loom::sync::atomic::AtomicUsize;
pub use parking_lot::Mutex;
pub use tokio::sync::Notify;

pub use super::watch;

/// A load and a store are one step each, with the ordering that `arc_swap` promises and no more.
#[derive(Debug)]
pub struct ArcSwap<T> {
    present: AtomicUsize,
    /// All that were ever stored; loom knows nothing of it, and no step is within.
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
