//! A hash index: it maps a hash to the positions of the Pods with this hash, with eight bytes for each Pod. Hashes
//! collide, so the caller compares each Pod with the one that it looks for.
//!
//! The entries of a bucket are sorted, so the time of a search does not depend on how many other entries it has: those
//! of other tenants' Pods.
//!
//! Persistent: a clone shares everything; a change copies one bucket and its path.

use std::sync::Arc;

use super::{persistent_vec::PersistentVec, position_set::Position};

/// Average number of positions in a bucket at which the number of buckets is doubled.
const FULL: usize = 48;

#[derive(Debug, Clone, Default)]
pub(super) struct HashIndex {
    buckets: PersistentVec<[(u32, Position)]>,
    /// The number of buckets is two to the power of this.
    bits: u32,
    len: usize,
}

impl HashIndex {
    fn bucket(&self, hash: u32) -> usize {
        (hash & ((1 << self.bits) - 1)) as usize
    }

    /// Returns the positions with this hash.
    pub(super) fn get(&self, hash: u32) -> impl Iterator<Item = Position> {
        let entries = self.buckets.get(self.bucket(hash)).unwrap_or_default();
        let from = entries.partition_point(|(other, _)| *other < hash);
        entries[from..].iter().take_while(move |(other, _)| *other == hash).map(|(_, position)| *position)
    }

    /// Builds the index from positions with their hashes.
    pub(super) fn from_entries(entries: &[(u32, Position)]) -> Self {
        let len = entries.len();
        let mut index = Self { len, ..Self::default() };
        while len >= FULL << index.bits && index.bits < 24 {
            index.bits += 1;
        }
        let mut buckets = vec![Vec::new(); 1 << index.bits];
        for (hash, position) in entries {
            buckets[index.bucket(*hash)].push((*hash, *position));
        }
        for (at, mut entries) in buckets.into_iter().enumerate() {
            entries.sort_unstable();
            index.buckets.set(at, entries.into());
        }
        index
    }

    pub(super) fn insert(&mut self, hash: u32, position: Position) {
        if self.len >= FULL << self.bits && self.bits < 24 {
            self.grow();
        }
        let at = self.bucket(hash);
        let entries = self.buckets.get(at).unwrap_or_default();
        let (before, after) = entries.split_at(entries.partition_point(|entry| *entry < (hash, position)));
        let grown = before.iter().chain(&[(hash, position)]).chain(after).copied().collect();
        self.buckets.set(at, grown);
        self.len += 1;
    }

    pub(super) fn remove(&mut self, hash: u32, position: Position) {
        let at = self.bucket(hash);
        let Some(entries) = self.buckets.get(at) else { return };
        // Only one: two labels of a Pod may have one hash.
        let Ok(removed) = entries.binary_search(&(hash, position)) else { return };
        let left: Arc<[_]> = entries[..removed].iter().chain(&entries[removed + 1..]).copied().collect();
        self.len -= 1;
        self.buckets.set(at, left);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn grow(&mut self) {
        let old = std::mem::take(&mut self.buckets);
        self.bits += 1;
        for at in 0..1 << (self.bits - 1) {
            let entries = old.get(at).unwrap_or_default();
            let upper = 1 << (self.bits - 1);
            let (high, low): (Vec<_>, Vec<_>) = entries.iter().copied().partition(|(hash, _)| hash & upper != 0);
            self.buckets.set(at, low.into());
            self.buckets.set(at | upper as usize, high.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_position_is_found_only_by_its_hash(
            steps in prop::collection::vec((0..2_000_u32, prop::bool::weighted(0.7)), 0..2_000),
            first in 0..2_000_u32,
        ) {
            // Three positions share each hash.
            let hash = |position: u32| (position / 3).wrapping_mul(0x9e37_79b9);
            let mut model: BTreeSet<_> = (0..first).collect();
            let entries: Vec<_> = (0..first).map(|position| (hash(position), position)).collect();
            let mut index = HashIndex::from_entries(&entries);
            for (position, add) in steps {
                if !add {
                    index.remove(hash(position), position);
                    model.remove(&position);
                } else if model.insert(position) {
                    // The second of two equal entries stays.
                    index.insert(hash(position), position);
                    index.insert(hash(position), position);
                    index.remove(hash(position), position);
                }
            }
            prop_assert_eq!(index.len, model.len());
            for position in 0..2_000 {
                let found: BTreeSet<_> = index.get(hash(position)).collect();
                let others = position / 3 * 3..position / 3 * 3 + 3;
                prop_assert_eq!(found, others.filter(|position| model.contains(position)).collect());
            }
        }
    }
}
