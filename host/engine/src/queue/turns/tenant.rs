//! One tenant: its lanes that may start a job, by the memory that their jobs take, and what its jobs have taken.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::{
    super::{
        admission::{PATIENCE, RecentRuns},
        virtual_time::{Account, Key, Present},
    },
    board::Listing,
    budget::TenantTokens,
};

#[derive(Debug)]
pub(super) struct Tenant<L> {
    pub(super) account: Account,
    /// The least virtual time of its lanes that wait.
    pub(super) present: Present,
    /// By the bytes of one job: the lanes that have no job, and those that have one. No group is empty.
    pub(super) groups: BTreeMap<u64, [BTreeMap<Key, L>; 2]>,
    /// Its job that waits for memory.
    pub(super) wait: Option<Wait<L>>,
    /// Bytes that its runs have taken.
    pub(super) memory: u64,
    /// Jobs whose run is under way.
    pub(super) runs: usize,
    /// Jobs that have a place: runs, and what follows them until their requests are sent.
    pub(super) jobs: usize,
    /// One more job takes the last place for runs, or for jobs, that the tenant may have.
    pub(super) has_last_place: bool,
    pub(super) lately: RecentRuns,
    /// Where it stands on the board.
    pub(super) listing: Option<Listing>,
    pub(super) tokens: TenantTokens<L>,
}

/// A lane whose job was next and did not fit. It waits until it starts a job, or may not start one for other reasons.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait<L> {
    /// Higher than those of earlier waits.
    pub(super) number: u64,
    pub(super) lane: L,
    pub(super) bytes: u64,
    pub(super) since: Instant,
    /// The number of jobs that had started by then.
    pub(super) from: u64,
}

impl<L> Wait<L> {
    pub(super) fn is_overdue(&self, started: u64, now: Instant) -> bool {
        let (passed, waited) = PATIENCE;
        started - self.from >= u64::from(passed) || now.saturating_duration_since(self.since) >= waited
    }
}

impl<L: Copy + PartialEq> Tenant<L> {
    pub(super) fn new(account: Account, now: Instant) -> Self {
        Self {
            account,
            present: Present::default(),
            groups: BTreeMap::new(),
            wait: None,
            memory: 0,
            runs: 0,
            jobs: 0,
            has_last_place: false,
            lately: RecentRuns::default(),
            listing: None,
            tokens: TenantTokens::new(now),
        }
    }

    /// Adds a lane of which this number of jobs have a place.
    pub(super) fn insert(&mut self, bytes: u64, key: Key, lane: L, jobs: usize) {
        self.groups.entry(bytes).or_default()[usize::from(jobs > 0)].insert(key, lane);
    }

    pub(super) fn remove(&mut self, bytes: u64, key: &Key) {
        let Some(group) = self.groups.get_mut(&bytes) else { return };
        group.iter_mut().for_each(|lanes| _ = lanes.remove(key));
        if group.iter().all(BTreeMap::is_empty) {
            self.groups.remove(&bytes);
        }
    }

    /// Returns the lane with the least virtual time.
    pub(super) fn least(&self) -> Option<(Key, u64, L)> {
        self.first(u64::MAX, 2)
    }

    /// Returns the first lane of those whose jobs take at most `most` bytes, and these bytes. The last place is for a
    /// lane without a job, if there is one.
    pub(super) fn first_within(&self, most: u64) -> Option<(Key, u64, L)> {
        let without_job = if self.has_last_place { self.first(most, 1) } else { None };
        without_job.or_else(|| self.first(most, 2))
    }

    fn first(&self, most: u64, kinds: usize) -> Option<(Key, u64, L)> {
        let firsts = self.groups.range(..=most).flat_map(|(bytes, group)| {
            let firsts = group[..kinds].iter().filter_map(BTreeMap::first_key_value);
            firsts.map(|(key, lane)| (*key, *bytes, *lane))
        });
        firsts.min_by_key(|(key, ..)| *key)
    }

    /// Returns the lanes whose jobs take at least this number of bytes.
    pub(super) fn listed(&self, least: u64) -> impl Iterator<Item = L> {
        self.groups.range(least..).flat_map(|(_, group)| group.iter().flat_map(BTreeMap::values)).copied()
    }
}
