//! Writes to objects of other kinds: server-side apply, deletion and replicas, of exactly granted kinds.

use podium_wire::{
    object::{self, Carried},
    refusal,
};
use serde_json::Value;

use super::{covers, granted, may_carry, valid, valid_target};
use crate::{Action, Grant, ObjectGrant, ObjectRef, PodKey, Refused, Scope, WriteGrants, syntax};

pub(super) fn check(action: &Action, object: &ObjectRef, scope: &Scope, grants: &WriteGrants) -> Result<(), Refused> {
    valid_object(object)?;
    let mut covered = true;
    if let Action::ApplyObject { body, owner, .. } = action {
        covered = valid_body(object, body, grants)?;
        if let Some(owner) = owner {
            valid_owner(object, owner.pod())?;
        }
    }
    if let Action::DeleteObject { uid: Some(uid), .. } = action {
        valid("uid", uid, syntax::uid)?;
    }
    let mut kinds = &grants.objects;
    if let Action::Scale { replicas, .. } = action {
        kinds = &grants.scale;
        if i32::try_from(*replicas).is_err() {
            return Err(Refused::Invalid(format!("replicas: {replicas}, at most {}", i32::MAX)));
        }
    }
    // A plugin writes to Pods by the verbs for Pods, which have their own grants and never create.
    let is_pod = object.kind == "Pod" || object.resource == "pods";
    granted(is_granted(object, kinds) && !is_pod && covered && in_scope(object, scope))
}

/// Returns whether grants have the object's kind with its resource, which is in the path of the request: so a request
/// for a granted kind reaches nothing but that resource.
pub(super) fn is_granted(object: &ObjectRef, grants: &[ObjectGrant]) -> bool {
    let is_named = |grant: &ObjectGrant| {
        grant.api_version == object.api_version && grant.kind == object.kind && grant.resource == object.resource
    };
    grants.iter().any(is_named) && syntax::dns_label(&object.resource).is_ok()
}

/// Returns what a write of an object lacks in the grants.
pub(super) fn lacking(action: &Action, object: &ObjectRef, grants: &WriteGrants) -> String {
    if let Action::Scale { .. } = action {
        return lacking_kind(Grant::Scale, object, &grants.scale);
    }
    match ObjectGrant::resource(&grants.objects, &object.api_version, &object.kind) {
        Some(_) => refusal::CARRIED.to_owned(),
        None => lacking_kind(Grant::Objects, object, &grants.objects),
    }
}

/// Returns the message about a kind that a list of grants does not have.
pub(super) fn lacking_kind(grant: Grant, object: &ObjectRef, grants: &[ObjectGrant]) -> String {
    let kinds: Vec<String> = grants.iter().map(|grant| format!("{} {}", grant.api_version, grant.kind)).collect();
    let kind = format!("{} {}", object.api_version, object.kind);
    refusal::lacking(grant.field(), &kind, kinds.iter().map(String::as_str))
}

pub(super) fn in_scope(object: &ObjectRef, scope: &Scope) -> bool {
    match (scope, &object.namespace) {
        (_, Some(namespace)) => scope.contains(namespace),
        (Scope::Namespace(_), None) => false,
        (Scope::Cluster, None) => true,
    }
}

pub(super) fn valid_object(object: &ObjectRef) -> Result<(), Refused> {
    valid("apiVersion", &object.api_version, syntax::api_version)?;
    valid("kind", &object.kind, syntax::upper_camel_case)?;
    if let Some(namespace) = &object.namespace {
        valid("namespace", namespace, syntax::dns_label)?;
    }
    valid("object name", &object.name, syntax::dns_subdomain)
}

/// Checks that the body may be applied and names the object of the reference, because the body is sent. Returns whether
/// the grants cover its keys and the finalizers of templates.
fn valid_body(object: &ObjectRef, body: &Value, grants: &WriteGrants) -> Result<bool, Refused> {
    let Carried { labels, annotations, finalizers } = object::check(body).map_err(Refused::Invalid)?;
    let text = |path: &str| body.pointer(path).and_then(Value::as_str);
    // A namespace that is no text would read as none.
    let is_named = text("/apiVersion") == Some(&object.api_version)
        && text("/kind") == Some(&object.kind)
        && text("/metadata/name") == Some(&object.name)
        && text("/metadata/namespace") == object.namespace.as_deref()
        && body.pointer("/metadata/namespace").is_none_or(Value::is_string);
    if !is_named {
        let fields = "apiVersion, kind, metadata.namespace and metadata.name";
        return Err(Refused::Invalid(format!("{fields} must be the object's")));
    }
    Ok(labels.iter().all(|key| may_carry(&grants.labels, key))
        && annotations.iter().all(|key| may_carry(&grants.annotations, key))
        && finalizers.iter().all(|name| covers(&grants.finalizers, name)))
}

/// Kubernetes collects an object whose owner is in another namespace as an orphan, at once.
fn valid_owner(object: &ObjectRef, owner: &PodKey) -> Result<(), Refused> {
    valid_target(owner)?;
    if object.namespace.as_deref() == Some(&*owner.namespace) {
        return Ok(());
    }
    Err(Refused::Invalid("the owner must be in the object's namespace".to_owned()))
}
