//! The structs of a Pod record. Names follow the Kubernetes API; what a struct lacks is not kept.
//!
//! [`Header`], [`Lifecycle`], [`Spec`] and [`Status`] may gain fields at their end, the other types stay as they are;
//! the head of `record.rs` says why. None is `non_exhaustive`, since tests and the host write them down: a literal that
//! ends in `..Default::default()` takes a new field as it comes.
//!
//! Times are [`Timestamp`]s, quantities are text as Kubernetes writes them ("500m", "1Gi").

use std::{
    collections::BTreeMap,
    ops::{Add, Sub},
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01T00:00:00Z. Most times of Kubernetes have a precision of one second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The time from `earlier` to this one; zero where `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or_default())
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates, at a time that no Pod sees.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    /// Saturates, at a time before all Pods.
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

/// Identity and revision. Not a section: it is always there and never counts as a change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub namespace: String,
    pub name: String,
    /// Differs between two Pods of one name.
    pub uid: String,
    /// Of the whole object, as the API server gave it.
    pub resource_version: String,
    /// Grows with changes of the spec; 0 if the server sets none.
    pub generation: i64,
    pub created: Timestamp,
}

/// Sorted by key.
pub type Labels = BTreeMap<String, String>;
/// Sorted by key.
pub type Annotations = BTreeMap<String, String>;
/// In the order of the object.
pub type Owners = Vec<Owner>;

/// One entry of `metadata.ownerReferences`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    /// True for the one that manages the Pod.
    pub controller: bool,
    pub block_owner_deletion: bool,
}

/// Whether and how the Pod is going. Always granted and always watched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifecycle {
    /// Set: the Pod is being deleted, and this is when its grace ends.
    pub deletion_timestamp: Option<Timestamp>,
    pub deletion_grace_period_seconds: Option<i64>,
    pub finalizers: Vec<String>,
}

/// Of `spec`, what reconcilers ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// None until scheduled.
    pub node_name: Option<String>,
    pub service_account_name: Option<String>,
    pub restart_policy: RestartPolicy,
    pub scheduler_name: Option<String>,
    pub priority: Option<i32>,
    pub priority_class_name: Option<String>,
    pub host_network: bool,
    pub termination_grace_period_seconds: Option<i64>,
    pub active_deadline_seconds: Option<i64>,
    pub runtime_class_name: Option<String>,
    pub node_selector: BTreeMap<String, String>,
    pub tolerations: Vec<Toleration>,
    /// Names; the Pod is not scheduled while there is one.
    pub scheduling_gates: Vec<String>,
    pub volumes: Vec<Volume>,
    pub init_containers: Vec<Container>,
    pub containers: Vec<Container>,
    pub ephemeral_containers: Vec<Container>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestartPolicy {
    #[default]
    Always,
    OnFailure,
    Never,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toleration {
    /// None tolerates every key.
    pub key: Option<String>,
    /// "Exists" or "Equal"; none means Equal.
    pub operator: Option<String>,
    pub value: Option<String>,
    /// None tolerates every effect.
    pub effect: Option<String>,
    pub toleration_seconds: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    pub name: String,
    /// The field of the volume that is set, such as "configMap" or "hostPath"; its content is not kept.
    pub kind: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    pub name: String,
    pub image: String,
    pub image_pull_policy: Option<String>,
    /// "Always" on an init container makes it a sidecar.
    pub restart_policy: Option<String>,
    /// Resource name to quantity.
    pub requests: BTreeMap<String, String>,
    /// Resource name to quantity.
    pub limits: BTreeMap<String, String>,
    pub ports: Vec<Port>,
    /// Names only: values may be secrets.
    pub env_names: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    pub name: Option<String>,
    pub container_port: i32,
    pub host_port: Option<i32>,
    /// "TCP" where none is given.
    pub protocol: Option<String>,
}

/// Of `status`, what reconcilers ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// "Pending", "Running", "Succeeded", "Failed", "Unknown"; empty where the server has none yet.
    pub phase: String,
    /// Such as "Evicted".
    pub reason: Option<String>,
    pub message: Option<String>,
    /// "Guaranteed", "Burstable" or "BestEffort".
    pub qos_class: Option<String>,
    pub host_ip: Option<String>,
    pub pod_ips: Vec<String>,
    pub start_time: Option<Timestamp>,
    pub nominated_node_name: Option<String>,
    pub conditions: Vec<Condition>,
    pub init_container_statuses: Vec<ContainerStatus>,
    pub container_statuses: Vec<ContainerStatus>,
    pub ephemeral_container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    pub condition_type: String,
    pub status: ConditionStatus,
    pub reason: Option<String>,
    pub message: Option<String>,
    pub last_transition_time: Option<Timestamp>,
}

impl Condition {
    #[must_use]
    pub fn new(condition_type: impl Into<String>, status: ConditionStatus) -> Self {
        Self { condition_type: condition_type.into(), status, ..Self::default() }
    }

    /// `reason` is one UpperCamelCase word for programs, `message` a sentence for people.
    #[must_use]
    pub fn because(self, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), message: Some(message.into()), ..self }
    }

    /// The same type, status, reason and message; when it came to be so does not matter, and no text is an empty text.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        self.condition_type == other.condition_type
            && self.status == other.status
            && text(&self.reason) == text(&other.reason)
            && text(&self.message) == text(&other.message)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    True,
    False,
    #[default]
    Unknown,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerStatus {
    pub name: String,
    pub ready: bool,
    /// None: the kubelet did not say.
    pub started: Option<bool>,
    pub restart_count: i32,
    pub image: String,
    /// With the digest, once pulled.
    pub image_id: String,
    pub container_id: Option<String>,
    pub state: ContainerState,
    /// How the run before the present one ended.
    pub last_state: ContainerState,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerState {
    /// The kubelet has said nothing yet.
    #[default]
    Unknown,
    Waiting {
        /// Such as "CrashLoopBackOff".
        reason: Option<String>,
        message: Option<String>,
    },
    Running {
        started_at: Option<Timestamp>,
    },
    Terminated {
        exit_code: i32,
        signal: Option<i32>,
        /// Such as "OOMKilled".
        reason: Option<String>,
        message: Option<String>,
        started_at: Option<Timestamp>,
        finished_at: Option<Timestamp>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_never_negative_and_never_overflows() {
        let second = Duration::from_secs(1);
        assert_eq!(Timestamp(3_000).since(Timestamp(2_000)), second);
        assert_eq!(Timestamp(2_000).since(Timestamp(3_000)), Duration::ZERO);
        assert_eq!(Timestamp(i64::MIN).since(Timestamp(i64::MAX)), Duration::ZERO);
        assert_eq!(Timestamp(2_000) + second, Timestamp(3_000));
        assert_eq!(Timestamp(i64::MAX) + Duration::MAX, Timestamp(i64::MAX));
    }

    #[test]
    fn conditions_are_compared_without_their_time() {
        let here = Condition::new("Ready", ConditionStatus::True).because("", "well");
        let there = Condition { last_transition_time: Some(Timestamp(1)), reason: None, ..here.clone() };
        assert!(here.says_the_same(&there));
        assert!(!here.says_the_same(&Condition { status: ConditionStatus::False, ..here.clone() }));
    }
}
