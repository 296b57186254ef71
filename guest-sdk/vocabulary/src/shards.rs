//! Shards of tenants: the parts into which replicas of a host may divide the plugins among them.

use std::fmt;

use crate::Tenant;

/// Returns FNV-1a-64 of a text.
#[must_use]
pub fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A set of shards. A tenant belongs to one shard, and all `ClusterReconcilePlugin`s belong to that of one tenant.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shards(u16);

impl Shards {
    /// The number of shards. A constant, because replicas that disagree about it would both act.
    pub const COUNT: usize = 16;
    /// No shard.
    pub const NONE: Self = Self(0);
    /// All shards, and with them all tenants.
    pub const ALL: Self = Self(u16::MAX);

    /// Returns the shard of this number.
    ///
    /// # Panics
    /// Panics if there is no shard of this number.
    #[must_use]
    pub fn one(number: usize) -> Self {
        assert!(number < Self::COUNT, "there is no shard {number}");
        Self(1 << number)
    }

    /// Returns the shard of a tenant.
    #[must_use]
    pub fn of_tenant(tenant: &Tenant) -> Self {
        match tenant {
            Tenant::Namespace(namespace) => Self::of_namespace(namespace),
            // No namespace has this name.
            Tenant::Cluster => Self::of_namespace(""),
        }
    }

    /// Returns the shard of the plugins of a namespace.
    #[must_use]
    pub fn of_namespace(namespace: &str) -> Self {
        Self(1 << (fnv(namespace) % Self::COUNT as u64))
    }

    /// Returns true if the tenant's shard is one of these.
    #[must_use]
    pub fn has(self, tenant: &Tenant) -> bool {
        self.intersects(Self::of_tenant(tenant))
    }

    /// Returns true if a shard is in both.
    #[must_use]
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the shards that are in both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns these shards with others.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns these shards without others.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns how many shards these are.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns true if these are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for Shards {
    /// Formats the numbers of the shards.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries((0..Self::COUNT).filter(|number| self.intersects(Self::one(*number)))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_belongs_to_the_same_shard_in_every_version() {
        let shard = |namespace: &str| Shards::of_tenant(&Tenant::Namespace(namespace.into()));
        // Values of another implementation of FNV-1a-64.
        assert_eq!(fnv(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv("foobar"), 0x8594_4171_f739_67e8);
        assert_eq!((shard("a"), shard("foobar")), (Shards::one(12), Shards::one(8)));
        assert_eq!(Shards::of_tenant(&Tenant::Cluster), Shards::one(5));
    }

    #[test]
    fn names_that_differ_in_their_last_letters_are_in_all_shards() {
        for namespaces in [|number| format!("team-{number:03}"), |number| format!("{number}-prod")] {
            let mut counts = [0; Shards::COUNT];
            for number in 0..1_600 {
                let shard = Shards::of_namespace(&namespaces(number));
                (0..Shards::COUNT).filter(|of| Shards::one(*of) == shard).for_each(|of| counts[of] += 1);
            }
            assert!(counts.iter().all(|count| (80..120).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn shards_are_sets() {
        let some = Shards::one(3).with(Shards::one(15));
        assert_eq!((some.len(), Shards::ALL.without(some).len(), Shards::NONE.is_empty()), (2, 14, true));
        assert_eq!((some.and(Shards::one(3)), some.intersects(Shards::one(4))), (Shards::one(3), false));
        assert_eq!(format!("{some:?}"), "{3, 15}");
        assert!(Shards::ALL.has(&Tenant::Cluster) && !Shards::NONE.has(&Tenant::Cluster));
    }
}
