//! Components and records on a disk that may be slow, or never answer.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use podium_engine::{intervals::Intervals, ports::Blocking};
use tokio::{
    sync::{Semaphore, oneshot},
    time::{Instant, timeout},
};

use crate::images::Store;

/// Calls under way at the same time. A disk that does not answer keeps as many threads, and leaves the others to the
/// rest of the host.
const CALLS: usize = 16;
/// After so long a call is reported.
const SLOW: Duration = Duration::from_secs(5);
/// After so long a load goes on without the disk.
pub(super) const GIVE_UP: Duration = Duration::from_secs(10);

/// The store, and the threads on which it may block.
#[derive(Clone)]
pub(in crate::app) struct Disk {
    store: Arc<Store>,
    blocking: Arc<dyn Blocking>,
    calls: Arc<Semaphore>,
    slow: Arc<Mutex<Intervals>>,
}

impl Disk {
    pub(in crate::app) fn new(store: Store, blocking: Arc<dyn Blocking>) -> Self {
        Self { store: Arc::new(store), blocking, calls: disk_turns(), slow: Arc::default() }
    }

    /// Calls the store, and waits until the call has ended. `None` if it panicked.
    pub(super) async fn call<T: Send + 'static>(&self, call: impl FnOnce(&Store) -> T + Send + 'static) -> Option<T> {
        let mut calling = Box::pin(async {
            let turn = self.calls.clone().acquire_owned().await.ok()?;
            let store = self.store.clone();
            let (sender, result) = oneshot::channel();
            let job = move || {
                let result = call(&store);
                drop(turn);
                // The caller may have given up.
                let _ = sender.send(result);
            };
            self.blocking.run(Box::new(job));
            result.await.ok()
        });
        if let Ok(result) = timeout(SLOW, &mut calling).await {
            return result;
        }
        let count = self.slow.lock().occurred(Instant::now());
        if let Some(count) = count {
            tracing::warn!(
                seconds = SLOW.as_secs(),
                count,
                "state directory does not respond; plugins are loaded without it"
            );
        }
        calling.await
    }
}

/// Returns the turns for calls of one disk.
pub(in crate::app) fn disk_turns() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(CALLS))
}

/// Calls the store for a load. `None` if the disk does not answer within [`GIVE_UP`], or the call panicked.
pub(super) async fn on_disk<T: Send + 'static>(
    disk: Disk,
    call: impl FnOnce(&Store) -> T + Send + 'static,
) -> Option<T> {
    timeout(GIVE_UP, disk.call(call)).await.ok()?
}
