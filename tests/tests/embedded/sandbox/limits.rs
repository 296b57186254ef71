//! Each limit, obeyed and violated, with the exact kind of failure.

use std::time::Duration;

use podium_engine::ports::{FailureKind, LogLevel, Outcome, Reconcile, RunReport, Staged};
use podium_runtime::{Engine, EngineOptions};
use podium_tests::{modules::Module, sandbox::*};
use podium_vocabulary::LimitClass;

#[tokio::test]
async fn fuel_cuts_a_spinning_guest_at_the_same_instruction() {
    let engine = engine();
    let plugin = load(&engine, &spec("spin")).unwrap();
    for _ in 0..2 {
        let (report, _) = run_in(&plugin, request(), FakeWorld::default()).await;
        assert_eq!(report.usage.fuel, 100_000_000, "20 ms at 5,000,000 a millisecond");
        let failure = failed(report, FailureKind::Cpu);
        let limit = "spec.limits.cpuMillis (20) is used up; raise it, or do less in a run";
        let limit = format!("{limit}; 20 ms are 100000000 units of fuel");
        assert!(failure.message.contains(&limit), "{}", failure.message);
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_tick_fuel_alone_cuts_and_no_deadline_fires_falsely() {
    let engine = Engine::new(EngineOptions { concurrent_runs: 1, tick: None, ..EngineOptions::default() }).unwrap();
    let plugin = load(&engine, &spec("spin")).unwrap();
    let (report, _) = run_in(&plugin, request(), FakeWorld::default()).await;
    assert_eq!(
        (report.usage.fuel, report.usage.wall),
        (100_000_000, Duration::ZERO),
        "a simulation's clock stood still"
    );
    failed(report, FailureKind::Cpu);
}

#[tokio::test]
async fn a_spinning_guest_yields_so_that_its_deadline_can_fire() {
    let mut spec = spec("spin");
    spec.limits.cpu = Duration::from_secs(3_600);
    spec.limits.wall = Duration::from_millis(200);
    let (report, _) = run(&spec).await;
    let failure = failed(report, FailureKind::Deadline);
    assert!(failure.message.contains("200ms"), "{}", failure.message);
}

#[tokio::test]
async fn time_that_fuel_does_not_see_is_measured_and_cut() {
    let mut flood = spec("flood");
    flood.limits.host_calls = u32::MAX;
    flood.limits.cpu = Duration::from_millis(2);
    let engine = measuring_engine();
    let plugin = load(&engine, &flood).unwrap();
    let mut world = FakeWorld::default();
    world.reads_compute(Duration::from_millis(2));
    let (report, _) = run_in(&plugin, request(), world).await;
    assert!(report.usage.fuel < 1_000_000, "nine tenths of its fuel are left: {}", report.usage.fuel);
    let failure = failed(report, FailureKind::Cpu);
    assert!(failure.message.contains("of processor time, and is cut at 3.5ms"), "{}", failure.message);
}

#[tokio::test]
async fn a_guest_that_spins_while_arguments_are_copied_in_is_cut() {
    let (report, _) = run(&spec("spin-in-realloc")).await;
    failed(report, FailureKind::Cpu);
}

#[tokio::test]
async fn a_guest_is_cut_at_its_limit_of_memory() {
    let mut hog = spec("hog");
    hog.limits.memory_bytes = 4 << 20;
    let (report, _) = run(&hog).await;
    let failure = failed(report, FailureKind::Memory);
    assert!(failure.message.contains("4194304"), "{}", failure.message);

    let (report, _) = run(&spec("poison")).await;
    assert_eq!(report.result, Ok(Outcome::Settled));
}

#[tokio::test]
async fn tables_may_grow_up_to_the_limit_of_the_class_and_no_further() {
    let engine = engine();
    let grow = |elements: u32| {
        let reconcile = format!("(drop (table.grow $table (ref.null func) (i32.const {elements})))");
        Module { fields: "(table $table 0 funcref)", reconcile: &reconcile, ..Module::default() }.component().unwrap()
    };
    let run_of = async |elements: u32, class: LimitClass| {
        let mut spec = spec("module");
        spec.limits.class = class;
        let plugin = engine.compile(&spec, &grow(elements)).unwrap();
        run_in(&plugin, request(), FakeWorld::default()).await.0
    };
    assert_eq!(run_of(20_000, LimitClass::Native).await.result, Ok(Outcome::Settled));
    let failure = failed(run_of(20_001, LimitClass::Native).await, FailureKind::Memory);
    assert!(failure.message.starts_with("asked for 20001 table elements, may have 20000"), "{}", failure.message);
    assert_eq!(run_of(20_001, LimitClass::Interpreter).await.result, Ok(Outcome::Settled));
}

#[tokio::test]
async fn a_plugin_that_applies_objects_may_pass_more_up_to_a_bound() {
    let engine = engine();
    let imports = r#"(import "podium:reconcile/log@0.1.0" "write" (func $log (param i32 i32 i32 i32 i32)))"#;
    let run_of = async |bytes: u32, objects: bool| {
        let reconcile =
            format!("(call $log (i32.const 1) (i32.const 65536) (i32.const {bytes}) (i32.const 0) (i32.const 0))");
        let module = Module { pages: 20, imports, reconcile: &reconcile, ..Module::default() };
        let mut spec = spec("module");
        if objects {
            spec.grants.write.objects = everything().write.objects;
        }
        let plugin = engine.compile(&spec, &module.component().unwrap()).unwrap();
        run_in(&plugin, request(), FakeWorld::default()).await.0
    };
    for (most, objects) in [(256 << 10, false), (1_088 << 10, true)] {
        let report = run_of(most, objects).await;
        assert_eq!((report.result, report.usage.host_calls), (Ok(Outcome::Settled), 1), "{most}");
        let report = run_of(most + 1, objects).await;
        assert_eq!(report.usage.host_calls, 0);
        let failure = failed(report, FailureKind::Trap);
        assert!(failure.message.starts_with(&format!("passed more than {most} bytes")), "{}", failure.message);
    }
}

#[tokio::test]
async fn a_guest_that_recurses_traps_and_the_host_lives() {
    // Its frames are either in its own memory or on the host's stack, as its compiler saw fit.
    for (config, text) in [("\"own\"", "out of bounds memory access"), ("\"host\"", "call stack exhausted")] {
        let mut spec = spec("recurse");
        spec.config = config.into();
        let (report, _) = run(&spec).await;
        let failure = failed(report, FailureKind::Trap);
        assert!(failure.message.contains(text) && failure.message.contains("deeper"), "{}", failure.message);
    }
}

#[tokio::test]
async fn a_panic_says_its_text_and_where_and_sends_nothing() {
    let (report, _) = run(&spec("panics")).await;
    let failure = failed(report, FailureKind::Trap);
    assert!(failure.message.contains("no idea what to do with cart-0"), "{}", failure.message);
    assert!(failure.message.contains("here_it_goes_wrong"), "{}", failure.message);
    assert!(failure.message.contains("panics/src/lib.rs:20:5)"), "{}", failure.message);
    assert!(failure.message.len() < 4_096, "bounded");
}

#[tokio::test]
async fn a_panic_of_a_missing_part_of_std_says_what_to_use() {
    let mut spec = spec("panics");
    spec.config = "\"clock\"".into();
    let (report, _) = run(&spec).await;
    let message = failed(report, FailureKind::Trap).message;
    for part in ["time not implemented", "use request.now()", "panics::the_time"] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[tokio::test]
async fn host_calls_beyond_the_budget_are_refused_and_end_the_run() {
    let mut flood = spec("flood");
    flood.limits.host_calls = 100;
    // Two hundred calls of an unoptimised build take about the 20 ms of the default.
    flood.limits.cpu = Duration::from_secs(1);
    let (report, _) = run(&flood).await;
    assert_eq!(report.usage.host_calls, 101);
    let message = failed(report, FailureKind::Terminal).message;
    let reason = "spec.limits.hostCalls (100) is used up; raise it, or do less in a run";
    assert_eq!(message, format!("refused after 100 calls; {reason}"));

    flood.config = "\"forever\"".into();
    let (report, _) = run(&flood).await;
    assert_eq!(report.usage.host_calls, 201, "as many again are refused");
    let failure = failed(report, FailureKind::Trap);
    assert!(failure.message.contains("made more than 100 host calls, and continued"), "{}", failure.message);
}

#[tokio::test]
async fn the_log_ends_at_its_budget_says_so_and_cannot_be_forged() {
    let (report, notes) = run(&spec("chatter")).await;
    assert_eq!(report.result, Ok(Outcome::Settled));
    let (_, message, fields) = &notes.log[0];
    assert_eq!(message, "first\\nlevel=error forged");
    assert_eq!(fields[0].0, "k\\u001b[2J");
    let logged: usize = notes.log.iter().map(|(_, message, _)| message.len()).sum();
    assert!(logged <= (16 << 10) + 100, "{logged} bytes");
    assert_eq!(notes.log.len(), 4, "the forged line, a complete and a shortened one, and the note");
    let (level, message, fields) = notes.log.last().unwrap();
    assert_eq!((*level, message.as_str()), (LogLevel::Warn, "the run's log budget was used up"));
    // 30 bytes of the first line and 10 lines of 10,000, each line with 128 bytes of its own, less 16 KiB.
    assert_eq!(fields[0], ("dropped_bytes".to_owned(), (30 + 100_000 + 11 * 128 - (16 << 10)).to_string()));
}

#[tokio::test]
async fn lines_without_text_use_the_log_budget_up_as_well() {
    let (report, notes) = run(&probe(&["log-empty 100"])).await;
    assert_eq!(report.result, Ok(Outcome::Settled));
    assert!(notes.log.len() <= 16 << 10 >> 7, "{} lines", notes.log.len());
    let mut small = probe(&["log-empty 100"]);
    small.limits.log_bytes = 1_000;
    let (_, notes) = run(&small).await;
    assert_eq!(notes.log.len(), 8, "seven lines of 128 bytes, and the note about dropped bytes");
}

#[tokio::test]
async fn lines_refused_as_host_calls_are_counted_as_dropped() {
    let mut probe = probe(&["log-empty 50"]);
    probe.limits.host_calls = 30;
    let (report, notes) = run(&probe).await;
    // Fifty calls, and one for the line with the result: "done" is 4 bytes.
    assert_eq!(report.usage.host_calls, 51);
    let (_, message, fields) = notes.log.last().unwrap();
    assert_eq!(message, "the run's log budget was used up");
    assert_eq!(fields[0], ("dropped_bytes".to_owned(), (21 * 128 + 4).to_string()));
}

#[tokio::test]
async fn a_wasi_guests_calls_count_as_host_calls() {
    for config in ["\"read the clock for ever\"", "\"print for ever\""] {
        let mut wasi = spec("wasi");
        wasi.config = config.into();
        wasi.limits.cpu = Duration::from_secs(2);
        let (report, _) = run(&wasi).await;
        assert_eq!(report.usage.host_calls, 1_001, "{config}");
        let failure = failed(report, FailureKind::Trap);
        assert!(failure.message.contains("made more than 1000 host calls"), "{}", failure.message);
    }
}

#[tokio::test]
async fn a_host_call_that_computes_long_counts_for_as_long_as_it_took() {
    let mut flood = spec("flood");
    flood.limits.cpu = Duration::from_millis(2);
    let engine = measuring_engine();
    let plugin = load(&engine, &flood).unwrap();
    let mut world = FakeWorld::default();
    world.reads_compute(Duration::from_millis(8));
    let (report, _) = run_in(&plugin, request(), world).await;
    assert_eq!(report.usage.host_calls, 1, "3.5 ms are over in the first call");
    failed(report, FailureKind::Cpu);
}

#[tokio::test]
async fn objects_to_apply_are_bounded_before_they_are_parsed() {
    let script = ["apply-bytes 1000000", "apply-bytes 1000000", "apply-bytes 1000000", "apply-values 10"];
    let mut probe = probe(&script);
    probe.limits.cpu = Duration::from_secs(1);
    let answers_of = answers(&probe).await;
    assert_eq!(answers_of, ["Ok(0)", "Ok(1)", "Err(CallError::OverBudget)", "Ok(2)"], "2 MiB in all");

    probe.config = serde_json::to_string("apply-values 30000\napply-values 15000\napply-values 15000").unwrap().into();
    let answers_of = answers(&probe).await;
    assert!(answers_of[0].contains("object: more than 20000 values"), "{}", answers_of[0]);
    assert_eq!(answers_of[1..], ["Ok(0)", "Err(CallError::OverBudget)"]);

    // Text that is no JSON costs a write too, so that parsing is never free.
    probe.config = serde_json::to_string("apply {\napply {\napply-values 1").unwrap().into();
    probe.limits.writes = 2;
    let answers_of = answers(&probe).await;
    assert!(answers_of[1].starts_with("Err(CallError::Invalid(\"object: EOF"), "{}", answers_of[1]);
    assert_eq!(answers_of[2], "Err(CallError::OverBudget)");
}

#[tokio::test]
async fn staged_text_of_every_kind_shares_one_bound() {
    let mut probe = probe(&["annotate-bytes 60000 40", "label guests.example/a 1"]);
    probe.limits.writes = 1_000;
    probe.limits.cpu = Duration::from_secs(1);
    let (report, notes) = run(&probe).await;
    assert_eq!(notes.lines()[0], "34 staged, then CallError::OverBudget", "2 MiB in all");
    assert_eq!(notes.lines()[1], "Ok(34)", "a small object still fits");
    assert_eq!(report.staged.writes.len(), 35);
}

#[tokio::test]
async fn searching_ends_at_a_budget_of_pods_looked_at() {
    let engine = engine();
    for (script, answered) in [(["count shop"; 4], "Ok(2)"), (["find shop 1"; 4], "Ok((")] {
        let mut probe = probe(&script);
        probe.limits.cpu = Duration::from_secs(1);
        let plugin = load(&engine, &probe).unwrap();
        let mut world = FakeWorld::default();
        world.each_pod_counts_as(50_000);
        let (_, notes) = run_in(&plugin, request(), world).await;
        assert!(notes.lines()[..2].iter().all(|line| line.starts_with(answered)), "{:?}", notes.lines());
        assert_eq!(notes.lines()[2..], ["Err(CallError::OverBudget)"; 2], "200,000 in all");
    }
}

/// On the simulation's clock, so that time passes only by waiting.
async fn commit_under_way(script: &[&str], takes: Duration, live: LiveReads) -> (RunReport<Staged>, Notes) {
    let engine = Engine::new(EngineOptions { concurrent_runs: 1, tick: None, ..EngineOptions::default() }).unwrap();
    let mut probe = probe(script);
    probe.limits.wall = Duration::from_secs(1);
    let plugin = load(&engine, &probe).unwrap();
    let mut world = FakeWorld::default();
    (world.commit_takes, world.live) = (takes, live);
    run_in(&plugin, request(), world).await
}

#[tokio::test(start_paused = true)]
async fn the_wall_limit_does_not_cut_a_commit_under_way() {
    let script = ["label guests.example/a 1", "commit", "label guests.example/b 2"];
    let (report, notes) = commit_under_way(&script, Duration::from_secs(7), LiveReads::Answer).await;
    assert_eq!(report.result, Ok(Outcome::Settled));
    assert_eq!(notes.committed, [0]);
    assert!(notes.lines()[1].contains("Applied"), "the guest gets the results: {:?}", notes.lines());
    assert_eq!(report.staged.writes.len(), 1, "and continued");
}

#[tokio::test(start_paused = true)]
async fn the_wall_limit_goes_on_behind_a_commit_with_what_was_left() {
    let script = ["label guests.example/a 1", "commit", "live shop cart-0"];
    let (report, notes) = commit_under_way(&script, Duration::from_secs(7), LiveReads::NeverAnswer).await;
    assert_eq!(notes.committed, [0]);
    assert_eq!(report.usage.wall.as_secs(), 8, "seven of sending, one of its own");
    failed(report, FailureKind::Deadline);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_has_been_sending_for_long_may_not_commit_again() {
    let script = ["label guests.example/a 1", "commit"].repeat(5);
    let (report, notes) = commit_under_way(&script, Duration::from_secs(10), LiveReads::Answer).await;
    assert_eq!(notes.committed, [0, 1, 2], "30 s in all");
    assert_eq!(notes.lines()[7], "Err(CallError::OverBudget)");
    assert_eq!(report.staged.writes.len(), 2, "staged writes are sent at the end");
}

#[tokio::test]
async fn writes_beyond_the_budget_are_refused_and_others_staged() {
    let mut probe = probe(&["label guests.example/a 1", "event Probed", "label guests.example/c 1"]);
    probe.limits.writes = 2;
    let (report, notes) = run(&probe).await;
    assert_eq!(notes.lines(), ["Ok(0)", "Ok(())", "Err(CallError::OverBudget)"]);
    assert_eq!((report.staged.writes.len(), report.staged.events.len()), (1, 1));
}

#[tokio::test]
async fn live_reads_have_a_budget_of_their_own() {
    let (_, notes) = run(&probe(&["live shop cart-0"; 11])).await;
    assert_eq!(notes.live, 10);
    assert_eq!(notes.lines()[10], "Err(CallError::OverBudget)");
    let shared = ["live shop cart-0", "read ConfigMap shop a"].repeat(6);
    let (_, notes) = run(&reader(&shared)).await;
    assert_eq!(notes.live, 10, "reads of objects have the same budget");
    assert_eq!(notes.lines()[10..], ["Err(CallError::OverBudget)"; 2]);
}

#[tokio::test]
async fn a_guest_that_waits_in_a_host_call_is_cut_at_its_deadline() {
    let mut probe = probe(&["label guests.example/a 1", "live shop cart-0"]);
    probe.limits.wall = Duration::from_millis(50);
    let engine = engine();
    let plugin = load(&engine, &probe).unwrap();
    let mut world = FakeWorld::default();
    world.live = LiveReads::NeverAnswer;
    let (report, _) = run_in(&plugin, request(), world).await;
    assert!(report.usage.wall >= Duration::from_millis(50));
    failed(report, FailureKind::Deadline);
}

#[tokio::test]
async fn a_component_or_memory_beyond_its_limit_is_refused_at_load() {
    let engine = engine();
    let mut large = spec("good");
    let error = engine.compile(&large, &vec![0; (8 << 20) + 1]).unwrap_err().to_string();
    assert!(error.starts_with("good.wasm: the component has 8388609 bytes, class native may have 8388608"), "{error}");
    let mut most = spec("good");
    most.limits.memory_bytes = podium_vocabulary::Limits::MOST_MEMORY_BYTES;
    assert!(
        load(&engine, &most).is_ok(),
        "the default engine permits the most memory that a configuration may request"
    );
    large.limits.class = LimitClass::Interpreter;
    assert!(engine.compile(&large, &vec![0; (8 << 20) + 1]).unwrap_err().to_string().contains("not a WebAssembly"));

    let mut small = spec("good");
    small.limits.memory_bytes = 1 << 20;
    let error = load(&engine, &small).unwrap_err().to_string();
    assert!(error.contains("limits.memoryMiB permits 1024 KiB"), "{error}");
    small.limits.memory_bytes = 1 << 40;
    let error = load(&engine, &small).unwrap_err().to_string();
    assert!(error.contains("this host permits at most 256"), "{error}");
}

#[tokio::test]
async fn a_panic_in_a_host_call_fails_only_the_run() {
    let engine = engine();
    let plugin = load(&engine, &probe(&["live shop cart-0"])).unwrap();
    let mut world = FakeWorld::default();
    world.live = LiveReads::Panic;
    let (report, _) = run_in(&plugin, request(), world).await;
    assert!(failed(report, FailureKind::Host).message.contains("the world fell over"));
    let again = plugin.reconcile(request(), Box::new(FakeWorld::default())).await;
    assert_eq!(again.result, Ok(Outcome::Settled));
}
