//! From authorised writes to the fewest API requests (plan, pure) and back with reports (apply, IO); Events beside
//! them.
//!
//! Of one delivery, requests go out one after the other, in the order of the plan. After one that did not do what it
//! should:
//! - later requests on the same object are `not-sent`, for they were staged on the belief that it would; where the
//!   incarnation is gone, they are `gone`;
//! - requests on other objects go on, as each is right by itself;
//! - where the API server cannot be reached, is overloaded or lost an answer, everything after it is `not-sent`, and
//!   Events wait. So it is with what has not been tried when the time for the whole delivery has passed.
//!
//! Nothing is ever sent twice. An answer that was lost is looked for by one read, and is `unknown` where that does not
//! decide; then the plugin is run again on newer data.

mod answer;
mod applied;
mod apply;
mod digest;
mod events;
mod http;
mod objects;
mod plan;
mod waiting;

#[cfg(test)]
mod tests;

use std::{convert::Infallible, sync::Arc, time::Duration};

use digest::Digest;
use podium_engine::{
    authz::Authorized,
    ports::{Deliver, Sender, Sent, Staged},
};
use podium_pods::{
    encoding::SkeletonPool,
    model::{BoxFuture, Event, EventResult, PluginId, PodKey, WriteReport, WriteResult, text::Budget},
    pod::PodView,
};
use tokio::time::Instant;

use crate::api::Api;

/// How long one request may take: what an admission webhook or a queue of priority and fairness may take, within a
/// delivery, and leaving time for the read after a lost answer.
const DEADLINE: Duration = Duration::from_secs(8);
/// When the API server is to end a write itself: before the host's own deadline.
const SERVER_TIMEOUT: Duration = Duration::from_secs(7);
/// How long a delivery may take, with all its writes, reads and Events: meanwhile it holds a worker.
const DELIVERY_DEADLINE: Duration = Duration::from_secs(10);
/// What the API server says about the writes of one delivery, in all: writes that were merged share one text.
const MAX_REPORTED_BYTES: usize = 64 << 10;
/// The API server refuses a longer `fieldManager`.
const MAX_MANAGER_BYTES: usize = 128;

/// The manager's name of a plugin, for [`Sender::manager`]: `podium/` and the plugin, readable; a name that is longer
/// than the API server accepts is cut, with a digest of the whole at its end.
#[must_use]
pub fn manager_name(plugin: &PluginId) -> String {
    let mut name = format!("podium/{plugin}");
    if name.len() > MAX_MANAGER_BYTES {
        let digest = Digest::of(&[&name]).hex();
        let end = name.floor_char_boundary(MAX_MANAGER_BYTES - 1 - digest.len());
        name.truncate(end);
        name = format!("{name}-{digest}");
    }
    name
}

/// Sends authorised writes and Events.
pub struct Writeback {
    api: Api,
    objects: objects::Objects,
    events: events::Events,
    pool: Arc<SkeletonPool>,
}

impl Writeback {
    /// Each request gets 8 s and each delivery 10 s, whatever the deadline of `api`, which is to keep to Retry-After
    /// ([`Api::with_backpressure`]). `pool` is the cache's: the Pods that come back go there.
    #[must_use]
    pub fn new(api: &Api, pool: Arc<SkeletonPool>) -> Self {
        let (objects, events) = (objects::Objects::new(), events::Events::new());
        Self { api: api.with_deadline(DEADLINE), objects, events, pool }
    }

    /// Sends Events that could not be sent when they were emitted, for as long as it is polled. `report` receives the
    /// result of each and the manager of its sender. `senders` returns the senders that may send Events now: Events
    /// of others, such as a plugin that was taken out or has another account now, are dropped.
    pub async fn send_waiting_events(
        &self,
        senders: impl Fn() -> Vec<Sender> + Send + Sync,
        report: impl Fn(&str, EventResult) + Send + Sync,
    ) -> Infallible {
        self.events.send_waiting(&self.api, senders, report).await
    }

    /// How many Events wait.
    #[must_use]
    pub fn waiting_events(&self) -> usize {
        self.events.waiting()
    }

    async fn run(
        &self,
        sender: &Sender,
        subject: &PodKey,
        view: &dyn PodView,
        staged: Staged,
        now_millis: u64,
    ) -> Sent {
        let api = self.api.until(Instant::now() + DELIVERY_DEADLINE);
        let events: Vec<&Event> =
            staged.events.iter().map(Authorized::get).filter(|event| is_known(&event.target, subject, view)).collect();
        let described: Vec<(u32, String)> =
            staged.writes.iter().map(|write| (write.get().id, write.get().action.describe())).collect();
        let plan = plan::plan(staged.writes, view, self.pool.prune(), now_millis);
        let mut results = plan.results;
        let mut sent = Sent::default();
        let mut delivery = apply::Delivery::new(&api, &self.objects, &self.pool, sender);
        for planned in plan.requests {
            let result = delivery.send(planned.request, &mut sent).await;
            results.extend(planned.ids.into_iter().map(|id| (id, result.clone())));
        }
        // Events go with changes; see `events`.
        let changed = results.values().any(|result| *result == WriteResult::Applied);
        if !events.is_empty() && (changed || described.is_empty()) {
            // Behind what could not be sent they wait: the change is made, and the next run will not emit them again.
            let reachable = !delivery.is_cut_off();
            self.events.send(&api, sender, &events, reachable, now_millis, &mut sent).await;
        }
        // Whoever was turned away, or got no answer, comes back when requests of the sender may be sent.
        sent.retry_after = sent.retry_after.max(self.held(sender));
        let mut texts = Budget::new(MAX_REPORTED_BYTES);
        sent.reports = described
            .into_iter()
            .map(|(id, description)| {
                // The plan names every write.
                let mut result = results.remove(&id).unwrap_or(WriteResult::NotSent);
                if let Some(text) = result.text_mut() {
                    texts.take(text);
                }
                WriteReport { id, description, result }
            })
            .collect();
        sent
    }
}

/// A plugin names the targets of its Events freely; an Event about no existing Pod would fill the memory that is kept
/// for each Pod.
fn is_known(target: &PodKey, subject: &PodKey, view: &dyn PodView) -> bool {
    let known = target == subject || view.get(&target.namespace, &target.name).is_some_and(|pod| pod.key == *target);
    if !known {
        tracing::debug!(pod = %target, "an Event about no known Pod was dropped");
    }
    known
}

impl Deliver for Writeback {
    fn deliver<'a>(
        &'a self,
        sender: &'a Sender,
        subject: &'a PodKey,
        view: &'a dyn PodView,
        staged: Staged,
        now_millis: u64,
    ) -> BoxFuture<'a, Sent> {
        Box::pin(self.run(sender, subject, view, staged, now_millis))
    }

    fn held(&self, sender: &Sender) -> Option<Duration> {
        self.api.held(sender.impersonate.as_deref())
    }
}
