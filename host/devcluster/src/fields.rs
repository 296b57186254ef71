//! Field sets: sets of an object's fields in the format of managedFields (`FieldsV1`). No ownership is decided here.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::patch::lists::{Merge, Schema};

/// A path of steps in the format of `FieldsV1`: `f:name`, `k:{"name":"x"}`, `v:"x"`.
pub(crate) type Path = Vec<String>;

/// Fields of metadata that the server sets; they have no field manager.
const SERVERS_OWN: &[&str] = &[
    "f:managedFields",
    "f:resourceVersion",
    "f:uid",
    "f:creationTimestamp",
    "f:deletionTimestamp",
    "f:deletionGracePeriodSeconds",
    "f:generation",
    "f:namespace",
    "f:name",
    "f:selfLink",
];

/// A set of fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FieldSet(pub(crate) BTreeSet<Path>);

impl FieldSet {
    pub(crate) fn from_v1(value: &Value) -> Self {
        let mut set = Self::default();
        set.read(value, &mut Vec::new());
        set
    }

    fn read(&mut self, value: &Value, path: &mut Path) {
        let Some(children) = value.as_object() else { return };
        if children.is_empty() && !path.is_empty() {
            self.0.insert(path.clone());
        }
        for (step, child) in children {
            if step == "." {
                self.0.insert(path.clone());
                continue;
            }
            path.push(step.clone());
            self.read(child, path);
            path.pop();
        }
    }

    pub(crate) fn to_v1(&self) -> Value {
        let mut root = Map::new();
        // A path sorts before the paths below it, so a node is known to be a member before it gets children.
        let mut members: BTreeSet<&[String]> = BTreeSet::new();
        for path in &self.0 {
            members.insert(path);
            let mut place = &mut root;
            for (depth, step) in path.iter().enumerate() {
                let child = place.entry(step.clone()).or_insert_with(|| Value::Object(Map::new()));
                place = crate::meta::object(child);
                if depth + 1 < path.len() && place.is_empty() && members.contains(&path[..=depth]) {
                    place.insert(".".into(), Value::Object(Map::new()));
                }
            }
        }
        Value::Object(root)
    }

    pub(crate) fn contains(&self, path: &Path) -> bool {
        self.0.contains(path)
    }

    /// Returns true if the set has the path or anything below it.
    pub(crate) fn touches(&self, path: &Path) -> bool {
        self.0.range(path.clone()..).next().is_some_and(|found| found.starts_with(path))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns every leaf of an object that a manager can own, with its value. Entries of keyed lists are members
/// themselves, with the value null.
pub(crate) fn leaves(object: &Value, schema: Schema<'_>) -> BTreeMap<Path, Value> {
    let mut out = BTreeMap::new();
    let mut walk = Walk { schema, plain: Vec::new(), path: Vec::new(), out: &mut out };
    if let Value::Object(map) = object {
        for (key, value) in map {
            if key != "apiVersion" && key != "kind" {
                walk.field(key, value);
            }
        }
    }
    out.retain(|path, _| {
        let steps: Vec<&str> = path.iter().map(String::as_str).collect();
        !matches!(steps.as_slice(), ["f:metadata"])
            && !matches!(steps.as_slice(), ["f:metadata", second, ..] if SERVERS_OWN.contains(second))
    });
    out
}

struct Walk<'a> {
    schema: Schema<'a>,
    plain: Vec<String>,
    path: Path,
    out: &'a mut BTreeMap<Path, Value>,
}

impl Walk<'_> {
    fn field(&mut self, key: &str, value: &Value) {
        self.plain.push(key.to_owned());
        self.path.push(format!("f:{key}"));
        self.value(value);
        self.path.pop();
        self.plain.pop();
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Object(map) if !map.is_empty() && !self.schema.is_atomic_map(&self.plain) => {
                for (key, value) in map {
                    self.field(key, value);
                }
            }
            Value::Array(items) if !items.is_empty() => match self.schema.apply(&self.plain) {
                Merge::Atomic => self.leaf(value.clone()),
                Merge::Set => {
                    for item in items {
                        self.path.push(format!("v:{item}"));
                        self.leaf(item.clone());
                        self.path.pop();
                    }
                }
                Merge::Map(keys) => {
                    for item in items {
                        self.path.push(key_step(item, keys));
                        self.leaf(Value::Null);
                        if let Value::Object(map) = item {
                            for (key, value) in map {
                                self.field(key, value);
                            }
                        }
                        self.path.pop();
                    }
                }
            },
            _ => self.leaf(value.clone()),
        }
    }

    fn leaf(&mut self, value: Value) {
        self.out.insert(self.path.clone(), value);
    }
}

/// Returns the step of an entry of a keyed list.
pub(crate) fn key_step(item: &Value, keys: &[&str]) -> String {
    let mut named = Map::new();
    for key in keys {
        let value = match item.get(*key) {
            Some(value) => value.clone(),
            // The only key with a default in the Kubernetes types.
            None if *key == "protocol" => Value::from("TCP"),
            None => continue,
        };
        named.insert((*key).to_owned(), value);
    }
    format!("k:{}", Value::Object(named))
}

/// Removes the value at a path, if there is one.
pub(crate) fn remove(value: &mut Value, path: &[String]) {
    let Some((step, rest)) = path.split_first() else { return };
    match (value, step.split_at_checked(2)) {
        (Value::Object(map), Some(("f:", key))) => {
            if rest.is_empty() {
                map.remove(key);
            } else if let Some(child) = map.get_mut(key) {
                remove(child, rest);
                let emptied =
                    child.as_object().is_some_and(Map::is_empty) || child.as_array().is_some_and(Vec::is_empty);
                if emptied {
                    map.remove(key);
                }
            }
        }
        (Value::Array(items), Some(("v:", text))) => items.retain(|item| item.to_string().as_str() != text),
        (Value::Array(items), Some(("k:", text))) => {
            let Ok(Value::Object(keys)) = serde_json::from_str(text) else { return };
            let names: Vec<&str> = keys.keys().map(String::as_str).collect();
            let found = items.iter().position(|item| key_step(item, &names) == *step);
            if let Some(index) = found {
                if rest.is_empty() {
                    items.remove(index);
                } else if let Some(item) = items.get_mut(index) {
                    remove(item, rest);
                }
            }
        }
        _ => {}
    }
}

/// Formats a path as in error messages: `.spec.containers[name="x"].image`.
pub(crate) fn display(path: &Path) -> String {
    let mut text = String::new();
    for step in path {
        match step.split_at_checked(2) {
            Some(("f:", name)) => text.push_str(&format!(".{name}")),
            Some(("k:", keys)) => {
                let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let keys: Vec<String> = keys.iter().map(|(k, v)| format!("{k}={v}")).collect();
                text.push_str(&format!("[{}]", keys.join(",")));
            }
            Some(("i:", index)) => text.push_str(&format!("[{index}]")),
            Some((_, value)) => text.push_str(&format!("[={value}]")),
            None => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "uid": "u", "labels": {"x": "1"}, "finalizers": ["f/a"]},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        })
    }

    #[test]
    fn a_field_set_is_written_as_fields_v1_and_read_back() {
        let set = FieldSet(leaves(&pod(), Schema::BuiltIn("Pod")).into_keys().collect());
        let written = set.to_v1();
        assert_eq!(
            written,
            json!({
                "f:metadata": {"f:labels": {"f:x": {}}, "f:finalizers": {"v:\"f/a\"": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {}}}},
            })
        );
        assert_eq!(FieldSet::from_v1(&written), set);
    }

    #[test]
    fn removing_a_path_takes_what_it_emptied_with_it() {
        let mut object = pod();
        remove(&mut object, &["f:metadata".into(), "f:labels".into(), "f:x".into()]);
        assert!(object["metadata"].get("labels").is_none());
        remove(&mut object, &["f:spec".into(), "f:containers".into(), "k:{\"name\":\"c\"}".into()]);
        assert!(object.get("spec").is_none());
    }

    #[test]
    fn paths_are_shown_as_kubectl_users_know_them() {
        let path = vec!["f:spec".into(), "f:containers".into(), "k:{\"name\":\"c\"}".into(), "f:image".into()];
        assert_eq!(display(&path), ".spec.containers[name=\"c\"].image");
    }
}
