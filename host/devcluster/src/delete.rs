//! Deletion: preconditions, grace of Pods, finalizers.

use crate::clock::{self, Clock};
use crate::failure::{self, Failure};
use crate::kinds::Kind;
use crate::meta::{self, Object};
use crate::rules;
use crate::state::State;
use crate::store::Key;
use serde_json::{Value, json};
use std::sync::Arc;

/// `DeleteOptions` as far as they are heeded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) grace_seconds: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) revision: Option<String>,
    /// `Foreground`, `Background`, `Orphan` or empty.
    pub(crate) propagation: String,
    pub(crate) dry_run: bool,
}

impl Options {
    pub(crate) fn read(value: &Value) -> Self {
        let word = |path: &[&str]| meta::at(value, path).and_then(Value::as_str).map(str::to_owned);
        Self {
            grace_seconds: value.get("gracePeriodSeconds").and_then(Value::as_i64),
            uid: word(&["preconditions", "uid"]),
            revision: word(&["preconditions", "resourceVersion"]),
            propagation: meta::text(value, &["propagationPolicy"]).to_owned(),
            dry_run: value.get("dryRun").is_some_and(|d| *d == json!(["All"])),
        }
    }
}

/// What a deletion did.
#[derive(Clone, Debug)]
pub(crate) enum Deleted {
    /// It is gone; this was its last state.
    Gone(Object),
    /// It waits for its grace or its finalizers.
    Waiting(Object),
}

impl Deleted {
    /// The body of the answer, as JSON.
    pub(crate) fn answer(&self, kind: &Kind) -> String {
        match self {
            Self::Gone(object) if !kind.returns_deleted() => {
                let mut details = json!({"name": meta::name(object), "kind": kind.plural, "uid": meta::uid(object)});
                if !kind.group.is_empty() {
                    details["group"] = json!(kind.group);
                }
                failure::success(Some(details)).to_string()
            }
            Self::Gone(object) | Self::Waiting(object) => rules::to_view(kind, object).to_string(),
        }
    }
}

pub(crate) fn delete(
    state: &mut State,
    clock: &Clock,
    kind: &Kind,
    key: &Key,
    options: &Options,
) -> Result<Deleted, Failure> {
    let old = state.store.get(&kind.resource(), key).cloned().ok_or_else(|| Failure::not_found(kind, &key.name))?;
    check_preconditions(kind, &old, options)?;
    if options.dry_run {
        return Ok(Deleted::Waiting(old));
    }
    if options.propagation == "Orphan" {
        orphan(state, meta::uid(&old));
    }
    let mut new = Value::clone(&old);
    if options.propagation == "Foreground" {
        let finalizers = meta::array(meta::object(&mut new["metadata"]).entry("finalizers").or_insert(json!([])));
        if !finalizers.iter().any(|f| f == "foregroundDeletion") {
            finalizers.push(json!("foregroundDeletion"));
        }
    }
    let grace = if kind.is("pods") { grace_of(&old, options) } else { 0 };
    let held = !meta::finalizers(&new).is_empty() || is_held_namespace(kind, &old);
    if meta::is_terminating(&old) {
        let current = meta::at(&old, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64).unwrap_or(0);
        let shorter = options.grace_seconds.is_some() && grace < current;
        if (shorter && grace == 0 || current == 0) && !held {
            return Ok(gone(state, kind, key, old));
        }
        if shorter {
            let at = clock::parse(meta::text(&old, &["metadata", "deletionTimestamp"])).unwrap_or_default();
            let at = at.saturating_sub(current.saturating_sub(grace).saturating_mul(1000));
            meta::set(&mut new, &["metadata", "deletionTimestamp"], clock::time(at));
            meta::set(&mut new, &["metadata", "deletionGracePeriodSeconds"], grace);
        }
        return Ok(Deleted::Waiting(if new == *old { old } else { state.put(kind, new) }));
    }
    if grace == 0 && !held {
        return Ok(gone(state, kind, key, old));
    }
    let at = clock.now_millis().saturating_add(grace.saturating_mul(1000));
    meta::set(&mut new, &["metadata", "deletionTimestamp"], clock::time(at));
    meta::set(&mut new, &["metadata", "deletionGracePeriodSeconds"], grace);
    if kind.has_generation() {
        let generation = meta::at(&old, &["metadata", "generation"]).and_then(Value::as_i64).unwrap_or(0) + 1;
        meta::set(&mut new, &["metadata", "generation"], generation);
    }
    if kind.is("namespaces") {
        meta::remove(&mut new, &["metadata", "deletionGracePeriodSeconds"]);
        meta::set(&mut new, &["status", "phase"], "Terminating");
    }
    Ok(Deleted::Waiting(state.put(kind, new)))
}

/// Whether an update of a terminating object took away the last thing that held it.
pub(crate) fn is_due(old: &Value, new: &Value) -> bool {
    let grace = meta::at(new, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64).unwrap_or(0);
    let namespace_held = !meta::list(new, &["spec", "finalizers"]).is_empty() && new["kind"] == "Namespace";
    meta::is_terminating(old) && meta::finalizers(new).is_empty() && grace == 0 && !namespace_held
}

fn is_held_namespace(kind: &Kind, object: &Value) -> bool {
    kind.is("namespaces") && !meta::list(object, &["spec", "finalizers"]).is_empty()
}

fn gone(state: &mut State, kind: &Kind, key: &Key, old: Object) -> Deleted {
    Deleted::Gone(state.remove(kind, key).unwrap_or(old))
}

/// Seconds a Pod is given: none where no kubelet runs it.
fn grace_of(pod: &Value, options: &Options) -> i64 {
    let finished = matches!(meta::text(pod, &["status", "phase"]), "Succeeded" | "Failed");
    if finished || meta::text(pod, &["spec", "nodeName"]).is_empty() {
        return 0;
    }
    let own = meta::at(pod, &["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_i64).unwrap_or(30);
    let grace = options.grace_seconds.unwrap_or(own);
    if grace < 0 { 1 } else { grace }
}

pub(crate) fn check_preconditions(kind: &Kind, object: &Value, options: &Options) -> Result<(), Failure> {
    let refuse = |field: &str, said: &str, is: &str| {
        let why = format!("Precondition failed: {field} in precondition: {said}, {field} in object meta: {is}");
        Err(Failure::conflict(kind, meta::name(object), &why))
    };
    if let Some(uid) = &options.uid
        && uid != meta::uid(object)
    {
        return refuse("UID", uid, meta::uid(object));
    }
    if let Some(revision) = &options.revision
        && revision != meta::revision(object)
    {
        return refuse("ResourceVersion", revision, meta::revision(object));
    }
    Ok(())
}

/// Dependents stay, without the reference to what is deleted.
fn orphan(state: &mut State, uid: &str) {
    for kind in state.kinds.stored() {
        let owned: Vec<Object> = state
            .store
            .iter(&kind.resource(), None)
            .filter(|(_, o)| meta::list(o, &["metadata", "ownerReferences"]).iter().any(|r| r["uid"] == uid))
            .map(|(_, o)| Arc::clone(o))
            .collect();
        for object in owned {
            let mut kept = Value::clone(&object);
            meta::array(&mut kept["metadata"]["ownerReferences"]).retain(|r| r["uid"] != uid);
            meta::tidy(&mut kept);
            state.put(&kind, kept);
        }
    }
}
