//! Budgets of requests towards the API server: what plugins and tenants may send, as tokens of the queue.
//!
//! A run starts with the tokens that the plugin's runs lately used. Within the run nothing waits: a write without a
//! token is not sent, and the key is run again when there are tokens. A delivery that has one token is sent as a whole,
//! because writes that were staged together belong together; what it sends beyond its tokens is a debt.

use podium_vocabulary::{EventResult, PluginSpec, RequestRates, WriteGrants, WriteReport, WriteResult};

use super::{Dispatch, LoadedPlugin, PodJob, PodQueue};
use crate::{
    ports::{Sent, Staged},
    queue::{Demand, KINDS, Rate},
};

/// The kind of tokens for writes.
pub const WRITES: usize = 0;
/// The kind of tokens for live reads.
pub const LIVE_READS: usize = 1;
/// The kind of tokens for Events.
pub const EVENTS: usize = 2;

pub(super) const NO_LIVE_READS: &str = "not sent: the live reads per second of the plugin or its tenant are used up";

/// Returns what runs of the plugin need of tokens. A run that may write needs one to start: what it decides would be
/// based on old data when it can be sent.
pub(super) fn demand(spec: &PluginSpec, tenant: RequestRates) -> Demand {
    let write = &spec.grants.write;
    let may_write = *write != WriteGrants { events: write.events, ..WriteGrants::default() };
    let mut least = [0; KINDS];
    least[WRITES] = may_write.into();
    Demand { lane: rates(spec.limits.requests), tenant: rates(tenant), least }
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
    /// Charges tokens for the writes and Events that a run staged. Events without a token are dropped.
    ///
    /// # Errors
    /// Returns the reports of all writes if there is no token for them. Nothing may be sent then; their Events are
    /// emitted again with the next attempt.
    pub(super) fn admit(
        &self,
        job: &PodJob,
        plugin: &LoadedPlugin,
        staged: &mut Staged,
    ) -> Result<(), Vec<WriteReport>> {
        let count = |items: usize| u32::try_from(items).unwrap_or(u32::MAX);
        let Staged { writes, events } = staged;
        if !writes.is_empty() && !self.queue.spend(job, WRITES, count(writes.len())) {
            let not_sent = writes.iter().map(|write| {
                let write = write.get();
                WriteReport { id: write.id, description: write.action.describe(), result: WriteResult::NotSent }
            });
            let not_sent = not_sent.collect::<Vec<_>>();
            plugin.status.wrote(&not_sent, 0);
            return Err(not_sent);
        }
        if !events.is_empty() && !self.queue.spend(job, EVENTS, count(events.len())) {
            events.drain(..).for_each(|_| plugin.status.event(EventResult::Dropped));
        }
        Ok(())
    }
}

/// The kinds of tokens of which a delivery has one.
pub(super) struct Admitted {
    writes: bool,
    events: bool,
}

impl Admitted {
    pub(super) fn of(staged: &Staged) -> Self {
        Self { writes: !staged.writes.is_empty(), events: !staged.events.is_empty() }
    }

    /// Charges the requests that were sent. An Event that waits is sent later.
    pub(super) fn used(&self, queue: &PodQueue, job: &PodJob, sent: &Sent) {
        let delayed = sent.events.iter().filter(|result| **result == EventResult::Delayed).count();
        let delayed = u32::try_from(delayed).unwrap_or(u32::MAX);
        if self.writes {
            queue.spent(job, WRITES, sent.requests.saturating_sub(sent.event_requests).saturating_add(sent.reads));
        }
        if self.events {
            queue.spent(job, EVENTS, sent.event_requests.saturating_add(delayed));
        }
    }
}
