//! Labels each Pod with the workload that controls it, so that `kubectl get pods -l podium.dev/workload=cart` and
//! dashboards can select one, whatever kind it is.
//!
//! It follows only the Pod's controller: it removes no label, and ignores Pods without a controller.

mod workload;

use podium_sdk::{Outcome, Request, Result, reconciler};

/// The label it sets.
pub const LABEL: &str = "podium.dev/workload";

reconciler!(reconcile);

/// # Errors
/// Returns an error if labels or owners are not granted.
pub fn reconcile(request: &Request) -> Result<Outcome> {
    let Some(pod) = request.pod() else { return Ok(Outcome::settled()) };
    if pod.is_terminating()? {
        return Ok(Outcome::settled());
    }
    let Some(controller) = pod.controller()? else { return Ok(Outcome::settled()) };
    if let Some(workload) = workload::name(controller, pod.label("pod-template-hash")?) {
        pod.set_label(LABEL, &workload::label_value(workload))?;
    }
    Ok(Outcome::settled())
}
