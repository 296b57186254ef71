//! The tombstones themselves, found by uid and by plugin, within their [`Bounds`].

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::Hash,
    sync::Arc,
};

use foldhash::quality::FixedState;
use podium_pods::pod::CachedPod;
use podium_vocabulary::{PodKey, Revision, is_group};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::{Bounds, Excess, Figures, Keys, Slot, slot};

/// The tombstones of a Pod: plugins and numbers.
type Numbers<L> = SmallVec<[(L, u64); 1]>;

/// All tombstones, without their lock.
#[derive(Debug)]
pub(super) struct TombstoneTable<L> {
    bounds: Bounds,
    /// The plugins that share the bounds with the plugin of a lane, itself included, where these are several.
    pub(super) sharing: BTreeMap<L, usize>,
    numbers: u64,
    /// By uid, the plugins that have a tombstone of the Pod, and the tombstones' numbers.
    pub(super) by_uid: HashMap<Arc<str>, Numbers<L>, FixedState>,
    lanes: BTreeMap<L, OfLane>,
    /// The plugins of which a group was given up that may have Pods.
    pub(super) unsure: BTreeSet<L>,
}

/// The tombstones of one plugin by their numbers, the oldest first.
#[derive(Debug, Default)]
struct OfLane {
    all: BTreeMap<u64, Tombstone>,
    /// Those on which a run did not settle.
    unsettled: BTreeSet<u64>,
    /// Those of `unsettled` that have a last state.
    states: BTreeSet<u64>,
    /// The others that have a last state.
    waiting: BTreeSet<u64>,
}

#[derive(Debug)]
pub(super) struct Tombstone {
    pub(super) key: PodKey,
    /// The Pod that left a group; `None` of a Pod, and if it is not known.
    left: Option<Left>,
    /// None if the Pod was deleted while the host was down, or the state was dropped.
    pub(super) last: Option<Arc<CachedPod>>,
    pub(super) since: Instant,
    /// A run on the deletion has begun; until it settles the key is in the queue. For a group, until the run ends.
    pub(super) seen: bool,
    /// A run on the deletion is under way.
    pub(super) running: bool,
    /// The Pod is there again; kept for the run that is under way.
    back: bool,
}

/// A Pod that left a group.
#[derive(Debug, Clone)]
pub(super) struct Left {
    pub(super) uid: Arc<str>,
    /// The revision at which it left, or an earlier one at which it was there.
    pub(super) at: Revision,
    /// It is not gone.
    pub(super) moved: bool,
}

impl Tombstone {
    /// Returns true if a Pod is gone, and has not only left its group.
    fn is_deletion(&self) -> bool {
        self.left.as_ref().is_none_or(|left| !left.moved)
    }
}

impl<L: Copy + Ord + Hash> TombstoneTable<L> {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            sharing: BTreeMap::new(),
            numbers: 0,
            by_uid: HashMap::default(),
            lanes: BTreeMap::new(),
            unsure: BTreeSet::new(),
        }
    }

    pub(super) fn figures(&self, lane: L) -> Figures {
        self.lanes.get(&lane).map_or_else(Figures::default, |of| Figures {
            states: of.states.len(),
            waiting: of.waiting.len(),
            unsettled: of.unsettled.len(),
            all: of.all.len(),
        })
    }

    pub(super) fn number(&self, lane: L, uid: &Arc<str>) -> Option<u64> {
        self.by_uid.get(uid)?.iter().find(|(of, _)| *of == lane).map(|(_, number)| *number)
    }

    pub(super) fn tombstone(&mut self, lane: L, uid: &Arc<str>) -> Option<&mut Tombstone> {
        let number = self.number(lane, uid)?;
        self.numbered(lane, number)
    }

    fn numbered(&mut self, lane: L, number: u64) -> Option<&mut Tombstone> {
        self.lanes.get_mut(&lane)?.all.get_mut(&number)
    }

    /// True if there is a tombstone and no run on the deletion has begun.
    pub(super) fn is_unseen(&self, lane: L, uid: &Arc<str>) -> bool {
        let tombstone = self.number(lane, uid).and_then(|number| self.lanes.get(&lane)?.all.get(&number));
        tombstone.is_some_and(|tombstone| !tombstone.seen)
    }

    pub(super) fn record(&mut self, lane: L, key: &PodKey, last: Option<Arc<CachedPod>>, now: Instant) {
        if let Some(number) = self.number(lane, &key.uid) {
            self.remove(lane, number);
        }
        self.numbers += 1;
        let of = self.lanes.entry(lane).or_default();
        of.waiting.extend(last.is_some().then_some(self.numbers));
        let tombstone =
            Tombstone { key: key.clone(), left: None, last, since: now, seen: false, running: false, back: false };
        of.all.insert(self.numbers, tombstone);
        self.by_uid.entry(Arc::clone(&key.uid)).or_default().push((lane, self.numbers));
    }

    /// Records that a Pod left a group.
    pub(super) fn record_left(&mut self, lane: L, group: &PodKey, left: Left, last: Arc<CachedPod>, now: Instant) {
        self.record(lane, group, Some(last), now);
        if let Some(tombstone) = self.tombstone(lane, &group.uid) {
            tombstone.left = Some(left);
        }
    }

    /// Returns the number of a group's tombstone, and the Pod that left.
    pub(super) fn left(&mut self, lane: L, group: &Arc<str>) -> Option<(u64, Option<Left>)> {
        let number = self.number(lane, group)?;
        self.numbered(lane, number).map(|tombstone| (number, tombstone.left.clone()))
    }

    pub(super) fn is_running(&mut self, lane: L, number: u64) -> bool {
        self.numbered(lane, number).is_some_and(|tombstone| tombstone.running)
    }

    /// Returns the Pods that were deleted as the last ones of the group of these tombstones, as far as these are of
    /// some plugins.
    pub(super) fn pods(&self, numbers: &[(L, u64)], is_of: impl Fn(L) -> bool) -> Vec<Arc<str>> {
        let pod = |(lane, number): &(L, u64)| {
            let left = self.lanes.get(lane)?.all.get(number)?.left.as_ref();
            left.filter(|left| !left.moved).map(|left| left.uid.clone())
        };
        numbers.iter().filter(|(lane, _)| is_of(*lane)).filter_map(pod).collect()
    }

    pub(super) fn forget_lane(&mut self, lane: L) {
        self.unsure.remove(&lane);
        let of = self.lanes.remove(&lane).unwrap_or_default();
        of.all.values().for_each(|tombstone| self.forget_number(lane, &tombstone.key.uid));
    }

    pub(super) fn last_states(&self) -> Vec<Arc<CachedPod>> {
        let state = |(lane, number): &(L, u64)| {
            self.lanes.get(lane)?.all.get(number).filter(|tombstone| tombstone.is_deletion())?.last.clone()
        };
        self.by_uid.values().filter_map(|numbers| numbers.iter().find_map(state)).collect()
    }

    /// The Pod is there again.
    pub(super) fn forget_uid(&mut self, uid: &Arc<str>) {
        for (lane, number) in self.by_uid.get(uid).cloned().unwrap_or_default() {
            match self.numbered(lane, number).filter(|tombstone| tombstone.running) {
                Some(tombstone) => tombstone.back = true,
                None => drop(self.remove(lane, number)),
            }
        }
    }

    /// True for a deletion that was taken back during a run on it.
    pub(super) fn is_back(&mut self, lane: L, number: u64) -> bool {
        self.numbered(lane, number).is_some_and(|tombstone| tombstone.back)
    }

    /// A run on the deletion did not settle.
    pub(super) fn fail(&mut self, lane: L, number: u64) {
        let Some(of) = self.lanes.get_mut(&lane) else { return };
        let Some(tombstone) = of.all.get_mut(&number) else { return };
        tombstone.running = false;
        // The next run for a group may be on a view of before its last Pod left, and leave no key of this end.
        tombstone.seen &= !is_group(&tombstone.key.uid);
        of.unsettled.insert(number);
        of.waiting.remove(&number);
        of.states.extend(tombstone.last.is_some().then_some(number));
    }

    pub(super) fn remove(&mut self, lane: L, number: u64) -> Option<Tombstone> {
        let of = self.lanes.get_mut(&lane)?;
        let tombstone = of.all.remove(&number)?;
        [&mut of.unsettled, &mut of.states, &mut of.waiting]
            .into_iter()
            .for_each(|numbers| _ = numbers.remove(&number));
        self.forget_number(lane, &tombstone.key.uid);
        Some(tombstone)
    }

    fn forget_number(&mut self, lane: L, uid: &Arc<str>) {
        if let Some(lanes) = self.by_uid.get_mut(uid) {
            lanes.retain(|(of, _)| *of != lane);
            if lanes.is_empty() {
                self.by_uid.remove(uid);
                self.shrink();
            }
        }
    }

    /// Frees the memory of a burst.
    fn shrink(&mut self) {
        const LEAST: usize = 1_024;
        if self.by_uid.capacity() > LEAST && self.by_uid.len() < self.by_uid.capacity() / 8 {
            self.by_uid.shrink_to(2 * self.by_uid.len());
        }
    }

    /// Drops last states and abandons deletions that exceed the bounds, about `at_once` of them.
    pub(super) fn enforce(&mut self, lane: L, queue: &Keys<L>, at_once: usize) -> Excess {
        let bounds = self.bounds.of_one(self.sharing.get(&lane).copied().unwrap_or(1));
        let mut excess = Excess::default();
        let Some(OfLane { all, states, waiting, .. }) = self.lanes.get_mut(&lane) else { return excess };
        for (numbers, most) in [(states, bounds.states), (waiting, bounds.waiting)] {
            while numbers.len() > most && excess.count() < at_once {
                let state = numbers.pop_first().and_then(|oldest| all.get_mut(&oldest)?.last.take());
                excess.states += u64::from(state.is_some());
            }
        }
        while excess.count() < at_once
            && let Some(OfLane { all, unsettled, .. }) = self.lanes.get(&lane)
        {
            let is_idle = |number: &&u64| {
                #[cfg(test)]
                super::tests::LOOKED.set(super::tests::LOOKED.get() + 1);
                all.get(number).is_some_and(|tombstone| !tombstone.running)
            };
            // Within the bounds, which is almost always, none is looked at.
            let fails = (unsettled.len() > bounds.unsettled).then(|| unsettled.iter().find(is_idle)).flatten();
            let more = || (all.len() > bounds.all).then(|| all.keys().find(is_idle)).flatten();
            let Some(oldest) = fails.or_else(more) else { break };
            excess.given_up.extend(self.give_up(lane, *oldest, queue));
        }
        excess
    }

    /// Abandons the oldest deletion of a name under which Pods come and go faster than the plugin settles on them.
    pub(super) fn enforce_name(&mut self, lane: L, slot: &Slot, queue: &Keys<L>) -> Option<PodKey> {
        let number = self.number(lane, &queue.excess(lane, slot)?)?;
        self.give_up(lane, number, queue)
    }

    /// Abandons a deletion and its key. A group may have Pods, and is queued again if it has.
    fn give_up(&mut self, lane: L, number: u64, queue: &Keys<L>) -> Option<PodKey> {
        let Tombstone { key, .. } = self.remove(lane, number)?;
        self.unsure.extend(is_group(&key.uid).then_some(lane));
        queue.remove(lane, slot(&key), &key.uid);
        Some(key)
    }
}
