//! Waits that end when the observed state stops changing, and not when a busy machine is slow.

use std::time::Duration;

use tokio::time::Instant;

/// How long the state may stay the same. A pause of seconds can be caused by a compiler on the same machine.
const STALL: Duration = Duration::from_secs(60);

/// The last observed state.
pub(super) struct Progress<T> {
    state: Option<T>,
    since: Instant,
}

impl<T: PartialEq> Progress<T> {
    pub(super) fn new() -> Self {
        Self { state: None, since: Instant::now() }
    }

    /// Records the present state. Returns true if a state changed within the last minute.
    pub(super) fn continues(&mut self, state: T) -> bool {
        if self.state.as_ref() != Some(&state) {
            *self = Self { state: Some(state), since: Instant::now() };
        }
        self.since.elapsed() < STALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waiting_ends_a_minute_after_the_last_change() {
        let mut progress = Progress::new();
        for left in (1..=10).rev() {
            assert!(progress.continues(left));
            tokio::time::advance(STALL - Duration::from_secs(1)).await;
            assert!(progress.continues(left), "{left} left");
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!progress.continues(1));
    }
}
