//! Events for people, in the API `events.k8s.io/v1`.
//!
//! **Repeats are suppressed, also after a restart.** Two rules:
//! - An Event that is staged together with writes is sent if at least one of them was applied. If all were unchanged,
//!   the Event is a repeat; if none could be done, the run is repeated and emits it again. An Event that is staged
//!   without writes is subject to the next rule.
//! - An Event that was sent is not sent again: its name is a digest of sender, Pod and text, so the API server refuses
//!   to create one that was sent before the restart. (It deletes Events, after an hour by default; then the Event may
//!   be sent once more.)
//!
//! Repeats are counted in memory and patched into the Event's series at most every [`memories::SERIES`]. As in
//! client-go, a plugin has a bucket of Events for each Pod, and many Events that only differ in their note become
//! one; and it has a bucket for all its Events. All memories are bounded and each plugin has its own, so that no
//! plugin can evict another's entries. An Event that fails never fails a run.
//!
//! **An Event is sent at least once,** except in the cases that `docs/observing.md` lists. An Event waits in a
//! bounded queue ([`super::waiting`]) if it exceeds the plugin's rate, if the account may not create it yet, or if
//! the API server is unreachable; [`Events::send_waiting`] sends it from there. Sending it again does not create a
//! second Event, because its name is the same. Events beyond the rate of a Pod are dropped, as client-go drops them.

mod memories;
mod requests;
mod sending;

use std::num::NonZeroUsize;

use memories::{Memories, Step};
use parking_lot::Mutex;
use podium_api::Api;
use podium_engine::ports::{Sender, Sent};
use podium_vocabulary::{Event, EventResult, EventType};
use requests::{Failure, create, repeat};
use tokio::{sync::Notify, time::Instant};

use super::{shares::Shares, waiting::Entry};

/// The most plugins with remembered Events; of the tenant with the most, the least recently active are forgotten.
const MAX_PLUGINS: NonZeroUsize = NonZeroUsize::new(1_024).unwrap(); // not 0: the compiler evaluates it
/// The most waiting Events of all plugins: some 15 MiB.
const MAX_WAITING: usize = 10_000;

pub(super) struct Events {
    /// Memories by field manager.
    memories: Mutex<Shares<String, Memories>>,
    /// Notified when an Event begins to wait.
    arrived: Notify,
}

impl Events {
    pub(super) fn new() -> Self {
        Self { memories: Mutex::new(Shares::new(MAX_PLUGINS)), arrived: Notify::new() }
    }

    fn with<T>(&self, sender: &Sender, now: Instant, f: impl FnOnce(&mut Memories) -> T) -> T {
        let mut all = self.memories.lock();
        let manager = &sender.manager;
        f(all.with_room(manager).get_or_insert_mut_ref(manager, || Memories::new(now)))
    }

    /// Sends the Events of a run, or queues them. Nothing is sent if the API server is not `reachable`.
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
                let sender = sender.clone();
                let event = (*event).clone();
                Entry { sender, event, note, digest, at_millis: now_millis, since: now }
            };
            let result = match step {
                Step::Nothing => continue,
                Step::Drop => self.with(sender, now, |memories| memories.drop_one(&sender.manager)),
                Step::Wait { digest, note } => self.wait(entry(digest, note), now),
                Step::Create { digest, note } if !reachable => self.wait(entry(digest, note), now),
                Step::Create { digest, note } => {
                    let entry = entry(digest, note);
                    let result = create(api, &entry).await;
                    sent.requests += u32::from(!matches!(result, Err(Failure::Held(_))));
                    reachable &= !result.as_ref().is_err_and(Failure::is_away);
                    match result {
                        Ok(()) => {
                            self.with(sender, now, |memories| memories.record_sent(digest, 1, now));
                            EventResult::Sent
                        }
                        Err(Failure::Refused(message)) => self.refuse(&entry, &message, now),
                        Err(failure) => {
                            warn(&entry, &failure.into_message(), "Event not sent; will be retried");
                            self.wait(entry, now)
                        }
                    }
                }
                // The next repeat sends the count.
                Step::Repeat { .. } if !reachable => continue,
                Step::Repeat { digest, count } => {
                    sent.requests += 1;
                    let entry = entry(digest, event.note.clone());
                    match repeat(api, &entry, count).await {
                        Ok(true) => {
                            self.with(sender, now, |memories| memories.record_sent(digest, count, now));
                            continue;
                        }
                        // The API server has deleted the Event: it is created again.
                        Ok(false) => {
                            self.with(sender, now, |memories| memories.sent.pop(&digest));
                            self.wait(entry, now)
                        }
                        Err(failure) => {
                            reachable &= !failure.is_away();
                            warn(&entry, &failure.into_message(), "count of an Event not sent");
                            continue;
                        }
                    }
                }
            };
            sent.events.push(result);
        }
    }

    /// Queues an Event. If [`MAX_WAITING`] Events wait, the plugin with the most drops one in favour of a plugin with
    /// fewer, so that no plugin's Events are kept out by others'.
    fn wait(&self, entry: Entry, now: Instant) -> EventResult {
        let manager = entry.sender.manager.clone();
        let mut all = self.memories.lock();
        let mut has_room = all.iter().map(|(_, memories)| memories.waiting.len()).sum::<usize>() < MAX_WAITING;
        let own = all.get_mut(&manager).and_then(|of| of.peek(&manager)).map_or(0, |memories| memories.waiting.len());
        if !has_room {
            let most = all.iter().map(|(manager, memories)| (memories.waiting.len(), manager)).max();
            let loser = most.filter(|(length, _)| *length > own + 1).map(|(_, manager)| manager.clone());
            if let Some(loser) = loser
                && let Some(memories) = all.get_mut(&loser).and_then(|of| of.peek_mut(&loser))
            {
                memories.make_room(&loser);
                has_room = true;
            }
        }
        let memories = all.with_room(&manager).get_or_insert_mut_ref(&manager, || Memories::new(now));
        let result =
            if has_room && memories.waiting.push(entry) { EventResult::Delayed } else { memories.drop_one(&manager) };
        drop(all);
        self.arrived.notify_one();
        result
    }

    fn refuse(&self, entry: &Entry, message: &str, now: Instant) -> EventResult {
        warn(entry, message, "Event dropped");
        self.with(&entry.sender, now, |memories| memories.drop_one(&entry.sender.manager))
    }

    /// Returns the number of waiting Events.
    pub(super) fn waiting(&self) -> usize {
        self.memories.lock().iter().map(|(_, memories)| memories.waiting.len()).sum()
    }
}

fn warn(entry: &Entry, error: &str, what: &str) {
    let Entry { sender, event, .. } = entry;
    tracing::warn!(manager = %sender.manager, pod = %event.target, reason = %event.reason, error, "{what}");
}

fn event_type(event: &Event) -> &'static str {
    match event.event_type {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    }
}

#[cfg(test)]
mod tests {
    use podium_vocabulary::PodKey;

    use crate::digest::Digest;

    use super::{
        memories::{
            CAPACITY,
            tests::{done, event},
        },
        requests::{micro_time, name},
        *,
    };

    #[test]
    fn a_plugin_with_many_events_evicts_no_other_plugins_memory() {
        let events = Events::new();
        let now = Instant::now();
        let sender = |name: &str| Sender { manager: format!("podium/shop/{name}"), impersonate: None };
        let said =
            |sender: &Sender| events.with(sender, now, |memories| done(memories, &event("a"), now)) != Step::Nothing;
        assert!(said(&sender("quiet")));
        let loud = sender("loud");
        for index in 0..2 * CAPACITY.get() {
            let digest = Digest::new(&[&index.to_string()]);
            events.with(&loud, now, |memories| memories.record_sent(digest, 1, now));
        }
        assert!(!said(&sender("quiet")));
    }

    #[test]
    fn a_tenant_that_rotates_names_evicts_no_other_tenants_memory() {
        let events = Events::new();
        let now = Instant::now();
        let say = |manager: &str| {
            let sender = Sender { manager: manager.to_owned(), impersonate: None };
            events.with(&sender, now, |memories| done(memories, &event("a"), now))
        };
        assert_ne!(say("podium/bank/quiet"), Step::Nothing);
        (0..2 * MAX_PLUGINS.get()).for_each(|index| _ = say(&format!("podium/shop/{index}")));
        assert_eq!(say("podium/bank/quiet"), Step::Nothing);
        assert_eq!(events.memories.lock().iter().count(), MAX_PLUGINS.get());
    }

    #[test]
    fn an_active_plugin_is_not_forgotten_in_favour_of_newer_ones() {
        let events = Events::new();
        let now = Instant::now();
        let say = |name: &str| {
            let sender = Sender { manager: format!("podium/shop/{name}"), impersonate: None };
            events.with(&sender, now, |memories| done(memories, &event("a"), now))
        };
        assert_ne!(say("busy"), Step::Nothing);
        for index in 0..2 * MAX_PLUGINS.get() {
            say(&index.to_string());
            assert_eq!(say("busy"), Step::Nothing, "after {index} others");
        }
        assert_eq!(events.memories.lock().iter().count(), MAX_PLUGINS.get());
    }

    #[test]
    fn an_events_name_is_a_subdomain_however_long_the_pods_is() {
        let long = Event { target: PodKey::new("shop", &"a.".repeat(126), "u1"), ..event("a") };
        let name = name(&long, Digest::new(&["a"]));
        assert!(podium_vocabulary::syntax::dns_subdomain(&name).is_ok(), "{name}");
    }

    #[test]
    fn event_times_have_microseconds() {
        assert_eq!(micro_time(1_763_640_000_007), "2025-11-20T12:00:00.007000Z");
    }
}
