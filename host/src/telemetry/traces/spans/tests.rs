use podium_engine::{
    ports::{Failure, FailureKind, TRACED_WRITES, TraceId, Usage, WriteTime},
    queue::Why,
};
use podium_pods::testing::{NASTY, assert_clean};
use podium_vocabulary::{PluginId, PodKey, Revision, WriteResult};

use super::*;

const MILLI: Duration = Duration::from_millis(1);
const ID: TraceId = TraceId(*b"abcdefghijklmnop");

/// A run that waited for 30 ms and took 20 ms, of which 5 ms were in the sandbox: it committed write 0 in this time,
/// and sent write 1 after it. Write 2 needed no request.
pub(crate) fn record() -> RunRecord {
    let ended = Instant::now() + Duration::from_secs(1);
    let started = ended - MILLI * 20;
    let report = |id, result| WriteReport { id, description: format!("set-label {id}"), result };
    let time = |id, began| WriteTime { id, began: started + MILLI * began, took: MILLI * 3 };
    RunRecord {
        number: 7,
        plugin: PluginId { namespace: Some("shop".into()), name: "tidy".into() },
        pod: PodKey::new("shop", "cart-0", "u1"),
        group: None,
        why: Why::ADDED.and(Why::RETRY),
        deleted: false,
        attempt: 2,
        read: Revision(1),
        wrote: Revision(2),
        waited: MILLI * 30,
        took: MILLI * 20,
        ended,
        usage: Usage { wall: MILLI * 5, cpu: MILLI, fuel: 99, host_calls: 4, ..Usage::default() },
        result: Ok(Outcome::Settled),
        unsettled: false,
        writes: vec![
            report(0, WriteResult::Applied),
            report(1, WriteResult::Forbidden("no right".to_owned())),
            report(2, WriteResult::Unchanged),
        ],
        unlisted: 0,
        stopped: Vec::new(),
        trace: Some(Box::new(TraceOfRun { id: ID, times: vec![time(0, 1), time(1, 17)] })),
    }
}

/// The spans, with the end of the run at 1 s.
fn made(record: &RunRecord) -> Vec<Span> {
    spans(record, Now { instant: record.ended + MILLI * 500, epoch_millis: 1_500 })
}

fn value_of(span: &Span, key: &str) -> Option<Value> {
    span.attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?.value
}

#[test]
fn a_run_has_its_waits_its_sandbox_and_its_writes_as_parts() {
    let spans = made(&record());
    let parts: Vec<_> = spans
        .iter()
        .map(|span| {
            let millis = |nanos: u64| nanos / 1_000_000;
            let parent = spans.iter().find(|of| of.span_id == span.parent_span_id).map(|parent| parent.name.as_str());
            (span.name.as_str(), parent, millis(span.start_time_unix_nano), millis(span.end_time_unix_nano))
        })
        .collect();
    let expected = [
        ("reconcile", None, 950, 1_000),
        ("queue", Some("reconcile"), 950, 980),
        ("run", Some("reconcile"), 980, 985),
        ("write", Some("run"), 981, 984),
        ("write", Some("reconcile"), 997, 1_000),
    ];
    assert_eq!(parts, expected);
    assert!(spans.iter().all(|span| span.trace_id == ID.0));
    assert_eq!(count(&record()), spans.len());
    for (span, part) in spans[3..].iter().zip([TracedPart::Write(0), TracedPart::Write(1)]) {
        assert_eq!(span.span_id, ID.span(part), "the id that the header of its request has");
    }
}

#[test]
fn a_span_says_what_the_record_says() {
    let spans = made(&record());
    for (key, expected) in [
        ("podium.plugin", "shop/tidy"),
        ("podium.tenant", "shop"),
        ("k8s.namespace.name", "shop"),
        ("k8s.pod.name", "cart-0"),
        ("k8s.pod.uid", "u1"),
        ("podium.result", "settled"),
    ] {
        assert_eq!(value_of(&spans[0], key), Some(text(expected)), "{key}");
    }
    let list = |texts: &[&str]| {
        Some(Value::ArrayValue(ArrayValue { values: texts.iter().map(|of| value(text(of))).collect() }))
    };
    assert_eq!(value_of(&spans[0], "podium.causes"), list(&["added", "retry"]));
    assert_eq!(value_of(&spans[0], "podium.writes_not_sent"), list(&["set-label 2: unchanged"]));
    assert_eq!(value_of(&spans[0], "podium.attempt"), Some(number(2)));
    assert_eq!(value_of(&spans[2], "podium.fuel"), Some(number(99)));
    assert_eq!(value_of(&spans[3], "podium.write"), Some(text("set-label 0")));
    assert_eq!(spans[3].status, None);
    assert_eq!(spans[4].status, Some(error("no right")));
}

#[test]
fn a_failed_run_and_one_with_an_unsettled_write_are_errors() {
    assert_eq!(made(&record())[0].status, None);
    let unsettled = RunRecord { unsettled: true, ..record() };
    assert_eq!(made(&unsettled)[0].status, Some(error("a write did not settle")));
    let failure = Failure { kind: FailureKind::Trap, message: "unreachable".to_owned() };
    let failed = RunRecord { result: Err(failure), usage: Usage::default(), ..record() };
    let spans = made(&failed);
    assert_eq!(spans[0].status, Some(error("unreachable")));
    assert_eq!(value_of(&spans[0], "podium.result"), Some(text("trap")));
    assert_eq!(spans[2].end_time_unix_nano, spans[0].end_time_unix_nano, "a run that was dropped reports no time");
}

#[test]
fn texts_of_plugins_are_clean() {
    let nasty = || WriteReport { id: 0, description: NASTY.into(), result: WriteResult::Invalid(NASTY.into()) };
    let failure = Failure { kind: FailureKind::Retry, message: NASTY.into() };
    let group = Some(Box::new(PodKey::new("shop", NASTY, "u1")));
    let writes = vec![nasty(), WriteReport { id: 5, ..nasty() }];
    let spans = made(&RunRecord { writes, group, result: Err(failure), ..record() });
    assert_eq!(spans.len(), 4);
    for span in &spans {
        span.status.iter().for_each(|status| assert_clean(&status.message, 1_024));
        let values = span.attributes.iter().filter_map(|attribute| attribute.value.as_ref()?.value.as_ref());
        values.for_each(|value| match value {
            Value::StringValue(text) => assert_clean(text, 1_024),
            Value::ArrayValue(array) => array.values.iter().for_each(|value| {
                let Some(Value::StringValue(text)) = &value.value else { unreachable!() };
                assert_clean(text, 1_024);
            }),
            _ => {}
        });
    }
}

#[test]
fn spans_are_few_and_none_without_a_trace() {
    let none = RunRecord { trace: None, ..record() };
    assert_eq!((made(&none).len(), count(&none)), (0, 0));
    let time = |id| WriteTime { id, began: Instant::now(), took: MILLI };
    let times = (0..TRACED_WRITES).map(time).collect();
    let writes = (0..TRACED_WRITES).map(|id| WriteReport { id, ..record().writes[0].clone() }).collect();
    let most = RunRecord { writes, trace: Some(Box::new(TraceOfRun { id: ID, times })), ..record() };
    assert_eq!((made(&most).len(), count(&most)), (11, 11));
}
