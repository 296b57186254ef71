//! The rules for the body of an applied object that hold with any grants.
//!
//! It does not look at grants: it returns the keys and finalizers that need one. Nor does it know kinds: the API server
//! has their schemas.
//!
//! Errors are complete texts.

use serde_json::{Map, Number, Value};

use crate::syntax;

/// The fields of `metadata` that a plugin may set. All others are the API server's or the host's: with them a body
/// could take over another incarnation, tie itself to a foreign owner, claim fields in another manager's name, or get
/// a name that was not authorised. With finalizers it would stay, and its namespace with it, after the plugin was
/// deleted: the host removes those of Pods only.
const METADATA: [&str; 4] = ["annotations", "labels", "name", "namespace"];

const FINALIZERS: &str = "metadata must not have \"finalizers\": the host removes those of a deleted plugin from Pods \
                          only, so the object could never be deleted; leave it out, and add a finalizer to the Pod";

/// The most levels of objects and arrays; the host's JSON parser stops at 128.
pub const MAX_DEPTH: usize = 100;

/// Names of members that are directives in strategic merge patches, either exactly or followed by `/` and a field.
/// Server-side apply treats them as fields.
const DIRECTIVES: [&str; 4] = ["$patch", "$retainKeys", "$setElementOrder", "$deleteFromPrimitiveList"];

/// The parts of a valid body that need a grant, or that no plugin may write.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Carried<'a> {
    /// The keys of the object's labels, and of those in templates of other objects.
    pub labels: Vec<&'a str>,
    /// The keys of the object's annotations, and of those in templates.
    pub annotations: Vec<&'a str>,
    /// The finalizers in templates. The object itself has none.
    pub finalizers: Vec<&'a str>,
}

/// Checks the body of an object and returns what it carries. Names are checked apart, see [`syntax`].
///
/// # Errors
/// Returns an error for a body that no plugin may apply. The text names the field.
pub fn check(body: &Value) -> Result<Carried<'_>, String> {
    let fields = body.as_object().ok_or("the object must be a JSON object")?;
    let metadata = fields.get("metadata").and_then(Value::as_object).ok_or("the object must have metadata")?;
    if let Some(field) = metadata.keys().find(|field| !METADATA.contains(&field.as_str())) {
        if field == "finalizers" {
            return Err(FINALIZERS.to_owned());
        }
        let field = syntax::quoted(field);
        return Err(format!("metadata must not have {field}: the host or the API server sets it; leave it out"));
    }
    // The grant of a kind is one of the object itself, and not of its subresource.
    if fields.contains_key("status") {
        return Err("the object must not have a status: its controller writes it; leave it out".to_owned());
    }
    let mut carried = Carried::default();
    walk(body, 1, &mut carried)?;
    Ok(carried)
}

fn add_keys<'a>(
    metadata: &'a Map<String, Value>,
    field: &str,
    what: &str,
    value: fn(&str) -> Result<(), String>,
    keys: &mut Vec<&'a str>,
) -> Result<(), String> {
    let members = match metadata.get(field) {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(members)) => members,
        Some(_) => return Err(format!("metadata.{field} must be a JSON object")),
    };
    for (key, text) in members {
        valid(what, key, syntax::qualified_name)?;
        value(text.as_str().ok_or_else(|| format!("metadata.{field}: the value of {key} must be text"))?)?;
    }
    keys.extend(members.keys().map(String::as_str));
    Ok(())
}

fn label_value(value: &str) -> Result<(), String> {
    valid("label value", value, syntax::label_value)
}

fn annotation_value(value: &str) -> Result<(), String> {
    let bytes = value.len();
    let most = syntax::MAX_ANNOTATION_VALUE_BYTES;
    if bytes <= most {
        return Ok(());
    }
    Err(format!("annotation value is {bytes} bytes long, at most {most} are allowed"))
}

/// Checks that a text can be a finalizer.
///
/// # Errors
/// Returns an error for any other text. The API server accepts names without a domain only for a few of its own, such
/// as `orphan`.
pub fn finalizer(name: &str) -> Result<(), String> {
    valid("finalizer", name, syntax::qualified_name)?;
    if name.contains('/') {
        return Ok(());
    }
    Err(format!("finalizer {} must have a domain before its name", syntax::quoted(name)))
}

fn valid(what: &str, value: &str, check: fn(&str) -> Result<(), &'static str>) -> Result<(), String> {
    check(value).map_err(|rule| format!("{what} {} {rule}", syntax::quoted(value)))
}

/// `depth` is that of `value`, if it is an object or an array.
fn walk<'a>(value: &'a Value, depth: usize, carried: &mut Carried<'a>) -> Result<(), String> {
    if depth > MAX_DEPTH && (value.is_object() || value.is_array()) {
        return Err(format!("the object has more than {MAX_DEPTH} levels"));
    }
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
        Value::Number(number) => in_range(number),
        Value::Array(values) => values.iter().try_for_each(|value| walk(value, depth + 1, carried)),
        Value::Object(members) => members.iter().try_for_each(|(name, value)| {
            if name.split('/').next().is_some_and(|command| DIRECTIVES.contains(&command)) {
                return Err(format!("{} is a directive of a patch and no field", syntax::quoted(name)));
            }
            // Also that of a template, in a field of any name and kind: its objects have what it carries.
            if let ("metadata", Value::Object(metadata)) = (name.as_str(), value) {
                add_keys(metadata, "labels", "label key", label_value, &mut carried.labels)?;
                add_keys(metadata, "annotations", "annotation key", annotation_value, &mut carried.annotations)?;
                add_finalizers(metadata, &mut carried.finalizers)?;
            }
            walk(value, depth + 1, carried)
        }),
    }
}

fn add_finalizers<'a>(metadata: &'a Map<String, Value>, finalizers: &mut Vec<&'a str>) -> Result<(), String> {
    let names = match metadata.get("finalizers") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(names)) => names,
        Some(_) => return Err("metadata.finalizers must be a JSON array".to_owned()),
    };
    for name in names {
        let name = name.as_str().ok_or("a finalizer must be text")?;
        finalizer(name)?;
        finalizers.push(name);
    }
    Ok(())
}

/// The API server reads an integer beyond 64 bits with a sign as a float: the stored number would not be the authorised
/// one, and would always differ from the body.
fn in_range(number: &Number) -> Result<(), String> {
    const BOUND: f64 = 9_223_372_036_854_775_808.0;
    if number.is_i64() || number.is_f64() && number.as_f64().is_some_and(|float| float.abs() < BOUND) {
        return Ok(());
    }
    Err(format!("the number {number} is out of the range of 64 bits with a sign"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(field: &str, value: Value) -> Value {
        let mut body = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
        body[field] = value;
        body
    }

    fn error(body: &Value) -> String {
        check(body).unwrap_err()
    }

    #[test]
    fn a_plugin_sets_four_fields_of_the_metadata_and_no_status() {
        let metadata = json!({
            "name": "a", "namespace": "b",
            "labels": { "a": "", "x.example/y": "z" }, "annotations": { "n": "any text" },
        });
        let body = with("metadata", metadata.clone());
        let carried = check(&body).unwrap();
        assert_eq!((carried.labels, carried.annotations), (vec!["a", "x.example/y"], vec!["n"]));
        for field in [
            "clusterName",
            "creationTimestamp",
            "deletionGracePeriodSeconds",
            "deletionTimestamp",
            "finalizers",
            "generateName",
            "generation",
            "managedFields",
            "ownerReferences",
            "resourceVersion",
            "selfLink",
            "uid",
            "Labels",
            "",
            "x\n",
        ] {
            let mut metadata = metadata.clone();
            metadata[field] = Value::Null;
            assert!(error(&with("metadata", metadata)).contains(&syntax::quoted(field)), "{field}");
        }
        assert!(error(&with("status", Value::Null)).contains("status"));
        for (body, why) in [
            (json!([]), "a JSON object"),
            (json!({}), "have metadata"),
            (with("metadata", Value::Null), "have metadata"),
        ] {
            assert!(error(&body).contains(why), "{body}");
        }
    }

    /// The host removes the finalizers of a deleted plugin from Pods, and a deletion of the object wakes no plugin.
    #[test]
    fn the_object_itself_has_no_finalizers_whatever_they_are() {
        for finalizers in [json!(["shop.example/hold"]), json!([]), json!(null), json!("x")] {
            let error = error(&with("metadata", json!({ "name": "a", "finalizers": finalizers })));
            assert!(error.contains("\"finalizers\"") && error.contains("add a finalizer to the Pod"), "{error}");
        }
        let template = json!({ "template": { "metadata": { "finalizers": ["shop.example/hold"] } } });
        assert_eq!(check(&with("spec", template)).unwrap().finalizers, ["shop.example/hold"]);
    }

    #[test]
    fn keys_values_and_finalizers_follow_the_rules_of_kubernetes() {
        let label = |length| "a".repeat(length);
        let annotation = |length| " ".repeat(length);
        for metadata in [
            json!({ "labels": null, "annotations": null }),
            json!({ "labels": {}, "annotations": {} }),
            json!({ "labels": { "a": label(63) }, "annotations": { "a": annotation(64 << 10) } }),
        ] {
            assert_eq!(check(&with("metadata", metadata.clone())).err(), None, "{metadata}");
        }
        for (metadata, why) in [
            (json!({ "labels": { "a": label(64) } }), "63 characters"),
            (json!({ "labels": { "a": "b c" } }), "label value"),
            (json!({ "labels": { "a": null } }), "must be text"),
            (json!({ "labels": { "a": 1 } }), "must be text"),
            (json!({ "labels": { "A.io/a": "" } }), "label key"),
            (json!({ "labels": [] }), "must be a JSON object"),
            (json!({ "annotations": { "a": annotation((64 << 10) + 1) } }), "65537 bytes"),
            (json!({ "annotations": { "a": {} } }), "must be text"),
            (json!({ "annotations": { "a b": "" } }), "annotation key"),
            (json!({ "annotations": "a" }), "must be a JSON object"),
        ] {
            assert!(error(&with("metadata", metadata.clone())).contains(why), "{metadata}");
        }
        let template = |finalizers: Value| with("spec", json!({ "metadata": { "finalizers": finalizers } }));
        for none in [json!(null), json!([])] {
            assert_eq!(check(&template(none)), Ok(Carried::default()));
        }
        for (finalizers, why) in [
            (json!("shop.example/a"), "must be a JSON array"),
            (json!([1]), "must be text"),
            (json!(["orphan"]), "a domain"),
            (json!(["shop.example/"]), "finalizer"),
        ] {
            assert!(error(&template(finalizers.clone())).contains(why), "{finalizers}");
        }
    }

    #[test]
    fn keys_of_templates_are_found_at_any_depth() {
        let template = |name: &str| {
            json!({ "metadata": {
                "labels": { format!("l-{name}"): "a" },
                "annotations": { format!("a-{name}"): "a" },
                "finalizers": [format!("shop.example/{name}")],
            } })
        };
        let body = with(
            "spec",
            json!({
                "jobTemplate": { "metadata": template("job")["metadata"], "spec": { "template": template("pod") } },
                "volumeClaimTemplates": [template("claim"), { "metadata": "x" }, { "metadata": [] }],
            }),
        );
        let carried = check(&body).unwrap();
        assert_eq!(carried.labels, ["l-job", "l-pod", "l-claim"]);
        assert_eq!(carried.annotations, ["a-job", "a-pod", "a-claim"]);
        assert_eq!(carried.finalizers, ["shop.example/job", "shop.example/pod", "shop.example/claim"]);
        for (metadata, why) in [
            (json!({ "labels": { "app": "b c" } }), "label value"),
            (json!({ "labels": [] }), "must be a JSON object"),
            (json!({ "annotations": { "a b": "" } }), "annotation key"),
            (json!({ "finalizers": ["orphan"] }), "a domain"),
        ] {
            let body = with("spec", json!({ "template": { "metadata": metadata } }));
            assert!(error(&body).contains(why), "{metadata}");
        }
    }

    #[test]
    fn a_directive_of_a_patch_is_refused_wherever_it_stands() {
        let keys =
            ["$patch", "$retainKeys", "$setElementOrder/ports", "$setElementOrder", "$deleteFromPrimitiveList/a"];
        for key in keys {
            for body in [with(key, "delete".into()), with("data", json!([[{ "a": { key: "delete" } }]]))] {
                assert!(error(&body).contains("directive"), "{body}");
            }
        }
        for key in ["$ref", "patch", "a/$patch", "$patches"] {
            assert!(check(&with("data", json!({ key: "$patch" }))).is_ok(), "{key}");
        }
    }

    #[test]
    fn nesting_and_numbers_have_bounds() {
        let nested = |levels: usize| (1..levels).fold(json!({}), |value, _| json!([value]));
        assert!(check(&with("data", nested(MAX_DEPTH - 1))).is_ok());
        assert!(error(&with("data", nested(MAX_DEPTH))).contains("100 levels"));
        let scalar = (2..MAX_DEPTH).fold(json!([1]), |value, _| json!({ "a": value }));
        assert!(check(&with("data", scalar)).is_ok(), "a number is no level");
        for fine in ["0", "-0.5", "9223372036854775807", "-9223372036854775808", "1e18", "9223372036854774000.0"] {
            assert!(check(&with("data", serde_json::from_str(fine).unwrap())).is_ok(), "{fine}");
        }
        for far in ["9223372036854775808", "18446744073709551615", "18446744073709551616", "1e19", "-1e300"] {
            assert!(
                error(&with("data", json!([serde_json::from_str::<Value>(far).unwrap()]))).contains("range"),
                "{far}"
            );
        }
    }
}
