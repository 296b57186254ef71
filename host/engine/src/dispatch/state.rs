//! The small memory of a plugin or of a state group, shared by its runs, with compare-and-swap.

use std::{collections::BTreeMap, sync::Arc};

use podium_vocabulary::Refused;

use super::states::{Share, TENANT_BYTES};
use crate::ports::{StateEntry, StateError};

/// All keys and values of one plugin or state group together, in bytes.
const MAX_BYTES: usize = 1 << 20;
/// Keys of one plugin or state group.
const MAX_KEYS: usize = 4_096;
/// The bytes of an entry beside its key and value, for the bounds of tenant and host.
const ENTRY_BYTES: usize = 192;

/// The state that a plugin stores with `state.put`. It is kept in memory only and is lost when the host ends. Beyond
/// the share of the plugin or group, the entries that were put longest ago are dropped.
#[derive(Debug, Default)]
pub struct State {
    entries: BTreeMap<Arc<str>, StateEntry>,
    /// The keys by the versions of their entries, so that the oldest is found without a look at the others, with the
    /// numbers of the puts among those of all states.
    by_version: BTreeMap<u64, (Arc<str>, u64)>,
    /// Versions are counted over all keys, so that a key removed and put again never repeats one.
    version: u64,
    bytes: usize,
    share: Share,
}

impl Drop for State {
    fn drop(&mut self) {
        self.share.give_back(self.bytes + ENTRY_BYTES * self.entries.len());
    }
}

impl State {
    pub(super) fn new(share: Share) -> Self {
        Self { entries: BTreeMap::new(), by_version: BTreeMap::new(), version: 0, bytes: 0, share }
    }

    /// Returns a copy that counts for no tenant.
    pub(super) fn copied(&self) -> Self {
        let Self { entries, by_version, version, bytes, share: _ } = self;
        let copy = Self {
            entries: entries.clone(),
            by_version: by_version.clone(),
            version: *version,
            bytes: *bytes,
            share: Share::default(),
        };
        // The drop of the copy subtracts them.
        copy.share.exchange(0, *bytes + ENTRY_BYTES * entries.len());
        copy
    }

    /// Returns the number of the oldest put, among those of all states.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.by_version.first_key_value().map(|(_, (_, put))| *put)
    }

    /// Removes the entry that was put longest ago.
    pub(super) fn drop_oldest(&mut self) {
        if let Some(oldest) = self.by_version.first_key_value().map(|(_, (key, _))| Arc::clone(key)) {
            self.drop_entry(&oldest);
        }
    }

    /// Returns the value and its version, or `None` if the key was not put or was removed.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<StateEntry> {
        self.entries.get(key).cloned()
    }

    /// Returns the new version.
    ///
    /// # Errors
    /// Returns an error if the entry has another version (0 expects no entry), if the value exceeds the plugin's whole
    /// share, or if the states of the tenant would exceed theirs; the entry stays as it is then.
    pub fn put(&mut self, key: &str, value: Vec<u8>, expected: Option<u64>) -> Result<u64, StateError> {
        self.expect(key, expected)?;
        if key.len() + value.len() > MAX_BYTES {
            return Err(StateError::Refused(Refused::Invalid(format!("over {MAX_BYTES} bytes"))));
        }
        let bytes = key.len() + value.len();
        // First the oldest entries that do not fit into the plugin's own share, which may make room in the tenant's.
        loop {
            let held = self.entries.get(key).map(|entry| key.len() + entry.value.len());
            let keys = self.entries.len() + usize::from(held.is_none());
            if self.bytes - held.unwrap_or(0) + bytes <= MAX_BYTES && keys <= MAX_KEYS {
                break;
            }
            self.drop_oldest();
        }
        let there = self.entries.get(key).map_or(0, |entry| key.len() + entry.value.len() + ENTRY_BYTES);
        let Some(put) = self.share.exchange(there, bytes + ENTRY_BYTES) else {
            let message = format!(
                "the states of the tenant's plugins would be over {TENANT_BYTES} bytes together; remove entries"
            );
            return Err(StateError::Refused(Refused::Invalid(message)));
        };
        self.take(key);
        self.bytes += bytes;
        self.version += 1;
        let key: Arc<str> = key.into();
        self.by_version.insert(self.version, (Arc::clone(&key), put));
        self.entries.insert(key, StateEntry { value, version: self.version });
        Ok(self.version)
    }

    /// # Errors
    /// Returns an error if another version is there.
    pub fn remove(&mut self, key: &str, expected: Option<u64>) -> Result<(), StateError> {
        self.expect(key, expected)?;
        self.drop_entry(key);
        Ok(())
    }

    fn expect(&self, key: &str, expected: Option<u64>) -> Result<(), StateError> {
        let there = self.entries.get(key);
        match expected {
            Some(expected) if expected != there.map_or(0, |entry| entry.version) => {
                Err(StateError::Conflict(there.cloned()))
            }
            _ => Ok(()),
        }
    }

    fn drop_entry(&mut self, key: &str) {
        let bytes = self.take(key);
        self.share.give_back(bytes);
    }

    /// Returns the bytes that the entry counted for.
    fn take(&mut self, key: &str) -> usize {
        let Some(entry) = self.entries.remove(key) else { return 0 };
        self.by_version.remove(&entry.version);
        let bytes = key.len() + entry.value.len();
        self.bytes -= bytes;
        bytes + ENTRY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_on_an_old_version_is_a_conflict_with_the_present_one() {
        let mut state = State::default();
        let first = state.put("k", b"a".to_vec(), Some(0)).unwrap();
        let second = state.put("k", b"b".to_vec(), Some(first)).unwrap();
        let there = StateEntry { value: b"b".to_vec(), version: second };
        assert_eq!(state.put("k", b"c".to_vec(), Some(first)), Err(StateError::Conflict(Some(there))));
        assert_eq!(state.remove("other", Some(3)), Err(StateError::Conflict(None)));
    }

    #[test]
    fn a_key_removed_and_put_again_never_repeats_a_version() {
        let mut state = State::default();
        let first = state.put("k", Vec::new(), None).unwrap();
        state.remove("k", None).unwrap();
        assert!(state.put("k", Vec::new(), None).unwrap() > first);
    }

    #[test]
    fn values_beyond_the_share_evict_the_oldest() {
        let mut state = State::default();
        for key in ["a", "b", "c"] {
            state.put(key, vec![0; MAX_BYTES / 2 - 1], None).unwrap();
        }
        assert!(state.get("a").is_none() && state.get("b").is_some() && state.get("c").is_some());
        assert!(state.put("d", vec![0; MAX_BYTES], None).is_err());
    }
}
