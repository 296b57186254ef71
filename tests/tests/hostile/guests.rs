//! The attacks of the guest `hostile`, and the host's answers to them.

use std::time::Duration;

use anyhow::ensure;
use podium_engine::ports::{
    FailureKind::{Cpu, Deadline, Memory, Retry, Terminal, Trap},
    LogLevel, Outcome, RunReport, Staged,
};
use podium_tests::sandbox::{LiveReads, Notes};
use podium_vocabulary::{ObjectGrant, PluginSpec};

use super::attack::{
    Attack,
    End::{Fails, Succeeds},
};

const REFUSALS: &str = "made more than 1000 host calls, and continued as often after they were refused";
/// The text of a guest with controls, as the host records it.
const FORGED: &str = concat!(
    r"a\n2026-01-01T00:00:00Z ERROR podium_host: FORGED\r\u001b[2J\u202e\u2028\u0000\u0085",
    r#"","level":"error""#
);
/// The bytes of the plugin's log in a run, and of the line that reports how many were dropped.
const LOG_BYTES: usize = (16 << 10) + 200;

/// A flood costs less than its calls: the calls end it, and not the time.
fn long(spec: &mut PluginSpec) {
    spec.limits.cpu = Duration::from_secs(2);
}

fn many_writes(spec: &mut PluginSpec) {
    long(spec);
    spec.limits.writes = 1_000;
}

fn namespaces(spec: &mut PluginSpec) {
    let grant = |kind: &str, resource: &str| ObjectGrant {
        api_version: "v1".into(),
        kind: kind.into(),
        resource: resource.into(),
    };
    spec.grants.write.objects = vec![grant("Namespace", "namespaces"), grant("ConfigMap", "configmaps")];
}

#[expect(clippy::too_many_lines, reason = "a table: one entry for each attack")]
pub(super) fn attacks() -> Vec<Attack> {
    let flood = |name| Attack::guest(name, Fails(Trap, REFUSALS)).with_terms(long);
    let logs = |name| Attack { records: little_log, ..Attack::guest(name, Succeeds(Outcome::Settled, 0)) };
    let never = Duration::from_secs(30 * 24 * 60 * 60);
    vec![
        // Names.
        Attack::answered("read-through-names-with-paths", "54 none").with_terms(long),
        Attack::answered("read-live-through-namespaces-with-paths", "10 none"),
        Attack {
            host_end: Some(Fails(Terminal, "10 invalid")),
            ..Attack::answered("read-live-through-names-with-paths", "10 none")
        },
        Attack::answered("search-other-namespaces", "27 empty, 2 invalid, 27 none, 27 ok").with_terms(long),
        Attack::answered("search-by-sections-without-a-grant", "6 not-granted"),
        Attack::answered("forge-cursors", "31 invalid, 3 ok").with_terms(long),
        Attack::answered("ask-for-more-than-a-page", "1 invalid, 1 ok"),
        Attack::answered("search-with-operators-that-lie", "6 invalid"),
        Attack::answered("write-to-pods-of-others", "6 not-granted"),
        Attack::answered("write-to-targets-with-paths", "54 invalid").with_terms(long),
        Attack::answered("write-to-uids-out-of-syntax", "7 invalid"),
        Attack::answered("label-keys-out-of-syntax", "17 invalid"),
        Attack::answered("annotation-keys-out-of-syntax", "17 invalid"),
        Attack::answered("label-values-out-of-syntax", "9 invalid"),
        Attack::answered("reserved-labels", "20 not-granted"),
        Attack::answered("reserved-annotations", "20 not-granted"),
        Attack::answered("finalizers-of-others", "2 invalid, 8 not-granted"),
        Attack::answered("conditions-of-kubernetes", "12 not-granted"),
        Attack::answered("state-keys-of-others", "2 invalid, 5 none"),
        // Objects.
        Attack::answered("apply-kinds-without-a-grant", "8 not-granted"),
        Attack::answered("apply-lists", "4 invalid, 3 not-granted"),
        Attack::answered("apply-subresources", "10 invalid, 4 not-granted"),
        Attack::answered("apply-into-other-namespaces", "7 invalid, 2 not-granted"),
        Attack::answered("apply-names-with-paths", "27 invalid").with_terms(many_writes),
        Attack::answered("apply-a-cluster-scoped-kind", "1 invalid, 3 not-granted").with_terms(namespaces),
        Attack::answered("apply-with-duplicate-keys", "5 invalid"),
        Attack::answered("apply-deep-objects", "5 invalid").with_terms(long),
        Attack::answered("apply-directives-of-patches", "8 invalid"),
        Attack::answered("apply-names-reserved-by-the-parser", "2 invalid"),
        Attack::answered("apply-numbers-out-of-range", "7 invalid"),
        Attack::answered("apply-text-that-is-no-json", "11 invalid"),
        Attack::answered("apply-metadata-of-others", "10 invalid"),
        Attack::answered("apply-finalizers-of-others", "2 invalid, 4 not-granted"),
        Attack::answered("apply-with-owners-elsewhere", "8 invalid"),
        Attack::guest("apply-with-an-owner-that-never-was", Succeeds(Outcome::Settled, 1)),
        Attack::answered("apply-huge-objects", "2 ok, 2 over-budget").with_terms(long),
        Attack::answered("apply-objects-of-many-values", "1 ok, 2 over-budget").with_terms(long),
        Attack::answered("delete-objects-of-others", "4 invalid, 4 not-granted"),
        // Floods.
        flood("flood-pods-get"),
        flood("flood-pods-find"),
        flood("flood-pods-count"),
        flood("flood-pods-get-live"),
        flood("flood-set-label"),
        flood("flood-remove-label"),
        flood("flood-set-annotation"),
        flood("flood-remove-annotation"),
        flood("flood-add-finalizer"),
        flood("flood-remove-finalizer"),
        flood("flood-set-condition"),
        flood("flood-remove-condition"),
        flood("flood-delete-pod"),
        flood("flood-evict-pod"),
        flood("flood-apply-object"),
        flood("flood-delete-object"),
        flood("flood-objects-get"),
        flood("flood-objects-scale"),
        flood("flood-commit"),
        flood("flood-emit"),
        flood("flood-state-get"),
        flood("flood-state-put"),
        flood("flood-state-remove"),
        flood("flood-log"),
        flood("flood-calls-without-a-grant"),
        flood("flood-invalid-calls"),
        Attack::answered("stage-more-than-the-writes-of-a-run", "20 ok, 80 over-budget"),
        Attack::answered("stage-more-than-the-bytes-of-a-run", "34 ok, 16 over-budget").with_terms(many_writes),
        Attack::answered("emit-more-than-the-writes-of-a-run", "20 ok, 80 over-budget"),
        Attack::guest("search-without-an-end", Fails(Cpu, "processor time")),
        Attack::answered("store-more-than-a-share-of-state", "300 ok").with_terms(long),
        Attack::answered("store-values-that-are-too-large", "2 invalid"),
        Attack { sends: true, ..Attack::answered("commit-drip", "60 ok, 20 over-budget").with_terms(long) },
        Attack {
            terms: |spec| spec.limits.wall = Duration::from_millis(100),
            world: |world| world.live = LiveReads::NeverAnswer,
            host_end: Some(Fails(Terminal, "40 over-budget")),
            ..Attack::guest("live-drip", Fails(Deadline, "ran longer than 100ms"))
        },
        // Texts.
        logs("log-forged-lines"),
        logs("log-fields-of-the-host"),
        logs("log-many-small-lines"),
        logs("log-one-big-line"),
        logs("log-many-fields"),
        logs("log-characters-that-grow-when-escaped"),
        Attack::answered("event-forged-lines", "12 invalid"),
        Attack::guest("event-note-with-controls", Succeeds(Outcome::Settled, 1)),
        Attack::guest("event-note-that-grows-when-escaped", Succeeds(Outcome::Settled, 1)),
        Attack::guest("condition-message-with-controls", Succeeds(Outcome::Settled, 1)),
        Attack::answered("condition-reasons-out-of-syntax", "7 invalid"),
        Attack::guest("fail-with-forged-lines", Fails(Terminal, FORGED)),
        Attack {
            records: |report, _| {
                let length = report.result.as_ref().err().map_or(0, |failure| failure.message.len());
                ensure!(length == 2 << 10, "{length} bytes");
                Ok(())
            },
            ..Attack::guest("fail-with-a-huge-text", Fails(Terminal, ""))
        },
        Attack::guest("fail-with-no-text", Fails(Retry, "")),
        Attack::guest("panic-with-a-huge-text", Fails(Trap, "unreachable")),
        // Results, writes and memory.
        Attack::guest("requeue-after-the-end-of-time", Succeeds(Outcome::RequeueAfter(never), 0)),
        Attack::guest("delete-and-write", Succeeds(Outcome::RequeueAfter(Duration::ZERO), 4)),
        Attack::guest("set-and-remove-the-same", Succeeds(Outcome::Settled, 20)),
        Attack::guest("write-to-another-incarnation", Succeeds(Outcome::Settled, 1)),
        Attack::guest("fail-after-staging", Fails(Retry, "again")),
        Attack::guest("trap-after-staging", Fails(Trap, "unreachable")),
        Attack::guest("take-memory-without-an-end", Fails(Memory, "bytes of memory, may have 33554432")),
        Attack::guest("recurse-without-an-end", Fails(Trap, "out of bounds memory access")),
    ]
}

/// The log is within the limit of a run, and dropped lines are reported.
fn little_log(_: &RunReport<Staged>, notes: &Notes) -> anyhow::Result<()> {
    let text = |(_, message, fields): &(LogLevel, String, Vec<(String, String)>)| {
        fields.iter().fold(message.len(), |sum, (key, value)| sum + key.len() + value.len())
    };
    let bytes: usize = notes.log.iter().map(text).sum();
    // An escaped character has up to eight bytes.
    ensure!(bytes <= 8 * LOG_BYTES, "{bytes} bytes");
    ensure!(notes.log.len() <= LOG_BYTES / 128 + 1, "{} lines", notes.log.len());
    ensure!(notes.log.iter().all(|(_, _, fields)| fields.len() <= 32), "more than 32 fields");
    Ok(())
}
