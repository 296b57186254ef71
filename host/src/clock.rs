//! The time of day for everything below `app`: a start in epoch milliseconds and tokio's clock since.
//!
//! Under paused time the whole host stands still with it.

use tokio::time::Instant;

/// Cheap to copy; every copy shows the same time.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start_millis: u64,
    start: Instant,
}

impl Clock {
    /// A clock that shows `start_millis` now.
    #[must_use]
    pub fn starting_at(start_millis: u64) -> Self {
        Self { start_millis, start: Instant::now() }
    }

    /// Epoch milliseconds.
    #[must_use]
    pub fn now_millis(&self) -> u64 {
        // A host that runs for 584 million years may overflow.
        self.start_millis.saturating_add(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}
