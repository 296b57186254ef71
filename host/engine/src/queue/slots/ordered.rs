//! The order of lanes, applied to slots: when an item may start, and the ends of waits.

use std::{hash::Hash, sync::Arc};

use tokio::time::Instant;

use super::{
    super::{
        Job,
        order::Order,
        waits::{PriorState, Skipped, Waits},
    },
    Item, SlotStage, Slots,
};

impl<L, S, I> Slots<L, S, I>
where
    L: Copy + Eq + Hash,
    S: Clone + Eq + Hash,
    I: Clone + Eq + Hash,
{
    /// True if the lane's slot runs this item.
    pub(in super::super) fn runs(&self, lane: L, slot: &S, item: &I) -> bool {
        self.slots.get(&(lane, slot.clone())).is_some_and(|state| state.runs(item))
    }

    /// True if the item is running, or due and not taken.
    pub(in super::super) fn is_due(&self, lane: L, slot: &S, item: &I, now: Instant) -> bool {
        let Some(state) = self.slots.get(&(lane, slot.clone())) else { return false };
        let from = usize::from(state.at == SlotStage::Orphaned);
        state.runs(item) || state.items.iter().skip(from).any(|waiting| waiting.item == *item && waiting.due <= now)
    }

    /// Places the slots of items that wait for nothing any more.
    pub(in super::super) fn free(&mut self, lanes: impl IntoIterator<Item = L>, object: &(S, I), now: Instant) {
        for lane in lanes {
            let key = (lane, object.0.clone());
            if self.slots.get(&key).is_some_and(|state| matches!(state.at, SlotStage::Held | SlotStage::Delayed(_))) {
                self.replace(key, now);
            }
        }
    }

    pub(in super::super) fn set_order(&mut self, order: Arc<Order<L>>, now: Instant) {
        let freed = self.waits.set_order(order);
        freed.into_iter().for_each(|(lane, object)| self.free([lane], &object, now));
    }

    /// Ends waits for lanes that are delayed, and returns true if it did; examines at most `most` lanes.
    pub(super) fn pass_delayed(&mut self, most: usize, now: Instant) -> bool {
        let mut passed = false;
        for _ in 0..most.min(self.waits.awaited_lanes()) {
            let Some(lane) = self.waits.next_awaited().filter(|lane| self.turns.is_delayed(*lane)) else { continue };
            let not_running = |object: &&(S, I)| !self.runs(lane, &object.0, &object.1);
            let Some(object) = self.waits.awaited(lane).find(not_running).cloned() else { continue };
            let freed = self.waits.pass(lane, &object);
            self.free(freed, &object, now);
            passed = true;
        }
        passed
    }

    /// Skips, for the successors of a running job, the steps that were queued before it started. The job's own item
    /// stays in the queue until [`Slots::done`].
    pub(in super::super) fn stop(&mut self, job: &Job<L, S, I>, now: Instant) {
        if self.waits.is_empty() || !self.runs(job.lane, &job.slot, &job.item) {
            return;
        }
        let dirty = self.running(job).is_some_and(|item| item.dirty.is_some());
        let object = (job.slot.clone(), job.item.clone());
        let (skipped, freed) = self.waits.stop(job.lane, &object, job.number, dirty);
        for Skipped { lane, before } in skipped {
            let key = (lane, job.slot.clone());
            let Some(state) = self.slots.get_mut(&key) else { continue };
            let from = usize::from(state.at == SlotStage::Orphaned);
            let Some(at) = state.items.iter().skip(from).position(|item| item.item == job.item) else { continue };
            match before {
                PriorState::Nothing => drop(state.items.remove(from + at)),
                PriorState::Delayed(due, queued) => {
                    (state.items[from + at].due, state.items[from + at].queued) = (due, queued);
                }
                PriorState::Running => state.items[from + at].dirty = None,
                PriorState::Stays => {}
            }
            self.replace(key, now);
        }
        self.free(freed, &object, now);
    }

    /// True if items may wait for a lane that is delayed since the last [`Slots::looked`], by a job of this lane.
    pub(in super::super) fn may_pass(&self, lane: L) -> bool {
        !self.waits.is_empty() && (self.turns.has_new_waits || self.turns.is_delayed(lane))
    }
}

/// Returns the items that may be the next job of a slot that is not running, in order, and when each may start. An item
/// that waits for another lane and was never tried holds up those behind it.
pub(super) fn starts<L, S, I>(
    waits: &Waits<L, S, I>,
    (lane, slot): &(L, S),
    items: &[Item<I>],
    now: Instant,
) -> impl Iterator<Item = (usize, Instant)>
where
    L: Copy + Eq + Hash,
    S: Clone + Eq + Hash,
    I: Clone + Eq + Hash,
{
    let may_wait = !waits.is_empty() && waits.order.contains(*lane);
    let start = move |(at, item): (usize, &Item<I>)| {
        let due = (at, Some(item.due), false);
        if item.due > now || !may_wait {
            return due;
        }
        let held = waits.held(*lane, &(slot.clone(), item.item.clone()), now);
        held.map_or(due, |held| (at, held.until, held.holds_slot))
    };
    let mut is_held_up = false;
    let until_held = move |(at, start, holds): (usize, Option<Instant>, bool)| {
        (!std::mem::replace(&mut is_held_up, holds)).then_some((at, start))
    };
    items.iter().enumerate().map(start).map_while(until_held).filter_map(|(at, start)| Some((at, start?)))
}
