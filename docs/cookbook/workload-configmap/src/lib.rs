//! Keeps a ConfigMap for each workload: the node of each of its Pods.

use std::collections::BTreeMap;

use podium_sdk::{ObjectOwner, Outcome, Request, Result, json, reconciler, writes};

reconciler!(reconcile);

pub fn reconcile(request: &Request) -> Result<Outcome> {
    let Some(pod) = request.live_pod()? else { return Ok(Outcome::settled()) };
    let (Some(workload), Some(members)) = (pod.workload()?, pod.siblings()?) else { return Ok(Outcome::settled()) };
    let mut nodes = BTreeMap::new();
    for member in members {
        let member = member?;
        if let Some(node) = member.node()? {
            nodes.insert(member.name().to_owned(), node.to_owned());
        }
    }
    let name = format!("{}-{}-nodes", workload.kind.to_lowercase(), workload.name);
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": pod.namespace() },
        "data": nodes,
    });
    writes::apply_object(&object, Some(ObjectOwner::Workload(pod.key())))?;
    Ok(Outcome::settled())
}
