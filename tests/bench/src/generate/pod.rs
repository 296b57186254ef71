//! One Pod object of a workload in one state, in the API server's order of fields, with placeholders.

use super::{
    draft::Draft,
    json::{Json, list, number, object, text},
    own::Own,
    resize,
    template::{Hole, container_numbers, init_container_numbers, push_digest},
    workload::{Kind, Phase},
};

pub(super) fn pod(draft: &Draft, phase: Phase) -> Json {
    let status = status(draft, phase);
    object([
        ("kind", text("Pod")),
        ("apiVersion", text("v1")),
        ("metadata", metadata(draft, &status, phase)),
        ("spec", spec(draft, true)),
        ("status", status),
    ])
}

fn metadata(draft: &Draft, status: &Json, phase: Phase) -> Json {
    let mut annotations = draft.annotations.clone();
    let scheduled = phase != Phase::Pending;
    for (_, of_network) in draft.network.iter().filter(|_| scheduled) {
        if let (Json::Object(all), Json::Object(more)) = (&mut annotations, of_network) {
            all.extend(more.iter().cloned());
            all.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
    }
    object([
        ("name", Hole::Name.text()),
        ("generateName", text(draft.prefix.as_str())),
        ("namespace", text(draft.namespace.as_str())),
        ("uid", Hole::Uid.text()),
        ("resourceVersion", Hole::Revision.text()),
        ("generation", Json::Number(Hole::Generation.character().to_string())),
        ("creationTimestamp", Hole::Created.text()),
        ("labels", draft.labels.clone()),
        ("annotations", annotations),
        ("ownerReferences", list([draft.owner.clone()])),
        ("managedFields", managed_fields(draft, status, phase)),
    ])
}

/// Returns the fields that the controller wrote, the network plugin annotated and the kubelet reports. The
/// scheduler's binding is not recorded there.
fn managed_fields(draft: &Draft, status: &Json, phase: Phase) -> Json {
    let entry = |manager: &str, time: Hole, fields: Json, status: bool| {
        let mut entry = object([
            ("manager", text(manager)),
            ("operation", text("Update")),
            ("apiVersion", text("v1")),
            ("time", time.text()),
            ("fieldsType", text("FieldsV1")),
            ("fieldsV1", fields),
        ]);
        if status {
            entry.set("subresource", text("status"));
        }
        entry
    };
    let metadata = object([
        ("annotations", draft.annotations.clone()),
        ("generateName", text("")),
        ("labels", draft.labels.clone()),
        ("ownerReferences", list([draft.owner.clone()])),
    ]);
    let written = object([("f:metadata", metadata.owned("metadata")), ("f:spec", spec(draft, false).owned("spec"))]);
    let mut entries = vec![entry("kube-controller-manager", Hole::Created, written, false)];
    if phase != Phase::Pending {
        for (manager, of_network) in &draft.network {
            let mut fields = of_network.owned("annotations");
            if let Json::Object(fields) = &mut fields {
                fields.remove(0);
            }
            let fields = object([("f:metadata", object([("f:annotations", fields)]))]);
            entries.push(entry(manager, Hole::Sandbox, fields, true));
        }
        let mut reported = status.clone();
        if let Json::Object(fields) = &mut reported {
            fields.retain(|(key, _)| key != "qosClass");
        }
        entries.push(entry("kubelet", Hole::Reported, object([("f:status", reported.owned("status"))]), true));
    }
    list(entries)
}

/// Returns the spec; with `stored` including the fields that admission, the token controller and the scheduler added.
fn spec(draft: &Draft, stored: bool) -> Json {
    let token = format!("kube-api-access-{}", Hole::Token.character());
    let mut volumes = draft.volumes.clone();
    let with_token = |containers: &[Json]| {
        let mut containers = containers.to_vec();
        if stored {
            for container in &mut containers {
                if let Some(Json::List(mounts)) = container.get_mut("volumeMounts") {
                    mounts.push(object([
                        ("name", text(token.as_str())),
                        ("readOnly", Json::Bool(true)),
                        ("mountPath", text("/var/run/secrets/kubernetes.io/serviceaccount")),
                    ]));
                }
            }
        }
        Json::List(containers)
    };
    if stored {
        volumes.push(token_volume(&token));
    }
    let mut spec = object([("volumes", Json::List(volumes))]);
    if !draft.init_containers.is_empty() {
        spec.set("initContainers", with_token(&draft.init_containers));
    }
    spec.set("containers", with_token(&draft.containers));
    spec.set("restartPolicy", text(if draft.kind == Kind::Job { "Never" } else { "Always" }));
    spec.set("terminationGracePeriodSeconds", number(30));
    spec.set("dnsPolicy", text("ClusterFirst"));
    spec.set("nodeSelector", object([("kubernetes.io/os", text("linux"))]));
    spec.set("serviceAccountName", text(draft.service_account.as_str()));
    spec.set("serviceAccount", text(draft.service_account.as_str()));
    if stored {
        spec.set("nodeName", Hole::Node.text());
    }
    let seccomp = object([("type", text("RuntimeDefault"))]);
    spec.set(
        "securityContext",
        object([("runAsUser", number(1000)), ("fsGroup", number(1000)), ("seccompProfile", seccomp)]),
    );
    spec.set("imagePullSecrets", list([object([("name", text("registry"))])]));
    if draft.kind == Kind::StatefulSet {
        spec.set("hostname", Hole::Name.text());
        spec.set("subdomain", text(draft.prefix.trim_end_matches('-')));
    }
    if draft.kind == Kind::DaemonSet {
        spec.set("affinity", on_its_node());
    }
    spec.set("schedulerName", text("default-scheduler"));
    if stored || draft.kind == Kind::DaemonSet {
        spec.set("tolerations", tolerations(draft.kind));
    }
    if stored {
        spec.set("priority", number(0));
    }
    spec.set("enableServiceLinks", Json::Bool(true));
    if stored {
        spec.set("preemptionPolicy", text("PreemptLowerPriority"));
    }
    if draft.topology_spread {
        let selector = object([("matchLabels", object([("app.kubernetes.io/part-of", text("shop"))]))]);
        spec.set(
            "topologySpreadConstraints",
            list([object([
                ("maxSkew", number(1)),
                ("topologyKey", text("topology.kubernetes.io/zone")),
                ("whenUnsatisfiable", text("ScheduleAnyway")),
                ("labelSelector", selector),
            ])]),
        );
    }
    spec
}

fn token_volume(name: &str) -> Json {
    let item = |key: &str, value: &str, rest: Vec<(&str, Json)>| {
        let mut item = object([(key, text(value))]);
        rest.into_iter().for_each(|(key, value)| item.set(key, value));
        list([item])
    };
    let token = object([("expirationSeconds", number(3607)), ("path", text("token"))]);
    let certificate =
        object([("name", text("kube-root-ca.crt")), ("items", item("key", "ca.crt", vec![("path", text("ca.crt"))]))]);
    let field = object([("apiVersion", text("v1")), ("fieldPath", text("metadata.namespace"))]);
    let namespace = object([("items", item("path", "namespace", vec![("fieldRef", field)]))]);
    let sources = list([
        object([("serviceAccountToken", token)]),
        object([("configMap", certificate)]),
        object([("downwardAPI", namespace)]),
    ]);
    object([("name", text(name)), ("projected", object([("sources", sources), ("defaultMode", number(420))]))])
}

fn on_its_node() -> Json {
    let field =
        object([("key", text("metadata.name")), ("operator", text("In")), ("values", list([Hole::Node.text()]))]);
    let terms = list([object([("matchFields", list([field]))])]);
    let required = object([("nodeSelectorTerms", terms)]);
    object([("nodeAffinity", object([("requiredDuringSchedulingIgnoredDuringExecution", required)]))])
}

fn tolerations(kind: Kind) -> Json {
    let toleration = |key: &str, effect: &str, seconds: Option<i64>| {
        let key = format!("node.kubernetes.io/{key}");
        let mut toleration = object([("key", text(key)), ("operator", text("Exists")), ("effect", text(effect))]);
        if let Some(seconds) = seconds {
            toleration.set("tolerationSeconds", number(seconds));
        }
        toleration
    };
    let no_schedule = ["disk-pressure", "memory-pressure", "pid-pressure", "unschedulable"];
    match kind {
        Kind::DaemonSet => list(
            ["not-ready", "unreachable"]
                .map(|key| toleration(key, "NoExecute", None))
                .into_iter()
                .chain(no_schedule.map(|key| toleration(key, "NoSchedule", None))),
        ),
        _ => list(["not-ready", "unreachable"].map(|key| toleration(key, "NoExecute", Some(300)))),
    }
}

fn status(draft: &Draft, phase: Phase) -> Json {
    let name = match phase {
        Phase::Pending => "Pending",
        Phase::Succeeded => "Succeeded",
        Phase::Running | Phase::Recovered | Phase::Unready | Phase::Crashed => "Running",
    };
    let mut status = object([
        ("observedGeneration", observed_generation()),
        ("phase", text(name)),
        ("conditions", conditions(draft, phase)),
        ("hostIP", Hole::HostIp.text()),
        ("hostIPs", addresses(Hole::HostIp, draft.dual_stack.then_some(Own::HostIp6))),
    ]);
    if phase != Phase::Pending {
        status.set("podIP", Hole::PodIp.text());
        status.set("podIPs", addresses(Hole::PodIp, draft.dual_stack.then_some(Own::PodIp6)));
    }
    status.set("startTime", Hole::Scheduled.text());
    let status_of = |(container, at): (&Json, u8), phase: Phase| container_status(draft, container, at, phase);
    if !draft.init_containers.is_empty() {
        let statuses = draft.init_containers.iter().zip(init_container_numbers()).map(|(container, at)| {
            let phase = match phase {
                Phase::Pending | Phase::Succeeded => phase,
                _ if is_sidecar(container) => Phase::Running,
                _ => Phase::Succeeded,
            };
            status_of((container, at), phase)
        });
        status.set("initContainerStatuses", list(statuses));
    }
    let statuses = draft.containers.iter().zip(container_numbers()).map(|container| status_of(container, phase));
    status.set("containerStatuses", list(statuses));
    status.set("qosClass", text("Burstable"));
    status
}

fn observed_generation() -> Json {
    Json::Number(Hole::ObservedGeneration.character().to_string())
}

/// Returns the addresses, of which the first is IPv4.
fn addresses(first: Hole, second: Option<Own>) -> Json {
    let all = [first].into_iter().chain(second.map(Hole::Own));
    list(all.map(|address| object([("ip", address.text())])))
}

fn conditions(draft: &Draft, phase: Phase) -> Json {
    let first = draft.containers.first().and_then(|container| container.get("name")?.as_text()).unwrap_or_default();
    let unready = match phase {
        Phase::Pending | Phase::Crashed | Phase::Unready => {
            Some(("ContainersNotReady", format!("containers with unready status: [{first}]")))
        }
        Phase::Succeeded => Some(("PodCompleted", String::new())),
        Phase::Running | Phase::Recovered => None,
    };
    let condition = |name: &str, holds: bool, since: Hole, why: Option<&(&str, String)>| {
        let mut condition = object([
            ("type", text(name)),
            ("observedGeneration", observed_generation()),
            ("status", text(if holds { "True" } else { "False" })),
            ("lastProbeTime", Json::Null),
            ("lastTransitionTime", since.text()),
        ]);
        if let Some((reason, message)) = why {
            condition.set("reason", text(*reason));
            if !message.is_empty() {
                condition.set("message", text(message.as_str()));
            }
        }
        condition
    };
    list([
        condition("PodReadyToStartContainers", phase != Phase::Pending, Hole::Sandbox, None),
        condition("Initialized", true, Hole::Scheduled, None),
        condition("Ready", unready.is_none(), Hole::Ready, unready.as_ref()),
        condition("ContainersReady", unready.is_none(), Hole::Ready, unready.as_ref()),
        condition("PodScheduled", true, Hole::Scheduled, None),
    ])
}

/// Returns true for an init container that runs as long as the Pod.
fn is_sidecar(container: &Json) -> bool {
    container.get("restartPolicy").and_then(Json::as_text) == Some("Always")
}

fn mounts_of_status(mut mounts: Json) -> Json {
    for mount in mounts.items_mut() {
        if let Json::Object(fields) = mount {
            // Name, then path, then the rest, as in a status.
            fields.sort_by_key(|(key, _)| ["name", "mountPath", "readOnly"].iter().position(|known| known == key));
        }
        if mount.get("readOnly").is_some() {
            mount.set("recursiveReadOnly", text("Disabled"));
        }
    }
    mounts
}

fn container_status(draft: &Draft, container: &Json, at: u8, phase: Phase) -> Json {
    let part = |key: &str| container.get(key).cloned().unwrap_or(Json::Null);
    let containerd = |hole: Hole| text(format!("containerd://{}", hole.character()));
    // Only the first container fails; the others keep running.
    let phase = match phase {
        Phase::Recovered | Phase::Unready | Phase::Crashed if at > 0 => Phase::Running,
        phase => phase,
    };
    let finished = |reason: &str, code: i64| {
        let ended = object([
            ("exitCode", number(code)),
            ("reason", text(reason)),
            ("startedAt", Hole::LastStarted(at).text()),
            ("finishedAt", Hole::LastFinished(at).text()),
            ("containerID", containerd(Hole::LastContainerId(at))),
        ]);
        object([("terminated", ended)])
    };
    let waiting = |reason: &str, message: Option<String>| {
        let mut waiting = object([("reason", text(reason))]);
        if let Some(message) = message {
            waiting.set("message", text(message));
        }
        object([("waiting", waiting)])
    };
    let crashed = format!(
        "back-off 5m0s restarting failed container={} pod={}_{}({})",
        container.get("name").and_then(Json::as_text).unwrap_or_default(),
        Hole::Name.character(),
        draft.namespace,
        Hole::Uid.character(),
    );
    let nothing = || object::<String>([]);
    let running = object([("running", object([("startedAt", Hole::Started(at).text())]))]);
    let (state, last) = match phase {
        Phase::Pending => (waiting("ContainerCreating", None), nothing()),
        Phase::Succeeded => (finished("Completed", 0), nothing()),
        Phase::Crashed => (waiting("CrashLoopBackOff", Some(crashed)), finished("Error", 1)),
        Phase::Recovered => (running, finished("Error", 1)),
        Phase::Running | Phase::Unready => (running, nothing()),
    };
    let started = matches!(phase, Phase::Running | Phase::Recovered | Phase::Unready);
    let is_init = init_container_numbers().any(|of_init| of_init == at);
    let ready = matches!(phase, Phase::Running | Phase::Recovered) || is_init;
    let mut image_id = "registry.example.com/images@sha256:".to_owned();
    push_digest(draft.image_seed.wrapping_add(u64::from(at)), &mut image_id);
    let mut status = object([
        ("name", part("name")),
        ("state", state),
        ("lastState", last),
        ("ready", Json::Bool(ready)),
        ("restartCount", Json::Number(Hole::Restarts(at).character().to_string())),
        ("image", part("image")),
    ]);
    if phase == Phase::Pending {
        status.set("imageID", text(""));
        status.set("started", Json::Bool(false));
        return status;
    }
    let id = match phase {
        Phase::Crashed | Phase::Succeeded => Hole::LastContainerId(at),
        _ => Hole::ContainerId(at),
    };
    status.set("imageID", text(image_id));
    status.set("containerID", containerd(id));
    status.set("started", Json::Bool(started));
    let mut resources = part("resources");
    resize::allocate(&mut resources);
    if let Some(requests) = resources.get("requests") {
        status.set("allocatedResources", requests.clone());
    }
    status.set("resources", resources);
    status.set("volumeMounts", mounts_of_status(part("volumeMounts")));
    let linux =
        object([("uid", number(1000)), ("gid", number(0)), ("supplementalGroups", list([number(0), number(1000)]))]);
    status.set("user", object([("linux", linux)]));
    status
}
