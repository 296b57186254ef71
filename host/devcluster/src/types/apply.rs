//! The errors that server-side apply finds in an applied object before the merge: fields that its schema does not
//! declare and values of another type, in the messages of structured-merge-diff.

use serde_json::{Map, Value};

use super::{Struct, Type};
use crate::{
    fields,
    patch::{
        lists::{Merge, Schema},
        strategic,
    },
};

/// Returns path and message of each mismatch between the object and its type.
pub(crate) fn mismatches(kind: &Struct, object: &Value, schema: Schema<'_>) -> Vec<String> {
    let mut walk = Walk { schema, plain: Vec::new(), shown: Vec::new(), wrong: Vec::new() };
    match object {
        Value::Object(map) => walk.fields(kind, map),
        other => walk.wrong(&format!("expected map, got {}", pointer(other))),
    }
    walk.wrong
}

struct Walk<'a> {
    schema: Schema<'a>,
    /// Names of fields only, by which the schema looks lists up.
    plain: Vec<String>,
    /// Steps in the format of [`fields::display`].
    shown: Vec<String>,
    wrong: Vec<String>,
}

impl Walk<'_> {
    fn wrong(&mut self, message: &str) {
        let path = fields::display(&self.shown);
        self.wrong.push(if path.is_empty() { message.to_owned() } else { format!("{path}: {message}") });
    }

    fn fields(&mut self, kind: &Struct, map: &Map<String, Value>) {
        for (name, value) in map {
            match kind.field(name) {
                Some(field) => self.field(name, &field.kind, value),
                None if kind.open => {}
                None => {
                    self.shown.push(format!("f:{name}"));
                    self.wrong("field not declared in schema");
                    self.shown.pop();
                    // The first error ends the check of its siblings.
                    return;
                }
            }
        }
    }

    fn field(&mut self, name: &str, kind: &Type, value: &Value) {
        self.plain.push(name.to_owned());
        self.shown.push(format!("f:{name}"));
        self.value(kind, value);
        self.shown.pop();
        self.plain.pop();
    }

    fn value(&mut self, kind: &Type, value: &Value) {
        let scalar = !matches!(value, Value::Array(_) | Value::Object(_));
        match (kind, value) {
            (_, Value::Null) | (Type::Any, _) => {}
            (Type::Struct(name), Value::Object(map)) => self.fields(Struct::named(name), map),
            (Type::Map(element, _), Value::Object(map)) => {
                map.iter().for_each(|(name, value)| self.field(name, element, value));
            }
            (Type::Struct(_) | Type::Map(..), other) => self.wrong(&format!("expected map, got {}", pointer(other))),
            (Type::List(element, _), Value::Array(items)) => self.items(element, items),
            (Type::List(..), other) => self.wrong(&format!("expected list, got {}", pointer(other))),
            (Type::String(_) | Type::Bytes, Value::String(_)) | (Type::Bool, Value::Bool(_)) => {}
            (Type::String(_) | Type::Bytes, other) => {
                self.wrong(&format!("expected string, got &value.valueUnstructured{{Value:{}}}", syntax(other)));
            }
            (Type::Bool, other) => self.wrong(&format!("expected boolean, got {}", pointer(other))),
            (Type::Int32 | Type::Int64 | Type::Float64, Value::Number(_)) => {}
            (Type::Int32 | Type::Int64 | Type::Float64, other) => {
                self.wrong(&format!("expected numeric (int or float), got {}", type_name(other)));
            }
            (Type::Time | Type::MicroTime | Type::Quantity | Type::IntOrString, _) if scalar => {}
            (_, other) => self.wrong(&format!("expected any scalar, got {}", pointer(other))),
        }
    }

    fn items(&mut self, element: &Type, items: &[Value]) {
        let merge = self.schema.apply(&self.plain);
        let mut seen: Vec<String> = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let step = match merge {
                Merge::Atomic => format!("i:{index}"),
                Merge::Set => format!("v:{item}"),
                Merge::Map(_) if !item.is_object() => {
                    let what = if item.is_null() { "a null element" } else { "non-map elements" };
                    return self.wrong(&format!("element {index}: associative list with keys may not have {what}"));
                }
                Merge::Map(keys) => fields::key_step(item, keys),
            };
            self.shown.push(step.clone());
            if merge != Merge::Atomic && seen.contains(&step) {
                let shown = fields::display(&vec![step.clone()]);
                self.shown.pop();
                self.wrong(&format!("duplicate entries for key {shown}"));
                self.shown.push(step.clone());
            }
            seen.push(step);
            self.value(element, item);
            self.shown.pop();
        }
    }
}

/// Formats a value as Go prints one behind a pointer.
fn pointer(value: &Value) -> String {
    format!("&{{{}}}", strategic::as_go(value))
}

/// Formats a value in Go's syntax.
fn syntax(value: &Value) -> String {
    let joined = |parts: Vec<String>| parts.join(", ");
    match value {
        Value::Array(items) => format!("[]interface {{}}{{{}}}", joined(items.iter().map(syntax).collect())),
        Value::Object(map) => {
            let entries = map.iter().map(|(key, value)| format!("{key:?}:{}", syntax(value))).collect();
            format!("map[string]interface {{}}{{{}}}", joined(entries))
        }
        Value::Null => "interface {}(nil)".into(),
        Value::Number(number) if number.is_f64() => number.as_f64().unwrap_or_default().to_string(),
        other => other.to_string(),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_applied_object_is_held_against_its_type_with_paths_by_key() {
        let pod = json!({
            "metadata": {"labels": {"a": 1}},
            "spec": {"hostNetwork": "yes", "contaners": [], "containers": [
                {"name": "a", "imag": "x"}, {"name": "b", "ports": {}, "args": [[]]},
            ]},
        });
        let expected = [
            ".metadata.labels.a: expected string, got &value.valueUnstructured{Value:1}",
            ".spec.containers[name=\"a\"].imag: field not declared in schema",
            ".spec.containers[name=\"b\"].args[0]: expected string, got &value.valueUnstructured{Value:[]interface \
            {}{}}",
            ".spec.containers[name=\"b\"].ports: expected list, got &{map[]}",
            ".spec.contaners: field not declared in schema",
        ];
        assert_eq!(mismatches(Struct::named("core.Pod"), &pod, Schema::BuiltIn("Pod")), expected);
    }
}
