//! Writes to objects of other kinds: server-side apply and deletion, of exactly granted kinds.

use podium_pods::model::{Action, ObjectRef, PodKey, Refused, Scope, WriteGrants, syntax};
use serde_json::{Map, Value};

use super::{granted, may_carry, pod, valid, valid_target};

/// Fields of `metadata` that the server or the host alone sets: with them a body could take over another incarnation,
/// tie itself to a foreign owner, or claim fields in another manager's name.
const HOST_ONLY: [&str; 4] = ["managedFields", "ownerReferences", "resourceVersion", "uid"];

pub(super) fn check(action: &Action, scope: &Scope, grants: &WriteGrants) -> Result<(), Refused> {
    let mut covered = true;
    let object = match action {
        Action::ApplyObject { object, body, owner } => {
            valid_object(object)?;
            covered = valid_body(object, body, grants)?;
            if let Some(owner) = owner {
                valid_owner(object, owner)?;
            }
            object
        }
        Action::DeleteObject { object, uid } => {
            valid_object(object)?;
            if let Some(uid) = uid {
                valid("uid", uid, syntax::uid)?;
            }
            object
        }
        _ => return Err(Refused::NotGranted),
    };
    // The resource is in the path of the request, so a write of a granted kind reaches nothing but that resource.
    let resource = grants.resource(&object.api_version, &object.kind);
    let kind = resource == Some(&*object.resource) && syntax::dns_label(&object.resource).is_ok();
    // A plugin writes to Pods by the verbs for Pods, which have grants of their own and never create.
    let is_pod = object.kind == "Pod" || object.resource == "pods";
    granted(kind && !is_pod && covered && in_scope(object, scope))
}

fn in_scope(object: &ObjectRef, scope: &Scope) -> bool {
    match (scope, &object.namespace) {
        (_, Some(namespace)) => scope.contains(namespace),
        (Scope::Namespace(_), None) => false,
        (Scope::Cluster, None) => true,
    }
}

fn valid_object(object: &ObjectRef) -> Result<(), Refused> {
    valid("apiVersion", &object.api_version, syntax::api_version)?;
    valid("kind", &object.kind, syntax::upper_camel_case)?;
    if let Some(namespace) = &object.namespace {
        valid("namespace", namespace, syntax::dns_label)?;
    }
    valid("object name", &object.name, syntax::dns_subdomain)
}

/// Checks that the body names the object of the reference, because the body is sent. Returns whether the grants cover
/// its keys and finalizers.
fn valid_body(object: &ObjectRef, body: &Value, grants: &WriteGrants) -> Result<bool, Refused> {
    let invalid = |text: &str| Refused::Invalid(text.to_owned());
    let body = body.as_object().ok_or_else(|| invalid("the object must be a JSON object"))?;
    let metadata = body.get("metadata").and_then(Value::as_object);
    let metadata = metadata.ok_or_else(|| invalid("the object must have metadata"))?;
    if let Some(field) = HOST_ONLY.iter().find(|field| metadata.contains_key(**field)) {
        return Err(invalid(&format!("metadata.{field} is for the host to set; leave it out")));
    }
    let text = |from: &Map<String, Value>, field: &str| from.get(field).and_then(Value::as_str).map(str::to_owned);
    let named = ObjectRef {
        api_version: text(body, "apiVersion").unwrap_or_default(),
        kind: text(body, "kind").unwrap_or_default(),
        resource: object.resource.clone(),
        namespace: text(metadata, "namespace"),
        name: text(metadata, "name").unwrap_or_default(),
    };
    // A namespace that is no text would read as none.
    let namespace_is_text = metadata.get("namespace").is_none_or(Value::is_string);
    if named != *object || !namespace_is_text {
        return Err(invalid("apiVersion, kind, metadata.namespace and metadata.name must be the object's"));
    }
    let mut covered = true;
    for (field, what, patterns) in
        [("labels", "label key", &grants.labels), ("annotations", "annotation key", &grants.annotations)]
    {
        let keys = match metadata.get(field) {
            None | Some(Value::Null) => continue,
            Some(Value::Object(keys)) => keys,
            Some(_) => return Err(invalid(&format!("metadata.{field} must be a JSON object"))),
        };
        for key in keys.keys() {
            valid(what, key, syntax::qualified_name)?;
            covered &= may_carry(patterns, key);
        }
    }
    let names = match metadata.get("finalizers") {
        None | Some(Value::Null) => return Ok(covered),
        Some(Value::Array(names)) => names,
        Some(_) => return Err(invalid("metadata.finalizers must be a JSON array")),
    };
    for name in names {
        let name = name.as_str().ok_or_else(|| invalid("a finalizer must be text"))?;
        covered &= pod::finalizer(grants, name)?;
    }
    Ok(covered)
}

/// Kubernetes collects an object whose owner is in another namespace as an orphan, at once.
fn valid_owner(object: &ObjectRef, owner: &PodKey) -> Result<(), Refused> {
    valid_target(owner)?;
    if object.namespace.as_deref() == Some(&*owner.namespace) {
        return Ok(());
    }
    Err(Refused::Invalid("the owner must be in the object's namespace".to_owned()))
}
