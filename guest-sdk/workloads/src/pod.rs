//! Pods as controllers see them, and new Pods from a template.

use std::{cmp::Reverse, collections::BTreeMap};

use serde_json::{Value, json};

use crate::{Kind, Step, object, time, world::World};

pub(crate) fn phase(pod: &Value) -> &str {
    object::text(pod, &["status", "phase"])
}

pub(crate) fn is_finished(pod: &Value) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Returns true if the Pod counts as a replica: it neither finished nor is being deleted.
pub(crate) fn is_active(pod: &Value) -> bool {
    !is_finished(pod) && !object::is_terminating(pod)
}

fn ready_condition(pod: &Value) -> Option<&Value> {
    let conditions = object::list(pod, &["status", "conditions"]);
    conditions.iter().find(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    ready_condition(pod).is_some()
}

/// Returns true if the Pod has been ready for `minReadySeconds` of its controller. One that will be, wakes the step.
pub(crate) fn is_available(world: &World<'_>, controller: &Value, pod: &Value, step: &mut Step) -> bool {
    let Some(ready) = ready_condition(pod) else { return false };
    let wait = object::number(controller, &["spec", "minReadySeconds"]).unwrap_or_default();
    let since = time::parse(object::text(ready, &["lastTransitionTime"]));
    let Some(at) = since.map(|since| since.saturating_add(wait)).filter(|_| wait > 0) else { return wait == 0 };
    if at > world.now {
        step.wake_at(at);
    }
    at <= world.now
}

/// Returns the restarts of all containers.
pub(crate) fn restarts(pod: &Value) -> i64 {
    let statuses = object::list(pod, &["status", "containerStatuses"]).iter();
    statuses.filter_map(|status| object::number(status, &["restartCount"])).sum()
}

/// Returns the time at which the last container ended.
pub(crate) fn finished_at(pod: &Value) -> Option<i64> {
    let statuses = object::list(pod, &["status", "containerStatuses"]).iter();
    let ends = statuses.filter_map(|status| time::parse(object::text(status, &["state", "terminated", "finishedAt"])));
    ends.max()
}

/// Sorts Pods so that those come first which a smaller replica count needs least, as the ReplicaSet controller does.
pub(crate) fn sort_for_deletion(pods: &mut [&Value]) {
    let node = |pod: &Value| object::text(pod, &["spec", "nodeName"]).to_owned();
    let mut crowd: BTreeMap<String, usize> = BTreeMap::new();
    for pod in pods.iter() {
        *crowd.entry(node(pod)).or_default() += 1;
    }
    pods.sort_by_cached_key(|pod| {
        let phase = match phase(pod) {
            "Running" => 2,
            "Unknown" => 1,
            _ => 0,
        };
        let cost = object::annotation(pod, "controller.kubernetes.io/pod-deletion-cost").parse::<i32>();
        let node = node(pod);
        let first = (!node.is_empty(), phase, is_ready(pod), cost.unwrap_or_default());
        let (created, name) = object::age(pod);
        let crowded = Reverse(crowd.get(&node).copied().unwrap_or_default());
        let since = ready_condition(pod).and_then(|ready| time::parse(object::text(ready, &["lastTransitionTime"])));
        (first, crowded, Reverse(since), Reverse(restarts(pod)), Reverse(created.to_owned()), name.to_owned())
    });
}

/// Returns a Pod of a template.
pub(crate) fn from_template(template: &Value, name: &str, owner_kind: Kind, owner: &Value) -> Value {
    let mut pod = object::dependent(Kind::Pod, name, owner_kind, owner);
    for field in ["labels", "annotations", "finalizers"] {
        let value = object::at(template, &["metadata", field]);
        if !value.is_null() {
            pod["metadata"][field] = value.clone();
        }
    }
    pod["spec"] = template.get("spec").cloned().unwrap_or_else(|| json!({}));
    pod
}

/// Returns new Pods of a template with generated names, which begin with the owner's.
pub(crate) fn generate(world: &World<'_>, owner_kind: Kind, owner: &Value, count: i64) -> Vec<Value> {
    let template = object::at(owner, &["spec", "template"]);
    let prefix = format!("{}-", object::name(owner));
    let names = world.pod_names(owner, &prefix, usize::try_from(count).unwrap_or_default());
    let new = names.iter().map(|name| {
        let mut pod = from_template(template, name, owner_kind, owner);
        pod["metadata"]["generateName"] = prefix.clone().into();
        pod
    });
    new.collect()
}
