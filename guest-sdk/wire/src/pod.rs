//! The structs of a Pod record. Names follow the Kubernetes API; fields that a struct lacks are not stored.
//!
//! [`Header`], [`Lifecycle`], [`Spec`] and [`Status`] may gain fields at their end, the other types do not change;
//! `record.rs` explains why. None is `non_exhaustive`, because tests and the host construct them: a literal that ends
//! in `..Default::default()` accepts new fields.
//!
//! Times are [`Timestamp`]s, quantities are text as Kubernetes writes them ("500m", "1Gi").

use std::{
    collections::BTreeMap,
    fmt,
    ops::{Add, Sub},
    str::FromStr,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::text::cut;

/// Milliseconds since 1970-01-01T00:00:00Z. Most times of Kubernetes have a precision of one second. The text of a time
/// is RFC 3339, as in an annotation: `"2026-01-31T08:00:00Z".parse::<Timestamp>()`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Returns the time from `earlier` to this one; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or_default())
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at a time later than that of any Pod.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at a time earlier than that of any Pod.
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    /// Parses RFC 3339; fractions of a millisecond are truncated.
    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        let time = text.parse::<jiff::Timestamp>();
        time.map(|time| Self(time.as_millisecond())).map_err(|_| InvalidTimestamp(cut(text, 64).to_owned()))
    }
}

/// A text that is no time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no time, such as 2026-01-31T08:00:00Z")]
pub struct InvalidTimestamp(String);

impl fmt::Display for Timestamp {
    /// Formats RFC 3339 in UTC, to the second, or to the millisecond if that is not zero. A time outside the years
    /// -9999 to 9999 becomes the nearest one within, because a record can contain any number.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nearest = if self.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        let time = jiff::Timestamp::from_millisecond(self.0).unwrap_or(nearest);
        if time.subsec_millisecond() == 0 { write!(formatter, "{time:.0}") } else { write!(formatter, "{time:.3}") }
    }
}

/// Identity and revision. This is not a section: it is always present and never counts as a change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub namespace: String,
    pub name: String,
    /// Differs between two Pods of one name.
    pub uid: String,
    /// The resourceVersion of the whole object, as the API server sent it.
    pub resource_version: String,
    /// Grows with changes of the spec; 0 if the server sets none.
    pub generation: i64,
    pub created: Timestamp,
}

/// Labels, sorted by key.
pub type Labels = BTreeMap<String, String>;
/// Annotations, sorted by key.
pub type Annotations = BTreeMap<String, String>;
/// Owners, in the order of the object.
pub type Owners = Vec<Owner>;

/// One entry of `metadata.ownerReferences`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    /// True for the owner that manages the Pod.
    pub controller: bool,
    pub block_owner_deletion: bool,
}

/// Deletion and finalizers. Always granted and always watched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifecycle {
    /// The end of the grace period if the Pod is being deleted.
    pub deletion_timestamp: Option<Timestamp>,
    pub deletion_grace_period_seconds: Option<i64>,
    pub finalizers: Vec<String>,
}

/// The fields of `spec` that reconcilers need.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// `None` until the Pod is scheduled.
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
    /// Names of gates. The Pod is not scheduled while there is one.
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
    /// `None` tolerates every key.
    pub key: Option<String>,
    /// "Exists" or "Equal"; `None` means Equal.
    pub operator: Option<String>,
    pub value: Option<String>,
    /// `None` tolerates every effect.
    pub effect: Option<String>,
    pub toleration_seconds: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    pub name: String,
    /// The field of the volume that is set, such as "configMap" or "hostPath". Its content is not stored.
    pub kind: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    pub name: String,
    pub image: String,
    pub image_pull_policy: Option<String>,
    /// "Always" on an init container makes it a sidecar.
    pub restart_policy: Option<String>,
    /// Quantities by resource name.
    pub requests: BTreeMap<String, String>,
    /// Quantities by resource name.
    pub limits: BTreeMap<String, String>,
    pub ports: Vec<Port>,
    /// Names only, because values may be secrets.
    pub env_names: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    pub name: Option<String>,
    pub container_port: i32,
    pub host_port: Option<i32>,
    /// `None` means "TCP".
    pub protocol: Option<String>,
}

/// The fields of `status` that reconcilers need.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// "Pending", "Running", "Succeeded", "Failed" or "Unknown"; empty if the server has set none yet.
    pub phase: String,
    /// The reason, such as "Evicted".
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

    /// Sets `reason`, one UpperCamelCase word for programs, and `message`, a sentence for people.
    #[must_use]
    pub fn because(self, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), message: Some(message.into()), ..self }
    }

    /// Returns true if type, status, reason and message are equal. The transition time is ignored, and no text equals
    /// an empty text.
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

impl ConditionStatus {
    /// Returns the value in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerStatus {
    pub name: String,
    pub ready: bool,
    /// `None` if the kubelet did not report it.
    pub started: Option<bool>,
    pub restart_count: i32,
    pub image: String,
    /// The image with its digest, once pulled.
    pub image_id: String,
    pub container_id: Option<String>,
    pub state: ContainerState,
    /// How the previous run of the container ended.
    pub last_state: ContainerState,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerState {
    /// The kubelet has not reported a state yet.
    #[default]
    Unknown,
    Waiting {
        /// The reason, such as "CrashLoopBackOff".
        reason: Option<String>,
        message: Option<String>,
    },
    Running {
        started_at: Option<Timestamp>,
    },
    Terminated {
        exit_code: i32,
        signal: Option<i32>,
        /// The reason, such as "OOMKilled".
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
