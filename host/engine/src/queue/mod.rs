//! Items to run, in lanes: never two at once in one slot, delays, back-off, and shares of the processor.
//!
//! A lane is a plugin, a slot a Pod's name, an item one incarnation of it; the queue knows none of that. It holds
//! keys, never objects: adding an item that already waits changes at most when it runs. Lanes belong to tenants. The
//! next job is of the tenant whose runs cost least, and of its lane whose runs cost least; within a lane the slot that
//! has been due for longest is first. An expensive lane therefore waits longer, and nothing is dropped. Lanes may have
//! an order ([`Order`]): then the items that one change makes due run in it.

mod admission;
mod by_lane;
mod order;
mod parking;
mod slots;
mod tokens;
mod turns;
mod virtual_time;
mod waiting;
mod why;

use std::{collections::BTreeMap, hash::Hash, sync::Arc, time::Duration};

pub use admission::{Claim, Claims, MemoryBudget, Occupancy};
pub use order::{Member, Order};
use podium_sync::{Mutex, Notify};
use slots::Slots;
pub use tokens::{Demand, KINDS, WRITES};
use tokio::time::Instant;
pub use turns::{Remembered, TenantFigures};
pub use waiting::{Place, Waiting};
pub use why::Why;

pub use crate::throttle::{Backoff, Rate};

/// One item taken to be run. No other item of its slot is returned until [`Queue::done`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a slot stays taken until the job is returned to Queue::done"]
pub struct Job<L, S, I> {
    /// The plugin that the job is of.
    pub lane: L,
    /// The name that no other job of the lane has at the same time.
    pub slot: S,
    /// The incarnation of the name.
    pub item: I,
    /// 1, and one more for each failure in a row.
    pub attempt: u32,
    /// When the oldest event that this run answers came in.
    pub queued: Instant,
    /// The reasons of the events that this run answers.
    pub why: Why,
    /// The claim that the job holds; `None` if the queue has no budget.
    pub claim: Option<Claim>,
    number: u64,
}

/// When an item is run again after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The item is forgotten, unless it was added again meanwhile.
    Settled,
    /// The item is forgotten, even if it was added again meanwhile: no later event of this item needs a run.
    Final,
    /// Like [`Next::Settled`], and the item does not rest, because no further event of it is expected. So items that
    /// end take no memory, however long a rest of their lane is.
    Ended,
    /// The run succeeded. The item is run again after this time, or sooner when it is added.
    After(Duration),
    /// Like [`Next::After`], but the item did not ask for it: writes of the run are not sent yet, or not known.
    Again(Duration),
    /// The run failed. The item is run again with back-off, or sooner when it is added.
    Failed,
    /// The run failed. The item is run again after this time instead of a back-off, or sooner when it is added.
    FailedFor(Duration),
    /// Writes were refused because other clients had changed the objects. Like [`Next::Failed`], but after
    /// [`CONFLICT_WAIT`] at most, because such conflicts are usually over soon.
    Conflict,
    /// It could not be tried: the same attempt again after this time.
    Postponed(Duration),
}

impl Next {
    /// Returns true if the item counts one failure more.
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::FailedFor(_) | Self::Conflict)
    }
}

/// The longest back-off after conflicts.
pub const CONFLICT_WAIT: Duration = Duration::from_secs(4);

/// Where [`Queue::done`] left an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// The item waits for its next run.
    Kept,
    /// The queue has nothing more of the item.
    Forgotten,
    /// The lane was removed during the run. Items that were added to the lane since then are other items.
    Orphaned,
}

/// Shared by the one that adds and the workers that take.
#[derive(Debug)]
pub struct Queue<L, S, I> {
    slots: Mutex<Slots<L, S, I>>,
    wake: Notify,
    budget: Option<MemoryBudget>,
}

impl<L, S, I> Queue<L, S, I>
where
    L: Copy + Eq + Hash,
    S: Clone + Eq + Hash,
    I: Clone + Eq + Hash,
{
    /// `lane_limit`: jobs that one lane may have at a time, so that none takes every worker.
    #[must_use]
    pub fn new(backoff: Backoff, lane_limit: usize, seed: u64) -> Self {
        Self { slots: Mutex::new(Slots::new(backoff, lane_limit, seed)), wake: Notify::new(), budget: None }
    }

    /// Sets a budget of memory: a job starts only when the memory that it claims is free. The tenants of `claims`
    /// share turns and workers; without this each lane is a tenant.
    #[must_use]
    pub fn within(mut self, budget: MemoryBudget, claims: Arc<dyn Claims<L>>) -> Self {
        self.slots.lock().turns.set_budget(budget, claims);
        self.budget = Some(budget);
        self
    }

    /// Bounds how many jobs of one tenant are under way, and keeps a worker for tenants whose runs are short.
    #[must_use]
    pub fn shared(self, occupancy: Occupancy) -> Self {
        self.slots.lock().turns.set_occupancy(occupancy);
        self
    }

    /// Returns the most bytes that a job may claim, because a larger one never starts; `None` if nothing is counted.
    #[must_use]
    pub fn most_of_a_job(&self) -> Option<u64> {
        self.budget.map(MemoryBudget::of_tenant)
    }

    /// Adds items in one step: a worker sees all of them or none. An item that waits for a delay or a back-off
    /// becomes due now; one that is running runs once more. Items of one slot are first tried in the order they were
    /// added; items that are tried again do not hold up those behind them.
    pub fn add(&self, items: impl IntoIterator<Item = (L, S, I)>) {
        self.add_because(items.into_iter().map(without_reason), false);
    }

    /// Adds items because their objects have changed, as [`Queue::add`] does otherwise. Items of one object that
    /// follow each other are one step, in which those of successors wait for those of their predecessors
    /// ([`Queue::set_order`]).
    pub fn add_changed(&self, items: impl IntoIterator<Item = (L, S, I)>) {
        self.add_because(items.into_iter().map(without_reason), true);
    }

    /// Adds items as [`Queue::add_changed`] does if `is_change`, otherwise as [`Queue::add`], each with its reasons.
    pub fn add_because(&self, items: impl IntoIterator<Item = (L, S, I, Why)>, is_change: bool) {
        let mut items = items.into_iter().peekable();
        if items.peek().is_some() {
            self.change(|slots, now| slots.add_all(items, is_change, now));
        }
    }

    /// Changes the slots. Notifies a worker if it could use the change: a job may start now, or the next time at which
    /// one may is earlier. A worker that sleeps until a later time, or is notified for nothing, costs two switches of
    /// threads.
    fn change<T>(&self, change: impl FnOnce(&mut Slots<L, S, I>, Instant) -> T) -> T {
        let mut slots = self.slots.lock();
        let before = slots.next_due();
        // A time from before the lock may be earlier than that of an addition in between, whose items would look
        // delayed.
        let result = change(&mut slots, Instant::now());
        let is_earlier = slots.next_due().is_some_and(|due| before.is_none_or(|before| due < before));
        let is_useful = is_earlier || slots.has_ready() || !slots.turns.delayed.is_empty();
        drop(slots);
        if is_useful {
            self.wake.notify_one();
        }
        result
    }

    /// Sets the order of the lanes of groups, and changes that of no other ones. `order` has no other groups. Items
    /// that wait for a lane that they do not follow any more wait no longer.
    pub fn set_order(&self, groups: &[usize], order: Order<L>) {
        self.change(|slots, now| slots.set_order(groups, order, now));
    }

    /// Skips, for the job's item in the lanes of its successors, the changes that were queued before the job started.
    /// Later changes, retries and items that were added otherwise stay. Only items that wait for this job are skipped.
    /// Returns the lanes in which the item is not run for a change.
    pub fn stop(&self, job: &Job<L, S, I>) -> Vec<L> {
        self.change(|slots, now| slots.stop(job, now))
    }

    /// The next item that is due; waits for one. None once the queue is closed.
    ///
    /// Cancel safe: an item is taken only in the poll that returns it.
    pub async fn next(&self) -> Option<Job<L, S, I>> {
        let mut slept = false;
        loop {
            let (job, due, more) = {
                let mut slots = self.slots.lock();
                if slots.closed {
                    drop(slots);
                    self.wake.notify_one();
                    return None;
                }
                let job = slots.take(Instant::now());
                slots.beat &= job.is_none() && !slots.turns.has_idle_worker();
                let due = slots.next_due();
                // While this worker runs, another one has to wait for the next that is due.
                let is_unwatched = due.is_some() && (slept || slots.has_new_delays);
                let may_pass = !slots.turns.delayed.is_empty();
                let may_start = slots.has_ready() || slots.turns.next_tokens().is_some();
                let more = job.is_some() && (may_start || is_unwatched || may_pass);
                if job.is_none() {
                    slots.has_new_delays = false;
                }
                (job, due, more)
            };
            if let Some(job) = job {
                // One notification may stand for many items: pass it on before running.
                if more {
                    self.wake.notify_one();
                }
                return Some(job);
            }
            slept = false;
            match due {
                // Keys are left to be examined, or were due while the lock was not held.
                Some(due) if due <= Instant::now() => {}
                Some(due) => tokio::select! {
                    biased;
                    () = self.wake.notified() => {}
                    () = tokio::time::sleep_until(due) => slept = true,
                },
                None => self.wake.notified().await,
            }
        }
    }

    /// Records that the run of a job has ended, and its cost: its tenant and its lane are charged, and its worker and
    /// its memory are free, while the rest of the job continues. Only the first call counts.
    pub fn ran(&self, job: &Job<L, S, I>, cost: Duration) {
        self.change(|slots, now| {
            slots.turns.ran(job.number, Some(cost), now);
        });
    }

    /// Adds a key of the host's own, which is of no lane: the next worker that comes for a key settles it. Returns
    /// true if the one before is still there, although a worker should have come since: fewer runs are under way than
    /// there are workers, or each of them holds its worker for longer than it may ([`Claims::hold`]).
    #[must_use]
    pub fn beat(&self) -> bool {
        let mut slots = self.slots.lock();
        let waits = std::mem::replace(&mut slots.beat, true) && !slots.closed;
        let is_late = waits && !slots.turns.is_busy(Instant::now());
        drop(slots);
        self.wake.notify_one();
        is_late
    }

    /// Charges a cost that no job had to a lane and its tenant, as that of a run.
    pub fn charge(&self, lane: L, cost: Duration) {
        self.change(|slots, now| slots.turns.charge_cost(lane, cost, now));
    }

    /// Returns whether a job may send a request of this kind now: its lane and its tenant have a token. Never waits:
    /// if it may not, counts the `refused` requests, and the lane's next job starts when there are tokens. `kind` is
    /// below [`KINDS`].
    #[must_use]
    pub fn has_tokens(&self, job: &Job<L, S, I>, kind: usize, refused: u32) -> bool {
        self.change(|slots, now| slots.turns.has_tokens(job.number, kind, refused, now))
    }

    /// Charges a job for requests that were sent, also if its lane and its tenant have fewer tokens. While they are in
    /// debt no job of a lane that writes starts.
    pub fn spend(&self, job: &Job<L, S, I>, kind: usize, requests: u32) {
        self.change(|slots, now| slots.turns.spend(job.number, kind, requests, now));
    }

    /// Records that a job has sent its requests: its place of its lane and its tenant is free. Its slot is not.
    pub fn sent(&self, job: &Job<L, S, I>) {
        self.change(|slots, now| slots.turns.sent(job.number, now));
    }

    /// Returns the number of the latest [`Queue::add_changed`] of a running job's item, if it was added while it ran,
    /// and only because of changes.
    pub fn changed_during(&self, job: &Job<L, S, I>) -> Option<u64> {
        self.slots.lock().changed_during(job)
    }

    /// Forgets that a running job's item was added while it ran, unless it was added again after this number.
    pub fn answered(&self, job: &Job<L, S, I>, number: u64) {
        self.slots.lock().answered(job, number);
    }

    /// Returns a job to the queue. Without a call of [`Queue::ran`] nothing was run.
    pub fn done(&self, job: &Job<L, S, I>, next: Next) -> Done {
        self.change(|slots, now| slots.done(job, next, now))
    }

    /// Reads the claim of a lane again, whose jobs may have waited for more memory than they need now.
    pub fn claim_changed(&self, lane: L) {
        self.change(|slots, now| slots.claim_changed(lane, now));
    }

    /// Forgets an item that waits. Returns false, and changes nothing, if the item is running or is not in the queue.
    pub fn remove(&self, lane: L, slot: S, item: &I) -> bool {
        self.change(|slots, now| slots.remove((lane, slot), item, now))
    }

    /// Returns the oldest item of a slot that waits, if the slot has a thousand items, each of which would be looked at
    /// with each addition.
    pub fn excess(&self, lane: L, slot: &S) -> Option<I> {
        self.slots.lock().excess(&(lane, slot.clone()))
    }

    /// Returns those of `lanes` in which the item waits or runs.
    pub fn lanes_with(&self, lanes: impl IntoIterator<Item = L>, slot: &S, item: &I) -> Vec<L> {
        let slots = self.slots.lock();
        lanes.into_iter().filter(|lane| slots.contains(*lane, slot, item)).collect()
    }

    /// Returns where the items of a slot are.
    pub fn waiting(&self, lane: L, slot: &S) -> Vec<Waiting<L, I>> {
        self.slots.lock().waiting(&(lane, slot.clone()), Instant::now())
    }

    /// Returns the predecessors of the lane, of which each may stop its items.
    pub fn predecessors(&self, lane: L) -> Vec<L> {
        self.slots.lock().order.predecessors(lane).to_vec()
    }

    /// Forgets the items that wait in a lane; running items are not added again. If the lane is used again, no item of
    /// a slot whose old job still runs is returned until that job is done.
    pub fn remove_lane(&self, lane: L) {
        self.change(|slots, now| slots.remove_lane(lane, now));
    }

    /// Forgets tenants whose lanes were all removed, when their debts are paid. Returns those that are left. The
    /// time grows with the number of lanes and tenants.
    pub fn remembered(&self) -> Remembered<L> {
        self.slots.lock().turns.remembered(Instant::now())
    }

    /// True if the lane was removed after the slot's running job was taken.
    pub fn is_orphaned(&self, lane: L, slot: &S) -> bool {
        self.slots.lock().is_orphaned(lane, slot)
    }

    /// Closes the queue: every [`Queue::next`], also one that waits, returns `None` from now on.
    pub fn close(&self) {
        self.slots.lock().closed = true;
        self.wake.notify_one();
    }

    /// How many items of the lane are due and not yet taken.
    pub fn depth(&self, lane: L) -> usize {
        self.slots.lock().depth(lane)
    }

    /// Returns how many slots wait in the lane, with all delayed ones.
    #[cfg(test)]
    pub(crate) fn kept(&self, lane: L) -> usize {
        let slots = self.slots.lock();
        slots.depth(lane) + slots.delays()
    }

    /// Returns the figures of each tenant, by the number of its claims.
    pub fn tenants(&self) -> BTreeMap<u32, TenantFigures> {
        self.slots.lock().tenants(Instant::now())
    }

    /// True when nothing is due and nothing runs; delayed items do not count.
    pub fn is_idle(&self) -> bool {
        self.slots.lock().is_idle()
    }
}

fn without_reason<L, S, I>((lane, slot, item): (L, S, I)) -> (L, S, I, Why) {
    (lane, slot, item, Why::default())
}

#[cfg(test)]
mod tests;
