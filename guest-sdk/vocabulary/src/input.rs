//! Objects that a plugin's runs receive beside their Pod, such as the ConfigMap with its prices.

use serde_json::{Map, Value};

/// An object, or those with some labels, which the host reads and watches as the plugin's account, in that account's
/// namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Input {
    /// The name by which the plugin knows it.
    pub id: String,
    /// Group and version, such as `v1`.
    pub api_version: String,
    /// The kind, such as `ConfigMap`.
    pub kind: String,
    /// The plural of the kind, in paths of the API.
    pub resource: String,
    /// The objects.
    pub objects: InputObjects,
    /// The fields that the plugin receives, such as `data` or `spec.prices`.
    pub fields: Vec<String>,
}

/// The objects of an input.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum InputObjects {
    /// The one of this name. Runs receive it, or null.
    Named(String),
    /// All that a label selector matches, in the API server's syntax: `tier in (a,b),!legacy`. Runs receive a list,
    /// ordered by name.
    Labelled(String),
}

impl Input {
    /// The most inputs of a plugin.
    pub const MOST: usize = 8;
    /// The most bytes of a plugin's inputs together, as JSON.
    pub const MOST_BYTES: usize = 128 << 10;
    /// The most objects of an input with a label selector.
    pub const MOST_OBJECTS: usize = 64;
    /// The fields of an input that names none.
    pub const DEFAULT_FIELDS: [&str; 2] = ["data", "spec"];

    /// Returns the fields of an object that the plugin receives, in the structure of the object. One of a list has its
    /// name in addition.
    #[must_use]
    pub fn prune(&self, object: &Value) -> Value {
        let mut pruned = Map::new();
        let is_listed = matches!(self.objects, InputObjects::Labelled(_));
        for field in is_listed.then_some("metadata.name").into_iter().chain(self.fields.iter().map(String::as_str)) {
            let path: Vec<&str> = field.split('.').collect();
            let found = path.iter().try_fold(object, |object, name| object.get(name));
            if let (Some(found), Some((last, parents))) = (found, path.split_last()) {
                let parent = parents.iter().fold(&mut pruned, |parent, name| member(parent, name));
                parent.insert((*last).to_owned(), found.clone());
            }
        }
        pruned.into()
    }
}

/// Returns a member that is a mapping, which replaces another value.
fn member<'a>(parent: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    let member = parent.entry(name).or_insert_with(|| Map::new().into());
    if !member.is_object() {
        *member = Map::new().into();
    }
    // It is one.
    member.as_object_mut().unwrap_or_else(|| unreachable!("a mapping"))
}

/// Returns a plugin's configuration with the objects of its inputs by their ids, as runs receive it. `config` is a JSON
/// mapping without the member `inputs`, and `inputs` a JSON mapping.
#[must_use]
pub fn with_inputs(config: &str, inputs: &str) -> String {
    let members = config.trim_end().strip_suffix('}').unwrap_or("{");
    let comma = if members.trim_end().ends_with('{') { "" } else { "," };
    format!("{members}{comma}\"inputs\":{inputs}}}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn input(fields: &[&str]) -> Input {
        let [id, api_version, kind, resource, name] = ["a", "v1", "ConfigMap", "configmaps", "b"].map(str::to_owned);
        let fields = fields.iter().map(|field| (*field).to_owned()).collect();
        Input { id, api_version, kind, resource, objects: InputObjects::Named(name), fields }
    }

    #[test]
    fn only_the_named_fields_are_received() {
        let object = json!({ "metadata": { "labels": { "a": "b" }, "uid": "u" }, "data": { "x": "1" }, "spec": 7 });
        for (fields, expected) in [
            (&["data", "spec"][..], json!({ "data": { "x": "1" }, "spec": 7 })),
            (&["metadata.labels"], json!({ "metadata": { "labels": { "a": "b" } } })),
            (&["metadata.labels", "metadata.uid"], json!({ "metadata": { "labels": { "a": "b" }, "uid": "u" } })),
            (&["data.x", "data"], json!({ "data": { "x": "1" } })),
            (&["data", "data.x"], json!({ "data": { "x": "1" } })),
            (&["spec", "spec.a"], json!({ "spec": 7 })),
            (&["status", "data.y", "data.x.z"], json!({})),
            (&[], json!({})),
        ] {
            assert_eq!(input(fields).prune(&object), expected, "{fields:?}");
        }
        for object in [json!(null), json!([1]), json!("data")] {
            assert_eq!(input(&["data"]).prune(&object), json!({}));
        }
    }

    #[test]
    fn an_object_of_a_list_has_its_name() {
        let object = json!({ "metadata": { "name": "n", "labels": { "a": "b" } }, "data": { "x": "1" } });
        for (fields, expected) in [
            (&["data"][..], json!({ "metadata": { "name": "n" }, "data": { "x": "1" } })),
            (&["metadata.labels"], json!({ "metadata": { "name": "n", "labels": { "a": "b" } } })),
            (&["metadata"], json!({ "metadata": { "name": "n", "labels": { "a": "b" } } })),
        ] {
            let input = Input { objects: InputObjects::Labelled("a=b".into()), ..input(fields) };
            assert_eq!(input.prune(&object), expected, "{fields:?}");
        }
    }

    #[test]
    fn the_configuration_gets_one_member_more() {
        for (config, expected) in [
            ("{}", json!({ "inputs": { "a": null } })),
            (r#"{"prefix":"web"}"#, json!({ "prefix": "web", "inputs": { "a": null } })),
            (r#"{"a":{}}"#, json!({ "a": {}, "inputs": { "a": null } })),
        ] {
            let found: Value = serde_json::from_str(&with_inputs(config, r#"{"a":null}"#)).unwrap();
            assert_eq!(found, expected);
        }
    }
}
