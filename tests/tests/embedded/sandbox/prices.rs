//! The prices of the host's work for a run, against the arguments that cost the most.

use std::time::Duration;

use podium_engine::{
    dispatch::State,
    ports::{FailureKind, Outcome, Request, Subject},
};
use podium_pods::testing;
use podium_runtime::{Engine, EngineOptions};
use podium_tests::{modules::Module, sandbox::*};
use podium_vocabulary::PluginSpec;

/// Fuel for a limit of processor time that no run here reaches.
const CPU: Duration = Duration::from_secs(1);

fn generous(mut spec: PluginSpec) -> PluginSpec {
    spec.limits.cpu = CPU;
    spec.grants = everything();
    spec
}

/// Returns the fuel of a run that succeeded or failed as the plugin asked for.
async fn fuel(spec: &PluginSpec, wasm: Option<&[u8]>, request: Request) -> u64 {
    let options = EngineOptions { concurrent_runs: 1, tick: None, ..EngineOptions::default() };
    let engine = Engine::new(options).unwrap();
    let plugin = match wasm {
        Some(wasm) => engine.compile(spec, wasm).unwrap(),
        None => load(&engine, spec).unwrap(),
    };
    let (report, _) = run_in(&plugin, request, FakeWorld::default()).await;
    match report.result {
        Ok(Outcome::Settled) => report.usage.fuel,
        Err(failure) if failure.kind == FailureKind::Retry => report.usage.fuel,
        result => panic!("{result:?}"),
    }
}

async fn fuel_of(module: &Module<'_>) -> u64 {
    let mut spec = generous(spec("module"));
    spec.grants.write.objects = Vec::new();
    fuel(&spec, Some(&module.component().unwrap()), request()).await
}

#[tokio::test(start_paused = true)]
async fn a_host_call_that_does_nothing_costs_2500_units() {
    let imports = r#"(import "podium:reconcile/writes@0.1.0" "commit" (func $commit (param i32)))"#;
    let calls = |number: u32| {
        format!(
            "(loop $next
                (call $commit (i32.const 2048))
                (local.set $end (i32.add (local.get $end) (i32.const 1)))
                (br_if $next (i32.lt_u (local.get $end) (i32.const {number}))))"
        )
    };
    let (one, more) = (calls(1), calls(101));
    let module = |reconcile| Module { imports, reconcile, ..Module::DEFAULT };
    let paid = fuel_of(&module(&more)).await - fuel_of(&module(&one)).await;
    assert!((100 * 2_500..100 * 2_550).contains(&paid), "{paid}");
}

/// The host renders and digests an object, and compares it with the API server's, even if nothing is sent in the end.
#[tokio::test(start_paused = true)]
async fn objects_that_are_sent_are_paid_by_their_bytes_and_values() {
    for (object, least) in [("apply-bytes 100000", 100_000 * 40), ("apply-values 5000", 5_000 * 1_000)] {
        let [sent, dropped] = [&[object][..], &[object, "retry later"]].map(|script| {
            let spec = generous(probe(script));
            async move { fuel(&spec, None, request()).await }
        });
        let sending = sent.await - dropped.await;
        assert!((least..least * 3 / 2).contains(&sending), "{object}: {sending}");
    }
    // An object that a commit has sent is not paid again.
    let twice = ["apply-bytes 100000", "commit", "label guests.example/a 1"];
    let [once, twice] = [&twice[..2], &twice[..]].map(|script| generous(probe(script)));
    let more = fuel(&twice, None, request()).await - fuel(&once, None, request()).await;
    assert!(more < 500_000, "{more}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_as_json_is_paid_by_its_values() {
    let with_labels = |count: usize| {
        let mut pod = testing::pod("cart-0", "uid-of-cart-0", 7, "x");
        pod.labels.extend((0..count).map(|label| (format!("l{label}"), String::new())));
        let pod = testing::cached(&pod);
        Request { key: pod.key.clone(), subject: Subject::Present(pod), ..request() }
    };
    let spec = generous(spec("json"));
    let [few, many] = [10, 1_010].map(|labels| fuel(&spec, None, with_labels(labels)));
    let more = many.await - few.await;
    assert!((1_000_000..2_000_000).contains(&more), "{more}");
    // One that the limit does not pay for is not rendered at all: that would take longer than the limit.
    let mut spec = spec;
    spec.limits.cpu = Duration::from_millis(20);
    let plugin = load(&engine(), &spec).unwrap();
    let (request, before) = (with_labels(100_000), thread_time());
    let (report, _) = run_in(&plugin, request, FakeWorld::default()).await;
    let spent = thread_time() - before;
    failed(report, FailureKind::Cpu);
    assert!(spent < Duration::from_millis(30), "{spent:?}");
}

#[test]
fn a_value_that_evicts_many_others_takes_no_longer() {
    let mut state = State::default();
    for key in 0..4_096 {
        state.put(&format!("{key:06}"), vec![0; 250], None).unwrap();
    }
    let before = thread_time();
    state.put("large", vec![0; 64 << 10], None).unwrap();
    let spent = thread_time() - before;
    assert!(state.get("000255").is_none() && state.get("000300").is_some());
    assert!(spent < Duration::from_millis(5), "{spent:?}");
}

const RANDOM: &[&str] = &[
    "package wasi:random@0.2.0; interface random { get-random-bytes: func(len: u64) -> list<u8>; }",
    "package hostile:guest; world plugin { include podium:reconcile/plugin@0.1.0; import wasi:random/random@0.2.0; }",
];

#[tokio::test(start_paused = true)]
async fn random_bytes_are_paid_for() {
    let imports = r#"(import "wasi:random/random@0.2.0" "get-random-bytes" (func $random (param i64 i32)))"#;
    let draw = "(call $random (i64.const 60000) (i32.const 2048))";
    let module = Module { packages: RANDOM, imports, reconcile: draw, ..Module::DEFAULT };
    let paid = fuel_of(&module).await;
    assert!((60_000 * 5..60_000 * 6).contains(&paid), "{paid}");
}

const PRINT: &[&str] = &[
    "package wasi:io@0.2.0;
    interface error { resource error; }
    interface poll { resource pollable; poll: func(in: list<borrow<pollable>>) -> list<u32>; }
    interface streams {
        use error.{error};
        use poll.{pollable};
        variant stream-error { last-operation-failed(error), closed }
        resource output-stream {
            write: func(contents: list<u8>) -> result<_, stream-error>;
            subscribe: func() -> pollable;
        }
    }",
    "package wasi:cli@0.2.0; interface stdout {
        use wasi:io/streams@0.2.0.{output-stream};
        get-stdout: func() -> output-stream;
    }",
    "package hostile:guest; world plugin {
        include podium:reconcile/plugin@0.1.0;
        import wasi:cli/stdout@0.2.0;
        import wasi:io/poll@0.2.0;
        import wasi:io/streams@0.2.0;
    }",
];
const STDOUT: &str = r#"(import "wasi:cli/stdout@0.2.0" "get-stdout" (func $stdout (result i32)))
    (import "wasi:io/streams@0.2.0" "[method]output-stream.write" (func $write (param i32 i32 i32 i32)))
    (import "wasi:io/streams@0.2.0" "[method]output-stream.subscribe" (func $subscribe (param i32) (result i32)))
    (import "wasi:io/poll@0.2.0" "poll" (func $poll (param i32 i32 i32)))"#;

/// A guest with the functions of WASI that print and wait.
fn printing(reconcile: &str) -> Module<'_> {
    Module { packages: PRINT, imports: STDOUT, pages: 4, reconcile, ..Module::DEFAULT }
}

#[tokio::test(start_paused = true)]
async fn printed_lines_are_paid_for_also_if_the_log_drops_them() {
    let print = |bytes: u32| {
        format!(
            "(memory.fill (i32.const 65536) (i32.const 10) (i32.const {bytes}))
            (call $write (call $stdout) (i32.const 65536) (i32.const {bytes}) (i32.const 2048))"
        )
    };
    let (few, many) = (print(96), print(4_096));
    let more = fuel_of(&printing(&many)).await - fuel_of(&printing(&few)).await;
    assert!((4_000 * 300..4_000 * 310).contains(&more), "{more}");
    let too_many = print(4_097);
    let engine = engine();
    let plugin = engine.compile(&generous(spec("module")), &printing(&too_many).component().unwrap()).unwrap();
    let (report, _) = run_in(&plugin, request(), FakeWorld::default()).await;
    let failure = failed(report, FailureKind::Trap);
    assert!(failure.message.contains("more at once than check-write permits"), "{}", failure.message);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_handles_to_wait_for_is_paid_by_its_entries() {
    let poll = |entries: u32| {
        format!(
            "(local.set $at (call $subscribe (call $stdout)))
            (loop $next
                (i32.store (i32.add (i32.const 131072) (i32.mul (local.get $end) (i32.const 4))) (local.get $at))
                (local.set $end (i32.add (local.get $end) (i32.const 1)))
                (br_if $next (i32.lt_u (local.get $end) (i32.const {entries}))))
            (call $poll (i32.const 131072) (i32.const {entries}) (i32.const 2048))"
        )
    };
    let (few, many) = (poll(1), poll(201));
    let more = fuel_of(&printing(&many)).await - fuel_of(&printing(&few)).await;
    assert!((200_000..210_000).contains(&more), "{more}");
}

#[tokio::test(start_paused = true)]
async fn an_escaped_message_is_paid_for_and_an_ungranted_one_is_not() {
    let imports = r#"(import "podium:reconcile/writes@0.1.0" "set-condition" (func $set
        (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))"#;
    let set = |bytes: u32| {
        format!(
            "(memory.fill (i32.const 65536) (i32.const 1) (i32.const {bytes}))
            (call $set (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
                (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
                (i32.const 65536) (i32.const {bytes}) (i32.const 2048))"
        )
    };
    let (few, many) = (set(0), set(30_000));
    let module = |reconcile| Module { imports, reconcile, ..Module::DEFAULT };
    let more = fuel_of(&module(&many)).await - fuel_of(&module(&few)).await;
    // Filled by the guest, copied, escaped.
    assert!((30_000 * 8..30_000 * 9).contains(&more), "{more}");
}
