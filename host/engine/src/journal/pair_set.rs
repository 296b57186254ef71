//! The set of pairs of a plugin and a Pod on which it ran. It is small, and is asked at every run.
//!
//! 64 plugins share a page. A Pod in a page takes 24 bytes, for its uid and one bit per plugin; including the free
//! places of the table 28 to 57 bytes, however many of the 64 ran on it. Names are only in the file.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use foldhash::quality::FixedState;
use podium_pods::pod::uuid_of;

use super::Number;

/// The plugins of one page, which is the number of bits of a mask.
const PAGE: usize = 64;
/// The number of places below which a table is not shrunk.
const SMALL: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct PairSet {
    pages: Vec<HashMap<PackedUid, u64, FixedState>>,
    /// The number of pairs.
    pairs: usize,
    /// The number of pairs of each plugin, by its number.
    counts: Vec<usize>,
}

/// A uid in 16 bytes: the UUID that API servers assign, or 128 bits of a hash of any other text. An array, because a
/// u128 would be aligned to 16 bytes and cost 8 bytes more in each place of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PackedUid([u8; 16]);

impl PackedUid {
    pub(super) fn pack(text: &str) -> Self {
        Self(uuid_of(text).unwrap_or_else(|| hashed(text)))
    }
}

fn hashed(text: &str) -> [u8; 16] {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, text).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    (half(0) << 64 | half(1)).to_le_bytes()
}

impl PairSet {
    /// Adds a pair. Returns false if it was present.
    pub(super) fn insert(&mut self, plugin: Number, uid: PackedUid) -> bool {
        let (page, bit) = place(plugin);
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, HashMap::default);
        }
        let mask = self.pages[page].entry(uid).or_default();
        let fresh = *mask & bit == 0;
        *mask |= bit;
        if fresh {
            let number = plugin.0 as usize;
            self.counts.resize(self.counts.len().max(number + 1), 0);
            self.counts[number] += 1;
            self.pairs += 1;
        }
        fresh
    }

    /// Removes a pair. Returns false if it was absent.
    pub(super) fn remove(&mut self, plugin: Number, uid: PackedUid) -> bool {
        let (page, bit) = place(plugin);
        let Some(page) = self.pages.get_mut(page) else { return false };
        let Some(mask) = page.get_mut(&uid).filter(|mask| **mask & bit != 0) else { return false };
        *mask &= !bit;
        if *mask == 0 {
            page.remove(&uid);
            if page.capacity() > SMALL && page.len() < page.capacity() / 8 {
                page.shrink_to(page.len() * 2);
            }
        }
        self.pairs -= 1;
        self.counts[plugin.0 as usize] -= 1;
        true
    }

    pub(super) fn contains(&self, plugin: Number, uid: PackedUid) -> bool {
        let (page, bit) = place(plugin);
        self.pages.get(page).and_then(|page| page.get(&uid)).is_some_and(|mask| mask & bit != 0)
    }

    /// Returns the plugins that ran on the Pod, in the order of their numbers.
    pub(super) fn plugins_of(&self, uid: PackedUid) -> Vec<Number> {
        let masks = self.pages.iter().map(|page| page.get(&uid).copied().unwrap_or_default());
        let bits = |(page, mask): (usize, u64)| {
            (0..PAGE).filter(move |bit| mask & (1 << bit) != 0).map(move |bit| page * PAGE + bit)
        };
        masks.enumerate().flat_map(bits).filter_map(|number| u32::try_from(number).ok().map(Number)).collect()
    }

    /// Returns the number of Pods on which the plugin ran.
    pub(super) fn count_of(&self, plugin: Number) -> usize {
        self.counts.get(plugin.0 as usize).copied().unwrap_or_default()
    }

    /// Removes all pairs of the plugin, if it has any in time linear in the Pods of 64 plugins.
    pub(super) fn remove_plugin(&mut self, plugin: Number) {
        let count = self.counts.get_mut(plugin.0 as usize).map(std::mem::take).unwrap_or_default();
        if count == 0 {
            return;
        }
        self.pairs -= count;
        let (page, bit) = place(plugin);
        self.pages[page].retain(|_, mask| {
            *mask &= !bit;
            *mask != 0
        });
    }

    /// Returns the number of pairs.
    pub(super) fn len(&self) -> usize {
        self.pairs
    }
}

/// Returns the page and the bit of a plugin.
fn place(plugin: Number) -> (usize, u64) {
    let number = plugin.0 as usize;
    (number / PAGE, 1 << (number % PAGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9fa";

    #[test]
    fn a_uuid_is_stored_exactly_and_other_texts_are_distinguished() {
        assert_eq!(PackedUid::pack(UID).0, 0x0b1c_2d3e_4f50_6172_8394_a5b6_c7d8_e9fa_u128.to_be_bytes());
        let others = ["", "u1", "u2", "0B1c2d3e-4f50-6172-8394-a5b6c7d8e9fa", "0b1c2d3e04f50-6172-8394-a5b6c7d8e9fa"];
        let mut all: Vec<_> = others.iter().chain([&UID]).map(|text| PackedUid::pack(text).0).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 6);
    }

    #[test]
    fn a_pod_takes_24_bytes_whatever_the_number_of_plugins() {
        assert_eq!(size_of::<(PackedUid, u64)>(), 24);
        let mut pairs = PairSet::default();
        for plugin in (0..PAGE).map(|number| Number(u32::try_from(number).unwrap())) {
            assert!(pairs.insert(plugin, PackedUid::pack(UID)));
            assert!(!pairs.insert(plugin, PackedUid::pack(UID)));
        }
        assert_eq!((pairs.pages.len(), pairs.pages[0].len(), pairs.len()), (1, 1, PAGE));
    }

    #[test]
    fn plugins_beyond_the_first_page_are_found_and_forgotten() {
        let mut pairs = PairSet::default();
        let near = Number(3);
        let far = Number(64 * 2 + 5);
        for uid in ["u1", "u2"] {
            assert!(pairs.insert(far, PackedUid::pack(uid)));
        }
        assert!(pairs.insert(near, PackedUid::pack("u2")));
        assert_eq!(pairs.plugins_of(PackedUid::pack("u2")), [near, far]);
        assert!(!pairs.contains(near, PackedUid::pack("u1")) && pairs.contains(far, PackedUid::pack("u1")));
        assert_eq!((pairs.count_of(near), pairs.count_of(far), pairs.len()), (1, 2, 3));
        assert!(!pairs.remove(near, PackedUid::pack("u1")));
        pairs.remove_plugin(far);
        assert_eq!((pairs.plugins_of(PackedUid::pack("u2")), pairs.len()), (vec![near], 1));
        assert!(pairs.remove(near, PackedUid::pack("u2")) && pairs.pages.iter().all(HashMap::is_empty));
    }
    #[test]
    fn the_pairs_of_64_plugins_are_not_walked_for_one_that_has_none() {
        let mut pairs = PairSet::default();
        let busy = Number(3);
        let idle = Number(5);
        pairs.insert(busy, PackedUid::pack("u1"));
        // A walk would count the first one and drop the second one.
        pairs.pages[0].extend([(PackedUid::pack("u2"), 1 << idle.0), (PackedUid::pack("u3"), 0)]);
        assert_eq!((pairs.count_of(busy), pairs.count_of(idle)), (1, 0));
        pairs.remove_plugin(idle);
        assert_eq!((pairs.pages[0].len(), pairs.len()), (3, 1));
        pairs.remove_plugin(busy);
        assert_eq!((pairs.count_of(busy), pairs.pages[0].len(), pairs.len()), (0, 1, 0));
    }
}
