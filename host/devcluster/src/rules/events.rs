//! Events: one resource in two versions, `v1` (stored) and `events.k8s.io/v1`.

use std::sync::Arc;

use serde_json::Value;

use super::metadata;
use crate::{
    failure::Cause,
    kinds::Kind,
    meta::{self, Object},
};

/// (field in the stored version, field in events.k8s.io/v1).
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Returns a stored object in the kind's version; the same object if nothing differs.
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

/// Converts an object from the kind's version to the stored one.
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

/// `event` is in the stored version, whose fields the causes name. An Event with an eventTime is checked by newer
/// rules, and one in the newer version by the strictest.
pub(super) fn check_create(kind: &Kind, event: &Value, causes: &mut Vec<Cause>) {
    let text = |field: &str| meta::text(event, &[field]);
    let own = meta::namespace(event);
    let about = meta::text(event, &["involvedObject", "namespace"]);
    let timed = !text("eventTime").is_empty();
    let fits = match (timed, about) {
        (false, "") => own == "default",
        (false, about) => own == about,
        (true, "") => matches!(own, "default" | "kube-system"),
        (true, _) => true,
    };
    if !fits {
        causes.push(Cause::invalid("involvedObject.namespace", &about.into(), "does not match event.namespace"));
    }
    if timed {
        let controller = text("reportingComponent");
        let field = if kind.group.is_empty() { "reportingComponent" } else { "reportingController" };
        if controller.is_empty() {
            causes.push(Cause::required(field, ""));
        }
        for detail in metadata::unqualified(controller) {
            causes.push(Cause::invalid(field, &controller.into(), &detail));
        }
        for (field, required, most) in
            [("reportingInstance", true, 128), ("action", true, 128), ("reason", true, 128), ("message", false, 1024)]
        {
            if required && text(field).is_empty() {
                causes.push(Cause::required(field, ""));
            }
            if text(field).len() > most {
                causes.push(Cause::invalid(field, &"".into(), &format!("can have at most {most} characters")));
            }
        }
    }
    if kind.group == "events.k8s.io" {
        check_strictly(event, timed, causes);
    }
}

fn check_strictly(event: &Value, timed: bool, causes: &mut Vec<Cause>) {
    let wrong = |field: &str, detail: &str| Cause::invalid(field, &"".into(), detail);
    if let Some(series) = event.get("series") {
        if series["count"].as_i64().unwrap_or(0) < 2 {
            causes.push(wrong("series.count", "should be at least 2"));
        }
        if meta::text(series, &["lastObservedTime"]).is_empty() {
            causes.push(Cause::required("series.lastObservedTime", ""));
        }
    }
    if !timed {
        causes.push(Cause::required("eventTime", ""));
    }
    let kind = meta::text(event, &["type"]);
    if !matches!(kind, "Normal" | "Warning") {
        causes.push(wrong("type", &format!("has invalid value: {kind}")));
    }
    for field in ["firstTimestamp", "lastTimestamp", "count"] {
        if event.get(field).is_some_and(|value| *value != 0) {
            causes.push(wrong(field, "needs to be unset"));
        }
    }
    if ["component", "host"].iter().any(|field| !meta::text(event, &["source", field]).is_empty()) {
        causes.push(wrong("source", "needs to be unset"));
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
