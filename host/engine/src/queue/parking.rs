//! The order of lanes, applied when a slot is next: it is parked while its first due item has to wait for another lane.
//!
//! An object is a slot and an item of it, which several lanes may have. An item waits for the same object's items of
//! the predecessors of its lane ([`Order`]) that are due since the same step or an earlier one, until they have been
//! run. So slots never wait in a circle.
//!
//! Nothing is remembered of a wait: a parked slot is examined again when anything happens to the item that it waits
//! for.

use std::{collections::HashMap, hash::Hash, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    Job,
    order::{Lanes, Order},
    slots::{Due, Item, SlotStage, Slots, Steps},
};

/// How long an item waits for lanes that lead all groups. A run of a native plugin takes a millisecond or so.
const LEADING: Duration = Duration::from_millis(100);
/// How many slots are examined again at a time when the lane that they wait for is delayed.
const FEW: usize = 8;

impl<L, S, I> Slots<L, S, I>
where
    L: Copy + Eq + Hash,
    S: Clone + Eq + Hash,
    I: Clone + Eq + Hash,
{
    /// Parks a slot that is in no list, and due since this time, if this due item of it has to wait. Returns true if it
    /// does.
    pub(super) fn park(&mut self, key: &(L, S), at: usize, since: Due, now: Instant) -> bool {
        let Some((on, until)) = self.waits_for(key, at, since.0, now) else { return false };
        let hasher = self.parked.hasher().clone();
        let slots = self.parked.entry(on).or_insert_with(|| HashMap::with_hasher(hasher));
        let lanes = slots.entry(key.1.clone()).or_default();
        if !lanes.contains(&key.0) {
            lanes.push(key.0);
        }
        self.numbers += 1;
        let until = until.map(|until| (until, self.numbers));
        self.delayed.extend(until.map(|until| (until, key.clone())));
        self.has_new_delays |= until.is_some();
        self.waiting.entry(key.0).or_default().insert(since, ());
        if let Some(state) = self.slots.get_mut(key) {
            state.at = SlotStage::Parked(since, until);
        }
        true
    }

    /// Returns the lane for which a due item waits, and until when at most. `since` is when its slot was free for it.
    pub(super) fn waits_for(
        &self,
        key: &(L, S),
        at: usize,
        since: Instant,
        now: Instant,
    ) -> Option<(L, Option<Instant>)> {
        let (lane, slot) = key;
        let item = self.slots.get(key)?.items.get(at)?;
        let is_ahead = |on: &L| self.is_ahead(*on, slot, item, now);
        if let Some(on) = self.order.predecessors(*lane).iter().copied().find(is_ahead) {
            return Some((on, None));
        }
        let until = Some(since.max(item.due()) + LEADING).filter(|until| *until > now)?;
        self.order.leading(*lane).find(is_ahead).map(|on| (on, Some(until)))
    }

    /// Returns true if the same item of the lane is running, or due and the lane is not delayed, since the step of this
    /// one or an earlier one.
    fn is_ahead(&self, lane: L, slot: &S, item: &Item<I>, now: Instant) -> bool {
        let Some(state) = self.slots.get(&(lane, slot.clone())) else { return false };
        let Some(found) = state.find(&item.item).map(|at| &state.items[at]) else { return false };
        let is_due = found.is_due(now) && found.steps.first <= item.steps.first;
        is_due && (state.runs(&item.item) || !self.turns.is_delayed(lane))
    }

    /// Examines again the slots that are parked behind this one.
    pub(super) fn free(&mut self, on: L, slot: &S, now: Instant) {
        let Some(slots) = self.parked.get_mut(&on) else { return };
        let Some(lanes) = slots.remove(slot) else { return };
        if slots.is_empty() {
            self.parked.remove(&on);
        }
        self.free_all([(slot.clone(), lanes)], now);
    }

    pub(super) fn free_all(&mut self, slots: impl IntoIterator<Item = (S, Lanes<L>)>, now: Instant) {
        for (slot, lanes) in slots {
            for lane in lanes {
                let key = (lane, slot.clone());
                if let Some(SlotStage::Parked(..)) = self.slots.get(&key).map(|state| state.at) {
                    self.replace(key, now);
                }
            }
        }
    }

    /// Examines again slots that are parked behind slots of lanes that are delayed since, except behind a run.
    pub(super) fn pass_delayed(&mut self, now: Instant) {
        while let Some(lane) = self.turns.delayed.pop() {
            let Some(slots) = self.parked.get(&lane).filter(|_| self.turns.is_delayed(lane)) else { continue };
            let runs = |slot: &S| self.slots.get(&(lane, slot.clone())).is_some_and(|of| of.at == SlotStage::Running);
            let found: Vec<S> = slots.keys().filter(|slot| !runs(slot)).take(FEW).cloned().collect();
            found.iter().for_each(|slot| self.free(lane, slot, now));
            if found.len() == FEW {
                self.turns.delayed.push(lane);
                return;
            }
        }
    }

    pub(super) fn set_order(&mut self, groups: &[usize], order: Order<L>, now: Instant) {
        // A slot of another group may wait for one of these, if that leads; it waits for no other change of them.
        let changed = Arc::make_mut(&mut self.order).replace(groups, order);
        let parked: Vec<_> = changed.iter().filter_map(|lane| self.parked.remove(lane)).flatten().collect();
        self.free_all(parked, now);
    }

    /// Skips, for the successors of a running job, the steps that were queued before it started. Returns the lanes of
    /// those that are not run for them. The job's own item stays in the queue until [`Slots::done`].
    pub(super) fn stop(&mut self, job: &Job<L, S, I>, now: Instant) -> Vec<L> {
        let mut stopped = Vec::new();
        if self.running(job).is_none() {
            return stopped;
        }
        for lane in self.order.clone().successors(job.lane) {
            let key = (*lane, job.slot.clone());
            let Some(state) = self.slots.get_mut(&key) else { continue };
            let Some(at) = state.find(&job.item) else { continue };
            let runs = state.runs(&job.item);
            let item = &mut state.items[at];
            let rest = item.rest;
            let steps = if runs { item.dirty.as_mut() } else { Some(&mut item.steps) };
            let Some(steps) = steps.filter(|steps| steps.are_changes) else { continue };
            let is_later = steps.latest.1 > job.number;
            if is_later {
                // From now on it is due since the earliest later step that is known.
                let first = if steps.first.1 > job.number { steps.first } else { steps.latest };
                *steps = Steps { first, ..*steps }.not_before(rest);
            } else if runs {
                item.dirty = None;
            } else if let Some((before, why)) = item.before.take() {
                item.delay(before, why);
            } else if !item.rests(now) {
                state.items.remove(at);
            }
            stopped.extend((!is_later).then_some(*lane));
            self.replace(key, now);
            self.free(*lane, &job.slot, now);
        }
        stopped
    }
}

#[cfg(test)]
mod tests;
