//! Events for people, in the API `events.k8s.io/v1`.
//!
//! **Quiet means quiet, also after a restart.** Two rules:
//! - Events go with changes: an Event staged together with writes is sent when at least one of them was applied. Where
//!   all were unchanged it is a repeat; where none could be done the run is repeated, and says it then. An Event staged
//!   without writes is sent by the next rule.
//! - What was said is not said again: an Event's name is made of a digest of who says what about which Pod. One that
//!   this process has not said is looked up by that name before it is created, and one that is there was said before
//!   the restart. (The API server forgets Events, after an hour by default; then it may be said once more.)
//!
//! Repeats are counted in memory and patched into the Event's series at most every [`SERIES_MILLIS`]. As in client-go,
//! a plugin has a bucket of Events for each Pod, and many Events that differ in their note alone become one; and it has
//! a bucket for all its Events. All memories are bounded and each plugin has its own, so that none can push out what
//! another has said. An Event that fails never fails a run.
//!
//! **An Event is sent at least once,** except in the cases that `docs/operating.md` lists. One that exceeds the
//! plugin's rate, that the account may not create yet, or that meets an API server that is away waits in a bounded
//! queue ([`Waiting`]) and is sent from there by [`Events::send_waiting`]. Sending one again makes no second Event,
//! because its name is the same. Beyond the rate of a Pod Events are dropped, as client-go drops them.

use std::{collections::BTreeSet, convert::Infallible, time::Duration};

use parking_lot::Mutex;
use podium_wire::{Timestamp, json::format_timestamp};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::{
    api::{Api, ApiError},
    model::{Event, EventResult, EventType},
    seam::{Sender, Sent},
};

use super::{
    digest::Digest,
    http,
    memory::Memory,
    waiting::{Due, Entry, Waiting},
};

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
/// Events that wait, of all plugins: some 15 MiB.
const MAX_WAITING: usize = 10_000;
/// How often Events that wait are looked at.
const PAUSE: Duration = Duration::from_millis(500);

pub(super) struct Events {
    /// By manager.
    memories: Mutex<Memory<String, Memories>>,
    /// Events began to wait.
    arrived: Notify,
}

/// What one plugin has said.
struct Memories {
    all: Bucket,
    said: Memory<Digest, Said>,
    buckets: Memory<Digest, Bucket>,
    similar: Memory<Digest, Similar>,
    waiting: Waiting,
    dropped: u64,
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
    /// It was said, or waits to be.
    Nothing,
    /// Too many about one Pod.
    Drop,
    /// Too many of one plugin, or others wait already.
    Wait {
        digest: Digest,
        note: String,
    },
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
        let (waiting, dropped) = (Waiting::default(), 0);
        let (said, buckets, similar) = (Memory::new(CAPACITY), Memory::new(CAPACITY), Memory::new(CAPACITY));
        Self { all, said, buckets, similar, waiting, dropped }
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
        if self.waiting.has(&digest) {
            return Step::Nothing;
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
        let may_say = bucket.take(now_millis);
        match step {
            step if may_say && self.waiting.is_empty() && self.all.take(now_millis) => step,
            Step::Say { digest, note } if may_say => Step::Wait { digest, note },
            Step::Say { .. } => Step::Drop,
            _ => Step::Nothing,
        }
    }

    /// Counts an Event that will not be sent.
    fn drop_one(&mut self, manager: &str) -> EventResult {
        self.dropped += 1;
        if self.dropped.is_power_of_two() {
            tracing::warn!(manager, dropped = self.dropped, "Events were dropped");
        }
        EventResult::Dropped
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
        Self { memories: Mutex::new(Memory::new(MAX_PLUGINS)), arrived: Notify::new() }
    }

    fn with<T>(&self, sender: &Sender, now_millis: u64, f: impl FnOnce(&mut Memories) -> T) -> T {
        f(self.memories.lock().entry(&sender.manager, || Memories::new(now_millis)))
    }

    /// Sends Events of a run, or has them wait; nothing is sent where the API server is not `reachable`.
    pub(super) async fn send(
        &self,
        api: &Api,
        sender: &Sender,
        events: &[&Event],
        mut reachable: bool,
        now_millis: u64,
        sent: &mut Sent,
    ) {
        for event in events {
            let step = self.with(sender, now_millis, |memories| memories.step(&sender.manager, event, now_millis));
            let entry = |digest, note| {
                let (sender, event) = (sender.clone(), (*event).clone());
                Entry { sender, event, note, digest, at_millis: now_millis }
            };
            let result = match step {
                Step::Nothing => continue,
                Step::Drop => self.with(sender, now_millis, |memories| memories.drop_one(&sender.manager)),
                Step::Wait { digest, note } => self.wait(entry(digest, note), now_millis),
                Step::Say { digest, note } if !reachable => self.wait(entry(digest, note), now_millis),
                Step::Say { digest, note } => {
                    let entry = entry(digest, note);
                    let (result, wrote) = say(api, &entry).await;
                    sent.requests += u32::from(wrote);
                    reachable &= !matches!(result, Err(Failure::Away(_)));
                    match result {
                        Ok(()) => {
                            self.with(sender, now_millis, |memories| memories.said(digest, 1, now_millis));
                            EventResult::Sent
                        }
                        Err(Failure::Refused(message)) => self.refuse(&entry, &message, now_millis),
                        Err(Failure::Denied(message) | Failure::Away(message)) => {
                            warn(&entry, &message, "Event was not sent and waits");
                            self.wait(entry, now_millis)
                        }
                    }
                }
                // The count goes with the next repeat.
                Step::Repeat { .. } if !reachable => continue,
                Step::Repeat { digest, count } => {
                    sent.requests += 1;
                    let entry = entry(digest, event.note.clone());
                    match repeat(api, &entry, count).await {
                        Ok(true) => {
                            self.with(sender, now_millis, |memories| memories.said(digest, count, now_millis));
                            continue;
                        }
                        // The API server has forgotten it: it is said anew.
                        Ok(false) => {
                            self.with(sender, now_millis, |memories| memories.said.remove(&digest));
                            self.wait(entry, now_millis)
                        }
                        Err(failure) => {
                            reachable &= !matches!(failure, Failure::Away(_));
                            let (Failure::Denied(message) | Failure::Refused(message) | Failure::Away(message)) =
                                failure;
                            warn(&entry, &message, "the count of an Event was not sent");
                            continue;
                        }
                    }
                }
            };
            sent.events.push(result);
        }
    }

    fn wait(&self, entry: Entry, now_millis: u64) -> EventResult {
        let has_room = self.waiting() < MAX_WAITING;
        let sender = entry.sender.clone();
        let result = self.with(&sender, now_millis, |memories| {
            if has_room && memories.waiting.push(entry) {
                EventResult::Delayed
            } else {
                memories.drop_one(&sender.manager)
            }
        });
        self.arrived.notify_one();
        result
    }

    fn refuse(&self, entry: &Entry, message: &str, now_millis: u64) -> EventResult {
        warn(entry, message, "Event was refused");
        self.with(&entry.sender, now_millis, |memories| memories.drop_one(&entry.sender.manager))
    }

    /// How many Events wait.
    pub(super) fn waiting(&self) -> usize {
        self.memories.lock().iter().map(|(_, memories)| memories.waiting.len()).sum()
    }

    /// Sends Events that wait, at their plugin's rate, for as long as it is polled.
    pub(super) async fn send_waiting(
        &self,
        api: &Api,
        now_millis: impl Fn() -> u64 + Send + Sync,
        told: impl Fn(&str, EventResult) + Send + Sync,
    ) -> Infallible {
        loop {
            if self.waiting() == 0 {
                self.arrived.notified().await;
            }
            tokio::time::sleep(PAUSE).await;
            let mut managers: Vec<String> = {
                let memories = self.memories.lock();
                let waiting = memories.iter().filter(|(_, memories)| !memories.waiting.is_empty());
                waiting.map(|(manager, _)| manager.clone()).collect()
            };
            managers.sort_unstable();
            for manager in managers {
                if !self.send_due(api, &manager, &now_millis, &told).await {
                    break;
                }
            }
        }
    }

    /// Sends what is due of one plugin. False where the API server is away.
    async fn send_due(
        &self,
        api: &Api,
        manager: &String,
        now_millis: &(impl Fn() -> u64 + Send + Sync),
        told: &(impl Fn(&str, EventResult) + Send + Sync),
    ) -> bool {
        loop {
            let now = now_millis();
            let due = {
                let mut memories = self.memories.lock();
                let memories = memories.entry(manager, || Memories::new(now));
                if memories.all.has_any(now) { memories.waiting.due(now) } else { Due::Nothing }
            };
            let entry = match due {
                Due::Nothing => return true,
                Due::Expired(entry) => {
                    told(manager, self.refuse(&entry, "it has waited for an hour", now));
                    continue;
                }
                Due::Send(entry) => entry,
            };
            let (result, _) = say(api, &entry).await;
            let with = |f: &mut dyn FnMut(&mut Memories)| self.with(&entry.sender, now, |memories| f(memories));
            match result {
                Ok(()) => {
                    with(&mut |memories| {
                        memories.all.take(now);
                        memories.waiting.done(&entry.digest);
                        memories.said(entry.digest, 1, now);
                    });
                    told(manager, EventResult::Sent);
                }
                Err(Failure::Refused(message)) => {
                    with(&mut |memories| memories.waiting.done(&entry.digest));
                    told(manager, self.refuse(&entry, &message, now));
                }
                Err(failure) => {
                    let is_away = matches!(failure, Failure::Away(_));
                    let (Failure::Denied(message) | Failure::Refused(message) | Failure::Away(message)) = failure;
                    warn(&entry, &message, "Event was not sent and waits");
                    with(&mut |memories| memories.waiting.failed(&entry.digest, now));
                    if is_away {
                        return false;
                    }
                }
            }
        }
    }
}

enum Failure {
    /// The account may not create it; that may change.
    Denied(String),
    /// It will not be taken, others may be.
    Refused(String),
    /// The API server is not to be reached or overloaded; so it is for the others.
    Away(String),
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        match error.code() {
            Some(401 | 403) => Self::Denied(error.to_string()),
            Some(408 | 429 | 500..) | None => Self::Away(error.to_string()),
            Some(_) => Self::Refused(error.to_string()),
        }
    }
}

impl From<::http::Error> for Failure {
    fn from(error: ::http::Error) -> Self {
        Self::Refused(error.to_string())
    }
}

fn warn(entry: &Entry, error: &str, what: &str) {
    let Entry { sender, event, .. } = entry;
    tracing::warn!(manager = %sender.manager, pod = %event.target, reason = %event.reason, error, "{what}");
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

/// The flag tells whether a write went out.
async fn say(api: &Api, entry: &Entry) -> (Result<(), Failure>, bool) {
    let Entry { sender, event, .. } = entry;
    let (collection, name) = (collection(event), name(event, entry.digest));
    // A look that fails for another reason than absence, such as a right to create without a right to read, leaves it
    // to the creation, whose answer tells as well.
    if let Ok(look) = http::get(&format!("{collection}/{name}"), sender) {
        match api.bytes(look).await.map_err(Failure::from) {
            Ok(_) => return (Ok(()), false),
            Err(away @ Failure::Away(_)) => return (Err(away), false),
            Err(_) => {}
        }
    }
    let create = match http::create(&collection, &body(entry, &name), sender) {
        Ok(create) => create,
        Err(error) => return (Err(error.into()), false),
    };
    let result = match api.bytes(create).await {
        Ok(_) | Err(ApiError::Status { code: 409, .. }) => Ok(()),
        Err(error) => Err(error.into()),
    };
    (result, true)
}

fn body(entry: &Entry, name: &str) -> Value {
    let Entry { sender, event, note, at_millis, .. } = entry;
    let target = &event.target;
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": { "namespace": *target.namespace, "name": name },
        "eventTime": micro_time(*at_millis),
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

/// False where the API server does not have the Event any more.
async fn repeat(api: &Api, entry: &Entry, count: u64) -> Result<bool, Failure> {
    let path = format!("{}/{}", collection(&entry.event), name(&entry.event, entry.digest));
    let series = json!({ "series": { "count": count, "lastObservedTime": micro_time(entry.at_millis) } });
    match api.bytes(http::merge(&path, &series, &entry.sender)?).await {
        Ok(_) => Ok(true),
        Err(ApiError::Status { code: 404, .. }) => Ok(false),
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
            Step::Nothing | Step::Drop | Step::Wait { .. } => {}
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
