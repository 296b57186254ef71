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
//! Repeats are counted in memory and patched into the Event's series at most every [`memories::SERIES`]. As in client-go,
//! a plugin has a bucket of Events for each Pod, and many Events that differ in their note alone become one; and it has
//! a bucket for all its Events. All memories are bounded and each plugin has its own, so that none can push out what
//! another has said. An Event that fails never fails a run.
//!
//! **An Event is sent at least once,** except in the cases that `docs/operating.md` lists. One that exceeds the
//! plugin's rate, that the account may not create yet, or that meets an API server that is away waits in a bounded
//! queue ([`super::waiting`]) and is sent from there by [`Events::send_waiting`]. Sending one again makes no second Event,
//! because its name is the same. Beyond the rate of a Pod Events are dropped, as client-go drops them.

mod memories;
mod rate;

use std::{convert::Infallible, time::Duration};

use memories::{Memories, Step};
use parking_lot::Mutex;
use podium_engine::ports::{Sender, Sent};
use podium_pods::model::{Event, EventResult, EventType};
use podium_wire::{Timestamp, json::format_timestamp};
use serde_json::{Value, json};
use tokio::{sync::Notify, time::Instant};

use super::{digest::Digest, http, memory::Memory, waiting::Entry};
use crate::api::{Api, ApiError};

/// `reportingController`.
const CONTROLLER: &str = "podium.dev/host";
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

impl Events {
    pub(super) fn new() -> Self {
        Self { memories: Mutex::new(Memory::new(MAX_PLUGINS)), arrived: Notify::new() }
    }

    fn with<T>(&self, sender: &Sender, now: Instant, f: impl FnOnce(&mut Memories) -> T) -> T {
        f(self.memories.lock().entry(&sender.manager, || Memories::new(now)))
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
            let now = Instant::now();
            let step = self.with(sender, now, |memories| memories.step(&sender.manager, event, now));
            let entry = |digest, note| {
                let (sender, event) = (sender.clone(), (*event).clone());
                Entry { sender, event, note, digest, at_millis: now_millis, since: now }
            };
            let result = match step {
                Step::Nothing => continue,
                Step::Drop => self.with(sender, now, |memories| memories.drop_one(&sender.manager)),
                Step::Wait { digest, note } => self.wait(entry(digest, note), now),
                Step::Say { digest, note } if !reachable => self.wait(entry(digest, note), now),
                Step::Say { digest, note } => {
                    let entry = entry(digest, note);
                    let (result, wrote) = say(api, &entry).await;
                    sent.requests += u32::from(wrote);
                    reachable &= !matches!(result, Err(Failure::Away(_)));
                    match result {
                        Ok(()) => {
                            self.with(sender, now, |memories| memories.said(digest, 1, now));
                            EventResult::Sent
                        }
                        Err(Failure::Refused(message)) => self.refuse(&entry, &message, now),
                        Err(Failure::Denied(message) | Failure::Away(message)) => {
                            warn(&entry, &message, "Event was not sent and waits");
                            self.wait(entry, now)
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
                            self.with(sender, now, |memories| memories.said(digest, count, now));
                            continue;
                        }
                        // The API server has forgotten it: it is said anew.
                        Ok(false) => {
                            self.with(sender, now, |memories| memories.said.remove(&digest));
                            self.wait(entry, now)
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

    fn wait(&self, entry: Entry, now: Instant) -> EventResult {
        let has_room = self.waiting() < MAX_WAITING;
        let sender = entry.sender.clone();
        let result = self.with(&sender, now, |memories| {
            if has_room && memories.waiting.push(entry) {
                EventResult::Delayed
            } else {
                memories.drop_one(&sender.manager)
            }
        });
        self.arrived.notify_one();
        result
    }

    fn refuse(&self, entry: &Entry, message: &str, now: Instant) -> EventResult {
        warn(entry, message, "Event was refused");
        self.with(&entry.sender, now, |memories| memories.drop_one(&entry.sender.manager))
    }

    /// How many Events wait.
    pub(super) fn waiting(&self) -> usize {
        self.memories.lock().iter().map(|(_, memories)| memories.waiting.len()).sum()
    }

    /// Sends Events that wait, at their plugin's rate, for as long as it is polled.
    pub(super) async fn send_waiting(&self, api: &Api, told: impl Fn(&str, EventResult) + Send + Sync) -> Infallible {
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
                if !self.send_due(api, &manager, &told).await {
                    break;
                }
            }
        }
    }

    /// Sends what is due of one plugin. False where the API server is away.
    async fn send_due(&self, api: &Api, manager: &String, told: &(impl Fn(&str, EventResult) + Send + Sync)) -> bool {
        loop {
            let now = Instant::now();
            let (expired, next) = {
                let mut memories = self.memories.lock();
                let memories = memories.entry(manager, || Memories::new(now));
                let expired = memories.waiting.expired(now);
                // Each attempt counts: namespaces that refuse are as many requests.
                let next = if memories.all.has_any(now) { memories.waiting.next(now) } else { None };
                (expired, next.filter(|_| memories.all.take(now)))
            };
            for entry in expired {
                told(manager, self.refuse(&entry, "it has waited for an hour", now));
            }
            let Some(entry) = next else { return true };
            let (result, _) = say(api, &entry).await;
            let with = |f: &mut dyn FnMut(&mut Memories)| self.with(&entry.sender, now, |memories| f(memories));
            match result {
                Ok(()) => {
                    with(&mut |memories| {
                        memories.waiting.done(&entry);
                        memories.said(entry.digest, 1, now);
                    });
                    told(manager, EventResult::Sent);
                }
                Err(Failure::Refused(message)) => {
                    with(&mut |memories| memories.waiting.done(&entry));
                    told(manager, self.refuse(&entry, &message, now));
                }
                Err(failure) => {
                    let is_away = matches!(failure, Failure::Away(_));
                    let (Failure::Denied(message) | Failure::Refused(message) | Failure::Away(message)) = failure;
                    warn(&entry, &message, "Event was not sent and waits");
                    with(&mut |memories| memories.waiting.failed(&entry, now));
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
            // The namespace is being deleted: no right brings it back.
            Some(403) if error.has_cause("NamespaceTerminating") => Self::Refused(error.to_string()),
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
    use podium_pods::model::PodKey;

    use super::{
        memories::{
            CAPACITY,
            tests::{done, event},
        },
        *,
    };

    #[test]
    fn a_plugin_that_says_much_makes_no_other_forget() {
        let events = Events::new();
        let now = Instant::now();
        let sender = |name: &str| Sender { manager: format!("podium/shop/{name}"), impersonate: None };
        let said =
            |sender: &Sender| events.with(sender, now, |memories| done(memories, &event("a"), now)) != Step::Nothing;
        assert!(said(&sender("quiet")));
        let loud = sender("loud");
        for index in 0..2 * CAPACITY {
            let digest = Digest::of(&[&index.to_string()]);
            events.with(&loud, now, |memories| memories.said(digest, 1, now));
        }
        assert!(!said(&sender("quiet")));
    }

    #[test]
    fn an_events_name_is_a_subdomain_however_long_the_pods_is() {
        let long = Event { target: PodKey::new("shop", &"a.".repeat(126), "u1"), ..event("a") };
        let name = name(&long, Digest::of(&["a"]));
        assert!(podium_pods::model::syntax::dns_subdomain(&name).is_ok(), "{name}");
    }

    #[test]
    fn event_times_have_microseconds() {
        assert_eq!(micro_time(1_763_640_000_007), "2025-11-20T12:00:00.007000Z");
    }
}
