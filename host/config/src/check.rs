//! The collecting pass: compares a document with the JSON Schema and reports every difference.
//!
//! It reads the keywords that `schema` lets through and nothing else; a test fails on a keyword that it does not know.
//! Rules that a schema cannot express are in `rules`.

use podium_wire::syntax::quoted;
use serde_json::{Map, Value};

use crate::{
    field::Field,
    text,
    yaml::{Content, Node},
};

/// Advice for unknown fields that many users expect to exist.
const HINTS: &[(&str, &str)] =
    &[("spec.source.oci", "images are not supported by this release; fetch the component and use source.file")];

/// Reports the mistakes of a value that is set.
pub(crate) fn check(field: &Field<'_>, schema: &Value) {
    if let Some(schema) = schema.as_object() {
        check_object(field, schema);
    }
}

fn check_object(field: &Field<'_>, schema: &Map<String, Value>) {
    match kind(schema) {
        "object" => mapping(field, schema),
        "array" => list(field, schema),
        "integer" => integer(field, schema),
        "boolean" if field.flag().is_none() => field.problem("must be true or false"),
        "string" => string(field, schema),
        _ => {}
    }
}

/// The type of a value; a field that is not required may be null besides.
pub(crate) fn kind(schema: &Map<String, Value>) -> &str {
    match schema.get("type") {
        Some(Value::Array(kinds)) => {
            kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or_default()
        }
        kind => kind.and_then(Value::as_str).unwrap_or_default(),
    }
}

fn mapping(field: &Field<'_>, schema: &Map<String, Value>) {
    let fields = schema.get("properties").and_then(Value::as_object);
    let values = schema.get("additionalProperties").and_then(Value::as_object);
    if !field.is_mapping() {
        field.problem(match (fields, values) {
            (Some(_), _) => "must be a mapping of fields",
            (None, Some(values)) if kind(values) == "object" => "must be a mapping of names to mappings of fields",
            (None, Some(_)) => "must be a mapping of texts",
            (None, None) => "must be a mapping, such as { threshold: 5 }",
        });
        return;
    }
    if let Some(fields) = fields {
        known(field, schema, fields);
    }
    if let Some(values) = values {
        for (key, node) in field.entries() {
            let value = field.entry(key, node);
            let rule = schema.get("propertyNames").and_then(text::format);
            if let Some(message) = rule.and_then(|rule| rule.check(key).err()) {
                value.problem(format!("key {message}"));
            }
            check_object(&value, values);
        }
    }
}

/// A mapping whose fields are all known.
fn known(field: &Field<'_>, schema: &Map<String, Value>, fields: &Map<String, Value>) {
    let mut hinted = false;
    for (key, node) in field.entries().iter().filter(|(key, _)| !fields.contains_key(key)) {
        let unknown = field.entry(key, node);
        if let Some((_, hint)) = HINTS.iter().find(|(path, _)| *path == unknown.path()) {
            unknown.problem(*hint);
            hinted = true;
        } else {
            let known: Vec<&str> = fields.keys().map(String::as_str).collect();
            unknown.problem(format!("is not a known field; known here: {}", known.join(", ")));
        }
    }
    let required = schema.get("required").and_then(Value::as_array);
    for (name, schema) in fields {
        let field = field.get(name);
        if field.is_set() {
            check(&field, schema);
        } else if !hinted && required.is_some_and(|required| required.iter().any(|required| required == name)) {
            field.problem(match words(schema)[..] {
                [] => "is missing".to_owned(),
                [only] => format!("is missing; it is {only}"),
                ref words => format!("is missing; use one of {}", words.join(", ")),
            });
        }
    }
}

fn list(field: &Field<'_>, schema: &Map<String, Value>) {
    let Some(Content::List(items)) = field.content() else {
        field.problem("must be a list, such as [a, b]");
        return;
    };
    if let Some(most) = schema.get("maxItems").and_then(Value::as_u64).filter(|most| items.len() as u64 > *most) {
        field.problem(format!("has {} values; at most {most}", items.len()));
    }
    if let Some(least) = schema.get("minItems").and_then(Value::as_u64).filter(|least| (items.len() as u64) < *least) {
        field.problem(format!("has {} values; at least {least}, or leave the field out", items.len()));
    }
    if let Some(schema) = schema.get("items") {
        field.items().iter().for_each(|item| check(item, schema));
    }
}

fn integer(field: &Field<'_>, schema: &Map<String, Value>) {
    let bound = |name| schema.get(name).and_then(Value::as_u64);
    let (least, most) = (bound("minimum").unwrap_or(0), bound("maximum").unwrap_or(u64::MAX));
    if !field.number().is_some_and(|number| (least..=most).contains(&number)) {
        field.problem(format!("must be a whole number from {least} to {most}"));
    }
}

fn string(field: &Field<'_>, schema: &Map<String, Value>) {
    let Some(text) = field.text() else {
        field.problem("must be a text; put it in quotes");
        return;
    };
    let schema = &Value::Object(schema.clone());
    match words(schema)[..] {
        [] => {}
        [only] if only != text => field.problem(format!("must be {only}")),
        ref words if !words.contains(&text) => {
            field.problem(format!("{} is not known; use one of {}", quoted(text), words.join(", ")));
        }
        _ => {}
    }
    if let Some(message) = text::format(schema).and_then(|rule| rule.check(text).err()) {
        field.problem(message);
    }
}

/// The words of an enumeration: of `enum`, of `const`, or of the constants of `oneOf`, which have a description each.
pub(crate) fn words(schema: &Value) -> Vec<&str> {
    let list = |name: &str| schema.get(name).and_then(Value::as_array).into_iter().flatten();
    let constants = list("oneOf").filter_map(|one| one.get("const"));
    list("enum").chain(schema.get("const")).chain(constants).filter_map(Value::as_str).collect()
}

/// A value as JSON without the fields that are null, which count as absent. A mapping whose fields the schema does not
/// list has all its keys.
pub(crate) fn present(node: &Node, schema: &Value) -> Value {
    let below = |name: &str| schema.get(name).unwrap_or(&Value::Null);
    match (node.content(), below("properties")) {
        (Content::Map(entries), Value::Object(fields)) => {
            let entries = entries.iter().filter(|(_, value)| !value.is_null());
            let known = |key: &str| fields.get(key).unwrap_or(&Value::Null);
            entries.map(|(key, value)| (key.clone(), present(value, known(key)))).collect()
        }
        (Content::Map(entries), _) => {
            let values = below("additionalProperties");
            entries.iter().map(|(key, value)| (key.clone(), present(value, values))).collect()
        }
        (Content::List(items), _) => items.iter().map(|item| present(item, below("items"))).collect(),
        _ => node.json(),
    }
}
