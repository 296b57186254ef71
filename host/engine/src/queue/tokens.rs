//! The tokens that lanes need: three kinds, of which the queue only knows that writes are the first.

use crate::throttle::Rate;

/// The number of kinds of tokens.
pub const KINDS: usize = 3;
/// The kind of tokens for writes.
pub const WRITES: usize = 0;

/// The rates of a lane, and whether it needs tokens to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// The rates of the lane's own buckets.
    pub lane: [Rate; KINDS],
    /// The rates of the buckets that all lanes of the tenant share.
    pub tenant: [Rate; KINDS],
    /// Its jobs may write: none starts without a token for a write.
    pub writes: bool,
}

impl Default for Demand {
    /// No job needs tokens.
    fn default() -> Self {
        Self { lane: [Rate::UNLIMITED; KINDS], tenant: [Rate::UNLIMITED; KINDS], writes: false }
    }
}
