//! The tokens of lanes and tenants. A lane is listed only with the tokens for its next job in its hand, from its own
//! buckets and those of its tenant; a lane without all of them waits unlisted, so it does not wait for memory and gains
//! no virtual time.
//!
//! A lane that lacks its own tokens has a timer. Lanes that lack tokens of their tenant wait in the order in which
//! they came, by kind, and only the first of them has a timer, so a token wakes one lane and not all.

use std::{collections::BTreeMap, hash::Hash, time::Duration};

use tokio::time::Instant;

use super::{
    super::tokens::{Amounts, Demand, KINDS, RecentTokens},
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

    /// Returns whether a rate has changed.
    fn set_rates(&mut self, rates: [Rate; KINDS], now: Instant) -> bool {
        let changes = self.0.iter_mut().zip(rates).map(|(bucket, rate)| bucket.set_rate(rate, now));
        changes.fold(false, |changed, change| changed | change)
    }

    /// True if no token is missing.
    pub(super) fn are_full(&self, now: Instant) -> bool {
        self.0.iter().all(|bucket| bucket.wait(bucket.burst(), now).is_zero())
    }

    pub(super) fn give_back(&mut self, amounts: Amounts, now: Instant) {
        self.0.iter_mut().zip(amounts).filter(|(_, tokens)| *tokens > 0).for_each(|(bucket, tokens)| {
            bucket.give_back(tokens, now);
        });
    }
}

/// The tokens of a lane.
#[derive(Debug)]
pub(super) struct LaneTokens {
    pub(super) buckets: Buckets,
    pub(super) lately: RecentTokens,
    least: Amounts,
    /// Taken for the next job, while the lane is listed or waits for others.
    pub(super) hand: Amounts,
    waits: Waits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    No,
    /// The lane lacks its own tokens; the timer is due when it has them.
    Own(TimerKey),
    /// The lane lacks tokens of its tenant: their kind, and its number among the lanes that wait for them.
    Tenant(usize, u64),
}

/// When a timer is due; the number distinguishes timers of one instant.
type TimerKey = (Instant, u64);

impl LaneTokens {
    pub(super) fn new(now: Instant) -> Self {
        let (buckets, lately) = (Buckets::new(now), RecentTokens::default());
        Self { buckets, lately, least: [0; KINDS], hand: [0; KINDS], waits: Waits::No }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waits != Waits::No
    }
}

/// The tokens of a tenant.
#[derive(Debug)]
pub(super) struct TenantTokens<L> {
    pub(super) buckets: Buckets,
    /// Lanes that wait for tokens, by kind, the first to wait first.
    waiting: [BTreeMap<u64, L>; KINDS],
    /// The timers of the first of them.
    timers: [Option<TimerKey>; KINDS],
    /// The writes, live reads and Events that were not sent during runs for want of tokens.
    pub(super) refused: [u64; KINDS],
}

impl<L> TenantTokens<L> {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            buckets: Buckets::new(now),
            waiting: std::array::from_fn(|_| BTreeMap::new()),
            timers: [None; KINDS],
            refused: [0; KINDS],
        }
    }
}

/// The lanes to look at when tokens are due.
#[derive(Debug, Clone, Copy)]
pub(super) enum Timer<L> {
    Lane(L),
    Tenant(u32, usize),
}

impl<L> Turns<L>
where
    L: Copy + Eq + Hash,
{
    /// Sets the rates of a lane's and its tenant's buckets.
    pub(super) fn set_demand(&mut self, lane: L, demand: &Demand, now: Instant) {
        let Some(state) = self.lanes.get_mut(&lane) else { return };
        state.tokens.buckets.set_rates(demand.lane, now);
        state.tokens.least = demand.least;
        let number = state.tenant;
        let Some(tenant) = self.tenants.get_mut(&number) else { return };
        if tenant.tokens.buckets.set_rates(demand.tenant, now) {
            self.serve(number, now);
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
                    let tenant = state.tenant;
                    self.list(lane, None, now);
                    self.refresh(tenant, now);
                }
                Timer::Tenant(number, kind) => {
                    if let Some(tenant) = self.tenants.get_mut(&number) {
                        tenant.tokens.timers[kind] = None;
                    }
                    self.serve(number, now);
                }
            }
        }
    }

    /// Reserves the tokens for the lane's next job. If they are not there, the lane waits, and this returns false.
    /// `admitted` is the kind for which the lane has waited its turn. While it waits for another kind, it keeps those
    /// that it has: otherwise lanes that need only one kind would go before it again and again.
    pub(super) fn fill_hand(&mut self, lane: L, admitted: Option<usize>, now: Instant) -> bool {
        let need = self.need(lane);
        let Some(state) = self.lanes.get_mut(&lane) else { return false };
        match state.tokens.waits {
            Waits::No => {}
            Waits::Own(at) => drop(self.timers.remove(&at)),
            Waits::Tenant(..) => return false,
        }
        state.tokens.waits = Waits::No;
        let Some(tenant) = self.tenants.get_mut(&state.tenant) else { return false };
        let own = (0..KINDS).filter(|kind| need[*kind] > 0);
        let own = own.map(|kind| state.tokens.buckets.0[kind].wait(need[kind], now)).max().unwrap_or_default();
        if own > Duration::ZERO {
            self.numbers += 1;
            let at = (now + own, self.numbers);
            state.tokens.waits = Waits::Own(at);
            self.timers.insert(at, Timer::Lane(lane));
            return false;
        }
        for kind in (0..KINDS).filter(|kind| need[*kind] > 0) {
            let wait = tenant.tokens.buckets.0[kind].wait(need[kind], now);
            let is_first = admitted == Some(kind) || tenant.tokens.waiting[kind].is_empty();
            if is_first && wait == Duration::ZERO {
                state.tokens.buckets.0[kind].take(need[kind], now);
                tenant.tokens.buckets.0[kind].take(need[kind], now);
                state.tokens.hand[kind] += need[kind];
                continue;
            }
            self.numbers += 1;
            state.tokens.waits = Waits::Tenant(kind, self.numbers);
            tenant.tokens.waiting[kind].insert(self.numbers, lane);
            let number = state.tenant;
            self.set_timer(number, kind, now);
            return false;
        }
        true
    }

    /// Returns the tokens that a job of the lane needs to start, beside those in its hand.
    fn need(&self, lane: L) -> Amounts {
        let Some(state) = self.lanes.get(&lane) else { return [0; KINDS] };
        let Some(tenant) = self.tenants.get(&state.tenant) else { return [0; KINDS] };
        let (next, least) = (state.tokens.lately.next(), state.tokens.least);
        std::array::from_fn(|kind| {
            let most = state.tokens.buckets.0[kind].burst().min(tenant.tokens.buckets.0[kind].burst());
            next[kind].max(least[kind]).min(most).saturating_sub(state.tokens.hand[kind])
        })
    }

    /// Returns the tokens to the buckets with which the lane was listed. The caller calls [`Self::serve`].
    pub(super) fn empty_hand(&mut self, lane: L, now: Instant) {
        let Some(state) = self.lanes.get_mut(&lane) else { return };
        let hand = std::mem::take(&mut state.tokens.hand);
        state.tokens.buckets.give_back(hand, now);
        if let Some(tenant) = self.tenants.get_mut(&state.tenant) {
            tenant.tokens.buckets.give_back(hand, now);
        }
    }

    /// The lane does not wait for tokens any more. The caller calls [`Self::serve`].
    pub(super) fn end_waiting(&mut self, lane: L) {
        let Some(state) = self.lanes.get_mut(&lane) else { return };
        match std::mem::replace(&mut state.tokens.waits, Waits::No) {
            Waits::No => {}
            Waits::Own(at) => drop(self.timers.remove(&at)),
            Waits::Tenant(kind, number) => {
                if let Some(tenant) = self.tenants.get_mut(&state.tenant) {
                    tenant.tokens.waiting[kind].remove(&number);
                }
            }
        }
    }

    /// Lists those lanes of a tenant that waited for its tokens and have them now, and refreshes the tenant.
    pub(super) fn serve(&mut self, number: u32, now: Instant) {
        let waits =
            |tokens: &TenantTokens<L>, kind: usize| !tokens.waiting[kind].is_empty() || tokens.timers[kind].is_some();
        let Some(tenant) = self.tenants.get(&number) else { return };
        let kinds: [bool; KINDS] = std::array::from_fn(|kind| waits(&tenant.tokens, kind));
        for kind in (0..KINDS).filter(|kind| kinds[*kind]) {
            while let Some((waiting, lane)) = self.first_waiting(number, kind) {
                let need = self.need(lane)[kind];
                let Some(tenant) = self.tenants.get_mut(&number) else { return };
                if tenant.tokens.buckets.0[kind].wait(need, now) > Duration::ZERO {
                    break;
                }
                tenant.tokens.waiting[kind].remove(&waiting);
                if let Some(state) = self.lanes.get_mut(&lane) {
                    state.tokens.waits = Waits::No;
                }
                self.list(lane, Some(kind), now);
            }
            self.set_timer(number, kind, now);
        }
        self.refresh(number, now);
    }

    fn first_waiting(&self, number: u32, kind: usize) -> Option<(u64, L)> {
        let waiting = &self.tenants.get(&number)?.tokens.waiting[kind];
        waiting.first_key_value().map(|(waiting, lane)| (*waiting, *lane))
    }

    /// Sets the timer of the first lane that waits for a tenant's tokens of a kind.
    fn set_timer(&mut self, number: u32, kind: usize, now: Instant) {
        let need = self.first_waiting(number, kind).map(|(_, lane)| self.need(lane)[kind]);
        let Some(tenant) = self.tenants.get_mut(&number) else { return };
        let due = need.map(|need| now + tenant.tokens.buckets.0[kind].wait(need, now));
        if tenant.tokens.timers[kind].map(|(at, _)| at) == due {
            return;
        }
        if let Some(at) = tenant.tokens.timers[kind].take() {
            self.timers.remove(&at);
        }
        if let Some(due) = due {
            self.numbers += 1;
            tenant.tokens.timers[kind] = Some((due, self.numbers));
            self.timers.insert((due, self.numbers), Timer::Tenant(number, kind));
        }
    }

    /// Charges one token to a job, of those that it has, or else of those for which no other job waits. Returns false
    /// if there is none, and counts the `refused` requests.
    pub(crate) fn spend(&mut self, job: u64, kind: usize, refused: u32, now: Instant) -> bool {
        let Some(taken) = self.taken.get_mut(&job) else { return false };
        if taken.hand[kind] > 0 {
            taken.hand[kind] -= 1;
            taken.used[kind] = taken.used[kind].saturating_add(1);
            return true;
        }
        let Some(tenant) = self.tenants.get_mut(&taken.claim.tenant) else { return false };
        let lane = self.lanes.get_mut(&taken.lane).filter(|lane| lane.tenant == taken.claim.tenant);
        let has_own = lane.is_none_or(|lane| lane.tokens.buckets.0[kind].wait(1, now) == Duration::ZERO);
        let is_free = tenant.tokens.waiting[kind].is_empty();
        if has_own && is_free && tenant.tokens.buckets.0[kind].wait(1, now) == Duration::ZERO {
            self.charge(job, kind, 1, now);
            return true;
        }
        taken.short[kind] = true;
        tenant.tokens.refused[kind] += u64::from(refused);
        false
    }

    /// Replaces one token that [`Self::spend`] took by those that were used, even if there are fewer.
    pub(crate) fn spent(&mut self, job: u64, kind: usize, used: u32, now: Instant) {
        let Some(taken) = self.taken.get_mut(&job) else { return };
        let Some(more) = used.checked_sub(1) else {
            taken.hand[kind] += 1;
            taken.used[kind] = taken.used[kind].saturating_sub(1);
            return;
        };
        let of_hand = more.min(taken.hand[kind]);
        taken.hand[kind] -= of_hand;
        taken.used[kind] = taken.used[kind].saturating_add(of_hand);
        self.charge(job, kind, more - of_hand, now);
    }

    /// Removes tokens from the buckets for a job that runs.
    fn charge(&mut self, job: u64, kind: usize, tokens: u32, now: Instant) {
        let Some(taken) = self.taken.get_mut(&job) else { return };
        taken.used[kind] = taken.used[kind].saturating_add(tokens);
        if let Some(tenant) = self.tenants.get_mut(&taken.claim.tenant) {
            tenant.tokens.buckets.0[kind].take(tokens, now);
        }
        if let Some(lane) = self.lanes.get_mut(&taken.lane).filter(|lane| lane.tenant == taken.claim.tenant) {
            lane.tokens.buckets.0[kind].take(tokens, now);
        }
    }
}

#[cfg(test)]
mod tests;
