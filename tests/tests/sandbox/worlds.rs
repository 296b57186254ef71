//! The other world and WASI guests.

use std::time::Duration;

use podium_host::{
    model::{FailureKind, Outcome, Subject},
    seam::LogLevel,
};

use podium_tests::sandbox::*;

#[tokio::test]
async fn a_json_guest_sees_kubernetes_json_of_the_granted_sections_alone() {
    let (report, notes) = run(&spec("json")).await;
    assert_eq!(report.result, Ok(Outcome::Settled));
    let lines = notes.lines();
    let subject: serde_json::Value = serde_json::from_str(lines[0]).unwrap();
    assert_eq!(subject["metadata"]["name"], "cart-0");
    assert_eq!(subject["metadata"]["labels"]["app"], "cart");
    let page: serde_json::Value = serde_json::from_str(lines[1]).unwrap();
    assert_eq!(page.as_array().map(Vec::len), Some(2));
    assert!(!notes.lines().concat().contains("not granted"), "annotations were not granted");
    assert_eq!(lines[2..], ["Ok(0)", "Err(Refused::NotGranted)"], "functions are refused at the call");
    assert_eq!(report.staged.writes[0].get().action.describe(), "set label guests.example/seen=yes on shop/cart-0");
}

#[tokio::test]
async fn a_json_guest_finds_pods_by_phase() {
    for (phase, expected) in [("Running", 2), ("Failed", 0)] {
        let mut spec = spec("json");
        spec.config = format!("\"{phase}\"");
        let (_, notes) = run(&spec).await;
        let page: serde_json::Value = serde_json::from_str(notes.lines()[1]).unwrap();
        assert_eq!(page.as_array().map(Vec::len), Some(expected), "{phase}");
    }
}

#[tokio::test]
async fn a_json_guest_is_told_of_a_deletion() {
    let engine = engine();
    let plugin = load(&engine, &spec("json")).unwrap();
    let mut request = request();
    request.subject = Subject::Deleted(None);
    let (report, notes) = run_in(&plugin, request, FakeWorld::default()).await;
    assert_eq!(report.result, Ok(Outcome::Settled));
    assert_eq!(notes.lines()[0], "deleted None");
}

#[tokio::test]
async fn a_wasi_guest_finds_the_requests_time_seeded_random_and_nothing_else() {
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
    assert_eq!(transcripts[0], transcripts[1], "the same seed gives the same run");
    assert_ne!(transcripts[0][2], transcripts[2][2], "another seed gives other numbers");
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
