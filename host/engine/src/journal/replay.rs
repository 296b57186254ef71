//! Reads the file: the state at the start, and the names of Pods that were deleted while the host was down.

use std::{collections::BTreeMap, fs::File, io::BufReader};

use podium_pods::model::{PluginId, PodKey};

use super::{
    Journal, Number, NumberedPlugin, State,
    entry::{Entries, Entry, Plugin},
    pair_set::PackedUid,
};
use crate::frames::ReadError;

/// The result of reading a file.
#[derive(Debug)]
pub(super) struct Replayed {
    pub(super) state: State,
    /// The end of the valid entries.
    pub(super) end: u64,
    pub(super) entries: u64,
    /// Why the bytes at `end` are not an entry.
    pub(super) damage: Option<String>,
}

/// Reads all entries. `file` must be positioned after the header. The entries before a damaged one are kept.
pub(super) fn replay(file: &File) -> std::io::Result<Replayed> {
    let mut entries = Entries::new(BufReader::new(file));
    let mut replayed = Replayed { state: State::default(), end: 0, entries: 0, damage: None };
    loop {
        replayed.end = entries.offset();
        match entries.next() {
            Ok(None) => return Ok(replayed),
            Ok(Some(entry)) => {
                if let Err(damage) = take(&mut replayed.state, entry) {
                    replayed.damage = Some(damage);
                    return Ok(replayed);
                }
                replayed.entries += 1;
            }
            Err(ReadError::Damaged(damage)) => {
                replayed.damage = Some(damage);
                return Ok(replayed);
            }
            Err(ReadError::Io(error)) => return Err(error),
        }
    }
}

fn take(state: &mut State, entry: Entry<'static>) -> Result<(), String> {
    match entry {
        Entry::Plugin { number, plugin } => {
            if number as usize > state.plugins.len() {
                return Err(format!("a plugin of number {number} after {}", state.plugins.len()));
            }
            let known = |Plugin { namespace, name, absent_since }: Plugin<'static>| NumberedPlugin {
                id: PluginId { namespace: namespace.map(|text| text.as_ref().into()), name: name.as_ref().into() },
                absent_since,
            };
            state.put_plugin(Number(number), plugin.map(known));
        }
        Entry::Runs { plugin, uid, .. } => {
            if state.known(Number(plugin)).is_none() {
                return Err(format!("a run of a plugin of number {plugin}, which is unknown"));
            }
            state.pairs.insert(Number(plugin), PackedUid::of(&uid));
        }
        Entry::Settled { plugin, uid } => {
            state.pairs.remove(Number(plugin), PackedUid::of(&uid));
        }
        Entry::Cluster { uid } => state.cluster = Some(uid.into()),
    }
    Ok(())
}

/// The result of looking up a Pod in the first list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The cache has it.
    Cached,
    /// The API server has it and the cache does not, because it cannot be decoded.
    Undecoded,
    /// The list does not contain it: it was deleted.
    Absent,
}

/// The file as it was opened, for its names, which are not in memory. Used once.
#[derive(Debug)]
pub struct Recovery {
    /// Positioned after the header.
    pub(super) file: File,
    pub(super) end: u64,
}

impl Recovery {
    /// Compares the journal with the first complete list: Pods on which plugins ran and that the list lacks were
    /// deleted, and their deletions become pending. Returns the Pods that are not known to be deleted and that the
    /// cache lacks. `namespace` is the only listed namespace; Pods of others are left unchanged.
    ///
    /// Blocks while it reads the file from the page cache: about 0.2 s for a million entries.
    #[must_use]
    pub fn record_deletions(
        self,
        journal: &Journal,
        namespace: Option<&str>,
        found: impl Fn(&str) -> Found,
    ) -> Vec<PodKey> {
        let mut undecoded = BTreeMap::new();
        let mut entries = Entries::new(BufReader::new(&self.file));
        while entries.offset() < self.end {
            match entries.next() {
                Ok(Some(Entry::Runs { plugin, namespace: of, name, uid })) => {
                    let plugin = Number(plugin);
                    let found = found(&uid);
                    if namespace.is_some_and(|namespace| namespace != of) || found == Found::Cached {
                        continue;
                    }
                    let mut state = journal.state.lock();
                    if !state.pairs.contains(plugin, PackedUid::of(&uid)) {
                        continue;
                    }
                    let key = PodKey::new(&of, &name, &uid);
                    if found == Found::Absent {
                        state.pending_deletions.entry(plugin).or_default().insert(key);
                    } else {
                        undecoded.insert(key.uid.clone(), key);
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "journal recovery failed: deletions while the host was down are lost");
                    break;
                }
            }
        }
        undecoded.into_values().collect()
    }
}
