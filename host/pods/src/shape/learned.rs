//! Which positions of which structures are generalised (see `structure.rs`), learned from the Pods that were read.
//!
//! A position is generalised when two Pods of one workload differ there, and each of the two values was seen at only
//! one Pod; or when the last few keys of the workload all differ there. A value that many Pods share, such as the image
//! that a rollout brings, stays in their key: the second Pod that has it finds the key of the first.
//!
//! Each namespace learns separately, so that a tenant's Pods do not change how another's are stored. Keys that exist
//! stay in use: a generalised key serves Pods that match no other.

use std::{collections::HashMap, sync::Arc};

use foldhash::quality::FixedState;
use smallvec::SmallVec;

use super::{
    skeleton::Skeleton,
    structure::{Positions, Structure, is_generalised},
};
use crate::sync::{Weak, downgrade};

/// Keys of a structure that a new one is compared with.
const RECENT: usize = 4;

#[derive(Debug)]
pub(super) struct Learned {
    structures: HashMap<u64, Entry, FixedState>,
    /// Structures that no Pod has are removed when there are so many.
    sweep_at: usize,
}

#[derive(Debug, Default)]
struct Entry {
    positions: Positions,
    /// The last parts that were made, and the workload of the Pod that each was made for.
    recent: SmallVec<[(u64, Weak<Skeleton>); RECENT]>,
}

impl Learned {
    pub(super) fn new(hasher: FixedState) -> Self {
        Self { structures: HashMap::with_hasher(hasher), sweep_at: 0 }
    }

    /// The positions that are generalised, and the last parts that were made for Pods of this workload.
    pub(super) fn of(&self, structure: u64, workload: u64) -> (Positions, SmallVec<[Arc<Skeleton>; RECENT]>) {
        let Some(entry) = self.structures.get(&structure) else { return Default::default() };
        let skeletons =
            entry.recent.iter().filter(|(of, _)| *of == workload).filter_map(|(_, skeleton)| skeleton.upgrade());
        (entry.positions.clone(), skeletons.collect())
    }

    pub(super) fn generalise(&mut self, structure: u64, positions: &Positions) {
        self.structures.entry(structure).or_default().positions.clone_from(positions);
    }

    pub(super) fn made(&mut self, structure: u64, workload: u64, skeleton: &Arc<Skeleton>) {
        self.sweep();
        let recent = &mut self.structures.entry(structure).or_default().recent;
        if recent.len() == RECENT {
            recent.remove(0);
        }
        recent.push((workload, downgrade(skeleton)));
    }

    fn sweep(&mut self) {
        const FEW: usize = 256;
        if self.structures.len() < self.sweep_at.max(FEW) {
            return;
        }
        self.structures.retain(|_, entry| entry.recent.iter().any(|(_, skeleton)| skeleton.strong_count() > 0));
        self.sweep_at = 2 * self.structures.len();
    }
}

/// Adds the positions at which a key shows that a value is a Pod's own. Returns true if there is one. `hash` makes the
/// structure of another part's key.
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
        if positions.contains(position) {
            continue;
        }
        let here = &key[string.range.clone()];
        let there: SmallVec<[(bool, &[u8]); RECENT]> = others
            .iter()
            .map(|(is_own, key, structure)| (*is_own, &key[structure.strings[position].range.clone()]))
            .collect();
        let is_own = there.iter().any(|(is_own, there)| is_generalised(there) || (*is_own && *there != here));
        let differ_all = || {
            let all = |at: usize| there.iter().skip(at).map(|(_, text)| *text);
            there.len() == RECENT
                && (0..RECENT)
                    .all(|at| all(at).next() != Some(here) && !all(at + 1).any(|text| Some(text) == all(at).next()))
        };
        if is_own || differ_all() {
            is_new |= positions.insert(position);
        }
    }
    is_new
}
