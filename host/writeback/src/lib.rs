//! Sends authorised writes as few API requests (plan, pure) and returns their reports (apply, IO). Also sends Events.
//!
//! The requests of one delivery are sent one after the other, in the order of the plan. After a failed request:
//! - later requests on the same object are `not-sent`, because they were staged under the assumption that it
//!   succeeds; if the incarnation is gone, they are `gone`;
//! - requests on other objects are sent, because they are independent;
//! - if the API server is unreachable or overloaded, or a response was lost, all later requests are `not-sent`, and
//!   Events wait. The same applies to requests that were not tried within the deadline of the delivery.
//!
//! A write to which the account had no right a moment ago is not sent, and is `forbidden` too ([`closings`]).
//!
//! No write is sent twice. After a lost response one read determines the result. If it cannot, the result is
//! `unknown`, and the plugin runs again on newer data.

#![warn(missing_docs)]
// A new action has a place in every match.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests have files and tasks of their own"
    )
)]

mod answer;
mod applied;
mod apply;
mod children;
mod closings;
mod digest;
mod events;
mod http;
mod objects;
mod owners;
mod plan;
mod scale;
mod shares;
mod waiting;

#[cfg(test)]
mod tests;

use std::{convert::Infallible, time::Duration};

pub use children::{ChangedChild, Child, Origin, child_selector};
pub use closings::ClosedKind;
use digest::Digest;
use futures::future::BoxFuture;
use podium_engine::ports::{Deliver, Sender, Sent, Staged, Trace, TracedPart, WriteTime};
use podium_pods::pod::PodView;
use podium_vocabulary::{
    Event, EventResult, ObjectGrant, PluginId, PodKey, Prune, Tenant, WriteReport, WriteResult, authz::Authorized,
    text::TextBudget,
};
use tokio::time::Instant;

use podium_api::Api;

/// Deadline of one request. It leaves time for admission webhooks and priority queues, and within a delivery for the
/// read after a lost response.
const DEADLINE: Duration = Duration::from_secs(8);
/// The timeout after which the API server ends a write, shorter than the host's own deadline.
const SERVER_TIMEOUT: Duration = Duration::from_secs(7);
/// Deadline of a delivery, with all its writes, reads and Events. It occupies a place of its tenant during that time,
/// and no worker.
const DELIVERY_DEADLINE: Duration = Duration::from_secs(10);
/// The most bytes of the API server's messages in the reports of one delivery. Merged writes share one message.
const MAX_REPORTED_BYTES: usize = 64 << 10;
/// The longest `fieldManager` that the API server accepts.
const MAX_MANAGER_BYTES: usize = 128;

/// Returns a plugin's name as a field manager, for [`Sender::manager`]: `podium/` and the plugin. A name that is
/// longer than the API server accepts is cut, with a digest of the whole name at its end.
#[must_use]
pub fn manager_name(plugin: &PluginId) -> String {
    let mut name = format!("podium/{plugin}");
    if name.len() > MAX_MANAGER_BYTES {
        let digest = Digest::new(&[&name]).hex();
        let end = name.floor_char_boundary(MAX_MANAGER_BYTES - 1 - digest.len());
        name.truncate(end);
        name = format!("{name}-{digest}");
    }
    name
}

/// Returns the tenant of the plugin that has this name as a field manager. A namespace is never cut.
fn tenant(manager: &str) -> Tenant {
    let plugin = manager.strip_prefix("podium/").unwrap_or(manager);
    plugin.split_once('/').map_or(Tenant::Cluster, |(namespace, _)| Tenant::Namespace(namespace.into()))
}

/// Sends authorised writes and Events.
pub struct Writeback {
    api: Api,
    objects: objects::Objects,
    owners: owners::Owners,
    events: events::Events,
    closings: closings::Closings,
    prune: Prune,
}

impl Writeback {
    /// Returns a writeback. Each request gets 8 s and each delivery 10 s, regardless of the deadline of `api`, which
    /// should observe Retry-After ([`Api::with_backpressure`]). `prune` names the annotations that the cache lacks.
    #[must_use]
    pub fn new(api: &Api, prune: Prune) -> Self {
        Self {
            api: api.with_deadline(DEADLINE),
            objects: objects::Objects::new(),
            owners: owners::Owners::new(),
            events: events::Events::new(),
            closings: closings::Closings::default(),
            prune,
        }
    }

    /// Sends Events that could not be sent when they were emitted, for as long as it is polled. `report` receives the
    /// result of each and the manager of its sender. `senders` returns the senders that may send Events now: Events
    /// of others, such as an unloaded plugin or one with a new account, are dropped.
    pub async fn send_waiting_events(
        &self,
        senders: impl Fn() -> Vec<Sender> + Send + Sync,
        report: impl Fn(&str, EventResult) + Send + Sync,
    ) -> Infallible {
        self.events.send_waiting(&self.api, senders, report).await
    }

    /// Returns the kinds of writes of which RBAC refused one within the last 10 minutes, and has permitted none since.
    #[must_use]
    pub fn closed_kinds(&self) -> Vec<ClosedKind> {
        self.closings.closed(Instant::now())
    }

    /// Returns the number of waiting Events.
    #[must_use]
    pub fn waiting_events(&self) -> usize {
        self.events.waiting()
    }

    /// Records what a watch shows of an object of this kind that the plugin with this field manager may have applied.
    /// It is read by the next apply if another client has changed the plugin's fields of it.
    pub fn see_child(&self, manager: &str, kind: &ObjectGrant, child: &Child, deleted: bool) {
        self.objects.see(manager, kind, child, deleted);
    }

    /// Records that a list has these objects of the kind, and no others, as [`Self::see_child`] does for one.
    pub fn see_children(&self, manager: &str, kind: &ObjectGrant, children: &[Child]) {
        self.objects.see_all(manager, kind, children);
    }

    /// Waits until a watch has shown that another client has changed or deleted an object that a plugin applied, and
    /// returns it once for each time.
    pub async fn next_changed_child(&self) -> ChangedChild {
        self.objects.next_changed().await
    }

    async fn run(
        &self,
        sender: &Sender,
        subject: &PodKey,
        view: &dyn PodView,
        staged: Staged,
        now_millis: u64,
    ) -> Sent {
        let api = self.api.with_end(Instant::now() + DELIVERY_DEADLINE).for_tenant(tenant(&sender.manager));
        let events: Vec<&Event> =
            staged.events.iter().map(Authorized::get).filter(|event| is_known(&event.target, subject, view)).collect();
        let described: Vec<(u32, String)> =
            staged.writes.iter().map(|write| (write.get().id, write.get().action.describe())).collect();
        let plan = plan::plan(staged.writes, view, &self.prune, now_millis);
        let mut results = plan.results;
        let mut sent = Sent::default();
        let mut delivery = apply::Delivery::new(self, &api, sender, subject, staged.forced);
        for planned in plan.requests {
            if let (Some(Trace { id, is_sampled: true }), Some(first)) = (staged.trace, planned.ids.iter().min()) {
                delivery.trace(&id.parent(TracedPart::Write(*first)));
            }
            let requests = sent.requests;
            let began = Instant::now();
            let result = delivery.send(planned.request, &mut sent).await;
            if staged.trace.is_some() && sent.requests > requests {
                let took = began.elapsed();
                sent.times.extend(planned.ids.iter().map(|id| WriteTime { id: *id, began, took }));
            }
            results.extend(planned.ids.into_iter().map(|id| (id, result.clone())));
        }
        // Events depend on changes; see `events`.
        let changed = results.values().any(|result| *result == WriteResult::Applied);
        if !events.is_empty() && (changed || described.is_empty()) {
            // After a failed request Events wait: the change is made, and the next run will not emit them again.
            let reachable = !delivery.is_cut_off();
            let writes = sent.requests;
            self.events.send(&api, sender, &events, reachable, now_millis, &mut sent).await;
            sent.event_requests = sent.requests - writes;
        }
        // A request that was refused or lost is retried when the sender may send again.
        sent.retry_after = sent.retry_after.max(self.held(sender));
        let mut texts = TextBudget::new(MAX_REPORTED_BYTES);
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

/// Returns true if the target exists. A plugin chooses the targets of its Events freely, and Events about missing
/// Pods would fill the memory of Events by Pod.
fn is_known(target: &PodKey, subject: &PodKey, view: &dyn PodView) -> bool {
    let known = target == subject || view.get(&target.namespace, &target.name).is_some_and(|pod| pod.key == *target);
    if !known {
        tracing::debug!(pod = %target, "Event about an unknown Pod dropped");
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
