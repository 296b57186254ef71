//! How many bytes plugins may log: one rate for all of them, shared equally by the tenants, so that a tenant that
//! floods the log loses its own lines and no other's.
//!
//! The bounds of one run are the sandbox's; a plugin may have as many runs as it has Pods. Lines about runs and writes
//! that failed are bounded by [`Repeats`](super::repeats::Repeats).

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use podium_pods::model::Tenant;
use tokio::time::Instant;

use crate::intervals::Intervals;

/// Bytes a second of all plugins' lines: half of the 1 MB/s that a host may log, because JSON may double a text.
const ALL_PLUGINS: u64 = 512 << 10;
/// Seconds for which a tenant that was silent may log at once.
const BURST: u64 = 8;
/// Bytes of a line beside its text: time, level, target, and the fields of the run's span.
const LINE_BYTES: usize = 320;

/// The rates of all tenants with loaded plugins.
#[derive(Debug, Default)]
pub(super) struct LogRates {
    tenants: BTreeMap<Tenant, Arc<TenantRate>>,
    /// The share of each tenant in bytes a second.
    share: Arc<AtomicU64>,
}

#[derive(Debug)]
struct TenantRate {
    bucket: Mutex<Bucket>,
    plugins: AtomicU64,
}

/// The rate of one plugin within that of its tenant.
#[derive(Debug)]
pub(super) struct LogRate {
    tenant: Arc<TenantRate>,
    share: Arc<AtomicU64>,
    own: Mutex<Bucket>,
    losses: Mutex<Intervals>,
}

/// A token bucket; full when it is new.
#[derive(Debug)]
struct Bucket {
    /// Bytes that may be logged; `None` before the first line.
    left: Option<u64>,
    filled: Instant,
}

/// The fate of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// It may be logged.
    Logged,
    /// It must not be logged. `Some`: a line that reports so many losses is due now.
    Lost(Option<u64>),
}

impl LogRates {
    /// Sets the tenants to those of the loaded plugins, each with its plugins' number.
    pub(super) fn set<'a>(&mut self, plugins: impl Iterator<Item = &'a Tenant>) {
        let mut counts = BTreeMap::<&Tenant, u64>::new();
        plugins.for_each(|tenant| *counts.entry(tenant).or_default() += 1);
        self.share.store(ALL_PLUGINS / (counts.len() as u64).max(1), Relaxed);
        self.tenants.retain(|tenant, _| counts.contains_key(tenant));
        for (tenant, count) in counts {
            let rate = self.tenants.entry(tenant.clone()).or_insert_with(|| Arc::new(TenantRate::new()));
            rate.plugins.store(count, Relaxed);
        }
    }

    /// Returns the rate of another plugin of a tenant.
    pub(super) fn plugin(&mut self, tenant: Tenant) -> LogRate {
        let tenant = self.tenants.entry(tenant).or_insert_with(|| Arc::new(TenantRate::new()));
        LogRate {
            tenant: Arc::clone(tenant),
            share: Arc::clone(&self.share),
            own: Mutex::new(Bucket::new()),
            losses: Mutex::default(),
        }
    }
}

impl TenantRate {
    fn new() -> Self {
        Self { bucket: Mutex::new(Bucket::new()), plugins: AtomicU64::new(1) }
    }
}

impl LogRate {
    /// Takes a line with so many bytes of text from the rate.
    pub(super) fn take(&self, text: usize, now: Instant) -> Line {
        let share = self.share.load(Relaxed).max(1);
        // One plugin of several must not take all that its tenant has.
        let own = if self.tenant.plugins.load(Relaxed) > 1 { share.div_ceil(2) } else { share };
        let bytes = (text + LINE_BYTES) as u64;
        let mut plugin = self.own.lock();
        let fits = plugin.fill(own, now) >= bytes;
        if fits && self.tenant.bucket.lock().take(bytes, share, now) {
            plugin.take(bytes, own, now);
            return Line::Logged;
        }
        Line::Lost(self.losses.lock().occurred(now))
    }
}

impl Bucket {
    fn new() -> Self {
        Self { left: None, filled: Instant::now() }
    }

    /// Returns the bytes that may be logged now.
    fn fill(&mut self, rate: u64, now: Instant) -> u64 {
        let most = rate * BURST;
        let elapsed = now.saturating_duration_since(self.filled).min(Duration::from_secs(BURST));
        let gained = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX) * rate / 1_000_000;
        let left = self.left.map_or(most, |left| left.saturating_add(gained)).min(most);
        // The rest of a byte is not lost to lines that follow each other quickly.
        if gained > 0 || self.left.is_none() {
            self.filled = now;
        }
        self.left = Some(left);
        left
    }

    fn take(&mut self, bytes: u64, rate: u64, now: Instant) -> bool {
        let rest = self.fill(rate, now).checked_sub(bytes);
        self.left = rest.or(self.left);
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn tenant(name: &str) -> Tenant {
        Tenant::Namespace(name.into())
    }

    /// The bytes that a plugin that never stops gets through in so many seconds.
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

    #[tokio::test(start_paused = true)]
    async fn all_tenants_together_log_at_the_rate_of_all_plugins_and_each_has_its_share() {
        let tenants: Vec<_> = (0..4).map(|number| tenant(&format!("shop-{number}"))).collect();
        let mut rates = LogRates::default();
        rates.set(tenants.iter());
        let floods: Vec<_> = tenants.iter().map(|tenant| rates.plugin(tenant.clone())).collect();
        for flooding in &floods {
            flood(flooding, 60, 1_000).await;
        }
        let begun = Instant::now();
        let mut logged = 0;
        // After the bursts.
        for _ in 0..1_000 {
            for rate in &floods {
                while rate.take(1_000, Instant::now()) == Line::Logged {
                    logged += 1_320;
                }
            }
            tokio::time::advance(SECOND / 100).await;
        }
        let seconds = begun.elapsed().as_secs();
        let most = ALL_PLUGINS * (seconds + BURST);
        assert!(
            logged <= most && logged > ALL_PLUGINS * seconds * 9 / 10,
            "{logged} bytes in {seconds} s, at most {most}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_costs_no_other_tenant_and_no_other_plugin_of_the_tenant_a_line() {
        let (loud, quiet) = (tenant("loud"), tenant("quiet"));
        let mut rates = LogRates::default();
        rates.set([&loud, &loud, &quiet].into_iter());
        let [flooding, beside, other] = [&loud, &loud, &quiet].map(|tenant| rates.plugin(tenant.clone()));
        for _ in 0..600 {
            flood(&flooding, 1, 16 << 10).await;
            assert_eq!(beside.take(1_000, Instant::now()), Line::Logged);
            assert_eq!(other.take(1_000, Instant::now()), Line::Logged);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn losses_are_reported_at_growing_intervals_with_their_number() {
        let mut rates = LogRates::default();
        rates.set([&tenant("shop")].into_iter());
        let rate = rates.plugin(tenant("shop"));
        while rate.take(16 << 10, Instant::now()) == Line::Logged {}
        assert_eq!(rate.take(1 << 30, Instant::now()), Line::Lost(None), "the first loss was reported");
        tokio::time::advance(SECOND * 11).await;
        assert_eq!(rate.take(1 << 30, Instant::now()), Line::Lost(Some(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_that_leaves_returns_its_share_to_the_others() {
        let (one, two) = (tenant("one"), tenant("two"));
        let mut rates = LogRates::default();
        rates.set([&one, &two].into_iter());
        let rate = rates.plugin(one.clone());
        let before = flood(&rate, 100, 1_000).await;
        rates.set([&one].into_iter());
        let after = flood(&rate, 100, 1_000).await;
        assert!(after > before * 17 / 10, "{before} and {after} bytes");
    }
}
