//! One step: the items of an object that one change makes due, in the order of their lanes.

use std::{hash::Hash, iter::Peekable};

use smallvec::SmallVec;
use tokio::time::Instant;

use super::{
    order::Lanes,
    slots::{Cause, Slots},
    waits::{Edge, LEADING, WaitKind},
};

impl<L, S, I> Slots<L, S, I>
where
    L: Copy + Eq + Hash,
    S: Clone + Eq + Hash,
    I: Clone + Eq + Hash,
{
    /// Adds items because of changes. Items of one object that follow each other are one step.
    pub(super) fn add_steps(&mut self, items: Peekable<impl Iterator<Item = (L, S, I)>>, cause: Cause, now: Instant) {
        let mut items = items;
        while let Some((lane, slot, item)) = items.next() {
            if !self.waits.order.contains(lane) {
                self.add_because(lane, slot, item, cause, &[], now);
                continue;
            }
            let mut lanes = Lanes::from_slice(&[lane]);
            while let Some((lane, ..)) = items.next_if(|(_, of, its)| (of, its) == (&slot, &item)) {
                if !lanes.contains(&lane) {
                    lanes.push(lane);
                }
            }
            self.add_step(&mut lanes, &slot, &item, cause, now);
        }
    }

    fn add_step(&mut self, lanes: &mut [L], slot: &S, item: &I, cause: Cause, now: Instant) {
        self.waits.order.clone().sort(lanes);
        // Those of the lanes whose item waits since this step, and the others.
        let (mut fresh, mut others) = (Lanes::new(), Lanes::new());
        // Of those that run, the present job is of an earlier step.
        let running: Lanes<L> = lanes.iter().copied().filter(|lane| self.runs(*lane, slot, item)).collect();
        for lane in lanes.iter().copied() {
            let edges = self.edges(lane, &fresh, &others, &running, (slot, item), cause, now);
            let waits = self.add_because(lane, slot.clone(), item.clone(), cause, &edges, now);
            // Those that follow do not wait for a lane that is delayed.
            if !self.turns.is_delayed(lane) {
                if waits { fresh.push(lane) } else { others.push(lane) }
            }
        }
    }

    /// Returns what the lane's item waits for, if the step makes it due.
    #[expect(clippy::too_many_arguments, reason = "the parts of one step")]
    fn edges(
        &self,
        lane: L,
        fresh: &[L],
        others: &[L],
        running: &[L],
        (slot, item): (&S, &I),
        cause: Cause,
        now: Instant,
    ) -> SmallVec<[Edge<L>; 4]> {
        let order = &self.waits.order;
        let edge = |on: L, kind: WaitKind| Edge { waiter: lane, on, kind, later: running.contains(&on) };
        // Those that wait since this step wait for their own predecessors; for the others that is not known.
        let predecessors = order.last(&order.predecessors(lane, fresh));
        let predecessors = predecessors.into_iter().chain(order.predecessors(lane, others));
        let mut edges: SmallVec<[Edge<L>; 4]> = predecessors.map(|on| edge(on, WaitKind::Order)).collect();
        let leading = order.leading(lane, fresh).into_iter().chain(order.leading(lane, others));
        edges.extend(leading.map(|on| edge(on, WaitKind::Leading(now + LEADING))));
        if cause == Cause::Written {
            let successors = order.successors(lane).iter().copied();
            let due = successors.filter(|on| self.is_due(*on, slot, item, now) && !self.turns.is_delayed(*on));
            edges.extend(due.map(|on| Edge { waiter: lane, on, kind: WaitKind::Yields, later: false }));
        }
        edges
    }
}

#[cfg(test)]
mod tests;
