//! Texts with a rule: names, keys and patterns of keys. A type for each, which only a valid text can become.
//!
//! A rule is in the schema as a `format` of that name, which the collecting pass looks up in [`RULES`], and as a
//! regular expression for editors. The expression is never stricter than the rule and is looser where it says so.

use std::{borrow::Borrow, ops::Deref};

use podium_wire::{
    image,
    syntax::{self, quoted},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The syntax of a text.
pub(crate) struct Rule {
    /// The schema's `format`.
    pub(crate) format: &'static str,
    /// Returns the message for a text that is not valid.
    check: fn(&str) -> Result<(), String>,
}

impl Rule {
    /// # Errors
    /// The mistake in the text, and the text.
    pub(crate) fn check(&self, text: &str) -> Result<(), String> {
        (self.check)(text).map_err(|message| if text.is_empty() { "must not be empty".to_owned() } else { message })
    }
}

/// The rule that a schema of a text has.
pub(crate) fn format(schema: &Value) -> Option<&'static Rule> {
    let format = schema.get("format")?.as_str()?;
    RULES.iter().find(|rule| rule.format == format)
}

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident: $format:literal, $check:expr, $schema:expr;)*) => {
        /// Every rule, by its format.
        pub(crate) const RULES: &[Rule] = &[$(Rule { format: $format, check: $check }),*];

        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
            #[serde(try_from = "String", into = "String")]
            pub struct $name(String);

            impl TryFrom<String> for $name {
                type Error = String;

                fn try_from(text: String) -> Result<Self, String> {
                    Rule { format: $format, check: $check }.check(&text).map(|()| Self(text))
                }
            }

            impl From<$name> for String {
                fn from(text: $name) -> Self {
                    text.0
                }
            }

            impl Borrow<str> for $name {
                fn borrow(&self) -> &str {
                    &self.0
                }
            }

            impl Deref for $name {
                type Target = str;

                fn deref(&self) -> &str {
                    &self.0
                }
            }

            impl JsonSchema for $name {
                fn inline_schema() -> bool {
                    true
                }
                fn schema_name() -> std::borrow::Cow<'static, str> {
                    stringify!($name).into()
                }
                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    let mut schema: Schema = $schema;
                    schema.insert("type".to_owned(), "string".into());
                    schema.insert("format".to_owned(), $format.into());
                    schema
                }
            }
        )*
    };
}

texts! {
    /// A DNS-1123 label, such as the name of a namespace.
    DnsLabel: "dns-label", |text| quote(text, syntax::dns_label),
        json_schema!({ "pattern": format!("^{WORD}$"), "maxLength": 63 });
    /// A DNS-1123 subdomain, such as the name of a plugin or a ServiceAccount.
    DnsSubdomain: "dns-subdomain", |text| quote(text, syntax::dns_subdomain),
        json_schema!({ "pattern": format!("^{DOMAIN}$"), "maxLength": 253 });
    /// The key of a label, with or without a domain.
    QualifiedName: "qualified-name", |text| quote(text, syntax::qualified_name),
        json_schema!({ "pattern": format!("^{KEY}$"), "maxLength": 317 });
    /// The value of a label, which may be empty.
    LabelValue: "label-value", |text| quote(text, syntax::label_value),
        json_schema!({ "pattern": format!("^({NAME})?$"), "maxLength": 63 });
    /// `version` or `group/version`.
    ApiVersion: "api-version", |text| quote(text, syntax::api_version),
        json_schema!({ "pattern": format!("^({DOMAIN}/)?{WORD}$"), "maxLength": 317 });
    /// The kind of an object other than a Pod.
    ObjectKind: "object-kind", object_kind,
        json_schema!({ "pattern": "^[A-Z][A-Za-z0-9]*$", "maxLength": 128, "not": refused(NO_PODS, "const", "Pod") });
    /// The plural of a kind other than Pod.
    ObjectResource: "object-resource", object_resource,
        json_schema!({ "pattern": format!("^{WORD}$"), "maxLength": 63, "not": refused(NO_PODS, "const", "pods") });
    /// Keys of labels.
    LabelPattern: "label-pattern", pattern, keys([reserved()]);
    /// Keys of annotations.
    AnnotationPattern: "annotation-pattern", annotation,
        keys([reserved(), refused(OF_KUBECTL, "pattern", "^(kubectl\\.kubernetes\\.io/last-applied-configuration$|\
            podium\\.dev/applied-)")]);
    /// Finalizers.
    FinalizerPattern: "finalizer-pattern", finalizer,
        keys([
            refused(OF_OTHERS, "pattern", r"^(([^/]*\.)?(kubernetes|k8s)\.io|podium\.dev)/"),
            refused(NO_DOMAIN, "pattern", "^[^/]*$"),
        ]);
    /// Types of conditions.
    ConditionPattern: "condition-pattern", condition,
        keys([reserved(), refused(OF_KUBERNETES, "enum", BUILTIN_CONDITIONS.as_slice())]);
    /// The path of a field of an object.
    FieldPath: "field-path", |text| quote(text, field_path),
        json_schema!({ "pattern": r"^[A-Za-z][A-Za-z0-9]*(\.[A-Za-z][A-Za-z0-9]*)*$", "maxLength": 253 });
    /// The kind of an input, or of objects that a plugin reads.
    InputKind: "input-kind", input_kind,
        json_schema!({ "pattern": "^[A-Z][A-Za-z0-9]*$", "maxLength": 128,
            "not": refused(NO_INPUT, "enum", ["Pod", "Secret"].as_slice()) });
    /// The plural of such a kind.
    InputResource: "input-resource", input_resource,
        json_schema!({ "pattern": format!("^{WORD}$"), "maxLength": 63,
            "not": refused(NO_INPUT, "enum", ["pods", "secrets"].as_slice()) });
    /// A SHA-256 in hexadecimal digits.
    Sha256: "sha256", |text| quote(text, sha256), json_schema!({ "pattern": "^[0-9a-f]{64}$" });
    /// A key of a ConfigMap.
    ConfigMapKey: "config-map-key", |text| quote(text, config_map_key),
        json_schema!({ "pattern": "^[-._A-Za-z0-9]+$", "maxLength": 253 });
    /// An image of a registry, with a tag or a digest.
    Image: "image", |text| quote(text, |text| image::image(text).map(drop)),
        json_schema!({
            // A host without a dot has a port.
            "pattern": format!(
                "^((localhost|{IP}|{LABEL}(\\.{LABEL})+)({PORT})?|{LABEL}{PORT})\
                /[a-z0-9][-a-z0-9._/]*({TAG}(@{DIGEST})?|@{DIGEST})$"
            ),
            "maxLength": image::MAX_IMAGE_BYTES,
        });
    /// The host of a registry, with an optional port.
    RegistryHost: "registry-host", |text| quote(text, |text| image::registry_host(text).map(drop)),
        json_schema!({
            "pattern": format!(r"^({IP}|{LABEL}(\.{LABEL})*)({PORT})?$"),
            "maxLength": image::MAX_HOST_BYTES,
        });
    /// A public key in PEM. Whether it is one of P-256 is for the host to check.
    PublicKey: "public-key", public_key,
        json_schema!({
            "pattern": "^\\s*-----BEGIN PUBLIC KEY-----[A-Za-z0-9+/=\\s]+-----END PUBLIC KEY-----\\s*$",
            "maxLength": MAX_KEY_BYTES,
        });
    /// A script of at most 64 KiB.
    ScriptText: "script", script, json_schema!({ "minLength": 1, "maxLength": MAX_SCRIPT_BYTES });
    /// Any text but the empty one.
    NonEmpty: "non-empty", non_empty, json_schema!({ "minLength": 1 });
}

const WORD: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const NAME: &str = "[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?";
/// Looser than the rule, as are the following ones: the parts of the name have a length, and a port has a bound.
const LABEL: &str = "[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?";
const IP: &str = r"\[[0-9A-Fa-f:.]+\]";
const PORT: &str = ":[0-9]{1,5}";
const TAG: &str = ":[A-Za-z0-9_][-._A-Za-z0-9]{0,127}";
const DIGEST: &str = "sha256:[0-9a-f]{64}";
/// Looser than the rule: the domain and the name have a length together.
const KEY: &str =
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?";
/// Editors show these as what cannot be granted; a test compares them with the rule.
const BUILTIN_CONDITIONS: [&str; 10] = [
    "AllContainersRestarting",
    "ContainersReady",
    "DisruptionTarget",
    "Initialized",
    "PodHasNetwork",
    "PodReadyToStartContainers",
    "PodResizeInProgress",
    "PodResizePending",
    "PodScheduled",
    "Ready",
];

const NO_PODS: &str = "Pods are not written as objects; grant labels, annotations, conditions, delete or evict instead";

const NO_INPUT: &str =
    "Pods and Secrets are not read as other objects are: plugins read Pods with grants.read.pods, and no Secrets";

const OF_KUBECTL: &str = "belongs to kubectl and cannot be granted; remove it";
const NO_DOMAIN: &str = "must have a domain, such as shop.example/cleanup";
const OF_OTHERS: &str = "is of a domain of Kubernetes or of the host, whose finalizers the host may not remove from \
    Pods when the plugin is deleted; name one of your own domain, such as shop.example/cleanup";
const OF_KUBERNETES: &str = "belongs to Kubernetes and cannot be granted; choose a type of your own domain";
const RESERVED: &str = "is of a reserved domain, whose keys are granted one by one; name the keys";

/// A schema of values that are refused, for `not`; the definitions of the objects show the message.
fn refused(message: &str, keyword: &str, values: impl Into<Value>) -> Value {
    let mut schema = json_schema!({ "description": message });
    schema.insert(keyword.to_owned(), values.into());
    schema.to_value()
}

fn reserved() -> Value {
    refused(RESERVED, "pattern", r"^(([^/]*\.)?(kubernetes|k8s)\.io|podium\.dev)/.*\*$")
}

/// The schema of a pattern of keys; `refused` match those that cannot be granted.
fn keys<const N: usize>(refused: [Value; N]) -> Schema {
    json_schema!({
        "pattern": format!(r"^({KEY}|{DOMAIN}/([A-Za-z0-9][-_.A-Za-z0-9]*)?\*)$"),
        "maxLength": 317,
        "not": { "anyOf": refused.to_vec() },
    })
}

fn quote(text: &str, rule: fn(&str) -> Result<(), &'static str>) -> Result<(), String> {
    rule(text).map_err(|rule| format!("{} {rule}", quoted(text)))
}

fn sha256(text: &str) -> Result<(), &'static str> {
    let is_digest = text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_digest { Ok(()) } else { Err("must be 64 hexadecimal digits in lower case, as sha256sum prints them") }
}

fn config_map_key(text: &str) -> Result<(), &'static str> {
    let is_key = (1..=253).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    if is_key {
        Ok(())
    } else {
        Err("must be at most 253 letters, digits, '-', '_' and '.', as a key of a ConfigMap is")
    }
}

/// The most bytes of a public key in PEM. One on P-256 has 178.
const MAX_KEY_BYTES: usize = 1 << 10;

fn public_key(text: &str) -> Result<(), String> {
    let body = text.trim().strip_prefix("-----BEGIN PUBLIC KEY-----");
    let body = body.and_then(|rest| rest.strip_suffix("-----END PUBLIC KEY-----")).unwrap_or_default();
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || byte.is_ascii_whitespace() || b"+/=".contains(&byte);
    if text.len() > MAX_KEY_BYTES || body.is_empty() || !body.bytes().all(is_base64) {
        return Err("must be one public key in PEM, as cosign writes it".to_owned());
    }
    Ok(())
}

/// The most bytes of a script in a configuration.
pub const MAX_SCRIPT_BYTES: usize = 64 << 10;

fn script(text: &str) -> Result<(), String> {
    let bytes = text.len();
    if bytes > MAX_SCRIPT_BYTES {
        return Err(format!("has {bytes} bytes; at most {MAX_SCRIPT_BYTES}: put a larger script into a configMap"));
    }
    non_empty(text)
}

fn non_empty(text: &str) -> Result<(), String> {
    if text.is_empty() { Err("must not be empty".to_owned()) } else { Ok(()) }
}

fn object_kind(kind: &str) -> Result<(), String> {
    quote(kind, syntax::upper_camel_case)?;
    if kind == "Pod" { Err(NO_PODS.to_owned()) } else { Ok(()) }
}

fn object_resource(resource: &str) -> Result<(), String> {
    quote(resource, syntax::dns_label)?;
    if resource == "pods" { Err(NO_PODS.to_owned()) } else { Ok(()) }
}

fn input_kind(kind: &str) -> Result<(), String> {
    quote(kind, syntax::upper_camel_case)?;
    if ["Pod", "Secret"].contains(&kind) { Err(NO_INPUT.to_owned()) } else { Ok(()) }
}

fn input_resource(resource: &str) -> Result<(), String> {
    quote(resource, syntax::dns_label)?;
    if ["pods", "secrets"].contains(&resource) { Err(NO_INPUT.to_owned()) } else { Ok(()) }
}

fn field_path(text: &str) -> Result<(), &'static str> {
    let is_name = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    if text.len() <= 253 && text.split('.').all(is_name) {
        Ok(())
    } else {
        Err("must be names of fields with dots between them, such as data or spec.prices")
    }
}

fn annotation(text: &str) -> Result<(), String> {
    let refuse = |key: &str| syntax::is_forbidden_key(key).then_some(OF_KUBECTL);
    granted(text, refuse)
}

fn finalizer(text: &str) -> Result<(), String> {
    match text.split_once('/') {
        Some((domain, _)) if syntax::is_reserved_domain(domain) => Err(of_others(text)),
        _ => granted(text, |key| (!key.contains('/')).then_some(NO_DOMAIN)),
    }
}

/// Earlier versions granted these finalizers, so Pods may have them.
fn of_others(text: &str) -> String {
    let message = format!("{} {OF_OTHERS}", quoted(text));
    // No name that could have been granted has a quotation mark.
    if syntax::qualified_name(text).is_err() {
        return message;
    }
    format!(
        "{message}; an administrator removes it from a Pod that has it: kubectl -n NAMESPACE get pod NAME -o json | \
         jq '.metadata.finalizers -= [\"{text}\"]' | kubectl replace -f -"
    )
}

fn condition(text: &str) -> Result<(), String> {
    granted(text, |key| syntax::is_builtin_condition(key).then_some(OF_KUBERNETES))
}

fn granted(text: &str, refuse: impl Fn(&str) -> Option<&'static str>) -> Result<(), String> {
    pattern(text)?;
    refuse(text).map_or(Ok(()), |rule| Err(format!("{} {rule}", quoted(text))))
}

/// A key, or the beginning of one with its domain and a `*`.
fn pattern(pattern: &str) -> Result<(), String> {
    let problem = |rule: &str| Err(format!("{} {rule}", quoted(pattern)));
    let Some(prefix) = pattern.strip_suffix('*') else {
        if pattern.contains('*') {
            return problem("may have a '*' only at its end");
        }
        return quote(pattern, syntax::qualified_name);
    };
    let Some((domain, begun)) = prefix.split_once('/') else {
        return problem("may have a '*' only after a domain and '/', such as shop.example/*");
    };
    if prefix.contains('*') {
        return problem("may have a '*' only at its end");
    }
    if syntax::is_reserved_domain(domain) {
        return problem(RESERVED);
    }
    // Anything valid may follow, so the beginning is checked with one letter behind it.
    syntax::qualified_name(&format!("{domain}/{begun}a")).or_else(problem)
}
