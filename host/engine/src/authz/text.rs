//! The text of an object to apply, before it is parsed into a value that no longer shows what the text had.

use std::{borrow::Cow, collections::HashSet, fmt};

use podium_pods::model::{Refused, syntax};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Checks that no object of a JSON text has two members of one name. Readers differ in which of the two they take, so
/// the text would not have one meaning.
///
/// # Errors
/// [`Refused::Invalid`] on a name that is there twice, and on text that is not JSON.
pub fn unique_names(text: &str) -> Result<(), Refused> {
    let invalid = |error: serde_json::Error| Refused::Invalid(format!("object: {error}"));
    let mut parser = serde_json::Deserializer::from_str(text);
    Unique.deserialize(&mut parser).map_err(invalid)?;
    parser.end().map_err(invalid)
}

struct Unique;

impl<'de> DeserializeSeed<'de> for Unique {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Unique {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        while values.next_element_seed(Self)?.is_some() {}
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = members.next_key_seed(Name)? {
            if names.contains(&name) {
                return Err(A::Error::custom(format_args!("{} is there twice", syntax::quoted(&name))));
            }
            names.insert(name);
            members.next_value_seed(Self)?;
        }
        Ok(())
    }
}

/// Borrowed from the text where it has no escapes.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }
    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(name))
    }
    fn visit_str<E>(self, name: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_twice_in_one_object_is_refused_however_it_is_written() {
        let double = [
            r#"{"a": 1, "a": 1}"#,
            r#"{"a": 1, "\u0061": 1}"#,
            r#"{"\u0061": 1, "\u0061": 1}"#,
            r#"[{"b": {"a": null, "c": [], "a": {}}}]"#,
            r#"{"a": {"x": "y", "x": "y"}}"#,
        ];
        for text in double {
            let refused = unique_names(text);
            assert!(matches!(&refused, Err(Refused::Invalid(why)) if why.contains("is there twice")), "{refused:?}");
        }
        for text in [r#"{"a": {"a": [{"a": 1}, {"a": -1.5}]}, "A": true, "aa": "a"}"#, "[]", "1"] {
            assert_eq!(unique_names(text), Ok(()), "{text}");
        }
        for text in ["", "{}{}", "{1: 2}", "{\"a\"}", &"[".repeat(200)] {
            assert!(matches!(unique_names(text), Err(Refused::Invalid(_))), "{text}");
        }
    }
    #[test]
    fn another_reader_than_that_of_json_learns_what_is_expected() {
        use serde::de::value::{BytesDeserializer, Error, I64Deserializer};

        let error = Unique.deserialize(BytesDeserializer::<Error>::new(b"a")).unwrap_err();
        assert!(error.to_string().contains("expected JSON"), "{error}");
        let error = Name.deserialize(I64Deserializer::<Error>::new(1)).unwrap_err();
        assert!(error.to_string().contains("expected a name"), "{error}");
    }
}
