//! A value that does not fit its Go type, in the messages of the decoder that found it.

use serde_json::Value;

use super::Type;

/// The first value that cannot be decoded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Wrong {
    /// A value of another type.
    Type {
        /// The value; a list or an object is empty here.
        found: Value,
        expected: Type,
        /// The struct and the path of the field; `None` for the object itself.
        field: Option<(&'static str, String)>,
    },
    /// The message of a type with its own JSON decoder.
    Text(String),
}

impl Wrong {
    /// Formats the message of the decoder of a JSON body.
    pub(crate) fn in_json(&self) -> String {
        let Self::Type { found, expected, field } = self else { return self.text() };
        let found = match found {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "bool".into(),
            Value::Number(number) if matches!(expected, Type::Int32 | Type::Int64 | Type::IntOrString) => {
                format!("number {number}")
            }
            Value::Number(_) => "number".into(),
            Value::String(_) => "string".into(),
            Value::Array(_) => "array".into(),
            Value::Object(_) => "object".into(),
        };
        // Types with their own JSON decoders decode into a simpler type.
        let expected = match expected {
            Type::Time | Type::MicroTime => "string".to_owned(),
            Type::IntOrString => "int32".into(),
            other => other.shown(),
        };
        match field {
            Some((owner, field)) => {
                format!("json: cannot unmarshal {found} into Go struct field {owner}.{field} of type {expected}")
            }
            None => format!("json: cannot unmarshal {found} into Go value of type {expected}"),
        }
    }

    /// Formats the message of the conversion after a strategic merge.
    pub(crate) fn in_merge(&self) -> String {
        let Self::Type { found, expected, .. } = self else { return self.text() };
        let kind = match found {
            Value::Null => "invalid",
            Value::Array(_) => "slice",
            Value::Bool(_) => "bool",
            Value::Number(number) if number.is_f64() => "float64",
            Value::Number(_) => "int64",
            Value::String(_) => "string",
            Value::Object(_) => "map",
        };
        match expected {
            Type::Struct(_) => format!("cannot restore struct from: {kind}"),
            Type::Map(..) => format!("cannot restore map from {kind}"),
            Type::List(..) | Type::Bytes => format!("cannot restore slice from {kind}"),
            Type::String(_) if kind == "int64" => format!("cannot convert int64 to {}", expected.shown()),
            Type::Int32 | Type::Int64 if kind == "float64" => format!("cannot convert float64 to {}", expected.shown()),
            Type::String(_) => "unrecognized type: string".into(),
            Type::Bool | Type::Int32 | Type::Int64 | Type::Float64 => {
                format!("unrecognized type: {}", expected.shown())
            }
            Type::Time | Type::MicroTime | Type::IntOrString | Type::Quantity | Type::Any => self.in_json(),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Type { .. } => String::new(),
        }
    }
}
