//! Values that are made once for equal keys, and live as long as they are used.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock, Weak},
};

use parking_lot::Mutex;

/// Values by key. No lock is held while a value is made; other callers for the same key wait for this value.
#[derive(Debug)]
pub(super) struct Shared<K, V, E>(Mutex<BTreeMap<K, Arc<Made<V, E>>>>);

/// Empty while it is made.
type Made<V, E> = OnceLock<Result<Weak<V>, E>>;

impl<K, V, E> Default for Shared<K, V, E> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord + Copy, V, E: Clone> Shared<K, V, E> {
    /// Returns the value of a key if it is used.
    pub(super) fn get(&self, key: K) -> Option<Arc<V>> {
        self.0.lock().get(&key)?.get()?.as_ref().ok()?.upgrade()
    }

    /// Returns the value of a key if it is used, and otherwise makes it. Blocks while another thread makes the value,
    /// and then has the same result. If that thread panics, this one makes it.
    pub(super) fn get_or_try_insert_with(&self, key: K, make: impl Fn() -> Result<V, E>) -> Result<Arc<V>, E> {
        loop {
            let made = {
                let mut values = self.0.lock();
                values.retain(|_, made| match made.get() {
                    Some(made) => made.as_ref().is_ok_and(is_used),
                    // If it is held here only, whoever made it panicked.
                    None => Arc::strong_count(made) > 1,
                });
                Arc::clone(values.entry(key).or_default())
            };
            let mut own = None;
            let result = made.get_or_init(|| {
                let value = own.insert(Arc::new(make()?));
                Ok(Arc::downgrade(value))
            });
            match result {
                Ok(value) => {
                    if let Some(value) = own.or_else(|| value.upgrade()) {
                        return Ok(value);
                    }
                }
                Err(error) => {
                    self.0.lock().retain(|_, other| !Arc::ptr_eq(other, &made));
                    return Err(error.clone());
                }
            }
        }
    }
}

fn is_used<V>(value: &Weak<V>) -> bool {
    value.strong_count() > 0
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

    #[test]
    fn a_value_is_made_once_while_it_is_in_use() {
        let shared = Shared::default();
        let made = AtomicU32::new(0);
        let make = || Ok::<_, &str>(made.fetch_add(1, Ordering::Relaxed));
        let first = shared.get_or_try_insert_with(1, make).unwrap();
        let second = shared.get_or_try_insert_with(1, make).unwrap();
        assert!(Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&first, &shared.get(1).unwrap()));
        assert_eq!(*shared.get_or_try_insert_with(2, make).unwrap(), 1);
        drop((first, second));
        assert!(shared.get(1).is_none());
        assert_eq!(*shared.get_or_try_insert_with(1, make).unwrap(), 2);
        assert_eq!(shared.0.lock().len(), 1, "an entry without users takes no place");
    }

    #[test]
    fn concurrent_threads_share_one_making_and_its_failure() {
        let shared = Shared::default();
        let made = AtomicU32::new(0);
        let all = Barrier::new(8);
        let failures = thread::scope(|scope| {
            let ask = || {
                all.wait();
                shared.get_or_try_insert_with(1, || {
                    // Until every other thread has found this one at work. The map has the value too.
                    while shared.0.lock().values().all(|made| Arc::strong_count(made) < 9) {
                        thread::yield_now();
                    }
                    Err::<u32, _>(made.fetch_add(1, Ordering::Relaxed))
                })
            };
            let asking: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            asking.into_iter().map(|thread| thread.join().unwrap().unwrap_err()).collect::<Vec<_>>()
        });
        assert_eq!(failures, [0; 8]);
        assert!(shared.0.lock().is_empty(), "a failure is not kept");
    }

    #[test]
    fn a_panic_of_the_maker_leaves_no_entry() {
        let shared = Shared::default();
        let panics = || shared.get_or_try_insert_with(1, || panic!("as a test"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(shared.get_or_try_insert_with(2, || Ok::<_, ()>(7)).as_deref(), Ok(&7));
        assert!(!shared.0.lock().contains_key(&1), "it goes with the next value");
        assert_eq!(shared.get_or_try_insert_with(1, || Ok::<_, ()>(7)).as_deref(), Ok(&7));
    }
}
