//! Waiting that ends when nothing moves any more, and not when a busy machine is slow.

use std::time::Duration;

use tokio::time::Instant;

/// How long nothing may move. A pause of seconds is a machine that compiles something else.
const PATIENCE: Duration = Duration::from_secs(60);

/// Watches a state for progress.
pub(super) struct Patience<T> {
    state: Option<T>,
    since: Instant,
}

impl<T: PartialEq> Patience<T> {
    pub(super) fn new() -> Self {
        Self { state: None, since: Instant::now() }
    }

    /// Whether the state is worth waiting for: it changed within the last minute.
    pub(super) fn lasts(&mut self, state: T) -> bool {
        if self.state.as_ref() != Some(&state) {
            *self = Self { state: Some(state), since: Instant::now() };
        }
        self.since.elapsed() < PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn patience_ends_a_minute_after_the_last_change_however_long_the_whole_takes() {
        let mut patience = Patience::new();
        for left in (1..=10).rev() {
            assert!(patience.lasts(left));
            tokio::time::advance(PATIENCE - Duration::from_secs(1)).await;
            assert!(patience.lasts(left), "{left} left");
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!patience.lasts(1));
    }
}
