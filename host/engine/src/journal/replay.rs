//! Reads the file: the state at the start, and the names of Pods that were deleted while the host was down.

#![expect(clippy::disallowed_types, reason = "reads the journal's file, which its owner has opened")]

use std::{collections::BTreeMap, fs::File, io::BufReader};

use podium_vocabulary::{PluginId, PodKey, is_group};

use super::{
    Journal, Number, NumberedPlugin, State,
    entry::{Damage, Entries, Entry, Plugin},
    pair_set::PackedUid,
};
use crate::frames::ReadError;

/// How many numbers may be missing before the number of a plugin, as their entries are when the file is damaged. It
/// bounds what a number of a damaged file can make the host allocate.
const MOST_MISSING: usize = 4_096;

/// The result of reading a file.
#[derive(Debug)]
pub(super) struct Replayed {
    pub(super) state: State,
    /// The end of the valid entries.
    pub(super) end: u64,
    pub(super) entries: u64,
    /// Damage before the end.
    pub(super) damage: Damage,
    /// Why the bytes at `end` are not an entry.
    pub(super) torn: Option<String>,
}

/// Reads all entries that are not damaged. `file` must be positioned after the header.
pub(super) fn replay(file: &File) -> std::io::Result<Replayed> {
    let mut entries = Entries::new(BufReader::new(file));
    let mut state = State::default();
    let mut count = 0;
    let torn = loop {
        match entries.next() {
            Ok(None) => break None,
            Ok(Some(entry)) => match take(&mut state, entry) {
                Ok(()) => count += 1,
                Err(reason) => entries.damage().add(reason),
            },
            Err(ReadError::Damaged(reason)) => break Some(reason),
            Err(ReadError::Io(error)) => return Err(error),
        }
    };
    let end = entries.offset();
    let damage = std::mem::take(entries.damage());
    Ok(Replayed { state, end, entries: count, damage, torn })
}

/// Applies an entry.
///
/// # Errors
/// Returns an error if it does not fit the entries before it, because one of these is lost.
fn take(state: &mut State, entry: Entry<'static>) -> Result<(), String> {
    match entry {
        Entry::Plugin { number, plugin } => {
            if number as usize > state.plugins.len() + MOST_MISSING {
                return Err(format!("a plugin of number {number} after {}", state.plugins.len()));
            }
            let known = |Plugin { namespace, name, absent_since }: Plugin<'static>| NumberedPlugin {
                id: PluginId { namespace: namespace.map(|text| text.as_ref().into()), name: name.as_ref().into() },
                absent_since,
            };
            state.put_plugin(Number(number), plugin.map(known));
        }
        Entry::Runs { plugin, namespace, name, uid } => {
            let Some(known) = state.known(Number(plugin)) else {
                return Err(format!("a run of a plugin of number {plugin}, which is unknown"));
            };
            // If the entries of the number's present plugin are lost, no other tenant learns of its Pods.
            if known.id.namespace.as_deref().is_some_and(|own| *own != *namespace) {
                return Err(format!("a run of {} on a Pod of the namespace {namespace}", known.id));
            }
            state.insert(Number(plugin), PodKey::new(&namespace, &name, &uid));
        }
        Entry::Settled { plugin, uid } => {
            state.remove(Number(plugin), &uid);
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
                    let found = if is_group(&uid) { Found::Cached } else { found(&uid) };
                    if namespace.is_some_and(|namespace| namespace != of) || found == Found::Cached {
                        continue;
                    }
                    let mut state = journal.state.lock();
                    if !state.pairs.contains(plugin, PackedUid::pack(&uid)) {
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
        journal.state.lock().enforce_all(0);
        journal.due.notify_one();
        undecoded.into_values().collect()
    }
}
