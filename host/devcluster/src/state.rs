//! The state under the lock: the store, the kinds and the source of uids and names.

use std::sync::Arc;

use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::Value;

use crate::{
    kinds::{Kind, Kinds},
    meta::Object,
    store::{Key, Store},
};

/// Characters of generated names: no vowels and no 0, 1, 3, as in Kubernetes, so that they form no words.
pub(crate) const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) kinds: Kinds,
    random: SmallRng,
}

impl State {
    pub(crate) fn new(seed: u64) -> Self {
        Self { store: Store::new(), kinds: Kinds::default(), random: SmallRng::seed_from_u64(seed) }
    }

    /// Returns a version 4 UUID from the seed.
    pub(crate) fn uid(&mut self) -> String {
        let bits = self.random.random::<u128>() & !(0xf000_u128 << 64) & !(0xc000_u128 << 48)
            | 0x4000_u128 << 64
            | 0x8000_u128 << 48;
        let hex = format!("{bits:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// Returns five characters for `generateName`.
    pub(crate) fn suffix(&mut self) -> String {
        (0..5).map(|_| char::from(ALPHABET[self.random.random_range(0..ALPHABET.len())])).collect()
    }

    /// Returns a number below `bound`, which must not be 0.
    pub(crate) fn random_below(&mut self, bound: u64) -> u64 {
        self.random.random_range(0..bound)
    }

    /// Stores an object. The kinds of a definition are served from here on.
    pub(crate) fn put(&mut self, kind: &Kind, object: Value) -> Object {
        let resource = kind.resource();
        if resource == DEFINITIONS {
            self.kinds.define(&object);
        }
        self.store.put(&resource, object)
    }

    /// Deletes an object. With a definition its kinds and their objects are removed.
    pub(crate) fn remove(&mut self, kind: &Kind, key: &Key) -> Option<Object> {
        let resource = kind.resource();
        let removed = self.store.delete(&resource, key)?;
        if resource == DEFINITIONS {
            let keys: Vec<Key> = self.store.iter(&key.name, None).map(|(key, _)| key.clone()).collect();
            for object in keys {
                self.store.delete(&key.name, &object);
            }
            self.kinds.undefine(&removed);
        }
        Some(removed)
    }

    pub(crate) fn namespace_kind(&self) -> Arc<Kind> {
        self.kinds.find("", "v1", "namespaces").unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_version_4_and_the_same_for_the_same_seed() {
        let mut one = State::new(7);
        let mut two = State::new(7);
        let uid = one.uid();
        assert_eq!(uid, two.uid());
        assert_eq!(uid.len(), 36);
        assert_eq!(&uid[14..15], "4");
        assert!("89ab".contains(&uid[19..20]));
        assert_ne!(one.uid(), uid);
    }
}
