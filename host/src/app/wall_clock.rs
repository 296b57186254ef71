//! Keeps the host's clock in step with the system's. The dates of conditions and Events advance with the monotonic
//! clock, which does not follow when the system clock is set, and which stops while the machine is suspended.

use std::{sync::Arc, time::Duration};

use podium_engine::clock::Clock;

/// How often the system clock is read, and so how long dates are wrong after it was set.
const EVERY: Duration = Duration::from_secs(5);
/// The smallest change in milliseconds that is logged. NTP makes smaller ones all day.
const LOGGED_CHANGE: i64 = 2_000;

/// Returns epoch milliseconds.
pub type WallClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Sets the clock to the system's at each interval, until the future is dropped.
pub(super) async fn follow(clock: Clock, read: WallClock) -> anyhow::Result<()> {
    loop {
        tokio::time::sleep(EVERY).await;
        let changed_ms = clock.set(read());
        if changed_ms.abs() >= LOGGED_CHANGE {
            tracing::warn!(changed_ms, "system clock was set, or the machine was suspended; adjusting");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_changed_system_clock_is_followed_within_five_seconds() {
        let clock = Clock::starting_at(1_000_000);
        let system = Arc::new(AtomicU64::new(1_000_000));
        let read = system.clone();
        let follow = tokio::spawn(follow(clock.clone(), Arc::new(move || read.load(Relaxed))));
        for set in [1_700_000_000_000, 1_600_000_000_000, 1_600_000_600_000] {
            system.store(set, Relaxed);
            tokio::time::sleep(EVERY + Duration::from_millis(1)).await;
            let passed = clock.now_millis().checked_sub(set);
            assert!(passed.is_some_and(|passed| passed <= 5_001), "{passed:?}");
        }
        follow.abort();
    }
}
