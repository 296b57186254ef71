//! Deletion: preconditions, grace periods of Pods, finalizers.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    clock::{self, Clock},
    failure::{self, Cause, Failure},
    kinds::Kind,
    meta::{self, Object},
    rules,
    state::State,
    store::Key,
};

/// Finalizers by which a deletion instructs the garbage collector.
pub(crate) const ORPHAN: &str = "orphan";
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// The supported `DeleteOptions`.
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
    /// # Errors
    /// Returns an error if a field has another type, or if options are unknown or contradict each other.
    pub(crate) fn read(value: &Value) -> Result<Self, Failure> {
        let word = |path: &[&str]| meta::at(value, path).and_then(Value::as_str).map(str::to_owned);
        let grace_seconds = match &value["gracePeriodSeconds"] {
            Value::Null => None,
            seconds => Some(seconds.as_i64().ok_or_else(|| {
                let found = if seconds.is_string() { "string" } else { "value" };
                let field = "Go struct field DeleteOptions.gracePeriodSeconds of type int64";
                Failure::bad_request(format!("json: cannot unmarshal {found} into {field}"))
            })?),
        };
        let mut propagation = meta::text(value, &["propagationPolicy"]);
        let mut causes = Vec::new();
        match value["orphanDependents"].as_bool() {
            None => {}
            Some(_) if !propagation.is_empty() => {
                let detail = "orphanDependents and deletionPropagation cannot be both set";
                causes.push(Cause::invalid("propagationPolicy", &propagation.into(), detail));
            }
            Some(orphan) => propagation = if orphan { "Orphan" } else { "Background" },
        }
        if !matches!(propagation, "" | "Foreground" | "Background" | "Orphan") {
            let known = ["Foreground", "Background", "Orphan", "nil"];
            causes.push(Cause::unsupported("propagationPolicy", &propagation.into(), &known));
        }
        let dry_run = meta::list(value, &["dryRun"]);
        if dry_run.iter().any(|word| word != "All") {
            causes.push(Cause::unsupported("dryRun", &json!(dry_run), &["All"]));
        }
        if !causes.is_empty() {
            return Err(Failure::invalid_of("meta.k8s.io", "DeleteOptions", "", &causes));
        }
        Ok(Self {
            grace_seconds,
            uid: word(&["preconditions", "uid"]),
            revision: word(&["preconditions", "resourceVersion"]),
            propagation: propagation.to_owned(),
            dry_run: !dry_run.is_empty(),
        })
    }
}

/// The result of a deletion.
#[derive(Clone, Debug)]
pub(crate) enum Deleted {
    /// The object is gone; this was its last state.
    Gone(Object),
    /// The object waits for its grace period or its finalizers.
    Waiting(Object),
}

impl Deleted {
    /// Returns the body of the response as JSON.
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
    let mut new = Value::clone(&old);
    if kind.is("pods") && meta::is_terminating(&old) {
        let current = grace_left(&old);
        if current > 0 {
            match options.grace_seconds.map(at_least_one) {
                Some(seconds) if seconds < current => shorten(&mut new, current, seconds),
                // Only a shorter grace period has an effect.
                _ => return Ok(Deleted::Waiting(old)),
            }
        }
    }
    for_collector(&mut new, &options.propagation);
    let held = !meta::finalizers(&new).is_empty() || is_held_namespace(kind, &old);
    if !meta::is_terminating(&old) && (kind.is("pods") || held) {
        mark(kind, &mut new, clock, if kind.is("pods") { grace_of(&old, options) } else { 0 });
    }
    let gone = !held && grace_left(&new) == 0;
    if options.dry_run {
        let shown = Arc::new(new);
        return Ok(if gone { Deleted::Gone(shown) } else { Deleted::Waiting(shown) });
    }
    // Watches also see the last change of a Pod that is deleted at once.
    let is_seen = kind.is("pods") || !gone;
    let last = if is_seen && new != *old { state.put(kind, new) } else { old };
    if gone { Ok(Deleted::Gone(state.remove(kind, key).unwrap_or(last))) } else { Ok(Deleted::Waiting(last)) }
}

/// Marks the object as being deleted.
fn mark(kind: &Kind, object: &mut Value, clock: &Clock, grace: i64) {
    let at = clock.now_millis().saturating_add(grace.saturating_mul(1000));
    meta::set(object, &["metadata", "deletionTimestamp"], clock::time(at));
    if kind.is("namespaces") {
        meta::set(object, &["status", "phase"], "Terminating");
    } else {
        meta::set(object, &["metadata", "deletionGracePeriodSeconds"], grace);
    }
    if kind.has_generation() {
        let generation = meta::at(object, &["metadata", "generation"]).and_then(Value::as_i64).unwrap_or(0);
        meta::set(object, &["metadata", "generation"], generation.saturating_add(1));
    }
}

/// Moves the end of a terminating Pod from `current` to `seconds` after its deletion.
fn shorten(pod: &mut Value, current: i64, seconds: i64) {
    let at = clock::parse(meta::text(pod, &["metadata", "deletionTimestamp"])).unwrap_or_default();
    let at = at.saturating_sub(current.saturating_sub(seconds).saturating_mul(1000));
    meta::set(pod, &["metadata", "deletionTimestamp"], clock::time(at));
    meta::set(pod, &["metadata", "deletionGracePeriodSeconds"], seconds);
}

/// Sets the finalizers for the garbage collector. Without a policy the present ones stay.
fn for_collector(object: &mut Value, propagation: &str) {
    let asked = match propagation {
        "Orphan" => Some(ORPHAN),
        "Foreground" => Some(FOREGROUND),
        "Background" => None,
        _ => return,
    };
    let before = meta::finalizers(object);
    let mut finalizers: Vec<Value> = before.iter().filter(|f| *f != ORPHAN && *f != FOREGROUND).cloned().collect();
    finalizers.extend(asked.map(Value::from));
    if finalizers != before {
        meta::set(object, &["metadata", "finalizers"], finalizers);
        meta::tidy(object);
    }
}

fn grace_left(object: &Value) -> i64 {
    meta::at(object, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64).unwrap_or(0)
}

/// Returns the grace period. A negative one counts as one second.
fn at_least_one(seconds: i64) -> i64 {
    if seconds < 0 { 1 } else { seconds }
}

/// Returns true if an update removed the last finalizer or grace period of an object that is being deleted.
pub(crate) fn is_due(old: &Value, new: &Value) -> bool {
    let namespace_held = !meta::list(new, &["spec", "finalizers"]).is_empty() && new["kind"] == "Namespace";
    meta::is_terminating(old) && meta::finalizers(new).is_empty() && grace_left(new) == 0 && !namespace_held
}

fn is_held_namespace(kind: &Kind, object: &Value) -> bool {
    kind.is("namespaces") && !meta::list(object, &["spec", "finalizers"]).is_empty()
}

/// The grace period of a Pod in seconds; 0 if no kubelet runs it.
fn grace_of(pod: &Value, options: &Options) -> i64 {
    let finished = matches!(meta::text(pod, &["status", "phase"]), "Succeeded" | "Failed");
    if finished || meta::text(pod, &["spec", "nodeName"]).is_empty() {
        return 0;
    }
    let own = meta::at(pod, &["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_i64).unwrap_or(30);
    at_least_one(options.grace_seconds.unwrap_or(own))
}

pub(crate) fn check_preconditions(kind: &Kind, object: &Value, options: &Options) -> Result<(), Failure> {
    let refuse = |field: &str, said: &str, is: &str, perhaps: &str| {
        let why = format!(
            "the {field} in the precondition ({said}) does not match the {field} in record ({is}). The object might \
            have been {perhaps}"
        );
        Err(Failure::precondition(kind, meta::name(object), &why))
    };
    if let Some(uid) = &options.uid
        && uid != meta::uid(object)
    {
        return refuse("UID", uid, meta::uid(object), "deleted and then recreated");
    }
    if let Some(revision) = &options.revision
        && revision != meta::revision(object)
    {
        return refuse("ResourceVersion", revision, meta::revision(object), "modified");
    }
    Ok(())
}
