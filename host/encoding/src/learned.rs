//! Learns from the Pods that were read which positions of which structures are generalised (see `structure.rs`).
//!
//! A position is generalised when two Pods of one workload differ there, and each of the two values was seen at only
//! one Pod; or when the last few keys of the workload all differ there. A value that many Pods share, such as the new
//! image of a rollout, stays in their key, because the second Pod with it finds the key of the first. Where the
//! strings differ only in some words, these words are generalised, and more of them when later Pods differ in others;
//! where they differ in anything else, the whole string is.
//!
//! Knowledge about one structure applies to the other structures of the workload's Pods at the same paths, and
//! for annotations and statuses to the whole namespace. A skeleton that only one Pod has and that a generalised one
//! covers is superseded: its Pod is encoded again when it is next read, or at the end of the list that contains it.
//!
//! Each namespace learns separately, so that a tenant's Pods do not change how another's are stored. Existing keys
//! stay in use: a generalised key serves Pods that match no other.

use std::{collections::HashMap, sync::Arc};

use foldhash::quality::FixedState;
use podium_sync::{Weak, downgrade};
use smallvec::SmallVec;

use super::{
    pool::MAX_BYTES_OF_ONE_USER,
    skeleton::{Charge, Skeleton, Usage},
    sorted_map::SortedMap,
    structure::{Own, Positions, Structure, has_values},
    words,
};

/// The number of a structure's keys with which a new one is compared.
const RECENT: usize = 4;
/// The most generalised positions of a structure: fewer than a skeleton can have.
const MAX_POSITIONS: usize = 2_048;
/// The most paths that are remembered of a workload or a namespace.
const MAX_PATHS: usize = 512;
/// The number of sets of words of one string that are tried before the whole string is stored.
const MAX_VERSIONS: u8 = 8;

/// Each entry belongs to a skeleton that is in use, and its positions and paths count towards the limit of its
/// namespace.
#[derive(Debug)]
pub(super) struct Learned {
    structures: HashMap<u64, Entry, FixedState>,
    /// The learned positions, by workload and by namespace.
    paths: HashMap<u64, Paths, FixedState>,
    /// The number of structures and paths at which unused ones are removed.
    remove_unused_at: usize,
}

/// The generalised paths of one fragment of a workload's or namespace's Pods. Statuses have many structures, and an
/// address that differs between Pods in one of them also differs in the next.
#[derive(Debug, Default)]
struct Paths {
    own: SortedMap<u64, Own>,
    last: Weak<Skeleton>,
    charge: Option<Charge>,
}

/// The workload and the namespace of a fragment, as hashes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    pub(super) workload: u64,
    pub(super) namespace: u64,
}

#[derive(Debug, Default)]
struct Entry {
    /// The positions and what they count; `None` if no position is generalised.
    generalised: Option<Box<(Positions, Charge)>>,
    /// The latest skeletons, each with the workload of the Pod for which it was made.
    recent: SmallVec<[(u64, Weak<Skeleton>); 1]>,
}

impl Learned {
    pub(super) fn new(hasher: FixedState) -> Self {
        let paths = HashMap::with_hasher(hasher.clone());
        Self { structures: HashMap::with_hasher(hasher), paths, remove_unused_at: 0 }
    }

    /// Returns the generalised positions, and the latest skeletons for Pods of this workload.
    pub(super) fn recall(
        &self,
        id: u64,
        owner: Owner,
        structure: &Structure,
    ) -> (Positions, SmallVec<[Arc<Skeleton>; RECENT]>) {
        let mut positions = Positions::default();
        let mut skeletons = SmallVec::new();
        if let Some(entry) = self.structures.get(&id) {
            if let Some(generalised) = &entry.generalised {
                positions.clone_from(&generalised.0);
            }
            let recent = entry.recent.iter().filter(|(of, _)| *of == owner.workload);
            skeletons.extend(recent.filter_map(|(_, skeleton)| skeleton.upgrade()));
        }
        for (of, is_of_namespace) in [(owner.workload, false), (owner.namespace, true)] {
            let Some(known) = self.paths.get(&of) else { continue };
            for (position, string) in structure.strings.iter().enumerate() {
                let is_here = string.is_of_namespace || !is_of_namespace;
                if let Some(own) = known.own.get(string.path).filter(|_| is_here && positions.get(position).is_none()) {
                    positions.set(position, own);
                }
            }
        }
        (positions, skeletons)
    }

    /// Records the generalised positions of a structure. Returns false if the namespace's limit is reached.
    pub(super) fn generalise(&mut self, structure: u64, positions: &Positions, usage: &Usage) -> bool {
        self.remove_unused();
        let entry = self.structures.entry(structure).or_default();
        // The positions that are replaced do not count twice.
        entry.generalised = None;
        let positions = positions.clone();
        let charge = Charge::new(usage, positions.size(), MAX_BYTES_OF_ONE_USER);
        entry.generalised = charge.map(|charge| Box::new((positions, charge)));
        entry.generalised.is_some()
    }

    /// Returns the bytes of all positions and paths.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        let positions = self.structures.values().filter_map(|entry| entry.generalised.as_ref());
        let charged = self.paths.values().filter_map(|paths| paths.charge.as_ref());
        positions.map(|generalised| &generalised.1).chain(charged).map(Charge::bytes).sum()
    }

    /// Records a skeleton that was made with these positions generalised.
    pub(super) fn record_skeleton(
        &mut self,
        id: u64,
        owner: Owner,
        skeleton: &Arc<Skeleton>,
        structure: &Structure,
        positions: &Positions,
        usage: &Usage,
    ) {
        self.remove_unused();
        let of = [(owner.workload, false), (owner.namespace, true)];
        for (of, is_of_namespace) in of.into_iter().filter(|_| !positions.is_empty()) {
            let known = self.paths.entry(of).or_default();
            known.last = downgrade(skeleton);
            for (position, own) in positions.iter() {
                let Some(string) = structure.strings.get(position) else { continue };
                if known.own.len() < MAX_PATHS && (string.is_of_namespace || !is_of_namespace) {
                    known.own.insert(string.path, own);
                }
            }
            known.charge = None;
            known.charge = Charge::new(usage, known.own.size(), MAX_BYTES_OF_ONE_USER);
            if known.charge.is_none() {
                self.paths.remove(&of);
            }
        }
        let recent = &mut self.structures.entry(id).or_default().recent;
        if recent.len() == RECENT {
            recent.remove(0);
        }
        recent.push((owner.workload, downgrade(skeleton)));
    }

    fn remove_unused(&mut self) {
        const MIN_ENTRIES: usize = 256;
        if self.structures.len() + self.paths.len() < self.remove_unused_at.max(MIN_ENTRIES) {
            return;
        }
        self.paths.retain(|_, paths| paths.last.strong_count() > 0);
        self.structures.retain(|_, entry| entry.recent.iter().any(|(_, skeleton)| skeleton.strong_count() > 0));
        self.remove_unused_at = 2 * (self.structures.len() + self.paths.len());
    }
}

/// Adds the positions at which a key shows that a value differs between Pods. Returns true if there are any. `hash`
/// computes the structure of another skeleton's key.
pub(super) fn learn(
    positions: &mut Positions,
    key: &[u8],
    structure: &Structure,
    recent: &[Arc<Skeleton>],
    structure_of: impl Fn(&[u8]) -> Option<Structure>,
) -> bool {
    let others: Vec<_> = recent
        .iter()
        .filter_map(|skeleton| {
            let other = skeleton.text.to_vec();
            let structure_of_other = structure_of(&other)?;
            (structure_of_other.strings.len() == structure.strings.len()).then_some((
                skeleton.has_one_user(),
                other,
                structure_of_other,
            ))
        })
        .collect();
    let mut is_new = false;
    for (position, string) in structure.strings.iter().enumerate() {
        let before = positions.get(position);
        if before == Some(Own::Whole) || before.is_none() && positions.len() >= MAX_POSITIONS {
            continue;
        }
        let here = &key[string.range.clone()];
        let there: SmallVec<[(bool, &[u8]); RECENT]> = others
            .iter()
            .map(|(is_own, key, structure)| (*is_own, &key[structure.strings[position].range.clone()]))
            .collect();
        let is_own = there.iter().any(|(is_own, there)| has_values(there) || (*is_own && *there != here));
        let differ_all = || {
            let all = |at: usize| there.iter().skip(at).map(|(_, text)| *text);
            there.len() == RECENT
                && (0..RECENT)
                    .all(|at| all(at).next() != Some(here) && !all(at + 1).any(|text| Some(text) == all(at).next()))
        };
        if before.is_none() && !is_own && !differ_all() {
            continue;
        }
        let now = widened(before, here, there.iter().map(|(_, there)| *there));
        if before != Some(now) {
            positions.set(position, now);
            is_new = true;
        }
    }
    is_new
}

/// Returns the part of a string to store, so that this string and the others are values of one skeleton.
fn widened<'a>(before: Option<Own>, here: &[u8], others: impl Iterator<Item = &'a [u8]>) -> Own {
    let (known, versions) = match before {
        Some(Own::Words { words, versions }) => (words, versions),
        _ => (0, 0),
    };
    let mut words = known;
    for there in others.filter(|there| *there != here) {
        match words::differing(here, there) {
            Some(own) => words |= own,
            None => return Own::Whole,
        }
    }
    match words == known {
        true => Own::Words { words, versions },
        false if versions < MAX_VERSIONS => Own::Words { words, versions: versions + 1 },
        false => Own::Whole,
    }
}
