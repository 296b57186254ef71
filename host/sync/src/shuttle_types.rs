//! The types of shuttle, which may switch threads before each step.

#![expect(clippy::unwrap_used, reason = "a checker has no poisoned locks that it did not report")]

use std::sync::{Arc, atomic::Ordering};

use ::shuttle::sync::{MutexGuard, atomic::AtomicUsize};

pub use super::{notify::Notify, watch};

/// Like the mutex of parking_lot, it is not poisoned.
#[derive(Debug)]
pub struct Mutex<T>(::shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(::shuttle::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

/// A load and a store are one step each, as `arc_swap` guarantees. That these calls do not block is for `arc_swap` to
/// test; that the code that uses them does not block is tested here, and a lock that is held for only one step shows
/// it.
#[derive(Debug)]
pub struct ArcSwap<T>(Mutex<Arc<T>>);

impl<T> ArcSwap<T> {
    pub fn from_pointee(value: T) -> Self {
        Self(Mutex::new(Arc::new(value)))
    }

    pub fn store(&self, value: Arc<T>) {
        // The previous value is dropped after the lock is released.
        let _before = std::mem::replace(&mut *self.0.lock(), value);
    }

    pub fn load_full(&self) -> Arc<T> {
        Arc::clone(&*self.0.lock())
    }

    pub fn load(&self) -> Arc<T> {
        self.load_full()
    }
}

/// The last owner may be dropped before each call.
#[derive(Debug)]
pub struct Weak<T> {
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

    pub fn upgrade(&self) -> Option<Arc<T>> {
        self.looks.load(Ordering::Relaxed);
        self.of.upgrade()
    }

    pub fn strong_count(&self) -> usize {
        self.looks.load(Ordering::Relaxed);
        self.of.strong_count()
    }
}

pub fn downgrade<T>(of: &Arc<T>) -> Weak<T> {
    Weak::to(Arc::downgrade(of))
}
