//! Reading of objects that may have any shape.

use serde_json::{Map, Value, json};

use crate::Kind;

/// Characters of generated names: no vowels and no 0, 1, 3, as in Kubernetes.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

pub(crate) fn at<'a>(value: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().try_fold(value, |value, key| value.get(key)).unwrap_or(&Value::Null)
}

/// Returns the text at `path`; empty if there is none.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}

pub(crate) fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(crate) fn map(value: &Value, path: &[&str]) -> Map<String, Value> {
    at(value, path).as_object().cloned().unwrap_or_default()
}

/// Returns the number at `path` if it is an int32 that is not negative.
pub(crate) fn number(value: &Value, path: &[&str]) -> Option<i64> {
    at(value, path).as_i64().filter(|number| (0..=i64::from(i32::MAX)).contains(number))
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, &["metadata", "uid"])
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, &["metadata", "name"])
}

pub(crate) fn namespace(object: &Value) -> &str {
    text(object, &["metadata", "namespace"])
}

pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    text(object, &["metadata", "annotations", key])
}

pub(crate) fn is_terminating(object: &Value) -> bool {
    !text(object, &["metadata", "deletionTimestamp"]).is_empty()
}

/// Returns creation time and name, by which objects are sorted from the oldest to the newest.
pub(crate) fn age(object: &Value) -> (&str, &str) {
    (text(object, &["metadata", "creationTimestamp"]), name(object))
}

/// Returns the reference to the controller of an object.
pub(crate) fn controller(object: &Value) -> Option<&Value> {
    list(object, &["metadata", "ownerReferences"]).iter().find(|owner| owner["controller"] == true)
}

/// Returns a new object with a reference to its controller.
pub(crate) fn dependent(kind: Kind, name: &str, owner_kind: Kind, owner: &Value) -> Value {
    let (api_version, kind) = kind.type_meta();
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {
            "name": name, "namespace": namespace(owner), "ownerReferences": [reference(owner_kind, owner)],
        },
    })
}

pub(crate) fn reference(kind: Kind, owner: &Value) -> Value {
    let (api_version, kind) = kind.type_meta();
    json!({
        "apiVersion": api_version, "kind": kind, "name": name(owner), "uid": uid(owner), "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Returns true if the label selector selects these labels. An empty or malformed one selects nothing.
pub(crate) fn selects(selector: &Value, labels: &Value) -> bool {
    let exact = at(selector, &["matchLabels"]).as_object();
    let expressions = list(selector, &["matchExpressions"]);
    let fits = |expression: &Value| {
        let value = labels.get(text(expression, &["key"]));
        let listed = value.is_some_and(|value| list(expression, &["values"]).contains(value));
        match text(expression, &["operator"]) {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    };
    let empty = exact.is_none_or(Map::is_empty) && expressions.is_empty();
    !empty
        && exact.is_none_or(|exact| exact.iter().all(|(key, value)| labels.get(key) == Some(value)))
        && expressions.iter().all(fits)
}

/// Returns true if the Pods of the template would be the object's own. Otherwise it would create more and more.
pub(crate) fn selects_template(object: &Value) -> bool {
    selects(at(object, &["spec", "selector"]), at(object, &["spec", "template", "metadata", "labels"]))
}

/// Returns a number, or a percentage of `total`, which is rounded up or down; `None` for anything else.
pub(crate) fn scaled(value: &Value, total: i64, up: bool) -> Option<i64> {
    if let Some(number) = value.as_i64() {
        return Some(number.clamp(0, i64::from(i32::MAX)));
    }
    let percent = value.as_str()?.strip_suffix('%')?.parse::<u32>().ok()?;
    let hundredths = total.saturating_mul(i64::from(percent));
    Some(if up { hundredths.saturating_add(99) / 100 } else { hundredths / 100 })
}

/// Sets a count, or removes it if it is 0, as Go's encoder does for optional fields.
pub(crate) fn set_count(status: &mut Map<String, Value>, field: &str, count: i64) {
    if count == 0 {
        status.remove(field);
    } else {
        status.insert(field.to_owned(), count.into());
    }
}

/// Returns the number of items; more than an `i64` cannot exist.
pub(crate) fn count(items: usize) -> i64 {
    i64::try_from(items).unwrap_or(i64::MAX)
}

/// Returns the 64 bits of FNV-1a.
pub(crate) fn hash(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Returns letters for a name, as many as asked for.
pub(crate) fn letters(mut hash: u64, length: usize) -> String {
    let mut letters = String::with_capacity(length);
    for _ in 0..length {
        let index = usize::try_from(hash % 27).unwrap_or_default();
        letters.push(ALPHABET.get(index).copied().map_or('b', char::from));
        hash /= 27;
    }
    letters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_of_the_total_and_other_values_are_refused() {
        assert_eq!(scaled(&json!("25%"), 10, true), Some(3));
        assert_eq!(scaled(&json!("25%"), 10, false), Some(2));
        assert_eq!(scaled(&json!(-4), 10, true), Some(0));
        assert_eq!(scaled(&json!("many"), 10, true), None);
        assert_eq!(scaled(&Value::Null, 10, true), None);
    }

    #[test]
    fn a_selector_selects_by_labels_and_expressions_and_an_empty_one_nothing() {
        let labels = json!({"app": "web", "tier": "front"});
        let expression = |operator: &str, key: &str, values: Value| {
            let expression = json!({"operator": operator, "key": key, "values": values});
            json!({"matchExpressions": [expression]})
        };
        assert!(selects(&json!({"matchLabels": {"app": "web"}}), &labels));
        assert!(!selects(&json!({"matchLabels": {"app": "db"}}), &labels));
        assert!(selects(&expression("In", "tier", json!(["front"])), &labels));
        assert!(!selects(&expression("NotIn", "tier", json!(["front"])), &labels));
        assert!(selects(&expression("DoesNotExist", "zone", Value::Null), &labels));
        assert!(!selects(&expression("Exists", "zone", Value::Null), &labels));
        assert!(!selects(&json!({}), &labels) && !selects(&json!(7), &labels));
    }
}
