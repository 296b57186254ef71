//! JSON that keeps the order of its keys, as an API server writes it, and its managedFields.
//!
//! Only supports the generator: it builds, parses and renders, without lookups by path.

use std::fmt::{self, Write};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    /// A number as it is written, or a placeholder.
    Number(String),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

pub(super) fn text(text: impl Into<String>) -> Json {
    Json::Text(text.into())
}

pub(super) fn number(number: i64) -> Json {
    Json::Number(number.to_string())
}

pub(super) fn list(items: impl IntoIterator<Item = Json>) -> Json {
    Json::List(items.into_iter().collect())
}

pub(super) fn object<K: Into<String>>(fields: impl IntoIterator<Item = (K, Json)>) -> Json {
    Json::Object(fields.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

/// Returns an object whose values are all strings, such as labels, which the API server sorts.
pub(super) fn sorted_texts<K: Into<String>, V: Into<String>>(fields: impl IntoIterator<Item = (K, V)>) -> Json {
    let mut fields: Vec<_> = fields.into_iter().map(|(key, value)| (key.into(), text(value))).collect();
    fields.sort_by(|(a, _), (b, _)| a.cmp(b));
    Json::Object(fields)
}

impl Json {
    pub(super) fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Self::Object(fields) => fields.iter().find(|(known, _)| known == key).map(|(_, value)| value),
            _ => None,
        }
    }

    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut Json> {
        match self {
            Self::Object(fields) => fields.iter_mut().find(|(known, _)| known == key).map(|(_, value)| value),
            _ => None,
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn items_mut(&mut self) -> &mut [Json] {
        match self {
            Self::List(items) => items,
            _ => &mut [],
        }
    }

    /// Appends a field, or replaces the one of that name.
    pub(super) fn set(&mut self, key: &str, value: Json) {
        if let Some(old) = self.get_mut(key) {
            *old = value;
        } else if let Self::Object(fields) = self {
            fields.push((key.to_owned(), value));
        }
    }

    /// Appends to a list.
    pub(super) fn push(&mut self, item: Json) {
        if let Self::List(items) = self {
            items.push(item);
        }
    }

    /// Inserts a field in the order of keys, as the API server sorts labels and annotations.
    pub(super) fn set_sorted(&mut self, key: &str, value: Json) {
        self.set(key, value);
        if let Self::Object(fields) = self {
            fields.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
    }

    /// Sorts the fields of an object into this order. Fields that are not in it come last.
    pub(super) fn sort_by(&mut self, order: &[&str]) {
        if let Self::Object(fields) = self {
            fields.sort_by_key(|(key, _)| order.iter().position(|known| known == key).unwrap_or(order.len()));
        }
    }

    pub(super) fn remove(&mut self, key: &str) {
        if let Self::Object(fields) = self {
            fields.retain(|(known, _)| known != key);
        }
    }

    /// Changes every string, also below this value. Keys are kept.
    pub(super) fn each_text(&mut self, change: &mut impl FnMut(&mut String)) {
        match self {
            Self::Text(text) => change(text),
            Self::List(items) => items.iter_mut().for_each(|item| item.each_text(change)),
            Self::Object(fields) => fields.iter_mut().for_each(|(_, value)| value.each_text(change)),
            Self::Null | Self::Bool(_) | Self::Number(_) => {}
        }
    }

    /// Renders compact JSON as Go does: `<`, `>` and `&` are escaped too.
    pub(super) fn render(&self, into: &mut String) {
        match self {
            Self::Null => into.push_str("null"),
            Self::Bool(true) => into.push_str("true"),
            Self::Bool(false) => into.push_str("false"),
            Self::Number(number) => into.push_str(number),
            Self::Text(text) => render_text(text, into),
            Self::List(items) => {
                into.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        into.push(',');
                    }
                    item.render(into);
                }
                into.push(']');
            }
            Self::Object(fields) => {
                into.push('{');
                for (at, (key, value)) in fields.iter().enumerate() {
                    if at > 0 {
                        into.push(',');
                    }
                    render_text(key, into);
                    into.push(':');
                    value.render(into);
                }
                into.push('}');
            }
        }
    }

    /// Returns the FieldsV1 of a manager that wrote all of this. `name` is the name of this field.
    pub(super) fn owned(&self, name: &str) -> Json {
        let mut fields: Vec<(String, Json)> = match self {
            Self::Object(fields) if !ATOMIC.contains(&name) => {
                fields.iter().map(|(key, value)| (format!("f:{key}"), value.owned(key))).collect()
            }
            Self::List(items) => match KEYS.iter().find(|(list, _)| *list == name) {
                Some((_, keys)) => items.iter().map(|item| (element(item, keys), item.owned_element(name))).collect(),
                None => Vec::new(),
            },
            _ => Vec::new(),
        };
        fields.sort_by(|(a, _), (b, _)| a.cmp(b));
        if !fields.is_empty() && !BARE.contains(&name) {
            fields.insert(0, (".".to_owned(), Self::Object(Vec::new())));
        }
        Self::Object(fields)
    }

    fn owned_element(&self, list: &str) -> Json {
        if list == "ownerReferences" {
            return Self::Object(Vec::new());
        }
        match self.owned("element") {
            Self::Object(fields) => Self::Object(fields),
            other => other,
        }
    }
}

/// Lists whose elements are owned separately, with the keys that identify an element.
const KEYS: &[(&str, &[&str])] = &[
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("env", &["name"]),
    ("volumes", &["name"]),
    ("volumeMounts", &["mountPath"]),
    ("ports", &["containerPort", "protocol"]),
    ("ownerReferences", &["uid"]),
    ("conditions", &["type"]),
    ("podIPs", &["ip"]),
    ("hostIPs", &["ip"]),
    ("imagePullSecrets", &["name"]),
    ("topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
];
/// Objects that managedFields list without their fields (`x-kubernetes-map-type: atomic`).
const ATOMIC: &[&str] = &[
    "secretKeyRef",
    "configMapKeyRef",
    "fieldRef",
    "resourceFieldRef",
    "labelSelector",
    "nodeSelector",
    "requiredDuringSchedulingIgnoredDuringExecution",
];
/// Fields that managedFields list without a ".": they existed before, or are not maps.
const BARE: &[&str] = &["metadata", "spec", "status", "containers", "conditions"];

fn element(item: &Json, keys: &[&str]) -> String {
    let fields = keys.iter().filter_map(|key| Some(((*key).to_owned(), item.get(key)?.clone())));
    let mut name = "k:".to_owned();
    Json::Object(fields.collect()).render(&mut name);
    name
}

fn render_text(text: &str, into: &mut String) {
    into.push('"');
    for character in text.chars() {
        match character {
            '"' => into.push_str("\\\""),
            '\\' => into.push_str("\\\\"),
            '\n' => into.push_str("\\n"),
            '\r' => into.push_str("\\r"),
            '\t' => into.push_str("\\t"),
            '<' | '>' | '&' | '\u{0}'..='\u{1f}' | '\u{2028}' | '\u{2029}' => {
                // Writing to a String does not fail.
                let _ = write!(into, "\\u{:04x}", u32::from(character));
            }
            character => into.push(character),
        }
    }
    into.push('"');
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(InOrder)
    }
}

struct InOrder;

impl<'de> Visitor<'de> for InOrder {
    type Value = Json;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(number(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.to_string()))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Number(value.to_string()))
    }
    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(text(value))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Json::List(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Json, A::Error> {
        let mut object = Vec::new();
        while let Some(field) = fields.next_entry()? {
            object.push(field);
        }
        Ok(Json::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(json: &Json) -> String {
        let mut text = String::new();
        json.render(&mut text);
        text
    }

    #[test]
    fn keys_keep_their_order_and_texts_are_escaped_as_go_does() {
        let json = r#"{"b":[1,-2,true,null],"a":"x\u003cy\"z\\\n"}"#;
        assert_eq!(rendered(&serde_json::from_str(json).unwrap()), json);
    }

    #[test]
    fn owned_fields_name_elements_by_their_keys() {
        let spec = r#"{"containers":[{"name":"web","env":[{"name":"A","value":"1"}],"args":["x"],"resources":{},
            "ports":[{"containerPort":80,"protocol":"TCP"}]}],"nodeSelector":{"a":"b"}}"#;
        let spec: Json = serde_json::from_str(spec).unwrap();
        assert_eq!(
            rendered(&spec.owned("spec")),
            concat!(
                r#"{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:args":{},"f:env":{".":{},"k:{\"name\":\"A\"}":"#,
                r#"{".":{},"f:name":{},"f:value":{}}},"f:name":{},"f:ports":{".":{},"#,
                r#""k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},"#,
                r#""f:resources":{}}},"f:nodeSelector":{}}"#
            )
        );
    }
}
