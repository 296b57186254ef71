//! Components and records on a disk that may be slow, or never answer.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use podium_engine::{intervals::Intervals, ports::Blocking};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::{Instant, timeout},
};

use crate::images::Store;

/// Calls under way at the same time. A disk that does not answer keeps as many threads, and leaves the others to the
/// rest of the host.
const CALLS: usize = 16;
/// After so long a call is reported.
const SLOW: Duration = Duration::from_secs(5);
/// After so long a call is given up, and so is the wait for a turn in which no call has ended.
pub(super) const GIVE_UP: Duration = Duration::from_secs(10);

/// The store, and the threads on which it may block.
#[derive(Clone)]
pub(in crate::app) struct Disk {
    store: Arc<Store>,
    blocking: Arc<dyn Blocking>,
    calls: Arc<Semaphore>,
    ended: Arc<AtomicU64>,
    slow: Arc<Mutex<Intervals>>,
}

impl Disk {
    pub(in crate::app) fn new(store: Store, blocking: Arc<dyn Blocking>) -> Self {
        Self { store: Arc::new(store), blocking, calls: turns(), ended: Arc::default(), slow: Arc::default() }
    }

    /// Calls the store, and waits until the call has ended. `None` if it panicked.
    pub(super) async fn call<T: Send + 'static>(&self, call: impl FnOnce(&Store) -> T + Send + 'static) -> Option<T> {
        let turn = self.calls.clone().acquire_owned().await.ok()?;
        self.call_in(turn, call).await
    }

    /// Waits for a turn behind others, for as long as calls end.
    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        let mut turn = pin!(self.calls.clone().acquire_owned());
        loop {
            let before = self.ended.load(Relaxed);
            match timeout(GIVE_UP, &mut turn).await {
                Ok(turn) => return turn.ok(),
                Err(_) if self.ended.load(Relaxed) == before => return None,
                Err(_) => {}
            }
        }
    }

    async fn call_in<T: Send + 'static>(
        &self,
        turn: OwnedSemaphorePermit,
        call: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Option<T> {
        let store = self.store.clone();
        let ended = self.ended.clone();
        let (sender, mut result) = oneshot::channel();
        let job = move || {
            let result = call(&store);
            ended.fetch_add(1, Relaxed);
            drop(turn);
            // The caller may have given up.
            let _ = sender.send(result);
        };
        self.blocking.run(Box::new(job));
        if let Ok(result) = timeout(SLOW, &mut result).await {
            return result.ok();
        }
        let count = self.slow.lock().occurred(Instant::now());
        if let Some(count) = count {
            tracing::warn!(
                seconds = SLOW.as_secs(),
                count,
                "state directory does not respond; plugins are loaded without it"
            );
        }
        result.await.ok()
    }
}

/// The turns to read files, one at a time of each path: a file that does not answer keeps one thread, however often it
/// is read again.
pub(in crate::app) struct Files {
    pub(super) all: Arc<Semaphore>,
    paths: Mutex<BTreeMap<PathBuf, Arc<Semaphore>>>,
}

impl Files {
    pub(in crate::app) fn new() -> Self {
        Self { all: turns(), paths: Mutex::default() }
    }

    /// Waits for the turn to read a file.
    pub(super) async fn turn(&self, path: &Path) -> Option<[OwnedSemaphorePermit; 2]> {
        let of_path = {
            let mut paths = self.paths.lock();
            paths.retain(|_, turn| Arc::strong_count(turn) > 1);
            paths.entry(path.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
        };
        let of_path = of_path.acquire_owned().await.ok()?;
        Some([of_path, self.all.clone().acquire_owned().await.ok()?])
    }
}

fn turns() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(CALLS))
}

/// Calls the store for a load. `None` if the disk does not answer within [`GIVE_UP`] from the call's turn, or the call
/// panicked.
pub(super) async fn on_disk<T: Send + 'static>(
    disk: Disk,
    call: impl FnOnce(&Store) -> T + Send + 'static,
) -> Option<T> {
    let turn = disk.turn().await?;
    timeout(GIVE_UP, disk.call_in(turn, call)).await.ok()?
}
