//! Writes that a plugin stages, and their results. `wit/podium.wit` defines their meanings.

use podium_wire::ConditionStatus;
use serde_json::Value;

use super::{Function, PodKey};

/// One staged write.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// Numbered from 0 over all writes of the run.
    pub id: u32,
    /// The change.
    pub action: Action,
}

/// A change of a Pod or of another object.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Sets a label of a Pod.
    SetLabel {
        /// The Pod.
        target: PodKey,
        /// The key.
        key: String,
        /// The new value.
        value: String,
    },
    /// Removes a label of a Pod.
    RemoveLabel {
        /// The Pod.
        target: PodKey,
        /// The key.
        key: String,
    },
    /// Sets an annotation of a Pod.
    SetAnnotation {
        /// The Pod.
        target: PodKey,
        /// The key.
        key: String,
        /// The new value.
        value: String,
    },
    /// Removes an annotation of a Pod.
    RemoveAnnotation {
        /// The Pod.
        target: PodKey,
        /// The key.
        key: String,
    },
    /// Adds a finalizer to a Pod.
    AddFinalizer {
        /// The Pod.
        target: PodKey,
        /// The finalizer.
        name: String,
    },
    /// Removes a finalizer of a Pod.
    RemoveFinalizer {
        /// The Pod.
        target: PodKey,
        /// The finalizer.
        name: String,
    },
    /// Sets a condition in a Pod's status.
    SetCondition {
        /// The Pod.
        target: PodKey,
        /// The condition's type.
        condition_type: String,
        /// The condition's status.
        status: ConditionStatus,
        /// The condition's reason, in CamelCase.
        reason: String,
        /// The condition's message, for people.
        message: String,
    },
    /// Removes a condition from a Pod's status.
    RemoveCondition {
        /// The Pod.
        target: PodKey,
        /// The condition's type.
        condition_type: String,
    },
    /// Deletes a Pod.
    DeletePod {
        /// The Pod.
        target: PodKey,
        /// The grace period in seconds; `None` for the Pod's own.
        grace_seconds: Option<u32>,
    },
    /// Evicts a Pod, which respects PodDisruptionBudgets.
    EvictPod {
        /// The Pod.
        target: PodKey,
    },
    /// Applies an object that is not a Pod. `body` is the complete object; `object` identifies it and was parsed from
    /// the body once.
    ApplyObject {
        /// The object.
        object: ObjectRef,
        /// The whole body of the apply request, without the owner.
        body: Value,
        /// The object's owner, so that it is deleted with the owner.
        owner: Option<ObjectOwner>,
    },
    /// Deletes an object that is not a Pod.
    DeleteObject {
        /// The object.
        object: ObjectRef,
        /// Deletes the object only if it has this uid.
        uid: Option<String>,
    },
    /// Sets the replicas of an object that is not a Pod.
    Scale {
        /// The object.
        object: ObjectRef,
        /// The new number.
        replicas: u32,
    },
}

/// The Pod or the object that a write changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// A Pod.
    Pod(&'a PodKey),
    /// An object of another kind.
    Object(&'a ObjectRef),
}

impl Action {
    /// Returns the Pod that is written to, or `None` for other kinds.
    #[must_use]
    pub const fn pod(&self) -> Option<&PodKey> {
        match self.target() {
            Target::Pod(key) => Some(key),
            Target::Object(_) => None,
        }
    }

    /// Returns the Pod or the object that is written to.
    #[must_use]
    pub const fn target(&self) -> Target<'_> {
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
            | Self::EvictPod { target } => Target::Pod(target),
            Self::ApplyObject { object, .. } | Self::DeleteObject { object, .. } | Self::Scale { object, .. } => {
                Target::Object(object)
            }
        }
    }

    /// Returns the host function that stages it.
    #[must_use]
    pub const fn function(&self) -> Function {
        match self {
            Self::SetLabel { .. } => Function::SetLabel,
            Self::RemoveLabel { .. } => Function::RemoveLabel,
            Self::SetAnnotation { .. } => Function::SetAnnotation,
            Self::RemoveAnnotation { .. } => Function::RemoveAnnotation,
            Self::AddFinalizer { .. } => Function::AddFinalizer,
            Self::RemoveFinalizer { .. } => Function::RemoveFinalizer,
            Self::SetCondition { .. } => Function::SetCondition,
            Self::RemoveCondition { .. } => Function::RemoveCondition,
            Self::DeletePod { .. } => Function::DeletePod,
            Self::EvictPod { .. } => Function::EvictPod,
            Self::ApplyObject { .. } => Function::ApplyObject,
            Self::DeleteObject { .. } => Function::DeleteObject,
            Self::Scale { .. } => Function::Scale,
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
            Self::Scale { object, replicas } => format!("scale {object} to {replicas}"),
        }
    }
}

/// The owner of an applied object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ObjectOwner {
    /// The Pod.
    Pod(PodKey),
    /// The top workload of the Pod.
    Workload(PodKey),
}

impl ObjectOwner {
    /// Returns the Pod that is the owner, or whose workload is.
    #[must_use]
    pub const fn pod(&self) -> &PodKey {
        match self {
            Self::Pod(key) | Self::Workload(key) => key,
        }
    }
}

/// An object that is not a Pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// Group and version, such as `apps/v1`.
    pub api_version: String,
    /// The kind, such as `Deployment`.
    pub kind: String,
    /// The plural of the kind, which is in the path of a request. It is the grant's and never the plugin's; empty if
    /// the kind is not granted.
    pub resource: String,
    /// The namespace; `None` for an object of the cluster.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
}

impl ObjectRef {
    /// Returns the object that a complete body names, without its resource. A namespace that is not text is refused,
    /// not ignored.
    ///
    /// # Errors
    /// [`Refused::Invalid`] with the field that is missing or not text.
    pub fn of_body(body: &Value) -> Result<Self, Refused> {
        let text = |path: &str| match body.pointer(path) {
            Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
            _ => {
                let field = path.trim_start_matches('/').replace('/', ".");
                Err(Refused::Invalid(format!("object: {field} must be text")))
            }
        };
        let namespace = match body.pointer("/metadata/namespace") {
            None => None,
            Some(_) => Some(text("/metadata/namespace")?),
        };
        let api_version = text("/apiVersion")?;
        let kind = text("/kind")?;
        let name = text("/metadata/name")?;
        Ok(Self { api_version, kind, resource: String::new(), namespace, name })
    }
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
    /// The Pod that it is about.
    pub target: PodKey,
    /// Its type.
    pub event_type: EventType,
    /// Why it was emitted, in CamelCase; for machines.
    pub reason: String,
    /// The action that was taken, in CamelCase; for machines.
    pub action: String,
    /// The message for people.
    pub note: String,
}

/// The type of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Information.
    Normal,
    /// A problem.
    Warning,
}

/// The result of sending an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventResult {
    /// The API server has it.
    Sent,
    /// The Event waits, because of the rate, a missing right or an unreachable API server.
    Delayed,
    /// The Event will not be sent.
    Dropped,
}

impl EventResult {
    /// Returns the value of the metrics' label `result`.
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
    /// The plugin's grants do not permit it.
    #[error("not granted")]
    NotGranted,
    /// The run has used up its budget.
    #[error("over budget")]
    OverBudget,
    /// An argument is invalid; the text says which and why.
    #[error("invalid: {0}")]
    Invalid(String),
    /// The API server did not answer, or not as expected.
    #[error("unavailable: {0}")]
    Unavailable(String),
}

/// The result of one write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteReport {
    /// The number that staging returned.
    pub id: u32,
    /// The text of [`Action::describe`].
    pub description: String,
    /// Its result.
    pub result: WriteResult,
}

/// The result of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteResult {
    /// The API server has changed the object.
    Applied,
    /// The object was in this state already.
    Unchanged,
    /// The object changed meanwhile; the next run decides on the new state.
    Conflict,
    /// Another field manager owns the field; the API server's message.
    OwnedByOther(String),
    /// A PodDisruptionBudget or a webhook does not permit it now; the API server's message.
    Blocked(String),
    /// The object no longer exists, or was replaced by another one of its name.
    Gone,
    /// The account has no right to do this; the API server's message.
    Forbidden(String),
    /// The API server does not accept the value; its message.
    Invalid(String),
    /// It was not sent, for example because of a Retry-After.
    NotSent,
    /// The result is not known: no response came, or one that cannot be decoded.
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
    /// Returns the message of the API server, to be changed.
    pub fn text_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::OwnedByOther(text) | Self::Blocked(text) | Self::Forbidden(text) | Self::Invalid(text) => Some(text),
            Self::Applied | Self::Unchanged | Self::Conflict | Self::Gone | Self::NotSent | Self::Unknown => None,
        }
    }

    /// Returns the value of the metrics' label `result`.
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
