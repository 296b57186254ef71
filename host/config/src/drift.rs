//! The types, the JSON Schema and the collecting pass say the same: every field of one is known to the others.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;

/// Keywords that the collecting pass reads.
const READ: &[&str] = &[
    "type",
    "properties",
    "required",
    "additionalProperties",
    "propertyNames",
    "items",
    "maxItems",
    "enum",
    "const",
    "oneOf",
    "minimum",
    "maximum",
    "format",
];
/// Keywords that say to editors what a `format` or a rule says to the pass, and what people read.
const FOR_EDITORS: &[&str] = &[
    "$schema",
    "title",
    "description",
    "default",
    "pattern",
    "minLength",
    "maxLength",
    "maxProperties",
    "not",
    "allOf",
];

/// A document with every field of the schema set.
fn whole(schema: &Value) -> Value {
    if let Some(word) = check::words(schema).first() {
        return (*word).into();
    }
    let Some(keywords) = schema.as_object() else { unreachable!("{schema}") };
    match check::kind(keywords) {
        "object" => match schema.get("properties").and_then(Value::as_object) {
            Some(fields) => fields.iter().map(|(name, field)| (name.clone(), whole(field))).collect(),
            None => json!({ "a": "b" }),
        },
        "array" => json!([whole(&schema["items"])]),
        "integer" => schema["maximum"].clone(),
        "boolean" => true.into(),
        "string" => match schema.get("format").and_then(Value::as_str) {
            Some("object-kind") => "ConfigMap".into(),
            Some("api-version") => "v1".into(),
            Some("finalizer-pattern" | "condition-pattern") => "shop.example/a".into(),
            _ => "a".into(),
        },
        other => unreachable!("a type {other:?} in {schema}"),
    }
}

/// A valid document of each kind, with every field that it may have.
pub(crate) fn samples() -> [Value; 2] {
    let mut namespaced = whole(&PLUGIN);
    namespaced["spec"]["limits"]["cpuMillis"] = 20.into();
    namespaced["spec"]["watch"]["sections"] = json!(["labels"]);
    namespaced["spec"]["grants"]["read"]["pods"]["sections"] = json!(["labels"]);
    let mut cluster = namespaced.clone();
    cluster["kind"] = "ClusterReconcilePlugin".into();
    cluster["metadata"].as_object_mut().unwrap().remove("namespace");
    namespaced["spec"].as_object_mut().unwrap().remove("serviceAccountNamespace");
    [namespaced, cluster]
}

fn read_one(document: &Value) -> Result<Plugin, Vec<Problem>> {
    plugins(&document.to_string()).unwrap().remove(0).content
}

/// The verdict of the collecting pass only.
fn pass(document: &Value) -> Vec<Problem> {
    let nodes = yaml::documents(&document.to_string()).unwrap();
    let problems = Problems::default();
    let root = Field::root(&nodes[0], &problems);
    check::check(&root, &PLUGIN);
    rules::plugin(&root);
    problems.into_inner()
}

/// The paths of all fields, and of the objects that have them.
fn paths(value: &Value, path: &str, paths: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                let path = format!("{path}/{name}");
                self::paths(value, &path, paths);
                paths.insert(path);
            }
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| self::paths(item, &format!("{path}/{at}"), paths));
        }
        _ => {}
    }
}

#[test]
fn every_field_of_the_schema_is_one_of_the_types_and_the_other_way_round() {
    for sample in samples() {
        let plugin = read_one(&sample).unwrap_or_else(|problems| panic!("{sample:#}\n{problems:#?}"));
        let (mut of_schema, mut of_types) = (BTreeSet::new(), BTreeSet::new());
        paths(&sample, "", &mut of_schema);
        paths(&serde_json::to_value(plugin).unwrap(), "", &mut of_types);
        assert_eq!(of_schema, of_types);
        assert!(of_schema.len() > 45, "{of_schema:?}");
    }
}

#[test]
fn a_field_that_the_schema_does_not_have_is_refused_by_pass_and_types_wherever_it_is() {
    let [sample, _] = samples();
    let mut all = BTreeSet::from([String::new()]);
    paths(&sample, "", &mut all);
    let is_free = |path: &str| {
        ["/spec/config", "/metadata/labels", "/metadata/annotations", "matchLabels"]
            .iter()
            .any(|free| path.contains(free))
    };
    let objects = all.iter().filter(|path| sample.pointer(path).unwrap().is_object() && !is_free(path));
    for path in objects {
        let mut changed = sample.clone();
        changed.pointer_mut(path).unwrap()["unknown"] = 1.into();
        let problems = pass(&changed);
        let expected = format!("{path}/unknown")[1..].replace("/0", "[0]").replace('/', ".");
        assert_eq!(problems.len(), 1, "{path}: {problems:?}");
        assert_eq!(problems[0].field, expected);
        assert!(problems[0].message.starts_with("is not a known field; known here: "), "{problems:?}");
        let by_types = serde_json::from_value::<Plugin>(changed).unwrap_err().to_string();
        assert!(by_types.starts_with("unknown field `unknown`"), "{path}: {by_types}");
    }
}

#[test]
fn the_pass_knows_every_keyword_and_every_format_of_the_schema() {
    fn walk(schema: &Value, formats: &mut BTreeSet<String>) {
        let Some(schema) = schema.as_object() else { return };
        for (keyword, value) in schema {
            assert!(READ.contains(&&**keyword) || FOR_EDITORS.contains(&&**keyword), "{keyword}: {value}");
            match (keyword.as_str(), value) {
                ("properties", Value::Object(fields)) => fields.values().for_each(|field| walk(field, formats)),
                ("items" | "additionalProperties" | "propertyNames", schema) => walk(schema, formats),
                ("format", Value::String(format)) => drop(formats.insert(format.clone())),
                _ => {}
            }
        }
    }
    let mut formats = BTreeSet::new();
    walk(&PLUGIN, &mut formats);
    let rules: BTreeSet<String> = text::RULES.iter().map(|rule| rule.format.to_owned()).collect();
    assert_eq!(formats, rules, "a format without a rule, or a rule that nothing uses");
}

/// A value with one of its parts changed, in every part and in many ways.
pub(crate) fn mutations(value: &Value) -> Vec<Value> {
    let words =
        ["", "*", "a b", "kubernetes.io/*", "a.example/*", "Pod", "Ready", "shop.example/", "UPPER", "full", "-a"];
    let mut all: Vec<Value> = words.into_iter().map(Value::from).collect();
    all.extend([
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1e30),
        json!(u64::MAX),
        json!(70_000),
        json!(1.5),
    ]);
    all.extend([
        json!([]),
        json!({}),
        json!(["x", 1, null, ""]),
        json!({ "unknown": 1 }),
        json!([[]]),
        json!("x".repeat(400)),
    ]);
    match value {
        Value::Object(fields) => {
            let with = |key: &str, changed: Value| {
                let mut fields = fields.clone();
                fields.insert(key.to_owned(), changed);
                Value::Object(fields)
            };
            for (key, inner) in fields {
                let mut without = fields.clone();
                without.remove(key);
                all.push(Value::Object(without));
                all.extend(mutations(inner).into_iter().map(|changed| with(key, changed)));
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                all.extend(mutations(inner).into_iter().map(|changed| {
                    let mut items = items.clone();
                    items[index] = changed;
                    items.into()
                }));
            }
        }
        _ => {}
    }
    all
}

#[test]
fn what_the_pass_accepts_the_types_accept() {
    let (mut accepted, mut refused) = (0, 0);
    for sample in samples() {
        // Every fifth one of them: reading takes milliseconds.
        for document in mutations(&sample).into_iter().step_by(5).filter(|document| !document.is_null()) {
            if pass(&document).is_empty() {
                accepted += 1;
                read_one(&document).unwrap_or_else(|problems| panic!("{document:#}\n{problems:?}"));
            } else {
                refused += 1;
            }
        }
    }
    assert!(accepted > 50 && refused > 500, "{accepted} accepted and {refused} refused prove little");
}

#[test]
fn a_field_that_is_null_counts_as_absent() {
    let [sample, _] = samples();
    let required =
        ["/apiVersion", "/kind", "/metadata", "/metadata/name", "/metadata/namespace", "/spec", "/spec/source"];
    let mut all = BTreeSet::new();
    paths(&sample, "", &mut all);
    for path in all.iter().filter(|path| !path.contains("/0") && !path.contains("/a") || path.ends_with("/after")) {
        let mut null = sample.clone();
        *null.pointer_mut(path).unwrap() = Value::Null;
        let mut absent = sample.clone();
        let (parent, name) = path.rsplit_once('/').unwrap();
        absent.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name);
        assert_eq!(read_one(&null).is_ok(), read_one(&absent).is_ok(), "{path}");
        if required.contains(&&**path) {
            assert!(read_one(&null).unwrap_err()[0].message.starts_with("is missing"), "{path}");
        }
    }
}
