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
    /// One more job takes the last place for runs, or for jobs, that the tenant may have.
    pub(super) has_last_place: bool,
    pub(super) lately: RecentRuns,
    /// Where it stands on the board.
    pub(super) listing: Listing,
    pub(super) tokens: TenantTokens<L>,
}

/// The lanes of a tenant whose jobs take the same memory. For memory they are alike, so they wait for it together.
#[derive(Debug)]
pub(super) struct Group<L> {
    /// Lanes that have no job, and lanes that have one.
    pub(super) ready: [BTreeMap<Key, L>; 2],
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
        Self { ready: [BTreeMap::new(), BTreeMap::new()], wait: Wait::No }
    }
}

impl<L: Copy> Group<L> {
    pub(super) fn is_empty(&self) -> bool {
        self.ready.iter().all(BTreeMap::is_empty)
    }

    /// Adds a lane that has this number of jobs.
    pub(super) fn insert(&mut self, key: Key, lane: L, jobs: usize) {
        self.ready[usize::from(jobs > 0)].insert(key, lane);
    }

    pub(super) fn remove(&mut self, key: &Key) {
        for ready in &mut self.ready {
            ready.remove(key);
        }
    }

    pub(super) fn first(&self) -> Option<(Key, L)> {
        self.ready.iter().filter_map(first_of).min_by_key(|(key, _)| *key)
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
            has_last_place: false,
            lately: RecentRuns::default(),
            listing: Listing::default(),
            tokens: TenantTokens::new(now),
        }
    }

    /// Returns the group's first lane.
    pub(super) fn first_of(&self, bytes: u64) -> Option<(Key, L)> {
        self.groups.get(&bytes)?.first()
    }

    /// Returns the lane with the least virtual time.
    pub(super) fn least(&self) -> Option<(Key, L)> {
        self.groups.values().filter_map(Group::first).min_by_key(|(key, _)| *key)
    }

    /// Returns the first lane of those whose jobs take at most `most` bytes. The last place is for a lane without a
    /// job, if there is one.
    pub(super) fn first_within(&self, most: u64) -> Option<(Key, L)> {
        let groups = || self.groups.range(..=most).map(|(_, group)| group);
        let without_job = || groups().filter_map(|group| first_of(&group.ready[0])).min_by_key(|(key, _)| *key);
        let first = || groups().filter_map(Group::first).min_by_key(|(key, _)| *key);
        if self.has_last_place { without_job().or_else(first) } else { first() }
    }

    pub(super) fn listed(&self) -> impl Iterator<Item = L> {
        self.groups.values().flat_map(|group| group.ready.iter().flat_map(BTreeMap::values)).copied()
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

fn first_of<L: Copy>(ready: &BTreeMap<Key, L>) -> Option<(Key, L)> {
    ready.first_key_value().map(|(key, lane)| (*key, *lane))
}
