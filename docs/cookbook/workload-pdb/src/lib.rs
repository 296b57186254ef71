//! Keeps a PodDisruptionBudget for each Deployment and StatefulSet: one of its Pods at a time may be evicted.

use podium_sdk::{ObjectOwner, Outcome, Request, Result, json, reconciler, writes};

const BUDGET: &str = "example.com/budget";

reconciler!(reconcile);

pub fn reconcile(request: &Request) -> Result<Outcome> {
    let Some(pod) = request.live_pod()? else { return Ok(Outcome::settled()) };
    let workload = pod.workload()?.filter(|workload| matches!(&*workload.kind, "Deployment" | "StatefulSet"));
    let Some(workload) = workload else { return Ok(Outcome::settled()) };
    let name = format!("{}-{}", workload.kind.to_lowercase(), workload.name);
    pod.set_label(BUDGET, &name)?;
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": { "name": name, "namespace": pod.namespace() },
        "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { BUDGET: name } } },
    });
    writes::apply_object(&budget, Some(ObjectOwner::Workload(pod.key())))?;
    Ok(Outcome::settled())
}
