//! Between the contract's generated types and the model's. Nothing is judged here.

use podium_vocabulary::{
    ConditionStatus, EventType, LabelOperator, LabelRequirement, LabelSelector, ObjectOwner, ObjectRef, PodKey,
    PodQuery, Refused, WriteReport, WriteResult,
};

use super::bindings::types;

impl From<types::PodKey> for PodKey {
    fn from(key: types::PodKey) -> Self {
        Self::new(&key.namespace, &key.name, &key.uid)
    }
}

impl From<&PodKey> for types::PodKey {
    fn from(key: &PodKey) -> Self {
        Self { namespace: key.namespace.to_string(), name: key.name.to_string(), uid: key.uid.to_string() }
    }
}

impl From<types::ConditionStatus> for ConditionStatus {
    fn from(status: types::ConditionStatus) -> Self {
        match status {
            types::ConditionStatus::True => Self::True,
            types::ConditionStatus::False => Self::False,
            types::ConditionStatus::Unknown => Self::Unknown,
        }
    }
}

impl From<types::EventType> for EventType {
    fn from(event_type: types::EventType) -> Self {
        match event_type {
            types::EventType::Normal => Self::Normal,
            types::EventType::Warning => Self::Warning,
        }
    }
}

impl From<types::ObjectRef> for ObjectRef {
    fn from(object: types::ObjectRef) -> Self {
        let types::ObjectRef { api_version, kind, namespace, name } = object;
        Self { api_version, kind, resource: String::new(), namespace, name }
    }
}

impl From<types::ObjectOwner> for ObjectOwner {
    fn from(owner: types::ObjectOwner) -> Self {
        match owner {
            types::ObjectOwner::Pod(key) => Self::Pod(key.into()),
            types::ObjectOwner::Workload(key) => Self::Workload(key.into()),
        }
    }
}

impl From<types::LabelRequirement> for LabelRequirement {
    fn from(requirement: types::LabelRequirement) -> Self {
        let operator = match requirement.operator {
            types::LabelOperator::Exists => LabelOperator::Exists,
            types::LabelOperator::DoesNotExist => LabelOperator::Absent,
            types::LabelOperator::In => LabelOperator::In,
            types::LabelOperator::NotIn => LabelOperator::NotIn,
        };
        Self { key: requirement.key, operator, values: requirement.values }
    }
}

impl From<types::PodQuery> for PodQuery {
    fn from(query: types::PodQuery) -> Self {
        Self {
            namespace: query.namespace.map(Into::into),
            node: query.node.map(Into::into),
            owner_uid: query.owner_uid.map(Into::into),
            phase: query.phase.map(Into::into),
            labels: LabelSelector(query.labels.into_iter().map(Into::into).collect()),
        }
    }
}

impl From<Refused> for types::CallError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NotGranted => Self::NotGranted,
            Refused::OverBudget => Self::OverBudget,
            Refused::Invalid(text) => Self::Invalid(text),
            Refused::Unavailable(text) => Self::Unavailable(text),
        }
    }
}

impl From<WriteReport> for types::WriteReport {
    fn from(report: WriteReport) -> Self {
        Self { id: report.id, description: report.description, result: report.result.into() }
    }
}

impl From<WriteResult> for types::WriteResult {
    fn from(result: WriteResult) -> Self {
        match result {
            WriteResult::Applied => Self::Applied,
            WriteResult::Unchanged => Self::Unchanged,
            WriteResult::Conflict => Self::Conflict,
            WriteResult::OwnedByOther(who) => Self::OwnedByOther(who),
            WriteResult::Blocked(why) => Self::Blocked(why),
            WriteResult::Gone => Self::Gone,
            WriteResult::Forbidden(why) => Self::Forbidden(why),
            WriteResult::Invalid(why) => Self::Invalid(why),
            WriteResult::NotSent => Self::NotSent,
            WriteResult::Unknown => Self::Unknown,
        }
    }
}
