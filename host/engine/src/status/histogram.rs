//! Durations, counted in buckets whose width is at most an eighth of their value: quantiles without storing each
//! duration.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Buckets per doubling.
const STEPS: usize = 8;
/// The range is 1 us to 2^26 us (67 s); longer durations count as the last value.
const DOUBLINGS: usize = 26;

/// A lock-free histogram. Recording costs two additions.
#[derive(Debug)]
pub struct Histogram {
    buckets: Box<[AtomicU64]>,
    micros: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: (0..STEPS * DOUBLINGS).map(|_| AtomicU64::new(0)).collect(), micros: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.buckets[bucket(micros)].fetch_add(1, Relaxed);
        self.micros.fetch_add(micros, Relaxed);
    }

    /// Returns the number of recorded durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }

    /// Returns the sum of all durations, each truncated to microseconds.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.micros.load(Relaxed))
    }

    /// Returns the upper bound of the bucket that contains the quantile, which is at most an eighth too high; `None`
    /// without durations.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        self.quantile_since(&[], quantile)
    }

    /// Returns the present counts, for [`Histogram::quantile_since`].
    #[must_use]
    pub fn counts(&self) -> Vec<u64> {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect()
    }

    /// Like [`Histogram::quantile`], for the durations that were recorded after `earlier`.
    #[must_use]
    pub fn quantile_since(&self, earlier: &[u64], quantile: f64) -> Option<Duration> {
        let mut counts = self.counts();
        counts.iter_mut().zip(earlier).for_each(|(count, earlier)| *count = count.saturating_sub(*earlier));
        let wanted = (counts.iter().sum::<u64>() as f64 * quantile).ceil().max(1.0) as u64;
        let mut seen = 0;
        counts.iter().enumerate().find_map(|(at, count)| {
            seen += count;
            (seen >= wanted).then(|| Duration::from_micros(upper(at)))
        })
    }

    /// Returns the number of durations at or below each bound; a duration counts at the upper bound of its bucket.
    #[must_use]
    pub fn cumulative(&self, bounds: &[Duration]) -> Vec<u64> {
        let below = |bound: &Duration| {
            let counted = self.buckets.iter().enumerate();
            let counted = counted.filter(|(at, _)| Duration::from_micros(upper(*at)) <= *bound);
            counted.map(|(_, count)| count.load(Relaxed)).sum()
        };
        bounds.iter().map(below).collect()
    }
}

fn bucket(micros: u64) -> usize {
    let micros = micros.max(1);
    let doubling = micros.ilog2() as usize;
    // The three bits after the highest one.
    let step = if doubling >= 3 { (micros >> (doubling - 3)) & 7 } else { (micros << (3 - doubling)) & 7 };
    (doubling * STEPS + step as usize).min(STEPS * DOUBLINGS - 1)
}

/// Returns the first value above the bucket.
fn upper(bucket: usize) -> u64 {
    let doubling = bucket / STEPS;
    let step = (bucket % STEPS) as u64;
    ((STEPS as u64 + step + 1) << doubling).div_ceil(STEPS as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_at_most_an_eighth_above_the_true_one() {
        let histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        (1..=1_000).for_each(|micros| histogram.record(Duration::from_micros(micros)));
        for (quantile, truth) in [(0.5, 500.0), (0.99, 990.0)] {
            let found = histogram.quantile(quantile).unwrap().as_micros() as f64;
            assert!(found >= truth && found <= truth * 1.125 + 1.0, "{quantile}: {found}");
        }
        assert_eq!(histogram.count(), 1_000);
    }

    #[test]
    fn earlier_counts_do_not_move_a_later_quantile() {
        let histogram = Histogram::default();
        histogram.record(Duration::from_secs(10));
        let earlier = histogram.counts();
        assert_eq!(histogram.quantile_since(&earlier, 0.99), None);
        histogram.record(Duration::from_millis(1));
        assert!(histogram.quantile_since(&earlier, 0.99) < Some(Duration::from_millis(2)));
        assert!(histogram.quantile(0.99) > Some(Duration::from_secs(9)));
    }

    #[test]
    fn every_value_is_within_the_bounds_of_its_bucket() {
        for micros in (1..5_000).chain([1 << 20, (1 << 25) + 7]) {
            let at = bucket(micros);
            assert!(upper(at) >= micros, "{micros}");
            assert!(at == 0 || upper(at - 1) <= micros, "{micros}");
        }
    }
}
