//! The identity of the cluster: the uid of its namespace kube-system, which no two clusters share and which never
//! changes. The journal belongs to one cluster; in another cluster all its Pods would look deleted.

use std::sync::Arc;

use podium_engine::intervals::Intervals;
use podium_pods::pod::{Observation, Staleness};
use tokio::{sync::mpsc, time::Instant};

use podium_api::{Api, ApiError, watch::Retries};

const NAMESPACE: &str = "/api/v1/namespaces/kube-system";

/// Reads the uid and retries until the API server answers. Returns `None` if the host may not read the namespace.
/// This is not an error, because the host only needs rights on Pods.
pub(super) async fn identify(api: &Api, observed: &mpsc::Sender<Observation>, seed: u64) -> Option<Arc<str>> {
    let mut retries = Retries::new(seed);
    let mut failures = Intervals::new();
    loop {
        let error = match uid(api).await {
            Ok(uid) => return Some(uid),
            Err(error) => error,
        };
        if let ApiError::Status { code: 400..500, .. } = error
            && !matches!(error.code(), Some(401 | 408 | 429))
        {
            tracing::info!(
                %error,
                "the cluster is not identified, because the namespace kube-system cannot be read: a state directory of \
                another cluster is not noticed; allow get on it to change that"
            );
            return None;
        }
        if matches!(error, ApiError::Transport { sent: false, .. }) {
            // The API server cannot be reached, so longer waits would not reduce its load.
            retries.reset();
        }
        let wait = retries.wait(error.retry_after());
        if let Some(count) = failures.occurred(Instant::now()) {
            let retry_in_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(resource = "namespaces", name = "kube-system", %error, count, retry_in_ms, "get failed");
        }
        let staleness = Staleness { reason: error.to_string() };
        if observed.send(Observation::Stale(staleness)).await.is_err() {
            return None;
        }
        tokio::time::sleep(wait).await;
    }
}

async fn uid(api: &Api) -> Result<Arc<str>, ApiError> {
    let unusable = |error: http::Error| ApiError::Transport { sent: false, message: error.to_string() };
    let request = http::Request::get(NAMESPACE).body(Vec::new()).map_err(unusable)?;
    let namespace = api.json(request).await?;
    match namespace["metadata"]["uid"].as_str() {
        Some(uid) if !uid.is_empty() => Ok(uid.into()),
        _ => Err(ApiError::Malformed("the namespace kube-system has no uid".to_owned())),
    }
}
