//! The queue's bookkeeping, without waiting: the time is an argument of every call.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    hash::Hash,
};

use foldhash::quality::FixedState;
use rand::{SeedableRng, rngs::SmallRng};
use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;

use super::{
    Backoff, Done, Job, Next,
    turns::{Ended, TenantFigures, Turns},
};

#[derive(Debug)]
pub(super) struct Slots<L, S, I> {
    slots: HashMap<(L, S), SlotState<I>, FixedState>,
    pub(super) turns: Turns<L>,
    /// Due slots by lane, numbered in the order they became due, so that one in the middle can be removed without a
    /// look at the others. No lane's is empty.
    ready: HashMap<L, BTreeMap<u64, S>, FixedState>,
    /// Slots that become due later, each once.
    delayed: BTreeMap<Due, (L, S)>,
    numbers: u64,
    closed: bool,
    backoff: Backoff,
    random: SmallRng,
}

/// When a slot becomes due; the number distinguishes slots of one instant.
type Due = (Instant, u64);

#[derive(Debug)]
struct SlotState<I> {
    /// In the order first added. The first that is due runs, so a new incarnation waits for the first attempt at the
    /// old one's deletion, but not for its retries.
    ///
    /// Nearly all slots have one.
    items: SmallVec<[Item<I>; 1]>,
    at: At,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// With its number in the lane's ready slots.
    Ready(u64),
    Delayed(Due),
    Running,
    /// Its lane was removed while its first item was running. Further items were added to the lane after that.
    Orphaned,
}

#[derive(Debug)]
struct Item<I> {
    item: I,
    due: Instant,
    queued: Instant,
    failures: u32,
    again: Option<Again>,
}

/// An item was added while it was running.
#[derive(Debug, Clone, Copy)]
struct Again {
    first: Instant,
    /// The number of the latest time.
    latest: u64,
    /// Each time because of a change.
    changed: bool,
}

impl<L, S, I> Slots<L, S, I>
where
    L: Copy + Eq + Hash,
    S: Clone + Eq + Hash,
    I: Clone + Eq,
{
    pub(super) fn new(backoff: Backoff, lane_limit: usize, seed: u64) -> Self {
        // Seeded, so that tenants cannot choose names of one hash.
        let hasher = FixedState::with_seed(seed);
        Self {
            turns: Turns::new(lane_limit, &hasher),
            slots: HashMap::with_hasher(hasher.clone()),
            ready: HashMap::with_hasher(hasher),
            delayed: BTreeMap::new(),
            numbers: 0,
            closed: false,
            backoff,
            random: SmallRng::seed_from_u64(seed),
        }
    }

    pub(super) fn add(&mut self, lane: L, slot: S, item: I, now: Instant) {
        self.add_because(lane, slot, item, false, now);
    }

    /// Adds an item because its object has changed.
    pub(super) fn add_changed(&mut self, lane: L, slot: S, item: I, now: Instant) {
        self.add_because(lane, slot, item, true, now);
    }

    fn add_because(&mut self, lane: L, slot: S, item: I, changed: bool, now: Instant) {
        let fresh = Item { item, due: now, queued: now, failures: 0, again: None };
        let mut entry = match self.slots.entry((lane, slot)) {
            Entry::Vacant(entry) => {
                self.numbers += 1;
                let (lane, slot) = entry.key().clone();
                entry.insert(SlotState { items: smallvec![fresh], at: At::Ready(self.numbers) });
                self.push_ready(lane, slot, self.numbers, now);
                return;
            }
            Entry::Occupied(entry) => entry,
        };
        self.numbers += 1;
        let state = entry.get_mut();
        // The running item stands first, see `take`. One of a lane that was removed answers nothing of the present
        // lane.
        let from = usize::from(state.at == At::Orphaned);
        match state.items.iter().skip(from).position(|waiting| waiting.item == fresh.item).map(|at| from + at) {
            Some(0) if state.at == At::Running => {
                let again = &mut state.items[0].again;
                let before = again.unwrap_or(Again { first: now, latest: 0, changed: true });
                *again = Some(Again { latest: self.numbers, changed: before.changed && changed, ..before });
            }
            Some(at) => {
                let waiting = &mut state.items[at];
                // An item that waited for a delay answers this event; one that was due answers the older event.
                if waiting.due > now {
                    (waiting.due, waiting.queued) = (now, now);
                }
            }
            None => state.items.push(fresh),
        }
        if let At::Delayed(due) = state.at {
            let key = entry.key().clone();
            self.delayed.remove(&due);
            self.place(key, now);
        }
    }

    pub(super) fn take(&mut self, now: Instant) -> Option<Job<L, S, I>> {
        self.promote(now);
        loop {
            let lane = self.turns.next(now)?;
            let job = self.start(lane, now);
            let is_empty = self.ready.get(&lane).is_none_or(BTreeMap::is_empty);
            if is_empty {
                self.ready.remove(&lane);
            }
            self.turns.due(lane, !is_empty, now);
            if job.is_some() {
                return job;
            }
        }
    }

    /// Starts a job of the lane's first due item.
    fn start(&mut self, lane: L, now: Instant) -> Option<Job<L, S, I>> {
        let (_, slot) = self.ready.get_mut(&lane)?.pop_first()?;
        let state = self.slots.get_mut(&(lane, slot.clone()))?;
        let item = state.items.iter().position(|item| item.due <= now)?;
        let item = state.items.remove(item);
        self.numbers += 1;
        let job = Job {
            lane,
            slot,
            item: item.item.clone(),
            attempt: item.failures.saturating_add(1),
            queued: item.queued,
            claim: self.turns.start(lane, self.numbers, now),
            number: self.numbers,
        };
        state.items.insert(0, item);
        state.at = At::Running;
        Some(job)
    }

    pub(super) fn done(&mut self, job: &Job<L, S, I>, next: Next, now: Instant) -> Done {
        let key = (job.lane, job.slot.clone());
        let is_orphaned = self.slots.get(&key).is_none_or(|state| state.at == At::Orphaned);
        let ended = match next {
            _ if is_orphaned => Ended::Otherwise,
            Next::Settled | Next::Final | Next::After(_) => Ended::Well,
            Next::Failed => Ended::Failed,
            Next::FailedFor(_) | Next::Postponed(_) => Ended::Otherwise,
        };
        self.turns.done(job.number, ended, now);
        let Some(state) = self.slots.get_mut(&key).filter(|state| !state.items.is_empty()) else {
            return Done::Forgotten;
        };
        let mut item = state.items.remove(0);
        if state.at == At::Orphaned {
            self.place(key, now);
            return Done::Orphaned;
        }
        let delay = match next {
            Next::Settled | Next::Final => None,
            Next::After(delay) | Next::FailedFor(delay) | Next::Postponed(delay) => Some(delay),
            Next::Failed => Some(self.backoff.delay(item.failures.saturating_add(1), &mut self.random)),
        };
        match next {
            Next::Settled | Next::Final | Next::After(_) => item.failures = 0,
            Next::Failed | Next::FailedFor(_) => item.failures = item.failures.saturating_add(1),
            Next::Postponed(_) => {}
        }
        let again = item.again.take().filter(|_| next != Next::Final);
        let done = match (again, delay) {
            (Some(Again { first: event, .. }), _) => {
                // An item that failed still answers the event that it answered before.
                let queued = if matches!(next, Next::Failed | Next::FailedFor(_) | Next::Postponed(_)) {
                    item.queued
                } else {
                    event
                };
                (item.due, item.queued) = (now, queued);
                state.items.insert(0, item);
                Done::Kept
            }
            (None, Some(delay)) => {
                item.due = now + delay;
                if matches!(next, Next::After(_)) {
                    item.queued = item.due;
                }
                state.items.insert(0, item);
                Done::Kept
            }
            (None, None) => Done::Forgotten,
        };
        self.place(key, now);
        done
    }

    /// Returns the running item of the job, unless the lane was removed since.
    fn running(&mut self, job: &Job<L, S, I>) -> Option<&mut Item<I>> {
        let state = self.slots.get_mut(&(job.lane, job.slot.clone()))?;
        (state.at == At::Running).then(|| state.items.first_mut()).flatten()
    }

    pub(super) fn changed_during(&mut self, job: &Job<L, S, I>) -> Option<u64> {
        self.running(job)?.again.filter(|again| again.changed).map(|again| again.latest)
    }

    pub(super) fn answered(&mut self, job: &Job<L, S, I>, number: u64) {
        if let Some(item) = self.running(job) {
            item.again = item.again.filter(|again| again.latest != number);
        }
    }

    pub(super) fn contains(&self, lane: L, slot: &S, item: &I) -> bool {
        let Some(state) = self.slots.get(&(lane, slot.clone())) else { return false };
        let from = usize::from(state.at == At::Orphaned);
        state.items.iter().skip(from).any(|waiting| waiting.item == *item)
    }

    pub(super) fn is_orphaned(&self, lane: L, slot: &S) -> bool {
        self.slots.get(&(lane, slot.clone())).is_some_and(|state| state.at == At::Orphaned)
    }

    /// Forgets an item that waits. Returns false if there is none.
    pub(super) fn remove(&mut self, key: (L, S), item: &I, now: Instant) -> bool {
        let Some(state) = self.slots.get_mut(&key) else { return false };
        let running = matches!(state.at, At::Running | At::Orphaned);
        let from = usize::from(running);
        let Some(at) = state.items.iter().skip(from).position(|waiting| waiting.item == *item) else { return false };
        state.items.remove(from + at);
        match state.at {
            At::Running | At::Orphaned => return true,
            At::Delayed(due) => drop(self.delayed.remove(&due)),
            At::Ready(number) => {
                if let Some(ready) = self.ready.get_mut(&key.0) {
                    ready.remove(&number);
                    if ready.is_empty() {
                        self.ready.remove(&key.0);
                        self.turns.due(key.0, false, now);
                    }
                }
            }
        }
        self.place(key, now);
        true
    }

    /// Moves a slot that is not running to the due or the delayed slots, as its items are.
    fn place(&mut self, key: (L, S), now: Instant) {
        let Some(state) = self.slots.get_mut(&key) else { return };
        let Some(due) = state.items.iter().map(|item| item.due).min() else {
            self.slots.remove(&key);
            self.shrink();
            return;
        };
        self.numbers += 1;
        if due <= now {
            state.at = At::Ready(self.numbers);
            self.push_ready(key.0, key.1, self.numbers, now);
        } else {
            let due = (due, self.numbers);
            state.at = At::Delayed(due);
            self.delayed.insert(due, key);
        }
    }

    /// Frees the memory of a burst, such as all Pods of the first list at once.
    fn shrink(&mut self) {
        const LEAST: usize = 1_024;
        if self.slots.capacity() > LEAST && self.slots.len() < self.slots.capacity() / 8 {
            self.slots.shrink_to(2 * self.slots.len());
        }
    }

    /// `number` is the latest of all.
    fn push_ready(&mut self, lane: L, slot: S, number: u64, now: Instant) {
        let ready = self.ready.entry(lane).or_default();
        let is_first = ready.is_empty();
        ready.insert(number, slot);
        if is_first {
            self.turns.due(lane, true, now);
        }
    }

    fn promote(&mut self, now: Instant) {
        while let Some(first) = self.delayed.first_entry().filter(|first| first.key().0 <= now) {
            let (lane, slot) = first.remove();
            if let Some(state) = self.slots.get_mut(&(lane, slot.clone())) {
                self.numbers += 1;
                state.at = At::Ready(self.numbers);
                self.push_ready(lane, slot, self.numbers, now);
            }
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        let delayed = self.delayed.first_key_value().map(|((due, _), _)| *due);
        delayed.into_iter().chain(self.turns.next_tokens()).min()
    }

    #[cfg(test)]
    pub(super) fn delays(&self) -> usize {
        self.delayed.len()
    }

    pub(super) fn has_ready(&self) -> bool {
        self.turns.has_next()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.ready.is_empty() && !self.turns.is_running()
    }

    pub(super) fn depth(&self, lane: L) -> usize {
        self.ready.get(&lane).map_or(0, BTreeMap::len)
    }

    pub(super) fn claim_changed(&mut self, lane: L, now: Instant) {
        self.turns.due(lane, self.ready.contains_key(&lane), now);
    }

    pub(super) fn tenants(&self) -> BTreeMap<u32, TenantFigures> {
        self.turns.figures(|lane| self.depth(lane))
    }

    pub(super) fn remove_lane(&mut self, lane: L, now: Instant) {
        self.slots.retain(|(of, _), slot| {
            if *of == lane && slot.at == At::Running {
                slot.at = At::Orphaned;
            }
            if *of == lane && slot.at == At::Orphaned {
                slot.items.truncate(1);
            }
            *of != lane || slot.at == At::Orphaned
        });
        self.ready.remove(&lane);
        self.delayed.retain(|_, (of, _)| *of != lane);
        self.turns.remove(lane, now);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }
}
