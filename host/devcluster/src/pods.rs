//! The implemented subresources of Pods: eviction, which disruption budgets can refuse, and binding.

use serde_json::{Value, json};

use crate::{
    core::Core,
    delete::{self, Options},
    failure::{self, Failure},
    handle,
    kinds::Kind,
    managed::Author,
    meta,
    request::Request,
    rules,
    selector::Labels,
    state::State,
    store::Key,
    write::{self, Write},
};

/// The reason of an evicted Pod's condition.
const EVICTED: &str = "EvictionByEvictionAPI";

pub(crate) fn evict(
    state: &mut State,
    core: &Core,
    request: &Request,
    key: &Key,
    body: &Value,
) -> Result<Value, Failure> {
    let kind = &request.target.kind;
    let name = meta::name(body);
    if !name.is_empty() && name != key.name {
        return Err(Failure::bad_request("name in URL does not match name in Eviction object"));
    }
    let pod = state.store.get("pods", key).cloned().ok_or_else(|| Failure::not_found(kind, &key.name))?;
    let mut options = Options::read(&body["deleteOptions"])?;
    options.dry_run |= request.query.dry_run();
    delete::check_preconditions(kind, &pod, &options)?;
    let disturbs = meta::text(&pod, &["status", "phase"]) == "Running" && !meta::is_terminating(&pod);
    if disturbs {
        check_budgets(state, &pod)?;
    }
    if !options.dry_run {
        disrupt(state, core, kind, &pod);
        // The deletion applies to the Pod with its new condition.
        options.revision = None;
    }
    delete::delete(state, &core.clock, kind, key, &options)?;
    let mut status = failure::success(None);
    status["code"] = json!(201);
    Ok(status)
}

/// Sets the condition that explains why the Pod is deleted. The server itself sets it, so it has no field manager.
fn disrupt(state: &mut State, core: &Core, kind: &Kind, pod: &Value) {
    let mut new = pod.clone();
    let conditions = meta::array(meta::object(&mut new["status"]).entry("conditions").or_insert(Value::Null));
    let is_eviction = |c: &Value| c["type"] == "DisruptionTarget" && c["status"] == "True" && c["reason"] == EVICTED;
    if conditions.iter().any(is_eviction) {
        return;
    }
    conditions.retain(|c| c["type"] != "DisruptionTarget");
    conditions.push(json!({
        "type": "DisruptionTarget", "status": "True", "reason": EVICTED, "message": "Eviction API: evicting",
        "lastTransitionTime": core.clock.now(),
    }));
    state.put(kind, new);
}

fn check_budgets(state: &State, pod: &Value) -> Result<(), Failure> {
    let namespace = meta::namespace(pod);
    for (_, budget) in state.store.iter("poddisruptionbudgets.policy", Some(namespace)) {
        let selector = Labels::of_object(&budget["spec"]["selector"]);
        if !selector.matches(pod) {
            continue;
        }
        let selected = || state.store.iter("pods", Some(namespace)).filter(|(_, pod)| selector.matches(pod));
        let expected = selected().count() as u64;
        let healthy = selected().filter(|(_, pod)| rules::is_ready(pod) && !meta::is_terminating(pod)).count() as u64;
        let spec = &budget["spec"];
        let needed = match (scaled(&spec["minAvailable"], expected), scaled(&spec["maxUnavailable"], expected)) {
            (Some(available), _) => available,
            (None, Some(unavailable)) => expected.saturating_sub(unavailable),
            (None, None) => 0,
        };
        if healthy <= needed {
            return Err(Failure::disruption_budget(meta::name(budget), needed, healthy));
        }
    }
    Ok(())
}

/// Returns a number, or a percentage of `total` rounded up.
fn scaled(value: &Value, total: u64) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => {
            let percent: u64 = text.strip_suffix('%')?.parse().ok()?;
            Some(total.saturating_mul(percent).div_ceil(100))
        }
        _ => None,
    }
}

/// Returns the logs of a container: none before its Pod has a node, and an error later, because no container runs.
pub(crate) fn logs(pod: &Value, container: &str) -> Result<(), Failure> {
    let name = meta::name(pod);
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let all = lists.iter().flat_map(|list| meta::list(pod, &["spec", list]));
    let names: Vec<&str> = all.map(|container| meta::text(container, &["name"])).collect();
    if container.is_empty() && meta::list(pod, &["spec", "containers"]).len() != 1 {
        let choice = names.join(" ");
        let message = format!("a container name must be specified for pod {name}, choose one of: [{choice}]");
        return Err(Failure::bad_request(message));
    }
    if !container.is_empty() && !names.contains(&container) {
        return Err(Failure::bad_request(format!("container {container} is not valid for pod {name}")));
    }
    if meta::text(pod, &["spec", "nodeName"]).is_empty() { Ok(()) } else { Err(Failure::no_logs(name)) }
}

pub(crate) fn bind(
    state: &mut State,
    core: &Core,
    request: &Request,
    key: &Key,
    body: &Value,
) -> Result<Value, Failure> {
    let node = meta::text(body, &["target", "name"]).to_owned();
    let write = handle::write_of(core, request, false);
    assign(state, &write, key, &node)?;
    let mut status = failure::success(None);
    status["code"] = json!(201);
    Ok(status)
}

/// Binds a Pod to a node, which an update cannot do.
pub(crate) fn assign(state: &mut State, write: &Write, key: &Key, node: &str) -> Result<(), Failure> {
    let kind = &*write.kind;
    let old = state.store.get("pods", key).cloned().ok_or_else(|| Failure::not_found(kind, &key.name))?;
    let bound = meta::text(&old, &["spec", "nodeName"]);
    if !bound.is_empty() {
        let why = format!("pod {} is already assigned to node \"{bound}\"", key.name);
        return Err(Failure::conflict(kind, &key.name, &why));
    }
    if meta::is_terminating(&old) {
        let why = format!("pod {} is being deleted, cannot be assigned to a host", key.name);
        return Err(Failure::conflict(kind, &key.name, &why));
    }
    let mut new = Value::clone(&old);
    meta::set(&mut new, &["spec", "nodeName"], node);
    let conditions = meta::array(meta::object(&mut new["status"]).entry("conditions").or_insert(Value::Null));
    conditions.retain(|c| c["type"] != "PodScheduled");
    conditions.push(json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": write.author.time,
    }));
    meta::tidy(&mut new);
    let author = Author { subresource: "binding".into(), ..write.author.clone() };
    crate::managed::record(Some(&old), &mut new, write::schema(kind), &author);
    state.put(kind, new);
    Ok(())
}
