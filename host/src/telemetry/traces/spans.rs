//! The spans of a run's trace, made of its record. Pure.
//!
//! The root `reconcile` is from the event to the end of the last write. Its parts are `queue`, `run` (the sandbox), and
//! a `write` for each write of the record that needed a request, which is a part of `run` if a commit sent it.

use std::time::Duration;

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, ArrayValue, KeyValue, any_value::Value},
    trace::v1::{Span, Status, span::SpanKind, status::StatusCode},
};
use podium_engine::{
    dispatch::{RunRecord, TraceOfRun},
    ports::{Outcome, TracedPart},
};
use podium_vocabulary::{WriteReport, text::line};
use tokio::time::Instant;

/// The same moment on both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) instant: Instant,
    pub(super) epoch_millis: u64,
}

impl Now {
    /// Returns epoch nanoseconds.
    fn nanos(self, at: Instant) -> u64 {
        let before = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let now = self.epoch_millis.saturating_mul(1_000_000);
        let ahead = before(at.saturating_duration_since(self.instant));
        now.saturating_add(ahead).saturating_sub(before(self.instant.saturating_duration_since(at)))
    }
}

/// Returns the number of spans of a record.
pub(super) fn count(record: &RunRecord) -> usize {
    record.trace.as_ref().map_or(0, |trace| 3 + trace.times.len())
}

/// Returns the spans of a record; none if its run was not to be traced.
pub(super) fn spans(record: &RunRecord, now: Now) -> Vec<Span> {
    let Some(TraceOfRun { id, times }) = record.trace.as_deref() else { return Vec::new() };
    let before = |at: Instant, time: Duration| at.checked_sub(time).unwrap_or(at);
    let started = before(record.ended, record.took);
    let queued = before(started, record.waited);
    // A run that was dropped reports no time.
    let wall = if record.usage.wall.is_zero() { record.took } else { record.usage.wall.min(record.took) };
    let left = started + wall;
    let span = |part, name: &str, parent: Option<TracedPart>, [start, end]: [Instant; 2], attributes| Span {
        trace_id: id.0.to_vec(),
        span_id: id.span(part).to_vec(),
        parent_span_id: parent.map(|parent| id.span(parent).to_vec()).unwrap_or_default(),
        name: name.to_owned(),
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: now.nanos(start),
        end_time_unix_nano: now.nanos(end),
        attributes,
        ..Span::default()
    };
    let whole = Some(TracedPart::Whole);
    let failure = record.result.as_ref().err().map(|failure| failure.message.as_str());
    let failure = failure.or(record.unsettled.then_some("a write did not settle"));
    let root = span(TracedPart::Whole, "reconcile", None, [queued, record.ended], of_run(record));
    let mut spans = vec![
        Span { status: failure.map(error), ..root },
        span(TracedPart::Queue, "queue", whole, [queued, started], Vec::new()),
        span(TracedPart::Sandbox, "run", whole, [started, left], of_sandbox(record)),
    ];
    spans.extend(times.iter().filter_map(|time| {
        let report = record.writes.iter().find(|report| report.id == time.id)?;
        let parent = if time.began < left { Some(TracedPart::Sandbox) } else { whole };
        let part = TracedPart::Write(time.id);
        let write = span(part, "write", parent, [time.began, time.began + time.took], of_write(report));
        let failure = (!report.result.is_settled()).then(|| report.result.text());
        Some(Span { kind: SpanKind::Client.into(), status: failure.map(error), ..write })
    }));
    spans
}

fn error(message: &str) -> Status {
    Status { message: line(message), code: StatusCode::Error.into() }
}

fn of_run(record: &RunRecord) -> Vec<KeyValue> {
    let plugin = &record.plugin;
    let tenant = plugin.namespace.as_ref().map_or_else(|| format!("cluster/{plugin}"), ToString::to_string);
    let causes = record.why.names().into_iter().map(|name| value(text(name))).collect();
    let mut attributes = vec![
        attribute("podium.plugin", text(plugin)),
        attribute("podium.tenant", text(tenant)),
        attribute("podium.run", number(record.number)),
        attribute("podium.attempt", number(record.attempt)),
        attribute("podium.causes", Value::ArrayValue(ArrayValue { values: causes })),
        attribute("podium.deleted", Value::BoolValue(record.deleted)),
        attribute("podium.result", text(record.result_name())),
        attribute("k8s.namespace.name", text(&record.pod.namespace)),
        attribute("k8s.pod.name", text(&record.pod.name)),
        attribute("k8s.pod.uid", text(&record.pod.uid)),
    ];
    attributes.extend(record.group.as_ref().map(|group| attribute("podium.group", text(&group.name))));
    if let Ok(Outcome::RequeueAfter(after)) = record.result {
        attributes.push(attribute("podium.requeue_after_ms", number(after.as_millis())));
    }
    // Those that have no span, and those that needed no request.
    let sent = record.trace.as_ref().map(|trace| &*trace.times).unwrap_or_default();
    let is_sent = |report: &&WriteReport| sent.iter().any(|time| time.id == report.id);
    let unsent = record.writes.iter().filter(|report| !is_sent(report));
    let unsent: Vec<_> =
        unsent.map(|report| value(text(format_args!("{}: {}", report.description, report.result.name())))).collect();
    if !unsent.is_empty() {
        attributes.push(attribute("podium.writes_not_sent", Value::ArrayValue(ArrayValue { values: unsent })));
    }
    attributes.push(attribute("podium.writes_unlisted", number(record.unlisted)));
    attributes
}

fn of_sandbox(record: &RunRecord) -> Vec<KeyValue> {
    vec![
        attribute("podium.cpu_us", number(record.usage.cpu.as_micros())),
        attribute("podium.fuel", number(record.usage.fuel)),
        attribute("podium.host_calls", number(record.usage.host_calls)),
        attribute("podium.memory_bytes", number(record.usage.memory_bytes as u64)),
    ]
}

fn of_write(report: &WriteReport) -> Vec<KeyValue> {
    vec![attribute("podium.write", text(&report.description)), attribute("podium.result", text(report.result.name()))]
}

pub(super) fn attribute(key: &str, of: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(value(of)), ..KeyValue::default() }
}

/// Returns a text without control characters: it may be a plugin's.
pub(super) fn text(text: impl ToString) -> Value {
    Value::StringValue(line(&text.to_string()))
}

fn number(number: impl TryInto<i64>) -> Value {
    Value::IntValue(number.try_into().unwrap_or(i64::MAX))
}

fn value(value: Value) -> AnyValue {
    AnyValue { value: Some(value) }
}

#[cfg(test)]
pub(super) mod tests;
