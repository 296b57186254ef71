//! Budgets of requests towards the API server: what plugins and tenants may send, as tokens of the queue.
//!
//! A plugin that may write runs only while it and its tenant have a token, and what the run staged is then sent as a
//! whole, because writes that were staged together belong together; what it sends beyond the tokens is a debt. Nothing
//! waits within a run: a commit or a live read without a token is not sent, and the key is run again when there are
//! tokens; an Event without one is dropped.

use podium_vocabulary::{
    EventResult, PluginSpec, RequestRates, Write, WriteGrants, WriteReport, WriteResult, authz::Authorized,
};

use super::{Dispatch, LoadedPlugin, PodJob};
use crate::{
    ports::{Sent, Staged},
    queue::{Demand, KINDS, Rate},
};

pub use crate::queue::WRITES;
/// The kind of tokens for live reads.
pub const LIVE_READS: usize = 1;
/// The kind of tokens for Events.
pub const EVENTS: usize = 2;

pub(super) const NO_LIVE_READS: &str = "not sent: the live reads per second of the plugin or its tenant are used up";

/// Returns the rates of the plugin, and whether its runs need a token to start: what a run decides would be based on
/// old data when it can be sent.
pub(super) fn demand(spec: &PluginSpec, tenant: RequestRates) -> Demand {
    let write = &spec.grants.write;
    let writes = *write != WriteGrants { events: write.events, ..WriteGrants::default() };
    Demand { lane: rates(spec.limits.requests), tenant: rates(tenant), writes }
}

fn rates(RequestRates { writes, live_reads, events }: RequestRates) -> [Rate; KINDS] {
    let mut rates = [Rate::UNLIMITED; KINDS];
    for (kind, per_second) in [(WRITES, writes), (LIVE_READS, live_reads), (EVENTS, events)] {
        let burst = per_second.saturating_mul(RequestRates::BURST_SECONDS);
        rates[kind] = Rate { per_second, burst };
    }
    rates
}

impl Dispatch {
    /// Drops the Events of a delivery if there is no token for one.
    pub(super) fn admit_events(&self, job: &PodJob, plugin: &LoadedPlugin, staged: &mut Staged) {
        let events = &mut staged.events;
        if !events.is_empty() && !self.queue.has_tokens(job, EVENTS, count(events.len())) {
            events.drain(..).for_each(|_| plugin.status.event(EventResult::Dropped));
        }
    }

    /// Returns the reports of the writes of a commit if there is no token for them.
    pub(super) fn refuse_commit(
        &self,
        job: &PodJob,
        plugin: &LoadedPlugin,
        staged: &Staged,
    ) -> Option<Vec<WriteReport>> {
        let writes = &staged.writes;
        if writes.is_empty() || self.queue.has_tokens(job, WRITES, count(writes.len())) {
            return None;
        }
        let not_sent = writes.iter().map(not_sent).collect::<Vec<_>>();
        plugin.status.wrote(&not_sent, 0);
        Some(not_sent)
    }

    /// Charges the requests that were sent. An Event that waits is sent later.
    pub(super) fn charge(&self, job: &PodJob, sent: &Sent) {
        let delayed = sent.events.iter().filter(|result| **result == EventResult::Delayed).count();
        let writes = sent.requests.saturating_sub(sent.event_requests).saturating_add(sent.reads);
        self.queue.spend(job, WRITES, writes);
        self.queue.spend(job, EVENTS, sent.event_requests.saturating_add(count(delayed)));
    }
}

pub(super) fn not_sent(write: &Authorized<Write>) -> WriteReport {
    let Write { id, action } = write.get();
    WriteReport { id: *id, description: action.describe(), result: WriteResult::NotSent }
}

pub(super) fn count(items: usize) -> u32 {
    u32::try_from(items).unwrap_or(u32::MAX)
}
