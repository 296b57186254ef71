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
use podium_vocabulary::components;
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
        let mut groups: HashMap<usize, Vec<&Member<L>>, FixedState> = HashMap::default();
        members.iter().for_each(|member| groups.entry(member.group).or_default().push(member));
        let leading = members.iter().filter(|member| member.leads).count();
        let mut order = Self::default();
        for group in groups.values() {
            let earlier = earlier(group);
            let mut successors: Vec<Vec<L>> = group
                .iter()
                .map(|member| group.iter().filter(|of| of.phase > member.phase).map(|of| of.lane).collect())
                .collect();
            for (member, before) in group.iter().zip(&earlier) {
                before.iter().for_each(|at| successors[*at].push(member.lane));
            }
            for ((member, before), successors) in group.iter().zip(earlier).zip(successors) {
                let Member { lane, group: number, phase, leads, .. } = **member;
                let earlier = before.into_iter().map(|at| group[at].lane).collect();
                let place = Place { group: number, phase, leads, earlier, successors: successors.into() };
                order.places.insert(lane, place);
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

/// Returns the places of the predecessors of each member of a group within its phase, and of theirs, without those of
/// the same cycle. Sets of places are bits, because a chain has as many pairs as the square of its length.
fn earlier<L: Copy + Eq + Hash>(group: &[&Member<L>]) -> Vec<Vec<usize>> {
    let places: HashMap<L, usize, FixedState> =
        group.iter().enumerate().map(|(at, member)| (member.lane, at)).collect();
    let named = |member: &&Member<L>| {
        let named = member.after.iter().filter_map(|lane| places.get(lane).copied());
        named.filter(|at| group[*at].phase == member.phase).collect()
    };
    let named: Vec<Vec<usize>> = group.iter().map(named).collect();
    let bit = |at: usize| (at / 64, 1_u64 << (at % 64));
    let none = vec![0_u64; group.len().div_ceil(64)];
    // Of each member, and of its cycle and itself too.
    let (mut earlier, mut reached) = (vec![none.clone(); group.len()], vec![none.clone(); group.len()]);
    for members in components(group.len(), |at| &named[at]) {
        let mut all = none.clone();
        // Those of the same cycle have reached nothing yet.
        for before in members.iter().flat_map(|at| &named[*at]) {
            all.iter_mut().zip(&reached[*before]).for_each(|(all, before)| *all |= before);
        }
        let mut with_own = all.clone();
        for (word, bit) in members.iter().map(|at| bit(*at)) {
            with_own[word] |= bit;
        }
        for at in members {
            earlier[at].clone_from(&all);
            reached[at].clone_from(&with_own);
        }
    }
    let set = |bits: Vec<u64>| {
        (0..group.len())
            .filter(|at| {
                let (word, bit) = bit(*at);
                bits[word] & bit != 0
            })
            .collect()
    };
    earlier.into_iter().map(set).collect()
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

    /// The predecessors of a member, found by following names.
    fn naive(members: &[Member<u8>], of: u8) -> Vec<u8> {
        let member = |lane: u8| members.iter().find(|member| member.lane == lane);
        let chain = |of: u8| {
            let (mut found, mut next) = (Vec::new(), vec![of]);
            while let Some(at) = next.pop().and_then(member) {
                for named in at.after.iter().filter_map(|lane| member(*lane)) {
                    if (named.group, named.phase) == (at.group, at.phase) && !found.contains(&named.lane) {
                        found.push(named.lane);
                        next.push(named.lane);
                    }
                }
            }
            found
        };
        let own = member(of).unwrap();
        let in_phase = chain(of).into_iter().filter(|before| *before != of && !chain(*before).contains(&of));
        let by_phase = members.iter().filter(|other| other.group == own.group && other.phase < own.phase);
        let mut all: Vec<u8> = in_phase.chain(by_phase.map(|other| other.lane)).collect();
        all.sort_unstable();
        all
    }

    proptest::proptest! {
        #[test]
        fn the_predecessors_are_those_that_names_and_phases_lead_to(
            shape in proptest::collection::vec((0..2_usize, 0..2_u8, proptest::collection::vec(0..9_u8, 0..3)), 1..8),
        ) {
            let members: Vec<Member<u8>> = shape
                .iter()
                .enumerate()
                .map(|(at, (group, phase, after))| member(u8::try_from(at).unwrap(), *group, *phase, after))
                .collect();
            let order = Order::new(&members);
            let lanes: Vec<u8> = members.iter().map(|member| member.lane).collect();
            for lane in &lanes {
                let found = lanes.iter().copied().filter(|before| order.binds(*before, *lane)).collect::<Vec<_>>();
                proptest::prop_assert_eq!(&found, &naive(&members, *lane));
                for before in found {
                    proptest::prop_assert!(order.successors(before).contains(lane));
                }
            }
        }
    }
}
