//! [`Families`]: writes families of figures in the OpenMetrics text format.

use std::{fmt, time::Duration};

use podium_engine::status::Histogram;
use prometheus_client::{
    encoding::{
        DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, EncodeMetric, MetricEncoder,
        NoLabelSet,
    },
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};

/// Upper bounds of the buckets in seconds, in steps of 2 or 2.5, from 50 us (a warm run) to a minute, about where
/// [`Histogram`] ends.
const BOUNDS: [f64; 19] = [
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    25.0, 60.0,
];

/// A scrape. Names are those that a query uses, without the suffixes of counters and histograms; one that ends in
/// `_seconds` has the unit.
pub(super) struct Families<'a>(pub(super) DescriptorEncoder<'a>);

impl Families<'_> {
    pub(super) fn counter<L: EncodeLabelSet, N: EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, N)>,
    ) -> fmt::Result {
        let samples = samples.into_iter().map(|(labels, value)| (labels, ConstCounter::new(value)));
        self.family(name, help, MetricType::Counter, samples)
    }

    pub(super) fn gauge<L: EncodeLabelSet, N: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, N)>,
    ) -> fmt::Result {
        let samples = samples.into_iter().map(|(labels, value)| (labels, ConstGauge::new(value)));
        self.family(name, help, MetricType::Gauge, samples)
    }

    pub(super) fn histogram<'h, L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, &'h Histogram)>,
    ) -> fmt::Result {
        let samples = samples.into_iter().map(|(labels, times)| (labels, Times(times)));
        self.family(name, help, MetricType::Histogram, samples)
    }

    /// Writes a figure without labels.
    pub(super) fn single(&mut self, name: &str, help: &str, figure: impl EncodeMetric) -> fmt::Result {
        figure.encode(self.describe(name, help, figure.metric_type())?)
    }

    fn family<L: EncodeLabelSet, M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        samples: impl Iterator<Item = (L, M)>,
    ) -> fmt::Result {
        let mut metric = self.describe(name, help, kind)?;
        for (labels, figure) in samples {
            figure.encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn describe<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        match name.strip_suffix("_seconds") {
            Some(name) => self.0.encode_descriptor(name, help, Some(&Unit::Seconds), kind),
            None => self.0.encode_descriptor(name, help, None, kind),
        }
    }
}

struct Times<'h>(&'h Histogram);

impl EncodeMetric for Times<'_> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let cumulative = self.0.cumulative(&BOUNDS.map(Duration::from_secs_f64));
        let count = self.0.count().max(cumulative.last().copied().unwrap_or_default());
        let mut below = 0;
        // A plugin that never ran has one bucket: with all of them, 500 idle plugins would have 40,000 series.
        let (bounds, cumulative) = if count == 0 { (&[][..], Vec::new()) } else { (&BOUNDS[..], cumulative) };
        let mut buckets: Vec<(f64, u64)> = Vec::with_capacity(BOUNDS.len() + 1);
        for (bound, upto) in bounds.iter().zip(cumulative) {
            buckets.push((*bound, upto - below));
            below = upto;
        }
        buckets.push((f64::INFINITY, count - below));
        encoder.encode_histogram::<NoLabelSet>(self.0.sum().as_secs_f64(), count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
