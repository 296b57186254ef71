//! Events: one thing with two views, `v1` (stored) and `events.k8s.io/v1`.

use crate::failure::Cause;
use crate::kinds::Kind;
use crate::meta::{self, Object};
use serde_json::Value;
use std::sync::Arc;

/// (as stored, as events.k8s.io/v1 names it).
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// A stored object as the kind's version shows it. The same object where nothing differs.
pub(crate) fn to_view(kind: &Kind, object: &Object) -> Object {
    let api_version = kind.api_version();
    if object["apiVersion"] == api_version.as_str() && object["kind"] == kind.kind.as_str() {
        return object.clone();
    }
    let mut shown = Value::clone(object);
    if kind.group == "events.k8s.io" {
        rename(&mut shown, |(stored, viewed)| (stored, viewed));
    }
    stamp(kind, &mut shown);
    Arc::new(shown)
}

/// The reverse: what a client sent in the kind's version as it is stored.
pub(crate) fn from_view(kind: &Kind, mut object: Value) -> Value {
    if kind.group == "events.k8s.io" {
        rename(&mut object, |(stored, viewed)| (viewed, stored));
        meta::set(&mut object, &["apiVersion"], "v1");
        meta::set(&mut object, &["kind"], "Event");
    } else {
        stamp(kind, &mut object);
    }
    object
}

fn stamp(kind: &Kind, object: &mut Value) {
    meta::set(object, &["apiVersion"], kind.api_version());
    meta::set(object, &["kind"], kind.kind.clone());
}

fn rename(object: &mut Value, direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str)) {
    for pair in NAMES {
        let (from, to) = direction(*pair);
        if let Some(value) = meta::remove(object, &[from]) {
            meta::set(object, &[to], value);
        }
    }
}

/// `event` is in the stored form. The new form has rules that the old never had; an old one with an eventTime is held to
/// them too.
pub(super) fn check_create(kind: &Kind, event: &Value, causes: &mut Vec<Cause>) {
    let new_form = kind.group == "events.k8s.io";
    let namespace = meta::text(event, &["involvedObject", "namespace"]);
    let about = if namespace.is_empty() { "default" } else { namespace };
    if meta::namespace(event) != about {
        let detail = "does not match event.namespace";
        causes.push(Cause::invalid("involvedObject.namespace", &namespace.into(), detail));
    }
    let timed = !meta::text(event, &["eventTime"]).is_empty();
    if !new_form && !timed {
        return;
    }
    if !timed {
        causes.push(Cause::required("eventTime", ""));
    }
    for (stored, shown) in [
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
        ("action", "action"),
        ("reason", "reason"),
    ] {
        if meta::text(event, &[stored]).is_empty() {
            causes.push(Cause::required(shown, ""));
        }
    }
    for (field, stored, most) in [("action", "action", 128), ("reason", "reason", 128), ("note", "message", 1024)] {
        if meta::text(event, &[stored]).len() > most {
            let detail = format!("can have at most {most} characters");
            causes.push(Cause::invalid(field, &"".into(), &detail));
        }
    }
    if !matches!(meta::text(event, &["type"]), "Normal" | "Warning") {
        causes.push(Cause::invalid("type", &event["type"], "has invalid value"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Kinds;
    use serde_json::json;

    #[test]
    fn an_event_goes_through_both_views_unchanged() {
        let kind = Kinds::default().find("events.k8s.io", "v1", "events").unwrap();
        let stored = Arc::new(json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": {"name": "a"},
            "message": "m", "reportingComponent": "c", "action": "A",
        }));
        let viewed = to_view(&kind, &stored);
        assert_eq!(viewed["regarding"]["name"], "a");
        assert_eq!(viewed["note"], "m");
        assert_eq!(viewed["reportingController"], "c");
        assert_eq!(from_view(&kind, Value::clone(&viewed)), *stored);
    }
}
