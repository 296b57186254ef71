//! What goes wrong on request: dropped watches, slow answers, a forgotten history.

use crate::core::Core;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// The state of the switches.
#[derive(Debug)]
pub(crate) struct Switches {
    disconnects: watch::Sender<u64>,
    gone: AtomicBool,
    delay: Mutex<Duration>,
}

impl Default for Switches {
    fn default() -> Self {
        Self { disconnects: watch::Sender::new(0), gone: AtomicBool::new(false), delay: Mutex::new(Duration::ZERO) }
    }
}

impl Switches {
    pub(crate) fn subscribe_disconnects(&self) -> watch::Receiver<u64> {
        self.disconnects.subscribe()
    }

    pub(crate) fn take_gone(&self) -> bool {
        self.gone.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn delay_now(&self) -> Duration {
        *self.delay.lock()
    }
}

/// Makes things go wrong.
#[derive(Clone, Debug)]
#[must_use]
pub struct Faults {
    pub(crate) core: Arc<Core>,
}

impl Faults {
    /// Cuts every open watch as a lost connection does: in the middle of its body, with an error.
    pub fn disconnect_watches(&self) {
        self.core.faults.disconnects.send_modify(|count| *count += 1);
    }

    /// Forgets the history: a watch or a page from a revision before now is answered with 410.
    pub fn compact(&self) {
        self.core.state.lock().store.compact();
    }

    /// Answers the next watch with 410, whatever revision it starts from.
    pub fn next_watch_gone(&self) {
        self.core.faults.gone.store(true, Ordering::Release);
    }

    /// Holds back every answer and every lot of watch events by this long; zero ends it.
    pub fn delay(&self, delay: Duration) {
        *self.core.faults.delay.lock() = delay;
    }
}
