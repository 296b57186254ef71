//! The API server's rules for an object of a kind before it is stored: defaults, immutable fields, validation. Pure
//! functions of an object and its previous version; they return an object or causes.

mod definitions;
mod events;
mod metadata;
mod pods;
mod schema;
mod small;
mod workloads;

pub(crate) use events::{from_view, to_view};
pub(crate) use pods::is_ready;
pub(crate) use small::base64;

use serde_json::Value;

use crate::{failure::Cause, kinds::Kind, meta};

/// Sets the defaults of the API server's types, which belong to the author of the object.
pub(crate) fn default(kind: &Kind, object: &mut Value) {
    if let Some(schema) = &kind.schema {
        schema::shape(schema, object);
    }
    match kind.resource().as_str() {
        "pods" => pods::default_spec(object),
        "secrets" => small::secret(object),
        "configmaps" => small::config_map(object),
        "namespaces" => small::label_namespace(object),
        _ if kind.runs_pods() => workloads::default_spec(kind, object),
        _ => {}
    }
}

/// Returns the fields of a custom resource that its schema does not have, sorted. The built-in kinds have types
/// instead.
pub(crate) fn unknown_fields(kind: &Kind, object: &Value) -> Vec<String> {
    let mut unknown = kind.schema.as_ref().map(|schema| schema::unknown(schema, object)).unwrap_or_default();
    unknown.sort();
    unknown
}

/// Adds to a new Pod the token of its ServiceAccount; `account` is the stored ServiceAccount.
pub(crate) fn mount_token(pod: &mut Value, account: Option<&Value>) {
    pods::mount_token(pod, account);
}

/// Sets the fields of a new object that the server itself sets and that have no field manager. `uid` is the object's.
pub(crate) fn prepare_create(kind: &Kind, object: &mut Value, uid: &str, now: &str) {
    match kind.resource().as_str() {
        "pods" => pods::prepare_create(object),
        "namespaces" => small::namespace(object),
        "poddisruptionbudgets.policy" => small::budget(object),
        "customresourcedefinitions.apiextensions.k8s.io" => definitions::prepare_create(object, now),
        _ if kind.runs_pods() => workloads::prepare_create(kind, object, uid),
        _ => {}
    }
}

/// Reverts changes that this endpoint does not permit.
pub(crate) fn prepare_update(kind: &Kind, subresource: &str, old: &Value, new: &mut Value) {
    match subresource {
        "status" => {
            let status = new.get("status").cloned();
            if kind.custom {
                *new = old.clone();
            } else {
                let mut kept = old.clone();
                meta::copy(new, &mut kept, &["metadata"]);
                meta::copy(old, &mut kept, &["metadata", "ownerReferences"]);
                *new = kept;
            }
            match status {
                Some(status) => meta::set(new, &["status"], status),
                None => {
                    meta::remove(new, &["status"]);
                }
            }
            if kind.is("pods") {
                meta::copy(old, new, &["status", "qosClass"]);
            }
        }
        _ if kind.status => {
            meta::copy(old, new, &["status"]);
        }
        _ => {}
    }
    default(kind, new);
    if kind.is("namespaces") && subresource != "finalize" {
        meta::copy(old, new, &["spec", "finalizers"]);
    }
}

pub(crate) fn check_create(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = metadata::check(kind, object);
    if let Some(schema) = &kind.schema {
        schema::check(schema, None, object, &mut causes);
    }
    match kind.resource().as_str() {
        "pods" => pods::check_create(object, &mut causes),
        "events" => events::check_create(kind, object, &mut causes),
        "customresourcedefinitions.apiextensions.k8s.io" => definitions::check(object, &mut causes),
        "leases.coordination.k8s.io" => small::check_lease(object, &mut causes),
        _ if kind.runs_pods() => workloads::check(kind, object, &mut causes),
        _ => {}
    }
    causes
}

pub(crate) fn check_update(kind: &Kind, subresource: &str, old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = metadata::check(kind, new);
    if kind.is("pods") {
        // Both validations of a Pod check metadata, and both report mistakes.
        causes.extend(causes.clone());
    }
    metadata::check_update(old, new, &mut causes);
    if let Some(schema) = &kind.schema {
        schema::check(schema, Some(old), new, &mut causes);
    }
    match kind.resource().as_str() {
        "pods" if subresource.is_empty() => pods::check_update(old, new, &mut causes),
        "pods" if subresource == "status" => pods::check_status(new, &mut causes),
        "configmaps" | "secrets" => small::check_immutable(old, new, &mut causes),
        "leases.coordination.k8s.io" => small::check_lease(new, &mut causes),
        _ if kind.runs_pods() && subresource != "status" => workloads::check_update(kind, old, new, &mut causes),
        _ => {}
    }
    causes
}
