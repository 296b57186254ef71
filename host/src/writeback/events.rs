//! Events for people, in the API `events.k8s.io/v1`.
//!
//! **Quiet means quiet, also after a restart.** Two rules:
//! - Events go with changes: an Event staged together with writes is sent when at least one of them was applied. Where
//!   all were unchanged it is a repeat; where none could be done the run is repeated, and says it then. An Event staged
//!   without writes is sent by the next rule.
//! - What was said is not said again: an Event's name is made of a digest of who says what about which Pod. One that this
//!   process has not said is looked up by that name before it is created, and one that is there was said before the
//!   restart. (The API server forgets Events, after an hour by default; then it may be said once more.)
//!
//! Repeats are counted in memory and patched into the Event's series at most every [`SERIES_MILLIS`]. As in client-go,
//! a plugin has a bucket of Events for each Pod, and many Events that differ in their note alone become one. All memories
//! are bounded. An Event that fails is logged and never fails a run.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use podium_wire::{Timestamp, json::format_timestamp};
use serde_json::{Value, json};

use crate::{
    api::{Api, ApiError},
    authz::Authorized,
    model::{Event, EventType},
    seam::Sender,
};

use super::{digest::Digest, http, memory::Memory};

/// `reportingController`.
const CONTROLLER: &str = "podium.dev/host";
/// The bounds of client-go's spam filter: 25 at once, then one every 5 minutes, for each source and object.
const BURST: u64 = 25;
const REFILL_MILLIS: u64 = 300_000;
/// More than this many notes within the window for one reason become one Event, as in client-go.
const SIMILAR: usize = 10;
const SIMILAR_MILLIS: u64 = 600_000;
/// How often a series is told to the API server: client-go ends a series after 6 minutes of silence.
const SERIES_MILLIS: u64 = 360_000;
/// client-go's size of its memories.
const CAPACITY: usize = 4_096;

pub(super) struct Events {
    memories: Mutex<Memories>,
}

struct Memories {
    said: Memory<Digest, Said>,
    buckets: Memory<Digest, Bucket>,
    similar: Memory<Digest, Similar>,
}

/// An Event that the API server has.
#[derive(Debug, Clone, Copy)]
struct Said {
    count: u64,
    told_millis: u64,
}

#[derive(Debug)]
struct Bucket {
    tokens: u64,
    refilled_millis: u64,
}

#[derive(Debug)]
struct Similar {
    notes: BTreeSet<String>,
    since_millis: u64,
}

/// What to do about an Event.
#[derive(Debug, PartialEq)]
enum Step {
    Nothing,
    /// It may have been said before this process began.
    Say {
        digest: Digest,
        note: String,
    },
    Repeat {
        digest: Digest,
        count: u64,
    },
}

impl Memories {
    fn new() -> Self {
        Self { said: Memory::new(CAPACITY), buckets: Memory::new(CAPACITY), similar: Memory::new(CAPACITY) }
    }

    fn step(&mut self, manager: &str, event: &Event, now_millis: u64) -> Step {
        let about = [manager, &*event.target.uid, event_type(event), &event.reason, &event.action];
        let mut note = event.note.clone();
        let mut digest = Digest::of(&[about.as_slice(), &[note.as_str()]].concat());
        if self.said.get(&digest).is_none() && self.is_one_of_many(Digest::of(&about), digest, now_millis) {
            note = combined(&note);
            // Without the note: all of them are one Event.
            digest = Digest::of(&about);
        }
        let mut step = Step::Say { digest, note };
        if self.said.get(&digest).is_some() {
            let said = self.said.entry(&digest, || Said { count: 1, told_millis: now_millis });
            said.count += 1;
            if now_millis.saturating_sub(said.told_millis) < SERIES_MILLIS {
                return Step::Nothing;
            }
            step = Step::Repeat { digest, count: said.count };
        }
        if self.take(Digest::of(&[manager, &*event.target.uid]), now_millis) { step } else { Step::Nothing }
    }

    fn is_one_of_many(&mut self, about: Digest, digest: Digest, now_millis: u64) -> bool {
        let similar = self.similar.entry(&about, || Similar { notes: BTreeSet::new(), since_millis: now_millis });
        if now_millis.saturating_sub(similar.since_millis) >= SIMILAR_MILLIS {
            *similar = Similar { notes: BTreeSet::new(), since_millis: now_millis };
        }
        if similar.notes.len() < SIMILAR {
            similar.notes.insert(digest.short());
        }
        !similar.notes.contains(&digest.short())
    }

    fn take(&mut self, source: Digest, now_millis: u64) -> bool {
        let bucket = self.buckets.entry(&source, || Bucket { tokens: BURST, refilled_millis: now_millis });
        let refills = now_millis.saturating_sub(bucket.refilled_millis) / REFILL_MILLIS;
        if refills > 0 {
            bucket.tokens = bucket.tokens.saturating_add(refills).min(BURST);
            bucket.refilled_millis += refills * REFILL_MILLIS;
        }
        let granted = bucket.tokens > 0;
        bucket.tokens = bucket.tokens.saturating_sub(1);
        granted
    }

    fn said(&mut self, digest: Digest, count: u64, now_millis: u64) {
        let said = self.said.entry(&digest, || Said { count, told_millis: now_millis });
        said.count = said.count.max(count);
        said.told_millis = now_millis;
    }
}

impl Events {
    pub(super) fn new() -> Self {
        Self { memories: Mutex::new(Memories::new()) }
    }

    /// Gives the number of writes sent.
    pub(super) async fn send(&self, api: &Api, sender: &Sender, events: &[Authorized<Event>], now_millis: u64) -> u32 {
        let mut writes = 0;
        for event in events {
            let event = event.get();
            let step = self.memories.lock().step(&sender.manager, event, now_millis);
            let (result, digest, count, wrote) = match step {
                Step::Nothing => continue,
                Step::Say { digest, note } => {
                    let (result, wrote) = say(api, sender, event, digest, &note, now_millis).await;
                    (result, digest, 1, wrote)
                }
                Step::Repeat { digest, count } => {
                    (repeat(api, sender, event, digest, count, now_millis).await, digest, count, true)
                }
            };
            writes += u32::from(wrote);
            match result {
                Ok(()) => self.memories.lock().said(digest, count, now_millis),
                Err(Failure::Gone) => self.memories.lock().said.remove(&digest),
                Err(Failure::Other(message)) => {
                    let (pod, reason) = (&event.target, &event.reason);
                    tracing::warn!(manager = %sender.manager, %pod, %reason, error = %message, "Event was not sent");
                }
            }
        }
        writes
    }
}

enum Failure {
    /// The API server has forgotten the Event; the next time it is said anew.
    Gone,
    Other(String),
}

fn other(error: impl std::fmt::Display) -> Failure {
    Failure::Other(error.to_string())
}

fn collection(event: &Event) -> String {
    format!("/apis/events.k8s.io/v1/namespaces/{}/events", event.target.namespace)
}

/// The Pod's name, cut so that a subdomain remains, and the digest.
fn name(event: &Event, digest: Digest) -> String {
    const MAX_POD_BYTES: usize = 253 - 17;
    let pod: String = event.target.name.chars().take(MAX_POD_BYTES).collect();
    format!("{}.{}", pod.trim_end_matches(['.', '-']), digest.short())
}

fn event_type(event: &Event) -> &'static str {
    match event.event_type {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    }
}

/// At most 1 KiB, the API server's bound.
fn combined(note: &str) -> String {
    let mut combined = format!("(combined from similar events): {note}");
    combined.truncate(combined.floor_char_boundary(1 << 10));
    combined
}

/// With microseconds, as the API server insists.
fn micro_time(now_millis: u64) -> String {
    let millis = i64::try_from(now_millis).unwrap_or(i64::MAX);
    let second = format_timestamp(Timestamp(millis - millis.rem_euclid(1_000)));
    format!("{}.{:03}000Z", second.trim_end_matches('Z'), millis.rem_euclid(1_000))
}

async fn say(
    api: &Api,
    sender: &Sender,
    event: &Event,
    digest: Digest,
    note: &str,
    now_millis: u64,
) -> (Result<(), Failure>, bool) {
    let (collection, name) = (collection(event), name(event, digest));
    // A look that fails for another reason than absence, such as a right to create without a right to read, leaves it
    // to the creation, whose answer tells as well.
    if let Ok(look) = http::get(&format!("{collection}/{name}"), sender)
        && api.bytes(look).await.is_ok()
    {
        return (Ok(()), false);
    }
    let create = match http::create(&collection, &body(sender, event, &name, note, now_millis), sender) {
        Ok(create) => create,
        Err(error) => return (Err(other(error)), false),
    };
    let result = match api.bytes(create).await {
        Ok(_) | Err(ApiError::Status { code: 409, .. }) => Ok(()),
        Err(error) => Err(other(error)),
    };
    (result, true)
}

fn body(sender: &Sender, event: &Event, name: &str, note: &str, now_millis: u64) -> Value {
    let target = &event.target;
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": { "namespace": *target.namespace, "name": name },
        "eventTime": micro_time(now_millis),
        "type": event_type(event),
        "reason": event.reason,
        "action": event.action,
        "note": note,
        "reportingController": CONTROLLER,
        "reportingInstance": sender.manager,
        "regarding": {
            "apiVersion": "v1", "kind": "Pod",
            "namespace": *target.namespace, "name": *target.name, "uid": *target.uid,
        },
    })
}

async fn repeat(
    api: &Api,
    sender: &Sender,
    event: &Event,
    digest: Digest,
    count: u64,
    now_millis: u64,
) -> Result<(), Failure> {
    let path = format!("{}/{}", collection(event), name(event, digest));
    let series = json!({ "series": { "count": count, "lastObservedTime": micro_time(now_millis) } });
    match api.bytes(http::merge(&path, &series, sender).map_err(other)?).await {
        Ok(_) => Ok(()),
        Err(ApiError::Status { code: 404, .. }) => Err(Failure::Gone),
        Err(error) => Err(other(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::PodKey;

    fn event(note: &str) -> Event {
        let (reason, action) = ("CrashLoop".to_owned(), "Diagnose".to_owned());
        let target = PodKey::new("shop", "cart-0", "u1");
        Event { target, event_type: EventType::Warning, reason, action, note: note.to_owned() }
    }

    /// Takes the step and lets it succeed.
    fn done(memories: &mut Memories, event: &Event, now_millis: u64) -> Step {
        let step = memories.step("podium/shop/a", event, now_millis);
        match &step {
            Step::Say { digest, .. } => memories.said(*digest, 1, now_millis),
            Step::Repeat { digest, count } => memories.said(*digest, *count, now_millis),
            Step::Nothing => {}
        }
        step
    }

    #[test]
    fn repeats_are_counted_in_silence_and_told_as_a_series_after_six_minutes() {
        let mut memories = Memories::new();
        assert!(matches!(done(&mut memories, &event("a"), 0), Step::Say { .. }));
        for now in 1..=8 {
            assert_eq!(done(&mut memories, &event("a"), now), Step::Nothing);
        }
        assert!(matches!(done(&mut memories, &event("a"), SERIES_MILLIS), Step::Repeat { count: 10, .. }));
        assert_eq!(done(&mut memories, &event("a"), SERIES_MILLIS + 1), Step::Nothing);
    }

    #[test]
    fn the_eleventh_note_for_one_reason_joins_a_combined_event() {
        let mut memories = Memories::new();
        for note in 0..10 {
            assert!(
                matches!(done(&mut memories, &event(&note.to_string()), 0), Step::Say { note, .. } if note.len() == 1)
            );
        }
        let Step::Say { note, .. } = done(&mut memories, &event("10"), 0) else { panic!("not said") };
        assert_eq!(note, "(combined from similar events): 10");
        assert_eq!(done(&mut memories, &event("11"), 0), Step::Nothing);
        let later = done(&mut memories, &event("12"), SIMILAR_MILLIS);
        assert!(matches!(later, Step::Say { note, .. } if note == "12"));
    }

    #[test]
    fn a_plugin_says_25_events_of_a_pod_at_once_and_then_one_in_five_minutes() {
        let mut memories = Memories::new();
        let say = |memories: &mut Memories, index: usize, now| {
            let event = Event { reason: format!("Reason{index}"), ..event("a") };
            matches!(done(memories, &event, now), Step::Say { .. })
        };
        assert_eq!((0..100).filter(|index| say(&mut memories, *index, 0)).count(), 25);
        assert!(!say(&mut memories, 100, REFILL_MILLIS - 1));
        assert!(say(&mut memories, 101, REFILL_MILLIS));
        assert!(!say(&mut memories, 102, REFILL_MILLIS));
    }

    #[test]
    fn an_events_name_is_a_subdomain_however_long_the_pods_is() {
        let long = Event { target: PodKey::new("shop", &"a.".repeat(126), "u1"), ..event("a") };
        let name = name(&long, Digest::of(&["a"]));
        assert!(crate::model::syntax::dns_subdomain(&name).is_ok(), "{name}");
    }

    #[test]
    fn event_times_have_microseconds() {
        assert_eq!(micro_time(1_763_640_000_007), "2025-11-20T12:00:00.007000Z");
    }
}
