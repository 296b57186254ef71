//! Each limit, obeyed and violated, with the exact kind of failure.

use std::time::Duration;

use podium_host::{
    model::{FailureKind, LimitClass, Outcome},
    runtime::{Engine, EngineOptions},
    seam::{LogLevel, Reconcile},
};

use podium_tests::sandbox::*;

#[tokio::test]
async fn a_guest_that_spins_is_cut_by_fuel_always_at_the_same_instruction() {
    let engine = engine();
    let plugin = load(&engine, &spec("spin")).unwrap();
    for _ in 0..2 {
        let (report, _) = run_in(&plugin, request(), FakeWorld::default()).await;
        assert_eq!(report.usage.fuel, 100_000_000, "20 ms at 5,000,000 a millisecond");
        let failure = failed(report, FailureKind::Cpu);
        assert!(failure.message.contains("processor time"), "{}", failure.message);
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
async fn time_that_fuel_does_not_see_is_cut_by_the_epoch() {
    let mut flood = spec("flood");
    flood.limits.host_calls = u32::MAX;
    flood.limits.cpu = Duration::from_millis(2);
    let engine = engine();
    let plugin = load(&engine, &flood).unwrap();
    let mut world = FakeWorld::default();
    world.slow_reads();
    let (report, _) = run_in(&plugin, request(), world).await;
    assert!(report.usage.fuel < 1_000_000, "nine tenths of its fuel are left: {}", report.usage.fuel);
    let failure = failed(report, FailureKind::Cpu);
    assert!(failure.message.contains("ticks of the epoch"), "{}", failure.message);
}

#[tokio::test]
async fn a_guest_that_spins_while_arguments_are_copied_in_is_cut() {
    let (report, _) = run(&spec("spin-in-realloc")).await;
    failed(report, FailureKind::Cpu);
}

#[tokio::test]
async fn a_guest_that_takes_memory_is_cut_at_its_limit_and_one_with_enough_is_not() {
    let mut hog = spec("hog");
    hog.limits.memory_bytes = 4 << 20;
    let (report, _) = run(&hog).await;
    let failure = failed(report, FailureKind::Memory);
    assert!(failure.message.contains("4194304"), "{}", failure.message);

    let (report, _) = run(&spec("poison")).await;
    assert_eq!(report.result, Ok(Outcome::Settled));
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
    assert!(failure.message.len() < 4_096, "bounded");
}

#[tokio::test]
async fn host_calls_beyond_the_budget_are_refused_and_refusals_are_no_way_to_live_on() {
    let mut flood = spec("flood");
    flood.limits.host_calls = 100;
    let (report, _) = run(&flood).await;
    assert_eq!(report.usage.host_calls, 101);
    assert_eq!(failed(report, FailureKind::Terminal).message, "refused after 100 calls");

    flood.config = "\"forever\"".into();
    let (report, _) = run(&flood).await;
    failed(report, FailureKind::Cpu);
}

#[tokio::test]
async fn the_log_ends_at_its_budget_says_so_and_cannot_be_forged() {
    let (report, notes) = run(&spec("chatter")).await;
    assert_eq!(report.result, Ok(Outcome::Settled));
    let (_, message, fields) = &notes.log[0];
    assert_eq!(message, "first\\nlevel=error forged");
    assert_eq!(fields[0].0, "k\\u{1b}[2J");
    let logged: usize = notes.log.iter().map(|(_, message, _)| message.len()).sum();
    assert!(logged <= (16 << 10) + 100, "{logged} bytes");
    let (level, message, fields) = notes.log.last().unwrap();
    assert_eq!((*level, message.as_str()), (LogLevel::Warn, "the run's log budget was used up"));
    // 30 bytes of the first line and 10 lines of 10,000, less 16 KiB.
    assert_eq!(fields[0], ("dropped_bytes".to_owned(), (30 + 100_000 - (16 << 10)).to_string()));
}

#[tokio::test]
async fn writes_beyond_the_budget_are_refused_and_those_within_stay_staged() {
    let mut probe = probe(&["label guests.example/a 1", "event Probed", "label guests.example/c 1"]);
    probe.limits.writes = 2;
    let (report, notes) = run(&probe).await;
    assert_eq!(notes.lines(), ["Ok(0)", "Ok(())", "Err(Refused::OverBudget)"]);
    assert_eq!((report.staged.writes.len(), report.staged.events.len()), (1, 1));
}

#[tokio::test]
async fn live_reads_have_a_budget_of_their_own() {
    let (_, notes) = run(&probe(&["live shop cart-0"; 11])).await;
    assert_eq!(notes.live, 10);
    assert_eq!(notes.lines()[10], "Err(Refused::OverBudget)");
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
async fn a_component_larger_than_its_class_or_with_a_larger_memory_than_its_limit_is_refused_at_load() {
    let engine = engine();
    let mut large = spec("good");
    let error = engine.compile(&large, &vec![0; (8 << 20) + 1]).unwrap_err().to_string();
    assert!(error.starts_with("good.wasm: the component has 8388609 bytes, class native may have 8388608"), "{error}");
    large.limits.class = LimitClass::Interpreter;
    assert!(engine.compile(&large, &vec![0; (8 << 20) + 1]).unwrap_err().to_string().contains("not a WebAssembly"));

    let mut small = spec("good");
    small.limits.memory_bytes = 1 << 20;
    let error = load(&engine, &small).unwrap_err().to_string();
    assert!(error.contains("limits.memoryMiB gives 1024 KiB"), "{error}");
    small.limits.memory_bytes = 1 << 40;
    let error = load(&engine, &small).unwrap_err().to_string();
    assert!(error.contains("this host gives at most 256"), "{error}");
}

#[tokio::test]
async fn a_panic_of_the_host_in_a_host_call_fails_the_run_and_nothing_else() {
    let engine = engine();
    let plugin = load(&engine, &probe(&["live shop cart-0"])).unwrap();
    let mut world = FakeWorld::default();
    world.live = LiveReads::Panic;
    let (report, _) = run_in(&plugin, request(), world).await;
    assert!(failed(report, FailureKind::Host).message.contains("the world fell over"));
    let again = plugin.reconcile(request(), Box::new(FakeWorld::default())).await;
    assert_eq!(again.result, Ok(Outcome::Settled));
}
