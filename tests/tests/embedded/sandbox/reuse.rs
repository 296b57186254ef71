//! Instances that perform several runs of their plugin: what carries over, what does not, and when they are dropped.

use std::{sync::Arc, time::Duration};

use podium_engine::ports::{FailureKind, Outcome, Reconcile, Request};
use podium_runtime::{Engine, EngineOptions, Plugin};
use podium_tests::{modules::Module, sandbox::*};
use podium_vocabulary::{LimitClass, PluginSpec};

/// Counts its runs in a variable and returns the number as the time after which it wants to run again. The request's
/// attempt says what the run does besides.
const COUNTER: &str = "
    (global.set $runs (i64.add (global.get $runs) (i64.const 1)))
    (if (i32.eq (local.get 11) (i32.const 2)) (then unreachable))
    (i32.store8 (i32.const 1032) (i32.const 1))
    (i64.store (i32.const 1040) (global.get $runs))
    (if (i32.eq (local.get 11) (i32.const 3)) (then
        (i32.store8 (i32.const 1024) (i32.const 1))
        (i32.store8 (i32.const 1032) (i32.const 0))
        (i32.store (i32.const 1040) (i32.const 0))))
    (if (i32.eq (local.get 11) (i32.const 4)) (then (loop $spin (br $spin))))
    (if (i32.eq (local.get 11) (i32.const 5)) (then (drop (memory.grow (i32.const 64)))))
    (if (i32.eq (local.get 11) (i32.const 6)) (then
        (local.set $at (i32.const 3000000))
        (loop $again
            (local.set $at (i32.sub (local.get $at) (i32.const 1)))
            (br_if $again (local.get $at)))))";
const NORMAL: u32 = 1;
const TRAPS: u32 = 2;
const FAILS: u32 = 3;
const SPINS: u32 = 4;
const GROWS: u32 = 5;
const WORKS: u32 = 6;

fn counter(reuse: u32) -> PluginSpec {
    let mut spec = spec("counter");
    spec.limits.reuse = reuse;
    spec
}

fn compile(engine: &Engine, spec: &PluginSpec) -> Plugin {
    let fields = "(global $runs (mut i64) (i64.const 0))";
    let module = Module { fields, reconcile: COUNTER, ..Module::default() };
    engine.compile(spec, &module.component().unwrap()).unwrap()
}

fn attempt(attempt: u32) -> Request {
    Request { attempt, ..request() }
}

/// Performs a run, and returns how many runs its instance has performed.
async fn count(plugin: &Plugin) -> u128 {
    match run_in(plugin, attempt(NORMAL), FakeWorld::default()).await.0.result {
        Ok(Outcome::RequeueAfter(number)) => number.as_millis(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn state_carries_over_for_the_configured_number_of_runs() {
    let engine = engine();
    let plugin = compile(&engine, &counter(3));
    for expected in [1, 2, 3, 1, 2, 3, 1] {
        assert_eq!(count(&plugin).await, expected);
    }
    let fresh = compile(&engine, &counter(1));
    for _ in 0..3 {
        assert_eq!(count(&fresh).await, 1, "off by default");
    }
    assert_eq!(spec("counter").limits.reuse, 1);
}

#[tokio::test]
async fn an_instance_is_dropped_after_any_failure_or_cancellation() {
    let engine = engine();
    let plugin = compile(&engine, &counter(100));
    for (bad, kind) in [(TRAPS, FailureKind::Trap), (FAILS, FailureKind::Retry), (SPINS, FailureKind::Cpu)] {
        assert_eq!((count(&plugin).await, count(&plugin).await), (1, 2));
        let (report, _) = run_in(&plugin, attempt(bad), FakeWorld::default()).await;
        failed(report, kind);
        assert_eq!(count(&plugin).await, 1, "after {kind:?}");
        let (report, _) = run_in(&plugin, attempt(TRAPS), FakeWorld::default()).await;
        failed(report, FailureKind::Trap);
    }
    let mut slow = counter(100);
    (slow.limits.cpu, slow.limits.wall) = (Duration::from_secs(3_600), Duration::from_secs(3_600));
    let plugin = compile(&engine, &slow);
    assert_eq!((count(&plugin).await, count(&plugin).await), (1, 2));
    let mut spinning = plugin.reconcile(attempt(SPINS), Box::new(FakeWorld::default()));
    // It yields at each tick, so it is cancelled in the middle of the guest.
    assert!(futures::poll!(&mut spinning).is_pending());
    drop(spinning);
    assert_eq!(count(&plugin).await, 1);
}

#[tokio::test]
async fn an_instance_belongs_to_one_load_of_one_plugin() {
    let engine = engine();
    let (first, mut other) = (compile(&engine, &counter(100)), counter(100));
    other.id.namespace = Some("bank".into());
    let second = compile(&engine, &other);
    let again = compile(&engine, &counter(100));
    for expected in 1..=3 {
        assert_eq!(count(&first).await, expected);
        assert_eq!(count(&second).await, expected);
        assert_eq!(count(&again).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn every_run_of_an_instance_has_limits_of_its_own() {
    // Without a tick only fuel counts, on every machine the same.
    let engine = Engine::new(EngineOptions { concurrent_runs: 1, tick: None, ..EngineOptions::default() }).unwrap();
    let mut spec = counter(100);
    spec.limits.cpu = Duration::from_millis(4);
    let plugin = compile(&engine, &spec);
    let mut fuel = Vec::new();
    for _ in 0..4 {
        let (report, _) = run_in(&plugin, attempt(WORKS), FakeWorld::default()).await;
        assert!(report.result.is_ok(), "{:?}", report.result);
        fuel.push(report.usage.fuel);
    }
    assert!(fuel[0] > 12_000_000, "more than half of its 20,000,000: {fuel:?}");
    assert_eq!(fuel[1..], [fuel[1]; 3], "of each run as if it were the first: {fuel:?}");

    let mut probe =
        probe(&["log-empty 200", "label guests.example/a 1", "label guests.example/b 1", "live shop cart-0"]);
    (probe.limits.class, probe.limits.reuse) = (LimitClass::Native, 100);
    (probe.limits.writes, probe.limits.host_calls) = (1, 250);
    let plugin = load(&engine, &probe).unwrap();
    let mut transcripts = Vec::new();
    for _ in 0..12 {
        let (report, notes) = run_in(&plugin, request(), FakeWorld::default()).await;
        let staged: Vec<u32> = report.staged.writes.iter().map(|write| write.get().id).collect();
        assert_eq!((report.result, staged), (Ok(Outcome::Settled), vec![0]));
        transcripts.push((notes.log, report.usage.host_calls, notes.live));
    }
    let (log, host_calls, live) = &transcripts[0];
    assert_eq!((log.len(), *host_calls, *live), (129, 207, 1), "128 lines, and one about the dropped ones");
    assert!(transcripts.iter().all(|transcript| *transcript == transcripts[0]), "twelve live reads, ten for each run");
}

#[tokio::test]
async fn the_memory_that_an_instance_has_counts_in_its_next_run() {
    let engine = engine();
    let mut spec = counter(100);
    spec.limits.memory_bytes = 9 << 20;
    let plugin = compile(&engine, &spec);
    for expected in [1, 2] {
        let (report, _) = run_in(&plugin, attempt(GROWS), FakeWorld::default()).await;
        assert_eq!(report.result, Ok(Outcome::RequeueAfter(Duration::from_millis(expected))));
        assert_eq!(report.usage.memory_bytes as u64, expected * (4 << 20) + (128 << 10));
    }
    let (report, _) = run_in(&plugin, attempt(NORMAL), FakeWorld::default()).await;
    assert_eq!(report.usage.memory_bytes, (8 << 20) + (128 << 10), "although it asks for nothing");
    let (report, _) = run_in(&plugin, attempt(GROWS), FakeWorld::default()).await;
    failed(report, FailureKind::Memory);
    let (report, _) = run_in(&plugin, attempt(GROWS), FakeWorld::default()).await;
    assert_eq!(report.usage.memory_bytes, (4 << 20) + (128 << 10), "a new instance");
}

#[tokio::test]
async fn a_kept_instance_gives_its_place_to_a_run_that_needs_one() {
    let engine = Engine::new(EngineOptions { concurrent_runs: 1, ..EngineOptions::default() }).unwrap();
    let [first, second] = [0, 1].map(|_| compile(&engine, &counter(100)));
    for _ in 0..3 {
        for plugin in [&first, &second] {
            let run = tokio::time::timeout(Duration::from_secs(30), count(plugin));
            assert_eq!(run.await.expect("a run waits for an idle instance"), 1);
        }
    }
    assert_eq!((count(&second).await, count(&second).await), (2, 3));
}

#[tokio::test]
async fn kept_instances_are_bounded_and_hold_nothing_of_the_run() {
    let engine_with =
        |idle_bytes| Engine::new(EngineOptions { concurrent_runs: 4, idle_bytes, ..EngineOptions::default() });
    let none = engine_with(100_000).unwrap();
    let plugin = compile(&none, &counter(100));
    assert_eq!((count(&plugin).await, count(&plugin).await), (1, 1), "it has 131,072 bytes");
    let one = engine_with(200_000).unwrap();
    let [first, second] = [0, 1].map(|_| compile(&one, &counter(100)));
    assert_eq!((count(&first).await, count(&first).await), (1, 2));
    assert_eq!((count(&second).await, count(&second).await), (1, 2), "the older one is dropped");
    assert_eq!(count(&first).await, 1);

    let world = FakeWorld::default();
    let notes = Arc::clone(&world.notes);
    let report = first.reconcile(attempt(NORMAL), Box::new(world)).await;
    assert_eq!(report.result, Ok(Outcome::RequeueAfter(Duration::from_millis(2))));
    assert_eq!(Arc::strong_count(&notes), 1, "the world went with the run");
}

#[tokio::test]
async fn memory_of_a_run_lives_until_its_instance_is_dropped() {
    let engine = engine();
    let mut poison = spec("poison");
    poison.limits.reuse = 2;
    let plugin = load(&engine, &poison).unwrap();
    for _ in 0..2 {
        let (report, _) = run_in(&plugin, request(), FakeWorld::default()).await;
        assert_eq!(report.result, Ok(Outcome::Settled));
        let (report, _) = run_in(&plugin, request(), FakeWorld::default()).await;
        assert_eq!(failed(report, FailureKind::Terminal).message, "1 runs were here before");
    }
}

#[tokio::test]
async fn a_reused_wasi_guest_has_the_time_and_log_of_each_request() {
    let engine = engine();
    let mut wasi = spec("wasi");
    wasi.limits.reuse = 100;
    // Fifteen lines of some bytes and 128.
    wasi.limits.log_bytes = 1_000;
    let plugin = load(&engine, &wasi).unwrap();
    for run in 0..20 {
        let mut request = request();
        // Also back: a clock may be set.
        request.now_millis = NOW_MILLIS - run;
        let (report, notes) = run_in(&plugin, request, FakeWorld::default()).await;
        assert_eq!(report.result, Ok(Outcome::Settled), "run {run}");
        let lines = notes.lines();
        assert_eq!((lines[0], lines[1]), (&*format!("now {}", NOW_MILLIS - run), "slept 3600"), "run {run}");
        assert_eq!((lines.len(), lines[4]), (5, "no end of line"), "run {run}");
    }
}

#[tokio::test]
async fn a_json_guest_is_reused_too() {
    let engine = engine();
    let mut json = spec("json");
    json.limits.reuse = 3;
    json.limits.cpu = Duration::from_secs(1);
    let plugin = load(&engine, &json).unwrap();
    let mut fuel = Vec::new();
    for _ in 0..6 {
        let (report, notes) = run_in(&plugin, request(), FakeWorld::default()).await;
        assert_eq!(report.result, Ok(Outcome::Settled));
        assert_eq!(notes.lines()[2..], ["Ok(0)", "Err(CallError::NotGranted)"]);
        fuel.push(report.usage.fuel);
    }
    assert_eq!(fuel[..3], fuel[3..], "of an instance and of the one after it");
}
