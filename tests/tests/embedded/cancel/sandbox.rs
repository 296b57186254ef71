//! Runs of the engine, dropped after each number of polls. The engine has one sandbox, so one that is not released
//! stops the next run.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use podium_engine::{
    dispatch::State,
    ports::{LogLevel, Reconcile, RunReport, Staged, StateEntry, StateError, World},
};
use podium_pods::pod::{CachedPod, PodView};
use podium_runtime::{Engine, EngineOptions};
use podium_tests::{programs::Choices, sandbox::*};
use podium_vocabulary::{Refused, WriteReport, WriteResult};

use super::{Dropped, caller, drop_after, load, pending, program};

/// A world whose reads and writes wait for a random number of polls.
struct Slow {
    world: FakeWorld,
    state: State,
    waits: Mutex<Choices>,
    /// Held by nothing but the world.
    alive: Arc<()>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Slow {
    fn new(seed: u64) -> Self {
        let mut state = State::default();
        state.put("program", program().bytes(), None).unwrap();
        Self {
            world: FakeWorld::default(),
            state,
            waits: Mutex::new(Choices::new(seed)),
            alive: Arc::default(),
            lines: Arc::default(),
        }
    }

    fn waits(&self) -> u32 {
        u32::try_from(self.waits.lock().unwrap().below(4)).unwrap()
    }
}

impl World for Slow {
    fn is_revoked(&self) -> bool {
        false
    }
    fn view(&self) -> &dyn PodView {
        self.world.view()
    }
    fn live<'a>(
        &'a mut self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<CachedPod>>, Refused>> {
        let waits = self.waits();
        Box::pin(async move {
            pending(waits).await;
            self.world.live(namespace, name).await
        })
    }
    fn commit(&mut self, staged: Staged) -> BoxFuture<'_, Vec<WriteReport>> {
        let waits = self.waits();
        Box::pin(async move {
            pending(waits).await;
            let writes = staged.writes.iter().map(|write| write.get());
            let report = |id, description| WriteReport { id, description, result: WriteResult::Applied };
            writes.map(|write| report(write.id, write.action.describe())).collect()
        })
    }
    fn state_get(&mut self, key: &str) -> Option<StateEntry> {
        self.state.get(key)
    }
    fn state_put(&mut self, key: &str, value: Vec<u8>, expected: Option<u64>) -> Result<u64, StateError> {
        self.state.put(key, value, expected)
    }
    fn state_remove(&mut self, key: &str, expected: Option<u64>) -> Result<(), StateError> {
        self.state.remove(key, expected)
    }
    fn log(&mut self, level: LogLevel, message: &str, fields: &[(String, String)]) {
        self.lines.lock().unwrap().push(format!("{level:?} {message} {fields:?}"));
    }
}

fn one_sandbox(tick: Option<std::time::Duration>) -> Arc<Engine> {
    Engine::new(EngineOptions { concurrent_runs: 1, tick, ..EngineOptions::default() }).unwrap()
}

/// The outputs and the cost of a run.
fn shown(report: &RunReport<Staged>, lines: &Mutex<Vec<String>>) -> String {
    let staged: Vec<_> = report.staged.writes.iter().map(|write| write.get().action.describe()).collect();
    let usage = report.usage;
    format!("{:?} {staged:?} {} {} {:?}", report.result, usage.fuel, usage.host_calls, lines.lock().unwrap())
}

/// More polls than any run takes.
const MAX_POLLS: u32 = 1_000;

#[tokio::test(start_paused = true)]
async fn a_run_dropped_at_any_await_point_leaves_nothing_behind() {
    let engine = one_sandbox(None);
    let plugin = load(&engine, &caller());
    let mut choices = Choices::new(1);
    let mut dropped = Dropped::new("runs of the engine", 1_000, 2);
    let (mut expected, mut longest) = (None, 0);
    while !dropped.is_enough() {
        let seed = choices.number();
        for polls in 0.. {
            let world = Slow::new(seed);
            let (alive, lines) = (Arc::clone(&world.alive), Arc::clone(&world.lines));
            let report = drop_after(polls, plugin.reconcile(request(), Box::new(world)));
            assert_eq!(Arc::strong_count(&alive), 1, "seed {seed}: the world is alive after {polls} polls");
            if let Some(report) = report {
                // The same outputs and the same cost, however often the run was dropped before, and at any speed.
                let shown = shown(&report, &lines);
                assert_eq!(*expected.get_or_insert(shown.clone()), shown, "seed {seed}");
                longest = longest.max(polls);
                break;
            }
            assert!(polls < MAX_POLLS, "seed {seed}: the run waits for a sandbox");
            dropped.add();
        }
    }
    assert!(expected.unwrap().contains("Ok(Settled)"), "the whole program ran");
    assert!(longest > 8, "only {longest} await points");
}

#[tokio::test]
async fn a_run_dropped_while_its_guest_computes_leaves_nothing_behind() {
    let engine = one_sandbox(Some(std::time::Duration::from_millis(1)));
    let mut spin = spec("spin");
    spin.limits.cpu = std::time::Duration::from_secs(3_600);
    let spin = podium_tests::sandbox::load(&engine, &spin).unwrap();
    let mut dropped = Dropped::new("runs that compute", 100, 10);
    while !dropped.is_enough() {
        let world = FakeWorld::default();
        let notes = Arc::clone(&world.notes);
        // Each poll ends at a tick, somewhere in the guest.
        let polls = 1 + u32::try_from(dropped.runs % 3).unwrap();
        assert!(drop_after(polls, spin.reconcile(request(), Box::new(world))).is_none());
        assert_eq!(Arc::strong_count(&notes), 1);
        dropped.add();
    }
    let plugin = load(&engine, &caller());
    let report = plugin.reconcile(request(), Box::new(Slow::new(1))).await;
    assert!(report.result.is_ok(), "{:?}", report.result);
}

#[tokio::test(start_paused = true)]
async fn runs_that_wait_for_a_sandbox_can_be_dropped() {
    let engine = one_sandbox(None);
    let plugin = load(&engine, &caller());
    for polls in 0..12 {
        let first = plugin.reconcile(request(), Box::new(Slow::new(3)));
        let mut first = std::pin::pin!(first);
        let waiting = plugin.reconcile(request(), Box::new(Slow::new(4)));
        let mut waiting = Box::pin(waiting);
        for _ in 0..=polls {
            if futures::poll!(&mut first).is_ready() {
                break;
            }
            let _ = futures::poll!(&mut waiting);
        }
        drop(waiting);
    }
    let report = plugin.reconcile(request(), Box::new(Slow::new(5))).await;
    assert!(report.result.is_ok(), "{:?}", report.result);
}
