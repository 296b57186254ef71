//! Shards: the parts of all tenants that change hands.

/// The number of shards. A constant of the Lease's format, because replicas that disagree about it would both act.
pub const SHARDS: u8 = 16;

/// The shard of a tenant, below [`SHARDS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(u8);

impl Shard {
    /// Returns the shard of a tenant: FNV-1a-64 of its name, modulo [`SHARDS`].
    pub fn of(tenant: &str) -> Self {
        Self((fnv(tenant) % u64::from(SHARDS)) as u8)
    }

    /// Returns the number of the shard.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A set of shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shards(u16);

impl Shards {
    /// Every shard: what the only active replica holds.
    pub const ALL: Self = Self(u16::MAX);

    /// True if the set has the shard.
    pub fn contains(self, shard: Shard) -> bool {
        self.0 >> shard.0 & 1 == 1
    }
}

/// Returns FNV-1a-64 of a text.
pub(crate) fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
