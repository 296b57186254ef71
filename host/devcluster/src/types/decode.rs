//! Decodes an object into its Go type: unknown fields are dropped and reported, and so are duplicates; a value of
//! another type is an error. Decodes a JSON body, in the order of the body, and the result of a patch.

use std::{collections::BTreeSet, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::{Field, Struct, Type, Wrong, scalar};

/// The most strict errors that are reported, as in the API server.
const STRICT_ERRORS: usize = 100;

/// The result of decoding valid JSON.
#[derive(Clone, Debug)]
pub(crate) struct Decoded {
    pub(crate) object: Value,
    /// The errors of a strict decoder: unknown and duplicate fields, in the API server's messages.
    pub(crate) strict: Vec<String>,
    /// The names of the duplicate fields.
    pub(crate) duplicates: Vec<String>,
    pub(crate) wrong: Option<Wrong>,
}

/// Decodes one object of the type.
///
/// # Errors
/// Returns an error if the input is not JSON.
pub(crate) fn decode<'de, D: Deserializer<'de>>(kind: &Struct, input: D) -> Result<Decoded, D::Error> {
    decode_at(Position::Struct(kind), input)
}

/// Decodes the operations of a JSON patch.
///
/// # Errors
/// Returns an error if the input is not JSON.
pub(crate) fn decode_operations<'de, D: Deserializer<'de>>(input: D) -> Result<Decoded, D::Error> {
    decode_at(Position::Type(&Type::List(Box::new(Type::Struct("patch.Operation")), "")), input)
}

/// Decodes a value without a type, in which only duplicate fields are reported.
///
/// # Errors
/// Returns an error if the input is not JSON.
pub(crate) fn decode_any<'de, D: Deserializer<'de>>(input: D) -> Result<Decoded, D::Error> {
    decode_at(Position::Type(&Type::Any), input)
}

fn decode_at<'de, D: Deserializer<'de>>(place: Position<'_>, input: D) -> Result<Decoded, D::Error> {
    let mut walk = Walk::default();
    let object = Seed { place, walk: &mut walk }.deserialize(input)?;
    Ok(Decoded { object, strict: walk.strict, duplicates: walk.duplicates, wrong: walk.wrong })
}

/// The decoder's position in the object, and the errors so far.
#[derive(Debug, Default)]
struct Walk {
    /// The path in the format of strict errors: `spec.containers[0]`.
    path: String,
    /// The path in the format of type errors: only names of fields, and the struct of the last one.
    fields: Vec<String>,
    owner: Option<&'static str>,
    strict: Vec<String>,
    duplicates: Vec<String>,
    wrong: Option<Wrong>,
}

impl Walk {
    fn below<T>(&mut self, step: fmt::Arguments<'_>, run: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        self.path.push_str(&step.to_string());
        let result = run(self);
        self.path.truncate(length);
        result
    }

    fn at_key<T>(&mut self, key: &str, run: impl FnOnce(&mut Self) -> T) -> T {
        let dot = if self.path.is_empty() { "" } else { "." };
        self.below(format_args!("{dot}{key}"), run)
    }

    fn report(&mut self, what: &str, key: &str) {
        let dot = if self.path.is_empty() { "" } else { "." };
        let error = format!("{what} field \"{}{dot}{key}\"", self.path);
        if self.strict.len() < STRICT_ERRORS && !self.strict.contains(&error) {
            self.strict.push(error);
        }
    }

    fn report_duplicate(&mut self, key: &str) {
        self.report("duplicate", key);
        self.duplicates.push(key.to_owned());
    }

    fn wrong_type(&mut self, found: Value, expected: &Type) -> Value {
        let field = self.owner.map(|owner| (owner, self.fields.join(".")));
        self.wrong.get_or_insert(Wrong::Type { found, expected: expected.clone(), field });
        Value::Null
    }

    /// Records the error of a type with its own JSON decoder. Such an error ends Go's decoder, so it takes precedence
    /// over errors of other types.
    fn wrong_text(&mut self, text: String) -> Value {
        if !matches!(self.wrong, Some(Wrong::Text(_))) {
            self.wrong = Some(Wrong::Text(text));
        }
        Value::Null
    }
}

/// The type at a position: that of a field, or of the whole object.
#[derive(Clone, Copy)]
enum Position<'a> {
    Type(&'a Type),
    Struct(&'a Struct),
}

struct Seed<'a> {
    place: Position<'a>,
    walk: &'a mut Walk,
}

impl<'a> Seed<'a> {
    fn new(kind: &'a Type, walk: &'a mut Walk) -> Self {
        let place =
            if let Type::Struct(name) = kind { Position::Struct(Struct::named(name)) } else { Position::Type(kind) };
        Self { place, walk }
    }

    fn mismatch(self, found: Value) -> Value {
        match self.place {
            // A quantity accepts any JSON as its text.
            Position::Type(Type::Quantity) => self.walk.wrong_text(scalar::QUANTITY.to_owned()),
            Position::Type(expected) => self.walk.wrong_type(found, expected),
            Position::Struct(expected) => self.walk.wrong_type(found, &Type::Struct(expected.name)),
        }
    }

    fn number(self, number: Number) -> Value {
        let Position::Type(kind) = self.place else { return self.mismatch(number.into()) };
        match kind {
            Type::Any | Type::Float64 => number.into(),
            Type::Int64 if number.is_i64() => number.into(),
            Type::Int32 | Type::IntOrString if number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => {
                number.into()
            }
            Type::Quantity => number.to_string().into(),
            _ => self.mismatch(number.into()),
        }
    }

    fn text(self, text: String) -> Value {
        let Position::Type(kind) = self.place else { return self.mismatch(text.into()) };
        let checked = match kind {
            Type::String(_) | Type::Any | Type::IntOrString => Ok(text),
            Type::Bytes => {
                if let Err(error) = scalar::base64(&text) {
                    self.walk.wrong.get_or_insert(Wrong::Text(error));
                }
                Ok(text)
            }
            Type::Quantity => scalar::quantity(text.trim()).map(|()| text.trim().to_owned()),
            Type::Time => scalar::time(&text, false),
            Type::MicroTime => scalar::time(&text, true),
            _ => return self.mismatch(text.into()),
        };
        checked.map_or_else(|error| self.walk.wrong_text(error), Value::from)
    }

    fn list<'de, A: SeqAccess<'de>>(self, element: &Type, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let item = self
                .walk
                .below(format_args!("[{}]", list.len()), |walk| items.next_element_seed(Seed::new(element, walk)));
            match item? {
                Some(Value::Null) => list.push(zero(element)),
                Some(item) => list.push(item),
                None => return Ok(list.into()),
            }
        }
    }

    fn map<'de, A: MapAccess<'de>>(self, element: &Type, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                self.walk.report_duplicate(&key);
            }
            let value = self.walk.at_key(&key, |walk| entries.next_value_seed(Seed::new(element, walk)))?;
            map.insert(key, if value.is_null() { zero(element) } else { value });
        }
        Ok(map.into())
    }

    fn fields<'de, A: MapAccess<'de>>(self, kind: &Struct, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        let mut seen = BTreeSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            let field = kind.field(&key);
            if field.is_none() && !kind.open {
                self.walk.report("unknown", &key);
                entries.next_value::<IgnoredAny>()?;
                continue;
            }
            if !seen.insert(key.clone()) {
                self.walk.report_duplicate(&key);
            }
            let Some(field) = field else {
                let value = self.walk.at_key(&key, |walk| entries.next_value_seed(Seed::new(&Type::Any, walk)))?;
                map.insert(key, value);
                continue;
            };
            let depth = self.walk.fields.len();
            let owner = self.walk.owner;
            if !field.embedded.is_empty() {
                self.walk.fields.push(field.embedded.clone());
            }
            self.walk.fields.push(key.clone());
            self.walk.owner = Some(kind.short_name());
            let value = self.walk.at_key(&key, |walk| entries.next_value_seed(Seed::new(&field.kind, walk)))?;
            self.walk.fields.truncate(depth);
            self.walk.owner = owner;
            match map.get_mut(&key) {
                Some(before) if !value.is_null() => field.kind.absorb(before, value),
                _ if field.keeps(&value) => {
                    map.insert(key, value);
                }
                _ => {
                    map.remove(&key);
                }
            }
        }
        Ok(map.into())
    }
}

impl Field {
    /// Returns true if Go encodes the value: null means absence, and so does an empty value of an optional field.
    fn keeps(&self, value: &Value) -> bool {
        if !self.optional || self.pointer {
            return !value.is_null();
        }
        match value {
            Value::Null => false,
            Value::Bool(set) => *set,
            Value::Number(number) => number.as_f64() != Some(0.0),
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(map) => !map.is_empty() || !matches!(self.kind, Type::Map(..)),
        }
    }
}

impl Type {
    /// Replaces the previous value of a duplicate field. Go decodes a struct or a map into the existing one.
    fn absorb(&self, before: &mut Value, value: Value) {
        match (self, before, value) {
            (Self::Struct(name), Value::Object(before), Value::Object(value)) => {
                for (key, value) in value {
                    match (before.get_mut(&key), Struct::named(name).field(&key)) {
                        (Some(before), Some(field)) => field.kind.absorb(before, value),
                        _ => {
                            before.insert(key, value);
                        }
                    }
                }
            }
            (Self::Map(..), Value::Object(before), Value::Object(value)) => before.extend(value),
            (_, before, value) => *before = value,
        }
    }
}

/// Returns the value of null in a list or a map.
fn zero(kind: &Type) -> Value {
    match kind {
        Type::Bool => false.into(),
        Type::String(_) => "".into(),
        Type::Int32 | Type::Int64 | Type::Float64 | Type::IntOrString => 0.into(),
        Type::Quantity => "0".into(),
        Type::Struct(_) => Map::new().into(),
        Type::Bytes | Type::Time | Type::MicroTime | Type::Any | Type::List(..) | Type::Map(..) => Value::Null,
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Value, D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(match self.place {
            Position::Type(Type::Bool | Type::Any) => value.into(),
            _ => self.mismatch(value.into()),
        })
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(self.number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(self.number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, |number| self.number(number)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(self.text(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(self.text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        match self.place {
            Position::Type(Type::List(element, _)) => self.list(element, items),
            Position::Type(Type::Any) => self.list(&Type::Any, items),
            _ => {
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(self.mismatch(Value::Array(Vec::new())))
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        match self.place {
            Position::Struct(kind) => self.fields(kind, entries),
            Position::Type(Type::Map(element, _)) => self.map(element, entries),
            Position::Type(Type::Any) => self.map(&Type::Any, entries),
            Position::Type(_) => {
                while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(self.mismatch(Map::new().into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn decoded(name: &str, body: &str) -> Decoded {
        decode(Struct::named(name), &mut serde_json::Deserializer::from_str(body)).unwrap()
    }

    #[test]
    fn unknown_and_duplicate_fields_are_reported_in_order() {
        let body = r#"{"spec": {"contaners": [], "containers": [{"name": "a", "imag": {"x": 1}, "name": "b"}]},
            "metadata": {"labels": {"l": "1", "l": "2"}}, "spec": {}, "kin": 1, "kin": 2}"#;
        let found = decoded("core.Pod", body);
        let expected = [
            "unknown field \"spec.contaners\"",
            "unknown field \"spec.containers[0].imag\"",
            "duplicate field \"spec.containers[0].name\"",
            "duplicate field \"metadata.labels.l\"",
            "duplicate field \"spec\"",
            "unknown field \"kin\"",
        ];
        assert_eq!(found.strict, expected);
        assert_eq!(found.wrong, None);
    }

    #[test]
    fn a_value_of_another_type_is_reported_with_its_struct_and_path() {
        for (name, body, words) in [
            ("core.ConfigMap", r#"{"data": {"a": 1}}"#, "number into Go struct field ConfigMap.data of type string"),
            ("core.Pod", r#"{"spec": []}"#, "array into Go struct field Pod.spec of type v1.PodSpec"),
            (
                "core.Pod",
                r#"{"spec": {"containers": [{"ports": [{"containerPort": 1.5}]}]}}"#,
                "number 1.5 into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
            ),
            (
                "core.Pod",
                r#"{"spec": {"volumes": [{"hostPath": ""}]}}"#,
                "string into Go struct field Volume.spec.volumes.VolumeSource.hostPath of type v1.HostPathVolumeSource",
            ),
        ] {
            let wrong = decoded(name, body).wrong.unwrap();
            assert_eq!(wrong.in_json(), format!("json: cannot unmarshal {words}"));
        }
        assert!(
            decoded("core.Pod", r#"{"spec": {"containers": {}, "priority": ""}}"#)
                .wrong
                .unwrap()
                .in_merge()
                .contains("slice")
        );
        let quantity = r#"{"spec": {"hostname": 1, "overhead": {"cpu": "much"}}}"#;
        assert!(decoded("core.Pod", quantity).wrong.unwrap().in_json().starts_with("quantities must match"));
    }

    #[test]
    fn an_object_is_what_go_would_write_again() {
        let body = json!({
            "metadata": {"labels": {}, "annotations": {"a": null}, "creationTimestamp": null},
            "spec": {"hostNetwork": false, "automountServiceAccountToken": false, "hostname": "", "containers": [{
                "name": "", "resources": {"limits": {"cpu": 1}}, "command": [],
            }]},
            "status": {},
        });
        let object = decode(Struct::named("core.Pod"), &body).unwrap().object;
        let expected = json!({
            "metadata": {"annotations": {"a": ""}},
            "spec": {"automountServiceAccountToken": false, "containers": [{
                "name": "", "resources": {"limits": {"cpu": "1"}},
            }]},
            "status": {},
        });
        assert_eq!(object, expected);
    }
}
