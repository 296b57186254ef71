//! A map by lane and slot, of which the part of a lane is found without a look at other lanes'.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::Hash,
};

use foldhash::quality::FixedState;

#[derive(Debug)]
pub(super) struct ByLane<L, S, V>(HashMap<L, OfLane<L, S, V>, FixedState>);

type OfLane<L, S, V> = HashMap<(L, S), V, FixedState>;

impl<L: Copy + Eq + Hash, S: Eq + Hash, V> ByLane<L, S, V> {
    pub(super) fn with_hasher(hasher: FixedState) -> Self {
        Self(HashMap::with_hasher(hasher))
    }

    pub(super) fn get(&self, key: &(L, S)) -> Option<&V> {
        self.0.get(&key.0)?.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &(L, S)) -> Option<&mut V> {
        self.0.get_mut(&key.0)?.get_mut(key)
    }

    pub(super) fn entry(&mut self, key: (L, S)) -> Entry<'_, (L, S), V> {
        let hasher = self.0.hasher().clone();
        self.0.entry(key.0).or_insert_with(|| HashMap::with_hasher(hasher)).entry(key)
    }

    pub(super) fn remove(&mut self, key: &(L, S)) {
        if let Some(of_lane) = self.0.get_mut(&key.0) {
            of_lane.remove(key);
        }
    }

    /// Frees the memory of a burst, such as all Pods of the first list at once.
    pub(super) fn shrink(&mut self, lane: L) {
        const LEAST: usize = 1_024;
        let Some(of_lane) = self.0.get_mut(&lane) else { return };
        if of_lane.is_empty() {
            self.0.remove(&lane);
        } else if of_lane.capacity() > LEAST && of_lane.len() < of_lane.capacity() / 8 {
            of_lane.shrink_to(2 * of_lane.len());
        }
    }

    /// Keeps only some slots of a lane.
    pub(super) fn retain(&mut self, lane: L, mut stays: impl FnMut(&mut V) -> bool) {
        if let Some(of_lane) = self.0.get_mut(&lane) {
            of_lane.retain(|_, value| stays(value));
        }
        self.shrink(lane);
    }
}
