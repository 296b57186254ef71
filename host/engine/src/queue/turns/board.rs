//! The tenants that may start a job now, except for memory that others hold, in the order of their turns.
//!
//! They are listed by the memory of their smallest job, so that the first one that fits is found without a look at
//! those that do not. A host has a few sizes, because claims are rounded.

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
};

use super::{super::virtual_time::Key, tenant::Tenant};

#[derive(Debug, Default)]
pub(super) struct Board {
    classes: BTreeMap<Place, BTreeMap<Key, u32>>,
    /// Tenants whose waiting job fits the tenant's half, in the order in which they began to wait; true for one that is
    /// not light.
    waits: BTreeMap<u64, (bool, u32)>,
}

/// True for a tenant that is not light, and the bytes of its smallest job.
type Place = (bool, u64);

/// Where a tenant is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) place: Place,
    pub(super) key: Key,
    /// The number of its wait for memory that others hold.
    pub(super) wait: Option<u64>,
}

impl Board {
    pub(super) fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// Lists a tenant here, and nowhere else.
    pub(super) fn set<L>(&mut self, number: u32, tenant: &mut Tenant<L>, listing: Option<Listing>) {
        if tenant.listing == listing {
            return;
        }
        if let Some(Listing { place, key, wait }) = std::mem::replace(&mut tenant.listing, listing) {
            if let Some(class) = self.classes.get_mut(&place) {
                class.remove(&key);
                if class.is_empty() {
                    self.classes.remove(&place);
                }
            }
            wait.iter().for_each(|wait| _ = self.waits.remove(wait));
        }
        if let Some(Listing { place, key, wait }) = listing {
            self.classes.entry(place).or_default().insert(key, number);
            self.waits.extend(wait.map(|wait| (wait, (place.0, number))));
        }
    }

    /// Returns the tenant that has waited longest of those whose waiting job fits their half.
    pub(super) fn longest(&self, only_light: bool) -> Option<u32> {
        self.waits.values().find(|(heavy, _)| !(only_light && *heavy)).map(|(_, number)| *number)
    }

    /// Returns the first tenant after this place in the order whose smallest job takes at most `most` bytes.
    pub(super) fn first(&self, only_light: bool, most: u64, after: Key) -> Option<(Key, u32)> {
        let classes = self.classes.iter().filter(|((heavy, bytes), _)| !(only_light && *heavy) && *bytes <= most);
        let firsts = classes.filter_map(|(_, class)| class.range((Excluded(after), Unbounded)).next());
        firsts.min().map(|(key, number)| (*key, *number))
    }
}
