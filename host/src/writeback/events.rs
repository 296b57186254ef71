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
//! a plugin has a bucket of Events for each Pod, and many Events that differ in their note alone become one; and it has a
//! bucket for all its Events. All memories are bounded and each plugin has its own, so that none can push out what
//! another has said. An Event that fails is logged and never fails a run.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use podium_wire::{Timestamp, json::format_timestamp};
use serde_json::{Value, json};

use crate::{
    api::{Api, ApiError},
    model::{Event, EventType},
    seam::Sender,
};

use super::{digest::Digest, http, memory::Memory};

/// `reportingController`.
const CONTROLLER: &str = "podium.dev/host";
/// The bounds of client-go's spam filter: 25 at once, then one every 5 minutes, for each source and object.
const POD_RATE: Rate = Rate { burst: 25, refill_millis: 300_000 };
/// All Events of a plugin: a restart after which there is much to say, then two a second.
const PLUGIN_RATE: Rate = Rate { burst: 500, refill_millis: 500 };
/// More than this many notes within the window for one reason become one Event, as in client-go.
const SIMILAR: usize = 10;
const SIMILAR_MILLIS: u64 = 600_000;
/// How often a series is told to the API server: client-go ends a series after 6 minutes of silence.
const SERIES_MILLIS: u64 = 360_000;
/// client-go's size of its memories; at most some 2 MiB a plugin.
const CAPACITY: usize = 4_096;
/// Plugins that have said something.
const MAX_PLUGINS: usize = 1_024;

pub(super) struct Events {
    /// By manager.
    memories: Mutex<Memory<String, Memories>>,
}

/// What one plugin has said.
struct Memories {
    all: Bucket,
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

/// So many at once, then one each so many milliseconds.
#[derive(Debug, Clone, Copy)]
struct Rate {
    burst: u64,
    refill_millis: u64,
}

#[derive(Debug)]
struct Bucket {
    rate: Rate,
    tokens: u64,
    refilled_millis: u64,
}

impl Bucket {
    fn full(rate: Rate, now_millis: u64) -> Self {
        Self { rate, tokens: rate.burst, refilled_millis: now_millis }
    }

    fn has_any(&mut self, now_millis: u64) -> bool {
        let refills = now_millis.saturating_sub(self.refilled_millis) / self.rate.refill_millis;
        self.tokens = self.tokens.saturating_add(refills).min(self.rate.burst);
        self.refilled_millis += refills * self.rate.refill_millis;
        self.tokens > 0
    }

    fn take(&mut self, now_millis: u64) -> bool {
        let granted = self.has_any(now_millis);
        self.tokens = self.tokens.saturating_sub(1);
        granted
    }
}

#[derive(Debug)]
struct Similar {
    notes: BTreeSet<Digest>,
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
    fn new(now_millis: u64) -> Self {
        let all = Bucket::full(PLUGIN_RATE, now_millis);
        Self { all, said: Memory::new(CAPACITY), buckets: Memory::new(CAPACITY), similar: Memory::new(CAPACITY) }
    }

    fn step(&mut self, manager: &str, event: &Event, now_millis: u64) -> Step {
        let about = [manager, &*event.target.uid, event_type(event), &event.reason, &event.action];
        let mut note = event.note.clone();
        let mut digest = Digest::of(&[about.as_slice(), &[note.as_str()]].concat());
        // What is not going to be said is not remembered either.
        let may_say = self.all.has_any(now_millis);
        if !may_say && self.said.get(&digest).is_none() {
            return Step::Nothing;
        }
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
        let pod = Digest::of(&[manager, &*event.target.uid]);
        let bucket = self.buckets.entry(&pod, || Bucket::full(POD_RATE, now_millis));
        if bucket.take(now_millis) && self.all.take(now_millis) { step } else { Step::Nothing }
    }

    fn is_one_of_many(&mut self, about: Digest, digest: Digest, now_millis: u64) -> bool {
        let similar = self.similar.entry(&about, || Similar { notes: BTreeSet::new(), since_millis: now_millis });
        if now_millis.saturating_sub(similar.since_millis) >= SIMILAR_MILLIS {
            *similar = Similar { notes: BTreeSet::new(), since_millis: now_millis };
        }
        if similar.notes.len() < SIMILAR {
            similar.notes.insert(digest);
        }
        !similar.notes.contains(&digest)
    }

    fn said(&mut self, digest: Digest, count: u64, now_millis: u64) {
        let said = self.said.entry(&digest, || Said { count, told_millis: now_millis });
        said.count = said.count.max(count);
        said.told_millis = now_millis;
    }
}

impl Events {
    pub(super) fn new() -> Self {
        Self { memories: Mutex::new(Memory::new(MAX_PLUGINS)) }
    }

    fn with<T>(&self, sender: &Sender, now_millis: u64, f: impl FnOnce(&mut Memories) -> T) -> T {
        f(self.memories.lock().entry(&sender.manager, || Memories::new(now_millis)))
    }

    /// Gives the number of writes sent. Ends early where the API server is not to be reached or overloaded.
    pub(super) async fn send(&self, api: &Api, sender: &Sender, events: &[&Event], now_millis: u64) -> u32 {
        let mut writes = 0;
        for event in events {
            let step = self.with(sender, now_millis, |memories| memories.step(&sender.manager, event, now_millis));
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
                Ok(()) => self.with(sender, now_millis, |memories| memories.said(digest, count, now_millis)),
                Err(Failure::Gone) => self.with(sender, now_millis, |memories| memories.said.remove(&digest)),
                Err(Failure::Refused(message)) => warn(sender, event, &message),
                Err(Failure::Away(message)) => {
                    warn(sender, event, &message);
                    break;
                }
            }
        }
        writes
    }
}

enum Failure {
    /// The API server has forgotten the Event; the next time it is said anew.
    Gone,
    /// Others may be taken.
    Refused(String),
    /// The API server is not to be reached or overloaded; so it is for the others.
    Away(String),
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        match error.code() {
            Some(429 | 500..) | None => Self::Away(error.to_string()),
            Some(_) => Self::Refused(error.to_string()),
        }
    }
}

impl From<::http::Error> for Failure {
    fn from(error: ::http::Error) -> Self {
        Self::Refused(error.to_string())
    }
}

fn warn(sender: &Sender, event: &Event, error: &str) {
    let (pod, reason) = (&event.target, &event.reason);
    tracing::warn!(manager = %sender.manager, %pod, %reason, error, "Event was not sent");
}

fn collection(event: &Event) -> String {
    format!("/apis/events.k8s.io/v1/namespaces/{}/events", event.target.namespace)
}

/// The Pod's name, cut so that a subdomain remains, and the digest.
fn name(event: &Event, digest: Digest) -> String {
    const MAX_POD_BYTES: usize = 253 - 33;
    let pod: String = event.target.name.chars().take(MAX_POD_BYTES).collect();
    format!("{}.{}", pod.trim_end_matches(['.', '-']), digest.hex())
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
    if let Ok(look) = http::get(&format!("{collection}/{name}"), sender) {
        match api.bytes(look).await.map_err(Failure::from) {
            Ok(_) => return (Ok(()), false),
            Err(away @ Failure::Away(_)) => return (Err(away), false),
            Err(_) => {}
        }
    }
    let create = match http::create(&collection, &body(sender, event, &name, note, now_millis), sender) {
        Ok(create) => create,
        Err(error) => return (Err(error.into()), false),
    };
    let result = match api.bytes(create).await {
        Ok(_) | Err(ApiError::Status { code: 409, .. }) => Ok(()),
        Err(error) => Err(error.into()),
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
    match api.bytes(http::merge(&path, &series, sender)?).await {
        Ok(_) => Ok(()),
        Err(ApiError::Status { code: 404, .. }) => Err(Failure::Gone),
        Err(error) => Err(error.into()),
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
        let mut memories = Memories::new(0);
        assert!(matches!(done(&mut memories, &event("a"), 0), Step::Say { .. }));
        for now in 1..=8 {
            assert_eq!(done(&mut memories, &event("a"), now), Step::Nothing);
        }
        assert!(matches!(done(&mut memories, &event("a"), SERIES_MILLIS), Step::Repeat { count: 10, .. }));
        assert_eq!(done(&mut memories, &event("a"), SERIES_MILLIS + 1), Step::Nothing);
    }

    #[test]
    fn the_eleventh_note_for_one_reason_joins_a_combined_event() {
        let mut memories = Memories::new(0);
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
        let mut memories = Memories::new(0);
        let say = |memories: &mut Memories, index: usize, now| {
            let event = Event { reason: format!("Reason{index}"), ..event("a") };
            matches!(done(memories, &event, now), Step::Say { .. })
        };
        assert_eq!((0..100).filter(|index| say(&mut memories, *index, 0)).count(), 25);
        assert!(!say(&mut memories, 100, POD_RATE.refill_millis - 1));
        assert!(say(&mut memories, 101, POD_RATE.refill_millis));
        assert!(!say(&mut memories, 102, POD_RATE.refill_millis));
    }

    #[test]
    fn a_plugin_says_500_events_at_once_about_however_many_pods_and_then_two_a_second() {
        let mut memories = Memories::new(0);
        let say = |memories: &mut Memories, index: usize, now| {
            let event = Event { target: PodKey::new("shop", "cart-0", &format!("u{index}")), ..event("a") };
            matches!(done(memories, &event, now), Step::Say { .. })
        };
        assert_eq!((0..2_000).filter(|index| say(&mut memories, *index, 0)).count(), 500);
        assert_eq!((2_000..2_100).filter(|index| say(&mut memories, *index, 1_000)).count(), 2);
    }

    #[test]
    fn a_plugin_that_says_much_makes_no_other_forget() {
        let events = Events::new();
        let sender = |name: &str| Sender { manager: format!("podium/shop/{name}"), impersonate: None };
        let said = |sender: &Sender| events.with(sender, 0, |memories| done(memories, &event("a"), 0)) != Step::Nothing;
        assert!(said(&sender("quiet")));
        let loud = sender("loud");
        for index in 0..2 * CAPACITY {
            let digest = Digest::of(&[&index.to_string()]);
            events.with(&loud, 0, |memories| memories.said(digest, 1, 0));
        }
        assert!(!said(&sender("quiet")));
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
