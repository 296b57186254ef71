//! Writes to Pods: labels, annotations, finalizers, conditions, deletion, eviction.

use podium_wire::{object, refusal};

use super::{covers, granted, needs, valid, valid_length, valid_target};
use crate::{Action, Grant, PodKey, Refused, Scope, WriteGrants, syntax};

/// The API server's bounds for a `metav1.Condition`. It has none for the conditions of a Pod.
const MAX_CONDITION_REASON_BYTES: usize = 1 << 10;

pub(super) fn check(action: &Action, target: &PodKey, scope: &Scope, grants: &WriteGrants) -> Result<(), Refused> {
    valid_target(target)?;
    let covered = match action {
        Action::SetLabel { key, value, .. } => {
            valid("label value", value, syntax::label_value)?;
            label(grants, key)?
        }
        Action::RemoveLabel { key, .. } => label(grants, key)?,
        Action::SetAnnotation { key, value, .. } => {
            valid_length("annotation value", value, syntax::MAX_ANNOTATION_VALUE_BYTES)?;
            annotation(grants, key)?
        }
        Action::RemoveAnnotation { key, .. } => annotation(grants, key)?,
        Action::AddFinalizer { name, .. } | Action::RemoveFinalizer { name, .. } => finalizer(grants, name)?,
        Action::SetCondition { condition_type, reason, message, .. } => {
            condition_reason(reason)?;
            valid_length("condition message", message, syntax::MAX_CONDITION_MESSAGE_BYTES)?;
            condition(grants, condition_type)?
        }
        Action::RemoveCondition { condition_type, .. } => condition(grants, condition_type)?,
        Action::DeletePod { .. } => grants.delete,
        Action::EvictPod { .. } => grants.evict,
        // Not on Pods; `Action::target` sends them to `object`.
        Action::ApplyObject { .. } | Action::DeleteObject { .. } | Action::Scale { .. } => false,
    };
    granted(covered && scope.contains(&target.namespace))
}

/// Returns what a write to a Pod lacks in the grants.
pub(super) fn lacking(action: &Action, grants: &WriteGrants) -> String {
    let (grant, key, patterns) = match action {
        Action::SetLabel { key, .. } | Action::RemoveLabel { key, .. } => (Grant::Labels, key, &grants.labels),
        Action::SetAnnotation { key, .. } | Action::RemoveAnnotation { key, .. } => {
            (Grant::Annotations, key, &grants.annotations)
        }
        Action::AddFinalizer { name, .. } | Action::RemoveFinalizer { name, .. } => {
            (Grant::Finalizers, name, &grants.finalizers)
        }
        Action::SetCondition { condition_type, .. } | Action::RemoveCondition { condition_type, .. } => {
            (Grant::Conditions, condition_type, &grants.conditions)
        }
        Action::DeletePod { .. } => return needs(Grant::Delete),
        Action::EvictPod { .. } => return needs(Grant::Evict),
        Action::ApplyObject { .. } | Action::DeleteObject { .. } | Action::Scale { .. } => {
            return refusal::CARRIED.to_owned();
        }
    };
    refusal::lacking(grant.field(), key, patterns.iter().map(|pattern| &*pattern.0))
}

fn label(grants: &WriteGrants, key: &str) -> Result<bool, Refused> {
    valid("label key", key, syntax::qualified_name)?;
    Ok(!syntax::is_forbidden_key(key) && covers(&grants.labels, key))
}

fn annotation(grants: &WriteGrants, key: &str) -> Result<bool, Refused> {
    valid("annotation key", key, syntax::qualified_name)?;
    Ok(!syntax::is_forbidden_key(key) && covers(&grants.annotations, key))
}

fn finalizer(grants: &WriteGrants, name: &str) -> Result<bool, Refused> {
    object::finalizer(name).map_err(Refused::Invalid)?;
    Ok(covers(&grants.finalizers, name))
}

fn condition(grants: &WriteGrants, condition_type: &str) -> Result<bool, Refused> {
    valid("condition type", condition_type, syntax::qualified_name)?;
    Ok(!syntax::is_builtin_condition(condition_type) && covers(&grants.conditions, condition_type))
}

/// Empty, or one word for programs: letters, digits, `_`, `,` and `:`, as `metav1.Condition` has it.
fn condition_reason(reason: &str) -> Result<(), Refused> {
    valid_length("condition reason", reason, MAX_CONDITION_REASON_BYTES)?;
    let begins = reason.bytes().next().is_none_or(|byte| byte.is_ascii_alphabetic());
    let ends = reason.bytes().last().is_none_or(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if begins && ends && reason.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b',' | b':')) {
        return Ok(());
    }
    Err(Refused::Invalid(format!("condition reason {} must be one CamelCase word", syntax::quoted(reason))))
}
