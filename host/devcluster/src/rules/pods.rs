//! Rules of Pods: visible defaults, required fields, permitted updates.

use serde_json::{Map, Value, json};

use super::metadata;
use crate::{failure::Cause, meta, state::ALPHABET};

const UPDATABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
    tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// The mount path of a ServiceAccount's token.
const TOKEN_DIRECTORY: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Adds the volume with the token of the Pod's ServiceAccount and mounts it into each container without a mount at
/// that path, as the admission plugin ServiceAccount does. `account` is the stored ServiceAccount, if there is one.
pub(super) fn mount_token(pod: &mut Value, account: Option<&Value>) {
    let wanted = |object: &Value, path: &[&str]| meta::at(object, path).and_then(Value::as_bool);
    let of_account = account.and_then(|account| wanted(account, &["automountServiceAccountToken"]));
    if wanted(pod, &["spec", "automountServiceAccountToken"]).or(of_account) == Some(false) {
        return;
    }
    let volumes = meta::list(pod, &["spec", "volumes"]);
    let present = volumes.iter().map(|v| meta::text(v, &["name"])).find(|name| name.starts_with("kube-api-access-"));
    let name = present.map_or_else(|| format!("kube-api-access-{}", suffix(pod)), str::to_owned);
    let missing = present.is_none();
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        let Some(containers) = pod["spec"].get_mut(list).and_then(Value::as_array_mut) else { continue };
        for container in containers.iter_mut().filter(|container| container.is_object()) {
            let mounts = meta::array(meta::object(container).entry("volumeMounts").or_insert(Value::Null));
            if mounts.iter().all(|mount| meta::text(mount, &["mountPath"]) != TOKEN_DIRECTORY) {
                mounts.push(json!({"name": name, "readOnly": true, "mountPath": TOKEN_DIRECTORY}));
                mounted = true;
            }
        }
    }
    if mounted && missing {
        let sources = json!([
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
            ]}},
        ]);
        let volume = json!({"name": name, "projected": {"sources": sources, "defaultMode": 0o644}});
        meta::array(meta::object(&mut pod["spec"]).entry("volumes").or_insert(Value::Null)).push(volume);
    }
}

/// Returns five letters that are derived from the Pod's name and time, so that the names of other objects do not
/// depend on them.
fn suffix(pod: &Value) -> String {
    let parts = [meta::namespace(pod), meta::name(pod), meta::text(pod, &["metadata", "creationTimestamp"])];
    // FNV-1a.
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    let mut hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let count = ALPHABET.len() as u64;
    (0..5)
        .map(|_| {
            let letter = ALPHABET[usize::try_from(hash % count).unwrap_or_default()];
            hash /= count;
            char::from(letter)
        })
        .collect()
}

pub(super) fn prepare_create(pod: &mut Value) {
    let spec = &mut pod["spec"];
    let account = match meta::text(spec, &["serviceAccountName"]) {
        "" => "default".to_owned(),
        name => name.to_owned(),
    };
    meta::set(spec, &["serviceAccountName"], account.clone());
    meta::set(spec, &["serviceAccount"], account);
    meta::default(spec, &["priority"], 0);
    meta::default(spec, &["preemptionPolicy"], "PreemptLowerPriority");
    let mut tolerations = meta::list(spec, &["tolerations"]).to_vec();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = tolerations.iter().any(|t| {
            let effect = meta::text(t, &["effect"]);
            let its = meta::text(t, &["key"]);
            (its == key || (its.is_empty() && t["operator"] == "Exists"))
                && (effect.is_empty() || effect == "NoExecute")
        });
        if !tolerated {
            tolerations.push(json!({
                "effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300,
            }));
        }
    }
    meta::set(spec, &["tolerations"], tolerations);
    let mut status = json!({"phase": "Pending", "qosClass": qos(spec)});
    if !meta::list(spec, &["schedulingGates"]).is_empty() {
        status["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    meta::set(pod, &["status"], status);
}

/// Sets the defaults of the types, which happens at every write.
pub(super) fn default_spec(pod: &mut Value) {
    default_template(pod);
    meta::default(pod, &["spec", "enableServiceLinks"], true);
}

/// Sets the defaults that the template of a workload has too.
pub(super) fn default_template(template: &mut Value) {
    let spec = meta::object(template).entry("spec").or_insert(Value::Null);
    for (field, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("securityContext", json!({})),
        ("schedulerName", json!("default-scheduler")),
    ] {
        meta::default(spec, &[field], value);
    }
    for list in ["initContainers", "containers"] {
        let Some(containers) = spec.get_mut(list).and_then(Value::as_array_mut) else { continue };
        containers.iter_mut().filter(|c| c.is_object()).for_each(default_container);
    }
}

fn default_container(container: &mut Value) {
    let image = meta::text(container, &["image"]);
    let tag = image.rsplit('/').next().and_then(|last| last.split_once(':')).map(|(_, tag)| tag);
    let latest = !image.contains('@') && tag.is_none_or(|tag| tag == "latest");
    let policy = if latest { "Always" } else { "IfNotPresent" };
    meta::default(container, &["imagePullPolicy"], policy);
    meta::default(container, &["terminationMessagePath"], "/dev/termination-log");
    meta::default(container, &["terminationMessagePolicy"], "File");
    meta::default(container, &["resources"], json!({}));
    if let Some(Value::Object(limits)) = meta::at(container, &["resources", "limits"]).cloned() {
        for (name, quantity) in limits {
            meta::default(container, &["resources", "requests", &name], quantity);
        }
    }
    if let Some(ports) = container.get_mut("ports").and_then(Value::as_array_mut) {
        ports.iter_mut().filter(|p| p.is_object()).for_each(|p| meta::default(p, &["protocol"], "TCP"));
    }
}

fn qos(spec: &Value) -> &'static str {
    let quantities = |container: &Value, which: &str| -> Map<String, Value> {
        let all = meta::at(container, &["resources", which]).and_then(Value::as_object).cloned().unwrap_or_default();
        all.into_iter().filter(|(name, _)| name == "cpu" || name == "memory").collect()
    };
    let mut any = false;
    let mut guaranteed = true;
    for list in ["initContainers", "containers"] {
        for container in meta::list(spec, &[list]) {
            let limits = quantities(container, "limits");
            let requests = quantities(container, "requests");
            any |= !limits.is_empty() || !requests.is_empty();
            guaranteed &= limits.len() == 2 && limits == requests;
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

pub(super) fn check_create(pod: &Value, causes: &mut Vec<Cause>) {
    let spec = &pod["spec"];
    if meta::list(spec, &["containers"]).is_empty() {
        causes.push(Cause::required("spec.containers", ""));
    }
    let volumes: Vec<&str> = meta::list(spec, &["volumes"]).iter().map(|v| meta::text(v, &["name"])).collect();
    let mut names: Vec<&str> = Vec::new();
    for list in ["initContainers", "containers"] {
        for (index, container) in meta::list(spec, &[list]).iter().enumerate() {
            let field = |name: &str| format!("spec.{list}[{index}].{name}");
            let name = meta::text(container, &["name"]);
            if name.is_empty() {
                causes.push(Cause::required(field("name"), ""));
            } else if !metadata::is_label(name) || name.len() > 63 {
                causes.push(Cause::invalid(field("name"), &name.into(), metadata::LABEL));
            } else if names.contains(&name) {
                causes.push(Cause::duplicate(field("name"), &name.into()));
            }
            names.push(name);
            if meta::text(container, &["image"]).is_empty() {
                causes.push(Cause::required(field("image"), ""));
            }
            for (at, mount) in meta::list(container, &["volumeMounts"]).iter().enumerate() {
                let volume = meta::text(mount, &["name"]);
                if !volumes.contains(&volume) {
                    causes.push(Cause::not_found(field(&format!("volumeMounts[{at}].name")), &volume.into()));
                }
            }
        }
    }
    let policy = &spec["restartPolicy"];
    if !["Always", "OnFailure", "Never"].iter().any(|known| policy == known) {
        causes.push(Cause::unsupported("spec.restartPolicy", policy, &["Always", "OnFailure", "Never"]));
    }
}

pub(super) fn check_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    for list in ["initContainers", "containers"] {
        for (index, container) in meta::list(&new["spec"], &[list]).iter().enumerate() {
            if meta::text(container, &["image"]).is_empty() {
                causes.push(Cause::required(format!("spec.{list}[{index}].image"), ""));
            }
        }
    }
    let mut allowed = new["spec"].clone();
    let before = &old["spec"];
    for list in ["initContainers", "containers"] {
        if let Some(containers) = allowed.get_mut(list).and_then(Value::as_array_mut) {
            for (container, old) in containers.iter_mut().zip(meta::list(before, &[list])) {
                meta::copy(old, container, &["image"]);
            }
        }
    }
    meta::copy(before, &mut allowed, &["activeDeadlineSeconds"]);
    let kept = meta::list(before, &["tolerations"]).iter().all(|t| meta::list(&allowed, &["tolerations"]).contains(t));
    if kept {
        meta::copy(before, &mut allowed, &["tolerations"]);
    }
    let gates = meta::list(before, &["schedulingGates"]);
    if meta::list(&allowed, &["schedulingGates"]).iter().all(|g| gates.contains(g)) {
        meta::copy(before, &mut allowed, &["schedulingGates"]);
    }
    if allowed != *before {
        causes.push(Cause::forbidden("spec", UPDATABLE));
    }
}

pub(super) fn check_status(pod: &Value, causes: &mut Vec<Cause>) {
    for (index, condition) in meta::list(pod, &["status", "conditions"]).iter().enumerate() {
        let kind = meta::text(condition, &["type"]);
        for detail in metadata::unqualified(kind) {
            causes.push(Cause::invalid(format!("status.conditions[{index}].Type"), &kind.into(), &detail));
        }
    }
}

/// Returns true if the Pod's Ready condition is true.
pub(crate) fn is_ready(pod: &Value) -> bool {
    meta::condition(pod, "Ready").is_some_and(|c| c["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Value {
        let mut pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "x/y:1"}]}});
        default_spec(&mut pod);
        prepare_create(&mut pod);
        pod
    }

    #[test]
    fn a_new_pod_is_pending_with_the_servers_defaults() {
        let pod = pod();
        assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
        assert_eq!(pod["spec"]["containers"][0]["imagePullPolicy"], "IfNotPresent");
        assert_eq!(pod["spec"]["serviceAccountName"], "default");
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn the_token_is_mounted_unless_pod_or_account_opts_out() {
        let mounts = |pod: &Value, at: usize| pod["spec"]["containers"][at]["volumeMounts"].clone();
        let mut plain = pod();
        mount_token(&mut plain, None);
        let name = meta::text(&plain["spec"]["volumes"][0], &["name"]).to_owned();
        assert!(name.starts_with("kube-api-access-") && name.len() == 21, "{name}");
        assert_eq!(mounts(&plain, 0), json!([{"name": name, "readOnly": true, "mountPath": TOKEN_DIRECTORY}]));
        let before = plain.clone();
        mount_token(&mut plain, None);
        assert_eq!(plain, before);
        let out = json!({"automountServiceAccountToken": false});
        let mut refused = pod();
        mount_token(&mut refused, Some(&out));
        assert_eq!(refused, pod());
        refused["spec"]["automountServiceAccountToken"] = json!(true);
        mount_token(&mut refused, Some(&out));
        assert_eq!(mounts(&refused, 0).as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn an_image_may_change_and_a_container_may_not() {
        let (old, mut new, mut causes) = (pod(), pod(), Vec::new());
        new["spec"]["containers"][0]["image"] = json!("x/y:2");
        check_update(&old, &new, &mut causes);
        assert!(causes.is_empty());
        new["spec"]["containers"][0]["name"] = json!("other");
        check_update(&old, &new, &mut causes);
        assert_eq!(causes.len(), 1);
    }
}
