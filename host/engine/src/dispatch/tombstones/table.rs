//! The tombstones themselves, found by uid and by plugin, within their [`Bounds`].

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::Hash,
    sync::Arc,
};

use foldhash::quality::FixedState;
use podium_pods::pod::CachedPod;
use podium_vocabulary::PodKey;
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
    /// By plugin, the oldest first.
    tombstones: BTreeMap<(L, u64), Tombstone>,
    /// Those on which a run did not settle.
    unsettled: BTreeSet<(L, u64)>,
    /// Those of `unsettled` that have a last state.
    states: BTreeSet<(L, u64)>,
    /// The others that have a last state.
    waiting: BTreeSet<(L, u64)>,
    figures: BTreeMap<L, Figures>,
}

#[derive(Debug)]
pub(super) struct Tombstone {
    pub(super) key: PodKey,
    /// None if the Pod was deleted while the host was down, or the state was dropped.
    pub(super) last: Option<Arc<CachedPod>>,
    pub(super) since: Instant,
    /// A run on the deletion has begun; until it settles the key is in the queue.
    pub(super) seen: bool,
    /// A run on the deletion is under way.
    pub(super) running: bool,
    /// The Pod is there again; kept for the run that is under way.
    back: bool,
}

impl<L: Copy + Ord + Hash> TombstoneTable<L> {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            sharing: BTreeMap::new(),
            numbers: 0,
            by_uid: HashMap::default(),
            tombstones: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            states: BTreeSet::new(),
            waiting: BTreeSet::new(),
            figures: BTreeMap::new(),
        }
    }

    pub(super) fn figures(&self, lane: L) -> Figures {
        self.figures.get(&lane).copied().unwrap_or_default()
    }

    pub(super) fn number(&self, lane: L, uid: &Arc<str>) -> Option<u64> {
        self.by_uid.get(uid)?.iter().find(|(of, _)| *of == lane).map(|(_, number)| *number)
    }

    pub(super) fn tombstone(&mut self, lane: L, uid: &Arc<str>) -> Option<&mut Tombstone> {
        let number = self.number(lane, uid)?;
        self.tombstones.get_mut(&(lane, number))
    }

    /// True if there is a tombstone and no run on the deletion has begun.
    pub(super) fn is_unseen(&self, lane: L, uid: &Arc<str>) -> bool {
        let tombstone = self.number(lane, uid).and_then(|number| self.tombstones.get(&(lane, number)));
        tombstone.is_some_and(|tombstone| !tombstone.seen)
    }

    pub(super) fn record(&mut self, lane: L, key: &PodKey, last: Option<Arc<CachedPod>>, now: Instant) {
        if let Some(number) = self.number(lane, &key.uid) {
            self.remove(lane, number);
        }
        self.numbers += 1;
        let waits = last.is_some();
        let tombstone = Tombstone { key: key.clone(), last, since: now, seen: false, running: false, back: false };
        self.tombstones.insert((lane, self.numbers), tombstone);
        self.by_uid.entry(Arc::clone(&key.uid)).or_default().push((lane, self.numbers));
        let figures = self.figures.entry(lane).or_default();
        figures.all += 1;
        if waits {
            self.waiting.insert((lane, self.numbers));
            figures.waiting += 1;
        }
    }

    pub(super) fn forget_lane(&mut self, lane: L) {
        let numbers: Vec<_> = self.tombstones.range(of(lane)).map(|((_, number), _)| *number).collect();
        for number in numbers {
            self.remove(lane, number);
        }
        self.figures.remove(&lane);
    }

    /// The Pod is there again.
    pub(super) fn forget_uid(&mut self, uid: &Arc<str>) {
        for (lane, number) in self.by_uid.get(uid).cloned().unwrap_or_default() {
            match self.tombstones.get_mut(&(lane, number)).filter(|tombstone| tombstone.running) {
                Some(tombstone) => tombstone.back = true,
                None => drop(self.remove(lane, number)),
            }
        }
    }

    /// True for a deletion that was taken back during a run on it.
    pub(super) fn is_back(&self, lane: L, number: u64) -> bool {
        self.tombstones.get(&(lane, number)).is_some_and(|tombstone| tombstone.back)
    }

    /// A run on the deletion did not settle.
    pub(super) fn fail(&mut self, lane: L, number: u64) {
        let Some(tombstone) = self.tombstones.get_mut(&(lane, number)) else { return };
        tombstone.running = false;
        let fresh = self.unsettled.insert((lane, number));
        let state = tombstone.last.is_some() && self.states.insert((lane, number));
        let waited = self.waiting.remove(&(lane, number));
        let figures = self.figures.entry(lane).or_default();
        figures.unsettled += usize::from(fresh);
        figures.states += usize::from(state);
        figures.waiting -= usize::from(waited);
    }

    pub(super) fn remove(&mut self, lane: L, number: u64) -> Option<Tombstone> {
        let tombstone = self.tombstones.remove(&(lane, number))?;
        if let Some(lanes) = self.by_uid.get_mut(&tombstone.key.uid) {
            lanes.retain(|(of, _)| *of != lane);
            if lanes.is_empty() {
                self.by_uid.remove(&tombstone.key.uid);
                self.shrink();
            }
        }
        let at = (lane, number);
        let (unsettled, state, waited) =
            (self.unsettled.remove(&at), self.states.remove(&at), self.waiting.remove(&at));
        if let Some(figures) = self.figures.get_mut(&lane) {
            figures.all -= 1;
            figures.unsettled -= usize::from(unsettled);
            figures.states -= usize::from(state);
            figures.waiting -= usize::from(waited);
        }
        Some(tombstone)
    }

    /// Frees the memory of a burst.
    fn shrink(&mut self) {
        const LEAST: usize = 1_024;
        if self.by_uid.capacity() > LEAST && self.by_uid.len() < self.by_uid.capacity() / 8 {
            self.by_uid.shrink_to(2 * self.by_uid.len());
        }
    }

    /// Drops last states and abandons deletions that exceed the bounds.
    pub(super) fn enforce(&mut self, lane: L, queue: &Keys<L>) -> Excess {
        let bounds = self.bounds.of_one(self.sharing.get(&lane).copied().unwrap_or(1));
        let mut excess = Excess::default();
        while self.figures(lane).states > bounds.states {
            let Some(oldest) = self.states.range(of(lane)).next().copied() else { break };
            excess.states += u64::from(self.drop_state(oldest));
        }
        while self.figures(lane).waiting > bounds.waiting {
            let Some(oldest) = self.waiting.range(of(lane)).next().copied() else { break };
            excess.states += u64::from(self.drop_state(oldest));
        }
        while self.figures(lane).unsettled > bounds.unsettled {
            let Some(oldest) =
                self.unsettled.range(of(lane)).map(|(_, number)| *number).find(|at| self.waits(lane, *at))
            else {
                break;
            };
            excess.given_up.extend(self.give_up(lane, oldest, queue));
        }
        while self.figures(lane).all > bounds.all {
            let oldest = self.tombstones.range(of(lane)).find(|(_, tombstone)| !tombstone.running);
            let Some(oldest) = oldest.map(|((_, number), _)| *number) else { break };
            excess.given_up.extend(self.give_up(lane, oldest, queue));
        }
        excess
    }

    /// Abandons the oldest deletion of a name under which Pods come and go faster than the plugin settles on them.
    pub(super) fn enforce_name(&mut self, lane: L, slot: &Slot, queue: &Keys<L>) -> Option<PodKey> {
        let number = self.number(lane, &queue.excess(lane, slot)?)?;
        self.give_up(lane, number, queue)
    }

    /// The lanes that have figures.
    pub(super) fn lanes(&self) -> Vec<L> {
        self.figures.keys().copied().collect()
    }

    /// Returns false if there is no last state.
    fn drop_state(&mut self, at: (L, u64)) -> bool {
        let (state, waited) = (self.states.remove(&at), self.waiting.remove(&at));
        let figures = self.figures.entry(at.0).or_default();
        figures.states -= usize::from(state);
        figures.waiting -= usize::from(waited);
        self.tombstones.get_mut(&at).is_some_and(|tombstone| tombstone.last.take().is_some())
    }

    fn waits(&self, lane: L, number: u64) -> bool {
        self.tombstones.get(&(lane, number)).is_some_and(|tombstone| !tombstone.running)
    }

    fn give_up(&mut self, lane: L, number: u64, queue: &Keys<L>) -> Option<PodKey> {
        let Tombstone { key, .. } = self.remove(lane, number)?;
        queue.remove(lane, slot(&key), &key.uid);
        Some(key)
    }
}

/// All tombstones of a lane.
fn of<L: Copy>(lane: L) -> std::ops::RangeInclusive<(L, u64)> {
    (lane, 0)..=(lane, u64::MAX)
}
