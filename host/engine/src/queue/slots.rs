//! The queue's bookkeeping, without waiting: the time is an argument of every call.

mod ordered;

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    hash::Hash,
};

use foldhash::quality::FixedState;
use ordered::starts;
use rand::{SeedableRng, rngs::SmallRng};
use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;

use super::{
    Backoff, CONFLICT_WAIT, Done, Job, Next,
    stale::Marks,
    turns::{TenantFigures, Turns},
    waits::{Edge, PriorState, Waits},
};

#[derive(Debug)]
pub(super) struct Slots<L, S, I> {
    slots: HashMap<(L, S), SlotState<I>, FixedState>,
    pub(super) turns: Turns<L>,
    /// Due slots by lane, numbered in the order they became due, so that one in the middle can be removed without a
    /// look at the others. No lane's is empty.
    ready: HashMap<L, BTreeMap<u64, S>, FixedState>,
    /// When the numbers of due slots were assigned.
    marks: Marks,
    /// Slots that become due later, each once.
    delayed: BTreeMap<Due, (L, S)>,
    /// Slots were delayed since the last [`Self::looked`].
    pub(super) has_new_delays: bool,
    pub(super) waits: Waits<L, S, I>,
    /// Waits for lanes that are delayed may be left.
    look_again: Option<Instant>,
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
    at: SlotStage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotStage {
    /// With its number in the lane's ready slots.
    Ready(u64),
    Delayed(Due),
    /// Each item that could be first waits for an item of another lane.
    Held,
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
    dirty: Option<Dirty>,
}

impl<I: Eq> SlotState<I> {
    fn runs(&self, item: &I) -> bool {
        self.at == SlotStage::Running && self.items.first().is_some_and(|first| first.item == *item)
    }
}

/// Why an item is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Its object has changed.
    Changed,
    /// Its object has changed by a write of a job.
    Written,
    Other,
}

/// An item was added while it was running.
#[derive(Debug, Clone, Copy)]
struct Dirty {
    first: Instant,
    /// The number of the latest time.
    latest: u64,
    /// Each time because of a change.
    changed: bool,
}

/// How often a look at all lanes that are waited for, which passes one object of each, is repeated before the queue is
/// unlocked.
const ROUNDS: usize = 64;
/// How many of these lanes are looked at when there is something else to do.
const FEW: usize = 4;

impl<L, S, I> Slots<L, S, I>
where
    L: Copy + Eq + Hash,
    S: Clone + Eq + Hash,
    I: Clone + Eq + Hash,
{
    pub(super) fn new(backoff: Backoff, lane_limit: usize, seed: u64) -> Self {
        // Seeded, so that tenants cannot choose names of one hash.
        let hasher = FixedState::with_seed(seed);
        Self {
            turns: Turns::new(lane_limit, &hasher),
            waits: Waits::new(&hasher),
            slots: HashMap::with_hasher(hasher.clone()),
            ready: HashMap::with_hasher(hasher),
            marks: Marks::default(),
            delayed: BTreeMap::new(),
            has_new_delays: false,
            look_again: None,
            numbers: 0,
            closed: false,
            backoff,
            random: SmallRng::seed_from_u64(seed),
        }
    }

    pub(super) fn add(&mut self, lane: L, slot: S, item: I, now: Instant) {
        self.add_because(lane, slot, item, Cause::Other, &[], now);
    }

    /// Adds an item to a lane. If that makes it due, it waits as `edges` say. Returns true if it does.
    pub(super) fn add_because(
        &mut self,
        lane: L,
        slot: S,
        item: I,
        cause: Cause,
        edges: &[Edge<L>],
        now: Instant,
    ) -> bool {
        self.numbers += 1;
        let number = self.numbers;
        let object = (self.waits.order.contains(lane)).then(|| (slot.clone(), item.clone()));
        let fresh = Item { item, due: now, queued: now, failures: 0, dirty: None };
        let mut entry = match self.slots.entry((lane, slot)) {
            Entry::Vacant(entry) => {
                let (lane, slot) = entry.key().clone();
                match object.filter(|_| !edges.is_empty()) {
                    None => {
                        entry.insert(SlotState { items: smallvec![fresh], at: SlotStage::Ready(number) });
                        self.push_ready(lane, slot, number, now);
                        return false;
                    }
                    Some(object) => {
                        entry.insert(SlotState { items: smallvec![fresh], at: SlotStage::Held });
                        self.waits.add(lane, &object, number, PriorState::Nothing, edges);
                        self.place((lane, slot), now);
                        return true;
                    }
                }
            }
            Entry::Occupied(entry) => entry,
        };
        let state = entry.get_mut();
        // The running item stands first, see `take`. One of a lane that was removed answers nothing of the present
        // lane.
        let from = usize::from(state.at == SlotStage::Orphaned);
        // The item's state before, if this makes it due.
        let mut before = None;
        match state.items.iter().skip(from).position(|waiting| waiting.item == fresh.item).map(|at| from + at) {
            Some(0) if state.at == SlotStage::Running => {
                let dirty = &mut state.items[0].dirty;
                before = dirty.is_none().then_some(PriorState::Running);
                let earlier = dirty.unwrap_or(Dirty { first: now, latest: 0, changed: true });
                let changed = earlier.changed && cause != Cause::Other;
                *dirty = Some(Dirty { latest: number, changed, ..earlier });
            }
            Some(at) => {
                let waiting = &mut state.items[at];
                // An item that waited for a delay answers this event; one that was due answers the older event.
                if waiting.due > now {
                    before = Some(PriorState::Delayed(waiting.due, waiting.queued));
                    (waiting.due, waiting.queued) = (now, now);
                }
            }
            None => {
                before = Some(PriorState::Nothing);
                state.items.push(fresh);
            }
        }
        let mut waits = false;
        let mut freed = false;
        if let Some(object) = object {
            match before {
                Some(before) if !edges.is_empty() => {
                    self.waits.add(lane, &object, number, before, edges);
                    waits = true;
                }
                Some(_) => {}
                None => {
                    let step = (cause != Cause::Other).then_some(number);
                    freed = !self.waits.added_again(lane, &object, step, cause == Cause::Written).is_empty();
                }
            }
        }
        if matches!(state.at, SlotStage::Delayed(_)) || (state.at == SlotStage::Held && (before.is_some() || freed)) {
            let key = entry.key().clone();
            self.replace(key, now);
        }
        waits
    }

    pub(super) fn take(&mut self, now: Instant) -> Option<Job<L, S, I>> {
        self.promote(now);
        self.pass_delayed(FEW, now);
        let mut rounds = 0;
        self.look_again = None;
        loop {
            let Some(lane) = self.turns.next(now) else {
                if !self.pass_delayed(usize::MAX, now) {
                    return None;
                }
                rounds += 1;
                if rounds == ROUNDS {
                    self.look_again = Some(now);
                    return None;
                }
                continue;
            };
            let job = self.start(lane, now);
            let is_empty = self.ready.get(&lane).is_none_or(BTreeMap::is_empty);
            if is_empty {
                self.ready.remove(&lane);
            }
            self.turns.set_due(lane, !is_empty, now);
            if job.is_some() {
                return job;
            }
        }
    }

    /// Starts a job of the lane's first due item.
    fn start(&mut self, lane: L, now: Instant) -> Option<Job<L, S, I>> {
        let (_, slot) = self.ready.get_mut(&lane)?.pop_first()?;
        let key = (lane, slot.clone());
        let state = self.slots.get_mut(&key)?;
        let Some((first, _)) = starts(&self.waits, &key, &state.items, now).find(|(_, start)| *start <= now) else {
            self.place(key, now);
            return None;
        };
        let item = state.items.remove(first);
        if !self.waits.is_empty() {
            self.waits.forget_waiter(lane, &(slot.clone(), item.item.clone()));
        }
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
        state.at = SlotStage::Running;
        Some(job)
    }

    pub(super) fn done(&mut self, job: &Job<L, S, I>, next: Next, now: Instant) -> Done {
        let entry = match self.slots.entry((job.lane, job.slot.clone())) {
            Entry::Occupied(entry) => Some(entry),
            Entry::Vacant(_) => None,
        };
        let is_orphaned = entry.as_ref().is_none_or(|entry| entry.get().at == SlotStage::Orphaned);
        self.turns.done(job.number, now);
        let Some(mut entry) = entry.filter(|entry| !entry.get().items.is_empty()) else {
            return Done::Forgotten;
        };
        let state = entry.get_mut();
        let mut item = state.items.remove(0);
        if is_orphaned {
            let key = entry.key().clone();
            self.place(key, now);
            return Done::Orphaned;
        }
        let object = (!self.waits.is_empty()).then(|| (job.slot.clone(), item.item.clone()));
        let delay = match next {
            Next::Settled | Next::Final => None,
            Next::After(delay) | Next::FailedFor(delay) | Next::Postponed(delay) => Some(delay),
            Next::Failed => Some(self.backoff.delay(item.failures.saturating_add(1), &mut self.random)),
            Next::Conflict => {
                let backoff = Backoff { most: self.backoff.most.min(CONFLICT_WAIT), ..self.backoff };
                Some(backoff.delay(item.failures.saturating_add(1), &mut self.random))
            }
        };
        match next {
            Next::Settled | Next::Final | Next::After(_) => item.failures = 0,
            Next::Failed | Next::FailedFor(_) | Next::Conflict => item.failures = item.failures.saturating_add(1),
            Next::Postponed(_) => {}
        }
        let dirty = item.dirty.take().filter(|_| next != Next::Final);
        let freed = object.as_ref().map(|object| {
            let is_due = dirty.is_some();
            if is_due {
                let queued = if matches!(next, Next::After(_)) { None } else { Some(item.queued) };
                let before = |delay| PriorState::Delayed(now + delay, queued.unwrap_or(now + delay));
                self.waits.ran(job.lane, object, delay.map_or(PriorState::Nothing, before));
            }
            self.waits.done(job.lane, object, is_due)
        });
        let done = match (dirty, delay) {
            (Some(Dirty { first: event, .. }), _) => {
                // An item that failed still answers the event that it answered before.
                let is_same = next.is_failure() || matches!(next, Next::Postponed(_));
                let queued = if is_same { item.queued } else { event };
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
        if state.items.is_empty() {
            entry.remove();
            self.shrink();
        } else {
            let key = entry.key().clone();
            self.place(key, now);
        }
        if let Some((freed, object)) = freed.zip(object) {
            self.free(freed, &object, now);
        }
        done
    }

    /// Returns the running item of the job, unless the lane was removed since.
    fn running(&mut self, job: &Job<L, S, I>) -> Option<&mut Item<I>> {
        let state = self.slots.get_mut(&(job.lane, job.slot.clone()))?;
        (state.at == SlotStage::Running).then(|| state.items.first_mut()).flatten()
    }

    pub(super) fn changed_during(&mut self, job: &Job<L, S, I>) -> Option<u64> {
        self.running(job)?.dirty.filter(|dirty| dirty.changed).map(|dirty| dirty.latest)
    }

    pub(super) fn answered(&mut self, job: &Job<L, S, I>, number: u64) {
        let Some(item) = self.running(job) else { return };
        item.dirty = item.dirty.filter(|dirty| dirty.latest != number);
        if item.dirty.is_none() && !self.waits.is_empty() {
            self.waits.settles(job.lane, &(job.slot.clone(), job.item.clone()));
        }
    }

    pub(super) fn contains(&self, lane: L, slot: &S, item: &I) -> bool {
        let Some(state) = self.slots.get(&(lane, slot.clone())) else { return false };
        let from = usize::from(state.at == SlotStage::Orphaned);
        state.items.iter().skip(from).any(|waiting| waiting.item == *item)
    }

    pub(super) fn is_orphaned(&self, lane: L, slot: &S) -> bool {
        self.slots.get(&(lane, slot.clone())).is_some_and(|state| state.at == SlotStage::Orphaned)
    }

    /// Forgets an item that waits. Returns false if there is none.
    pub(super) fn remove(&mut self, key: (L, S), item: &I, now: Instant) -> bool {
        let Some(state) = self.slots.get_mut(&key) else { return false };
        let running = matches!(state.at, SlotStage::Running | SlotStage::Orphaned);
        let from = usize::from(running);
        let Some(at) = state.items.iter().skip(from).position(|waiting| waiting.item == *item) else { return false };
        state.items.remove(from + at);
        let (lane, object) = (key.0, (!self.waits.is_empty()).then(|| (key.1.clone(), item.clone())));
        if !running {
            self.replace(key, now);
        }
        if let Some(object) = object {
            let freed = self.waits.remove(lane, &object);
            self.free(freed, &object, now);
        }
        true
    }

    /// Places a slot that is not running again.
    pub(super) fn replace(&mut self, key: (L, S), now: Instant) {
        match self.slots.get(&key).map(|state| state.at) {
            None | Some(SlotStage::Running | SlotStage::Orphaned) => return,
            Some(SlotStage::Held) => {}
            Some(SlotStage::Delayed(due)) => drop(self.delayed.remove(&due)),
            Some(SlotStage::Ready(number)) => {
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
    }

    /// Moves a slot that is not running to the due or the delayed slots, as its items are.
    fn place(&mut self, key: (L, S), now: Instant) {
        let Some(state) = self.slots.get_mut(&key) else { return };
        if state.items.is_empty() {
            self.slots.remove(&key);
            self.shrink();
            return;
        }
        let Some(due) = starts(&self.waits, &key, &state.items, now).map(|(_, start)| start).min() else {
            state.at = SlotStage::Held;
            return;
        };
        self.numbers += 1;
        if due <= now {
            state.at = SlotStage::Ready(self.numbers);
            self.push_ready(key.0, key.1, self.numbers, now);
        } else {
            let due = (due, self.numbers);
            state.at = SlotStage::Delayed(due);
            self.delayed.insert(due, key);
            self.has_new_delays = true;
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
        self.marks.due(number, now);
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
            self.place((lane, slot), now);
        }
    }

    /// A worker has found no job, and waits until [`Self::next_due`].
    pub(super) fn looked(&mut self) {
        self.has_new_delays = false;
        self.turns.has_new_waits = false;
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        let delayed = self.delayed.first_key_value().map(|((due, _), _)| *due);
        delayed.into_iter().chain(self.turns.next_tokens()).chain(self.look_again).min()
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
        self.ready.get(&lane).map_or(0, BTreeMap::len) + self.waits.count(lane)
    }

    pub(super) fn claim_changed(&mut self, lane: L, now: Instant) {
        self.turns.due(lane, self.ready.contains_key(&lane), now);
    }

    pub(super) fn tenants(&mut self, now: Instant) -> BTreeMap<u32, TenantFigures> {
        // Keys become due even while no worker is free to notice it.
        self.promote(now);
        let newest = self.marks.stale(now);
        self.turns.figures(|lane| (self.depth(lane), newest.map_or(0, |newest| self.stale(lane, newest))))
    }

    /// How many due slots of the lane have at most this number. Takes a time in proportion to the smaller of their
    /// number and that of the others.
    fn stale(&self, lane: L, newest: u64) -> usize {
        let Some(ready) = self.ready.get(&lane) else { return 0 };
        let (mut old, mut new) = (ready.range(..=newest), ready.range(newest + 1..));
        let mut pairs = 0;
        loop {
            match (old.next(), new.next()) {
                (None, _) => return pairs,
                (Some(_), None) => return ready.len() - pairs,
                (Some(_), Some(_)) => pairs += 1,
            }
        }
    }

    pub(super) fn remove_lane(&mut self, lane: L, now: Instant) {
        self.slots.retain(|(of, _), slot| {
            if *of == lane && slot.at == SlotStage::Running {
                slot.at = SlotStage::Orphaned;
            }
            if *of == lane && slot.at == SlotStage::Orphaned {
                slot.items.truncate(1);
            }
            *of != lane || slot.at == SlotStage::Orphaned
        });
        self.ready.remove(&lane);
        self.delayed.retain(|_, (of, _)| *of != lane);
        self.turns.remove(lane, now);
        let freed = self.waits.remove_lane(lane, |(slot, item)| {
            let orphan = self.slots.get(&(lane, slot.clone())).and_then(|state| state.items.first());
            orphan.is_some_and(|orphan| orphan.item == *item)
        });
        freed.into_iter().for_each(|(lane, object)| self.free([lane], &object, now));
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }
}
