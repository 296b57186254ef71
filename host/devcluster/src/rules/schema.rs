//! Validates custom resources by their version's structural schema: unknown fields are pruned, defaults are set,
//! types, required fields, enumerations and bounds are checked. Patterns, formats, CEL rules and the combinations
//! (such as `oneOf`) are not supported.

use serde_json::{Map, Value};

use crate::{failure::Cause, meta};

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// Prunes fields that the schema does not have, then sets its defaults.
pub(super) fn shape(schema: &Value, object: &mut Value) {
    prune(schema, object, true, "", &mut Vec::new());
    default(schema, object);
}

/// Returns the paths of fields that the schema does not have.
pub(super) fn unknown(schema: &Value, object: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    prune(schema, &mut object.clone(), true, "", &mut unknown);
    unknown
}

/// Prunes a value. `whole` means that the value is an object of the API, which has type and metadata whatever the
/// schema contains.
fn prune(schema: &Value, value: &mut Value, whole: bool, path: &str, pruned: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let own = |name: &str| whole && matches!(name, "apiVersion" | "kind" | "metadata");
            let preserved = schema[PRESERVE] == true || schema["additionalProperties"] == true;
            let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            fields.retain(|name, _| {
                let known = own(name) || preserved || field(schema, name).is_some();
                if !known {
                    pruned.push(below(name));
                }
                known
            });
            for (name, value) in fields.iter_mut().filter(|(name, _)| !own(name)) {
                if let Some(schema) = field(schema, name) {
                    prune(schema, value, schema[EMBEDDED] == true, &below(name), pruned);
                }
            }
        }
        Value::Array(items) => {
            let schema = &schema["items"];
            for (index, item) in items.iter_mut().enumerate() {
                prune(schema, item, schema[EMBEDDED] == true, &format!("{path}[{index}]"), pruned);
            }
        }
        _ => {}
    }
}

fn default(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, schema) in properties(schema) {
                if let Some(default) = schema.get("default").filter(|_| !fields.contains_key(name)) {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in fields.iter_mut() {
                if let Some(schema) = field(schema, name) {
                    default(schema, value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| default(&schema["items"], item)),
        _ => {}
    }
}

/// Adds the violations of the schema, except those of unchanged fields.
pub(super) fn check(schema: &Value, old: Option<&Value>, object: &Value, causes: &mut Vec<Cause>) {
    let fields = object.as_object().into_iter().flatten().filter(|(name, _)| *name != "metadata");
    require(schema, object, "", causes);
    for (name, value) in fields {
        if let Some(schema) = field(schema, name) {
            value_at(schema, old.and_then(|old| old.get(name)), value, name, causes);
        }
    }
}

fn value_at(schema: &Value, old: Option<&Value>, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if old == Some(value) || (value.is_null() && schema["nullable"] == true) {
        return;
    }
    let either = schema[INT_OR_STRING] == true;
    let expected = if either { Some("integer,string") } else { schema["type"].as_str() };
    let wrong = expected.filter(|expected| !expected.split(',').any(|expected| is_a(value, expected)));
    if let Some(expected) = wrong {
        causes.push(Cause::of_type(path, type_name(value), expected));
    }
    let allowed = meta::list(schema, &["enum"]);
    if !allowed.is_empty() && !allowed.contains(value) {
        let words: Vec<String> =
            allowed.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect();
        causes.push(Cause::unsupported(path, value, &words.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    if wrong.is_some() {
        return;
    }
    match value {
        Value::Number(_) => number(schema, value, path, causes),
        Value::String(text) => {
            let letters = text.chars().count() as u64;
            if schema["minLength"].as_u64().is_some_and(|least| letters < least) {
                let detail = format!("{path} in body should be at least {} chars long", schema["minLength"]);
                causes.push(Cause::invalid(path, value, &detail));
            }
            if let Some(most) = schema["maxLength"].as_u64().filter(|most| letters > *most) {
                causes.push(Cause::too_long(path, usize::try_from(most).unwrap_or(usize::MAX)));
            }
        }
        Value::Array(items) => {
            let count = items.len() as u64;
            if schema["minItems"].as_u64().is_some_and(|least| count < least) {
                let detail = format!("{path} in body should have at least {} items", schema["minItems"]);
                causes.push(Cause::invalid(path, &count.into(), &detail));
            }
            if let Some(most) = schema["maxItems"].as_u64().filter(|most| count > *most) {
                causes.push(Cause::too_many(path, count, most));
            }
            for (index, item) in items.iter().enumerate() {
                value_at(&schema["items"], None, item, &format!("{path}[{index}]"), causes);
            }
        }
        Value::Object(fields) => {
            require(schema, value, path, causes);
            let count = fields.len() as u64;
            if schema["minProperties"].as_u64().is_some_and(|least| count < least) {
                let detail = format!("{path} in body should have at least {} properties", schema["minProperties"]);
                causes.push(Cause::invalid(path, &count.into(), &detail));
            }
            if let Some(most) = schema["maxProperties"].as_u64().filter(|most| count > *most) {
                causes.push(Cause::too_many(path, count, most));
            }
            for (name, value) in fields {
                if let Some(schema) = field(schema, name) {
                    let old = old.and_then(|old| old.get(name));
                    value_at(schema, old, value, &format!("{path}.{name}"), causes);
                }
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

fn require(schema: &Value, object: &Value, path: &str, causes: &mut Vec<Cause>) {
    for name in meta::list(schema, &["required"]).iter().filter_map(Value::as_str) {
        if object.get(name).is_none() {
            let field = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            causes.push(Cause::required(field, ""));
        }
    }
}

fn number(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let Some(number) = value.as_f64() else { return };
    let mut refuse =
        |detail: String| causes.push(Cause::invalid(path, value, &format!("{path} in body should be {detail}")));
    if let Some(least) = schema["minimum"].as_f64() {
        if schema["exclusiveMinimum"] == true && number <= least {
            refuse(format!("greater than {least}"));
        } else if number < least {
            refuse(format!("greater than or equal to {least}"));
        }
    }
    if let Some(most) = schema["maximum"].as_f64() {
        if schema["exclusiveMaximum"] == true && number >= most {
            refuse(format!("less than {most}"));
        } else if number > most {
            refuse(format!("less than or equal to {most}"));
        }
    }
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::iter)
}

/// Returns the schema of a field: its own, or that of all fields.
fn field<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let own = schema.get("properties").and_then(|properties| properties.get(name));
    own.or_else(|| schema.get("additionalProperties").filter(|schema| schema.is_object()))
}

fn is_a(value: &Value, expected: &str) -> bool {
    match expected {
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0),
        expected => type_name(value) == expected,
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({"type": "object", "required": ["spec"], "properties": {"spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 9},
                "mode": {"type": "string", "enum": ["fast", "slow"], "default": "fast"},
                "names": {"type": "array", "maxItems": 2, "items": {"type": "string", "minLength": 2}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "words": {"type": "object", "additionalProperties": {"type": "string"}},
                "port": {"x-kubernetes-int-or-string": true},
            },
        }}})
    }

    fn refused(old: Option<&Value>, spec: Value) -> Vec<String> {
        let mut causes = Vec::new();
        check(&schema(), old, &json!({"metadata": {"name": "a"}, "spec": spec}), &mut causes);
        causes.iter().map(|cause| format!("{}: {}", cause.field(), cause.message())).collect()
    }

    #[test]
    fn values_against_the_schema_are_refused_in_the_servers_words() {
        for (spec, message) in [
            (json!({}), "spec.size: Required value"),
            (json!({"size": 0}), "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"),
            (json!({"size": 10}), "spec.size: Invalid value: 10: spec.size in body should be less than or equal to 9"),
            (
                json!({"size": "big"}),
                "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
            ),
            (
                json!({"size": 1, "mode": "x"}),
                "spec.mode: Unsupported value: \"x\": supported values: \"fast\", \"slow\"",
            ),
            (
                json!({"size": 1, "names": ["a"]}),
                "spec.names[0]: Invalid value: \"a\": spec.names[0] in body should be at least 2 chars long",
            ),
            (json!({"size": 1, "names": ["ab", "cd", "ef"]}), "spec.names: Too many: 3: must have at most 2 items"),
            (
                json!({"size": 1, "words": {"k": 1}}),
                "spec.words.k: Invalid value: \"integer\": spec.words.k in body must be of type string: \"integer\"",
            ),
        ] {
            assert_eq!(refused(None, spec), [message]);
        }
        let fine = json!({"size": 1.0, "mode": "slow", "names": ["ab"], "free": {"x": [1]}, "port": "http"});
        assert!(refused(None, fine).is_empty());
    }

    #[test]
    fn unchanged_values_that_were_invalid_before_are_accepted() {
        let old = json!({"spec": {"size": 0, "mode": "fast"}});
        assert!(refused(Some(&old), json!({"size": 0, "mode": "slow"})).is_empty());
        assert_eq!(refused(Some(&old), json!({"size": -1})).len(), 1);
    }

    #[test]
    fn unknown_fields_are_pruned_and_defaults_filled_in() {
        let mut object = json!({
            "apiVersion": "x/v1", "kind": "X", "metadata": {"name": "a"}, "other": 1,
            "spec": {"size": 1, "unknown": {"a": 1}, "free": {"any": {"thing": 1}}, "words": {"k": "v"}},
        });
        shape(&schema(), &mut object);
        assert_eq!(
            object,
            json!({
                "apiVersion": "x/v1", "kind": "X", "metadata": {"name": "a"},
                "spec": {"size": 1, "mode": "fast", "free": {"any": {"thing": 1}}, "words": {"k": "v"}},
            })
        );
    }
}
