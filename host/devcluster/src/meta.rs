//! Reading and changing objects held as JSON, safe on any shape a client may send.

use std::sync::Arc;

use serde_json::{Map, Value};

/// A stored object. It is never changed in place, and shared by store, history and watches.
pub(crate) type Object = Arc<Value>;

/// Returns the value at `path`, if every step is an object.
pub(crate) fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| value.get(key))
}

/// Returns the text at `path`; empty if there is none.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the list at `path`; empty if there is none.
pub(crate) fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Sets `new` at `path`, creating objects on the way; a value on the way that is not an object is replaced.
pub(crate) fn set(value: &mut Value, path: &[&str], new: impl Into<Value>) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut place = value;
    for key in parents {
        place = object(place).entry((*key).to_owned()).or_insert(Value::Null);
    }
    object(place).insert((*last).to_owned(), new.into());
}

/// Sets `new` at `path` if there is no value.
pub(crate) fn default(value: &mut Value, path: &[&str], new: impl Into<Value>) {
    if at(value, path).is_none_or(Value::is_null) {
        set(value, path, new);
    }
}

pub(crate) fn remove(value: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    let mut place = value;
    for key in parents {
        place = place.get_mut(key)?;
    }
    place.as_object_mut()?.remove(*last)
}

/// Sets the value of `from` at `path` in `to`, or removes it if `from` has none.
pub(crate) fn copy(from: &Value, to: &mut Value, path: &[&str]) {
    match at(from, path) {
        Some(value) => set(to, path, value.clone()),
        None => {
            remove(to, path);
        }
    }
}

/// Returns the value as an object, replacing any other value.
pub(crate) fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// Returns the value as a list, replacing any other value.
pub(crate) fn array(value: &mut Value) -> &mut Vec<Value> {
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    match value {
        Value::Array(items) => items,
        _ => unreachable!("made a list above"),
    }
}

pub(crate) fn name(value: &Value) -> &str {
    text(value, &["metadata", "name"])
}

pub(crate) fn namespace(value: &Value) -> &str {
    text(value, &["metadata", "namespace"])
}

pub(crate) fn uid(value: &Value) -> &str {
    text(value, &["metadata", "uid"])
}

pub(crate) fn revision(value: &Value) -> &str {
    text(value, &["metadata", "resourceVersion"])
}

pub(crate) fn label<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    at(value, &["metadata", "labels", key]).and_then(Value::as_str)
}

pub(crate) fn annotation<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    at(value, &["metadata", "annotations", key]).and_then(Value::as_str)
}

pub(crate) fn is_terminating(value: &Value) -> bool {
    !text(value, &["metadata", "deletionTimestamp"]).is_empty()
}

pub(crate) fn finalizers(value: &Value) -> &[Value] {
    list(value, &["metadata", "finalizers"])
}

/// Returns the entry of `status.conditions` with this type.
pub(crate) fn condition<'a>(value: &'a Value, condition_type: &str) -> Option<&'a Value> {
    list(value, &["status", "conditions"]).iter().find(|c| text(c, &["type"]) == condition_type)
}

/// Removes null values from a stored object, where null means absence. Also removes empty metadata maps, as the API
/// server's types do when they are encoded.
pub(crate) fn tidy(value: &mut Value) {
    drop_nulls(value);
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["labels", "annotations", "finalizers", "ownerReferences", "managedFields"] {
            let empty = match metadata.get(key) {
                Some(Value::Object(map)) => map.is_empty(),
                Some(Value::Array(items)) => items.is_empty(),
                Some(Value::String(text)) => text.is_empty(),
                _ => false,
            };
            if empty {
                metadata.remove(key);
            }
        }
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn setting_through_a_scalar_replaces_it_and_never_panics() {
        let mut value = json!({"metadata": 3});
        set(&mut value, &["metadata", "labels", "a"], "b");
        assert_eq!(value, json!({"metadata": {"labels": {"a": "b"}}}));
        assert_eq!(remove(&mut value, &["metadata", "name", "x"]), None);
    }

    #[test]
    fn tidying_drops_nulls_everywhere_and_empty_metadata_maps() {
        let mut value = json!({"metadata": {"labels": {"a": null}}, "spec": {"emptyDir": {}, "list": [{"x": null}]}});
        tidy(&mut value);
        assert_eq!(value, json!({"metadata": {}, "spec": {"emptyDir": {}, "list": [{}]}}));
    }
}
