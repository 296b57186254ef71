//! [`Write`]: a staged write in the form of a test's assertion.

use podium_vocabulary::{Action, ObjectOwner};
use serde_json::Value;

use super::authz;
use crate::{Condition, ObjectRef};

/// A staged write. `pod` is `namespace/name`, as in `Write::set_label("shop/cart-0", "team", "web")`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[expect(
    missing_docs,
    reason = "each is the function of `podium_sdk::writes` or `objects` of that name, and its arguments"
)]
pub enum Write {
    SetLabel { pod: String, key: String, value: String },
    RemoveLabel { pod: String, key: String },
    SetAnnotation { pod: String, key: String, value: String },
    RemoveAnnotation { pod: String, key: String },
    AddFinalizer { pod: String, name: String },
    RemoveFinalizer { pod: String, name: String },
    SetCondition { pod: String, condition: Condition },
    RemoveCondition { pod: String, condition_type: String },
    Delete { pod: String, grace_period_seconds: Option<u32> },
    Evict { pod: String },
    ApplyObject { object: Value, owner: Option<AppliedOwner> },
    DeleteObject { object: ObjectRef, uid: Option<String> },
    Scale { object: ObjectRef, replicas: u32 },
}

/// The owner of an applied object; the Pod is `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppliedOwner {
    /// The Pod.
    Pod(String),
    /// The Pod's top workload.
    Workload(String),
}

/// Short forms, so that an expected write fits on a line.
#[expect(missing_docs, reason = "each is the function of `podium_sdk::writes` or `objects` of that name")]
impl Write {
    #[must_use]
    pub fn set_label(pod: &str, key: &str, value: &str) -> Self {
        Self::SetLabel { pod: pod.into(), key: key.into(), value: value.into() }
    }

    #[must_use]
    pub fn remove_label(pod: &str, key: &str) -> Self {
        Self::RemoveLabel { pod: pod.into(), key: key.into() }
    }

    #[must_use]
    pub fn set_annotation(pod: &str, key: &str, value: &str) -> Self {
        Self::SetAnnotation { pod: pod.into(), key: key.into(), value: value.into() }
    }

    #[must_use]
    pub fn remove_annotation(pod: &str, key: &str) -> Self {
        Self::RemoveAnnotation { pod: pod.into(), key: key.into() }
    }

    #[must_use]
    pub fn add_finalizer(pod: &str, name: &str) -> Self {
        Self::AddFinalizer { pod: pod.into(), name: name.into() }
    }

    #[must_use]
    pub fn remove_finalizer(pod: &str, name: &str) -> Self {
        Self::RemoveFinalizer { pod: pod.into(), name: name.into() }
    }

    #[must_use]
    pub fn set_condition(pod: &str, condition: &Condition) -> Self {
        Self::SetCondition { pod: pod.into(), condition: condition.clone() }
    }

    #[must_use]
    pub fn remove_condition(pod: &str, condition_type: &str) -> Self {
        Self::RemoveCondition { pod: pod.into(), condition_type: condition_type.into() }
    }

    #[must_use]
    pub fn delete(pod: &str) -> Self {
        Self::Delete { pod: pod.into(), grace_period_seconds: None }
    }

    #[must_use]
    pub fn evict(pod: &str) -> Self {
        Self::Evict { pod: pod.into() }
    }

    #[must_use]
    pub fn apply_object(object: Value, owner: Option<AppliedOwner>) -> Self {
        Self::ApplyObject { object, owner }
    }

    #[must_use]
    pub fn delete_object(object: &ObjectRef) -> Self {
        Self::DeleteObject { object: object.clone(), uid: None }
    }

    #[must_use]
    pub fn scale(object: &ObjectRef, replicas: u32) -> Self {
        Self::Scale { object: object.clone(), replicas }
    }
}

impl From<Action> for Write {
    fn from(action: Action) -> Self {
        let condition = authz::condition(&action);
        let pod = action.pod().map(ToString::to_string).unwrap_or_default();
        match action {
            Action::SetLabel { key, value, .. } => Self::SetLabel { pod, key, value },
            Action::RemoveLabel { key, .. } => Self::RemoveLabel { pod, key },
            Action::SetAnnotation { key, value, .. } => Self::SetAnnotation { pod, key, value },
            Action::RemoveAnnotation { key, .. } => Self::RemoveAnnotation { pod, key },
            Action::AddFinalizer { name, .. } => Self::AddFinalizer { pod, name },
            Action::RemoveFinalizer { name, .. } => Self::RemoveFinalizer { pod, name },
            Action::SetCondition { .. } => Self::SetCondition { pod, condition: condition.unwrap_or_default() },
            Action::RemoveCondition { condition_type, .. } => Self::RemoveCondition { pod, condition_type },
            Action::DeletePod { grace_seconds, .. } => Self::Delete { pod, grace_period_seconds: grace_seconds },
            Action::EvictPod { .. } => Self::Evict { pod },
            Action::ApplyObject { body, owner, .. } => Self::ApplyObject {
                object: body,
                owner: owner.map(|owner| match owner {
                    ObjectOwner::Pod(key) => AppliedOwner::Pod(key.to_string()),
                    ObjectOwner::Workload(key) => AppliedOwner::Workload(key.to_string()),
                }),
            },
            Action::DeleteObject { object, uid } => Self::DeleteObject { object: (&object).into(), uid },
            Action::Scale { object, replicas } => Self::Scale { object: (&object).into(), replicas },
        }
    }
}
