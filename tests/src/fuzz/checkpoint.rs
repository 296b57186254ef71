//! Arbitrary bytes as a host's checkpoint: it is refused, or its Pods can be read, and are the same after saving them
//! again.
//!
//! Each input is used twice: unchanged, and with corrected checksums of its entries, which a fuzzer would hardly find.

#![expect(clippy::unwrap_used, reason = "a panic is a finding")]

use std::fs;

use podium_encoding::Pool;
use podium_host::checkpoint::{Coverage, Saver, load};
use podium_pods::pod::CachedPod;
use podium_vocabulary::Prune;
use podium_wire::{Section, SectionSet};

use super::journal::mended;

/// The name of the file in its directory.
pub(super) const FILE: &str = "checkpoint";

pub fn run(input: &[u8]) {
    for bytes in [input.to_vec(), mended(input)] {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(FILE), bytes).unwrap();
        let scope = Coverage::new(None, &Prune::NOTHING);
        let pool = Pool::new(1);
        let Some(loaded) = load(directory.path(), &scope, &pool) else { continue };
        let pods: Vec<_> = loaded.pods.iter().map(|record| record.pod()).collect();
        assert!(pods.is_sorted_by(|one, other| one.key < other.key));
        for pod in &pods {
            read(pod);
        }
        Saver::new(directory.path().to_owned(), scope.clone())
            .save(pods.iter().cloned(), loaded.revision, 1, None)
            .unwrap();
        let again = load(directory.path(), &scope, &pool).unwrap();
        assert_eq!(again.revision, loaded.revision);
        let again: Vec<_> = again.pods.iter().map(|record| record.pod()).collect();
        assert_eq!(again, pods);
    }
}

/// Reads a Pod as plugins, wake and indexes do.
fn read(pod: &CachedPod) {
    let _ = (pod.header(), pod.node(), pod.phase(), pod.owner_uids());
    assert!(str::from_utf8(&pod.section_bytes(Section::Full)).is_ok());
    // A Pod that no API server sent need not fit into a record.
    let _ = pod.record(SectionSet::ALL);
    pod.labels().unwrap();
    pod.annotations().unwrap();
    pod.lifecycle().unwrap();
    pod.spec().unwrap();
    pod.status().unwrap();
}
