//! An object to apply, parsed from a guest's text, whose size is checked first.
//! [`authorize`](podium_vocabulary::authz::authorize) decides whether it may be applied.

use std::{borrow::Cow, collections::BTreeSet, fmt};

use podium_vocabulary::{ObjectRef, Refused, syntax};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// The most JSON values in all objects of a run. A value of two bytes takes hundreds of bytes in memory.
pub(super) const VALUES: usize = 20_000;

/// Returns the number of values in a text, without keeping one. Checks that no object in it has two members of one
/// name: readers of JSON differ in which of the two they take, so the text would not have one meaning.
///
/// # Errors
/// [`Refused::Invalid`] when it is no JSON, has a name twice, or has more values than a run may have.
pub(super) fn count_values(text: &str) -> Result<usize, Refused> {
    let invalid = |error: serde_json::Error| Refused::Invalid(format!("object: {error}"));
    let mut count = 0;
    let mut parser = serde_json::Deserializer::from_str(text);
    Count(&mut count).deserialize(&mut parser).map_err(invalid)?;
    parser.end().map_err(invalid)?;
    Ok(count)
}

/// Parses an object to apply and the reference in it. The authorized value is the one that is sent.
pub(super) fn parse(text: &str) -> Result<(ObjectRef, Value), Refused> {
    let body = serde_json::from_str(text).map_err(|error| Refused::Invalid(format!("object: {error}")))?;
    Ok((ObjectRef::of_body(&body)?, body))
}

struct Count<'a>(&'a mut usize);

impl<'de> DeserializeSeed<'de> for Count<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        *self.0 += 1;
        if *self.0 > VALUES {
            return Err(D::Error::custom(format_args!("more than {VALUES} values")));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Count<'_> {
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
        while values.next_element_seed(Count(self.0))?.is_some() {}
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut names = BTreeSet::new();
        while let Some(name) = members.next_key_seed(Name)? {
            if names.contains(&name) {
                return Err(A::Error::custom(format_args!("{} is there twice", syntax::quoted(&name))));
            }
            names.insert(name);
            members.next_value_seed(Count(self.0))?;
        }
        Ok(())
    }
}

/// A member's name. `serde_json` takes those that it reserves as a command to parse text as JSON once more, which would
/// escape both the count and the limit of depth. Borrowed from the text where it has no escapes.
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
    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Cow<'de, str>, E> {
        not_reserved(Cow::Borrowed(name))
    }
    fn visit_str<E: Error>(self, name: &str) -> Result<Cow<'de, str>, E> {
        not_reserved(Cow::Owned(name.to_owned()))
    }
}

fn not_reserved<E: Error>(name: Cow<'_, str>) -> Result<Cow<'_, str>, E> {
    if name.starts_with("$serde_json::private::") {
        return Err(E::custom(format_args!("{name} is no name of a field")));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_without_a_valid_name_or_namespace_is_refused() {
        for body in [
            r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}"#,
            r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": null}}"#,
            r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": ["b"]}}"#,
            "[]",
        ] {
            assert!(matches!(parse(body), Err(Refused::Invalid(_))), "{body}");
        }
    }

    #[test]
    fn every_value_counts_once_and_too_many_are_refused() {
        assert_eq!(count_values(r#"{"a": [1, -2, 3.5, "x", null, true], "b": {}}"#), Ok(9));
        let zeros = |count| format!("[{}]", vec!["0"; count].join(","));
        assert_eq!(count_values(&zeros(VALUES - 1)), Ok(VALUES));
        assert!(matches!(count_values(&zeros(VALUES)), Err(Refused::Invalid(why)) if why.contains("more than 20000")));
        assert!(count_values("{} {}").is_err() && count_values(&"[".repeat(200)).is_err());
    }

    #[test]
    fn a_duplicate_name_in_an_object_is_refused_in_any_spelling() {
        let double = [
            r#"{"a": 1, "a": 1}"#,
            r#"{"a": 1, "\u0061": 1}"#,
            r#"{"\u0061": 1, "\u0061": 1}"#,
            r#"[{"b": {"a": null, "c": [], "a": {}}}]"#,
            r#"{"a": {"x": "y", "x": "y"}}"#,
        ];
        for text in double {
            let refused = count_values(text);
            assert!(matches!(&refused, Err(Refused::Invalid(why)) if why.contains("is there twice")), "{refused:?}");
        }
        for text in [r#"{"a": {"a": [{"a": 1}, {"a": -1.5}]}, "A": true, "aa": "a"}"#, "[]", "1"] {
            assert!(count_values(text).is_ok(), "{text}");
        }
        for text in ["", "{}{}", "{1: 2}", "{\"a\"}", &"[".repeat(200)] {
            assert!(matches!(count_values(text), Err(Refused::Invalid(_))), "{text}");
        }
    }

    #[test]
    fn another_reader_than_that_of_json_learns_what_is_expected() {
        use serde::de::value::{BytesDeserializer, Error, I64Deserializer};

        let error = Count(&mut 0).deserialize(BytesDeserializer::<Error>::new(b"a")).unwrap_err();
        assert!(error.to_string().contains("expected JSON"), "{error}");
        let error = Name.deserialize(I64Deserializer::<Error>::new(1)).unwrap_err();
        assert!(error.to_string().contains("expected a name"), "{error}");
    }

    #[test]
    fn text_that_would_be_parsed_as_json_once_more_is_refused() {
        let hidden = r#"{"data": {"$serde_json::private::RawValue": "[0,0,0,0]"}}"#;
        let parsed: Value = serde_json::from_str(hidden).unwrap();
        assert!(parsed["data"].is_array(), "or else the check can go: {parsed}");
        assert!(matches!(count_values(hidden), Err(Refused::Invalid(_))));
    }
}
