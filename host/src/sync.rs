//! Where threads meet: what cache, shape and queue share state through, and nothing else.
//!
//! The tests under `tests/schedules` compile these rooms as they are, with a checker's counterparts of these names in
//! this file's place, and try the orders in which threads can do their steps. So these rooms take them from here alone.

use std::sync::Arc;

pub(crate) use std::sync::Weak;

pub(crate) use arc_swap::ArcSwap;
pub(crate) use parking_lot::Mutex;
pub(crate) use tokio::sync::{Notify, watch};

pub(crate) fn downgrade<T>(of: &Arc<T>) -> Weak<T> {
    Arc::downgrade(of)
}
