//! Server-side apply: merges a manager's configuration into the object. A field that the manager applied before and
//! does not apply now is removed, unless another manager owns it; a field that another manager owns with another
//! value is a conflict.

use serde_json::{Map, Value};

use super::lists::{Merge, Schema};
use crate::{
    fields::{self, FieldSet, Path},
    managed::{self, Author, Entry},
    meta,
};

/// The owner and the field of each conflict, as in messages.
pub(crate) type Conflicts = Vec<(String, String)>;

pub(crate) fn apply(
    live: &Value,
    config: &Value,
    schema: Schema<'_>,
    author: &Author,
    force: bool,
) -> Result<Value, Conflicts> {
    let applied = fields::leaves(config, schema);
    let present = fields::leaves(live, schema);
    let mut entries = managed::entries(live);
    let mut conflicts = Conflicts::new();
    let own = entries.iter().position(|e| {
        e.author.apply && e.author.manager == author.manager && e.author.subresource == author.subresource
    });
    for (index, entry) in entries.iter_mut().enumerate() {
        if Some(index) == own {
            continue;
        }
        let taken: Vec<Path> = applied
            .iter()
            .filter(|(path, value)| present.get(*path) != Some(value) && entry.fields.contains(path))
            .map(|(path, _)| path.clone())
            .collect();
        for path in taken {
            if !force {
                conflicts.push((entry.author.describe(), fields::display(&path)));
            }
            entry.fields.0.remove(&path);
        }
    }
    if !conflicts.is_empty() {
        return Err(conflicts);
    }
    let said_before = own.map(|index| entries.remove(index).fields).unwrap_or_default();
    let mut merged = live.clone();
    merge(&mut merged, config, schema, &mut Vec::new());
    let says_now = FieldSet(applied.into_keys().collect());
    // The shallowest first: an entry of a list is removed as a whole, including fields that the server set.
    let mut gone: Vec<&Path> = said_before.0.iter().filter(|path| !says_now.touches(path)).collect();
    gone.sort_by_key(|path| path.len());
    for path in gone {
        if !entries.iter().any(|entry| entry.fields.touches(path)) {
            fields::remove(&mut merged, path);
        }
    }
    let unchanged = said_before == says_now && fields::leaves(&merged, schema) == present;
    let author = match own.and_then(|_| managed::entries(live).into_iter().find(|e| is_own(&e.author, author))) {
        Some(entry) if unchanged => entry.author,
        _ => author.clone(),
    };
    entries.push(Entry { author, fields: says_now });
    managed::store(&mut merged, entries);
    Ok(merged)
}

fn is_own(entry: &Author, author: &Author) -> bool {
    entry.apply && entry.manager == author.manager && entry.subresource == author.subresource
}

fn merge(live: &mut Value, config: &Value, schema: Schema<'_>, path: &mut Vec<String>) {
    match config {
        Value::Object(said) if !schema.is_atomic_map(path) => {
            let live = meta::object(live);
            for (key, value) in said {
                path.push(key.clone());
                merge(live.entry(key.clone()).or_insert(Value::Null), value, schema, path);
                path.pop();
            }
        }
        Value::Array(said) => match schema.apply(path) {
            Merge::Atomic => *live = config.clone(),
            Merge::Set => {
                let live = meta::array(live);
                for item in said {
                    if !live.contains(item) {
                        live.push(item.clone());
                    }
                }
            }
            Merge::Map(keys) => {
                let live = meta::array(live);
                for item in said {
                    let step = fields::key_step(item, keys);
                    let index = live.iter().position(|l| fields::key_step(l, keys) == step).unwrap_or(live.len());
                    if index == live.len() {
                        live.push(Value::Object(Map::new()));
                    }
                    if let (Some(place), Value::Object(said)) = (live.get_mut(index), item) {
                        for (key, value) in said {
                            path.push(key.clone());
                            merge(meta::object(place).entry(key.clone()).or_insert(Value::Null), value, schema, path);
                            path.pop();
                        }
                    }
                }
            }
        },
        other => *live = other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const POD: Schema<'_> = Schema::BuiltIn("Pod");

    fn author(manager: &str) -> Author {
        Author {
            manager: manager.into(),
            apply: true,
            subresource: String::new(),
            api_version: "v1".into(),
            time: "t".into(),
        }
    }

    fn labels(labels: Value) -> Value {
        json!({"metadata": {"labels": labels}})
    }

    #[test]
    fn fields_that_no_manager_applies_any_more_are_removed() {
        let one = apply(&json!({}), &labels(json!({"a": "1", "b": "1"})), POD, &author("one"), false).unwrap();
        let two = apply(&one, &labels(json!({"b": "1"})), POD, &author("two"), false).unwrap();
        let less = apply(&two, &labels(json!({"c": "1"})), POD, &author("one"), false).unwrap();
        assert_eq!(less["metadata"]["labels"], json!({"b": "1", "c": "1"}));
    }

    #[test]
    fn another_managers_field_is_a_conflict_and_force_takes_it() {
        let one = apply(&json!({}), &labels(json!({"a": "1"})), POD, &author("one"), false).unwrap();
        let conflicts = apply(&one, &labels(json!({"a": "2"})), POD, &author("two"), false).unwrap_err();
        assert_eq!(conflicts, [("\"one\"".to_owned(), ".metadata.labels.a".to_owned())]);
        let forced = apply(&one, &labels(json!({"a": "2"})), POD, &author("two"), true).unwrap();
        assert_eq!(forced["metadata"]["labels"]["a"], "2");
        assert_eq!(managed::entries(&forced).len(), 1);
    }

    #[test]
    fn a_container_that_is_no_longer_applied_goes_as_a_whole() {
        let containers = |names: &[&str]| -> Value {
            let list: Vec<Value> = names.iter().map(|n| json!({"name": n, "image": "i"})).collect();
            json!({"spec": {"containers": list}})
        };
        let both = apply(&json!({}), &containers(&["a", "b"]), POD, &author("one"), false).unwrap();
        let less = apply(&both, &containers(&["b"]), POD, &author("one"), false).unwrap();
        assert_eq!(less["spec"], containers(&["b"])["spec"]);
    }
}
