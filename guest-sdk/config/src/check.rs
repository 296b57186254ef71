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

/// The most unknown fields of a mapping that are compared with known ones, and their longest name in bytes.
const MOST_COMPARED: usize = 32;

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
    let entries = field.entries().iter().filter(|(key, _)| !fields.contains_key(key));
    for (at, (key, node)) in entries.enumerate() {
        let unknown = field.entry(key, node);
        let known: Vec<&str> = fields.keys().map(String::as_str).collect();
        let is_compared = at < MOST_COMPARED && key.len() < MOST_COMPARED;
        let meant = is_compared.then(|| meant(key, &known).or_else(|| below(key, fields))).flatten();
        let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
        unknown.problem(format!("is not a known field{meant}; known here: {}", known.join(", ")));
    }
    let required = schema.get("required").and_then(Value::as_array);
    for (name, schema) in fields {
        let field = field.get(name);
        if field.is_set() {
            check(&field, schema);
        } else if required.is_some_and(|required| required.iter().any(|required| required == name)) {
            field.problem(match words(schema)[..] {
                [] => "is missing".to_owned(),
                [only] => format!("is missing; it is {only}"),
                ref words => format!("is missing; use one of {}", words.join(", ")),
            });
        }
    }
}

/// Returns the known field whose name a few typing errors make an unknown one: one for each three letters.
fn meant(unknown: &str, known: &[&str]) -> Option<String> {
    let near = |name: &&&str| distance(unknown, name);
    let nearest = known.iter().min_by_key(near)?;
    (distance(unknown, nearest) <= unknown.len().min(nearest.len()).div_ceil(3)).then(|| (*nearest).to_owned())
}

/// Returns the number of letters to insert, remove or replace; case does not count.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (index, wanted) in other.bytes().enumerate() {
            let changed = diagonal + usize::from(!letter.eq_ignore_ascii_case(&wanted));
            diagonal = row[index + 1];
            row[index + 1] = changed.min(diagonal + 1).min(row[index] + 1);
        }
    }
    row[other.len()]
}

/// Returns the path of the only field of this name below the known ones: an indentation that is too small.
fn below(name: &str, fields: &Map<String, Value>) -> Option<String> {
    fn search(name: &str, above: &str, fields: &Map<String, Value>, found: &mut Vec<String>) {
        for (field, schema) in fields {
            let Some(fields) = schema.get("properties").and_then(Value::as_object) else { continue };
            let path = format!("{above}{field}.");
            found.extend(fields.contains_key(name).then(|| format!("{path}{name}")));
            search(name, &path, fields, found);
        }
    }
    let mut found = Vec::new();
    search(name, "", fields, &mut found);
    found.pop().filter(|_| found.is_empty())
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
    let least = bound("minimum").unwrap_or(0);
    let most = bound("maximum").unwrap_or(u64::MAX);
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

#[cfg(test)]
mod tests {
    use crate::{plugins, policy};

    fn messages(spec: &str) -> Vec<String> {
        let yaml = format!(
            "apiVersion: podium.dev/v1alpha1\nkind: ReconcilePlugin\nmetadata: {{ name: a, namespace: a }}\n\
             spec: {{ source: {{ file: a }}, {spec} }}\n"
        );
        let problems = plugins(&yaml).unwrap().remove(0).content.unwrap_err();
        problems.into_iter().map(|problem| format!("{}: {}", problem.field, problem.message)).collect()
    }

    #[test]
    fn an_unknown_field_that_is_nearly_a_known_one_names_it() {
        for (spec, field, meant) in [
            ("wtch: {}", "spec.wtch", "watch"),
            ("grant: {}", "spec.grant", "grants"),
            ("limits: { memoryMib: 1 }", "spec.limits.memoryMib", "memoryMiB"),
            ("serviceAccount: a", "spec.serviceAccount", "serviceAccountName"),
            ("grants: { write: { label: [a] } }", "spec.grants.write.label", "labels"),
            // A field that is a level too high.
            ("write: {}", "spec.write", "grants.write"),
            ("sections: []", "spec.sections", ""),
            ("labels: []", "spec.labels", "grants.write.labels"),
            ("colour: red", "spec.colour", ""),
            ("x: 1", "spec.x", ""),
        ] {
            let said = messages(spec).remove(0);
            let begin = format!("{field}: is not a known field; ");
            let rest = said.strip_prefix(&begin).unwrap_or_else(|| panic!("{said}"));
            let meant = if meant.is_empty() { String::new() } else { format!("did you mean {meant}?; ") };
            assert!(rest.starts_with(&format!("{meant}known here: ")), "{said}");
        }
        let typo = "apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec: { default: {} }\n";
        assert!(policy(typo).unwrap_err()[0].message.contains("did you mean defaults?"));
    }

    #[test]
    fn advice_on_many_or_long_unknown_fields_is_bounded() {
        let many: Vec<String> = (0..100).map(|at| format!("wtch{at}: 1")).collect();
        let advised = messages(&many.join(", ")).iter().filter(|said| said.contains("did you mean")).count();
        assert!(advised <= super::MOST_COMPARED, "{advised}");
        assert!(!messages(&format!("{}: 1", "watch".repeat(50)))[0].contains("did you mean"));
    }
}
