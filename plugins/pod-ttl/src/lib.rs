//! Deletes finished Pods some time after they finished, so that they do not accumulate until the garbage collector's
//! threshold of thousands.
//!
//! Nothing is polled: a run on a finished Pod requeues itself until the Pod is due. It deletes exactly the
//! incarnation that it read, never a new Pod of the same name.

use std::time::Duration;

use podium_sdk::{Outcome, Request, Result, log, reconciler};
use serde::Deserialize;

/// The plugin's configuration. Pods of a phase without a time are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// How long a succeeded Pod is kept, in seconds after it finished.
    pub succeeded_seconds: Option<u64>,
    /// The same for a failed Pod; usually longer, because people may want to examine it.
    pub failed_seconds: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Self { succeeded_seconds: Some(3_600), failed_seconds: Some(86_400) }
    }
}

reconciler!(reconcile);

/// # Errors
/// Returns an error if status is not granted, or if the configuration is not a [`Config`].
pub fn reconcile(request: &Request) -> Result<Outcome> {
    let config: Config = request.config()?;
    let Some(pod) = request.live_pod()? else { return Ok(Outcome::settled()) };
    let ttl = match pod.phase()? {
        "Succeeded" => config.succeeded_seconds,
        "Failed" => config.failed_seconds,
        _ => None,
    };
    let Some(ttl) = ttl.map(Duration::from_secs) else { return Ok(Outcome::settled()) };
    let Some(finished) = pod.finished_at()? else { return Ok(Outcome::settled()) };
    let left = (finished + ttl).since(request.now());
    if !left.is_zero() {
        return Ok(Outcome::requeue_after(left));
    }
    log::info("deleting a finished pod", &[("pod", pod.key()), ("phase", &pod.phase()?)]);
    pod.delete()?;
    Ok(Outcome::settled())
}
