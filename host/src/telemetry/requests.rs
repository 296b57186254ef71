//! [`ApiRequests`]: requests to the API server by method and status code, under the names of client-go.

use std::{collections::BTreeMap, fmt, time::Duration};

use parking_lot::Mutex;
use podium_engine::status::Histogram;
use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter},
    registry::Unit,
};

use super::metrics::encode_histogram;

/// The methods of the host's requests.
const METHODS: [&str; 5] = ["DELETE", "GET", "PATCH", "POST", "PUT"];
/// The most pairs of a method and a code; further ones have the code `other`. A tenant's admission webhook can answer
/// with any code.
const PAIRS: usize = 64;

/// The requests that were sent since the start.
#[derive(Debug, Default)]
pub struct ApiRequests {
    host: String,
    /// By the position in [`METHODS`] and the code.
    counts: Mutex<BTreeMap<(usize, String), u64>>,
    times: [Histogram; METHODS.len()],
}

impl ApiRequests {
    /// Returns counters for requests to an API server at `HOST:PORT`.
    #[must_use]
    pub fn new(host: String) -> Self {
        Self { host, ..Self::default() }
    }

    /// Counts a request, and the time until the head of its response. `code` is `None` if there was no response.
    pub fn record(&self, method: &str, code: Option<u16>, took: Duration) {
        let Some(method) = METHODS.iter().position(|known| *known == method) else { return };
        self.times[method].record(took);
        let mut counts = self.counts.lock();
        let mut pair = (method, code.map_or_else(|| "<error>".to_owned(), |code| code.to_string()));
        if counts.len() >= PAIRS && !counts.contains_key(&pair) {
            pair.1 = "other".to_owned();
        }
        *counts.entry(pair).or_default() += 1;
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Requests to the API server by status code";
        let mut metric = encoder.encode_descriptor("rest_client_requests", help, None, MetricType::Counter)?;
        for ((method, code), count) in &*self.counts.lock() {
            let labels = [("code", &**code), ("method", METHODS[*method]), ("host", &*self.host)];
            ConstCounter::new(*count).encode(metric.encode_family(&labels)?)?;
        }
        let name = "rest_client_request_duration";
        let help = "Time from a request to the head of its response";
        let mut metric = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (method, times) in METHODS.iter().zip(&self.times).filter(|(_, times)| times.count() > 0) {
            encode_histogram(metric.encode_family(&[("verb", *method), ("host", &*self.host)])?, times)?;
        }
        Ok(())
    }
}
