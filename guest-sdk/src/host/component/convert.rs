//! Converts generated types to the SDK's and back, without any logic.

use podium_wire::{ConditionStatus, Timestamp};

use super::bindings::{
    exports::podium::reconcile::reconciler,
    podium::reconcile::{pods, state, types},
};
use crate::{
    CallError, Error, ObjectOwner, ObjectRef, Pod, PodKey, Request, WriteReport, WriteResult,
    pods::{LabelOperator, Query},
    request::Subject,
    state::{Entry, PutError},
};

impl TryFrom<reconciler::Request> for Request {
    type Error = Error;

    fn try_from(request: reconciler::Request) -> Result<Self, Error> {
        let subject = match request.subject {
            reconciler::Subject::Present(record) => Subject::Present(Pod::open(record)?),
            reconciler::Subject::Deleted(last) => Subject::Deleted(last.map(Pod::open).transpose()?),
        };
        Ok(Self {
            key: PodKey { namespace: request.key.namespace, name: request.key.name, uid: request.key.uid },
            subject,
            now: Timestamp(i64::try_from(request.now_millis).unwrap_or(i64::MAX)),
            attempt: request.attempt,
            config: request.config,
            unsettled_writes: request.unsettled_writes.into_iter().map(Into::into).collect(),
        })
    }
}

impl From<ObjectOwner<'_>> for types::ObjectOwner {
    fn from(owner: ObjectOwner<'_>) -> Self {
        match owner {
            ObjectOwner::Pod(key) => Self::Pod(key.into()),
            ObjectOwner::Workload(key) => Self::Workload(key.into()),
        }
    }
}

impl From<&PodKey> for types::PodKey {
    fn from(key: &PodKey) -> Self {
        Self { namespace: key.namespace.clone(), name: key.name.clone(), uid: key.uid.clone() }
    }
}

impl From<&ObjectRef> for types::ObjectRef {
    fn from(object: &ObjectRef) -> Self {
        Self {
            api_version: object.api_version.clone(),
            kind: object.kind.clone(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
        }
    }
}

impl From<types::CallError> for CallError {
    fn from(refused: types::CallError) -> Self {
        match refused {
            types::CallError::NotGranted => Self::NotGranted,
            types::CallError::OverBudget => Self::OverBudget,
            types::CallError::Invalid(text) => Self::Invalid(text),
            types::CallError::Unavailable(text) => Self::Unavailable(text),
        }
    }
}

impl From<types::WriteReport> for WriteReport {
    fn from(report: types::WriteReport) -> Self {
        let result = match report.result {
            types::WriteResult::Applied => WriteResult::Applied,
            types::WriteResult::Unchanged => WriteResult::Unchanged,
            types::WriteResult::Conflict => WriteResult::Conflict,
            types::WriteResult::OwnedByOther(manager) => WriteResult::OwnedByOther(manager),
            types::WriteResult::Blocked(text) => WriteResult::Blocked(text),
            types::WriteResult::Gone => WriteResult::Gone,
            types::WriteResult::Forbidden(text) => WriteResult::Forbidden(text),
            types::WriteResult::Invalid(text) => WriteResult::Invalid(text),
            types::WriteResult::NotSent => WriteResult::NotSent,
            types::WriteResult::Unknown => WriteResult::Unknown,
        };
        Self { id: report.id, description: report.description, result }
    }
}

impl From<ConditionStatus> for types::ConditionStatus {
    fn from(status: ConditionStatus) -> Self {
        match status {
            ConditionStatus::True => Self::True,
            ConditionStatus::False => Self::False,
            ConditionStatus::Unknown => Self::Unknown,
        }
    }
}

impl From<&Query> for pods::PodQuery {
    fn from(query: &Query) -> Self {
        let labels = query.labels.iter().map(|requirement| types::LabelRequirement {
            key: requirement.key.clone(),
            operator: match requirement.operator {
                LabelOperator::Exists => types::LabelOperator::Exists,
                LabelOperator::DoesNotExist => types::LabelOperator::DoesNotExist,
                LabelOperator::In => types::LabelOperator::In,
                LabelOperator::NotIn => types::LabelOperator::NotIn,
            },
            values: requirement.values.clone(),
        });
        Self {
            namespace: query.namespace.clone(),
            node: query.node.clone(),
            owner_uid: query.owner_uid.clone(),
            phase: query.phase.clone(),
            labels: labels.collect(),
        }
    }
}

impl From<state::Entry> for Entry<Vec<u8>> {
    fn from(entry: state::Entry) -> Self {
        Self { value: entry.value, version: entry.version }
    }
}

impl From<state::PutError> for PutError {
    fn from(error: state::PutError) -> Self {
        match error {
            state::PutError::Conflict(there) => Self::Conflict(there.map(Into::into)),
            state::PutError::Other(refused) => Self::Other(refused.into()),
        }
    }
}
