//! Waits for a condition with a deadline. No suite sleeps to hide a race.

use std::{error::Error, fmt, time::Duration};

use anyhow::{Result, anyhow};
use tokio::time::{Instant, sleep};

/// The pause between probes.
const PAUSE: Duration = Duration::from_millis(50);

/// An error after which no further probe can succeed: the awaited program has ended.
#[derive(Debug)]
pub struct ProbeAborted(pub String);

impl fmt::Display for ProbeAborted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl Error for ProbeAborted {}

/// Probes until it succeeds.
///
/// # Errors
/// Returns `what` and the last probe's error when `within` is over, or at once when a probe is [`ProbeAborted`].
pub async fn until<T>(what: &str, within: Duration, mut probe: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + within;
    loop {
        match probe().await {
            Ok(value) => return Ok(value),
            Err(error) if error.is::<ProbeAborted>() => return Err(error.context(format!("while waiting for {what}"))),
            Err(error) if Instant::now() >= deadline => {
                return Err(anyhow!("waited {within:?} for {what}, at last: {error:#}"));
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}
