//! [`ApiRequests`]: requests to the API server by method and status code, under the names of client-go.

use std::{collections::BTreeMap, fmt, time::Duration};

use parking_lot::Mutex;
use podium_engine::status::Histogram;

use super::families::Families;

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

    pub(super) fn encode(&self, families: &mut Families<'_>) -> fmt::Result {
        let counts = self.counts.lock().clone();
        let counts = counts.iter().map(|((method, code), count)| {
            ([("code", &**code), ("method", METHODS[*method]), ("host", &*self.host)], *count)
        });
        families.counter("rest_client_requests", "Requests to the API server by status code", counts)?;
        let times = METHODS.iter().zip(&self.times).filter(|(_, times)| times.count() > 0);
        let times = times.map(|(method, times)| ([("verb", *method), ("host", &*self.host)], times));
        let help = "Time from a request to the head of its response";
        families.histogram("rest_client_request_duration_seconds", help, times)
    }
}
