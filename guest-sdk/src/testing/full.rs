//! The section `full` of a Pod in memory: the JSON that it was made from, if any, with the changes since.

use podium_wire::{Pod, Record, SectionSet, json};
use serde_json::Value;

use super::fake::encoded;

/// Returns the whole object in its present state.
pub(super) fn json(pod: &Pod) -> String {
    let now = rendered(pod);
    let made_from: Option<Value> = serde_json::from_str(&pod.full).ok();
    let before = made_from.as_ref().and_then(|full| json::decode_value(full).ok());
    match (made_from, before) {
        (Some(full), Some(before)) => moved(full, &rendered(&before), now).to_string(),
        _ => now.to_string(),
    }
}

/// Returns a Pod's JSON as the section contains it.
pub(super) fn without_managed_fields(text: &str) -> String {
    let mut value: Value = serde_json::from_str(text).unwrap_or_default();
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    value.to_string()
}

/// Returns the JSON of the other sections.
fn rendered(pod: &Pod) -> Value {
    let record = Record::open(encoded(pod, SectionSet::ALL)).and_then(|record| json::render(&record));
    #[expect(clippy::expect_used, reason = "its sections were encoded just now")]
    record.expect("a Pod that can be rendered")
}

/// Returns `full` with all differences between `before` and `now`. Fields that are in neither are kept.
fn moved(full: Value, before: &Value, now: Value) -> Value {
    match (full, before, now) {
        (full, before, now) if *before == now => full,
        (Value::Object(mut full), Value::Object(before), Value::Object(now)) => {
            full.retain(|key, _| now.contains_key(key) || !before.contains_key(key));
            for (key, now) in now {
                let moved = match (full.remove(&key), before.get(&key)) {
                    (Some(full), Some(before)) => moved(full, before, now),
                    _ => now,
                };
                full.insert(key, moved);
            }
            Value::Object(full)
        }
        (Value::Array(full), Value::Array(before), Value::Array(now)) => {
            // An unchanged item is found by its known fields.
            let item = |now: Value| match before.iter().position(|before| *before == now) {
                Some(at) => full.get(at).cloned().unwrap_or(now),
                None => now,
            };
            now.into_iter().map(item).collect()
        }
        (_, _, now) => now,
    }
}
