//! The sandboxes of an engine: how many there may be, and those that wait for another run of their plugin.
//!
//! A plugin with `limits.reuse` above 1 keeps the instance of a run that succeeded for its next run. Such a sandbox
//! belongs to one load of one plugin. It is dropped when any run needs its place, so keeping instances never delays a
//! run.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use podium_engine::ports::{LogLevel, Staged, StateEntry, StateError, World};
use podium_pods::pod::{CachedPod, PodView, Slice};
use podium_vocabulary::{Cursor, PodQuery, Refused, Revision, WriteReport};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::{Store, component::Instance};

use super::run::Run;

/// A sandbox: its place, its store and the instance in it.
pub(super) struct Sandbox {
    pub(super) store: Store<Run>,
    /// `None` before the first run.
    pub(super) instance: Option<Instance>,
    /// Runs that began in it.
    pub(super) runs: u32,
    /// Returned when the sandbox is dropped.
    pub(super) _place: OwnedSemaphorePermit,
}

/// One load of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load(usize);

/// See the module.
pub(super) struct Sandboxes {
    /// One permit for each sandbox of the pool, so that a run waits for one instead of failing.
    places: Arc<Semaphore>,
    /// Runs that wait for a place: meanwhile no sandbox is kept.
    waiting: AtomicUsize,
    loads: AtomicUsize,
    idle: Mutex<Idle>,
}

/// Sandboxes without a run, oldest first.
struct Idle {
    sandboxes: VecDeque<(Load, Sandbox)>,
    /// Linear memory of all of them.
    bytes: usize,
    most_bytes: usize,
}

impl Sandboxes {
    pub(super) fn new(places: u32, most_bytes: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(places as usize)),
            waiting: AtomicUsize::new(0),
            loads: AtomicUsize::new(0),
            idle: Mutex::new(Idle { sandboxes: VecDeque::new(), bytes: 0, most_bytes }),
        }
    }

    /// Returns a load that no sandbox belongs to.
    pub(super) fn load(&self) -> Load {
        Load(self.loads.fetch_add(1, SeqCst))
    }

    /// Waits for a place for a new sandbox. If none is free, the oldest idle sandbox is dropped. `None` if the engine
    /// is shut down.
    pub(super) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Some(place);
        }
        // Counted before it looks: a run that ends now either finds it waiting, or its sandbox is found here.
        let _waiting = Waiting::new(&self.waiting);
        let oldest = self.idle.lock().oldest();
        drop(oldest);
        Arc::clone(&self.places).acquire_owned().await.ok()
    }

    /// Returns the sandbox that a load used last.
    pub(super) fn take(&self, load: Load) -> Option<Sandbox> {
        self.idle.lock().take(load)
    }

    /// Keeps a sandbox whose run has ended, or drops it if its place is needed. Older ones are dropped if all together
    /// have too much memory.
    pub(super) fn keep(&self, load: Load, mut sandbox: Sandbox) {
        sandbox.store.data_mut().world = Box::new(NoWorld);
        let mut dropped = Vec::new();
        let mut idle = self.idle.lock();
        let bytes = memory(&sandbox);
        if self.waiting.load(SeqCst) > 0 || bytes > idle.most_bytes {
            drop(idle);
            return;
        }
        while idle.bytes + bytes > idle.most_bytes {
            dropped.extend(idle.oldest());
        }
        idle.bytes += bytes;
        idle.sandboxes.push_back((load, sandbox));
    }

    /// Drops the sandboxes of a load.
    pub(super) fn forget(&self, load: Load) {
        let mut dropped = Vec::new();
        let mut idle = self.idle.lock();
        while let Some(sandbox) = idle.take(load) {
            dropped.push(sandbox);
        }
    }
}

impl Idle {
    fn oldest(&mut self) -> Option<Sandbox> {
        let (_, sandbox) = self.sandboxes.pop_front()?;
        self.bytes -= memory(&sandbox);
        Some(sandbox)
    }

    fn take(&mut self, load: Load) -> Option<Sandbox> {
        let at = self.sandboxes.iter().rposition(|(of, _)| *of == load)?;
        let (_, sandbox) = self.sandboxes.remove(at)?;
        self.bytes -= memory(&sandbox);
        Some(sandbox)
    }
}

fn memory(sandbox: &Sandbox) -> usize {
    sandbox.store.data().limiter.memory_bytes()
}

struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, SeqCst);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// The world of a sandbox without a run, in which no guest runs: the run's snapshot of the cache is released.
pub(super) struct NoWorld;

impl PodView for NoWorld {
    fn get(&self, _: &str, _: &str) -> Option<Arc<CachedPod>> {
        None
    }
    fn by_uid(&self, _: &str) -> Option<Arc<CachedPod>> {
        None
    }
    fn search(&self, _: &PodQuery, _: usize, _: u64, _: Option<&Cursor>) -> Slice {
        Slice::default()
    }
    fn known_count(&self, _: &PodQuery) -> Option<u64> {
        Some(0)
    }
    fn revision(&self) -> Revision {
        Revision(0)
    }
}

fn ended() -> Refused {
    Refused::Unavailable("the run has ended".to_owned())
}

impl World for NoWorld {
    fn is_revoked(&self) -> bool {
        true
    }
    fn view(&self) -> &dyn PodView {
        self
    }
    fn live<'a>(&'a mut self, _: &'a str, _: &'a str) -> BoxFuture<'a, Result<Option<Arc<CachedPod>>, Refused>> {
        Box::pin(async { Err(ended()) })
    }
    fn commit(&mut self, _: Staged) -> BoxFuture<'_, Vec<WriteReport>> {
        Box::pin(async { Vec::new() })
    }
    fn state_get(&mut self, _: &str) -> Option<StateEntry> {
        None
    }
    fn state_put(&mut self, _: &str, _: Vec<u8>, _: Option<u64>) -> Result<u64, StateError> {
        Err(ended().into())
    }
    fn state_remove(&mut self, _: &str, _: Option<u64>) -> Result<(), StateError> {
        Err(ended().into())
    }
    fn log(&mut self, _: LogLevel, _: &str, _: &[(String, String)]) {}
}

#[cfg(test)]
mod tests {
    use podium_pods::testing;

    use super::{super::run::PluginContext, *};

    fn sandbox(sandboxes: &Sandboxes) -> Sandbox {
        let context = PluginContext::new(&testing::plugin(None, "a"), Arc::default());
        let run = Run::new(Arc::new(context), Box::new(NoWorld), None, 0, 0);
        let store = Store::new(&wasmtime::Engine::default(), run);
        Sandbox { store, instance: None, runs: 1, _place: Arc::clone(&sandboxes.places).try_acquire_owned().unwrap() }
    }

    #[test]
    fn sandboxes_are_dropped_with_their_load_only() {
        let sandboxes = Sandboxes::new(4, 1 << 20);
        let [first, second] = [0, 1].map(|_| sandboxes.load());
        for load in [first, second, first] {
            sandboxes.keep(load, sandbox(&sandboxes));
        }
        assert_eq!(sandboxes.places.available_permits(), 1);
        sandboxes.forget(first);
        assert_eq!(sandboxes.places.available_permits(), 3);
        assert!(sandboxes.take(first).is_none() && sandboxes.take(second).is_some());
    }

    #[test]
    fn nothing_is_kept_while_a_run_waits_for_a_place() {
        let sandboxes = Sandboxes::new(1, 1 << 20);
        let load = sandboxes.load();
        let waiting = Waiting::new(&sandboxes.waiting);
        sandboxes.keep(load, sandbox(&sandboxes));
        assert!(sandboxes.take(load).is_none() && sandboxes.places.available_permits() == 1);
        drop(waiting);
        sandboxes.keep(load, sandbox(&sandboxes));
        assert!(sandboxes.take(load).is_some());
    }
}
