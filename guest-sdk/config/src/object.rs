//! A plugin as an object of the API server, read by the same pass as a file.
//!
//! The API server checks an object against the schema of its kind, which knows fewer rules than this crate.

use serde_json::{Map, Value};

use crate::{
    PLUGIN, Plugin, Problem, judge, rules,
    yaml::{Content, Node},
};

/// Mappings and lists inside of each other, as in a file. A document is read recursively.
const MAX_DEPTH: usize = 32;

/// Reads a plugin from its object. Of `metadata` only name and namespace are read, because the API server writes the
/// other fields; `status` is not read.
///
/// # Errors
/// Every mistake in the object, without lines.
pub fn plugin_object(object: &Value) -> Result<Plugin, Vec<Problem>> {
    let copied = |from: &Value, fields: &[&str]| -> Map<String, Value> {
        let present = fields.iter().filter_map(|field| Some(((*field).to_owned(), from.get(*field)?.clone())));
        present.collect()
    };
    let mut document = copied(object, &["apiVersion", "kind", "spec"]);
    document.insert("metadata".to_owned(), copied(&object["metadata"], &["name", "namespace"]).into());
    let node = node(document.into(), 0).ok_or_else(|| {
        let message = format!("nests mappings and lists more than {MAX_DEPTH} deep");
        vec![Problem { line: None, field: String::new(), message }]
    })?;
    judge(&node, &PLUGIN, rules::plugin)
        .map_err(|problems| problems.into_iter().map(|problem| Problem { line: None, ..problem }).collect())
}

/// Returns `None` for a value that nests too deep.
fn node(value: Value, depth: usize) -> Option<Node> {
    if depth > MAX_DEPTH {
        return None;
    }
    let content = match value {
        Value::Array(items) => {
            Content::List(items.into_iter().map(|item| node(item, depth + 1)).collect::<Option<_>>()?)
        }
        Value::Object(fields) => {
            let entry = |(name, value)| Some((name, node(value, depth + 1)?));
            Content::Map(fields.into_iter().map(entry).collect::<Option<_>>()?)
        }
        scalar => Content::Scalar(scalar),
    };
    Some(Node::unplaced(content))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(spec: Value) -> Value {
        json!({
            "apiVersion": "podium.dev/v1alpha1",
            "kind": "ReconcilePlugin",
            "metadata": {
                "name": "tidy", "namespace": "shop", "uid": "u", "generation": 2, "resourceVersion": "7",
                "managedFields": [{ "manager": "kubectl" }], "finalizers": ["a.example/b"],
            },
            "spec": spec,
            "status": { "conditions": [] },
        })
    }

    #[test]
    fn an_object_is_read_as_the_same_document_in_a_file() {
        let spec = json!({ "source": { "file": "tidy.wasm" }, "watch": null, "limits": { "writes": 3 } });
        let plugin = plugin_object(&object(spec)).unwrap();
        let yaml = "apiVersion: podium.dev/v1alpha1\nkind: ReconcilePlugin\n\
            metadata: { name: tidy, namespace: shop }\nspec: { source: { file: tidy.wasm }, limits: { writes: 3 } }\n";
        assert_eq!(crate::plugins(yaml).unwrap().remove(0).content, Ok(plugin));
    }

    #[test]
    fn every_mistake_is_reported_with_its_field_and_without_a_line() {
        let spec = json!({ "source": {}, "limits": { "writes": "many", "host": 1 } });
        let problems = plugin_object(&object(spec)).unwrap_err();
        let fields: Vec<_> = problems.iter().map(|problem| (problem.line, &*problem.field)).collect();
        for field in ["spec.limits.writes", "spec.limits.host"] {
            assert!(fields.contains(&(None, field)), "{problems:?}");
        }
        assert!(problems.len() >= 3, "{problems:?}");
    }

    #[test]
    fn an_object_that_nests_too_deep_or_is_none_is_a_mistake() {
        let deep = (0..200).fold(json!(1), |inner, _| json!({ "a": inner }));
        let problems = plugin_object(&object(json!({ "source": { "file": "a" }, "config": deep }))).unwrap_err();
        assert!(problems[0].message.starts_with("nests mappings"), "{problems:?}");
        for odd in [json!(null), json!([]), json!("x"), json!({}), json!({ "metadata": 7, "spec": [] })] {
            assert!(!plugin_object(&odd).unwrap_err().is_empty());
        }
    }
}
