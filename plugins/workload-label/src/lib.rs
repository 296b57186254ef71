//! Labels each Pod with the workload that it is a replica of, so that `kubectl get pods -l podium.dev/workload=cart`
//! and dashboards can select one, whatever kind it is.
//!
//! It removes no label, and ignores Pods without a workload.

mod value;

use podium_sdk::{Outcome, Request, Result, reconciler};

/// The label it sets.
pub const LABEL: &str = "podium.dev/workload";

reconciler!(reconcile);

/// # Errors
/// Returns an error if labels or owners are not granted.
pub fn reconcile(request: &Request) -> Result<Outcome> {
    let Some(pod) = request.live_pod()? else { return Ok(Outcome::settled()) };
    if let Some(workload) = pod.workload()? {
        pod.set_label(LABEL, &value::of_name(&workload.name))?;
    }
    Ok(Outcome::settled())
}
