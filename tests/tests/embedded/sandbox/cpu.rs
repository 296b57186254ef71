//! The limit of processor time, against guests that make the host work: whatever a run does, it costs at most one and a
//! half times its limit. The cost is measured by the host, and by the thread's own clock.
//!
//! The host checks the time at each tick and after each host call, and one host call copies and does a bounded amount.
//! In a debug build such a step takes up to 10 ms, ten times as long as in a release build, and a busy machine delays
//! ticks by some milliseconds. So the limit is 100 ms in a debug build, and the default of 20 ms otherwise.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use podium_engine::ports::{FailureKind, Meter, Outcome, RunReport, Staged};
use podium_pods::{
    cache::{self, Snapshot},
    pod::PodEvent,
    testing,
};
use podium_runtime::{Engine, EngineOptions};
use podium_tests::{
    modules::{Module, StringEncoding},
    sandbox::*,
};
use podium_vocabulary::PluginSpec;

const LIMIT: Duration = Duration::from_millis(if cfg!(debug_assertions) { 100 } else { 20 });

const SPIN: &str = "(loop $spin (br $spin))";
const LOG: &str = r#"(import "podium:reconcile/log@0.1.0" "write" (func $log (param i32 i32 i32 i32 i32)))"#;
const COUNT: &str = r#"(import "podium:reconcile/pods@0.1.0" "count"
    (func $count (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))"#;
/// Fills memory from an address on with `count` texts: pointers to byte 65,536, and a length.
const TEXTS: &str = r#"(func $texts (param $at i32) (param $count i32) (param $length i32)
    (loop $next
        (i32.store (local.get $at) (i32.const 65536))
        (i32.store offset=4 (local.get $at) (local.get $length))
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br_if $next (local.get $count))))"#;

fn limited() -> PluginSpec {
    let mut spec = spec("module");
    spec.limits.cpu = LIMIT;
    spec.grants = everything();
    spec.grants.write.objects = Vec::new();
    spec
}

/// Runs the module on this thread, without other runs, and checks the cost: of three runs at least one is within the
/// bounds, because a virtual machine counts time that its host took away as the thread's.
fn run_module(
    name: &str,
    spec: &PluginSpec,
    module: &Module<'_>,
    snapshot: Option<&Arc<Snapshot>>,
) -> RunReport<Staged> {
    let engine = measuring_engine();
    let plugin = engine.compile(spec, &module.component().unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for _ in 0..3 {
        let mut world = FakeWorld::default();
        world.snapshot = snapshot.cloned();
        let before = thread_time();
        let (report, _) = runtime.block_on(run_in(&plugin, request(), world));
        let spent = thread_time() - before;
        let said = report.usage.cpu;
        eprintln!("{name}: {spent:?}, of which the host counted {said:?}; {:?}", report.result);
        assert!(said <= spent, "{name}: {said:?} of {spent:?}");
        if spent <= LIMIT * 3 / 2 && spent - said <= LIMIT / 10 {
            return report;
        }
    }
    panic!("{name}: more than the limit allows, or not counted, in each of three runs");
}

/// As [`run_module`]. The module must be cut for its processor time.
fn cut(name: &str, module: &Module<'_>) {
    let report = run_module(name, &limited(), module, None);
    let used = report.usage;
    failed(report, FailureKind::Cpu);
    let full = 5_000 * u64::try_from(LIMIT.as_micros()).unwrap();
    // A call whose arguments cost more than the rest of the fuel is not done.
    let rest = full - used.fuel;
    assert!(
        rest < 1_000_000 || used.cpu > LIMIT * 5 / 4,
        "{name}: neither its fuel nor its time was used up: {used:?}"
    );
}

#[test]
fn a_loop_of_one_instruction_is_cut_wherever_it_is() {
    let initialize = format!(r#"(func (export "_initialize") {SPIN})"#);
    let start = format!("(func $start {SPIN}) (start $start)");
    for (name, module) in [
        ("reconcile", Module { reconcile: SPIN, ..Module::default() }),
        ("start", Module { fields: &start, ..Module::default() }),
        ("_initialize", Module { fields: &initialize, ..Module::default() }),
        ("realloc", Module { realloc: SPIN, ..Module::default() }),
        ("post-return", Module { post_return: SPIN, ..Module::default() }),
    ] {
        cut(name, &module);
    }
}

#[test]
fn bulk_operations_are_cut() {
    let table = Module {
        fields: "(table $table 19000 funcref)",
        reconcile: "(loop $again
            (table.fill $table (i32.const 0) (ref.null func) (i32.const 19000))
            (br $again))",
        ..Module::default()
    };
    cut("table.fill", &table);
    let fill = Module {
        pages: 450,
        reconcile: "(loop $again
            (memory.fill (i32.const 8192) (i32.const 1) (i32.const 29360128))
            (br $again))",
        ..Module::default()
    };
    cut("memory.fill", &fill);
    let copy = Module {
        pages: 450,
        reconcile: "(loop $again
            (memory.copy (i32.const 14680064) (i32.const 8192) (i32.const 14680064))
            (br $again))",
        ..Module::default()
    };
    cut("memory.copy", &copy);
}

#[test]
fn a_call_that_passes_too_much_traps_before_it_is_copied() {
    let megabytes = "(loop $again
        (call $log (i32.const 1) (i32.const 65536) (i32.const 4000000) (i32.const 0) (i32.const 0))
        (br $again))";
    let fields = "(call $texts (i32.const 131072) (i32.const 160000) (i32.const 1))
        (loop $again
            (call $log (i32.const 1) (i32.const 65536) (i32.const 1) (i32.const 131072) (i32.const 80000))
            (br $again))";
    let values = format!(
        "(call $texts (i32.const 131072) (i32.const 100000) (i32.const 1)) {}",
        count_with("(i32.const 1)", "(i32.const 100000)")
    );
    let list = "(call $count
        (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
        (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
        (i32.const 65536) (i32.const 1400000) (i32.const 2048))";
    for (name, imports, reconcile) in [
        ("log.write of 4 MB", LOG, megabytes),
        ("log.write with 80,000 fields", LOG, fields),
        ("pods.count with 100,000 values", COUNT, &values),
        ("pods.count with 1,400,000 requirements", COUNT, list),
    ] {
        let module = Module { pages: 450, imports, fields: TEXTS, reconcile, ..Module::default() };
        let report = run_module(name, &limited(), &module, None);
        assert!(report.usage.host_calls == 0 && report.usage.cpu < LIMIT / 4, "{name}: {:?}", report.usage);
        let failure = failed(report, FailureKind::Trap);
        assert!(failure.message.contains("passed more than 262144 bytes"), "{name}: {}", failure.message);
    }
}

/// Calls `count` in a loop and forgets its answers. The requirements are at byte 8,192, and all have the values at byte
/// 131,072.
fn count_with(requirements: &str, values: &str) -> String {
    format!(
        "(local.set $at (i32.const 8192))
        (local.set $end (i32.add (i32.const 8192) (i32.mul {requirements} (i32.const 20))))
        (loop $next
            (i32.store (local.get $at) (i32.const 65536))
            (i32.store offset=4 (local.get $at) (i32.const 3))
            (i32.store8 offset=8 (local.get $at) (i32.const 3))
            (i32.store offset=12 (local.get $at) (i32.const 131072))
            (i32.store offset=16 (local.get $at) {values})
            (local.set $at (i32.add (local.get $at) (i32.const 20)))
            (br_if $next (i32.lt_u (local.get $at) (local.get $end))))
        (loop $again
            (global.set $heap (i32.const 4096))
            (call $count
                (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
                (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
                (i32.const 8192) {requirements} (i32.const 2048))
            (br $again))"
    )
}

#[test]
fn bytes_copied_by_refused_calls_count_towards_the_limit() {
    let line = "(loop $again
        (call $log (i32.const 1) (i32.const 65536) (i32.const 200000) (i32.const 0) (i32.const 0))
        (br $again))";
    let utf16 = "(loop $again
        (call $log (i32.const 1) (i32.const 65536) (i32.const 100000) (i32.const 0) (i32.const 0))
        (br $again))";
    let fields = "(call $texts (i32.const 131072) (i32.const 10000) (i32.const 1))
        (loop $again
            (call $log (i32.const 1) (i32.const 65536) (i32.const 1) (i32.const 131072) (i32.const 5000))
            (br $again))";
    let requeued = "(call $texts (i32.const 131072) (i32.const 10000) (i32.const 1))
        (local.set $end (i32.const 200))
        (loop $again
            (call $log (i32.const 1) (i32.const 65536) (i32.const 1) (i32.const 131072) (i32.const 5000))
            (local.set $end (i32.sub (local.get $end) (i32.const 1)))
            (br_if $again (local.get $end)))
        (i32.store (i32.const 1032) (i32.const 1))
        (i64.store (i32.const 1040) (i64.const 100))";
    let values = format!(
        "(call $texts (i32.const 131072) (i32.const 10000) (i32.const 1)) {}",
        count_with("(i32.const 1)", "(i32.const 10000)")
    );
    for (name, imports, reconcile, encoding) in [
        ("log.write of 200 KB", LOG, line, StringEncoding::UTF8),
        ("log.write of 200 KB of UTF-16", LOG, utf16, StringEncoding::UTF16),
        ("log.write with 5,000 fields", LOG, fields, StringEncoding::UTF8),
        ("log.write with 5,000 fields, 200 times", LOG, requeued, StringEncoding::UTF8),
        ("pods.count with 10,000 values", COUNT, &values, StringEncoding::UTF8),
    ] {
        cut(name, &Module { pages: 20, imports, fields: TEXTS, reconcile, encoding, ..Module::default() });
    }
}

/// Growing a memory calls into wasmtime while the host's call is under way, and so does a tick.
#[tokio::test(start_paused = true)]
async fn a_call_is_paid_for_while_the_guest_grows_its_memory() {
    let options = EngineOptions { concurrent_runs: 1, tick: None, ..EngineOptions::default() };
    let engine = Engine::new(options).unwrap();
    let pods = r#"(import "podium:reconcile/pods@0.1.0" "get" (func $get (param i32 i32 i32 i32 i32)))"#;
    let names = r#"(data (i32.const 65536) "shop") (data (i32.const 65600) "cart-0")"#;
    let get = "(call $get
        (i32.const 65536) (i32.const 4) (i32.const 65600) (i32.const 6) (i32.const 2048))
        (if (i32.eqz (i32.load8_u (i32.const 2052))) (then unreachable))";
    let mut fuel = Vec::new();
    for realloc in ["(drop (i32.const 0))", "(drop (memory.grow (i32.const 0)))"] {
        let module = Module { imports: pods, fields: names, realloc, reconcile: get, ..Module::default() };
        let plugin = engine.compile(&limited(), &module.component().unwrap()).unwrap();
        let (report, _) = run_in(&plugin, request(), FakeWorld::default()).await;
        assert_eq!((report.result, report.usage.host_calls), (Ok(Outcome::Settled), 1));
        fuel.push(report.usage.fuel);
    }
    assert!(fuel[1] >= fuel[0] && fuel[1] - fuel[0] < 100, "{fuel:?}");
}

/// Returns Pods whose label almost equals each of the values that the plugin compares it with.
fn many_pods() -> Arc<Snapshot> {
    let (mut writer, reader) = cache::new(7);
    let value = format!("{}w", "v".repeat(59));
    let pods = (1..=5_000).map(|at| testing::pod(&format!("cart-{at:05}"), &format!("u{at}"), at, &value));
    writer.apply(pods.map(|pod| PodEvent::applied(testing::cached(&pod))).collect()).publish();
    reader.snapshot()
}

#[test]
fn a_search_that_compares_much_is_refused_within_the_limit() {
    let texts = format!(r#"{TEXTS} (data (i32.const 65536) "app") (data (i32.const 65600) "{}")"#, "v".repeat(60));
    // The values are texts at 65,600.
    let search = format!(
        "(call $texts (i32.const 131072) (i32.const 64) (i32.const 60))
        (local.set $at (i32.const 131072))
        (loop $values
            (i32.store (local.get $at) (i32.const 65600))
            (local.set $at (i32.add (local.get $at) (i32.const 8)))
            (br_if $values (i32.lt_u (local.get $at) (i32.const 131584))))
        {}",
        count_with("(i32.const 32)", "(i32.const 64)")
    );
    let module = Module { pages: 4, imports: COUNT, fields: &texts, reconcile: &search, ..Module::default() };
    // Kept here, so that the run does not free the Pods when it ends.
    let pods = many_pods();
    let report = run_module("pods.count of 32 x 64", &limited(), &module, Some(&pods));
    assert!(report.usage.host_calls <= 2, "{:?}", report.usage);
    failed(report, FailureKind::Cpu);
}

/// Clocks that advance by this time with each reading.
struct Advancing {
    thread: Duration,
    time: Duration,
    readings: AtomicU32,
}

impl Meter for Advancing {
    fn thread_time(&self) -> Duration {
        self.thread * self.readings.fetch_add(1, Ordering::Relaxed)
    }
    fn time(&self) -> Duration {
        self.time * self.readings.fetch_add(1, Ordering::Relaxed)
    }
}

/// Runs `flood`, which calls the host a thousand times, with a limit of 2 ms.
async fn run_flood(thread: Duration, time: Duration) -> RunReport<Staged> {
    let meter = Arc::new(Advancing { thread, time, readings: AtomicU32::new(0) });
    let options =
        EngineOptions { concurrent_runs: 1, tick: Some(Duration::from_secs(3_600)), ..EngineOptions::default() };
    let engine = Engine::with_meter(options, meter).unwrap();
    let mut spec = spec("flood");
    spec.limits.cpu = Duration::from_millis(2);
    let plugin = load(&engine, &spec).unwrap();
    run_in(&plugin, request(), FakeWorld::default()).await.0
}

#[tokio::test]
async fn time_off_the_processor_does_not_count() {
    let report = run_flood(Duration::from_nanos(500), Duration::from_millis(1)).await;
    assert!(report.usage.cpu < Duration::from_millis(3), "{:?}", report.usage);
    assert!(failed(report, FailureKind::Terminal).message.starts_with("refused after 1000 calls; "));
}

#[tokio::test]
async fn a_run_beyond_its_processor_time_is_cut_after_a_host_call() {
    let report = run_flood(Duration::from_micros(100), Duration::from_micros(100)).await;
    // 2 ms, a quarter more and 1 ms: 35 readings, of which a call takes one, and three near the limit.
    assert!((15..=40).contains(&report.usage.host_calls), "{:?}", report.usage);
    assert!(report.usage.cpu > Duration::from_micros(3_500), "{:?}", report.usage);
    assert!(report.usage.fuel < 5_000_000, "most of its fuel is left: {:?}", report.usage);
    let failure = failed(report, FailureKind::Cpu);
    assert!(failure.message.starts_with("used 3.") && failure.message.contains("cut at 3.5ms"), "{}", failure.message);
}

#[tokio::test(start_paused = true)]
async fn a_simulation_ends_the_same_run_at_the_same_instruction() {
    let options = EngineOptions { concurrent_runs: 1, tick: None, ..EngineOptions::default() };
    let meter = Arc::new(Advancing { thread: LIMIT, time: LIMIT, readings: AtomicU32::new(0) });
    let engine = Engine::with_meter(options, meter.clone()).unwrap();
    let fields = "(call $texts (i32.const 131072) (i32.const 4000) (i32.const 1))
        (loop $again
            (call $log (i32.const 1) (i32.const 65536) (i32.const 1) (i32.const 131072) (i32.const 2000))
            (br $again))";
    let module = Module { pages: 20, imports: LOG, fields: TEXTS, reconcile: fields, ..Module::default() };
    let mut spec = limited();
    spec.limits.cpu = Duration::from_millis(20);
    let plugin = engine.compile(&spec, &module.component().unwrap()).unwrap();
    let mut ends = Vec::new();
    for _ in 0..2 {
        let (report, _) = run_in(&plugin, request(), FakeWorld::default()).await;
        ends.push(report.usage);
        failed(report, FailureKind::Cpu);
    }
    assert_eq!(meter.readings.load(Ordering::Relaxed), 0);
    assert_eq!(ends[0], ends[1]);
    assert_eq!((ends[0].fuel, ends[0].cpu), (100_000_000, Duration::from_millis(20)), "only prices count");
    // 6,000 allocations of 300 and 4,001 bytes of 2 a call.
    assert!((50..=60).contains(&ends[0].host_calls), "{:?}", ends[0]);
}

#[tokio::test]
async fn a_commit_is_limited_in_processor_time_but_not_in_waiting() {
    let mut probe = probe(&["label guests.example/a 1", "commit", "label guests.example/b 2"]);
    probe.limits.cpu = LIMIT;
    let engine = measuring_engine();
    let plugin = load(&engine, &probe).unwrap();
    let mut world = FakeWorld::default();
    world.commit_takes = LIMIT * 2;
    let (report, notes) = run_in(&plugin, request(), world).await;
    assert_eq!((report.result, notes.committed), (Ok(Outcome::Settled), vec![0]));
    let mut world = FakeWorld::default();
    world.commit_computes = LIMIT * 2;
    let (report, notes) = run_in(&plugin, request(), world).await;
    assert_eq!(notes.committed, [0], "sent writes stay sent");
    assert!(report.usage.cpu >= LIMIT * 2, "{:?}", report.usage.cpu);
    failed(report, FailureKind::Cpu);
}

/// The comparison of writes with such a Pod takes milliseconds each time.
#[tokio::test]
async fn a_run_pays_for_comparing_writes_before_anything_is_sent() {
    let options = EngineOptions { concurrent_runs: 1, tick: None, ..EngineOptions::default() };
    let engine = Engine::new(options).unwrap();
    let key = request().key;
    let with_labels = |count: usize| {
        let mut pod = testing::pod(&key.name, &key.uid, 7, "x");
        pod.header.namespace = key.namespace.to_string();
        pod.labels.extend((0..count).map(|label| (format!("l{label}"), String::new())));
        FakeWorld::with_pods(vec![testing::cached(&pod)])
    };
    let script = ["label guests.example/a 1", "commit"].repeat(20);
    let plugin = load(&engine, &probe(&script)).unwrap();
    let (report, notes) = run_in(&plugin, request(), with_labels(10)).await;
    assert_eq!((report.result, notes.committed.len()), (Ok(Outcome::Settled), 20));
    // 0.6 us a label, of 20 ms.
    for (labels, commits) in [(170_000, 0), (60_000, 2)] {
        let (report, notes) = run_in(&plugin, request(), with_labels(labels)).await;
        assert_eq!(notes.committed.len(), commits, "{labels} labels");
        failed(report, FailureKind::Cpu);
    }
    // Writes that are sent after the run are paid too.
    let plugin = load(&engine, &probe(&["label guests.example/a 1"])).unwrap();
    let [few, many] = [10, 60_000].map(|labels| run_in(&plugin, request(), with_labels(labels)));
    let (few, many) = (few.await.0.usage.fuel, many.await.0.usage.fuel);
    assert!(many - few >= 30_000_000, "{few} and {many}");
    failed(run_in(&plugin, request(), with_labels(170_000)).await.0, FailureKind::Cpu);
}

#[tokio::test(start_paused = true)]
async fn a_long_search_lets_other_tasks_run_and_is_paid_by_the_pod() {
    let options = EngineOptions { concurrent_runs: 1, tick: None, ..EngineOptions::default() };
    let engine = Engine::new(options).unwrap();
    // Pods without the label `x`, of which there are 5,000.
    let count = "(i32.store8 (i32.const 65536) (i32.const 120))
        (i32.store (i32.const 8192) (i32.const 65536))
        (i32.store (i32.const 8196) (i32.const 1))
        (i32.store8 (i32.const 8200) (i32.const 1))
        (call $count
            (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
            (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
            (i32.const 8192) (i32.const 1) (i32.const 2048))
        (if (i64.ne (i64.load (i32.const 2056)) (i64.const 5000)) (then unreachable))";
    let module = Module { imports: COUNT, reconcile: count, ..Module::default() };
    let plugin = engine.compile(&limited(), &module.component().unwrap()).unwrap();
    let mut world = FakeWorld::default();
    world.snapshot = Some(many_pods());
    let mut turns = 0;
    let others = async {
        loop {
            turns += 1;
            tokio::task::yield_now().await;
        }
    };
    let report = tokio::select! {
        biased;
        (report, _) = run_in(&plugin, request(), world) => report,
        () = others => unreachable!("it never ends"),
    };
    assert_eq!(report.result, Ok(Outcome::Settled));
    assert_eq!(turns, 3, "5,000 Pods in slices of 1,409");
    // A Pod 2,500, its labels 500, one label 500, and the look for it 50.
    assert!((5_000 * 3_550..5_000 * 3_600).contains(&report.usage.fuel), "{}", report.usage.fuel);
}
