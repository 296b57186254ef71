//! [`Waiting`]: where an item of the queue is, for people who ask why it does not run. Decided by the functions that
//! decide it for the queue itself; nothing is changed.

use std::hash::Hash;

use tokio::time::Instant;

use super::{
    slots::{SlotStage, Slots},
    why::Why,
};

/// An item that waits or runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting<L, I> {
    /// The item.
    pub item: I,
    /// Its present or next attempt, as [`Job::attempt`](super::Job::attempt).
    pub attempt: u32,
    /// The reasons for which it is due, or waits until it is.
    pub why: Why,
    /// Where it is.
    pub at: Place<L>,
}

/// Where an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<L> {
    /// Its run, or the delivery of its run, is under way.
    Running,
    /// It is not due before this time.
    Delayed(Instant),
    /// It waits for an item of the same slot of another lane, until this time at most.
    Behind(L, Option<Instant>),
    /// It waits for another item of its own slot.
    BehindSlot,
    /// Its lane or its tenant has no token.
    Tokens,
    /// Too little memory is free for its lane's jobs.
    Memory,
    /// It waits for the turn of its lane, or for a place.
    Turn,
}

impl<L, S, I> Slots<L, S, I>
where
    L: Copy + Eq + Hash,
    S: Clone + Eq + Hash,
    I: Clone + Eq + Hash,
{
    /// Returns the items of a slot.
    pub(super) fn waiting(&self, key: &(L, S), now: Instant) -> Vec<Waiting<L, I>> {
        let Some(state) = self.slots.get(key) else { return Vec::new() };
        let is_taken = matches!(state.at, SlotStage::Running | SlotStage::Orphaned);
        let first_due = state.items.iter().position(|item| item.is_due(now));
        let since = match state.at {
            SlotStage::Ready(since) | SlotStage::Parked(since, _) => since.0,
            SlotStage::Delayed(_) | SlotStage::Running | SlotStage::Orphaned => now,
        };
        let place = |at: usize, due: Instant| match at {
            0 if is_taken => Place::Running,
            _ if is_taken => Place::BehindSlot,
            _ if due > now => Place::Delayed(due),
            _ if first_due.is_some_and(|first| first < at) => Place::BehindSlot,
            _ => match self.waits_for(key, at, since, now) {
                Some((lane, until)) => Place::Behind(lane, until),
                None if self.turns.waits_for_tokens(key.0) => Place::Tokens,
                None if self.turns.is_delayed(key.0) => Place::Memory,
                None => Place::Turn,
            },
        };
        let items = state.items.iter().enumerate().filter(|(_, item)| !item.is_resting);
        let waiting = items.map(|(at, item)| Waiting {
            item: item.item.clone(),
            attempt: item.failures.saturating_add(1),
            why: item.steps.why,
            at: place(at, item.due()),
        });
        waiting.collect()
    }
}
