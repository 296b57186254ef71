//! The tokens that lanes need: three kinds, of which the queue does not know what they stand for.

use crate::throttle::Rate;

/// The number of kinds of tokens.
pub const KINDS: usize = 3;

/// A number of tokens of each kind.
pub type Amounts = [u32; KINDS];

/// The tokens that a lane's jobs need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// The rates of the lane's own buckets.
    pub lane: [Rate; KINDS],
    /// The rates of the buckets that all lanes of the tenant share.
    pub tenant: [Rate; KINDS],
    /// The tokens that a job needs to start, even when the lane's jobs lately used fewer.
    pub least: Amounts,
}

impl Default for Demand {
    /// No job needs tokens.
    fn default() -> Self {
        Self { lane: [Rate::UNLIMITED; KINDS], tenant: [Rate::UNLIMITED; KINDS], least: [0; KINDS] }
    }
}

/// The tokens that a lane's latest jobs used, each job with a weight of a quarter, in thousandths.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RecentTokens([u64; KINDS]);

impl RecentTokens {
    pub(super) fn used(&mut self, used: Amounts) {
        for (lately, used) in self.0.iter_mut().zip(used) {
            *lately = *lately - *lately / 4 + u64::from(used) * 1_000 / 4;
        }
    }

    /// Returns the tokens that the next job will probably use.
    pub(super) fn next(self) -> Amounts {
        self.0.map(|lately| u32::try_from((lately + 500) / 1_000).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_job_is_expected_to_use_what_the_latest_did() {
        let mut lately = RecentTokens::default();
        assert_eq!(lately.next(), [0; KINDS]);
        (0..20).for_each(|_| lately.used([1, 0, 8]));
        assert_eq!(lately.next(), [1, 0, 8]);
        (0..20).for_each(|_| lately.used([0, 0, 0]));
        assert_eq!(lately.next(), [0; KINDS]);
    }
}
