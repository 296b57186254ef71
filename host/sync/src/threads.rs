//! The cells, locks and signals of an ordinary build.

use std::sync::Arc;
pub use std::sync::Weak;

pub use arc_swap::ArcSwap;
pub use parking_lot::Mutex;
pub use tokio::sync::{Notify, watch};

/// Returns a weak reference.
pub fn downgrade<T>(of: &Arc<T>) -> Weak<T> {
    Arc::downgrade(of)
}
