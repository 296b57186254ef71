//! Kubernetes JSON to [`Pod`]: structs of the API's form, and their conversion.
//!
//! Every field is an `Option`, because the API server writes null where Go has a zero time or a nil list. Strings are
//! owned and moved into the Pod, which needs them owned anyway. Names within lists are not required: the API server
//! has validated what it stored.

use std::{collections::BTreeMap, fmt};

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::JsonError;
use crate::{
    Condition, ConditionStatus, Container, ContainerState, ContainerStatus, Header, Lifecycle, Owner, Pod, Port,
    RestartPolicy, Spec, Status, Timestamp, Toleration, Volume,
};

const SHOWN_CHARACTERS: usize = 64;

/// Decodes a Pod, either an item of a list or the object of a watch event.
///
/// # Errors
/// Returns an error on malformed JSON, on a missing name, namespace, uid or resourceVersion, and on an invalid time
/// or restart policy; the error then names the field.
pub fn decode(json: &[u8]) -> Result<Pod, JsonError> {
    let pod: RawPod = serde_json::from_slice(json).map_err(malformed)?;
    pod.into_pod()
}

/// Decodes a Pod from parsed JSON.
///
/// # Errors
/// See [`decode`].
pub fn decode_value(value: &serde_json::Value) -> Result<Pod, JsonError> {
    RawPod::deserialize(value).map_err(malformed)?.into_pod()
}

/// Shortens serde's message: it repeats a text of the wrong type in full, so the middle of a long message is removed;
/// the expected type and the position are at its end.
fn malformed(error: serde_json::Error) -> JsonError {
    let message = error.to_string();
    let length = message.chars().count();
    if length <= 4 * SHOWN_CHARACTERS {
        return JsonError::Malformed(message);
    }
    let head = message.chars().take(SHOWN_CHARACTERS);
    let tail = message.chars().skip(length - 2 * SHOWN_CHARACTERS);
    JsonError::Malformed(head.chain(" ... ".chars()).chain(tail).collect())
}

type Text = Option<String>;
type Texts = Option<BTreeMap<String, String>>;
type List<T> = Option<Vec<T>>;

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct RawPod {
    metadata: Option<RawMetadata>,
    spec: Option<RawSpec>,
    status: Option<RawStatus>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawMetadata {
    namespace: Text,
    name: Text,
    uid: Text,
    resource_version: Text,
    generation: Option<i64>,
    creation_timestamp: Text,
    labels: Texts,
    annotations: Texts,
    owner_references: List<RawOwner>,
    deletion_timestamp: Text,
    deletion_grace_period_seconds: Option<i64>,
    finalizers: List<String>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawOwner {
    api_version: Text,
    kind: Text,
    name: Text,
    uid: Text,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawSpec {
    node_name: Text,
    service_account_name: Text,
    restart_policy: Text,
    scheduler_name: Text,
    priority: Option<i32>,
    priority_class_name: Text,
    host_network: Option<bool>,
    termination_grace_period_seconds: Option<i64>,
    active_deadline_seconds: Option<i64>,
    runtime_class_name: Text,
    node_selector: Texts,
    tolerations: List<RawToleration>,
    scheduling_gates: List<RawName>,
    volumes: List<RawVolume>,
    init_containers: List<RawContainer>,
    containers: List<RawContainer>,
    ephemeral_containers: List<RawContainer>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawToleration {
    key: Text,
    operator: Text,
    value: Text,
    effect: Text,
    toleration_seconds: Option<i64>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct RawName {
    name: Text,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawContainer {
    name: Text,
    image: Text,
    image_pull_policy: Text,
    restart_policy: Text,
    resources: Option<RawResources>,
    ports: List<RawPort>,
    env: List<RawName>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct RawResources {
    requests: Texts,
    limits: Texts,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawPort {
    name: Text,
    container_port: Option<i32>,
    host_port: Option<i32>,
    protocol: Text,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawStatus {
    phase: Text,
    reason: Text,
    message: Text,
    qos_class: Text,
    #[serde(rename = "hostIP")]
    host_ip: Text,
    #[serde(rename = "podIP")]
    pod_ip: Text,
    #[serde(rename = "podIPs")]
    pod_ips: List<RawIp>,
    start_time: Text,
    nominated_node_name: Text,
    conditions: List<RawCondition>,
    init_container_statuses: List<RawContainerStatus>,
    container_statuses: List<RawContainerStatus>,
    ephemeral_container_statuses: List<RawContainerStatus>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct RawIp {
    ip: Text,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawCondition {
    r#type: Text,
    status: Text,
    reason: Text,
    message: Text,
    last_transition_time: Text,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawContainerStatus {
    name: Text,
    ready: Option<bool>,
    started: Option<bool>,
    restart_count: Option<i32>,
    image: Text,
    #[serde(rename = "imageID")]
    image_id: Text,
    #[serde(rename = "containerID")]
    container_id: Text,
    state: Option<RawState>,
    last_state: Option<RawState>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct RawState {
    waiting: Option<RawWaiting>,
    running: Option<RawRunning>,
    terminated: Option<RawTerminated>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct RawWaiting {
    reason: Text,
    message: Text,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawRunning {
    started_at: Text,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawTerminated {
    exit_code: Option<i32>,
    signal: Option<i32>,
    reason: Text,
    message: Text,
    started_at: Text,
    finished_at: Text,
}

/// A volume. Its kind is a key and not a value, hence the visitor.
struct RawVolume(Volume);

impl<'de> Deserialize<'de> for RawVolume {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = RawVolume;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a volume")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<RawVolume, A::Error> {
                let mut volume = Volume::default();
                while let Some(key) = fields.next_key::<String>()? {
                    if key == "name" {
                        volume.name = text(fields.next_value()?);
                    } else if fields.next_value::<Option<IgnoredAny>>()?.is_some() && volume.kind.is_empty() {
                        volume.kind = key;
                    }
                }
                Ok(RawVolume(volume))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

impl RawPod {
    fn into_pod(self) -> Result<Pod, JsonError> {
        let metadata = self.metadata.unwrap_or_default();
        Ok(Pod {
            header: Header {
                namespace: required(metadata.namespace, "metadata.namespace")?,
                name: required(metadata.name, "metadata.name")?,
                uid: required(metadata.uid, "metadata.uid")?,
                resource_version: required(metadata.resource_version, "metadata.resourceVersion")?,
                generation: metadata.generation.unwrap_or_default(),
                created: time(metadata.creation_timestamp, "metadata.creationTimestamp")?.unwrap_or_default(),
            },
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
            owners: list(metadata.owner_references, RawOwner::into_owner),
            lifecycle: Lifecycle {
                deletion_timestamp: time(metadata.deletion_timestamp, "metadata.deletionTimestamp")?,
                deletion_grace_period_seconds: metadata.deletion_grace_period_seconds,
                finalizers: metadata.finalizers.unwrap_or_default(),
            },
            spec: self.spec.unwrap_or_default().into_spec()?,
            status: self.status.unwrap_or_default().into_status()?,
            full: String::new(),
        })
    }
}

impl RawOwner {
    fn into_owner(self) -> Owner {
        Owner {
            api_version: text(self.api_version),
            kind: text(self.kind),
            name: text(self.name),
            uid: text(self.uid),
            controller: self.controller.unwrap_or_default(),
            block_owner_deletion: self.block_owner_deletion.unwrap_or_default(),
        }
    }
}

impl RawSpec {
    fn into_spec(self) -> Result<Spec, JsonError> {
        Ok(Spec {
            node_name: given(self.node_name),
            service_account_name: given(self.service_account_name),
            restart_policy: restart_policy(self.restart_policy)?,
            scheduler_name: given(self.scheduler_name),
            priority: self.priority,
            priority_class_name: given(self.priority_class_name),
            host_network: self.host_network.unwrap_or_default(),
            termination_grace_period_seconds: self.termination_grace_period_seconds,
            active_deadline_seconds: self.active_deadline_seconds,
            runtime_class_name: given(self.runtime_class_name),
            node_selector: self.node_selector.unwrap_or_default(),
            tolerations: list(self.tolerations, RawToleration::into_toleration),
            scheduling_gates: list(self.scheduling_gates, |gate| text(gate.name)),
            volumes: list(self.volumes, |volume| volume.0),
            init_containers: list(self.init_containers, RawContainer::into_container),
            containers: list(self.containers, RawContainer::into_container),
            ephemeral_containers: list(self.ephemeral_containers, RawContainer::into_container),
        })
    }
}

/// Parses a restart policy. An unknown one is an error and not the default: a reconciler would mistake a Pod that
/// ends for one that restarts.
fn restart_policy(policy: Text) -> Result<RestartPolicy, JsonError> {
    match policy.as_deref() {
        None | Some("" | "Always") => Ok(RestartPolicy::Always),
        Some("OnFailure") => Ok(RestartPolicy::OnFailure),
        Some("Never") => Ok(RestartPolicy::Never),
        Some(other) => Err(bad_value("spec.restartPolicy", other)),
    }
}

impl RawToleration {
    fn into_toleration(self) -> Toleration {
        Toleration {
            key: given(self.key),
            operator: given(self.operator),
            value: given(self.value),
            effect: given(self.effect),
            toleration_seconds: self.toleration_seconds,
        }
    }
}

impl RawContainer {
    fn into_container(self) -> Container {
        let resources = self.resources.unwrap_or_default();
        Container {
            name: text(self.name),
            image: text(self.image),
            image_pull_policy: given(self.image_pull_policy),
            restart_policy: given(self.restart_policy),
            requests: resources.requests.unwrap_or_default(),
            limits: resources.limits.unwrap_or_default(),
            ports: list(self.ports, |port| Port {
                name: given(port.name),
                container_port: port.container_port.unwrap_or_default(),
                host_port: port.host_port.filter(|port| *port != 0),
                protocol: given(port.protocol),
            }),
            env_names: list(self.env, |variable| text(variable.name)),
        }
    }
}

impl RawStatus {
    fn into_status(self) -> Result<Status, JsonError> {
        let mut pod_ips = list(self.pod_ips, |ip| text(ip.ip));
        if pod_ips.is_empty() {
            // Servers before 1.16 send only one address.
            pod_ips.extend(given(self.pod_ip));
        }
        Ok(Status {
            phase: text(self.phase),
            reason: given(self.reason),
            message: given(self.message),
            qos_class: given(self.qos_class),
            host_ip: given(self.host_ip),
            pod_ips,
            start_time: time(self.start_time, "status.startTime")?,
            nominated_node_name: given(self.nominated_node_name),
            conditions: try_list(self.conditions, RawCondition::into_condition)?,
            init_container_statuses: try_list(self.init_container_statuses, RawContainerStatus::into_status)?,
            container_statuses: try_list(self.container_statuses, RawContainerStatus::into_status)?,
            ephemeral_container_statuses: try_list(self.ephemeral_container_statuses, RawContainerStatus::into_status)?,
        })
    }
}

impl RawCondition {
    fn into_condition(self) -> Result<Condition, JsonError> {
        Ok(Condition {
            condition_type: text(self.r#type),
            // Any client may add a condition with any status, so an unusual one is no reason to refuse the Pod.
            status: match self.status.as_deref() {
                Some("True") => ConditionStatus::True,
                Some("False") => ConditionStatus::False,
                _ => ConditionStatus::Unknown,
            },
            reason: given(self.reason),
            message: given(self.message),
            last_transition_time: time(self.last_transition_time, "status.conditions[].lastTransitionTime")?,
        })
    }
}

impl RawContainerStatus {
    fn into_status(self) -> Result<ContainerStatus, JsonError> {
        Ok(ContainerStatus {
            name: text(self.name),
            ready: self.ready.unwrap_or_default(),
            started: self.started,
            restart_count: self.restart_count.unwrap_or_default(),
            image: text(self.image),
            image_id: text(self.image_id),
            container_id: given(self.container_id),
            state: self.state.unwrap_or_default().into_state()?,
            last_state: self.last_state.unwrap_or_default().into_state()?,
        })
    }
}

impl RawState {
    fn into_state(self) -> Result<ContainerState, JsonError> {
        Ok(if let Some(waiting) = self.waiting {
            ContainerState::Waiting { reason: given(waiting.reason), message: given(waiting.message) }
        } else if let Some(running) = self.running {
            ContainerState::Running { started_at: time(running.started_at, "running.startedAt of a container status")? }
        } else if let Some(terminated) = self.terminated {
            ContainerState::Terminated {
                exit_code: terminated.exit_code.unwrap_or_default(),
                signal: terminated.signal.filter(|signal| *signal != 0),
                reason: given(terminated.reason),
                message: given(terminated.message),
                started_at: time(terminated.started_at, "terminated.startedAt of a container status")?,
                finished_at: time(terminated.finished_at, "terminated.finishedAt of a container status")?,
            }
        } else {
            ContainerState::Unknown
        })
    }
}

fn text(text: Text) -> String {
    text.unwrap_or_default()
}

/// Returns `None` for an empty text: Kubernetes does not distinguish them, and one form avoids false changes of
/// sections.
fn given(text: Text) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn required(text: Text, field: &'static str) -> Result<String, JsonError> {
    given(text).ok_or(JsonError::Missing(field))
}

fn time(text: Text, field: &'static str) -> Result<Option<Timestamp>, JsonError> {
    text.map(|text| text.parse().map_err(|_| bad_value(field, &text))).transpose()
}

fn bad_value(field: &'static str, value: &str) -> JsonError {
    JsonError::BadValue { field, value: value.chars().take(SHOWN_CHARACTERS).collect() }
}

fn list<A, B>(list: List<A>, convert: impl FnMut(A) -> B) -> Vec<B> {
    list.unwrap_or_default().into_iter().map(convert).collect()
}

fn try_list<A, B>(list: List<A>, convert: impl FnMut(A) -> Result<B, JsonError>) -> Result<Vec<B>, JsonError> {
    list.unwrap_or_default().into_iter().map(convert).collect()
}
