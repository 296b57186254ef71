//! In the place of the host's `sync`: the same names, each step of which shuttle may put another thread before.

#[path = "notify.rs"]
mod notify;
#[path = "../../models/watch.rs"]
pub(crate) mod watch;

use std::sync::{Arc, atomic::Ordering};

use shuttle::sync::{MutexGuard, atomic::AtomicUsize};

pub(crate) use notify::Notify;

/// As parking_lot's: it is not poisoned.
#[derive(Debug)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

/// A load and a store are one step each, as `arc_swap` promises. That they wait for nobody is its own affair; that what
/// uses it waits for nobody is ours, and a lock that is held for no longer than a step shows it as well.
#[derive(Debug)]
pub(crate) struct ArcSwap<T>(Mutex<Arc<T>>);

impl<T> ArcSwap<T> {
    pub(crate) fn from_pointee(value: T) -> Self {
        Self(Mutex::new(Arc::new(value)))
    }

    pub(crate) fn store(&self, value: Arc<T>) {
        // What was there is dropped outside.
        let _before = std::mem::replace(&mut *self.0.lock(), value);
    }

    pub(crate) fn load_full(&self) -> Arc<T> {
        Arc::clone(&*self.0.lock())
    }

    pub(crate) fn load(&self) -> Arc<T> {
        self.load_full()
    }
}

/// The last owner may go before each look.
#[derive(Debug)]
pub(crate) struct Weak<T> {
    of: std::sync::Weak<T>,
    looks: AtomicUsize,
}

impl<T> Default for Weak<T> {
    fn default() -> Self {
        Self::to(std::sync::Weak::new())
    }
}

impl<T> Weak<T> {
    fn to(of: std::sync::Weak<T>) -> Self {
        Self { of, looks: AtomicUsize::new(0) }
    }

    pub(crate) fn upgrade(&self) -> Option<Arc<T>> {
        self.looks.load(Ordering::Relaxed);
        self.of.upgrade()
    }

    pub(crate) fn strong_count(&self) -> usize {
        self.looks.load(Ordering::Relaxed);
        self.of.strong_count()
    }
}

pub(crate) fn downgrade<T>(of: &Arc<T>) -> Weak<T> {
    Weak::to(Arc::downgrade(of))
}
