//! Notices a loop that events wait for and that completes no step. Only a restart helps then.
//!
//! No loop waits for a disk or the API server. Tasks of plugins do, and one that hangs is a condition of its plugin.
//! The time is counted in ticks of the watchdog itself. A process that is stopped, or is suspended with its machine,
//! has none meanwhile, and the late one counts as one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use podium_lease::Part;
use tokio::{sync::mpsc, time::sleep};

const TICK: Duration = Duration::from_secs(1);
/// Ticks without a step until the host is not ready.
const UNREADY: u64 = 30;
/// Ticks without a step until the host should be restarted.
const DEAD: u64 = 120;

/// The number of steps that a loop has completed.
#[derive(Debug, Clone, Default)]
pub(super) struct Steps(pub(super) Arc<AtomicU64>);

impl Steps {
    /// Records that a step was completed.
    pub(super) fn completed(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// A loop that is watched.
pub(super) struct Watched {
    part: Part,
    /// The reason when the loop stands still; a duration follows.
    what: &'static str,
    steps: Steps,
    waits: Box<dyn Fn() -> bool + Send + Sync>,
    /// The steps at the latest tick.
    seen: u64,
    /// The ticks in a row in which events waited and no step was completed.
    still: u64,
}

impl Watched {
    /// `waits` returns whether events wait for the loop, and is called once for each tick.
    pub(super) fn new(
        part: Part,
        what: &'static str,
        steps: Steps,
        waits: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { part, what, steps, waits: Box::new(waits), seen: 0, still: 0 }
    }
}

/// Returns a function that returns whether messages wait in a channel. It does not keep the channel open.
pub(super) fn is_waiting<T: Send + 'static>(sender: &mpsc::Sender<T>) -> impl Fn() -> bool + Send + Sync + use<T> {
    let sender = sender.downgrade();
    move || sender.upgrade().is_some_and(|sender| sender.capacity() < sender.max_capacity())
}

/// Watches loops.
#[derive(Default)]
pub(super) struct Watchdog(Mutex<Vec<Watched>>);

impl Watchdog {
    pub(super) fn watch(&self, watched: Watched) {
        self.0.lock().push(watched);
    }

    /// Never returns.
    pub(super) async fn run(self: Arc<Self>) -> anyhow::Result<()> {
        loop {
            sleep(TICK).await;
            self.tick();
        }
    }

    pub(super) fn tick(&self) {
        for Watched { what, steps, waits, seen, still, .. } in &mut *self.0.lock() {
            let completed = steps.0.load(Relaxed);
            let stands = waits() && completed == *seen;
            (*seen, *still) = (completed, if stands { *still + 1 } else { 0 });
            if *still == UNREADY {
                tracing::error!("{what} for {UNREADY} s; the host is not ready, and is restarted if this goes on");
            }
        }
    }

    /// Returns why a part has completed no step since the tick before, although events wait for it.
    pub(super) fn still(&self, part: Part) -> Option<String> {
        self.still_for(1, |watched| watched.part == part)
    }

    /// Returns why the host is not ready.
    pub(super) fn unready(&self) -> Option<String> {
        self.still_for(UNREADY, |_| true)
    }

    /// Returns why the host should be restarted.
    pub(super) fn dead(&self) -> Option<String> {
        self.still_for(DEAD, |_| true)
    }

    fn still_for(&self, ticks: u64, is_meant: impl Fn(&Watched) -> bool) -> Option<String> {
        let all = self.0.lock();
        let still = all.iter().find(|watched| watched.still >= ticks && is_meant(watched))?;
        Some(format!("{} for {} s", still.what, still.still))
    }
}

#[cfg(test)]
mod tests;
