//! Renders a [`Record`] as Kubernetes JSON. Empty fields are left out.

use serde_json::{Map, Value};

use crate::{
    Condition, Container, ContainerState, ContainerStatus, Owner, Port, Record, RecordError, RestartPolicy, Section,
    Spec, Status, Timestamp, Toleration, Volume,
};

/// Renders the header and exactly the sections of the record as a Pod in Kubernetes JSON. `spec` and `status` are
/// present if their sections are; an empty section of the metadata is omitted, as in Kubernetes. `full` is not
/// rendered, because it is such JSON already and contains all of this.
///
/// # Errors
/// Returns an error if a section's bytes are malformed.
pub fn render(record: &Record) -> Result<Value, RecordError> {
    let header = record.header();
    let mut metadata = object([
        ("namespace", header.namespace.as_str().into()),
        ("name", header.name.as_str().into()),
        ("uid", header.uid.as_str().into()),
        ("resourceVersion", header.resource_version.as_str().into()),
        ("generation", nonzero(header.generation)),
        ("creationTimestamp", time(Some(header.created).filter(|created| *created != Timestamp::default()))),
    ]);
    let mut pod = object([("apiVersion", "v1".into()), ("kind", "Pod".into())]);
    for section in record.sections().iter() {
        match section {
            Section::Labels => put(&mut metadata, "labels", record.labels()?.into_iter().collect()),
            Section::Annotations => put(&mut metadata, "annotations", record.annotations()?.into_iter().collect()),
            Section::Owners => put(&mut metadata, "ownerReferences", list(record.owners()?, owner)),
            Section::Lifecycle => {
                let lifecycle = record.lifecycle()?;
                put(&mut metadata, "deletionTimestamp", time(lifecycle.deletion_timestamp));
                let grace = lifecycle.deletion_grace_period_seconds.into();
                put(&mut metadata, "deletionGracePeriodSeconds", grace);
                put(&mut metadata, "finalizers", lifecycle.finalizers.into());
            }
            // Inserted even if it is empty, so that the caller sees that the section is present.
            Section::Spec => drop(pod.insert("spec".to_owned(), spec(record.spec()?).into())),
            Section::Status => drop(pod.insert("status".to_owned(), status(record.status()?).into())),
            Section::Full => {}
        }
    }
    put(&mut pod, "metadata", metadata.into());
    Ok(pod.into())
}

type Object = Map<String, Value>;

fn object<const N: usize>(fields: [(&str, Value); N]) -> Object {
    let mut object = Object::new();
    for (name, value) in fields {
        put(&mut object, name, value);
    }
    object
}

/// Sets a field unless the value is empty. Numbers and booleans are never empty: callers pass null if Kubernetes
/// omits a zero.
fn put(object: &mut Object, name: &str, value: Value) {
    let empty = match &value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    if !empty {
        object.insert(name.to_owned(), value);
    }
}

fn list<T>(items: Vec<T>, item: impl Fn(T) -> Object) -> Value {
    items.into_iter().map(item).collect()
}

fn named(name: String) -> Object {
    object([("name", name.into())])
}

fn time(time: Option<Timestamp>) -> Value {
    time.map(|time| time.to_string()).into()
}

fn when(flag: bool) -> Value {
    flag.then_some(true).into()
}

fn nonzero<T: Into<Value> + Default + PartialEq>(number: T) -> Value {
    Some(number).filter(|number| *number != T::default()).into()
}

fn owner(owner: Owner) -> Object {
    object([
        ("apiVersion", owner.api_version.into()),
        ("kind", owner.kind.into()),
        ("name", owner.name.into()),
        ("uid", owner.uid.into()),
        ("controller", when(owner.controller)),
        ("blockOwnerDeletion", when(owner.block_owner_deletion)),
    ])
}

fn spec(spec: Spec) -> Object {
    let restart_policy = match spec.restart_policy {
        RestartPolicy::Always => "Always",
        RestartPolicy::OnFailure => "OnFailure",
        RestartPolicy::Never => "Never",
    };
    object([
        ("nodeName", spec.node_name.into()),
        ("serviceAccountName", spec.service_account_name.into()),
        ("restartPolicy", restart_policy.into()),
        ("schedulerName", spec.scheduler_name.into()),
        ("priority", spec.priority.into()),
        ("priorityClassName", spec.priority_class_name.into()),
        ("hostNetwork", when(spec.host_network)),
        ("terminationGracePeriodSeconds", spec.termination_grace_period_seconds.into()),
        ("activeDeadlineSeconds", spec.active_deadline_seconds.into()),
        ("runtimeClassName", spec.runtime_class_name.into()),
        ("nodeSelector", spec.node_selector.into_iter().collect()),
        ("tolerations", list(spec.tolerations, toleration)),
        ("schedulingGates", list(spec.scheduling_gates, named)),
        ("volumes", list(spec.volumes, volume)),
        ("initContainers", list(spec.init_containers, container)),
        ("containers", list(spec.containers, container)),
        ("ephemeralContainers", list(spec.ephemeral_containers, container)),
    ])
}

fn toleration(toleration: Toleration) -> Object {
    object([
        ("key", toleration.key.into()),
        ("operator", toleration.operator.into()),
        ("value", toleration.value.into()),
        ("effect", toleration.effect.into()),
        ("tolerationSeconds", toleration.toleration_seconds.into()),
    ])
}

fn volume(volume: Volume) -> Object {
    let mut object = Object::new();
    if !volume.kind.is_empty() {
        object.insert(volume.kind, Object::new().into());
    }
    put(&mut object, "name", volume.name.into());
    object
}

fn container(container: Container) -> Object {
    let resources = object([
        ("requests", container.requests.into_iter().collect()),
        ("limits", container.limits.into_iter().collect()),
    ]);
    object([
        ("name", container.name.into()),
        ("image", container.image.into()),
        ("imagePullPolicy", container.image_pull_policy.into()),
        ("restartPolicy", container.restart_policy.into()),
        ("resources", resources.into()),
        ("ports", list(container.ports, port)),
        ("env", list(container.env_names, named)),
    ])
}

fn port(port: Port) -> Object {
    object([
        ("name", port.name.into()),
        ("containerPort", port.container_port.into()),
        ("hostPort", nonzero(port.host_port.unwrap_or_default())),
        ("protocol", port.protocol.into()),
    ])
}

fn status(status: Status) -> Object {
    object([
        ("phase", status.phase.into()),
        ("reason", status.reason.into()),
        ("message", status.message.into()),
        ("qosClass", status.qos_class.into()),
        ("hostIP", status.host_ip.into()),
        ("podIP", status.pod_ips.first().cloned().into()),
        ("podIPs", list(status.pod_ips, |ip| object([("ip", ip.into())]))),
        ("startTime", time(status.start_time)),
        ("nominatedNodeName", status.nominated_node_name.into()),
        ("conditions", list(status.conditions, condition)),
        ("initContainerStatuses", list(status.init_container_statuses, container_status)),
        ("containerStatuses", list(status.container_statuses, container_status)),
        ("ephemeralContainerStatuses", list(status.ephemeral_container_statuses, container_status)),
    ])
}

fn condition(condition: Condition) -> Object {
    object([
        ("type", condition.condition_type.into()),
        ("status", condition.status.as_str().into()),
        ("reason", condition.reason.into()),
        ("message", condition.message.into()),
        ("lastTransitionTime", time(condition.last_transition_time)),
    ])
}

fn container_status(status: ContainerStatus) -> Object {
    object([
        ("name", status.name.into()),
        ("ready", status.ready.into()),
        ("started", status.started.into()),
        ("restartCount", status.restart_count.into()),
        ("image", status.image.into()),
        ("imageID", status.image_id.into()),
        ("containerID", status.container_id.into()),
        ("state", container_state(status.state).into()),
        ("lastState", container_state(status.last_state).into()),
    ])
}

fn container_state(state: ContainerState) -> Object {
    let (name, fields) = match state {
        ContainerState::Unknown => return Object::new(),
        ContainerState::Waiting { reason, message } => {
            ("waiting", object([("reason", reason.into()), ("message", message.into())]))
        }
        ContainerState::Running { started_at } => ("running", object([("startedAt", time(started_at))])),
        ContainerState::Terminated { exit_code, signal, reason, message, started_at, finished_at } => (
            "terminated",
            object([
                ("exitCode", exit_code.into()),
                ("signal", nonzero(signal.unwrap_or_default())),
                ("reason", reason.into()),
                ("message", message.into()),
                ("startedAt", time(started_at)),
                ("finishedAt", time(finished_at)),
            ]),
        ),
    };
    // Inserted without fields too, because the key itself is the state.
    Object::from_iter([(name.to_owned(), fields.into())])
}
