//! Which lanes go before which others. Pure data, made from the configuration.
//!
//! Lanes of one group have an order: by phase, and within a phase as they name each other. A leading lane also goes
//! before the lanes of all other groups, which wait for it for a short time at most. [`super::parking`] describes
//! the waits.

use std::{cmp::Reverse, collections::HashMap, hash::Hash};

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

/// The order of lanes.
#[derive(Debug, Clone)]
pub struct Order<L> {
    places: HashMap<L, Place<L>, FixedState>,
    /// The lanes of each group.
    groups: HashMap<usize, Vec<L>, FixedState>,
    /// The lanes that lead all groups, and their own group.
    leading: Vec<(L, usize)>,
}

#[derive(Debug, Clone, PartialEq)]
struct Place<L> {
    group: usize,
    /// All predecessors of its group, the last one first.
    predecessors: Box<[L]>,
    /// All successors of its group.
    successors: Box<[L]>,
}

impl<L> Default for Order<L> {
    fn default() -> Self {
        Self { places: HashMap::default(), groups: HashMap::default(), leading: Vec::new() }
    }
}

/// Lanes that one change concerns.
pub(super) type Lanes<L> = SmallVec<[L; 4]>;

impl<L: Copy + Eq + Hash> Order<L> {
    /// Replaces groups by those of another order, which has no other ones. Returns their lanes of before and after,
    /// without those of groups whose lanes have the same places: most changes of plugins are none of their order.
    pub(super) fn replace(&mut self, groups: &[usize], mut other: Self) -> Vec<L> {
        let mut changed = Vec::new();
        for group in groups {
            let before = self.groups.remove(group).unwrap_or_default();
            let after = other.groups.remove(group).unwrap_or_default();
            let leading = |order: &Self| order.leading.iter().filter(|(_, of)| of == group).copied().collect();
            let [led, leads]: [Vec<_>; 2] = [leading(self), leading(&other)];
            let stays = |lane: &L| self.places.get(lane) == other.places.get(lane);
            let is_same = before.len() == after.len() && led == leads && after.iter().all(stays);
            if !is_same {
                changed.extend(before.iter().chain(&after));
                before.iter().for_each(|lane| drop(self.places.remove(lane)));
                self.places.extend(after.iter().filter_map(|lane| Some((*lane, other.places.remove(lane)?))));
                self.leading.retain(|(_, of)| of != group);
                self.leading.extend(leads);
            }
            if !after.is_empty() {
                self.groups.insert(*group, after);
            }
        }
        changed
    }

    /// Returns the order of these lanes. The configuration refuses cycles; lanes of a cycle have no order among each
    /// other.
    #[must_use]
    pub fn new(members: &[Member<L>]) -> Self {
        let mut groups: HashMap<usize, Vec<&Member<L>>, FixedState> = HashMap::default();
        members.iter().for_each(|member| groups.entry(member.group).or_default().push(member));
        let leading = members.iter().filter(|member| member.leads).map(|member| (member.lane, member.group)).collect();
        let mut order = Self { leading, ..Self::default() };
        for (number, group) in groups {
            order.groups.insert(number, group.iter().map(|member| member.lane).collect());
            let earlier = earlier(&group);
            let before = |at: usize| {
                let by_phase = (0..group.len()).filter(|of| group[*of].phase < group[at].phase);
                let mut before: Vec<usize> = by_phase.chain(earlier[at].iter().copied()).collect();
                // In a phase, a lane has more predecessors than each of them.
                before.sort_by_key(|of| Reverse((group[*of].phase, earlier[*of].len())));
                before
            };
            let before: Vec<Vec<usize>> = (0..group.len()).map(before).collect();
            let mut successors = vec![Vec::new(); group.len()];
            for (member, before) in group.iter().zip(&before) {
                before.iter().for_each(|at| successors[*at].push(member.lane));
            }
            for ((member, before), successors) in group.iter().zip(before).zip(successors) {
                let predecessors = before.into_iter().map(|at| group[at].lane).collect();
                let place = Place { group: number, predecessors, successors: successors.into() };
                order.places.insert(member.lane, place);
            }
        }
        order
    }

    /// Returns all predecessors of the lane in its group, the last one first.
    pub(super) fn predecessors(&self, lane: L) -> &[L] {
        self.places.get(&lane).map_or(&[], |place| &place.predecessors)
    }

    /// Returns all successors of the lane in its group.
    pub(super) fn successors(&self, lane: L) -> &[L] {
        self.places.get(&lane).map_or(&[], |place| &place.successors)
    }

    /// Returns the lanes that lead all groups and are of another group than `lane`.
    pub(super) fn leading(&self, lane: L) -> impl Iterator<Item = L> {
        let group = self.places.get(&lane).map(|place| place.group);
        let leading = self.leading.iter().filter(move |(_, of)| group.is_some_and(|group| group != *of));
        leading.map(|(lane, _)| *lane)
    }

    /// True if `before` is a predecessor of `lane`.
    #[cfg(test)]
    pub(super) fn binds(&self, before: L, lane: L) -> bool {
        self.predecessors(lane).contains(&before)
    }
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
    let mut earlier = vec![none.clone(); group.len()];
    let mut reached = vec![none.clone(); group.len()];
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
        let before = |lane: u8| order.predecessors(lane).to_vec();
        let expected = [vec![], vec![1], vec![2, 1], vec![3, 2, 1], vec![4, 3, 2, 1], vec![]];
        assert_eq!([1, 2, 3, 4, 5, 6].map(before), expected, "the last one first");
    }

    #[test]
    fn a_leading_lane_goes_first_and_binds_no_other_group() {
        let mut leads = member(1, 0, 0, &[]);
        leads.leads = true;
        let order = Order::new(&[leads, member(2, 0, 1, &[]), member(3, 1, 0, &[])]);
        assert!(!order.binds(1, 3) && order.binds(1, 2));
        let leading = |lane: u8| order.leading(lane).collect::<Vec<_>>();
        assert_eq!((leading(3), leading(2)), (vec![1], vec![]));
    }

    #[test]
    fn lanes_of_a_cycle_have_no_order_among_each_other() {
        let order = Order::new(&[member(1, 0, 1, &[2]), member(2, 0, 1, &[1]), member(3, 0, 1, &[1])]);
        assert!(!order.binds(1, 2) && !order.binds(2, 1));
        assert!(order.binds(1, 3) && order.binds(2, 3));
    }

    /// The predecessors of a member, found by following names.
    fn naive(members: &[Member<u8>], of: u8) -> Vec<u8> {
        let member = |lane: u8| members.iter().find(|member| member.lane == lane);
        let chain = |of: u8| {
            let mut found = Vec::new();
            let mut next = vec![of];
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

    /// A lane that counts how often it is looked up.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Counted(u32);

    thread_local! {
        static LOOKUPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    impl Hash for Counted {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            LOOKUPS.set(LOOKUPS.get() + 1);
            self.0.hash(state);
        }
    }

    #[test]
    fn each_name_is_looked_up_once() {
        for lanes in [10, 1_000] {
            let member = |lane: u32| {
                let after: Vec<_> = (lane + 1..lanes.min(lane + 33)).map(Counted).collect();
                Member { lane: Counted(lane), group: 0, phase: 1, after, leads: false }
            };
            let members: Vec<_> = (0..lanes).map(member).collect();
            let names: usize = members.iter().map(|member| member.after.len()).sum();
            LOOKUPS.set(0);
            let order = Order::new(&members);
            let lookups = LOOKUPS.get();
            assert_eq!(order.predecessors(Counted(0)).len(), members.len() - 1);
            // Of each lane, twice its own place and what growing the tables costs.
            assert!(lookups <= names + 6 * members.len(), "{lookups} for {names} names of {lanes} lanes");
        }
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
