//! In the place of the host's `sync`: the names of the publish path under loom, which tries every order of their steps
//! and what each memory ordering allows. What else there is, is as in the host: one thread alone uses it here.

#[path = "../../models/watch.rs"]
pub(crate) mod watch;

use std::sync::{Arc, atomic::Ordering};

pub(crate) use std::sync::Weak;

use loom::sync::atomic::AtomicUsize;
pub(crate) use parking_lot::Mutex;

/// A load and a store are one step each, with the ordering that `arc_swap` promises and no more.
#[derive(Debug)]
pub(crate) struct ArcSwap<T> {
    present: AtomicUsize,
    /// All that were ever stored; loom knows nothing of it, and no step is within.
    stored: Mutex<Vec<Arc<T>>>,
}

impl<T> ArcSwap<T> {
    pub(crate) fn from_pointee(value: T) -> Self {
        Self { present: AtomicUsize::new(0), stored: Mutex::new(vec![Arc::new(value)]) }
    }

    pub(crate) fn store(&self, value: Arc<T>) {
        let mut stored = self.stored.lock();
        stored.push(value);
        let at = stored.len() - 1;
        drop(stored);
        self.present.swap(at, Ordering::AcqRel);
    }

    pub(crate) fn load_full(&self) -> Arc<T> {
        let at = self.present.load(Ordering::Acquire);
        Arc::clone(&self.stored.lock()[at])
    }

    pub(crate) fn load(&self) -> Arc<T> {
        self.load_full()
    }
}

pub(crate) fn downgrade<T>(of: &Arc<T>) -> Weak<T> {
    Arc::downgrade(of)
}
