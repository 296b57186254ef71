//! The host's authorization of a test's writes and Events, and the SDK's types in its words.

use std::borrow::Cow;

use podium_vocabulary::{
    Action, Event, EventType, Grants, KeyPattern, LabelOperator, LabelRequirement, LabelSelector, ObjectGrant,
    ObjectOwner, ObjectRef, PodKey, PodQuery, Refused, Write, WriteGrants,
    authz::{Authorized, Guarded, ObjectRead, authorize_or},
};
use podium_wire::object;
use serde_json::Value;

use super::configuration::Configuration;
use crate::CallError;

/// A value whose grants a host without a configuration has.
pub(super) trait Needs: Guarded {
    /// Returns exactly the grants that the value needs.
    fn needs(&self) -> Grants;
}

/// Checks a value as the host does, and calls `refused` with the reason if it is not granted.
pub(super) fn check<T: Needs>(
    configuration: &Configuration,
    value: T,
    refused: impl FnOnce(String),
) -> Result<T, CallError> {
    let grants = match &configuration.grants {
        Some(grants) => Cow::Borrowed(grants),
        None => Cow::Owned(value.needs()),
    };
    let authorized = authorize_or(&configuration.scope, &grants, value, refused);
    authorized.map(Authorized::into_inner).map_err(call_error)
}

impl Needs for ObjectRead {
    fn needs(&self) -> Grants {
        Grants { read_objects: vec![of_kind(&self.0)], ..Grants::default() }
    }
}

impl Needs for Event {
    fn needs(&self) -> Grants {
        Grants { write: WriteGrants { events: true, ..WriteGrants::default() }, ..Grants::default() }
    }
}

impl Needs for Write {
    fn needs(&self) -> Grants {
        let exactly = |key: &str| vec![KeyPattern(key.to_owned())];
        let mut grants = WriteGrants::default();
        match &self.action {
            Action::SetLabel { key, .. } | Action::RemoveLabel { key, .. } => grants.labels = exactly(key),
            Action::SetAnnotation { key, .. } | Action::RemoveAnnotation { key, .. } => {
                grants.annotations = exactly(key)
            }
            Action::AddFinalizer { name, .. } | Action::RemoveFinalizer { name, .. } => {
                grants.finalizers = exactly(name)
            }
            Action::SetCondition { condition_type, .. } | Action::RemoveCondition { condition_type, .. } => {
                grants.conditions = exactly(condition_type);
            }
            Action::ApplyObject { object, body, .. } => {
                let carried = object::check(body).unwrap_or_default();
                let all = |keys: Vec<&str>| keys.into_iter().map(|key| KeyPattern(key.to_owned())).collect();
                grants.labels = all(carried.labels);
                grants.annotations = all(carried.annotations);
                grants.finalizers = all(carried.finalizers);
                grants.objects = vec![of_kind(object)];
            }
            Action::DeleteObject { object, .. } => grants.objects = vec![of_kind(object)],
            Action::Scale { object, .. } => grants.scale = vec![of_kind(object)],
            Action::DeletePod { .. } => grants.delete = true,
            Action::EvictPod { .. } => grants.evict = true,
        }
        Grants { write: grants, ..Grants::default() }
    }
}

fn of_kind(object: &ObjectRef) -> ObjectGrant {
    let ObjectRef { api_version, kind, resource, .. } = object.clone();
    ObjectGrant { api_version, kind, resource }
}

/// Returns the object that a body names.
pub(super) fn applied(body: &Value, configuration: &Configuration) -> Result<ObjectRef, CallError> {
    Ok(with_resource(ObjectRef::of_body(body).map_err(call_error)?, configuration, |grants| &grants.write.objects))
}

pub(super) fn object_ref(object: &crate::ObjectRef, configuration: &Configuration) -> ObjectRef {
    with_resource(object.into(), configuration, |grants| &grants.write.objects)
}

/// Returns the object whose replicas are set.
pub(super) fn scaled(object: &crate::ObjectRef, configuration: &Configuration) -> ObjectRef {
    with_resource(object.into(), configuration, |grants| &grants.write.scale)
}

/// Returns the read of an object.
pub(super) fn object_read(object: &crate::ObjectRef, configuration: &Configuration) -> ObjectRead {
    ObjectRead(with_resource(object.into(), configuration, |grants| &grants.read_objects))
}

/// Returns the object with the resource that the grants name for its kind. Without a configuration every kind is
/// granted.
fn with_resource(object: ObjectRef, configuration: &Configuration, of: fn(&Grants) -> &[ObjectGrant]) -> ObjectRef {
    let resource = match &configuration.grants {
        Some(grants) => {
            ObjectGrant::resource(of(grants), &object.api_version, &object.kind).unwrap_or_default().to_owned()
        }
        None => object.kind.to_ascii_lowercase(),
    };
    ObjectRef { resource, ..object }
}

impl From<&crate::ObjectRef> for ObjectRef {
    fn from(object: &crate::ObjectRef) -> Self {
        let crate::ObjectRef { api_version, kind, namespace, name } = object.clone();
        Self { api_version, kind, resource: String::new(), namespace, name }
    }
}

impl From<&ObjectRef> for crate::ObjectRef {
    fn from(object: &ObjectRef) -> Self {
        let ObjectRef { api_version, kind, resource: _, namespace, name } = object.clone();
        Self { api_version, kind, namespace, name }
    }
}

impl From<&crate::PodKey> for PodKey {
    fn from(key: &crate::PodKey) -> Self {
        Self::new(&key.namespace, &key.name, &key.uid)
    }
}

impl From<crate::ObjectOwner<'_>> for ObjectOwner {
    fn from(owner: crate::ObjectOwner<'_>) -> Self {
        match owner {
            crate::ObjectOwner::Pod(key) => Self::Pod(key.into()),
            crate::ObjectOwner::Workload(key) => Self::Workload(key.into()),
        }
    }
}

/// Returns the write of a condition.
pub(super) fn set_condition(target: &crate::PodKey, condition: crate::Condition) -> Action {
    Action::SetCondition {
        target: target.into(),
        condition_type: condition.condition_type,
        status: condition.status,
        reason: condition.reason.unwrap_or_default(),
        message: condition.message.unwrap_or_default(),
    }
}

/// Returns the condition of a write; `None` for other writes.
pub(super) fn condition(action: &Action) -> Option<crate::Condition> {
    let Action::SetCondition { condition_type, status, reason, message, .. } = action else { return None };
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let condition = crate::Condition::new(condition_type, *status);
    Some(crate::Condition { reason: text(reason), message: text(message), ..condition })
}

pub(super) fn event(target: &crate::PodKey, event: crate::Event) -> Event {
    let crate::Event { event_type, reason, action, note } = event;
    let event_type = match event_type {
        crate::EventType::Normal => EventType::Normal,
        crate::EventType::Warning => EventType::Warning,
    };
    Event { target: target.into(), event_type, reason, action, note }
}

/// Returns the conditions of a search.
pub(super) fn query(query: &crate::pods::Query) -> PodQuery {
    use crate::pods;
    let pods::Query { namespace, node, owner_uid, phase, labels } = query.clone();
    let labels = labels.into_iter().map(|pods::LabelRequirement { key, operator, values }| {
        let operator = match operator {
            pods::LabelOperator::Exists => LabelOperator::Exists,
            pods::LabelOperator::DoesNotExist => LabelOperator::Absent,
            pods::LabelOperator::In => LabelOperator::In,
            pods::LabelOperator::NotIn => LabelOperator::NotIn,
        };
        LabelRequirement { key, operator, values }
    });
    let shared = |text: Option<String>| text.map(Into::into);
    PodQuery {
        namespace: shared(namespace),
        node: shared(node),
        owner_uid: shared(owner_uid),
        phase: shared(phase),
        labels: LabelSelector(labels.collect()),
    }
}

fn call_error(refused: Refused) -> CallError {
    match refused {
        Refused::NotGranted => CallError::NotGranted,
        Refused::OverBudget => CallError::OverBudget,
        Refused::Invalid(why) => CallError::Invalid(why),
        Refused::Unavailable(why) => CallError::Unavailable(why),
    }
}
