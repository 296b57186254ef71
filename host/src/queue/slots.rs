//! The queue's bookkeeping, without waiting: every call is given the time.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    hash::Hash,
};

use rand::{SeedableRng, rngs::SmallRng};
use tokio::time::Instant;

use super::{Backoff, Job, Next};

#[derive(Debug)]
pub(super) struct Slots<L, S, I> {
    slots: HashMap<(L, S), Slot<I>>,
    /// Lanes that have a due slot, each once, in turn.
    turns: VecDeque<L>,
    /// Due slots by lane, in the order they became due.
    ready: HashMap<L, VecDeque<S>>,
    /// Slots that become due later. An entry whose number is not its slot's is out of date and passed over.
    delayed: BinaryHeap<Reverse<Delayed<L, S>>>,
    running: usize,
    numbers: u64,
    closed: bool,
    backoff: Backoff,
    random: SmallRng,
}

#[derive(Debug)]
struct Slot<I> {
    /// In the order first added. Only the first may run.
    items: VecDeque<Item<I>>,
    at: At,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Ready,
    Delayed(u64),
    Running,
    /// Its lane was removed while it was running.
    Orphaned,
}

#[derive(Debug)]
struct Item<I> {
    item: I,
    due: Instant,
    queued: Instant,
    failures: u32,
    /// Added while it was running.
    again: Option<Instant>,
}

#[derive(Debug)]
struct Delayed<L, S> {
    due: Instant,
    number: u64,
    lane: L,
    slot: S,
}

impl<L, S> PartialEq for Delayed<L, S> {
    fn eq(&self, other: &Self) -> bool {
        (self.due, self.number) == (other.due, other.number)
    }
}
impl<L, S> Eq for Delayed<L, S> {}
impl<L, S> PartialOrd for Delayed<L, S> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<L, S> Ord for Delayed<L, S> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl<L, S, I> Slots<L, S, I>
where
    L: Copy + Eq + Hash,
    S: Clone + Eq + Hash,
    I: Clone + Eq,
{
    pub(super) fn new(backoff: Backoff, seed: u64) -> Self {
        Self {
            slots: HashMap::new(),
            turns: VecDeque::new(),
            ready: HashMap::new(),
            delayed: BinaryHeap::new(),
            running: 0,
            numbers: 0,
            closed: false,
            backoff,
            random: SmallRng::seed_from_u64(seed),
        }
    }

    pub(super) fn add(&mut self, lane: L, slot: S, item: I, now: Instant) {
        let fresh = Item { item, due: now, queued: now, failures: 0, again: None };
        let Some(state) = self.slots.get_mut(&(lane, slot.clone())) else {
            self.slots.insert((lane, slot.clone()), Slot { items: [fresh].into(), at: At::Ready });
            self.push_ready(lane, slot);
            return;
        };
        let running = matches!(state.at, At::Running | At::Orphaned);
        match state.items.iter_mut().position(|waiting| waiting.item == fresh.item) {
            Some(0) if running => state.items[0].again = state.items[0].again.or(Some(now)),
            Some(at) => {
                let waiting = &mut state.items[at];
                // What was waiting for a delay answers this event; what was already due answers the older one.
                if waiting.due > now {
                    (waiting.due, waiting.queued) = (now, now);
                }
                if at == 0 && matches!(state.at, At::Delayed(_)) {
                    state.at = At::Ready;
                    self.push_ready(lane, slot);
                }
            }
            None => state.items.push_back(fresh),
        }
    }

    pub(super) fn take(&mut self, now: Instant) -> Option<Job<L, S, I>> {
        self.promote(now);
        while let Some(lane) = self.turns.pop_front() {
            let ready = self.ready.get_mut(&lane)?;
            let slot = ready.pop_front();
            if ready.is_empty() {
                self.ready.remove(&lane);
            } else {
                self.turns.push_back(lane);
            }
            let Some(slot) = slot else { continue };
            let Some(state) = self.slots.get_mut(&(lane, slot.clone())) else { continue };
            let Some(first) = state.items.front() else { continue };
            state.at = At::Running;
            self.running += 1;
            let (item, attempt, queued) = (first.item.clone(), first.failures.saturating_add(1), first.queued);
            return Some(Job { lane, slot, item, attempt, queued });
        }
        None
    }

    pub(super) fn done(&mut self, job: &Job<L, S, I>, next: Next, now: Instant) {
        let key = (job.lane, job.slot.clone());
        let Some(state) = self.slots.get_mut(&key) else { return };
        self.running = self.running.saturating_sub(1);
        if state.at == At::Orphaned {
            self.slots.remove(&key);
            return;
        }
        let Some(mut first) = state.items.pop_front() else { return };
        let (keep, due) = match next {
            Next::Settled => {
                first.failures = 0;
                (false, now)
            }
            Next::After(delay) => {
                first.failures = 0;
                (true, now + delay)
            }
            Next::Failed => {
                first.failures = first.failures.saturating_add(1);
                (true, now + self.backoff.delay(first.failures, &mut self.random))
            }
            Next::Postponed(delay) => (true, now + delay),
        };
        match first.again.take() {
            Some(event) => {
                (first.due, first.queued) = (now, event);
                state.items.push_front(first);
            }
            None if keep => {
                (first.due, first.queued) = (due, due);
                state.items.push_front(first);
            }
            None => {}
        }
        self.place(key, now);
    }

    /// Puts a slot that is not running where its first item belongs.
    fn place(&mut self, key: (L, S), now: Instant) {
        let Some(state) = self.slots.get_mut(&key) else { return };
        let Some(first) = state.items.front() else {
            self.slots.remove(&key);
            return;
        };
        let (lane, slot) = key;
        if first.due <= now {
            state.at = At::Ready;
            self.push_ready(lane, slot);
        } else {
            self.numbers += 1;
            state.at = At::Delayed(self.numbers);
            self.delayed.push(Reverse(Delayed { due: first.due, number: self.numbers, lane, slot }));
        }
    }

    fn push_ready(&mut self, lane: L, slot: S) {
        let ready = self.ready.entry(lane).or_default();
        if ready.is_empty() {
            self.turns.push_back(lane);
        }
        ready.push_back(slot);
    }

    fn promote(&mut self, now: Instant) {
        while let Some(Reverse(delayed)) = self.delayed.peek() {
            if delayed.due > now {
                return;
            }
            let Some(Reverse(Delayed { number, lane, slot, .. })) = self.delayed.pop() else { return };
            if let Some(state) = self.slots.get_mut(&(lane, slot.clone()))
                && state.at == At::Delayed(number)
            {
                state.at = At::Ready;
                self.push_ready(lane, slot);
            }
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.delayed.peek().map(|Reverse(delayed)| delayed.due)
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.turns.is_empty()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.turns.is_empty() && self.running == 0
    }

    pub(super) fn depth(&self, lane: L) -> usize {
        self.ready.get(&lane).map_or(0, VecDeque::len)
    }

    pub(super) fn remove_lane(&mut self, lane: L) {
        self.slots.retain(|(of, _), slot| {
            if *of == lane && slot.at == At::Running {
                slot.at = At::Orphaned;
            }
            *of != lane || slot.at == At::Orphaned
        });
        self.ready.remove(&lane);
        self.turns.retain(|turn| *turn != lane);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }
}
