//! [`Shares`]: how many runs are traced. The tenants whose runs were traced lately share one rate equally, so that
//! failures of one tenant are in the way of no other tenant's traces.

use std::{collections::BTreeMap, time::Duration};

use podium_engine::throttle::{Bucket, Rate};
use podium_vocabulary::Payer;
use tokio::time::Instant;

/// Traces a second of all tenants.
const ALL_TENANTS: u32 = 50;
/// Seconds for which a tenant that was silent may have traces at once.
const BURST: u32 = 4;
/// The traces that it may have at once however many tenants share the rate: one more than it waits for, so that a
/// tenant that waits for its next one is not taken for silent.
const LEAST_BURST: u32 = 2;
/// Tokens of a trace: the share of one tenant may be less than one trace a second.
const TRACE: u32 = 10_000;
/// How often tenants that are silent are forgotten.
const EVERY: Duration = Duration::from_secs(1);

/// The buckets of the tenants that share the rate.
#[derive(Debug, Default)]
pub(super) struct Shares {
    tenants: BTreeMap<Payer, Bucket>,
    looked: Option<Instant>,
}

impl Shares {
    /// Counts a trace of a tenant. Returns false if its share is used up.
    pub(super) fn take(&mut self, tenant: Payer, now: Instant) -> bool {
        if self.looked.is_none_or(|looked| now >= looked + EVERY) {
            self.tenants.retain(|_, bucket| !bucket.wait(bucket.burst(), now).is_zero());
            self.looked = Some(now);
        }
        let others = self.tenants.len() - usize::from(self.tenants.contains_key(&tenant));
        let sharing = u32::try_from(others).unwrap_or(u32::MAX).saturating_add(1);
        let per_second = (ALL_TENANTS * TRACE / sharing).max(1);
        let rate = Rate { per_second, burst: (per_second * BURST).max(LEAST_BURST * TRACE) };
        let bucket = self.tenants.entry(tenant).or_insert_with(|| Bucket::full(rate, now));
        bucket.set_rate(rate, now);
        bucket.try_take(TRACE, now)
    }
}

#[cfg(test)]
mod tests {
    use podium_vocabulary::PluginId;

    use super::*;

    fn tenant(number: usize) -> Payer {
        PluginId { namespace: Some(number.to_string().into()), name: "tidy".into() }.payer()
    }

    /// The traces of each of these tenants, which never stop, in a hundred seconds after their bursts.
    fn floods(count: usize) -> Vec<usize> {
        let mut shares = Shares::default();
        let began = Instant::now();
        let mut traces = vec![0; count];
        for tenth in 0..2_000 {
            let now = began + Duration::from_millis(tenth * 100);
            for (number, traces) in traces.iter_mut().enumerate() {
                while shares.take(tenant(number), now) {
                    *traces += usize::from(tenth >= 1_000);
                }
            }
        }
        traces
    }

    #[test]
    fn tenants_that_are_traced_share_fifty_traces_a_second() {
        for count in [1, 2, 10, 200] {
            let traces = floods(count);
            let fair = 5_000 / count;
            let sum: usize = traces.iter().sum();
            assert!(traces.iter().all(|traces| traces.abs_diff(fair) <= 1 + fair / 50), "{count}: {traces:?}");
            assert!((4_800..=5_000 + count).contains(&sum), "{count}: {sum}");
        }
    }

    #[test]
    fn a_quiet_tenant_has_its_trace_beside_a_flood() {
        let mut shares = Shares::default();
        let began = Instant::now();
        for second in 0..600 {
            let now = began + Duration::from_secs(second);
            while shares.take(tenant(0), now) {}
            assert!(shares.take(tenant(1), now), "second {second}");
        }
        let later = began + Duration::from_secs(700);
        shares.take(tenant(2), later);
        assert_eq!(shares.tenants.len(), 1, "silent tenants are forgotten");
    }
}
