//! Pods as an API server writes them.

use serde_json::{Value, json};

/// Returns a Pod of a workload, as an API server writes it. All values in which Pods of one workload differ depend on
/// `own`.
pub fn pod_json(workload: usize, own: u64, phase: &str) -> Value {
    let hex = |seed: u64, digits: usize| {
        let mut text = String::new();
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        while text.len() < digits {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            text += &format!("{:016x}", state);
        }
        text.truncate(digits);
        text
    };
    let uuid = |seed| {
        let text = hex(seed, 32);
        format!("{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..])
    };
    let time = |offset: u64| {
        format!("2026-03-{:02}T{:02}:{:02}:{:02}Z", 1 + own % 28, offset % 24, own % 60, (own + offset) % 60)
    };
    let set = format!("web-{workload}-5d9c7b8f");
    let name = format!("{set}-{}", &hex(own, 5));
    let address = format!("10.{}.{}.{}", own % 4, own / 7 % 256, own % 250 + 1);
    let node = format!("node-{}", own % 17);
    let volume = format!("kube-api-access-{}", &hex(own + 1, 5));
    let started = json!({"running": {"startedAt": time(3)}});
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "name": name, "generateName": format!("{set}-"), "namespace": "shop", "uid": uuid(own),
            "resourceVersion": (1_000 + own).to_string(), "generation": 1, "creationTimestamp": time(1),
            "labels": {"app": format!("web-{workload}"), "pod-template-hash": "5d9c7b8f"},
            "annotations": {"kubectl.kubernetes.io/restartedAt": time(2), "note": "it \"quotes\" {braces}"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": uuid(workload as u64 + 99),
                "controller": true, "blockOwnerDeletion": true,
            }],
            "managedFields": [{
                "manager": "kubelet", "fieldsV1": {"f:status": {"k:{\"type\":\"Ready\"}": {}}}, "time": time(9),
            }],
        },
        "spec": {
            "volumes": [
                {"name": volume, "projected": {"sources": []}},
                {"name": "data", "persistentVolumeClaim": {"claimName": format!("data-{name}")}},
            ],
            "containers": [{
                "name": "app", "image": "registry.example/app:1.2",
                "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                "env": [{"name": "A", "value": "b\\c"}], "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                "volumeMounts": [{"name": volume, "mountPath": "/var/run"}],
            }],
            "restartPolicy": "Always", "nodeName": node, "hostname": name,
            // After nodeName, because affinity follows it in the order of an API server.
            "zone": {"nodeAffinity": {"values": [node]}},
            "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        },
        "status": {
            "phase": phase, "hostIP": format!("192.168.0.{}", own % 17), "podIP": address,
            "podIPs": [{"ip": address}], "startTime": time(1),
            "conditions": [
                {"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": time(4)},
                {
                    "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": time(1),
                    "futureField": [1, {"x": time(5)}],
                },
            ],
            "containerStatuses": [{
                "name": "app", "state": started, "lastState": {}, "ready": true, "restartCount": own % 5,
                "image": "registry.example/app:1.2",
                "imageID": format!("registry.example/app@sha256:{}", hex(workload as u64, 64)),
                "containerID": format!("containerd://{}", hex(own, 64)), "started": true,
            }],
            "qosClass": "Burstable",
        },
    })
}

/// Formats an object with its members in the order of an API server; any other order is read as well.
pub fn written(object: &Value) -> String {
    const ORDER: [&str; 14] = [
        "kind",
        "apiVersion",
        "metadata",
        "spec",
        "status",
        "name",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "labels",
        "annotations",
    ];
    let in_order = |object: &Value, write: &dyn Fn(&str, &Value) -> String| {
        let mut members: Vec<_> = object.as_object().unwrap().iter().collect();
        let last = |key: &str| if key == "managedFields" { ORDER.len() + 1 } else { ORDER.len() };
        members.sort_by_key(|(key, _)| ORDER.iter().position(|member| member == key).unwrap_or_else(|| last(key)));
        let members: Vec<_> = members.iter().map(|(key, value)| format!("\"{key}\":{}", write(key, value))).collect();
        format!("{{{}}}", members.join(","))
    };
    in_order(object, &|key, value| match key {
        "metadata" => in_order(value, &|_, value| value.to_string()),
        _ => value.to_string(),
    })
}
