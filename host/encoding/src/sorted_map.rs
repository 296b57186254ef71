//! A small map as a sorted list, which takes a tenth of the memory of a `BTreeMap` with one or two entries.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SortedMap<K, V>(Vec<(K, V)>);

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord + Copy, V: Copy> SortedMap<K, V> {
    pub(super) fn get(&self, key: K) -> Option<V> {
        let at = self.0.binary_search_by_key(&key, |(key, _)| *key).ok()?;
        Some(self.0[at].1)
    }

    /// Inserts or replaces a value, in time linear in the number of entries.
    pub(super) fn insert(&mut self, key: K, value: V) {
        match self.0.binary_search_by_key(&key, |(key, _)| *key) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => {
                // Most maps stay as small as they are.
                self.0.reserve_exact(1);
                self.0.insert(at, (key, value));
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (K, V)> {
        self.0.iter().copied()
    }

    /// Returns the bytes that are allocated.
    pub(super) fn size(&self) -> usize {
        self.0.capacity() * size_of::<(K, V)>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_has_what_an_ordered_map_has(steps in prop::collection::vec((0..20_u64, any::<u8>()), 0..40)) {
            let mut map = SortedMap::default();
            let mut model = BTreeMap::new();
            for (key, value) in steps {
                map.insert(key, value);
                model.insert(key, value);
            }
            prop_assert!(map.iter().eq(model.iter().map(|(key, value)| (*key, *value))));
            prop_assert!((0..20).all(|key| map.get(key) == model.get(&key).copied()));
            prop_assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
            prop_assert!(map.size() >= model.len() * size_of::<(u64, u8)>());
        }
    }
}
