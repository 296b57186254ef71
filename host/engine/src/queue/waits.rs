//! Items that wait for an item of another lane: which, for which, and until when. Bookkeeping without a look at slots.
//!
//! An object is a slot and an item of it, which several lanes may have. All items that one change makes due are one
//! step. In a step, an item waits for the same object's items of the predecessors of its lane ([`Order`]), until their
//! next job is done. Besides, an item that is due because a job of the queue wrote its object yields: it waits for
//! those items of successors that were due before, so that a chain of lanes is run once for all writes of its first
//! pass. An item waits only for items that became due before it, or in the same step and are earlier in the order, so
//! items never wait for each other in a circle; and what it waits for never becomes more while it waits.
//!
//! A wait for an item that is not run now ends at once; the item then waits for what that one waited for.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use foldhash::quality::FixedState;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::order::{Lanes, Order};

/// How long a key waits for lanes that lead all groups. A run of a native plugin takes a millisecond or so.
pub(super) const LEADING: Duration = Duration::from_millis(100);

/// A slot and one of its items, whatever the lane.
pub(super) type Object<S, I> = (S, I);

#[derive(Debug)]
pub(super) struct Waits<L, S, I> {
    pub(super) order: Arc<Order<L>>,
    objects: HashMap<Object<S, I>, Waiting<L>, FixedState>,
    /// The objects of whose items others wait, by the lane waited for.
    awaited: HashMap<L, BTreeMap<u64, Object<S, I>>, FixedState>,
    /// The lanes of `awaited`, each once, in turn.
    turns: VecDeque<L>,
    /// How many items of each lane wait.
    counts: HashMap<L, usize, FixedState>,
    numbers: u64,
}

/// The items that wait for items of one object.
#[derive(Debug)]
struct Waiting<L> {
    edges: SmallVec<[Edge<L>; 2]>,
    waiters: SmallVec<[Waiter<L>; 2]>,
    /// The numbers of the object in [`Waits::awaited`].
    awaited: SmallVec<[(L, u64); 2]>,
}

/// One item waits for another one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge<L> {
    pub(super) waiter: L,
    pub(super) on: L,
    pub(super) kind: WaitKind,
    /// The wait is for the job after the one that is under way.
    pub(super) later: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitKind {
    /// The item waits for a predecessor.
    Order,
    /// The item waits for a lane that leads all groups, until this time.
    Leading(Instant),
    /// The item waits for a successor that was due before.
    Yields,
}

/// An item that waits.
#[derive(Debug, Clone, Copy)]
struct Waiter<L> {
    lane: L,
    /// The latest step that added it.
    latest: u64,
    before: PriorState,
    /// Its slot had it for the first time.
    is_new: bool,
}

/// The state of an item after the step that made it due is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PriorState {
    Nothing,
    /// It is due at this time, and answers the event of the second.
    Delayed(Instant, Instant),
    /// Its job was under way.
    Running,
    /// It was added for another reason too, and is not skipped.
    Stays,
}

/// When an item that waits may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WaitEnd {
    /// The time at which the wait ends; `None` if only the end of another item's wait or job ends it.
    pub(super) until: Option<Instant>,
    /// The items behind it in its slot wait too.
    pub(super) holds_slot: bool,
}

/// An item whose step is skipped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Skipped<L> {
    pub(super) lane: L,
    pub(super) before: PriorState,
}

impl<L, S, I> Waits<L, S, I>
where
    L: Copy + Eq + Hash,
    S: Clone + Eq + Hash,
    I: Clone + Eq + Hash,
{
    pub(super) fn new(hasher: &FixedState) -> Self {
        Self {
            order: Arc::default(),
            objects: HashMap::with_hasher(hasher.clone()),
            awaited: HashMap::with_hasher(hasher.clone()),
            turns: VecDeque::new(),
            counts: HashMap::with_hasher(hasher.clone()),
            numbers: 0,
        }
    }

    #[cfg(test)]
    pub(super) fn edges(&self) -> usize {
        self.objects.values().map(|waiting| waiting.edges.len()).sum()
    }

    /// True while nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Returns how many items of the lane wait.
    pub(super) fn count(&self, lane: L) -> usize {
        self.counts.get(&lane).copied().unwrap_or(0)
    }

    /// Adds an item that waits. `edges` is not empty.
    pub(super) fn add(&mut self, lane: L, object: &Object<S, I>, step: u64, before: PriorState, edges: &[Edge<L>]) {
        let empty = || Waiting { edges: SmallVec::new(), waiters: SmallVec::new(), awaited: SmallVec::new() };
        let waiting = self.objects.entry(object.clone()).or_insert_with(empty);
        for edge in edges {
            waiting.edges.push(*edge);
            if waiting.awaited.iter().any(|(on, _)| *on == edge.on) {
                continue;
            }
            self.numbers += 1;
            waiting.awaited.push((edge.on, self.numbers));
            let awaited = self.awaited.entry(edge.on).or_insert_with(|| {
                self.turns.push_back(edge.on);
                BTreeMap::new()
            });
            awaited.insert(self.numbers, object.clone());
        }
        waiting.waiters.push(Waiter { lane, latest: step, before, is_new: before == PriorState::Nothing });
        *self.counts.entry(lane).or_default() += 1;
    }

    /// Records that an item that may wait was added again. `written`: because of a write of the queue's jobs; any other
    /// change ends its yielding. Returns the items that may start now.
    pub(super) fn added_again(&mut self, lane: L, object: &Object<S, I>, step: Option<u64>, written: bool) -> Lanes<L> {
        let waiter = self.objects.get_mut(object).and_then(|waiting| waiting.of(lane));
        let Some(waiter) = waiter else { return Lanes::new() };
        match step {
            Some(step) => waiter.latest = step,
            None => waiter.before = PriorState::Stays,
        }
        if step.is_none() || written {
            return Lanes::new();
        }
        self.change(object, |edges| edges.retain(|edge| edge.waiter != lane || edge.kind != WaitKind::Yields))
    }

    /// Returns until when an item waits; `None` if it does not.
    pub(super) fn held(&self, lane: L, object: &Object<S, I>, now: Instant) -> Option<WaitEnd> {
        let waiting = self.objects.get(object)?;
        let of = waiting.edges.iter().filter(|edge| edge.waiter == lane);
        let mut latest = None;
        for edge in of {
            match edge.kind {
                WaitKind::Leading(until) if until <= now => {}
                WaitKind::Leading(until) => latest = latest.max(Some(until)),
                WaitKind::Order | WaitKind::Yields => {
                    return Some(WaitEnd { until: None, holds_slot: waiting.is_new(lane) });
                }
            }
        }
        latest.map(|until| WaitEnd { until: Some(until), holds_slot: waiting.is_new(lane) })
    }

    /// The item does not wait any more, because it starts: only others still wait for it.
    pub(super) fn forget_waiter(&mut self, lane: L, object: &Object<S, I>) {
        self.change(object, |edges| edges.retain(|edge| edge.waiter != lane));
    }

    /// The item is not run again after the job that is under way. Frees no other, because they wait for that job.
    pub(super) fn settles(&mut self, lane: L, object: &Object<S, I>) {
        self.change(object, |edges| skip_next(edges, lane));
    }

    /// A job of the item is done. `is_due`: because it was added while the job was under way. Returns the items that
    /// may start now.
    pub(super) fn done(&mut self, lane: L, object: &Object<S, I>, is_due: bool) -> Lanes<L> {
        let freed = self.change(object, |edges| {
            if !is_due {
                skip_next(edges, lane);
            }
            edges.retain(|edge| edge.on != lane || edge.later);
            edges.iter_mut().filter(|edge| edge.on == lane).for_each(|edge| edge.later = false);
        });
        freed.into_iter().filter(|freed| is_due || *freed != lane).collect()
    }

    /// Sets the state after a skipped step for an item that waits and whose job is done now.
    pub(super) fn ran(&mut self, lane: L, object: &Object<S, I>, before: PriorState) {
        let waiter = self.objects.get_mut(object).and_then(|waiting| waiting.of(lane));
        if let Some(waiter) = waiter.filter(|waiter| waiter.before == PriorState::Running) {
            waiter.before = before;
        }
    }

    /// Ends the waits for an item that is not run now. Returns the items that may start now.
    pub(super) fn pass(&mut self, lane: L, object: &Object<S, I>) -> Lanes<L> {
        self.change(object, |edges| pass(edges, lane, false))
    }

    /// The item is not in the queue any more. Returns the items that may start now.
    pub(super) fn remove(&mut self, lane: L, object: &Object<S, I>) -> Lanes<L> {
        let freed = self.change(object, |edges| {
            pass(edges, lane, false);
            edges.retain(|edge| edge.waiter != lane);
        });
        freed.into_iter().filter(|freed| *freed != lane).collect()
    }

    /// Sets the order, and ends waits that the new order would not begin. Otherwise those of two orders could be a
    /// circle. Returns the items that may start now.
    pub(super) fn set_order(&mut self, order: Arc<Order<L>>) -> Vec<(L, Object<S, I>)> {
        self.order = Arc::clone(&order);
        let ends = move |edge: &Edge<L>| match edge.kind {
            WaitKind::Order | WaitKind::Leading(_) => !order.is_before(edge.on, edge.waiter),
            WaitKind::Yields => !order.binds(edge.waiter, edge.on),
        };
        self.end(&ends, |_, edges| edges.retain(|edge| !ends(edge)))
    }

    /// The lane was removed; `runs` returns true for objects of which it has a job under way. Returns the items that
    /// may start now.
    pub(super) fn remove_lane(&mut self, lane: L, runs: impl Fn(&Object<S, I>) -> bool) -> Vec<(L, Object<S, I>)> {
        let ends = |edge: &Edge<L>| edge.waiter == lane || edge.on == lane;
        self.end(&ends, |object, edges| {
            pass(edges, lane, runs(object));
            edges.retain(|edge| !ends(edge));
        })
    }

    /// Changes what waits for items of the objects that `ends` selects, in the order in which they were waited for.
    fn end(
        &mut self,
        ends: &impl Fn(&Edge<L>) -> bool,
        change: impl Fn(&Object<S, I>, &mut SmallVec<[Edge<L>; 2]>),
    ) -> Vec<(L, Object<S, I>)> {
        let of = self.objects.iter().filter(|(_, waiting)| waiting.edges.iter().any(ends));
        let mut objects: Vec<_> = of.map(|(object, waiting)| (waiting.number(), object.clone())).collect();
        objects.sort_by_key(|(number, _)| *number);
        let mut all = Vec::new();
        for (_, object) in objects {
            let freed = self.change(&object, |edges| change(&object, edges));
            all.extend(freed.into_iter().map(|lane| (lane, object.clone())));
        }
        all
    }

    /// Skips, for the successors of a running item that wait, the steps up to `seen`. Those that a later step added
    /// wait for the item's next job, if `again`. Returns the items that are skipped, and the items that may start now.
    pub(super) fn stop(
        &mut self,
        lane: L,
        object: &Object<S, I>,
        seen: u64,
        again: bool,
    ) -> (SmallVec<[Skipped<L>; 2]>, Lanes<L>) {
        let Some(waiting) = self.objects.get(object) else { return Default::default() };
        let (mut skipped, mut new) = (SmallVec::<[Skipped<L>; 2]>::new(), Lanes::new());
        let stays = |waiter: &&Waiter<L>| waiter.before == PriorState::Stays || !self.order.binds(lane, waiter.lane);
        for waiter in waiting.waiters.iter().filter(|waiter| !stays(waiter)) {
            if waiter.latest <= seen {
                skipped.push(Skipped { lane: waiter.lane, before: waiter.before });
            } else {
                new.push(waiter.lane);
            }
        }
        let freed = self.change(object, |edges| {
            for Skipped { lane, before } in &skipped {
                pass(edges, *lane, *before == PriorState::Running);
                edges.retain(|edge| edge.waiter != *lane);
            }
            // From now on they are due since that later step.
            edges.retain(|edge| edge.kind != WaitKind::Yields || !new.contains(&edge.on));
            if again {
                let next = edges.iter_mut().filter(|edge| edge.on == lane && new.contains(&edge.waiter));
                next.for_each(|edge| edge.later = true);
            }
        });
        let freed = freed.into_iter().filter(|freed| skipped.iter().all(|skipped| skipped.lane != *freed)).collect();
        (skipped, freed)
    }

    /// Returns how many lanes are waited for.
    pub(super) fn awaited_lanes(&self) -> usize {
        self.turns.len()
    }

    /// Returns the next of the lanes that are waited for.
    pub(super) fn next_awaited(&mut self) -> Option<L> {
        let lane = self.turns.pop_front()?;
        self.turns.push_back(lane);
        Some(lane)
    }

    /// Returns the objects of whose items in this lane others wait, the first to be waited for first.
    pub(super) fn awaited(&self, lane: L) -> impl Iterator<Item = &Object<S, I>> {
        self.awaited.get(&lane).into_iter().flat_map(BTreeMap::values)
    }

    /// Changes what waits for items of an object. Returns the items that wait for nothing any more, or only for a
    /// time.
    fn change(&mut self, object: &Object<S, I>, change: impl FnOnce(&mut SmallVec<[Edge<L>; 2]>)) -> Lanes<L> {
        let Some(waiting) = self.objects.get_mut(object) else { return Lanes::new() };
        change(&mut waiting.edges);
        // One look at the edges, of which there may be many more than waiters.
        let mut awaited = HashSet::<L, FixedState>::default();
        // Whether each item that waits does so only for a time.
        let mut waits = HashMap::<L, bool, FixedState>::default();
        for edge in &waiting.edges {
            awaited.insert(edge.on);
            *waits.entry(edge.waiter).or_insert(true) &= matches!(edge.kind, WaitKind::Leading(_));
        }
        let mut freed = Lanes::new();
        waiting.awaited.retain(|(on, number)| {
            let is_awaited = awaited.contains(on);
            if !is_awaited && let Some(awaited) = self.awaited.get_mut(on) {
                awaited.remove(number);
                if awaited.is_empty() {
                    self.awaited.remove(on);
                    self.turns.retain(|lane| lane != on);
                }
            }
            is_awaited
        });
        waiting.waiters.retain(|waiter| {
            let is_for_a_time = waits.get(&waiter.lane).copied();
            if is_for_a_time.unwrap_or(true) {
                freed.push(waiter.lane);
            }
            if is_for_a_time.is_none()
                && let Some(count) = self.counts.get_mut(&waiter.lane)
            {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&waiter.lane);
                }
            }
            is_for_a_time.is_some()
        });
        if waiting.edges.is_empty() {
            self.objects.remove(object);
        }
        freed
    }
}

impl<L: Copy + Eq> Waiting<L> {
    fn of(&mut self, lane: L) -> Option<&mut Waiter<L>> {
        self.waiters.iter_mut().find(|waiter| waiter.lane == lane)
    }

    fn is_new(&self, lane: L) -> bool {
        self.waiters.iter().any(|waiter| waiter.lane == lane && waiter.is_new)
    }

    fn number(&self) -> Option<u64> {
        self.awaited.iter().map(|(_, number)| *number).min()
    }
}

/// Ends the waits of a lane whose job is under way and has no next one. Those that wait for the next one wait for the
/// one that is under way, and for what the lane's item waits for itself.
fn skip_next<L: Copy + Eq>(edges: &mut SmallVec<[Edge<L>; 2]>, lane: L) {
    inherit(edges, lane, true);
    edges.retain(|edge| edge.waiter != lane);
    edges.iter_mut().filter(|edge| edge.on == lane).for_each(|edge| edge.later = false);
}

/// Replaces waits for the lane's next job by waits for what its item waits for itself. `later`: a job is under way.
fn pass<L: Copy + Eq>(edges: &mut SmallVec<[Edge<L>; 2]>, lane: L, later: bool) {
    inherit(edges, lane, later);
    edges.retain(|edge| edge.on != lane || edge.later != later);
}

/// Adds what the lane's item waits for itself to the waits of the items that wait for the lane's next job.
fn inherit<L: Copy + Eq>(edges: &mut SmallVec<[Edge<L>; 2]>, lane: L, later: bool) {
    let is_for = |edge: &&Edge<L>| edge.on == lane && edge.later == later;
    let own: SmallVec<[Edge<L>; 2]> = edges.iter().filter(|edge| edge.waiter == lane).copied().collect();
    let waiters: Lanes<L> = edges.iter().filter(is_for).map(|edge| edge.waiter).collect();
    for waiter in waiters {
        for edge in &own {
            let has_it = edges.iter().any(|other| (other.waiter, other.on) == (waiter, edge.on));
            if !has_it && edge.on != waiter {
                edges.push(Edge { waiter, ..*edge });
            }
        }
    }
}
