//! The tokens of lanes and tenants. Requests of a job are charged when they were sent, also into debt; a lane that
//! sends is closed until its own buckets and those of its tenant hold a token again. A closed lane is not listed, so
//! it does not wait for memory and gains no virtual time.
//!
//! A lane that lacks its own tokens has a timer. The lanes of a tenant that lacks tokens wait together, and only the
//! tenant has a timer. Then they are listed one after the other, the one that started least recently first, and all
//! when there is a token for each.

use std::{collections::BTreeMap, hash::Hash, time::Duration};

use tokio::time::Instant;

use super::{
    super::tokens::{Demand, KINDS, WRITES},
    Turns,
};
use crate::throttle::{Bucket, Rate};

/// The buckets of a lane or of a tenant.
#[derive(Debug)]
pub(super) struct Buckets([Bucket; KINDS]);

impl Buckets {
    /// They are unlimited until [`Self::set_rates`].
    pub(super) fn new(now: Instant) -> Self {
        Self([Bucket::full(Rate::UNLIMITED, now); KINDS])
    }

    fn set_rates(&mut self, rates: [Rate; KINDS], now: Instant) {
        self.0.iter_mut().zip(rates).for_each(|(bucket, rate)| bucket.set_rate(rate, now));
    }

    /// True if no token is missing.
    pub(super) fn are_full(&self, now: Instant) -> bool {
        self.0.iter().all(|bucket| bucket.wait(bucket.burst(), now).is_zero())
    }

    fn wait(&self, kind: usize, now: Instant) -> Duration {
        self.0[kind].wait(1, now)
    }
}

/// The tokens of a lane.
#[derive(Debug)]
pub(super) struct LaneTokens {
    buckets: Buckets,
    /// Its jobs may write.
    writes: bool,
    /// Its jobs were refused a request of this kind since it was listed.
    short: [bool; KINDS],
    waits: Waits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    No,
    /// Until the timer is due.
    Timer(TimerKey),
    /// With the lanes of its tenant, under this number.
    Tenant(u64),
}

/// When a timer is due; the number distinguishes timers of one instant.
type TimerKey = (Instant, u64);

impl LaneTokens {
    pub(super) fn new(now: Instant) -> Self {
        Self { buckets: Buckets::new(now), writes: false, short: [false; KINDS], waits: Waits::No }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waits != Waits::No
    }
}

/// The tokens of a tenant.
#[derive(Debug)]
pub(super) struct TenantTokens<L> {
    pub(super) buckets: Buckets,
    /// Closed lanes, the one that started least recently first.
    waiting: BTreeMap<u64, L>,
    /// The one of them that was listed last, until it starts.
    pub(super) admitted: Option<L>,
    timer: Option<TimerKey>,
    /// The writes, live reads and Events that were not sent during runs for want of tokens.
    pub(super) refused: [u64; KINDS],
}

impl<L: Copy + PartialEq> TenantTokens<L> {
    pub(super) fn new(now: Instant) -> Self {
        let buckets = Buckets::new(now);
        let waiting = BTreeMap::new();
        let admitted = None;
        let timer = None;
        Self { buckets, waiting, admitted, timer, refused: [0; KINDS] }
    }

    /// True if a lane has to wait for a token, or for its turn to have one.
    fn is_closed(&self, lane: L, now: Instant) -> bool {
        let is_shared = self.admitted.is_some() || !self.waiting.is_empty();
        !self.buckets.wait(WRITES, now).is_zero() || is_shared && self.admitted != Some(lane)
    }
}

/// The lanes to look at when tokens are due.
#[derive(Debug, Clone, Copy)]
pub(super) enum Timer<L> {
    Lane(L),
    Tenant(u32),
}

impl<L> Turns<L>
where
    L: Copy + Eq + Hash,
{
    /// Sets the rates of a lane's and its tenant's buckets. [`Self::set_due`] follows.
    pub(super) fn set_demand(&mut self, lane: L, demand: &Demand, now: Instant) {
        let Some(state) = self.lanes.get_mut(&lane) else { return };
        state.tokens.buckets.set_rates(demand.lane, now);
        state.tokens.writes = demand.writes;
        if let Some(tenant) = self.tenants.get_mut(&state.tenant) {
            tenant.tokens.buckets.set_rates(demand.tenant, now);
        }
    }

    /// Returns when the next lane may have its tokens.
    pub(crate) fn next_tokens(&self) -> Option<Instant> {
        self.timers.first_key_value().map(|((due, _), _)| *due)
    }

    /// Lists the lanes that have their tokens by now.
    pub(super) fn hand_out(&mut self, now: Instant) {
        while let Some(first) = self.timers.first_entry().filter(|first| first.key().0 <= now) {
            match first.remove() {
                Timer::Lane(lane) => {
                    let Some(state) = self.lanes.get_mut(&lane) else { continue };
                    state.tokens.waits = Waits::No;
                    self.place(lane, now);
                }
                Timer::Tenant(number) => {
                    if let Some(tenant) = self.tenants.get_mut(&number) {
                        tenant.tokens.timer = None;
                    }
                    self.serve(number, now);
                }
            }
        }
    }

    /// Returns true if the lane is open. Otherwise it waits.
    pub(super) fn is_open(&mut self, lane: L, now: Instant) -> bool {
        let Some(state) = self.lanes.get_mut(&lane) else { return false };
        match state.tokens.waits {
            Waits::No => {}
            Waits::Timer(at) => drop(self.timers.remove(&at)),
            Waits::Tenant(_) => return false,
        }
        let tokens = &mut state.tokens;
        tokens.waits = Waits::No;
        let Some(tenant) = self.tenants.get_mut(&state.tenant) else { return false };
        let own = if tokens.writes { tokens.buckets.wait(WRITES, now) } else { Duration::ZERO };
        let short = (0..KINDS).filter(|kind| tokens.short[*kind]);
        let refused = short.map(|kind| tokens.buckets.wait(kind, now).max(tenant.tokens.buckets.wait(kind, now)));
        let wait = refused.max().unwrap_or_default().max(own);
        if !wait.is_zero() {
            self.numbers += 1;
            let at = (now + wait, self.numbers);
            tokens.waits = Waits::Timer(at);
            self.timers.insert(at, Timer::Lane(lane));
            self.delayed.push(lane);
            return false;
        }
        tokens.short = [false; KINDS];
        if tokens.writes && tenant.tokens.is_closed(lane, now) {
            let (_, turn) = state.account.key();
            tokens.waits = Waits::Tenant(turn);
            tenant.tokens.waiting.insert(turn, lane);
            self.delayed.push(lane);
            return false;
        }
        true
    }

    /// The lane does not wait for tokens any more, because it may not start. Returns false.
    pub(super) fn end_waiting(&mut self, lane: L) -> bool {
        if let Some(state) = self.lanes.get_mut(&lane) {
            match std::mem::replace(&mut state.tokens.waits, Waits::No) {
                Waits::No => {}
                Waits::Timer(at) => drop(self.timers.remove(&at)),
                Waits::Tenant(turn) => {
                    if let Some(tenant) = self.tenants.get_mut(&state.tenant) {
                        tenant.tokens.waiting.remove(&turn);
                    }
                }
            }
        }
        false
    }

    /// Lists the next of a tenant's lanes that waited for its tokens, if there are any, and refreshes the tenant.
    pub(super) fn serve(&mut self, number: u32, now: Instant) {
        while let Some(tenant) = self.tenants.get_mut(&number) {
            let tokens = &mut tenant.tokens;
            // With a token for each of them, their order is that of their costs again.
            let lanes = u32::try_from(tokens.waiting.len()).unwrap_or(u32::MAX).saturating_add(1);
            let is_enough = tokens.buckets.0[WRITES].wait(lanes, now).is_zero();
            if is_enough {
                tokens.admitted = None;
            }
            if tokens.admitted.is_some() || !tokens.buckets.wait(WRITES, now).is_zero() {
                break;
            }
            let Some((_, lane)) = tokens.waiting.pop_first() else { break };
            tokens.admitted = Some(lane);
            if let Some(state) = self.lanes.get_mut(&lane) {
                state.tokens.waits = Waits::No;
            }
            self.put(lane, now);
            let is_listed = self.lanes.get(&lane).is_some_and(|state| state.listed.is_some());
            if let Some(tenant) = self.tenants.get_mut(&number).filter(|_| is_enough || !is_listed) {
                tenant.tokens.admitted = None;
            }
        }
        self.set_timer(number, now);
        self.refresh(number, now);
    }

    /// Sets the timer of the lanes that wait for a tenant's tokens.
    fn set_timer(&mut self, number: u32, now: Instant) {
        let Some(tenant) = self.tenants.get_mut(&number) else { return };
        let tokens = &mut tenant.tokens;
        let waits = !tokens.waiting.is_empty() && tokens.admitted.is_none();
        let due = waits.then(|| now + tokens.buckets.wait(WRITES, now));
        if tokens.timer.map(|(at, _)| at) == due {
            return;
        }
        if let Some(at) = tokens.timer.take() {
            self.timers.remove(&at);
        }
        if let Some(due) = due {
            self.numbers += 1;
            tokens.timer = Some((due, self.numbers));
            self.timers.insert((due, self.numbers), Timer::Tenant(number));
        }
    }

    /// Returns whether a job may send a request now. If it may not, counts the `refused` requests, and the lane is
    /// closed until it may.
    pub(crate) fn has_tokens(&mut self, job: u64, kind: usize, refused: u32, now: Instant) -> bool {
        let Some(taken) = self.taken.get(&job) else { return false };
        let Some(tenant) = self.tenants.get_mut(&taken.claim.tenant) else { return false };
        let mut lane = self.lanes.get_mut(&taken.lane).filter(|lane| lane.tenant == taken.claim.tenant);
        let own = lane.as_ref().map(|lane| lane.tokens.buckets.wait(kind, now)).unwrap_or_default();
        let has_tokens = own.max(tenant.tokens.buckets.wait(kind, now)).is_zero();
        if !has_tokens {
            tenant.tokens.refused[kind] += u64::from(refused);
            if let Some(lane) = &mut lane {
                lane.tokens.short[kind] = true;
            }
            self.close(taken.claim.tenant, taken.lane, now);
        }
        has_tokens
    }

    /// Charges a job, its lane and its tenant for requests that were sent.
    pub(crate) fn spend(&mut self, job: u64, kind: usize, requests: u32, now: Instant) {
        let Some(taken) = self.taken.get(&job).copied().filter(|_| requests > 0) else { return };
        let Some(tenant) = self.tenants.get_mut(&taken.claim.tenant) else { return };
        tenant.tokens.buckets.0[kind].take(requests, now);
        if let Some(lane) = self.lanes.get_mut(&taken.lane).filter(|lane| lane.tenant == taken.claim.tenant) {
            lane.tokens.buckets.0[kind].take(requests, now);
        }
        self.close(taken.claim.tenant, taken.lane, now);
    }

    /// Closes the lane, and all lanes of the tenant that write, if they have no tokens any more.
    fn close(&mut self, number: u32, lane: L, now: Instant) {
        let Some(tenant) = self.tenants.get(&number) else { return };
        if !tenant.tokens.buckets.wait(WRITES, now).is_zero() {
            let lanes: Vec<L> = tenant.listed(0).collect();
            lanes.into_iter().for_each(|lane| self.put(lane, now));
        }
        self.place(lane, now);
        self.serve(number, now);
    }
}

#[cfg(test)]
mod tests;
