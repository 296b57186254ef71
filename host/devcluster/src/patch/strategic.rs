//! Strategic-merge patch with its directives: `$patch`, `$deleteFromPrimitiveList`, `$setElementOrder`, `$retainKeys`.

use serde_json::{Map, Value};

use super::lists::{Merge, Schema};
use crate::meta;

const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// Why a patch is invalid; the response is 400.
#[derive(Debug, thiserror::Error, PartialEq)]
pub(crate) enum Malformed {
    #[error("map: {0} does not contain declared merge key: {1}")]
    NoMergeKey(Value, String),
    #[error("unknown patch type found: {0}")]
    Directive(Value),
    #[error("expected a list at {0}")]
    NoList(String),
}

pub(crate) fn merge(target: &mut Value, patch: &Value, schema: Schema<'_>) -> Result<(), Malformed> {
    let mut path = Vec::new();
    object(meta::object(target), patch, schema, &mut path)
}

fn object(
    target: &mut Map<String, Value>,
    patch: &Value,
    schema: Schema<'_>,
    path: &mut Vec<String>,
) -> Result<(), Malformed> {
    let Value::Object(changes) = patch else { return Ok(()) };
    match changes.get("$patch") {
        None => {}
        Some(Value::String(directive)) if directive == "merge" => {}
        Some(Value::String(directive)) if directive == "replace" => {
            target.clear();
        }
        Some(Value::String(directive)) if directive == "delete" => {
            target.clear();
            return Ok(());
        }
        Some(other) => return Err(Malformed::Directive(other.clone())),
    }
    if let Some(retained) = changes.get("$retainKeys").and_then(Value::as_array) {
        target.retain(|key, _| retained.iter().any(|r| r == key));
    }
    for (key, change) in changes {
        if let Some(field) = key.strip_prefix(DELETE_FROM) {
            let gone = change.as_array().ok_or_else(|| Malformed::NoList(key.clone()))?;
            if let Some(items) = target.get_mut(field).and_then(Value::as_array_mut) {
                items.retain(|item| !gone.contains(item));
            }
        }
    }
    for (key, change) in changes {
        if key.starts_with('$') {
            continue;
        }
        path.push(key.clone());
        match change {
            Value::Null => {
                target.remove(key);
            }
            Value::Object(_) => {
                let place = target.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
                object(meta::object(place), change, schema, path)?;
            }
            Value::Array(items) => {
                let order = match changes.get(&format!("{ORDER}{key}")) {
                    None => items,
                    Some(order) => order.as_array().ok_or_else(|| Malformed::NoList(key.clone()))?,
                };
                let place = target.entry(key.clone()).or_insert_with(|| Value::Array(Vec::new()));
                list(meta::array(place), items, order, schema, path)?;
            }
            scalar => {
                target.insert(key.clone(), scalar.clone());
            }
        }
        path.pop();
    }
    for (key, order) in changes {
        if let Some(field) = key.strip_prefix(ORDER)
            && !changes.contains_key(field)
            && let Some(items) = target.get_mut(field).and_then(Value::as_array_mut)
        {
            path.push(field.to_owned());
            let order = order.as_array().ok_or_else(|| Malformed::NoList(key.clone()))?;
            let before = items.clone();
            reorder(items, order, &before, schema.strategic(path));
            path.pop();
        }
    }
    Ok(())
}

fn list(
    target: &mut Vec<Value>,
    changes: &[Value],
    order: &[Value],
    schema: Schema<'_>,
    path: &mut Vec<String>,
) -> Result<(), Malformed> {
    let merge = schema.strategic(path);
    let mut before = target.clone();
    match merge {
        Merge::Atomic => {
            *target = changes.to_vec();
            return Ok(());
        }
        Merge::Set => {
            for change in changes {
                if !target.contains(change) {
                    target.push(change.clone());
                }
            }
        }
        Merge::Map(keys) => {
            let key = keys.first().copied().unwrap_or_default();
            if changes.iter().any(|c| c["$patch"] == "replace") {
                target.clear();
                before.clear();
            }
            for change in changes {
                if change["$patch"] == "replace" && change.get(key).is_none() {
                    continue;
                }
                let value = change.get(key).ok_or_else(|| Malformed::NoMergeKey(change.clone(), key.to_owned()))?;
                let found = target.iter().position(|item| item.get(key) == Some(value));
                if change["$patch"] == "delete" {
                    target.retain(|item| item.get(key) != Some(value));
                    continue;
                }
                let index = found.unwrap_or(target.len());
                if found.is_none() {
                    target.push(Value::Object(Map::new()));
                }
                if let Some(item) = target.get_mut(index) {
                    object(meta::object(item), change, schema, path)?;
                }
            }
        }
    }
    reorder(target, order, &before, merge);
    Ok(())
}

/// Moves the entries that `order` names into its order, the others into the order of `before`. Of two entries from
/// different sides the named one comes first, unless both existed before in the other order.
fn reorder(items: &mut Vec<Value>, order: &[Value], before: &[Value], merge: Merge) {
    let key = match merge {
        Merge::Map(keys) => keys.first().copied(),
        _ => None,
    };
    let place = |list: &[Value], item: &Value| {
        list.iter().position(|other| match key {
            Some(key) => other.get(key) == item.get(key),
            None => other == item,
        })
    };
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        std::mem::take(items).into_iter().partition(|item| place(order, item).is_some());
    named.sort_by_key(|item| place(order, item));
    others.sort_by_key(|item| place(before, item));
    let mut others = others.into_iter().peekable();
    for item in named {
        let was = place(before, &item);
        while let Some(other) = others.next_if(|other| was.is_some_and(|was| place(before, other) < Some(was))) {
            items.push(other);
        }
        items.push(item);
    }
    items.extend(others);
}

/// Formats a patch as Go does, which is how the server quotes an invalid one.
pub(crate) fn as_go(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(as_go).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let mut fields: Vec<(&String, &Value)> = map.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let fields: Vec<String> =
                fields.into_iter().map(|(name, value)| format!("{name}:{}", as_go(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        scalar => scalar.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn patched(mut target: Value, patch: Value) -> Value {
        merge(&mut target, &patch, Schema::BuiltIn("Pod")).unwrap();
        target
    }

    #[test]
    fn a_condition_is_merged_by_type_and_removed_by_directive() {
        let pod = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let added =
            patched(pod, json!({"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Mine"}]}}));
        assert_eq!(added, json!({"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Mine"}]}}));
        let removed = patched(added, json!({"status": {"conditions": [{"type": "Ready", "$patch": "delete"}]}}));
        assert_eq!(removed, json!({"status": {"conditions": [{"type": "Mine"}]}}));
    }

    #[test]
    fn one_patch_adds_and_removes_finalizers_once() {
        let patch = json!({"metadata": {"finalizers": ["b"], "$deleteFromPrimitiveList/finalizers": ["a"]}});
        let once = patched(json!({"metadata": {"finalizers": ["a"]}}), patch.clone());
        assert_eq!(once, json!({"metadata": {"finalizers": ["b"]}}));
        assert_eq!(patched(once.clone(), patch), once);
    }

    #[test]
    fn entries_that_a_patch_adds_come_first() {
        let pod = json!({
            "metadata": {"finalizers": ["a"]}, "status": {"conditions": [{"type": "Ready"}, {"type": "Mine"}]},
        });
        let added = patched(
            pod,
            json!({
                "metadata": {"finalizers": ["b"]},
                "status": {"conditions": [{"type": "New"}, {"type": "Mine", "status": "True"}]},
            }),
        );
        assert_eq!(added["metadata"]["finalizers"], json!(["b", "a"]));
        let types: Vec<_> =
            added["status"]["conditions"].as_array().unwrap().iter().map(|c| c["type"].clone()).collect();
        assert_eq!(types, ["New", "Ready", "Mine"]);
    }

    #[test]
    fn a_patch_is_quoted_as_go_prints_it() {
        let patch = json!({"b": [1, null], "a": {"k": "v", "t": true}});
        assert_eq!(as_go(&patch), "map[a:map[k:v t:true] b:[1 <nil>]]");
    }

    #[test]
    fn order_retain_and_replace_directives_hold() {
        let env = |names: &[&str]| -> Value { names.iter().map(|n| json!({"name": n})).collect() };
        let ordered = patched(
            json!({"spec": {"containers": env(&["server", "a", "b"])}}),
            json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": []}}),
        );
        assert_eq!(ordered["spec"]["containers"], env(&["server", "b", "a"]));
        let retained = patched(
            json!({"spec": {"strategy": {"type": "x", "old": 1}}}),
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "y"}}}),
        );
        assert_eq!(retained, json!({"spec": {"strategy": {"type": "y"}}}));
        let replaced = patched(
            json!({"spec": {"volumes": [{"name": "a"}]}}),
            json!({"spec": {"volumes": [{"$patch": "replace"}, {"name": "b"}]}}),
        );
        assert_eq!(replaced, json!({"spec": {"volumes": [{"name": "b"}]}}));
    }

    #[test]
    fn an_entry_without_its_merge_key_is_refused() {
        let mut pod = json!({});
        let patch = json!({"spec": {"containers": [{"image": "x"}]}});
        assert!(matches!(merge(&mut pod, &patch, Schema::BuiltIn("Pod")), Err(Malformed::NoMergeKey(..))));
    }
}
