//! Create and update for every kind. The order of checks is the API server's, so that the errors are its errors too.
//! The module `delete` has the deletion.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    clock::Clock,
    delete,
    failure::Failure,
    kinds::Kind,
    managed::{self, Author},
    meta::{self, Object},
    patch::lists::Schema,
    rules,
    state::State,
    store::Key,
};

/// Returns how lists of this kind's objects merge.
pub(crate) fn schema(kind: &Kind) -> Schema<'_> {
    if kind.custom { Schema::Custom(kind.schema.as_deref()) } else { Schema::BuiltIn(&kind.kind) }
}

/// The context of one write.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) kind: Arc<Kind>,
    pub(crate) author: Author,
    /// Whether the write is checked and answered, but not stored.
    pub(crate) dry_run: bool,
}

/// Stores a new object; `namespace` is the request's.
pub(crate) fn create(
    state: &mut State,
    clock: &Clock,
    write: &Write,
    namespace: Option<&str>,
    object: Value,
) -> Result<Object, Failure> {
    let kind = &*write.kind;
    let mut object = rules::from_view(kind, object);
    place(kind, namespace, &mut object)?;
    if meta::name(&object).is_empty() {
        let prefix = meta::text(&object, &["metadata", "generateName"]).to_owned();
        if !prefix.is_empty() {
            let name = format!("{prefix}{}", state.suffix());
            meta::set(&mut object, &["metadata", "name"], name);
        }
    }
    if !meta::revision(&object).is_empty() {
        return Err(Failure::unexpected("resourceVersion should not be set on objects to be created"));
    }
    let name = meta::name(&object).to_owned();
    if kind.namespaced {
        check_namespace(state, kind, &name, meta::namespace(&object))?;
    }
    for field in ["uid", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
        meta::remove(&mut object, &["metadata", field]);
    }
    meta::set(&mut object, &["metadata", "creationTimestamp"], clock.now());
    if kind.has_generation() {
        meta::set(&mut object, &["metadata", "generation"], 1);
    }
    if kind.status {
        meta::remove(&mut object, &["status"]);
    }
    meta::tidy(&mut object);
    rules::default(kind, &mut object);
    if !write.author.apply {
        managed::record(None, &mut object, schema(kind), &write.author);
    }
    let uid = state.uid();
    rules::prepare_create(kind, &mut object, &uid, &clock.now());
    if kind.is("pods") {
        let account = Key::new(meta::namespace(&object), meta::text(&object, &["spec", "serviceAccountName"]));
        rules::mount_token(&mut object, state.store.get("serviceaccounts", &account).map(|account| &**account));
    }
    let causes = rules::check_create(kind, &object);
    if !causes.is_empty() {
        return Err(Failure::invalid(kind, &name, &causes));
    }
    let key = Key::from_object(&object);
    if state.store.get(&kind.resource(), &key).is_some() {
        return Err(Failure::already_exists(kind, &name));
    }
    meta::set(&mut object, &["metadata", "uid"], uid);
    if write.dry_run {
        return Ok(Arc::new(object));
    }
    Ok(state.put(kind, object))
}

/// Changes an object: `change` receives it in the kind's version. If nothing changes, nothing is stored, and the
/// revision stays.
pub(crate) fn update(
    state: &mut State,
    write: &Write,
    key: &Key,
    change: impl FnOnce(&Value) -> Result<Value, Failure>,
) -> Result<Object, Failure> {
    let kind = &*write.kind;
    let resource = kind.resource();
    let subresource = write.author.subresource.as_str();
    let old = state.store.get(&resource, key).cloned().ok_or_else(|| Failure::not_found(kind, &key.name))?;
    let mut new = rules::from_view(kind, change(&rules::to_view(kind, &old))?);
    let revision = meta::revision(&new);
    if !revision.is_empty() && revision.parse::<u64>().is_err() {
        return Err(Failure::unexpected(format!("strconv.ParseUint: parsing \"{revision}\": invalid syntax")));
    }
    if !revision.is_empty() && revision != meta::revision(&old) {
        return Err(Failure::modified(kind, &key.name));
    }
    for field in ["uid", "creationTimestamp", "namespace"] {
        if meta::text(&new, &["metadata", field]).is_empty() {
            meta::copy(&old, &mut new, &["metadata", field]);
        }
    }
    for field in ["resourceVersion", "generation"] {
        meta::copy(&old, &mut new, &["metadata", field]);
    }
    if meta::is_terminating(&old) {
        meta::copy(&old, &mut new, &["metadata", "deletionTimestamp"]);
        meta::copy(&old, &mut new, &["metadata", "deletionGracePeriodSeconds"]);
    }
    meta::tidy(&mut new);
    rules::prepare_update(kind, subresource, &old, &mut new);
    let causes = rules::check_update(kind, subresource, &old, &new);
    if !causes.is_empty() {
        return Err(Failure::invalid(kind, &key.name, &causes));
    }
    // For an apply, the merge has already recorded the author in the object.
    if !write.author.apply {
        managed::record(Some(&old), &mut new, schema(kind), &write.author);
    }
    if kind.has_generation() && spec_differs(kind, &old, &new) {
        let generation = meta::at(&old, &["metadata", "generation"]).and_then(Value::as_i64).unwrap_or(0) + 1;
        meta::set(&mut new, &["metadata", "generation"], generation);
    }
    if new == *old {
        return Ok(old);
    }
    if write.dry_run {
        return Ok(Arc::new(new));
    }
    if delete::is_due(&old, &new) {
        // The response is the changed object with its old revision; the deletion gets a new one.
        state.remove(kind, key);
        return Ok(Arc::new(new));
    }
    Ok(state.put(kind, new))
}

fn spec_differs(kind: &Kind, old: &Value, new: &Value) -> bool {
    if !kind.custom {
        return old.get("spec") != new.get("spec");
    }
    let rest = |object: &Value| {
        let mut rest = object.clone();
        meta::remove(&mut rest, &["metadata"]);
        if kind.status {
            meta::remove(&mut rest, &["status"]);
        }
        rest
    };
    rest(old) != rest(new)
}

/// Sets the request's namespace in the object, or refuses another one.
fn place(kind: &Kind, namespace: Option<&str>, object: &mut Value) -> Result<(), Failure> {
    let said = meta::namespace(object).to_owned();
    match namespace {
        Some(namespace) if said.is_empty() => meta::set(object, &["metadata", "namespace"], namespace),
        Some(namespace) if said != namespace => {
            let message = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Failure::bad_request(message));
        }
        None if kind.namespaced => {
            return Err(Failure::bad_request("an empty namespace may not be set during creation"));
        }
        None if !said.is_empty() => {
            meta::remove(object, &["metadata", "namespace"]);
        }
        _ => {}
    }
    Ok(())
}

fn check_namespace(state: &State, kind: &Kind, name: &str, namespace: &str) -> Result<(), Failure> {
    let Some(found) = state.store.get("namespaces", &Key::new("", namespace)) else {
        return Err(Failure::not_found(&state.namespace_kind(), namespace));
    };
    if meta::is_terminating(found) { Err(Failure::terminating(kind, name, namespace)) } else { Ok(()) }
}

/// Refuses an object of another kind than that of the request's path.
pub(crate) fn check_kind(kind: &Kind, object: &Value) -> Result<(), Failure> {
    let version = meta::text(object, &["apiVersion"]);
    let own = kind.api_version();
    if (!version.is_empty() && version != own) || object.get("kind").is_some_and(|k| k != kind.kind.as_str()) {
        let message = format!(
            "the API version in the data ({version}, Kind={}) does not match the expected API version ({own}, \
             Kind={})",
            meta::text(object, &["kind"]),
            kind.kind
        );
        return Err(Failure::bad_request(message));
    }
    Ok(())
}

/// Refuses an object of another name than that of the request's path.
pub(crate) fn check_name(name: &str, object: &Value) -> Result<(), Failure> {
    let said = meta::name(object);
    if !name.is_empty() && !said.is_empty() && said != name {
        let message = format!("the name of the object ({said}) does not match the name on the URL ({name})");
        return Err(Failure::bad_request(message));
    }
    Ok(())
}

fn storage_key(kind: &Kind, object: &Value) -> String {
    let resource = if kind.custom { format!("{}/{}", kind.group, kind.plural) } else { kind.plural.clone() };
    let place = if kind.namespaced { format!("{}/", meta::namespace(object)) } else { String::new() };
    format!("/registry/{resource}/{place}{}", meta::name(object))
}

/// PUT: replaces the whole object.
pub(crate) fn replace(kind: &Kind, old: &Value, mut new: Value) -> Result<Value, Failure> {
    let name = meta::name(old);
    let uid = meta::uid(&new);
    if !uid.is_empty() && uid != meta::uid(old) {
        // The message of the storage layer, which names its key.
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
            failed: UID in precondition: {uid}, UID in object meta: {}",
            storage_key(kind, old),
            meta::uid(old)
        );
        return Err(Failure::conflict(kind, name, &why));
    }
    if meta::revision(&new).is_empty() && !kind.allows_unconditional_update() {
        return Err(Failure::unconditional(kind, name));
    }
    meta::default(&mut new, &["metadata", "name"], name);
    Ok(new)
}

/// Removes fields from an applied configuration that this endpoint does not permit.
pub(crate) fn applicable(kind: &Kind, subresource: &str, config: &mut Value) {
    if !kind.status {
        return;
    }
    if subresource == "status" {
        meta::remove(config, &["spec"]);
        meta::remove(config, &["metadata", "ownerReferences"]);
    } else {
        meta::remove(config, &["status"]);
    }
}
