//! The checks that the host makes when a write is staged: first for invalid arguments, then for missing grants. The
//! rules and their order are those of the host's `authz`; `tests/tests/test_host.rs` compares the two.

use std::ops::Deref;

use podium_config::plugin::{ObjectGrant, WriteGrants};
use podium_wire::{
    object::{self, Carried},
    refusal, syntax,
};
use serde_json::Value;

use super::{
    Write,
    configuration::{Configuration, cover},
};
use crate::{CallError, Condition, Event, ObjectOwner, ObjectRef, PodKey};

type Check = Result<(), CallError>;

const MAX_CONDITION_REASON_BYTES: usize = 1 << 10;

/// Why a write was not granted although the configuration has its grant.
pub(super) enum Denied {
    Refused(CallError),
    /// The plugin belongs to another namespace.
    OutOfScope,
}

impl From<CallError> for Denied {
    fn from(refused: CallError) -> Self {
        Self::Refused(refused)
    }
}

/// Checks a write to the Pod `target`.
pub(super) fn check_pod(configuration: &Configuration, target: &PodKey, write: &Write) -> Result<(), Denied> {
    valid_target(target)?;
    match write {
        Write::SetLabel { key, value, .. } => {
            valid("label value", value, syntax::label_value)?;
            label(configuration, key)
        }
        Write::RemoveLabel { key, .. } => label(configuration, key),
        Write::SetAnnotation { key, value, .. } => {
            at_most("annotation value", value, syntax::MAX_ANNOTATION_VALUE_BYTES)?;
            annotation(configuration, key)
        }
        Write::RemoveAnnotation { key, .. } => annotation(configuration, key),
        Write::AddFinalizer { name, .. } | Write::RemoveFinalizer { name, .. } => {
            object::finalizer(name).map_err(CallError::Invalid)?;
            configuration.granted(|grants| cover(&grants.finalizers, name))
        }
        Write::SetCondition { condition, .. } => {
            valid_condition(condition)?;
            granted_condition(configuration, &condition.condition_type)
        }
        Write::RemoveCondition { condition_type, .. } => granted_condition(configuration, condition_type),
        Write::Delete { .. } => configuration.granted(|grants| grants.delete),
        Write::Evict { .. } => configuration.granted(|grants| grants.evict),
        Write::ApplyObject { .. } | Write::DeleteObject { .. } => Err(CallError::NotGranted),
    }?;
    in_scope(configuration, &target.namespace)
}

/// Checks an Event about a Pod.
pub(super) fn check_event(configuration: &Configuration, target: &PodKey, event: &Event) -> Result<(), Denied> {
    valid_target(target)?;
    valid("reason", &event.reason, syntax::upper_camel_case)?;
    valid("action", &event.action, syntax::upper_camel_case)?;
    at_most("note", &event.note, syntax::MAX_NOTE_BYTES)?;
    if event.note.is_empty() {
        Err(CallError::Invalid("note must not be empty".to_owned()))?;
    }
    configuration.granted(|grants| grants.events)?;
    in_scope(configuration, &target.namespace)
}

/// Checks an apply of the complete object.
pub(super) fn check_apply(
    configuration: &Configuration,
    object: &ObjectRef,
    body: &Value,
    owner: Option<ObjectOwner<'_>>,
) -> Result<(), Denied> {
    valid_object(object)?;
    let carried = object::check(body).map_err(CallError::Invalid)?;
    if let Some(owner) = owner.map(ObjectOwner::pod) {
        valid_target(owner)?;
        // Kubernetes deletes an object at once if its owner is in another namespace.
        if object.namespace.as_deref() != Some(&*owner.namespace) {
            Err(CallError::Invalid("the owner must be in the object's namespace".to_owned()))?;
        }
    }
    if carried.labels.iter().chain(&carried.annotations).any(|key| syntax::is_forbidden_key(key)) {
        Err(CallError::NotGranted)?;
    }
    configuration.granted(|grants| is_covered(&carried, grants))?;
    granted_object(configuration, object)
}

pub(super) fn check_delete_object(
    configuration: &Configuration,
    object: &ObjectRef,
    uid: Option<&str>,
) -> Result<(), Denied> {
    valid_object(object)?;
    if let Some(uid) = uid {
        valid("uid", uid, syntax::uid)?;
    }
    granted_object(configuration, object)
}

/// Returns what a write to a Pod lacks in the grants.
pub(super) fn lacking(write: &Write, grants: &WriteGrants) -> String {
    fn of<T: Deref<Target = str>>(field: &str, key: &str, patterns: &[T]) -> String {
        refusal::lacking(field, key, patterns.iter().map(|pattern| &**pattern))
    }
    match write {
        Write::SetLabel { key, .. } | Write::RemoveLabel { key, .. } => of("write.labels", key, &grants.labels),
        Write::SetAnnotation { key, .. } | Write::RemoveAnnotation { key, .. } => {
            of("write.annotations", key, &grants.annotations)
        }
        Write::AddFinalizer { name, .. } | Write::RemoveFinalizer { name, .. } => {
            of("write.finalizers", name, &grants.finalizers)
        }
        Write::SetCondition { condition, .. } => of("write.conditions", &condition.condition_type, &grants.conditions),
        Write::RemoveCondition { condition_type, .. } => of("write.conditions", condition_type, &grants.conditions),
        Write::Delete { .. } => refusal::needs("write.delete: true"),
        Write::Evict { .. } => refusal::needs("write.evict: true"),
        Write::ApplyObject { .. } | Write::DeleteObject { .. } => refusal::CARRIED.to_owned(),
    }
}

/// Returns what a write of an object lacks in the grants.
pub(super) fn lacking_of_object(object: &ObjectRef, grants: &WriteGrants) -> String {
    let kind = format!("{} {}", object.api_version, object.kind);
    let kinds: Vec<String> =
        grants.objects.iter().map(|grant| format!("{} {}", &*grant.api_version, &*grant.kind)).collect();
    if kinds.contains(&kind) {
        return refusal::CARRIED.to_owned();
    }
    refusal::lacking("write.objects", &kind, kinds.iter().map(String::as_str))
}

fn in_scope(configuration: &Configuration, namespace: &str) -> Result<(), Denied> {
    if configuration.sees(namespace) { Ok(()) } else { Err(Denied::OutOfScope) }
}

fn granted_object(configuration: &Configuration, object: &ObjectRef) -> Result<(), Denied> {
    let of = |grant: &ObjectGrant| *grant.api_version == *object.api_version && *grant.kind == *object.kind;
    configuration.granted(|grants| object.kind != "Pod" && grants.objects.iter().any(of))?;
    // Pods cannot be applied, whatever is granted.
    if object.kind == "Pod" {
        Err(CallError::NotGranted)?;
    }
    match &object.namespace {
        Some(namespace) => in_scope(configuration, namespace),
        None if configuration.namespace.is_some() => Err(Denied::OutOfScope),
        None => Ok(()),
    }
}

fn granted_key<T: Deref<Target = str>>(
    configuration: &Configuration,
    what: &str,
    key: &str,
    patterns: impl FnOnce(&WriteGrants) -> &[T],
) -> Check {
    valid(what, key, syntax::qualified_name)?;
    configuration.granted(|grants| cover(patterns(grants), key))
}

fn label(configuration: &Configuration, key: &str) -> Check {
    granted_key(configuration, "label key", key, |grants| &grants.labels)?;
    if syntax::is_forbidden_key(key) { Err(CallError::NotGranted) } else { Ok(()) }
}

fn annotation(configuration: &Configuration, key: &str) -> Check {
    granted_key(configuration, "annotation key", key, |grants| &grants.annotations)?;
    if syntax::is_forbidden_key(key) { Err(CallError::NotGranted) } else { Ok(()) }
}

fn granted_condition(configuration: &Configuration, condition_type: &str) -> Check {
    granted_key(configuration, "condition type", condition_type, |grants| &grants.conditions)?;
    if syntax::is_builtin_condition(condition_type) { Err(CallError::NotGranted) } else { Ok(()) }
}

/// Checks a condition: the reason is empty or one word for programs; the message is bounded.
fn valid_condition(condition: &Condition) -> Check {
    let reason = condition.reason.as_deref().unwrap_or_default();
    at_most("condition reason", reason, MAX_CONDITION_REASON_BYTES)?;
    let begins = reason.bytes().next().is_none_or(|byte| byte.is_ascii_alphabetic());
    let ends = reason.bytes().last().is_none_or(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b',' | b':');
    if !(begins && ends && reason.bytes().all(inside)) {
        return Err(CallError::Invalid(format!(
            "condition reason {} must be one CamelCase word",
            syntax::quoted(reason)
        )));
    }
    at_most("condition message", condition.message.as_deref().unwrap_or_default(), syntax::MAX_CONDITION_MESSAGE_BYTES)
}

fn valid_target(target: &PodKey) -> Check {
    valid("namespace", &target.namespace, syntax::dns_label)?;
    valid("Pod name", &target.name, syntax::dns_subdomain)?;
    valid("uid", &target.uid, syntax::uid)
}

fn valid_object(object: &ObjectRef) -> Check {
    valid("apiVersion", &object.api_version, syntax::api_version)?;
    valid("kind", &object.kind, syntax::upper_camel_case)?;
    if let Some(namespace) = &object.namespace {
        valid("namespace", namespace, syntax::dns_label)?;
    }
    valid("object name", &object.name, syntax::dns_subdomain)
}

/// Returns whether the grants cover the keys in an object: as on Pods, reserved keys need a grant of the exact key. The
/// grant of the kind covers all other keys.
fn is_covered(carried: &Carried<'_>, grants: &WriteGrants) -> bool {
    fn may_carry<T: Deref<Target = str>>(patterns: &[T], keys: &[&str]) -> bool {
        keys.iter().all(|key| !syntax::is_reserved_key(key) || cover(patterns, key))
    }
    may_carry(&grants.labels, &carried.labels)
        && may_carry(&grants.annotations, &carried.annotations)
        && carried.finalizers.iter().all(|name| cover(&grants.finalizers, name))
}

/// Returns the identity in a complete object.
pub(super) fn object_ref(body: &Value) -> Result<ObjectRef, CallError> {
    let text = |path: &str| match body.pointer(path) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        _ => {
            Err(CallError::Invalid(format!("object: {} must be text", path.trim_start_matches('/').replace('/', "."))))
        }
    };
    let namespace = match body.pointer("/metadata/namespace") {
        None => None,
        Some(_) => Some(text("/metadata/namespace")?),
    };
    Ok(ObjectRef { api_version: text("/apiVersion")?, kind: text("/kind")?, namespace, name: text("/metadata/name")? })
}

fn valid(what: &str, value: &str, check: fn(&str) -> Result<(), &'static str>) -> Check {
    check(value).map_err(|rule| CallError::Invalid(format!("{what} {} {rule}", syntax::quoted(value))))
}

fn at_most(what: &str, value: &str, bytes: usize) -> Check {
    if value.len() <= bytes {
        return Ok(());
    }
    Err(CallError::Invalid(format!("{what} is {} bytes long, at most {bytes} are allowed", value.len())))
}
