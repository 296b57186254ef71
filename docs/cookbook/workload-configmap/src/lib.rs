//! Keeps a ConfigMap for each workload: the node of each of its Pods.

use std::collections::BTreeMap;

use podium_sdk::{ObjectOwner, Outcome, Request, Result, json, pods, reconciler, writes};

reconciler!(reconcile);

pub fn reconcile(request: &Request) -> Result<Outcome> {
    // A Pod that is gone changes the ConfigMap too.
    let Some(pod) = request.pod().or(request.deleted()) else { return Ok(Outcome::settled()) };
    let Some(workload) = pod.workload()? else { return Ok(Outcome::settled()) };
    let mut nodes = BTreeMap::new();
    let mut owner = None;
    for member in pods::find().in_namespace(pod.namespace()) {
        let member = member?;
        if member.is_terminating()? || member.workload()?.as_ref() != Some(&workload) {
            continue;
        }
        if let Some(node) = member.node()? {
            nodes.insert(member.name().to_owned(), node.to_owned());
        }
        owner.get_or_insert(member);
    }
    let Some(owner) = owner else { return Ok(Outcome::settled()) };
    let name = format!("{}-{}-nodes", workload.kind.to_lowercase(), workload.name);
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": pod.namespace() },
        "data": nodes,
    });
    writes::apply_object(&object, Some(ObjectOwner::Workload(owner.key())))?;
    Ok(Outcome::settled())
}
