//! Which lanes go before which others. Pure data, made from the configuration.
//!
//! Lanes of one group have an order: by phase, and within a phase as they name each other. A leading lane also goes
//! before the lanes of all other groups, which wait for it for a short time at most. [`super::waits`] describes
//! the waits.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
};

use foldhash::quality::FixedState;
use smallvec::SmallVec;

/// A lane and its place among others.
#[derive(Debug, Clone)]
pub struct Member<L> {
    /// The lane.
    pub lane: L,
    /// Lanes with the same number have an order.
    pub group: usize,
    /// A lower phase goes before a higher one.
    pub phase: u8,
    /// The lanes that it names as its predecessors; only those of its group and phase count.
    pub after: Vec<L>,
    /// It goes before the lanes of all other groups too.
    pub leads: bool,
}

/// The order of lanes. Lanes that have neither predecessors nor successors are not part of it.
#[derive(Debug)]
pub struct Order<L> {
    places: HashMap<L, Place<L>, FixedState>,
}

#[derive(Debug)]
struct Place<L> {
    group: usize,
    phase: u8,
    leads: bool,
    /// All predecessors of its phase, also those of its predecessors.
    earlier: HashSet<L, FixedState>,
    /// All successors of its group.
    successors: Box<[L]>,
}

impl<L> Default for Order<L> {
    fn default() -> Self {
        Self { places: HashMap::default() }
    }
}

/// Lanes that one change concerns.
pub(super) type Lanes<L> = SmallVec<[L; 4]>;

impl<L: Copy + Eq + Hash> Order<L> {
    /// Returns the order of these lanes. The configuration refuses cycles; lanes of a cycle have no order among each
    /// other.
    #[must_use]
    pub fn new(members: &[Member<L>]) -> Self {
        let by_lane: HashMap<L, &Member<L>, FixedState> = members.iter().map(|member| (member.lane, member)).collect();
        let earlier: HashMap<L, Vec<L>, FixedState> =
            members.iter().map(|member| (member.lane, chain(member, &by_lane))).collect();
        let mut groups: HashMap<usize, Vec<&Member<L>>, FixedState> = HashMap::default();
        members.iter().for_each(|member| groups.entry(member.group).or_default().push(member));
        let leading = members.iter().filter(|member| member.leads).count();
        let mut places = HashMap::default();
        for member in members {
            let Member { lane, group, phase, leads, .. } = *member;
            let own = &earlier[&lane];
            let cycle = |before: &L| earlier[before].contains(&lane);
            let earlier = own.iter().copied().filter(|before| !cycle(before)).collect();
            let place = Place { group, phase, leads, earlier, successors: Box::default() };
            places.insert(lane, place);
        }
        let mut order = Self { places };
        for group in groups.values() {
            for member in group {
                let follows = |other: &&&Member<L>| order.binds(member.lane, other.lane);
                let successors = group.iter().filter(follows).map(|other| other.lane).collect();
                if let Some(place) = order.places.get_mut(&member.lane) {
                    place.successors = successors;
                }
            }
        }
        let followed: Vec<L> = order.places.values().flat_map(|place| place.successors.iter().copied()).collect();
        let follows: HashSet<L, FixedState> = followed.into_iter().collect();
        if leading == 0 {
            order.places.retain(|lane, place| !place.successors.is_empty() || follows.contains(lane));
        }
        order
    }

    pub(super) fn contains(&self, lane: L) -> bool {
        self.places.contains_key(&lane)
    }

    /// True if `before` is a predecessor of `lane` in its group.
    pub(super) fn binds(&self, before: L, lane: L) -> bool {
        let (Some(first), Some(second)) = (self.places.get(&before), self.places.get(&lane)) else { return false };
        precedes(before, first, second)
    }

    /// True if `before` is a predecessor of `lane`, or leads all groups and is of another one.
    pub(super) fn is_before(&self, before: L, lane: L) -> bool {
        let (Some(first), Some(second)) = (self.places.get(&before), self.places.get(&lane)) else { return false };
        precedes(before, first, second) || leads(first, second)
    }

    /// Returns those of `lanes` that are predecessors of `lane`.
    pub(super) fn predecessors(&self, lane: L, lanes: &[L]) -> Lanes<L> {
        lanes.iter().copied().filter(|other| self.binds(*other, lane)).collect()
    }

    /// Returns those of `predecessors`, which are sorted, that no other of them follows. They wait for the others, if
    /// those are due as recently.
    pub(super) fn last(&self, predecessors: &[L]) -> Lanes<L> {
        let place = |lane: &L| self.places.get(lane);
        let latest = predecessors.iter().filter_map(place).map(|place| place.phase).max();
        let in_phase = |lane: &&L| place(lane).is_some_and(|place| Some(place.phase) == latest);
        let mut left: Lanes<L> = predecessors.iter().filter(in_phase).copied().collect();
        let mut last = Lanes::new();
        // A lane comes after all that it follows.
        while let Some(lane) = left.pop() {
            last.push(lane);
            if let Some(place) = place(&lane).filter(|place| !place.earlier.is_empty()) {
                left.retain(|before| !place.earlier.contains(before));
            }
        }
        last
    }

    /// Sorts lanes, predecessors first.
    pub(super) fn sort(&self, lanes: &mut [L]) {
        let place = |place: &Place<L>| (!place.leads, place.phase, place.earlier.len());
        lanes.sort_by_key(|lane| self.places.get(lane).map(place));
    }

    /// Returns those of `lanes` that lead all groups and are of another group than `lane`.
    pub(super) fn leading(&self, lane: L, lanes: &[L]) -> Lanes<L> {
        let Some(place) = self.places.get(&lane) else { return Lanes::new() };
        let leading = |other: &L| self.places.get(other).is_some_and(|first| leads(first, place));
        lanes.iter().copied().filter(leading).collect()
    }

    /// Returns all successors of the lane in its group.
    pub(super) fn successors(&self, lane: L) -> &[L] {
        self.places.get(&lane).map_or(&[], |place| &place.successors)
    }
}

fn precedes<L: Eq + Hash>(before: L, first: &Place<L>, second: &Place<L>) -> bool {
    let in_phase = || first.phase == second.phase && second.earlier.contains(&before);
    first.group == second.group && (first.phase < second.phase || in_phase())
}

fn leads<L>(first: &Place<L>, second: &Place<L>) -> bool {
    first.leads && first.group != second.group
}

/// Returns the predecessors of a lane within its phase, and theirs.
fn chain<L: Copy + Eq + Hash>(member: &Member<L>, by_lane: &HashMap<L, &Member<L>, FixedState>) -> Vec<L> {
    let (mut found, mut next) = (Vec::new(), vec![member]);
    while let Some(at) = next.pop() {
        for named in at.after.iter().filter_map(|lane| by_lane.get(lane)) {
            let counts = (named.group, named.phase) == (member.group, member.phase);
            if counts && !found.contains(&named.lane) {
                found.push(named.lane);
                next.push(named);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(lane: u8, group: usize, phase: u8, after: &[u8]) -> Member<u8> {
        Member { lane, group, phase, after: after.to_vec(), leads: false }
    }

    #[test]
    fn phases_and_names_bind_within_a_group_and_through_other_lanes() {
        let order = Order::new(&[
            member(1, 0, 0, &[]),
            member(2, 0, 1, &[]),
            member(3, 0, 1, &[2]),
            member(4, 0, 1, &[3]),
            member(5, 0, 2, &[]),
            member(6, 1, 2, &[1]),
        ]);
        let before = |lane: u8| (1..=6).filter(|other| order.is_before(*other, lane)).collect::<Vec<_>>();
        assert_eq!([1, 2, 3, 4, 5].map(before), [vec![], vec![1], vec![1, 2], vec![1, 2, 3], vec![1, 2, 3, 4]]);
        assert!(!order.contains(6), "it has neither predecessors nor successors");
        assert_eq!(order.predecessors(4, &[1, 2, 5]).to_vec(), [1, 2]);
        assert_eq!(order.last(&[1, 2]).to_vec(), [2], "lane 2 waits for lane 1");
        assert_eq!(order.last(&[1, 2, 3, 4]).to_vec(), [4], "lanes 2 and 3 are predecessors of lane 4");
        assert_eq!(order.last(&[2, 3]).to_vec(), [3]);
        let mut lanes = [5, 4, 6, 3, 2, 1];
        order.sort(&mut lanes);
        assert_eq!(lanes, [6, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_leading_lane_goes_first_and_binds_no_other_group() {
        let mut leads = member(1, 0, 0, &[]);
        leads.leads = true;
        let order = Order::new(&[leads, member(2, 0, 1, &[]), member(3, 1, 0, &[])]);
        assert!(order.is_before(1, 3) && !order.binds(1, 3) && order.binds(1, 2));
        assert_eq!((order.leading(3, &[1, 2]).to_vec(), order.leading(2, &[1]).to_vec()), (vec![1], vec![]));
    }

    #[test]
    fn lanes_of_a_cycle_have_no_order_among_each_other() {
        let order = Order::new(&[member(1, 0, 1, &[2]), member(2, 0, 1, &[1]), member(3, 0, 1, &[1])]);
        assert!(!order.is_before(1, 2) && !order.is_before(2, 1));
        assert!(order.is_before(1, 3) && order.is_before(2, 3));
    }
}
