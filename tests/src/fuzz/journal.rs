//! Arbitrary bytes as the journal's file: it opens with any content, and entries recorded after that are there at the
//! next start.
//!
//! Each input is used twice: unchanged, and with corrected checksums of its entries, which a fuzzer would hardly
//! find.

#![expect(clippy::unwrap_used, reason = "a panic is a finding")]

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use podium_engine::journal::{Journal, Opened, PluginEntries, Store, open};
use podium_vocabulary::{PluginId, PodKey};
use tokio::runtime::Runtime;

/// The length of the file's header.
pub(super) const HEADER: usize = 10;
/// The length and checksum before each entry.
pub(super) const FRAME: usize = 8;
/// The name of the file in its directory.
pub(super) const FILE: &str = "journal";

pub fn run(input: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    for bytes in [input.to_vec(), mended(input)] {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(FILE), bytes).unwrap();
        used(directory.path(), &runtime);
    }
}

/// Returns the input with a correct checksum in each entry.
pub(super) fn mended(input: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    let mut at = HEADER;
    while let Some(length) = bytes.get(at..at + 4).and_then(|length| length.try_into().ok()) {
        let end = at + FRAME + u32::from_le_bytes(length) as usize;
        let Some(payload) = bytes.get(at + FRAME..end) else { break };
        let checksum = crc32(length.iter().chain(payload));
        bytes[at + 4..at + FRAME].copy_from_slice(&checksum.to_le_bytes());
        at = end;
    }
    bytes
}

/// Returns the CRC-32 of zip files.
fn crc32<'a>(bytes: impl Iterator<Item = &'a u8>) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// The pending deletions by plugin.
type Pending = BTreeMap<PluginId, Vec<PodKey>>;

fn used(directory: &Path, runtime: &Runtime) {
    let opened = open(directory, 0).unwrap();
    let (mut expected, mut store, journal) = after_a_list(opened);
    let figures = journal.figures();
    assert_eq!((figures.failing, figures.dropped_entries), (false, 0));
    for (number, name) in ["one", "other"].into_iter().enumerate() {
        let id = PluginId { namespace: None, name: name.into() };
        let entries = journal.plugin_entries(&id);
        let [settled, kept] = ["a", "b"].map(|pod| PodKey::new("fuzzed", pod, &format!("{name}-{pod}-uid")));
        for key in [&settled, &kept] {
            enter(&entries, key, &mut store, &journal, runtime);
        }
        entries.settled(&settled);
        store.write(&journal).unwrap();
        let pending = expected.entry(id).or_default();
        pending.retain(|key| key.uid != settled.uid);
        if !pending.iter().any(|key| key.uid == kept.uid) {
            pending.push(kept);
        }
        assert!(journal.figures().entries > number, "they count");
    }
    let length = fs::metadata(directory.join(FILE)).unwrap().len();
    assert_eq!(journal.figures().bytes, length, "bytes after the end would be read as entries");
    drop((store, journal));
    let (found, ..) = after_a_list(open(directory, 0).unwrap());
    for (id, mut pending) in expected {
        pending.sort();
        assert_eq!(found.get(&id), Some(&pending), "{id} after a restart");
    }
}

/// Opens the journal as a host that lists no Pod.
fn after_a_list(opened: Opened) -> (Pending, Store, Arc<Journal>) {
    let Opened { journal, mut store, recovery } = opened;
    let _ = recovery.record_deletions(&journal, None, |_| podium_engine::journal::Found::Absent);
    let plugins = journal.all_absent_but(&[], 0);
    let pending =
        plugins.into_iter().map(|(id, _)| (id.clone(), journal.plugin_entries(&id).pending_deletions())).collect();
    store.write(&journal).unwrap();
    (pending, store, journal)
}

/// Performs a first run, which waits until its entry is written.
fn enter(entries: &PluginEntries, key: &PodKey, store: &mut Store, journal: &Journal, runtime: &Runtime) {
    runtime.block_on(async {
        tokio::join!(entries.enter(key), async { store.write(journal).unwrap() });
    });
    assert!(!journal.figures().failing, "a successful write is reported as failing");
}
