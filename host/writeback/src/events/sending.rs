//! Sends waiting Events: plugins take turns with one Event each, so that a plugin with slow or numerous Events delays
//! another by at most one of its requests.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use podium_api::Api;
use podium_engine::{ports::Sender, throttle::RoundRobin};
use podium_vocabulary::EventResult;
use tokio::time::{Instant, sleep_until};

use super::{
    Events,
    memories::Memories,
    requests::{Failure, create},
    warn,
};
use crate::waiting::Entry;

/// How often waiting Events are checked.
const PAUSE: Duration = Duration::from_millis(500);
/// The most Events that are sent concurrently, each of another plugin.
const PARALLEL: usize = 8;

/// The round robin of the plugins.
#[derive(Default)]
struct SendOrder {
    /// Managers whose Event is being sent.
    under_way: BTreeSet<String>,
    order: RoundRobin<String>,
}

impl Events {
    /// Sends waiting Events at their plugin's rate, for as long as it is polled. `senders` returns the senders that
    /// may send Events now; Events of others are dropped.
    pub(in super::super) async fn send_waiting(
        &self,
        api: &Api,
        senders: impl Fn() -> Vec<Sender> + Send + Sync,
        report: impl Fn(&str, EventResult) + Send + Sync,
    ) -> Infallible {
        let may_send = |sender: &Sender| senders().contains(sender);
        let mut turns = SendOrder::default();
        let mut sending = FuturesUnordered::new();
        let mut look_at = Instant::now() + PAUSE;
        loop {
            if sending.is_empty() && self.waiting() == 0 {
                self.arrived.notified().await;
                look_at = Instant::now() + PAUSE;
            }
            tokio::select! {
                biased;
                () = sleep_until(look_at) => {
                    look_at = Instant::now() + PAUSE;
                    self.sort_out(senders(), &report);
                }
                Some((entry, result)) = sending.next(), if !sending.is_empty() => {
                    self.settle(&entry, result, &report);
                    turns.under_way.remove(&entry.sender.manager);
                }
            }
            while turns.under_way.len() < PARALLEL {
                let Some(entry) = self.next(api, &mut turns) else { break };
                sending.push(async move {
                    let revoked = || Err(Failure::Refused("its sender may not send it any more".to_owned()));
                    let result = if may_send(&entry.sender) { create(api, &entry).await } else { revoked() };
                    (entry, result)
                });
            }
        }
    }

    /// Drops Events that have waited too long and those of unknown senders.
    fn sort_out(&self, senders: Vec<Sender>, report: &impl Fn(&str, EventResult)) {
        let senders: BTreeMap<String, Sender> =
            senders.into_iter().map(|sender| (sender.manager.clone(), sender)).collect();
        let now = Instant::now();
        let mut dropped = Vec::new();
        for (manager, memories) in self.memories.lock().iter_mut() {
            let expired = memories.waiting.expired(now);
            for entry in &expired {
                warn(entry, "it has waited for an hour", "Event dropped");
                memories.drop_one(manager);
            }
            let sender = senders.get(manager);
            let left = memories.waiting.take(|entry| Some(&entry.sender) != sender).len();
            if left > 0 {
                tracing::info!(
                    manager,
                    events = left,
                    "Events that waited are dropped: their sender may not send them any more"
                );
            }
            let made_room = std::mem::take(&mut memories.made_room);
            dropped.push((manager.clone(), expired.len() + left + made_room));
        }
        for (manager, count) in dropped {
            (0..count).for_each(|_| report(&manager, EventResult::Dropped));
        }
    }

    /// Returns an Event of the plugin whose turn it is, if its rate permits and the API server did not ask its
    /// account to wait.
    fn next(&self, api: &Api, turns: &mut SendOrder) -> Option<Entry> {
        let now = Instant::now();
        let mut all = self.memories.lock();
        let waits = |manager: &String, of: &Memories| !of.waiting.is_empty() && !turns.under_way.contains(manager);
        let waiting = all.iter().filter(|(manager, memories)| waits(manager, memories));
        let mut managers: Vec<String> = waiting.map(|(manager, _)| manager.clone()).collect();
        turns.order.sort(&mut managers);
        for manager in managers {
            let Some(memories) = all.get_mut(&manager).and_then(|of| of.peek_mut(&manager)) else { continue };
            if !memories.all.wait(1, now).is_zero() {
                continue;
            }
            let next = memories.waiting.next(now);
            if let Some(entry) = next.filter(|entry| api.held(entry.sender.impersonate.as_deref()).is_none()) {
                // Each attempt counts, because refused requests are requests too.
                memories.all.take(1, now);
                turns.order.took(manager.clone());
                turns.under_way.insert(manager);
                return Some(entry);
            }
        }
        None
    }

    fn settle(&self, entry: &Entry, result: Result<(), Failure>, report: &impl Fn(&str, EventResult)) {
        let now = Instant::now();
        let manager = &entry.sender.manager;
        let was_sent = result.is_ok();
        if let Err(failure) = result {
            match failure {
                // The Event keeps its place: the hold is checked before the next attempt.
                Failure::Held(_) => return,
                Failure::Refused(message) => warn(entry, &message, "Event dropped"),
                Failure::Denied(message) | Failure::Away(message) => {
                    warn(entry, &message, "Event not sent; will be retried");
                    return self.with(&entry.sender, now, |memories| memories.waiting.failed(entry, now));
                }
            }
        }
        let result = self.with(&entry.sender, now, |memories| {
            let waited = memories.waiting.done(entry);
            if was_sent {
                memories.record_sent(entry.digest, 1, now);
            }
            // An Event that was removed meanwhile is already counted.
            waited.then(|| if was_sent { EventResult::Sent } else { memories.drop_one(manager) })
        });
        if let Some(result) = result {
            report(manager, result);
        }
    }
}
