//! Items to run, in lanes: never two at once in one slot, delays, back-off, lanes in turn.
//!
//! A lane is a plugin, a slot a Pod's name, an item one incarnation of it; the queue knows none of that. It holds keys,
//! never objects: adding an item that already waits changes at most when it runs. Weights and order between lanes are
//! not here yet; lanes take turns.

mod admission;
mod slots;

use std::{hash::Hash, sync::Arc, time::Duration};

use podium_pods::sync::{Mutex, Notify};
use slots::Slots;
use tokio::time::Instant;

use admission::Admission;
pub use admission::{Budget, Claim, Claims};

pub use crate::backoff::Backoff;

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
    /// What the job has taken; `None` if the queue has no budget.
    pub claim: Option<Claim>,
}

/// When an item is run again after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Forget it, unless it was added again meanwhile.
    Settled,
    /// Forget it, also if it was added again meanwhile: no later event of this item needs a run.
    Final,
    /// It went well; run it again after this time, or sooner when it is added.
    After(Duration),
    /// It failed; run it again with back-off, or sooner when it is added.
    Failed,
    /// It failed; run it again after this time instead of a back-off, or sooner when it is added.
    FailedFor(Duration),
    /// It could not be tried: the same attempt again after this time.
    Postponed(Duration),
}

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
    budget: Option<Budget>,
}

impl<L, S, I> Queue<L, S, I>
where
    L: Copy + Eq + Hash,
    S: Clone + Eq + Hash,
    I: Clone + Eq,
{
    /// `lane_limit`: jobs that one lane may have at a time, so that none takes every worker. While its jobs fail it may
    /// have fewer, down to one.
    #[must_use]
    pub fn new(backoff: Backoff, lane_limit: usize, seed: u64) -> Self {
        Self { slots: Mutex::new(Slots::new(backoff, lane_limit, seed)), wake: Notify::new(), budget: None }
    }

    /// Lets a job start only when what it claims is free.
    #[must_use]
    pub fn within(mut self, budget: Budget, claims: Arc<dyn Claims<L>>) -> Self {
        self.slots.lock().set_admission(Admission::new(budget, claims));
        self.budget = Some(budget);
        self
    }

    /// Returns the most bytes that a job may claim, because a larger one never starts; `None` if nothing is counted.
    #[must_use]
    pub fn most_of_a_job(&self) -> Option<u64> {
        self.budget.map(Budget::of_tenant)
    }

    /// Adds items in one step: a worker sees all of them or none. An item that waits for a delay or a back-off
    /// becomes due now; one that is running runs once more. Items of one slot are first tried in the order they were
    /// added; items that are tried again do not hold up those behind them.
    pub fn add(&self, items: impl IntoIterator<Item = (L, S, I)>) {
        let now = Instant::now();
        let mut added = false;
        let mut slots = self.slots.lock();
        for (lane, slot, item) in items {
            slots.add(lane, slot, item, now);
            added = true;
        }
        drop(slots);
        if added {
            self.wake.notify_one();
        }
    }

    /// The next item that is due; waits for one. None once the queue is closed.
    ///
    /// Cancel safe: an item is taken only in the poll that returns it.
    pub async fn next(&self) -> Option<Job<L, S, I>> {
        loop {
            let (job, due, more) = {
                let mut slots = self.slots.lock();
                if slots.is_closed() {
                    drop(slots);
                    self.wake.notify_one();
                    return None;
                }
                let job = slots.take(Instant::now());
                (job, slots.next_due(), slots.has_ready())
            };
            if let Some(job) = job {
                // One notification may stand for many items: pass it on before running.
                if more {
                    self.wake.notify_one();
                }
                return Some(job);
            }
            match due {
                Some(due) => tokio::select! {
                    biased;
                    () = self.wake.notified() => {}
                    () = tokio::time::sleep_until(due) => {}
                },
                None => self.wake.notified().await,
            }
        }
    }

    /// Frees what a job has taken, before it is done: its run has ended, and something else goes on.
    pub fn release(&self, job: &Job<L, S, I>) {
        if self.slots.lock().release(job) {
            self.wake.notify_one();
        }
    }

    /// Returns a job to the queue after its run.
    pub fn done(&self, job: &Job<L, S, I>, next: Next) -> Done {
        let done = self.slots.lock().done(job, next, Instant::now());
        self.wake.notify_one();
        done
    }

    /// Forgets an item that waits. Returns false, and changes nothing, if the item is running or is not in the queue.
    pub fn remove(&self, lane: L, slot: S, item: &I) -> bool {
        let removed = self.slots.lock().remove((lane, slot), item, Instant::now());
        if removed {
            self.wake.notify_one();
        }
        removed
    }

    /// Returns those of `lanes` in which the item waits or runs.
    pub fn lanes_with(&self, lanes: impl IntoIterator<Item = L>, slot: &S, item: &I) -> Vec<L> {
        let slots = self.slots.lock();
        lanes.into_iter().filter(|lane| slots.contains(*lane, slot, item)).collect()
    }

    /// Forgets the items that wait in a lane; running items are not added again. If the lane is used again, no item of
    /// a slot whose old job still runs is returned until that job is done.
    pub fn remove_lane(&self, lane: L) {
        self.slots.lock().remove_lane(lane);
        // It may have waited for memory and held up others.
        self.wake.notify_one();
    }

    /// True if the lane was removed after the slot's running job was given out.
    pub fn is_orphaned(&self, lane: L, slot: &S) -> bool {
        self.slots.lock().is_orphaned(lane, slot)
    }

    /// No more items are given out; every waiting [`Queue::next`] returns None.
    pub fn close(&self) {
        self.slots.lock().close();
        self.wake.notify_one();
    }

    /// How many items of the lane are due and not yet taken.
    pub fn depth(&self, lane: L) -> usize {
        self.slots.lock().depth(lane)
    }

    /// True when nothing is due and nothing runs; delayed items do not count.
    pub fn is_idle(&self) -> bool {
        self.slots.lock().is_idle()
    }
}

#[cfg(test)]
mod tests;
