//! The JSON Schema as editors and the collecting pass read it: without references, and with null for whatever may be
//! left out.

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::{Map, Value, json};

use crate::{
    policy::Rules,
    text::{DnsLabel, LabelValue, QualifiedName},
};

/// Generates the schema of a document.
pub(crate) fn generate<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    for_authors(&mut schema);
    schema
}

/// Rewrites what schemars derives: whatever may be left out may be null too, as in Kubernetes, and what only says how a
/// type is laid out is removed. Whether a required field is null or missing is the same mistake.
fn for_authors(schema: &mut Value) {
    let required = schema.get("required").cloned().unwrap_or_default();
    let is_required = |name: &str| required.as_array().is_some_and(|names| names.iter().any(|other| other == name));
    if let Some(text) = schema.get("description").and_then(Value::as_str) {
        schema["description"] = text.replace('\n', " ").into();
    }
    if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, field) in fields {
            for_authors(field);
            if let Some(field) = field.as_object_mut() {
                layout(field);
                if !is_required(name) {
                    nullable(field);
                }
            }
        }
    }
    for below in ["items", "additionalProperties"] {
        let Some(below) = schema.get_mut(below) else { continue };
        for_authors(below);
        if let Some(below) = below.as_object_mut() {
            layout(below);
        }
    }
}

fn layout(field: &mut Map<String, Value>) {
    // An enumeration whose words have descriptions.
    if field.contains_key("oneOf") {
        field.insert("type".to_owned(), "string".into());
    }
    // The width of an integer.
    if field.contains_key("minimum") {
        field.remove("format");
    }
    if field.get("default").is_some_and(|default| default.is_null() || default.is_object() || default.is_array()) {
        field.remove("default");
    }
}

fn nullable(field: &mut Map<String, Value>) {
    if let Some(kind @ Value::String(_)) = field.get_mut("type") {
        *kind = json!([kind.take(), "null"]);
    }
    if let Some(Value::Array(words)) = field.get_mut("enum") {
        words.push(Value::Null);
    }
    if let Some(Value::Array(words)) = field.get_mut("oneOf") {
        words.push(json!({ "type": "null" }));
    }
}

pub(crate) fn match_labels(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "propertyNames": generator.subschema_for::<QualifiedName>(),
        "additionalProperties": generator.subschema_for::<LabelValue>(),
        "maxProperties": crate::plugin::MOST_REQUIREMENTS,
    })
}

/// A mapping of namespaces to rules: a list could name a namespace twice.
pub(crate) fn rules_by_namespace(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "propertyNames": generator.subschema_for::<DnsLabel>(),
        "additionalProperties": generator.subschema_for::<Rules>(),
    })
}

/// A mapping whose content is described elsewhere.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "additionalProperties": true })
}

/// The status of a condition, as Kubernetes writes it.
pub(crate) fn condition_status(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["True", "False", "Unknown"] })
}

/// The rules that editors can know too; `rules` has their messages.
pub(crate) fn plugin(schema: &mut Schema) {
    let of = |kind: &str, then: Value| {
        let is_kind = json!({ "required": ["kind"], "properties": { "kind": { "const": kind } } });
        json!({ "if": is_kind, "then": then })
    };
    let is_absent = json!({ "type": "null" });
    let namespace = json!({ "required": ["namespace"], "properties": { "namespace": { "type": "string" } } });
    let namespace_is_set = json!({ "properties": { "metadata": namespace } });
    let pair = |one: &str, other: &str| {
        let set = json!({ "required": [one], "properties": { one: { "type": "string" } } });
        json!({ "if": set, "then": { "required": [other], "properties": { other: { "type": "string" } } } })
    };
    let name = "serviceAccountName";
    let own = "serviceAccountNamespace";
    let rules = json!([
        of("ReconcilePlugin", namespace_is_set),
        of("ReconcilePlugin", json!({ "properties": { "spec": { "properties": { own: is_absent } } } })),
        of(
            "ClusterReconcilePlugin",
            json!({ "properties": { "metadata": { "properties": { "namespace": is_absent } } } })
        ),
        of(
            "ClusterReconcilePlugin",
            json!({ "properties": { "spec": { "allOf": [pair(name, own), pair(own, name)] } } })
        ),
    ]);
    schema.insert("allOf".to_owned(), rules);
}

pub(crate) fn requirement(schema: &mut Schema) {
    let of = |operators: [&str; 2], then: Value| {
        let is_one = json!({ "required": ["operator"], "properties": { "operator": { "enum": operators } } });
        json!({ "if": is_one, "then": then })
    };
    let rules = json!([
        of(
            ["In", "NotIn"],
            json!({ "required": ["values"], "properties": { "values": { "type": "array", "minItems": 1 } } })
        ),
        of(["Exists", "DoesNotExist"], json!({ "properties": { "values": { "maxItems": 0 } } })),
    ]);
    schema.insert("allOf".to_owned(), rules);
}
