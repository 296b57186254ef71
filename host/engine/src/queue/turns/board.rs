//! The tenants that may start a job now, except for memory, in the order of their turns.
//!
//! They are listed by the memory of their jobs, so that the first one that fits is found without a look at those that
//! do not. A host has a few sizes: each is a value of `memoryMiB`.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::{super::virtual_time::Key, tenant::Tenant};

#[derive(Debug, Default)]
pub(super) struct Board {
    classes: BTreeMap<Place, Class>,
    /// Groups that have waited too long for memory, the first to wait first.
    urgent: BTreeMap<Urgent, (u32, u64)>,
}

/// True for a tenant that is not light, and the bytes of a job.
pub(super) type Place = (bool, u64);
/// True for a tenant that is not light, and the number among those that wait.
pub(super) type Urgent = (bool, u64);

/// Where a tenant is listed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    /// For its jobs of each size.
    pub(super) entries: SmallVec<[Entry; 1]>,
    /// For its jobs that have waited too long, with their bytes.
    pub(super) urgent: Option<(Urgent, u64)>,
}

/// At a place, and there under its key. `passed`: a job has started past it for want of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) place: Place,
    pub(super) key: Key,
    pub(super) passed: bool,
}

#[derive(Debug, Default)]
struct Class {
    /// No job has started past these for want of memory.
    fresh: BTreeMap<Key, u32>,
    passed: BTreeMap<Key, u32>,
}

impl Class {
    fn tenants(&mut self, passed: bool) -> &mut BTreeMap<Key, u32> {
        if passed { &mut self.passed } else { &mut self.fresh }
    }

    fn first(&self) -> Option<(Key, u32)> {
        let firsts = [&self.fresh, &self.passed].into_iter().filter_map(BTreeMap::first_key_value);
        firsts.map(|(key, tenant)| (*key, *tenant)).min()
    }
}

impl Board {
    pub(super) fn is_empty(&self) -> bool {
        self.classes.is_empty() && self.urgent.is_empty()
    }

    /// Lists a tenant, and nowhere else than this.
    pub(super) fn set<L>(&mut self, number: u32, tenant: &mut Tenant<L>, listing: Listing) {
        if tenant.listing == listing {
            return;
        }
        let before = std::mem::replace(&mut tenant.listing, listing);
        for Entry { place, key, passed } in before.entries {
            if let Some(class) = self.classes.get_mut(&place) {
                class.tenants(passed).remove(&key);
                if class.fresh.is_empty() && class.passed.is_empty() {
                    self.classes.remove(&place);
                }
            }
        }
        if let Some((at, _)) = before.urgent {
            self.urgent.remove(&at);
        }
        for Entry { place, key, passed } in &tenant.listing.entries {
            self.classes.entry(*place).or_default().tenants(*passed).insert(*key, number);
        }
        if let Some((at, bytes)) = tenant.listing.urgent {
            self.urgent.insert(at, (number, bytes));
        }
    }

    /// Returns the tenant and the size of the jobs that have waited longest of those that have waited too long.
    pub(super) fn first_urgent(&self, only_light: bool) -> Option<(u32, u64)> {
        let of = |heavy: bool| self.urgent.range((heavy, 0)..=(heavy, u64::MAX)).next();
        let heavy = if only_light { None } else { of(true) };
        let first = [of(false), heavy].into_iter().flatten().min_by_key(|((_, number), _)| *number);
        first.map(|(_, found)| *found)
    }

    /// Returns the first tenant of those whose jobs take at most `most` bytes.
    pub(super) fn first(&self, only_light: bool, most: u64) -> Option<(Key, u32)> {
        let classes = self.classes.iter().filter(|((heavy, bytes), _)| !(only_light && *heavy) && *bytes <= most);
        classes.filter_map(|(_, class)| class.first()).min()
    }

    /// Returns the sizes and numbers of tenants up to `until` in the order, `None` for all, whose jobs take more than
    /// `free` bytes and past which no job has started yet.
    pub(super) fn passed(&self, only_light: bool, free: u64, until: Option<Key>) -> Vec<(u64, u32)> {
        let classes = self.classes.iter().filter(|((heavy, bytes), _)| !(only_light && *heavy) && *bytes > free);
        let before = |key: &Key| until.is_none_or(|until| *key <= until);
        let of = |((_, bytes), class): (&Place, &Class)| {
            let tenants = class.fresh.iter().take_while(|(key, _)| before(key));
            tenants.map(|(_, number)| (*bytes, *number)).collect::<Vec<_>>()
        };
        classes.flat_map(of).collect()
    }
}
