//! Writes that a plugin stages, and their results. `wit/podium.wit` defines their meanings.

use super::PodKey;

/// One staged write.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// Numbered from 0 over all writes of the run.
    pub id: u32,
    pub action: Action,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    SetLabel {
        target: PodKey,
        key: String,
        value: String,
    },
    RemoveLabel {
        target: PodKey,
        key: String,
    },
    SetAnnotation {
        target: PodKey,
        key: String,
        value: String,
    },
    RemoveAnnotation {
        target: PodKey,
        key: String,
    },
    AddFinalizer {
        target: PodKey,
        name: String,
    },
    RemoveFinalizer {
        target: PodKey,
        name: String,
    },
    SetCondition {
        target: PodKey,
        condition_type: String,
        status: ConditionStatus,
        reason: String,
        message: String,
    },
    RemoveCondition {
        target: PodKey,
        condition_type: String,
    },
    DeletePod {
        target: PodKey,
        grace_seconds: Option<u32>,
    },
    EvictPod {
        target: PodKey,
    },
    /// `body` is the complete object; `object` identifies it, and was read from the body once.
    ApplyObject {
        object: ObjectRef,
        body: serde_json::Value,
        owner: Option<PodKey>,
    },
    DeleteObject {
        object: ObjectRef,
        uid: Option<String>,
    },
}

impl Action {
    /// Returns the Pod that is written to, or `None` for other kinds.
    #[must_use]
    pub fn pod(&self) -> Option<&PodKey> {
        match self {
            Self::SetLabel { target, .. }
            | Self::RemoveLabel { target, .. }
            | Self::SetAnnotation { target, .. }
            | Self::RemoveAnnotation { target, .. }
            | Self::AddFinalizer { target, .. }
            | Self::RemoveFinalizer { target, .. }
            | Self::SetCondition { target, .. }
            | Self::RemoveCondition { target, .. }
            | Self::DeletePod { target, .. }
            | Self::EvictPod { target } => Some(target),
            Self::ApplyObject { .. } | Self::DeleteObject { .. } => None,
        }
    }

    /// Describes the write for people and reports: "set label team=web on shop/cart-0".
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::SetLabel { target, key, value } => format!("set label {key}={value} on {target}"),
            Self::RemoveLabel { target, key } => format!("remove label {key} from {target}"),
            Self::SetAnnotation { target, key, .. } => format!("set annotation {key} on {target}"),
            Self::RemoveAnnotation { target, key } => format!("remove annotation {key} from {target}"),
            Self::AddFinalizer { target, name } => format!("add finalizer {name} to {target}"),
            Self::RemoveFinalizer { target, name } => format!("remove finalizer {name} from {target}"),
            Self::SetCondition { target, condition_type, status, .. } => {
                format!("set condition {condition_type}={} on {target}", status.as_str())
            }
            Self::RemoveCondition { target, condition_type } => {
                format!("remove condition {condition_type} from {target}")
            }
            Self::DeletePod { target, .. } => format!("delete pod {target}"),
            Self::EvictPod { target } => format!("evict pod {target}"),
            Self::ApplyObject { object, .. } => format!("apply {object}"),
            Self::DeleteObject { object, .. } => format!("delete {object}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

impl ConditionStatus {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// An object that is not a Pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    pub api_version: String,
    pub kind: String,
    /// The plural of the kind, which is in the path of a request. It is the grant's and never the plugin's; empty if
    /// the kind is not granted.
    pub resource: String,
    pub namespace: Option<String>,
    pub name: String,
}

impl std::fmt::Display for ObjectRef {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        write!(formatter, "{} {} {namespace}/{}", self.api_version, self.kind, self.name)
    }
}

/// An Event about a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub target: PodKey,
    pub event_type: EventType,
    pub reason: String,
    pub action: String,
    pub note: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    Normal,
    Warning,
}

/// The result of sending an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventResult {
    Sent,
    /// The Event waits, because of the rate, a missing right or an unreachable API server.
    Delayed,
    /// The Event will not be sent.
    Dropped,
}

impl EventResult {
    /// The value of the metrics' label `result`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Delayed => "delayed",
            Self::Dropped => "dropped",
        }
    }
}

/// Why a host call was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("not granted")]
    NotGranted,
    #[error("over budget")]
    OverBudget,
    #[error("invalid: {0}")]
    Invalid(String),
    #[error("unavailable: {0}")]
    Unavailable(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteReport {
    pub id: u32,
    /// The text of [`Action::describe`].
    pub description: String,
    pub result: WriteResult,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteResult {
    Applied,
    Unchanged,
    Conflict,
    OwnedByOther(String),
    Blocked(String),
    Gone,
    Forbidden(String),
    Invalid(String),
    NotSent,
    Unknown,
}

impl WriteResult {
    /// Returns true if nothing is left to do for this write.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        matches!(self, Self::Applied | Self::Unchanged | Self::Gone)
    }

    /// Returns the message of the API server, or an empty string.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::OwnedByOther(text) | Self::Blocked(text) | Self::Forbidden(text) | Self::Invalid(text) => text,
            Self::Applied | Self::Unchanged | Self::Conflict | Self::Gone | Self::NotSent | Self::Unknown => "",
        }
    }
    pub fn text_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::OwnedByOther(text) | Self::Blocked(text) | Self::Forbidden(text) | Self::Invalid(text) => Some(text),
            Self::Applied | Self::Unchanged | Self::Conflict | Self::Gone | Self::NotSent | Self::Unknown => None,
        }
    }

    /// The value of the metrics' label `result`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Conflict => "conflict",
            Self::OwnedByOther(_) => "owned_by_other",
            Self::Blocked(_) => "blocked",
            Self::Gone => "gone",
            Self::Forbidden(_) => "forbidden",
            Self::Invalid(_) => "invalid",
            Self::NotSent => "not_sent",
            Self::Unknown => "unknown",
        }
    }
}
