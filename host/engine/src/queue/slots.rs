//! The queue's bookkeeping, without waiting: the time is an argument of every call.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use foldhash::quality::FixedState;
use rand::{SeedableRng, rngs::SmallRng};
use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;

use super::{
    Backoff, CONFLICT_WAIT, Done, Job, Next,
    by_lane::ByLane,
    order::{Lanes, Order},
    turns::{JOB, TenantFigures, Turns},
    why::Why,
};

#[derive(Debug)]
pub(super) struct Slots<L, S, I> {
    pub(super) slots: ByLane<L, S, SlotState<I>>,
    pub(super) turns: Turns<L>,
    /// Due slots by lane, in the order they became due. No lane's is empty.
    ready: HashMap<L, BTreeMap<Due, S>, FixedState>,
    /// Slots that become due later, each once.
    pub(super) delayed: BTreeMap<Due, (L, S)>,
    /// Slots were delayed since a worker last found no job, and began to wait until [`Self::next_due`].
    pub(super) has_new_delays: bool,
    pub(super) order: Arc<Order<L>>,
    /// The lanes whose slots of a name are parked, by the lane and the name that they wait for. May name more.
    pub(super) parked: HashMap<L, HashMap<S, Lanes<L>, FixedState>, FixedState>,
    /// When the slots of each lane became due that are [`SlotStage::Parked`].
    pub(super) waiting: HashMap<L, BTreeMap<Due, ()>, FixedState>,
    /// Due slots may be left that were not examined.
    look_again: Option<Instant>,
    pub(super) numbers: u64,
    pub(super) closed: bool,
    /// A key of the host's own waits for a worker.
    pub(super) beat: bool,
    backoff: Backoff,
    random: SmallRng,
}

/// When a slot becomes due; the number distinguishes slots of one instant.
pub(super) type Due = (Instant, u64);

#[derive(Debug)]
pub(super) struct SlotState<I> {
    /// In the order first added. The first that is due runs, so a new incarnation waits for the first attempt at the
    /// old one's deletion, but not for its retries.
    ///
    /// Nearly all slots have one.
    pub(super) items: SmallVec<[Item<I>; 1]>,
    pub(super) at: SlotStage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotStage {
    /// Since a time.
    Ready(Due),
    /// Until a time.
    Delayed(Due),
    /// Due since a time, but its first due item waits for one of another lane, perhaps until a time at most.
    Parked(Due, Option<Due>),
    Running,
    /// Its lane was removed while its first item was running. Further items were added to the lane after that.
    Orphaned,
}

#[derive(Debug)]
pub(super) struct Item<I> {
    pub(super) item: I,
    queued: Instant,
    pub(super) failures: u32,
    /// The steps that make it due.
    pub(super) steps: Steps,
    /// When it was due before the first of them, when the event came in that it answers then, and why it is due then.
    pub(super) before: Option<((Instant, Instant), Why)>,
    /// The steps that added it while it was running.
    pub(super) dirty: Option<Steps>,
    /// It does not run again before this time.
    pub(super) rest: Option<Instant>,
    /// It is kept for its `rest` only.
    pub(super) is_resting: bool,
}

/// When a step makes its items due, and its number.
pub(super) type Step = (Instant, u64);

/// The additions of an item that one run answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steps {
    pub(super) first: Step,
    pub(super) latest: Step,
    /// All of them were changes of the object.
    pub(super) are_changes: bool,
    pub(super) why: Why,
}

/// The most items of a slot before [`Slots::excess`]: each addition looks at all.
pub(super) const MOST_ITEMS: usize = 1_000;
/// How many slots are examined before the queue is unlocked.
const ROUNDS: usize = 64;
/// A key that is due for longer than this, and not taken, is stale.
const STALE: Duration = Duration::from_secs(30);

impl<I: Eq> SlotState<I> {
    pub(super) fn runs(&self, item: &I) -> bool {
        self.at == SlotStage::Running && self.items.first().is_some_and(|first| first.item == *item)
    }

    /// Returns the place of an item. The running one of a lane that was removed is not one of the present lane.
    pub(super) fn find(&self, item: &I) -> Option<usize> {
        let from = usize::from(self.at == SlotStage::Orphaned);
        self.items.iter().skip(from).position(|of| of.item == *item).map(|at| from + at)
    }
}

impl<I> Item<I> {
    pub(super) fn due(&self) -> Instant {
        self.steps.first.0
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        !self.is_resting && self.due() <= now
    }

    /// Delays it. When it is due it is a step of its own, after all that were queued before that time.
    pub(super) fn delay(&mut self, (due, queued): (Instant, Instant), why: Why) {
        self.queued = queued;
        self.steps = Steps::one((due, 0), false, why).not_before(self.rest);
    }

    /// Nothing asks for it any more. Returns false if it may be forgotten.
    pub(super) fn rests(&mut self, now: Instant) -> bool {
        let Some(rest) = self.rest.filter(|rest| *rest > now) else { return false };
        self.is_resting = true;
        self.delay((rest, rest), Why::default());
        true
    }
}

impl Steps {
    const fn one(step: Step, is_change: bool, why: Why) -> Self {
        Self { first: step, latest: step, are_changes: is_change, why }
    }

    /// The load of another version does not wait.
    pub(super) fn not_before(self, time: Option<Instant>) -> Self {
        let time = time.filter(|_| !self.why.contains(Why::LOAD));
        let (due, number) = self.first;
        Self { first: (time.map_or(due, |time| due.max(time)), number), ..self }
    }

    fn join(&mut self, later: Self) {
        self.first = self.first.min(later.first);
        self.latest = later.latest;
        self.are_changes &= later.are_changes;
        self.why = self.why.and(later.why);
    }
}

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
            order: Arc::default(),
            parked: HashMap::with_hasher(hasher.clone()),
            waiting: HashMap::with_hasher(hasher.clone()),
            slots: ByLane::with_hasher(hasher.clone()),
            ready: HashMap::with_hasher(hasher),
            delayed: BTreeMap::new(),
            has_new_delays: false,
            look_again: None,
            numbers: 0,
            closed: false,
            beat: false,
            backoff,
            random: SmallRng::seed_from_u64(seed),
        }
    }

    #[cfg(test)]
    pub(super) fn add(&mut self, lane: L, slot: S, item: I, now: Instant) {
        self.add_all(std::iter::once((lane, slot, item, Why::default())), false, now);
    }

    /// Adds items in one step.
    pub(super) fn add_all(&mut self, items: impl Iterator<Item = (L, S, I, Why)>, is_change: bool, now: Instant) {
        self.numbers += 1;
        let step = (now, self.numbers);
        items.for_each(|(lane, slot, item, why)| {
            self.add_one((lane, slot), item, Steps::one(step, is_change, why), now);
        });
    }

    fn add_one(&mut self, key: (L, S), item: I, steps: Steps, now: Instant) {
        let fresh =
            Item { item, queued: now, failures: 0, steps, before: None, dirty: None, rest: None, is_resting: false };
        let mut entry = match self.slots.entry(key) {
            Entry::Vacant(entry) => {
                let key = entry.key().clone();
                entry.insert(SlotState { items: smallvec![fresh], at: SlotStage::Running });
                self.place(key, None, now);
                return;
            }
            Entry::Occupied(entry) => entry,
        };
        let state = entry.get_mut();
        match state.find(&fresh.item) {
            // The running item stands first, see `start`.
            Some(0) if state.at == SlotStage::Running => match &mut state.items[0].dirty {
                Some(dirty) => dirty.join(steps),
                dirty => *dirty = Some(steps),
            },
            Some(at) => {
                let waiting = &mut state.items[at];
                let steps = steps.not_before(waiting.rest);
                let is_resting = std::mem::take(&mut waiting.is_resting);
                // An item that waited for a delay answers this event; one that was due answers the older event.
                if waiting.due() > steps.first.0 || is_resting {
                    let before = ((waiting.due(), waiting.queued), waiting.steps.why);
                    waiting.before = (!is_resting).then_some(before);
                    waiting.queued = now;
                    let unanswered = waiting.steps.why.without(Why::REQUEUE);
                    waiting.steps = Steps { why: unanswered.and(steps.why), ..steps };
                } else {
                    waiting.steps.join(steps);
                }
            }
            None => state.items.push(fresh),
        }
        if matches!(state.at, SlotStage::Delayed(_) | SlotStage::Parked(..)) {
            let key = entry.key().clone();
            self.replace(key, now);
        }
    }

    pub(super) fn take(&mut self, now: Instant) -> Option<Job<L, S, I>> {
        self.promote(now);
        self.look_again = None;
        for _ in 0..ROUNDS {
            self.pass_delayed(now);
            let Some(lane) = self.turns.next(now) else {
                if self.turns.delayed.is_empty() {
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
            self.turns.charge_cost(lane, JOB, now);
        }
        self.look_again = Some(now);
        None
    }

    /// Starts a job of the lane's first due item, or parks its slot.
    fn start(&mut self, lane: L, now: Instant) -> Option<Job<L, S, I>> {
        let (since, slot) = self.ready.get_mut(&lane)?.pop_first()?;
        let key = (lane, slot);
        let first = self.slots.get(&key)?.items.iter().position(|item| item.is_due(now))?;
        if self.park(&key, first, since, now) {
            return None;
        }
        let state = self.slots.get_mut(&key)?;
        let mut item = state.items.remove(first);
        item.before = None;
        item.rest = self.turns.rest(lane).map(|rest| now + rest);
        self.numbers += 1;
        let job = Job {
            lane,
            slot: key.1,
            item: item.item.clone(),
            attempt: item.failures.saturating_add(1),
            queued: item.queued,
            why: item.steps.why,
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
            self.place(key, None, now);
            return Done::Orphaned;
        }
        let delay = match next {
            Next::Settled | Next::Final | Next::Ended => None,
            Next::After(delay) | Next::Again(delay) | Next::FailedFor(delay) | Next::Postponed(delay) => Some(delay),
            Next::Failed => Some(self.backoff.delay(item.failures.saturating_add(1), &mut self.random)),
            Next::Conflict => {
                let backoff = Backoff { most: self.backoff.most.min(CONFLICT_WAIT), ..self.backoff };
                Some(backoff.delay(item.failures.saturating_add(1), &mut self.random))
            }
        };
        match next {
            Next::Settled | Next::Final | Next::Ended | Next::Again(_) | Next::After(_) => item.failures = 0,
            Next::Failed | Next::FailedFor(_) | Next::Conflict => item.failures = item.failures.saturating_add(1),
            // Nothing was run that it would rest from.
            Next::Postponed(_) => item.rest = None,
        }
        let why = match next {
            Next::Settled | Next::Final | Next::Ended => Why::default(),
            Next::After(_) => Why::REQUEUE,
            Next::Again(_) => Why::WRITES,
            Next::Failed | Next::FailedFor(_) | Next::Conflict => item.steps.why.and(Why::RETRY),
            Next::Postponed(_) => item.steps.why,
        };
        let dirty = item.dirty.take().filter(|_| next != Next::Final);
        let retry = delay.map(|delay| {
            let due = now + delay;
            (due, if matches!(next, Next::After(_) | Next::Again(_)) { due } else { item.queued })
        });
        let done = match (dirty, retry) {
            (Some(steps), _) => {
                // An item that failed still answers the event that it answered before.
                let is_same = next.is_failure() || matches!(next, Next::Postponed(_));
                let due = steps.not_before(item.rest);
                item.steps = Steps { why: steps.why.and(why.without(Why::REQUEUE)), ..due };
                if !is_same {
                    item.queued = steps.first.0;
                }
                item.before = retry.map(|retry| (retry, why));
                state.items.insert(0, item);
                Done::Kept
            }
            (None, Some(retry)) => {
                item.delay(retry, why);
                state.items.insert(0, item);
                Done::Kept
            }
            (None, None) => {
                if next != Next::Ended && item.rests(now) {
                    state.items.insert(0, item);
                }
                Done::Forgotten
            }
        };
        if state.items.is_empty() {
            entry.remove();
            self.slots.shrink(job.lane);
        } else {
            let key = entry.key().clone();
            self.place(key, None, now);
        }
        self.free(job.lane, &job.slot, now);
        done
    }

    /// Returns the running item of the job, unless the lane was removed since.
    pub(super) fn running(&mut self, job: &Job<L, S, I>) -> Option<&mut Item<I>> {
        let state = self.slots.get_mut(&(job.lane, job.slot.clone()))?;
        (state.at == SlotStage::Running).then(|| state.items.first_mut()).flatten()
    }

    pub(super) fn changed_during(&mut self, job: &Job<L, S, I>) -> Option<u64> {
        let steps = self.running(job)?.dirty?;
        steps.are_changes.then_some(steps.latest.1)
    }

    pub(super) fn answered(&mut self, job: &Job<L, S, I>, number: u64) {
        let Some(item) = self.running(job) else { return };
        item.dirty = item.dirty.filter(|steps| steps.latest.1 != number);
    }

    pub(super) fn contains(&self, lane: L, slot: &S, item: &I) -> bool {
        let found = |state: &SlotState<I>| state.find(item).is_some_and(|at| !state.items[at].is_resting);
        self.slots.get(&(lane, slot.clone())).is_some_and(found)
    }

    /// Returns the oldest item of a slot that waits, if the slot has many.
    pub(super) fn excess(&self, key: &(L, S)) -> Option<I> {
        let state = self.slots.get(key).filter(|state| state.items.len() >= MOST_ITEMS)?;
        let from = usize::from(matches!(state.at, SlotStage::Running | SlotStage::Orphaned));
        state.items.get(from).map(|item| item.item.clone())
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
        let (lane, slot) = key.clone();
        if !running {
            self.replace(key, now);
        }
        self.free(lane, &slot, now);
        true
    }

    /// Places a slot that is not running again.
    pub(super) fn replace(&mut self, key: (L, S), now: Instant) {
        let since = match self.slots.get(&key).map(|state| state.at) {
            None | Some(SlotStage::Running | SlotStage::Orphaned) => return,
            Some(SlotStage::Delayed(due)) => {
                self.delayed.remove(&due);
                None
            }
            Some(SlotStage::Parked(since, until)) => {
                until.iter().for_each(|until| _ = self.delayed.remove(until));
                if let Some(waiting) = self.waiting.get_mut(&key.0) {
                    waiting.remove(&since);
                }
                Some(since)
            }
            Some(SlotStage::Ready(since)) => {
                if let Some(ready) = self.ready.get_mut(&key.0) {
                    ready.remove(&since);
                    if ready.is_empty() {
                        self.ready.remove(&key.0);
                        self.turns.due(key.0, false, now);
                    }
                }
                Some(since)
            }
        };
        self.place(key, since, now);
    }

    /// Moves a slot that is in no list to the due or the delayed slots, as its items are. One that has been due since
    /// a time keeps its place.
    fn place(&mut self, key: (L, S), since: Option<Due>, now: Instant) {
        let Some(state) = self.slots.get_mut(&key) else { return };
        state.items.retain(|item| !item.is_resting || item.due() > now);
        let Some(due) = state.items.iter().map(Item::due).min() else {
            self.slots.remove(&key);
            self.slots.shrink(key.0);
            return;
        };
        self.numbers += 1;
        if due > now {
            let due = (due, self.numbers);
            state.at = SlotStage::Delayed(due);
            self.delayed.insert(due, key);
            self.has_new_delays = true;
            return;
        }
        let since = since.unwrap_or((now, self.numbers));
        state.at = SlotStage::Ready(since);
        let (lane, slot) = key;
        let ready = self.ready.entry(lane).or_default();
        let is_first = ready.is_empty();
        ready.insert(since, slot);
        if is_first {
            self.turns.due(lane, true, now);
        }
    }

    fn promote(&mut self, now: Instant) {
        while let Some(first) = self.delayed.first_entry().filter(|first| first.key().0 <= now) {
            let key = first.remove();
            self.replace(key, now);
        }
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
        self.ready.get(&lane).map_or(0, BTreeMap::len) + self.waiting.get(&lane).map_or(0, BTreeMap::len)
    }

    pub(super) fn claim_changed(&mut self, lane: L, now: Instant) {
        self.turns.due(lane, self.ready.contains_key(&lane), now);
    }

    pub(super) fn tenants(&mut self, now: Instant) -> BTreeMap<u32, TenantFigures> {
        // Keys become due even while no worker is free to notice it.
        self.promote(now);
        let before = now.checked_sub(STALE);
        let stale = |lane, before| stale(self.ready.get(&lane), before) + stale(self.waiting.get(&lane), before);
        self.turns.figures(|lane| (self.depth(lane), before.map_or(0, |before| stale(lane, before))))
    }

    pub(super) fn remove_lane(&mut self, lane: L, now: Instant) {
        let delayed = &mut self.delayed;
        self.slots.retain(lane, |slot| {
            match slot.at {
                SlotStage::Running => slot.at = SlotStage::Orphaned,
                SlotStage::Delayed(due) | SlotStage::Parked(_, Some(due)) => drop(delayed.remove(&due)),
                SlotStage::Ready(_) | SlotStage::Parked(_, None) | SlotStage::Orphaned => {}
            }
            slot.items.truncate(1);
            slot.at == SlotStage::Orphaned
        });
        self.ready.remove(&lane);
        self.turns.remove(lane, now);
        self.waiting.remove(&lane);
        let parked = self.parked.remove(&lane);
        parked.into_iter().for_each(|slots| self.free_all(slots, now));
    }
}

/// Returns how many slots have been due since before this time. Takes a time in proportion to the smaller of their
/// number and that of the others.
fn stale<T>(slots: Option<&BTreeMap<Due, T>>, before: Instant) -> usize {
    let Some(slots) = slots else { return 0 };
    let mut old = slots.range(..(before, 0));
    let mut new = slots.range((before, 0)..);
    let mut pairs = 0;
    loop {
        match (old.next(), new.next()) {
            (None, _) => return pairs,
            (Some(_), None) => return slots.len() - pairs,
            (Some(_), Some(_)) => pairs += 1,
        }
    }
}
