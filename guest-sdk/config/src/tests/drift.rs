//! The types, the JSON Schema and the collecting pass say the same: every field of one is known to the others.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Value, json};

use crate::*;

/// A kind of document, for tests that hold for all kinds.
pub(crate) struct Subject {
    pub(crate) schema: &'static LazyLock<Value>,
    rules: fn(&Field<'_>),
    /// Reads a document, and returns its type as JSON.
    pub(crate) read: fn(&str) -> Result<Value, Vec<Problem>>,
    /// Deserializes JSON without the collecting pass; returns the error.
    by_types: fn(Value) -> String,
    /// Valid documents that have every field.
    pub(crate) samples: fn() -> Vec<Value>,
    /// Fields that must be there.
    required: &'static [&'static str],
    /// The least number of fields that the samples have.
    fields: usize,
}

pub(crate) const SUBJECTS: [Subject; 2] = [
    Subject {
        schema: &PLUGIN,
        rules: rules::plugin,
        read: |text| plugins(text).unwrap().remove(0).content.map(|plugin| json!(plugin)),
        by_types: by_types::<Plugin>,
        samples,
        required: &[
            "/apiVersion",
            "/kind",
            "/metadata",
            "/metadata/name",
            "/metadata/namespace",
            "/spec",
            "/spec/source",
        ],
        fields: 45,
    },
    Subject {
        schema: &POLICY,
        rules: rules::policy,
        read: |text| policy(text).map(|policy| json!(policy)),
        by_types: by_types::<Policy>,
        samples: policies,
        required: &["/apiVersion", "/kind", "/spec"],
        fields: 36,
    },
];

fn by_types<T: DeserializeOwned + Serialize + std::fmt::Debug>(document: Value) -> String {
    serde_json::from_value::<T>(document).unwrap_err().to_string()
}

/// Keywords that the collecting pass reads.
const READ: &[&str] = &[
    "type",
    "properties",
    "required",
    "additionalProperties",
    "propertyNames",
    "items",
    "maxItems",
    "minItems",
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
            None if schema["additionalProperties"].is_object() => {
                json!({ "a": whole(&schema["additionalProperties"]) })
            }
            None => json!({ "a": "b" }),
        },
        "array" => json!([whole(&schema["items"])]),
        "integer" => schema["maximum"].clone(),
        "boolean" => true.into(),
        "string" => match schema.get("format").and_then(Value::as_str) {
            Some("object-kind" | "input-kind") => "ConfigMap".into(),
            Some("api-version") => "v1".into(),
            Some("finalizer-pattern" | "condition-pattern") => "shop.example/a".into(),
            Some("sha256") => "a".repeat(64).into(),
            Some("image") => "a.example/a:1".into(),
            Some("public-key") => "-----BEGIN PUBLIC KEY-----\nYQ==\n-----END PUBLIC KEY-----\n".into(),
            _ => "a".into(),
        },
        other => unreachable!("a type {other:?} in {schema}"),
    }
}

/// A valid plugin of each kind, with every field that it may have.
fn samples() -> Vec<Value> {
    let mut namespaced = whole(&PLUGIN);
    namespaced["spec"]["limits"]["cpuMillis"] = 20.into();
    namespaced["spec"]["watch"]["sections"] = json!(["labels"]);
    namespaced["spec"]["watch"]["related"]["by"] = json!("label");
    namespaced["spec"]["grants"]["read"]["pods"]["sections"] = json!(["labels"]);
    // One input has a selector, and all others a name.
    let selected = namespaced["spec"]["inputs"][0].as_object_mut().unwrap();
    let name = selected.remove("name");
    let script = &mut namespaced["spec"]["source"]["script"];
    let inline = script.as_object_mut().unwrap().remove("inline").unwrap();
    let inline = json!({ "language": script["language"], "inline": inline });
    let mut cluster = namespaced.clone();
    cluster["kind"] = "ClusterReconcilePlugin".into();
    cluster["metadata"].as_object_mut().unwrap().remove("namespace");
    namespaced["spec"].as_object_mut().unwrap().remove("serviceAccountNamespace");
    let from = |sample: &Value, place: &str| {
        let mut sample = sample.clone();
        sample["spec"]["source"].as_object_mut().unwrap().retain(|name, _| name == place);
        sample
    };
    let mut scripts = from(&namespaced, "script");
    scripts["spec"]["source"]["script"] = inline;
    let named = scripts["spec"]["inputs"][0].as_object_mut().unwrap();
    named.remove("selector");
    named.extend(name.map(|name| ("name".to_owned(), name)));
    vec![
        from(&namespaced, "file"),
        from(&cluster, "configMap"),
        from(&namespaced, "oci"),
        from(&cluster, "script"),
        scripts,
    ]
}

/// A valid policy with every field that it may have.
fn policies() -> Vec<Value> {
    let mut policy = whole(&POLICY);
    policy["spec"]["registries"][0]["plainHttp"] = false.into();
    vec![policy]
}

impl Subject {
    /// The verdict of the collecting pass only.
    fn pass(&self, document: &Value) -> Vec<Problem> {
        let nodes = yaml::documents(&document.to_string()).unwrap();
        let problems = Problems::default();
        let root = Field::root(&nodes[0], &problems);
        check::check(&root, self.schema);
        (self.rules)(&root);
        problems.into_inner()
    }
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
fn the_schema_and_the_types_have_the_same_fields() {
    for subject in SUBJECTS {
        for sample in (subject.samples)() {
            let read = (subject.read)(&sample.to_string());
            let read = read.unwrap_or_else(|problems| panic!("{sample:#}\n{problems:#?}"));
            let mut of_schema = BTreeSet::new();
            let mut of_types = BTreeSet::new();
            paths(&sample, "", &mut of_schema);
            paths(&read, "", &mut of_types);
            assert_eq!(of_schema, of_types);
            assert!(of_schema.len() > subject.fields, "{}: {of_schema:?}", of_schema.len());
        }
    }
}

#[test]
fn unknown_fields_are_refused_at_every_depth_by_pass_and_types() {
    for subject in SUBJECTS {
        let sample = (subject.samples)().remove(0);
        let mut all = BTreeSet::from([String::new()]);
        paths(&sample, "", &mut all);
        let is_free = |path: &str| {
            path == "/spec/namespaces"
                || ["/spec/config", "/metadata/labels", "/metadata/annotations", "matchLabels"]
                    .iter()
                    .any(|free| path.contains(free))
        };
        let objects = all.iter().filter(|path| sample.pointer(path).unwrap().is_object() && !is_free(path));
        for path in objects {
            let mut changed = sample.clone();
            changed.pointer_mut(path).unwrap()["unknown"] = 1.into();
            let problems = subject.pass(&changed);
            let expected = format!("{path}/unknown")[1..].replace("/0", "[0]").replace('/', ".");
            assert_eq!(problems.len(), 1, "{path}: {problems:?}");
            assert_eq!(problems[0].field, expected);
            assert!(problems[0].message.starts_with("is not a known field; known here: "), "{problems:?}");
            let by_types = (subject.by_types)(changed);
            assert!(by_types.starts_with("unknown field `unknown`"), "{path}: {by_types}");
        }
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
    SUBJECTS.iter().for_each(|subject| walk(subject.schema, &mut formats));
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
fn documents_that_the_pass_accepts_are_accepted_by_the_types() {
    let mut accepted = 0;
    let mut refused = 0;
    for subject in SUBJECTS {
        for sample in (subject.samples)() {
            // Every fifth one of them: reading takes milliseconds.
            for document in mutations(&sample).into_iter().step_by(5).filter(|document| !document.is_null()) {
                if subject.pass(&document).is_empty() {
                    accepted += 1;
                    let read = (subject.read)(&document.to_string());
                    read.unwrap_or_else(|problems| panic!("{document:#}\n{problems:?}"));
                } else {
                    refused += 1;
                }
            }
        }
    }
    assert!(accepted > 50 && refused > 500, "{accepted} accepted and {refused} refused prove little");
}

#[test]
fn a_field_that_is_null_counts_as_absent() {
    for subject in SUBJECTS {
        let sample = (subject.samples)().remove(0);
        let mut all = BTreeSet::new();
        paths(&sample, "", &mut all);
        // A key of a mapping is there with any value.
        let is_key = |path: &str| path.ends_with("/a");
        for path in all.iter().filter(|path| !path.contains("/0") && !is_key(path)) {
            let mut null = sample.clone();
            *null.pointer_mut(path).unwrap() = Value::Null;
            let mut absent = sample.clone();
            let (parent, name) = path.rsplit_once('/').unwrap();
            absent.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name);
            let read = |document: Value| (subject.read)(&document.to_string());
            assert_eq!(read(null.clone()).is_ok(), read(absent).is_ok(), "{path}");
            if subject.required.contains(&&**path) {
                assert!(read(null).unwrap_err()[0].message.starts_with("is missing"), "{path}");
            }
        }
    }
}
