//! The status that a kubelet reports, step by step.

use serde_json::{Value, json};

use super::{BEHAVIOUR, Pace, step};
use crate::meta;

pub(super) fn unschedulable(pod: &mut Value, now: &str) {
    let condition = json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0 nodes are available.", "lastTransitionTime": now,
    });
    set_condition(pod, condition);
}

pub(super) fn start(pod: &mut Value, host: &str, address: &str, now: &str) {
    let statuses: Vec<Value> = meta::list(pod, &["spec", "containers"])
        .iter()
        .map(|container| {
            let name = meta::text(container, &["name"]);
            let image = meta::text(container, &["image"]);
            json!({
                "name": name, "image": image, "imageID": format!("{image}@devcluster"),
                "containerID": format!("podium://{}/{name}/0", meta::uid(pod)),
                "ready": true, "started": true, "restartCount": 0, "lastState": {},
                "state": {"running": {"startedAt": now}},
            })
        })
        .collect();
    let status = &mut pod["status"];
    meta::set(status, &["phase"], "Running");
    meta::set(status, &["startTime"], now);
    if !host.is_empty() {
        meta::set(status, &["hostIP"], host);
        meta::set(status, &["hostIPs"], json!([{"ip": host}]));
    }
    meta::set(status, &["podIP"], address);
    meta::set(status, &["podIPs"], json!([{"ip": address}]));
    meta::set(status, &["containerStatuses"], statuses);
    for kind in ["PodReadyToStartContainers", "Initialized"] {
        set_condition(pod, json!({"type": kind, "status": "True", "lastTransitionTime": now}));
    }
    set_ready(pod, true, "", now);
}

/// Returns true for a Pod that its controller would replace for ever, because its containers are always restarted.
fn is_of_workload(pod: &Value) -> bool {
    let mut owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.any(|owner| owner["controller"] == true && owner["apiVersion"] == "apps/v1")
}

pub(super) fn exit(pod: &mut Value, now: &str) {
    let (code, reason, restarts) = match meta::annotation(pod, BEHAVIOUR).unwrap_or_default() {
        "finish" => (0, "Completed", false),
        "fail" => (1, "Error", false),
        "oom" => (137, "OOMKilled", true),
        _ => (1, "Error", true),
    };
    let restarts = restarts && pod["spec"]["restartPolicy"] != "Never" || is_of_workload(pod);
    each_status(pod, |status| {
        let started = meta::text(status, &["state", "running", "startedAt"]).to_owned();
        let terminated = json!({
            "exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now,
            "containerID": status["containerID"],
        });
        meta::set(status, &["state"], json!({"terminated": terminated}));
        meta::set(status, &["ready"], false);
        meta::set(status, &["started"], false);
    });
    let waiting = if code == 0 { "PodCompleted" } else { "ContainersNotReady" };
    set_ready(pod, false, waiting, now);
    if !restarts {
        meta::set(pod, &["status", "phase"], if code == 0 { "Succeeded" } else { "Failed" });
    }
}

pub(super) fn back_off(pod: &mut Value, pace: &Pace, now: &str) {
    let uid = meta::uid(pod).to_owned();
    let name = meta::name(pod).to_owned();
    let namespace = meta::namespace(pod).to_owned();
    each_status(pod, |status| {
        let wait = step::back_off(status, pace).as_secs();
        let container = meta::text(status, &["name"]).to_owned();
        let message = format!("back-off {wait}s restarting failed container={container} pod={name}_{namespace}({uid})");
        let last = status["state"].clone();
        meta::set(status, &["lastState"], last);
        meta::set(status, &["state"], json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}}));
    });
    set_ready(pod, false, "ContainersNotReady", now);
}

pub(super) fn restart(pod: &mut Value, now: &str) {
    let uid = meta::uid(pod).to_owned();
    each_status(pod, |status| {
        let restarts = status["restartCount"].as_u64().unwrap_or(0) + 1;
        let name = meta::text(status, &["name"]).to_owned();
        meta::set(status, &["restartCount"], restarts);
        meta::set(status, &["containerID"], format!("podium://{uid}/{name}/{restarts}"));
        meta::set(status, &["state"], json!({"running": {"startedAt": now}}));
        meta::set(status, &["ready"], true);
        meta::set(status, &["started"], true);
    });
    set_ready(pod, true, "", now);
}

fn each_status(pod: &mut Value, change: impl FnMut(&mut Value)) {
    if let Some(statuses) = pod.pointer_mut("/status/containerStatuses").and_then(Value::as_array_mut) {
        statuses.iter_mut().for_each(change);
    }
}

fn set_ready(pod: &mut Value, ready: bool, reason: &str, now: &str) {
    for kind in ["Ready", "ContainersReady"] {
        let mut condition =
            json!({"type": kind, "status": if ready { "True" } else { "False" }, "lastTransitionTime": now});
        if !reason.is_empty() {
            condition["reason"] = json!(reason);
        }
        set_condition(pod, condition);
    }
}

/// Sets a condition. Other writers' conditions stay; a condition whose status stays keeps its time.
fn set_condition(pod: &mut Value, mut condition: Value) {
    let kind = condition["type"].clone();
    let conditions = meta::array(meta::object(&mut pod["status"]).entry("conditions").or_insert(Value::Null));
    match conditions.iter_mut().find(|c| c["type"] == kind) {
        Some(found) => {
            if found["status"] == condition["status"] {
                meta::copy(found, &mut condition, &["lastTransitionTime"]);
            }
            *found = condition;
        }
        None => conditions.push(condition),
    }
}
