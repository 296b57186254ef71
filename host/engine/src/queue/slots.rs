//! The queue's bookkeeping, without waiting: every call is given the time.

use std::{
    collections::{BTreeMap, HashMap, VecDeque, hash_map::Entry},
    hash::Hash,
};

use foldhash::quality::FixedState;
use rand::{SeedableRng, rngs::SmallRng};
use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;

use super::{
    Backoff, Done, Job, Next,
    admission::{Admission, Claim, Held},
};

#[derive(Debug)]
pub(super) struct Slots<L, S, I> {
    slots: HashMap<(L, S), Slot<I>, FixedState>,
    /// Lanes that have a due slot, each once, in turn.
    turns: VecDeque<L>,
    /// Due slots by lane, numbered in the order they became due, so that one in the middle can be removed without a
    /// look at the others. No lane's is empty.
    ready: HashMap<L, BTreeMap<u64, S>, FixedState>,
    /// Slots that become due later, each once.
    delayed: BTreeMap<Due, (L, S)>,
    /// Jobs given out, by lane.
    running: HashMap<L, usize, FixedState>,
    /// How many jobs one lane may have at a time.
    lane_limit: usize,
    /// Lanes that may have fewer, as their jobs failed: halved by each failure, one more with each success.
    narrowed: HashMap<L, usize>,
    /// `None`: memory is not counted.
    admission: Option<Admission<L>>,
    /// What jobs given out have taken.
    taken: HashMap<(L, S), Claim>,
    numbers: u64,
    closed: bool,
    backoff: Backoff,
    random: SmallRng,
}

/// When a slot becomes due; the number distinguishes slots of one instant.
type Due = (Instant, u64);

#[derive(Debug)]
struct Slot<I> {
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
    /// When it was added while it was running.
    again: Option<Instant>,
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
            slots: HashMap::with_hasher(hasher.clone()),
            turns: VecDeque::new(),
            ready: HashMap::with_hasher(hasher.clone()),
            delayed: BTreeMap::new(),
            running: HashMap::with_hasher(hasher),
            lane_limit: lane_limit.max(1),
            narrowed: HashMap::new(),
            admission: None,
            taken: HashMap::new(),
            numbers: 0,
            closed: false,
            backoff,
            random: SmallRng::seed_from_u64(seed),
        }
    }

    pub(super) fn add(&mut self, lane: L, slot: S, item: I, now: Instant) {
        let fresh = Item { item, due: now, queued: now, failures: 0, again: None };
        let mut entry = match self.slots.entry((lane, slot)) {
            Entry::Vacant(entry) => {
                self.numbers += 1;
                let (lane, slot) = entry.key().clone();
                entry.insert(Slot { items: smallvec![fresh], at: At::Ready(self.numbers) });
                self.push_ready(lane, slot, self.numbers);
                return;
            }
            Entry::Occupied(entry) => entry,
        };
        let state = entry.get_mut();
        // The running item stands first, see `take`. One of a lane that was removed answers nothing of the present
        // lane.
        let from = usize::from(state.at == At::Orphaned);
        match state.items.iter().skip(from).position(|waiting| waiting.item == fresh.item).map(|at| from + at) {
            Some(0) if state.at == At::Running => state.items[0].again = state.items[0].again.or(Some(now)),
            Some(at) => {
                let waiting = &mut state.items[at];
                // What was waiting for a delay answers this event; what was already due answers the older one.
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

    pub(super) fn set_admission(&mut self, admission: Admission<L>) {
        self.admission = Some(admission);
    }

    pub(super) fn take(&mut self, now: Instant) -> Option<Job<L, S, I>> {
        self.promote(now);
        let mut held = Held::default();
        if let Some(admission) = &mut self.admission {
            admission.keep(|lane| self.ready.contains_key(&lane));
            for lane in admission.overdue(now) {
                if self.is_full(lane) {
                    continue;
                }
                if let Some(job) = self.start(lane, &held, now) {
                    return Some(job);
                }
                if let Some(admission) = &self.admission {
                    admission.hold(lane, &mut held);
                }
            }
        }
        for _ in 0..self.turns.len() {
            let lane = *self.turns.front()?;
            if !self.is_full(lane)
                && let Some(job) = self.start(lane, &held, now)
            {
                return Some(job);
            }
            self.turns.rotate_left(1);
        }
        None
    }

    /// The lane has as many jobs as it may have at a time.
    fn is_full(&self, lane: L) -> bool {
        let limit = self.narrowed.get(&lane).copied().unwrap_or(self.lane_limit);
        self.running.get(&lane).is_some_and(|running| *running >= limit)
    }

    /// Takes the lane's first due item, if there is memory for it.
    fn start(&mut self, lane: L, held: &Held, now: Instant) -> Option<Job<L, S, I>> {
        let slot = self.ready.get(&lane)?.first_key_value()?.1.clone();
        let state = self.slots.get_mut(&(lane, slot.clone()))?;
        let item = state.items.iter().position(|item| item.due <= now)?;
        let claim = match &mut self.admission {
            Some(admission) => Some(admission.admit(lane, held, now)?),
            None => None,
        };
        let item = state.items.remove(item);
        let job = Job {
            lane,
            slot: slot.clone(),
            item: item.item.clone(),
            attempt: item.failures.saturating_add(1),
            queued: item.queued,
            claim,
        };
        state.items.insert(0, item);
        state.at = At::Running;
        *self.running.entry(lane).or_default() += 1;
        if let Some(claim) = claim {
            self.taken.insert((lane, slot), claim);
        }
        self.pop_ready(lane);
        Some(job)
    }

    /// Removes the lane's first slot from those that are due, and ends the lane's turn.
    fn pop_ready(&mut self, lane: L) {
        let is_empty = self.ready.get_mut(&lane).is_none_or(|ready| {
            ready.pop_first();
            ready.is_empty()
        });
        if let Some(turn) = self.turns.iter().position(|turn| *turn == lane) {
            self.turns.remove(turn);
        }
        if is_empty {
            self.ready.remove(&lane);
        } else {
            self.turns.push_back(lane);
        }
    }

    /// Frees what a job has taken; once for each job.
    pub(super) fn release(&mut self, job: &Job<L, S, I>) -> bool {
        if self.taken.is_empty() {
            return false;
        }
        let claim = self.taken.remove(&(job.lane, job.slot.clone()));
        let Some((admission, claim)) = self.admission.as_mut().zip(claim) else { return false };
        admission.release(claim);
        true
    }

    pub(super) fn done(&mut self, job: &Job<L, S, I>, next: Next, now: Instant) -> Done {
        self.release(job);
        let key = (job.lane, job.slot.clone());
        if let Some(running) = self.running.get_mut(&job.lane) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(&job.lane);
            }
        }
        let Some(state) = self.slots.get_mut(&key).filter(|state| !state.items.is_empty()) else {
            return Done::Forgotten;
        };
        let mut item = state.items.remove(0);
        if state.at == At::Orphaned {
            self.place(key, now);
            return Done::Orphaned;
        }
        let limit = self.narrowed.get(&job.lane).copied().unwrap_or(self.lane_limit);
        match next {
            Next::Settled | Next::Final | Next::After(_) if limit >= self.lane_limit - 1 => {
                self.narrowed.remove(&job.lane);
            }
            Next::Settled | Next::Final | Next::After(_) => {
                self.narrowed.insert(job.lane, limit + 1);
            }
            Next::Failed if limit > 1 => {
                self.narrowed.insert(job.lane, limit / 2);
            }
            Next::Failed | Next::FailedFor(_) | Next::Postponed(_) => {}
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
            (Some(event), _) => {
                // What failed still answers the event that it answered before.
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
                        self.turns.retain(|turn| *turn != key.0);
                    }
                }
            }
        }
        self.place(key, now);
        true
    }

    /// Puts a slot that is not running where its items belong.
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
            self.push_ready(key.0, key.1, self.numbers);
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
    fn push_ready(&mut self, lane: L, slot: S, number: u64) {
        let ready = self.ready.entry(lane).or_default();
        if ready.is_empty() {
            self.turns.push_back(lane);
        }
        ready.insert(number, slot);
    }

    fn promote(&mut self, now: Instant) {
        while let Some(first) = self.delayed.first_entry().filter(|first| first.key().0 <= now) {
            let (lane, slot) = first.remove();
            if let Some(state) = self.slots.get_mut(&(lane, slot.clone())) {
                self.numbers += 1;
                state.at = At::Ready(self.numbers);
                self.push_ready(lane, slot, self.numbers);
            }
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.delayed.first_key_value().map(|((due, _), _)| *due)
    }

    #[cfg(test)]
    pub(super) fn delays(&self) -> usize {
        self.delayed.len()
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.turns.is_empty()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.turns.is_empty() && self.running.is_empty()
    }

    pub(super) fn depth(&self, lane: L) -> usize {
        self.ready.get(&lane).map_or(0, BTreeMap::len)
    }

    pub(super) fn remove_lane(&mut self, lane: L) {
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
        self.narrowed.remove(&lane);
        self.delayed.retain(|_, (of, _)| *of != lane);
        self.turns.retain(|turn| *turn != lane);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }
}
