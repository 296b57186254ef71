//! Every text of a guest that people or programs read outside of the sandbox is one bounded line without hidden
//! characters.

use podium_engine::ports::{FailureKind, Outcome};
use podium_pods::testing::{NASTY, assert_clean};
use podium_tests::sandbox::*;
use podium_vocabulary::{Action, LimitClass, PluginSpec, Write};
use serde_json::{Value, json};

/// A plugin with all grants that makes these host calls.
fn deputy(calls: &Value) -> PluginSpec {
    let mut spec = spec("deputy");
    spec.limits.class = LimitClass::Interpreter;
    spec.grants = everything();
    spec.config = json!({ "calls": calls }).to_string().into();
    spec
}

#[tokio::test]
async fn messages_and_fields_of_the_log_are_clean() {
    let (report, notes) = run(&deputy(&json!([["log", NASTY], ["field", NASTY, NASTY]]))).await;
    assert_eq!(report.result, Ok(Outcome::Settled));
    assert_eq!(notes.log.len(), 2);
    for (_, message, fields) in &notes.log {
        fields
            .iter()
            .flat_map(|(key, value)| [key, value])
            .chain([message])
            .for_each(|text| assert_clean(text, 2 << 10));
    }
}

#[tokio::test]
async fn the_reason_of_a_failure_is_clean_and_at_most_2_kib() {
    for (calls, kind) in [
        (json!([["retry", NASTY.repeat(100)]]), FailureKind::Retry),
        (json!([["terminal", NASTY.repeat(100)]]), FailureKind::Terminal),
        // The last errors of the log explain a trap.
        (json!([["log", NASTY], ["log", NASTY], ["no such call"]]), FailureKind::Trap),
    ] {
        let (report, _) = run(&deputy(&calls)).await;
        let failure = failed(report, kind);
        assert!(failure.message.contains("drowssap"), "{}", failure.message);
        assert_clean(&failure.message, 2 << 10);
    }
}

#[tokio::test]
async fn notes_and_messages_are_escaped_and_too_long_ones_refused() {
    let long = "\u{202e}".repeat(300);
    let calls = json!([
        ["event", "own", "Probed", NASTY],
        ["event", "own", "Probed", long],
        ["condition", "own", "guests.example/a", NASTY],
        ["condition", "own", "guests.example/b", "plain: é"],
        ["event", "own", "Probed", "x".repeat(1_025)],
        ["condition", "own", "guests.example/c", "x".repeat((32 << 10) + 1)],
    ]);
    let (report, notes) = run(&deputy(&calls)).await;
    assert_eq!(report.result, Ok(Outcome::Settled));
    let lines = notes.lines();
    assert!(lines[4].contains("note is 1025 bytes long") && lines[5].contains("is 32769 bytes long"), "{lines:?}");
    assert_eq!((report.staged.events.len(), report.staged.writes.len()), (2, 2));
    report.staged.events.iter().for_each(|event| assert_clean(&event.get().note, 1 << 10));
    let messages = report.staged.writes.iter().map(|write| match write.get() {
        Write { action: Action::SetCondition { message, .. }, .. } => message,
        other => unreachable!("{other:?}"),
    });
    let messages: Vec<_> = messages.collect();
    messages.iter().for_each(|message| assert_clean(message, 32 << 10));
    assert!(messages[0].contains("drowssap") && messages[1] == "plain: é", "{messages:?}");
}

#[tokio::test]
async fn text_that_a_refusal_quotes_is_escaped() {
    let body = json!({ "apiVersion": NASTY, "kind": NASTY, "metadata": { "name": NASTY, "namespace": NASTY } });
    let double = format!(r#"{{"a": {{{0}: 1, {0}: 1}}}}"#, json!(NASTY));
    let calls = json!([
        ["label", "own", NASTY, NASTY],
        ["label", "own", "guests.example/a", NASTY],
        ["annotate", "own", NASTY, "x"],
        ["finalize", "own", NASTY],
        ["condition", "own", NASTY, "x"],
        ["delete", format!("{NASTY}/{NASTY}/{NASTY}")],
        ["apply", body.to_string()],
        ["apply", double],
        ["drop", NASTY, NASTY, NASTY],
        ["event", "own", NASTY, "x"],
        ["find", NASTY],
    ]);
    let spec = deputy(&calls);
    let (report, notes) = run(&spec).await;
    assert_eq!(report.result, Ok(Outcome::Settled));
    assert!(report.staged.writes.is_empty() && report.staged.events.is_empty());
    for line in notes.lines() {
        assert!(line.contains("Invalid") || line.starts_with("find: Ok((0, None))"), "{line}");
        assert_clean(line, 2 << 10);
    }
    assert_eq!(notes.lines().len(), 11);
}

#[tokio::test]
async fn no_call_of_a_plugin_whose_permissions_were_revoked_is_done() {
    let map = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop"}}"#;
    let calls = json!([
        ["get", "shop", "cart-0"],
        ["live", "shop", "cart-0"],
        ["find", "shop"],
        ["count", "shop"],
        ["label", "own", "guests.example/a", "b"],
        ["condition", "own", "guests.example/a", "b"],
        ["delete", "own"],
        ["apply", map],
        ["drop", "ConfigMap", "shop", "a"],
        ["event", "own", "Probed", "b"],
        ["state", "there"],
        ["commit"],
        ["retry", "the end"],
    ]);
    let plugin = load(&engine(), &deputy(&calls)).unwrap();
    let mut world = FakeWorld::default();
    world.revoked = true;
    let (report, notes) = run_in(&plugin, request(), world).await;
    assert_eq!(report.usage.host_calls, 24, "twelve calls, and the lines about their answers");
    assert_eq!(notes.lines(), ["the run's log budget was used up"], "no line of the plugin");
    assert!(notes.live == 0 && notes.committed.is_empty(), "{notes:?}");
    assert_eq!(failed(report, FailureKind::Retry).message, "the end");

    let (_, notes) = run(&deputy(&calls)).await;
    assert_eq!((notes.log.len(), notes.live), (12, 1), "each is done otherwise");
    assert!(notes.lines().iter().all(|line| line.contains("Ok(")), "{:?}", notes.lines());
}
