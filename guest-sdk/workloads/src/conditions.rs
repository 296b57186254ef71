//! The conditions of a status.

use serde_json::{Map, Value, json};

use crate::object;

/// A condition that is to be set.
pub(crate) struct Condition<'a> {
    pub(crate) kind: &'a str,
    pub(crate) status: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

/// Returns the condition of this type.
pub(crate) fn find<'a>(status: &'a Map<String, Value>, kind: &str) -> Option<&'a Value> {
    let conditions = status.get("conditions").and_then(Value::as_array)?;
    conditions.iter().find(|condition| object::text(condition, &["type"]) == kind)
}

/// Sets a condition as the last one. `heartbeat` is the field of the time of the last write. The time of the transition
/// stays if the status stays.
pub(crate) fn set(status: &mut Map<String, Value>, condition: &Condition<'_>, heartbeat: &str, now: &str) {
    let current = find(status, condition.kind).cloned().unwrap_or_default();
    let since = if current["status"] == condition.status { current["lastTransitionTime"].clone() } else { now.into() };
    let conditions = status.entry("conditions").or_insert(Value::Null);
    let mut kept = conditions.as_array().cloned().unwrap_or_default();
    kept.retain(|other| object::text(other, &["type"]) != condition.kind);
    kept.push(json!({
        "type": condition.kind, "status": condition.status, "reason": condition.reason, "message": condition.message,
        heartbeat: now, "lastTransitionTime": since,
    }));
    *conditions = kept.into();
}
