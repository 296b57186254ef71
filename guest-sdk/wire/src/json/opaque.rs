//! The strings of a Pod's JSON that the decoder passes on unread: two Pods that differ only in such a string differ
//! in nothing else. A cache may therefore store the string apart from the rest of the Pod.
//!
//! The list belongs to the decoder and changes with it; a test decodes many values at every position. Numbers,
//! booleans, null and empty strings are never opaque: the decoder treats an empty string as an absent one.

/// Paths at which the decoder reads the value of a string.
const INTERPRETED: &[&[&str]] = &[
    &["metadata", "namespace"],
    &["metadata", "name"],
    &["metadata", "uid"],
    &["metadata", "resourceVersion"],
    &["metadata", "creationTimestamp"],
    &["metadata", "deletionTimestamp"],
    &["spec", "restartPolicy"],
    &["status", "startTime"],
    &["status", "conditions", "status"],
    &["status", "conditions", "lastTransitionTime"],
];
/// Lists of container statuses; in each entry, the times of `state` and `lastState` are read.
const CONTAINER_STATUSES: &[&str] = &["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];

/// Returns true if [`super::decode`] ignores a string at this path, or passes on any string that is not empty.
///
/// `path` contains the names of the members that lead to the string, starting at the object; the elements of a list
/// have the path of the list. Names are compared literally, so a name with an escape must not be passed.
#[must_use]
pub fn is_opaque(path: &[&str]) -> bool {
    let is_time = match path {
        ["status", statuses, "state" | "lastState", "running", "startedAt"]
        | ["status", statuses, "state" | "lastState", "terminated", "startedAt" | "finishedAt"] => {
            CONTAINER_STATUSES.contains(statuses)
        }
        _ => false,
    };
    !is_time && !INTERPRETED.contains(&path)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::json::decode_value;

    /// An object with every field that the decoder reads, and some that it ignores.
    fn object() -> Value {
        let container = json!({
            "name": "app", "image": "image", "imagePullPolicy": "Always", "restartPolicy": "Always",
            "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
            "ports": [{"name": "http", "containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
            "env": [{"name": "KEY", "value": "value", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
            "command": ["run", "it"], "later": {"status": "True", "startedAt": "x"},
        });
        let time = "2026-01-02T03:04:05Z";
        let status = |state: Value| {
            json!({
                "name": "app", "ready": true, "started": true, "restartCount": 1, "image": "image", "imageID": "id",
                "containerID": "containerd://id", "state": state,
                "lastState": {"terminated": {
                    "exitCode": 1, "reason": "Error", "message": "text", "startedAt": time, "finishedAt": time,
                }},
            })
        };
        json!({
            "later": "text",
            "metadata": {
                "namespace": "shop", "name": "web", "generateName": "web-", "uid": "u", "resourceVersion": "5",
                "generation": 1, "creationTimestamp": time, "deletionTimestamp": time, "deletionGracePeriodSeconds": 1,
                "labels": {"a": "b"}, "annotations": {"a": "b", "status": "c"}, "finalizers": ["a", "b"],
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "K", "name": "n", "uid": "u", "controller": true,
                    "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "nodeName": "node", "serviceAccountName": "a", "restartPolicy": "Always", "schedulerName": "s",
                "priority": 1, "priorityClassName": "p", "hostNetwork": true, "terminationGracePeriodSeconds": 1,
                "activeDeadlineSeconds": 1, "runtimeClassName": "r", "nodeSelector": {"a": "b"},
                "tolerations": [
                    {"key": "k", "operator": "Exists", "value": "v", "effect": "NoExecute", "tolerationSeconds": 1},
                ],
                "schedulingGates": [{"name": "g"}],
                "volumes": [{"name": "v", "configMap": {"name": "c"}}, {"odd": "text", "name": "v"}],
                "initContainers": [container], "containers": [container, container], "ephemeralContainers": [container],
                "later": {"restartPolicy": "text"},
            },
            "status": {
                "phase": "Running", "reason": "r", "message": "m", "qosClass": "Burstable", "hostIP": "h", "podIP": "p",
                "podIPs": [{"ip": "i"}, {"ip": "j"}], "hostIPs": [{"ip": "i"}], "startTime": time,
                "nominatedNodeName": "n",
                "conditions": [
                    {"type": "Ready", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": time},
                    {"type": "Other", "status": "odd", "later": {"status": "True"}},
                ],
                "initContainerStatuses": [status(json!({"waiting": {"reason": "r", "message": "m"}}))],
                "containerStatuses": [status(json!({"running": {"startedAt": time}})), status(json!({}))],
                "ephemeralContainerStatuses": [
                    status(json!({"terminated": {"exitCode": 0, "startedAt": time, "finishedAt": time}})),
                ],
            },
        })
    }

    /// Calls `found` with the path and the JSON pointer of each string.
    fn each_string(value: &Value, path: &mut Vec<String>, pointer: &str, found: &mut Vec<(Vec<String>, String)>) {
        match value {
            Value::String(_) => found.push((path.clone(), pointer.to_owned())),
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    each_string(item, path, &format!("{pointer}/{at}"), found);
                }
            }
            Value::Object(members) => {
                for (key, member) in members {
                    path.push(key.clone());
                    each_string(member, path, &format!("{pointer}/{key}"), found);
                    path.pop();
                }
            }
            _ => {}
        }
    }

    fn replaced(value: Value, from: &str, to: &str) -> Value {
        match value {
            Value::String(text) if text == from => to.into(),
            Value::Array(items) => items.into_iter().map(|item| replaced(item, from, to)).collect(),
            Value::Object(members) => {
                members.into_iter().map(|(key, member)| (key, replaced(member, from, to))).collect()
            }
            other => other,
        }
    }

    #[test]
    fn opaque_strings_are_passed_on_unread_and_all_others_are_read() {
        const SENTINEL: &str = "a sentinel";
        // Values that the decoder interprets at some position, and values that it interprets nowhere.
        let values = ["True", "False", "Always", "Never", "2026-01-02T03:04:05Z", "5", "null", "\u{0}\"\\é", " "];
        let object = object();
        let mut strings = Vec::new();
        each_string(&object, &mut Vec::new(), "", &mut strings);
        let decoded = |pointer: &str, text: &str| {
            let mut object = object.clone();
            *object.pointer_mut(pointer).unwrap() = text.into();
            decode_value(&object).map(|pod| {
                json!([pod.header, pod.labels, pod.annotations, pod.owners, pod.lifecycle, pod.spec, pod.status])
            })
        };
        let mut opaque = 0;
        let mut others = 0;
        for (path, pointer) in strings {
            let path: Vec<_> = path.iter().map(String::as_str).collect();
            let traced = decoded(&pointer, SENTINEL);
            let passes_on = values.iter().all(|value| match (&traced, decoded(&pointer, value)) {
                (Ok(traced), Ok(pod)) => replaced(traced.clone(), SENTINEL, value) == pod,
                _ => false,
            });
            // A name or a uid is passed on too, but a cache needs them separately.
            let is_identity = matches!(path[..], ["metadata", "namespace" | "name" | "uid" | "resourceVersion"]);
            assert_eq!(is_opaque(&path), passes_on && !is_identity, "{pointer}");
            *if is_opaque(&path) { &mut opaque } else { &mut others } += 1;
        }
        assert!(opaque > 100 && others > 15, "{opaque} and {others}");
    }
}
