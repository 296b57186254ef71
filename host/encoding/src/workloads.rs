//! The knowledge about each fragment of a workload's Pods: a skeleton whose text is the dictionary of unshared
//! fragments (`unshared.rs`), and the structures that only one Pod had lately.
//!
//! The first Pod of a workload makes a skeleton. A later Pod with another structure is stored unshared, and the next
//! Pod with that structure makes a skeleton of it. The unshared skeleton is superseded then, so that the first Pod is
//! encoded again when it is read next. Only the last few structures are remembered: a structure that returns later
//! than that has few Pods, and its text in each of them takes less than a skeleton.

use std::{collections::HashMap, sync::Arc};

use foldhash::quality::FixedState;
use podium_sync::{Weak, downgrade};

use super::{
    pool::MAX_BYTES_OF_ONE_USER,
    skeleton::{Charge, Skeleton, Usage},
    unshared::LONGEST,
};

/// The number of structures that are remembered of a fragment of a workload.
const REMEMBERED: usize = 32;

/// By workload and fragment, as a hash. Each entry belongs to a skeleton that is in use.
#[derive(Debug)]
pub(super) struct Workloads {
    entries: HashMap<u64, Workload, FixedState>,
    /// The number of entries at which unused ones are removed.
    remove_unused_at: usize,
}

#[derive(Debug, Default)]
struct Workload {
    /// The latest skeleton that Pods can share.
    shared: Weak<Skeleton>,
    /// Most workloads have no unshared Pod.
    rare: Option<Box<Rare>>,
}

#[derive(Debug, Default)]
struct Rare {
    /// The skeleton of unshared Pods.
    unshared: Weak<Skeleton>,
    /// The structures that one Pod had, the latest first.
    seen: Vec<Sighting>,
}

/// A structure and the Pod that had it, as parts of their hashes. If two are taken for one, a skeleton is made early.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sighting {
    pub(super) structure: u32,
    pub(super) pod: u32,
}

impl Workloads {
    pub(super) fn new(hasher: FixedState) -> Self {
        Self { entries: HashMap::with_hasher(hasher), remove_unused_at: 0 }
    }

    /// Records a skeleton that was made for a Pod of the workload.
    pub(super) fn record_skeleton(&mut self, workload: u64, skeleton: &Arc<Skeleton>) {
        self.remove_unused();
        self.entries.entry(workload).or_default().shared = downgrade(skeleton);
    }

    /// Returns the unshared skeleton for a Pod with a structure for which the workload has no skeleton. Returns `None`
    /// if a skeleton is to be made: it is the workload's first, or another Pod had the structure.
    pub(super) fn unshared(&mut self, workload: u64, sighting: Sighting, usage: &Usage) -> Option<Arc<Skeleton>> {
        let known = self.entries.get_mut(&workload)?;
        let rare = known.rare.get_or_insert_default();
        let unshared = rare.unshared.upgrade();
        let at = rare.seen.iter().position(|seen| seen.structure == sighting.structure);
        if let Some(seen) = at.map(|at| rare.seen.remove(at))
            && seen.pod != sighting.pod
        {
            unshared.inspect(|unshared| unshared.supersede());
            rare.unshared = Weak::default();
            return None;
        }
        let unshared = match unshared {
            Some(unshared) => unshared,
            None => {
                let unshared = known.shared.upgrade().filter(|shared| shared.text.len() <= LONGEST)?.unshared();
                let charge = Charge::new(usage, unshared.size(), MAX_BYTES_OF_ONE_USER)?;
                let unshared = Arc::new(unshared.charged(charge));
                rare.unshared = downgrade(&unshared);
                unshared
            }
        };
        rare.seen.truncate(REMEMBERED - 1);
        rare.seen.insert(0, sighting);
        Some(unshared)
    }

    fn remove_unused(&mut self) {
        const MIN_ENTRIES: usize = 256;
        if self.entries.len() < self.remove_unused_at.max(MIN_ENTRIES) {
            return;
        }
        let has_pods = |rare: &Rare| rare.unshared.strong_count() > 0;
        self.entries.retain(|_, known| known.shared.strong_count() > 0 || known.rare.as_deref().is_some_and(has_pods));
        self.remove_unused_at = 2 * self.entries.len();
    }
}
