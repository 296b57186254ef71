//! How many bytes plugins may log: one rate for all of them, shared equally by the tenants that log, so that a tenant
//! that floods the log loses its own lines and no other's.
//!
//! The bounds of one run are the sandbox's; a plugin may have as many runs as it has Pods. Lines about runs and writes
//! that failed are bounded by [`Repeats`](super::repeats::Repeats).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use podium_vocabulary::Tenant;
use tokio::time::Instant;

use crate::{
    intervals::Intervals,
    throttle::{Bucket, Rate},
};

/// Bytes a second of all plugins' lines: half of the 1 MB/s that a host may log, because JSON may double a text.
const ALL_PLUGINS: u64 = 512 << 10;
/// Seconds for which a tenant that was silent may log at once.
const BURST: u64 = 8;
/// The bytes that a tenant that was silent may log at once, however many tenants log.
const MIN_BURST: u64 = 64 << 10;
/// Bytes of a line beside its text: time, level, target, and the fields of the run's span.
const LINE_BYTES: usize = 320;
/// A tenant has a share for this long after a line, and for as long again at most.
const WINDOW: Duration = Duration::from_secs(BURST);

/// The rates of all tenants that have a plugin, or had one until lately.
#[derive(Debug, Default)]
pub(super) struct LogRates {
    tenants: BTreeMap<Tenant, Arc<Mutex<TenantRate>>>,
    active: Arc<Mutex<Active>>,
}

/// The number of tenants that log, which share the rate of all plugins.
#[derive(Debug, Default)]
struct Active {
    /// The number and the beginning of the present window; the first is 1.
    window: u64,
    begun: Option<Instant>,
    /// The tenants that logged in this window, and in the window before it.
    now: u64,
    before: u64,
}

#[derive(Debug, Default)]
struct TenantRate {
    bucket: Allowance,
    /// The last window in which it logged.
    seen: u64,
}

/// The rate of one plugin within that of its tenant.
#[derive(Debug)]
pub(super) struct LogRate {
    tenant: Arc<Mutex<TenantRate>>,
    active: Arc<Mutex<Active>>,
    own: Mutex<Allowance>,
    losses: Mutex<Intervals>,
}

/// Bytes that may be logged; the bucket is full before the first line.
#[derive(Debug, Default)]
struct Allowance(Option<Bucket>);

/// The fate of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// It may be logged.
    Logged,
    /// It must not be logged. `Some`: a line that reports this number of losses is due now.
    Lost(Option<u64>),
}

impl LogRates {
    /// Returns the rate of another plugin of a tenant, or of another version of one.
    pub(super) fn plugin(&mut self, tenant: Tenant) -> LogRate {
        let tenant = self.tenants.entry(tenant).or_default();
        LogRate {
            tenant: Arc::clone(tenant),
            active: Arc::clone(&self.active),
            own: Mutex::default(),
            losses: Mutex::default(),
        }
    }

    /// Forgets the tenants that have no plugin and that may log as much as new ones.
    pub(super) fn forget_unused(&mut self, now: Instant) {
        self.tenants.retain(|_, rate| Arc::strong_count(rate) > 1 || !rate.lock().bucket.is_full(now));
    }
}

impl Active {
    /// Counts a tenant that logs, which logged last in the window `seen`, and returns its share in bytes a second.
    fn share(&mut self, seen: &mut u64, now: Instant) -> u64 {
        let elapsed = self.begun.map_or(WINDOW * 2, |begun| now.saturating_duration_since(begun));
        if elapsed >= WINDOW {
            self.before = if elapsed < WINDOW * 2 { self.now } else { 0 };
            self.window += 1;
            self.begun = Some(now);
            self.now = 0;
        }
        if *seen != self.window {
            (*seen, self.now) = (self.window, self.now + 1);
        }
        ALL_PLUGINS / self.now.max(self.before)
    }
}

impl LogRate {
    /// Counts a line with `text` bytes of text against the rate.
    pub(super) fn take(&self, text: usize, now: Instant) -> Line {
        let mut tenant = self.tenant.lock();
        let share = self.active.lock().share(&mut tenant.seen, now).max(1);
        // One plugin of several must not take all that its tenant has. One reference is that of `LogRates`.
        let is_only = Arc::strong_count(&self.tenant) <= 2;
        let burst = (share * BURST).max(MIN_BURST);
        let own = if is_only { (share, burst) } else { (share.div_ceil(2), burst / 2) };
        let bytes = u32::try_from(text.saturating_add(LINE_BYTES)).unwrap_or(u32::MAX);
        let mut plugin = self.own.lock();
        let plugin = plugin.at(own, now);
        let tenant = tenant.bucket.at((share, burst), now);
        // A line longer than a full bucket would otherwise never be logged.
        if plugin.wait(bytes, now).is_zero() && tenant.try_take(bytes, now) {
            plugin.take(bytes, now);
            return Line::Logged;
        }
        Line::Lost(self.losses.lock().occurred(now))
    }
}

impl Allowance {
    /// Returns the bucket with this rate and burst.
    fn at(&mut self, (rate, burst): (u64, u64), now: Instant) -> &mut Bucket {
        let number = |bytes| u32::try_from(bytes).unwrap_or(u32::MAX);
        let rate = Rate { per_second: number(rate), burst: number(burst) };
        let bucket = self.0.get_or_insert_with(|| Bucket::full(rate, now));
        bucket.set_rate(rate, now);
        bucket
    }

    fn is_full(&self, now: Instant) -> bool {
        self.0.is_none_or(|bucket| bucket.wait(bucket.burst(), now).is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn tenant(name: &str) -> Tenant {
        Tenant::Namespace(name.into())
    }

    /// The bytes that a plugin that never stops can log in this number of seconds.
    async fn flood(rate: &LogRate, seconds: u64, text: usize) -> u64 {
        let mut logged = 0;
        for _ in 0..seconds * 100 {
            while rate.take(text, Instant::now()) == Line::Logged {
                logged += (text + LINE_BYTES) as u64;
            }
            tokio::time::advance(SECOND / 100).await;
        }
        logged
    }

    /// The bytes that each of several plugins can log in this number of seconds, after their bursts.
    async fn floods(rates: &[LogRate], seconds: u64) -> Vec<u64> {
        let mut logged = vec![0; rates.len()];
        for hundredth in 0..(20 + seconds) * 100 {
            for (rate, logged) in rates.iter().zip(&mut logged) {
                while rate.take(1_000, Instant::now()) == Line::Logged {
                    *logged += if hundredth < 2_000 { 0 } else { 1_320 };
                }
            }
            tokio::time::advance(SECOND / 100).await;
        }
        logged
    }

    #[tokio::test(start_paused = true)]
    async fn only_tenants_that_log_share_the_rate() {
        let mut rates = LogRates::default();
        let all: Vec<_> = (0..100).map(|number| rates.plugin(tenant(&format!("shop-{number}")))).collect();
        for count in [4, 1, 2] {
            let logged = floods(&all[..count], 60).await;
            let fair = ALL_PLUGINS * 60 / count as u64;
            let is_fair = |logged: &u64| (fair * 98 / 100..=fair * 102 / 100).contains(logged);
            assert!(logged.iter().all(is_fair), "{count} tenants: {logged:?}, each {fair}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_costs_no_other_tenant_or_plugin_a_line() {
        let loud = tenant("loud");
        let quiet = tenant("quiet");
        let mut rates = LogRates::default();
        let [flooding, beside, other] = [&loud, &loud, &quiet].map(|tenant| rates.plugin(tenant.clone()));
        for _ in 0..600 {
            flood(&flooding, 1, 16 << 10).await;
            assert_eq!(beside.take(1_000, Instant::now()), Line::Logged);
            assert_eq!(other.take(1_000, Instant::now()), Line::Logged);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn losses_are_reported_at_growing_intervals_with_their_number() {
        let rate = LogRates::default().plugin(tenant("shop"));
        while rate.take(16 << 10, Instant::now()) == Line::Logged {}
        assert_eq!(rate.take(16 << 10, Instant::now()), Line::Lost(None), "the first loss was reported");
        let debt = rate.take(1 << 30, Instant::now() + SECOND * 11);
        assert_eq!(debt, Line::Logged, "a full bucket");
        tokio::time::advance(SECOND * 11).await;
        assert_eq!(rate.take(1, Instant::now()), Line::Lost(Some(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_longer_than_the_burst_needs_a_full_bucket() {
        let rate = LogRates::default().plugin(tenant("shop"));
        let burst = (ALL_PLUGINS * BURST) as usize;
        let mut logged = 0;
        let begun = Instant::now();
        while begun.elapsed() < SECOND * 600 {
            logged += u64::from(rate.take(2 * burst, Instant::now()) == Line::Logged);
            tokio::time::advance(SECOND).await;
        }
        assert_eq!(logged, 600 / (2 * BURST + 1) + 1, "each takes the rate of two bursts");
    }

    #[tokio::test(start_paused = true)]
    async fn every_tenant_may_log_the_least_burst_however_many_log() {
        let mut rates = LogRates::default();
        let all: Vec<_> = (0..5_000).map(|number| rates.plugin(tenant(&format!("shop-{number}")))).collect();
        let text = MIN_BURST as usize / 4 - LINE_BYTES;
        for rate in &all {
            assert_eq!([(); 4].map(|()| rate.take(text, Instant::now())), [Line::Logged; 4]);
        }
        let last = &all[4_999];
        assert!(matches!(last.take(text, Instant::now()), Line::Lost(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_loaded_again_has_no_burst_beyond_its_tenants() {
        let mut rates = LogRates::default();
        let before = rates.plugin(tenant("shop"));
        while before.take(1_000, Instant::now()) == Line::Logged {}
        drop(before);
        assert_eq!(rates.plugin(tenant("shop")).take(1_000, Instant::now()), Line::Lost(Some(1)));
    }
}
