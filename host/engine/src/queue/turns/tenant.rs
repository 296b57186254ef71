//! One tenant: its lanes that have a due slot, by the memory that their jobs take, and what its jobs have taken.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::{
    super::{
        admission::RecentRuns,
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
    /// By the bytes of one job. None is empty.
    pub(super) groups: BTreeMap<u64, Group<L>>,
    /// Bytes that its runs have taken.
    pub(super) memory: u64,
    /// Jobs whose run is under way.
    pub(super) runs: usize,
    /// Jobs that are not done: runs and what follows them.
    pub(super) jobs: usize,
    pub(super) lately: RecentRuns,
    /// Where it stands on the board.
    pub(super) listing: Listing,
    pub(super) tokens: TenantTokens<L>,
}

/// The lanes of a tenant whose jobs take the same memory. For memory they are alike, so they wait for it together.
#[derive(Debug)]
pub(super) struct Group<L> {
    pub(super) ready: BTreeMap<Key, L>,
    pub(super) wait: Wait,
}

/// Whether a group waits for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    No,
    /// It waits, with its number among the groups that wait.
    Waits(u64),
    /// It has waited too long.
    Overdue(u64),
}

impl<L> Default for Group<L> {
    fn default() -> Self {
        Self { ready: BTreeMap::new(), wait: Wait::No }
    }
}

impl<L: Copy> Group<L> {
    fn first(&self) -> Option<(Key, L)> {
        self.ready.first_key_value().map(|(key, lane)| (*key, *lane))
    }
}

impl<L: Copy> Tenant<L> {
    pub(super) fn new(account: Account, now: Instant) -> Self {
        Self {
            account,
            present: Present::default(),
            groups: BTreeMap::new(),
            memory: 0,
            runs: 0,
            jobs: 0,
            lately: RecentRuns::default(),
            listing: Listing::default(),
            tokens: TenantTokens::new(now),
        }
    }

    /// Returns the group's first lane.
    pub(super) fn first_of(&self, bytes: u64) -> Option<(Key, L)> {
        self.groups.get(&bytes)?.first()
    }

    /// Returns the first lane of those whose jobs take at most `most` bytes.
    pub(super) fn first_within(&self, most: u64) -> Option<(Key, L)> {
        self.groups.range(..=most).filter_map(|(_, group)| group.first()).min_by_key(|(key, _)| *key)
    }

    /// Returns the group that has waited too long, and first, with its number.
    pub(super) fn overdue(&self) -> Option<(u64, u64)> {
        let overdue = |(bytes, group): (&u64, &Group<L>)| match group.wait {
            Wait::Overdue(number) => Some((number, *bytes)),
            Wait::No | Wait::Waits(_) => None,
        };
        self.groups.iter().filter_map(overdue).min()
    }
}
