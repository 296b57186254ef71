//! Values that are made once for equal keys, and live as long as they are used.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use parking_lot::{Condvar, Mutex};

/// Values by key. No lock is held while a value is made; other callers for the same key wait for this value.
#[derive(Debug)]
pub(super) struct Shared<K, V, E>(Mutex<BTreeMap<K, SharedValue<V, E>>>);

#[derive(Debug)]
enum SharedValue<V, E> {
    Made(Weak<V>),
    Making(Arc<Making<V, E>>),
}

/// A value that one thread makes while others wait for it.
#[derive(Debug)]
struct Making<V, E> {
    result: Mutex<Option<Result<Arc<V>, E>>>,
    ended: Condvar,
}

impl<K, V, E> Default for Shared<K, V, E> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord + Copy, V, E: Clone> Shared<K, V, E> {
    /// Returns the value of a key if it is used.
    pub(super) fn get(&self, key: K) -> Option<Arc<V>> {
        match self.0.lock().get(&key)? {
            SharedValue::Made(value) => value.upgrade(),
            SharedValue::Making(_) => None,
        }
    }

    /// Returns the value of a key if it is used, and otherwise makes it. Blocks while another thread makes the value,
    /// and then has the same result. If that thread panics, the result is `abandoned`.
    pub(super) fn get_or_try_insert_with(
        &self,
        key: K,
        make: impl FnOnce() -> Result<V, E>,
        abandoned: impl FnOnce() -> E,
    ) -> Result<Arc<V>, E> {
        let making = {
            let mut values = self.0.lock();
            match values.get(&key) {
                Some(SharedValue::Made(value)) => {
                    if let Some(value) = value.upgrade() {
                        return Ok(value);
                    }
                }
                Some(SharedValue::Making(making)) => {
                    let making = Arc::clone(making);
                    drop(values);
                    let mut result = making.result.lock();
                    making.ended.wait_while(&mut result, |result| result.is_none());
                    return result.clone().unwrap_or_else(|| Err(abandoned()));
                }
                None => {}
            }
            values.retain(|_, value| !matches!(value, SharedValue::Made(value) if value.strong_count() == 0));
            let making = Arc::new(Making { result: Mutex::new(None), ended: Condvar::new() });
            values.insert(key, SharedValue::Making(Arc::clone(&making)));
            making
        };
        let mut end = EndGuard { shared: self, key, making, failure: Some(abandoned()) };
        let result = make().map(Arc::new);
        end.end(result.clone());
        result
    }
}

/// Publishes the result to waiting threads, even when `make` panics.
struct EndGuard<'a, K: Ord + Copy, V, E: Clone> {
    shared: &'a Shared<K, V, E>,
    key: K,
    making: Arc<Making<V, E>>,
    /// The result if `make` panics.
    failure: Option<E>,
}

impl<K: Ord + Copy, V, E: Clone> EndGuard<'_, K, V, E> {
    fn end(&mut self, result: Result<Arc<V>, E>) {
        self.failure = None;
        let mut values = self.shared.0.lock();
        match &result {
            Ok(value) => values.insert(self.key, SharedValue::Made(Arc::downgrade(value))),
            Err(_) => values.remove(&self.key),
        };
        drop(values);
        *self.making.result.lock() = Some(result);
        self.making.ended.notify_all();
    }
}

impl<K: Ord + Copy, V, E: Clone> Drop for EndGuard<'_, K, V, E> {
    fn drop(&mut self) {
        if let Some(failure) = self.failure.take() {
            self.end(Err(failure));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::{
            Barrier,
            atomic::{AtomicU32, Ordering},
        },
        thread,
    };

    use super::*;

    const ABANDONED: fn() -> &'static str = || "abandoned";

    #[test]
    fn a_value_is_made_once_while_it_is_in_use() {
        let shared = Shared::default();
        let made = AtomicU32::new(0);
        let make = || Ok::<_, &str>(made.fetch_add(1, Ordering::Relaxed));
        let first = shared.get_or_try_insert_with(1, make, ABANDONED).unwrap();
        let second = shared.get_or_try_insert_with(1, make, ABANDONED).unwrap();
        assert!(Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&first, &shared.get(1).unwrap()));
        assert_eq!(*shared.get_or_try_insert_with(2, make, ABANDONED).unwrap(), 1);
        drop((first, second));
        assert!(shared.get(1).is_none());
        assert_eq!(*shared.get_or_try_insert_with(1, make, ABANDONED).unwrap(), 2);
        assert_eq!(shared.0.lock().len(), 1, "an entry without users takes no place");
    }

    #[test]
    fn concurrent_threads_share_one_making_and_its_failure() {
        let (shared, made, all) = (Shared::default(), AtomicU32::new(0), Barrier::new(8));
        let failures = thread::scope(|scope| {
            let ask = || {
                all.wait();
                shared.get_or_try_insert_with(
                    1,
                    || {
                        // Until every other thread has found this one at work.
                        while shared.0.lock().values().all(|slot| waiting(slot) < 7) {
                            thread::yield_now();
                        }
                        Err::<u32, _>(made.fetch_add(1, Ordering::Relaxed))
                    },
                    || 99,
                )
            };
            let asking: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            asking.into_iter().map(|thread| thread.join().unwrap().unwrap_err()).collect::<Vec<_>>()
        });
        assert_eq!(failures, [0; 8]);
        assert!(shared.0.lock().is_empty(), "a failure is not kept");
    }

    fn waiting(slot: &SharedValue<u32, u32>) -> usize {
        match slot {
            // Held by the slot and the maker too.
            SharedValue::Making(making) => Arc::strong_count(making) - 2,
            SharedValue::Made(_) => 0,
        }
    }

    #[test]
    fn a_panic_of_the_maker_leaves_no_entry() {
        let shared = Shared::default();
        let panics = || shared.get_or_try_insert_with(1, || panic!("as a test"), ABANDONED);
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(shared.get_or_try_insert_with(1, || Ok(7), ABANDONED).as_deref(), Ok(&7));
    }
}
