//! A map that holds at most so many entries and forgets the oldest first. What it holds is only there to save requests.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

#[derive(Debug)]
pub(super) struct Memory<K, V> {
    entries: HashMap<K, V>,
    order: VecDeque<K>,
    capacity: usize,
}

impl<K: Hash + Eq + Clone, V> Memory<K, V> {
    /// `capacity` is at least 1.
    pub(super) fn new(capacity: usize) -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new(), capacity }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    /// The entry, made first where it is missing.
    pub(super) fn entry(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        if !self.entries.contains_key(key) {
            while self.entries.len() >= self.capacity {
                let Some(oldest) = self.order.pop_front() else { break };
                self.entries.remove(&oldest);
            }
            self.order.push_back(key.clone());
        }
        self.entries.entry(key.clone()).or_insert_with(make)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.entries.iter_mut()
    }

    pub(super) fn remove(&mut self, key: &K) {
        if self.entries.remove(key).is_some() {
            self.order.retain(|held| held != key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_memory_forgets_the_oldest_and_never_grows() {
        let mut memory = Memory::new(2);
        for key in 0..10 {
            memory.entry(&key, || key);
            assert!(memory.entries.len() <= 2 && memory.order.len() <= 2);
        }
        assert_eq!((memory.get(&7), memory.get(&8), memory.get(&9)), (None, Some(&8), Some(&9)));
        memory.remove(&8);
        memory.entry(&10, || 10);
        assert_eq!(memory.get(&9), Some(&9));
    }
}
