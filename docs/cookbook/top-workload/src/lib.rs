//! Marks each Pod with its top workload and its zone.

use podium_sdk::{Outcome, Request, Result, reconciler};

reconciler!(reconcile);

pub fn reconcile(request: &Request) -> Result<Outcome> {
    let Some(pod) = request.live_pod()? else { return Ok(Outcome::settled()) };
    let workload = pod.workload()?.map(|workload| workload.name);
    pod.label_to("example.com/workload", workload.as_deref())?;
    pod.annotation_to("example.com/zone", pod.label("topology.kubernetes.io/zone")?)?;
    Ok(Outcome::settled())
}
