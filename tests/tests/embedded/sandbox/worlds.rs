//! The other world, WASI guests, and the full object in both worlds.

use std::{sync::Arc, time::Duration};

use podium_encoding::{Pool, Scratch};
use podium_engine::ports::{FailureKind, LogLevel, Outcome, RunReport, Staged, Subject};
use podium_pods::pod::CachedPod;
use podium_tests::{modules::Module, sandbox::*};
use podium_vocabulary::{PluginSpec, ReadGrants};
use podium_wire::Section;

#[tokio::test]
async fn a_json_guest_sees_only_the_granted_sections() {
    let (report, notes) = run(&spec("json")).await;
    assert_eq!(report.result, Ok(Outcome::Settled));
    let lines = notes.lines();
    let subject: serde_json::Value = serde_json::from_str(lines[0]).unwrap();
    assert_eq!(subject["metadata"]["name"], "cart-0");
    assert_eq!(subject["metadata"]["labels"]["app"], "cart");
    let page: serde_json::Value = serde_json::from_str(lines[1]).unwrap();
    assert_eq!(page.as_array().map(Vec::len), Some(2));
    assert!(!notes.lines().concat().contains("not granted"), "annotations were not granted");
    assert_eq!(lines[2..], ["Ok(0)", "Err(CallError::NotGranted)"], "functions are refused at the call");
    assert_eq!(report.staged.writes[0].get().action.describe(), "set label guests.example/seen=yes on shop/cart-0");
}

#[tokio::test]
async fn a_json_guest_finds_pods_by_phase() {
    for (phase, expected) in [("Running", 2), ("Failed", 0)] {
        let mut spec = reader("json", &[Section::Status]);
        spec.config = format!("\"{phase}\"").into();
        let (_, notes) = run(&spec).await;
        let page: serde_json::Value = serde_json::from_str(notes.lines()[1]).unwrap();
        assert_eq!(page.as_array().map(Vec::len), Some(expected), "{phase}");
    }
}

#[tokio::test]
async fn a_json_guest_gets_a_deletion() {
    let engine = engine();
    let plugin = load(&engine, &spec("json")).unwrap();
    let mut request = request();
    request.subject = Subject::Deleted(None);
    let (report, notes) = run_in(&plugin, request, FakeWorld::default()).await;
    assert_eq!(report.result, Ok(Outcome::Settled));
    assert_eq!(notes.lines()[0], "deleted None");
}

#[tokio::test]
async fn a_wasi_guest_finds_time_seeded_random_and_nothing_else() {
    let engine = engine();
    let plugin = load(&engine, &spec("wasi")).unwrap();
    let mut transcripts = Vec::new();
    for seed in [1, 1, 2] {
        let mut request = request();
        request.seed = seed;
        let (report, notes) = run_in(&plugin, request, FakeWorld::default()).await;
        assert_eq!(report.result, Ok(Outcome::Settled));
        assert!(report.usage.wall < Duration::from_secs(60), "an hour's sleep is over at once");
        transcripts.push(notes.log);
    }
    let lines: Vec<_> = transcripts[0].iter().map(|(_, line, _)| line.as_str()).collect();
    assert_eq!(lines[0], format!("now {NOW_MILLIS}"));
    assert_eq!(lines[1], "slept 3600");
    assert!(lines[2].starts_with("random "), "{lines:?}");
    assert_eq!(lines[3..], ["arguments 0", "no end of line"]);
    assert_eq!(transcripts[0][0].0, LogLevel::Info);
    assert_eq!(transcripts[0][4].0, LogLevel::Warn);
    assert_eq!(transcripts[0], transcripts[1], "the same seed causes the same run");
    assert_ne!(transcripts[0][2], transcripts[2][2], "another seed causes other numbers");
}

#[tokio::test]
async fn a_wasi_guests_panic_and_exit_are_traps_that_say_so() {
    let engine = engine();
    for (config, text) in [("\"panic\"", "printed panic"), ("\"exit\"", "exit")] {
        let mut spec = spec("wasi");
        spec.config = config.into();
        let plugin = load(&engine, &spec).unwrap();
        let (report, _) = run_in(&plugin, request(), FakeWorld::default()).await;
        let failure = failed(report, FailureKind::Trap);
        assert!(failure.message.contains(text), "{}", failure.message);
    }
}

/// Runs a module of the world `plugin` that also imports a function of WASI.
async fn with_wasi(packages: &[&str], interface: &str, imports: &str, reconcile: &str) -> RunReport<Staged> {
    let world =
        format!("package guests:module; world plugin {{ include podium:reconcile/plugin@0.1.0; import {interface}; }}");
    let packages: Vec<_> = packages.iter().copied().chain([&*world]).collect();
    let module = Module { pages: 8, imports, packages: &packages, reconcile, ..Module::DEFAULT };
    let mut spec = spec("module");
    spec.limits.cpu = Duration::from_secs(1);
    let plugin = engine().compile(&spec, &module.component().unwrap()).unwrap();
    run_in(&plugin, request(), FakeWorld::default()).await.0
}

#[tokio::test]
async fn random_bytes_have_a_bound_at_once() {
    let package = "package wasi:random@0.2.0; interface random { get-random-bytes: func(len: u64) -> list<u8>; }";
    let imports = r#"(import "wasi:random/random@0.2.0" "get-random-bytes" (func $random (param i64 i32)))"#;
    let ask = |bytes: u32| {
        let reconcile = format!("(call $random (i64.const {bytes}) (i32.const 2048))");
        async move { with_wasi(&[package], "wasi:random/random@0.2.0", imports, &reconcile).await }
    };
    assert_eq!(ask(65_536).await.result, Ok(Outcome::Settled));
    let failure = failed(ask(65_537).await, FailureKind::Trap);
    assert!(failure.message.starts_with("asked for 65537 random bytes at once"), "{}", failure.message);
}

#[tokio::test]
async fn a_guest_holds_64_handles_of_wasi_and_no_more() {
    let packages = [
        "package wasi:io@0.2.0; interface streams { resource input-stream; }",
        "package wasi:cli@0.2.0; interface stdin {
            use wasi:io/streams@0.2.0.{input-stream};
            get-stdin: func() -> input-stream;
        }",
    ];
    let imports = r#"(import "wasi:cli/stdin@0.2.0" "get-stdin" (func $stdin (result i32)))"#;
    let open = |count: u32| {
        let reconcile = format!(
            "(local.set $end (i32.const {count}))
            (loop $again
                (drop (call $stdin))
                (local.set $end (i32.sub (local.get $end) (i32.const 1)))
                (br_if $again (local.get $end)))"
        );
        async move { with_wasi(&packages, "wasi:cli/stdin@0.2.0", imports, &reconcile).await }
    };
    assert_eq!(open(64).await.result, Ok(Outcome::Settled));
    let report = open(65).await;
    assert_eq!(report.usage.host_calls, 65);
    let failure = failed(report, FailureKind::Trap);
    assert!(failure.message.starts_with("resource table has no free keys"), "{}", failure.message);
}

/// Returns two Pods: one in the form of an API server, which the encoding divides into fragments, and one with a space,
/// which is stored unshared.
fn whole_pods() -> Vec<Arc<CachedPod>> {
    let json = |name: &str| {
        format!(
            concat!(
                r#"{{"metadata":{{"name":"{name}","namespace":"shop","uid":"uid-of-{name}","resourceVersion":"7","#,
                r#""labels":{{"app":"cart"}},"managedFields":[{{"manager":"kubelet"}}]}},"#,
                r#""spec":{{"nodeName":"n1","later":["{name}",1.0e3]}},"status":{{"phase":"Running"}}}}"#,
            ),
            name = name
        )
    };
    let pool = Pool::new(7);
    let read = |json: String| {
        Arc::new(CachedPod::read(json.as_bytes(), &pool, &mut Scratch::default(), |_, _| None).unwrap().0)
    };
    vec![read(json("cart-0")), read(json("cart-1").replacen('{', "{ ", 1))]
}

/// A plugin that may read `sections`, and live.
fn reader(guest: &str, sections: &[Section]) -> PluginSpec {
    let mut spec = spec(guest);
    let sections = sections.iter().copied().collect();
    spec.grants.read = Some(ReadGrants { sections, live: true });
    spec.limits.cpu = Duration::from_secs(1);
    spec
}

async fn lines_of(spec: &PluginSpec, deleted: bool) -> Vec<String> {
    let engine = engine();
    let (pods, mut request) = (whole_pods(), request());
    request.key = pods[1].key.clone();
    request.subject = match deleted {
        true => Subject::Deleted(Some(Arc::clone(&pods[1]))),
        false => Subject::Present(Arc::clone(&pods[1])),
    };
    let (report, notes) = run_in(&load(&engine, spec).unwrap(), request, FakeWorld::with_pods(pods)).await;
    assert!(report.result.is_ok(), "{:?}", report.result);
    notes.lines().into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn the_full_object_is_complete_except_managed_fields() {
    let whole = reader("whole", &[Section::Full]);
    let seen = |name: &str| format!(r#"["{name}",1000.0] managed null"#);
    let (first, second) = (seen("cart-0"), seen("cart-1"));
    let found = [format!("find: {first}"), format!("find: {second}")];
    let rest = [format!("get: {second}"), format!("live: {second}")].into_iter().chain(found).collect::<Vec<_>>();
    let present = [format!("subject: {second}"), "deleted: nothing".to_owned()];
    assert_eq!(lines_of(&whole, false).await, [present.to_vec(), rest.clone()].concat());
    let deleted = ["subject: nothing".to_owned(), format!("deleted: {second}")];
    assert_eq!(lines_of(&whole, true).await, [deleted.to_vec(), rest].concat());
}

#[tokio::test]
async fn the_full_object_is_there_on_no_way_without_its_grant() {
    let every_other = Section::ALL.into_iter().filter(|section| *section != Section::Full).collect::<Vec<_>>();
    let blind = reader("whole", &every_other);
    for deleted in [false, true] {
        let lines = lines_of(&blind, deleted).await;
        let (asked, nothing): (Vec<_>, Vec<_>) = lines.iter().partition(|line| !line.ends_with(": nothing"));
        assert_eq!((asked.len(), nothing.len()), (5, 1));
        assert!(asked.iter().all(|line| line.contains("section full is not in this record; grant it")), "{asked:?}");
    }
    // Nor in the JSON that guests of other languages receive.
    assert!(!lines_of(&reader("json", &every_other), false).await.concat().contains("later"));
}

#[tokio::test]
async fn a_json_guest_with_the_grant_receives_the_full_object() {
    let lines = lines_of(&reader("json", &[Section::Full]), false).await;
    let subject: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!((&subject["kind"], &subject["apiVersion"]), (&"Pod".into(), &"v1".into()));
    assert_eq!(subject["metadata"]["labels"]["app"], "cart", "as where the section is granted by itself");
    assert_eq!(subject["spec"]["later"][0], "cart-1");
    assert!(lines[0].contains("1.0e3"), "as it was written: {}", lines[0]);
    let page: serde_json::Value = serde_json::from_str(&lines[1]).unwrap();
    assert_eq!(page[0]["spec"]["later"][0], "cart-0");
    assert!(!lines.concat().contains("managedFields"));
}
