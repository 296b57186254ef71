//! JSON merge patch, RFC 7396.

use serde_json::Value;

use crate::meta;

pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    let target = meta::object(target);
    for (key, change) in changes {
        if change.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn null_removes_objects_merge_and_lists_are_replaced() {
        let mut object = json!({"a": {"b": 1, "c": 2}, "l": [1, 2]});
        merge(&mut object, &json!({"a": {"b": null, "d": {"e": null}}, "l": [3]}));
        assert_eq!(object, json!({"a": {"c": 2, "d": {}}, "l": [3]}));
    }
}
