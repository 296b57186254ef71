//! The JSON Schema, as an editor reads it, against the host: by a reading of JSON Schema that shares nothing with the
//! collecting pass.
//!
//! The `jsonschema` crate is no dependency: it turns on features of hashbrown, num-traits and serde_json, with which
//! wasmtime would be built a second time for tests. [`Schema`] has the keywords that the schemas use, and fails on any
//! other.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use regex::Regex;
use serde_json::{Map, Value, json};

use super::drift::{self, SUBJECTS, Subject};
use crate::*;

/// Where a document differs from a schema: fields, as the host names them.
type Fields = BTreeSet<String>;

struct Schema<'a>(&'a Map<String, Value>);

/// The fields of a value that a schema refuses.
fn refused(schema: &Value, value: &Value, path: &str, fields: &mut Fields) {
    match schema {
        Value::Bool(true) => {}
        Value::Object(schema) => Schema(schema).refused(value, path, fields),
        _ => drop(fields.insert(path.to_owned())),
    }
}

fn is_valid(schema: &Value, value: &Value) -> bool {
    let mut fields = Fields::new();
    refused(schema, value, "", &mut fields);
    fields.is_empty()
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn is_type(kind: &Value, value: &Value) -> bool {
    match kind.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some("integer") => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => unreachable!("a type {kind}"),
    }
}

/// Compiles an expression once: a document has hundreds of them.
fn matches(expression: &str, text: &str) -> bool {
    thread_local! {
        static COMPILED: RefCell<BTreeMap<String, Regex>> = const { RefCell::new(BTreeMap::new()) };
    }
    COMPILED.with_borrow_mut(|compiled| {
        let regex = compiled.entry(expression.to_owned()).or_insert_with(|| Regex::new(expression).unwrap());
        regex.is_match(text)
    })
}

impl Schema<'_> {
    fn refused(&self, value: &Value, path: &str, fields: &mut Fields) {
        for (keyword, of) in self.0 {
            if !self.keyword(keyword, of, value, path, fields) {
                fields.insert(path.to_owned());
            }
        }
    }

    /// Returns false if the value itself is refused; refused fields within it go to `fields`.
    fn keyword(&self, keyword: &str, of: &Value, value: &Value, path: &str, fields: &mut Fields) -> bool {
        let list = |of: &Value| of.as_array().unwrap().clone();
        let length = || value.as_str().map(|text| text.chars().count() as u64);
        let limit = of.as_u64();
        match keyword {
            "type" if of.is_array() => list(of).iter().any(|kind| is_type(kind, value)),
            "type" => is_type(of, value),
            "enum" => list(of).contains(value),
            "const" => of == value,
            "oneOf" => list(of).iter().filter(|schema| is_valid(schema, value)).count() == 1,
            "anyOf" => list(of).iter().any(|schema| is_valid(schema, value)),
            "not" => !is_valid(of, value),
            "allOf" => {
                list(of).iter().for_each(|schema| refused(schema, value, path, fields));
                true
            }
            "if" if is_valid(of, value) => {
                refused(&self.0["then"], value, path, fields);
                true
            }
            "minimum" => value.as_f64().is_none_or(|number| number >= of.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|number| number <= of.as_f64().unwrap()),
            "pattern" => value.as_str().is_none_or(|text| matches(of.as_str().unwrap(), text)),
            "minLength" => length().is_none_or(|length| length >= limit.unwrap()),
            "maxLength" => length().is_none_or(|length| length <= limit.unwrap()),
            "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= limit.unwrap()),
            "maxItems" => value.as_array().is_none_or(|items| items.len() as u64 <= limit.unwrap()),
            "maxProperties" => value.as_object().is_none_or(|entries| entries.len() as u64 <= limit.unwrap()),
            "items" => {
                for (at, item) in value.as_array().into_iter().flatten().enumerate() {
                    refused(of, item, &format!("{path}[{at}]"), fields);
                }
                true
            }
            "required" => {
                for name in list(of).iter().filter_map(Value::as_str) {
                    if value.as_object().is_some_and(|entries| !entries.contains_key(name)) {
                        fields.insert(below(path, name));
                    }
                }
                true
            }
            "properties" | "additionalProperties" | "propertyNames" => {
                for (name, value) in value.as_object().into_iter().flatten() {
                    let own = self.0.get("properties").and_then(|own| own.get(name));
                    let schema = match keyword {
                        "properties" => own,
                        "additionalProperties" => Some(of).filter(|_| own.is_none()),
                        _ => Some(of),
                    };
                    let name_itself = Value::from(name.as_str());
                    let value = if keyword == "propertyNames" { &name_itself } else { value };
                    if let Some(schema) = schema {
                        refused(schema, value, &below(path, name), fields);
                    }
                }
                true
            }
            "if" | "then" | "$schema" | "title" | "description" | "default" | "format" => true,
            _ => unreachable!("the keyword {keyword}: {of}"),
        }
    }
}

fn json_of(yaml: &str) -> Value {
    yaml::documents(yaml).unwrap()[0].json()
}

/// The fields that the schema refuses, and those that the host refuses.
fn judge(subject: &Subject, yaml: &str) -> (Fields, Fields) {
    let mut by_the_schema = Fields::new();
    refused(subject.schema, &json_of(yaml), "", &mut by_the_schema);
    let root = |field: String| if field == "the document" { String::new() } else { field };
    let problems = (subject.read)(yaml).err().unwrap_or_default();
    (by_the_schema, problems.into_iter().map(|problem| root(problem.field)).collect())
}

fn checkout(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The checked-in schemas, which `PODIUM_RENEW_SCHEMAS=1 cargo test -p podium-config checked_in` writes.
#[test]
fn the_checked_in_schemas_are_those_of_the_types() {
    for (name, schema) in [("plugin", plugin_schema()), ("policy", policy_schema())] {
        let file = checkout(&format!("docs/{name}.schema.json"));
        let text = format!("{schema:#}\n");
        if std::env::var_os("PODIUM_RENEW_SCHEMAS").is_some() {
            fs::write(&file, &text).unwrap();
        }
        let is_current = fs::read_to_string(&file).unwrap_or_default() == text;
        assert!(is_current, "{} is of other types; renew it with `just schemas`", file.display());
    }
}

#[test]
fn the_schema_accepts_the_plugins_of_this_repository() {
    let mut folders: Vec<_> = fs::read_dir(checkout("plugins")).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    assert_eq!(folders.len(), 6, "{folders:?}");
    for folder in folders {
        let yaml = fs::read_to_string(folder.join("plugin.yaml")).unwrap();
        assert_eq!(judge(&SUBJECTS[0], &yaml), <_>::default(), "{}", folder.display());
    }
}

#[test]
fn the_schema_accepts_the_policy_of_the_documentation() {
    let yaml = fs::read_to_string(checkout("docs/policy.yaml")).unwrap();
    assert_eq!(judge(&SUBJECTS[1], &yaml), <_>::default());
    assert!(yaml.starts_with("# yaml-language-server: $schema=policy.schema.json\n"), "{yaml}");
}

const EXAMPLE: &str = r#"
apiVersion: podium.dev/v1alpha1
kind: ReconcilePlugin
metadata: { name: triage, namespace: shop }
spec:
  source: { file: triage.wasm }
  serviceAccountName: podium
  watch: { selector: { matchExpressions: [{ key: tier, operator: In, values: [gold] }] }, sections: [status] }
  grants:
    read: { pods: { sections: [labels, status] } }
    write: { annotations: ["triage.shop.example/*"],
      objects: [{ apiVersion: v1, kind: ConfigMap, resource: configmaps }] }
  limits: { memoryMiB: 64, class: native }
"#;

const ANNOTATIONS: &str = r#"annotations: ["triage.shop.example/*"]"#;

#[test]
fn the_schema_and_the_host_refuse_the_same_field() {
    refuse(
        &SUBJECTS[0],
        EXAMPLE,
        &[
            ("v1alpha1", "v2", "apiVersion"),
            ("kind: Rec", "kind: Wreck", "kind"),
            ("name: triage, ", "", "metadata.name"),
            (", namespace: shop", "", "metadata.namespace"),
            ("kind: Rec", "kind: ClusterRec", "metadata.namespace, spec.serviceAccountNamespace"),
            ("{ file: triage.wasm }", "triage.wasm", "spec.source"),
            ("serviceAccountName: podium", "serviceAccountName: Podium", "spec.serviceAccountName"),
            ("serviceAccountName", "serviceAccountNamespace", "spec.serviceAccountNamespace"),
            ("watch:", "wach:", "spec.wach"),
            ("[labels, status]", "[lables, status]", "spec.grants.read.pods.sections[0]"),
            ("example/*", "*", "spec.grants.write.annotations[0]"),
            ("triage.shop.example/*", "app.kubernetes.io/*", "spec.grants.write.annotations[0]"),
            (ANNOTATIONS, "finalizers: [batch.kubernetes.io/job-tracking]", "spec.grants.write.finalizers[0]"),
            (ANNOTATIONS, "finalizers: [shop.example/a, k8s.io/a]", "spec.grants.write.finalizers[1]"),
            (ANNOTATIONS, "finalizers: ['a.k8s.io/*']", "spec.grants.write.finalizers[0]"),
            (ANNOTATIONS, "finalizers: [podium.dev/pod-finalizers]", "spec.grants.write.finalizers[0]"),
            (ANNOTATIONS, "finalizers: [foregroundDeletion]", "spec.grants.write.finalizers[0]"),
            ("ConfigMap", "Pod", "spec.grants.write.objects[0].kind"),
            ("configmaps", "pods", "spec.grants.write.objects[0].resource"),
            ("configmaps", "ConfigMaps", "spec.grants.write.objects[0].resource"),
            ("configmaps", "configmaps/status", "spec.grants.write.objects[0].resource"),
            (", resource: configmaps", "", "spec.grants.write.objects[0].resource"),
            (", values: [gold]", "", "spec.watch.selector.matchExpressions[0].values"),
            ("operator: In", "operator: Exists", "spec.watch.selector.matchExpressions[0].values"),
            ("memoryMiB: 64", "memoryMiB: 257", "spec.limits.memoryMiB"),
            ("memoryMiB: 64", "memoryMiB: '64'", "spec.limits.memoryMiB"),
            ("class: native", "class: huge", "spec.limits.class"),
            ("{ file: triage.wasm }", "{ oci: { image: triage } }", "spec.source.oci.image"),
            (
                "{ file: triage.wasm }",
                "{ oci: { image: 'a.example/a:1', pullSecret: a } }",
                "spec.source.oci.pullSecret",
            ),
        ],
    );
}

/// Each change of the example makes the schema and the host refuse the same fields.
fn refuse(subject: &Subject, example: &str, changes: &[(&str, &str, &str)]) {
    assert_eq!(judge(subject, example), <_>::default());
    for (from, to, fields) in changes {
        assert!(example.contains(from), "{from}");
        let broken = example.replacen(from, to, 1);
        let expected: Fields = fields.split(", ").map(str::to_owned).collect();
        assert_eq!(judge(subject, &broken), (expected.clone(), expected), "{from} -> {to}");
    }
}

const POLICY_EXAMPLE: &str = r#"
apiVersion: podium.dev/v1alpha1
kind: Policy
spec:
  registries: [{ host: "a.example:5000", plainHttp: true, redirectHosts: [b.example] }]
  defaults:
    serviceAccountRequired: true
    compiledCodeMiB: 100
    maxPlugins: 30
    requests: { writesPerSecond: 100, liveReadsPerSecond: 50, eventsPerSecond: 10 }
    limits: { classes: [native], memoryMiB: 64, cpuMillis: 50, wallMillis: 5000,
      hostCalls: 5000, writes: 50, logKiB: 64, reuse: 10, writesPerSecond: 20 }
  namespaces:
    kube-system: { excluded: true }
    shop: { serviceAccountRequired: false, images: { tagsPermitted: true },
      limits: { classes: [native, interpreter], writes: 100 } }
  cluster: { limits: { memoryMiB: 128 } }
"#;

#[test]
fn the_policy_schema_and_the_host_refuse_the_same_field() {
    refuse(
        &SUBJECTS[1],
        POLICY_EXAMPLE,
        &[
            ("v1alpha1", "v2", "apiVersion"),
            ("apiVersion: podium.dev/v1alpha1", "", "apiVersion"),
            ("kind: Policy", "kind: ReconcilePlugin", "kind"),
            ("spec:", "specs:", "spec, specs"),
            ("defaults:", "default:", "spec.default"),
            ("serviceAccountRequired: true", "serviceAccountRequired: 'yes'", "spec.defaults.serviceAccountRequired"),
            ("compiledCodeMiB: 100", "compiledCodeMiB: 0", "spec.defaults.compiledCodeMiB"),
            ("compiledCodeMiB: 100", "compiledCodeMiB: 65537", "spec.defaults.compiledCodeMiB"),
            ("maxPlugins: 30", "maxPlugins: 0", "spec.defaults.maxPlugins"),
            ("maxPlugins: 30", "maxPlugins: 10001", "spec.defaults.maxPlugins"),
            ("serviceAccountRequired: true", "excluded: 1", "spec.defaults.excluded"),
            ("classes: [native]", "classes: []", "spec.defaults.limits.classes"),
            ("classes: [native]", "classes: native", "spec.defaults.limits.classes"),
            ("classes: [native]", "classes: [huge]", "spec.defaults.limits.classes[0]"),
            ("classes: [native]", "class: native", "spec.defaults.limits.class"),
            ("memoryMiB: 64", "memoryMiB: 257", "spec.defaults.limits.memoryMiB"),
            ("memoryMiB: 64", "memoryMiB: 64Mi", "spec.defaults.limits.memoryMiB"),
            ("cpuMillis: 50", "cpuMillis: 0", "spec.defaults.limits.cpuMillis"),
            ("wallMillis: 5000", "wallMillis: 9", "spec.defaults.limits.wallMillis"),
            ("hostCalls: 5000", "hostCalls: 1000001", "spec.defaults.limits.hostCalls"),
            ("writes: 50", "writes: -1", "spec.defaults.limits.writes"),
            ("logKiB: 64", "logKiB: 1025", "spec.defaults.limits.logKiB"),
            ("reuse: 10", "reuse: 0", "spec.defaults.limits.reuse"),
            ("writesPerSecond: 20", "writesPerSecond: 1001", "spec.defaults.limits.writesPerSecond"),
            ("writesPerSecond: 20", "eventsPerSecond: 0", "spec.defaults.limits.eventsPerSecond"),
            ("liveReadsPerSecond: 50", "liveReadsPerSecond: 0", "spec.defaults.requests.liveReadsPerSecond"),
            ("writesPerSecond: 100", "writesPerSecond: 10001", "spec.defaults.requests.writesPerSecond"),
            ("eventsPerSecond: 10", "events: 10", "spec.defaults.requests.events"),
            ("{ excluded: true }", "excluded", "spec.namespaces.kube-system"),
            ("kube-system:", "kube_system:", "spec.namespaces.kube_system"),
            ("shop: {", "shop: { config: {},", "spec.namespaces.shop.config"),
            ("writes: 100", "writes: 1001", "spec.namespaces.shop.limits.writes"),
            ("cluster: {", "cluster: { namespaces: [],", "spec.cluster.namespaces"),
            ("memoryMiB: 128", "memoryMiB: 0", "spec.cluster.limits.memoryMiB"),
            ("a.example:5000", "https://a.example", "spec.registries[0].host"),
            ("plainHttp: true", "plainHTTP: true", "spec.registries[0].plainHTTP"),
            ("tagsPermitted: true", "tagsPermitted: latest", "spec.namespaces.shop.images.tagsPermitted"),
            ("tagsPermitted: true", "signatureKeys: [key.pub]", "spec.namespaces.shop.images.signatureKeys[0]"),
        ],
    );
}

#[test]
fn every_mistake_of_a_policy_is_reported_at_once() {
    let broken = POLICY_EXAMPLE.replace("native", "huge").replace("writes:", "writ:").replace("true", "1");
    let fields =
        |yaml: &str| -> Vec<String> { policy(yaml).unwrap_err().into_iter().map(|problem| problem.field).collect() };
    assert_eq!(fields(&broken).len(), 8, "{:?}", fields(&broken));
    for text in ["", "# none\n", "{", &format!("{POLICY_EXAMPLE}---{POLICY_EXAMPLE}")] {
        let [problem] = &policy(text).unwrap_err()[..] else { unreachable!("{text}") };
        assert_eq!(problem.field, "", "{problem:?}");
    }
    assert_eq!(fields(&format!("{broken}---{POLICY_EXAMPLE}")).len(), 9);
}

#[test]
fn rules_between_fields_of_a_policy_are_checked() {
    const KEY: &str = "signatureKeys: [\"-----BEGIN PUBLIC KEY-----\\nYQ==\\n-----END PUBLIC KEY-----\"]";
    let fields = |spec: &str| -> Vec<String> {
        let text = format!("apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec: {spec}\n");
        let problems = policy(&text).err().unwrap_or_default();
        problems.into_iter().map(|problem| problem.field).collect()
    };
    for (spec, field) in [
        ("{ registries: [{ host: a.example }, { host: A.example }] }", "spec.registries[1].host"),
        ("{ registries: [{ host: a.example, plainHttp: true, caFile: a.pem }] }", "spec.registries[0].caFile"),
        ("{ defaults: { images: { signatureRequired: true } } }", "spec.defaults.images.signatureRequired"),
        ("{ cluster: { images: { signatureRequired: true } } }", "spec.cluster.images.signatureRequired"),
        (
            &format!(
                "{{ defaults: {{ images: {{ signatureRequired: true, {KEY} }} }}, \
                namespaces: {{ a: {{ images: {{ signatureKeys: [] }} }} }} }}"
            ),
            "spec.namespaces.a.images.signatureKeys",
        ),
    ] {
        assert_eq!(fields(spec), [field], "{spec}");
    }
    let required = "signatureRequired: true";
    for spec in [
        format!("{{ defaults: {{ images: {{ {KEY} }} }}, namespaces: {{ a: {{ images: {{ {required} }} }} }} }}"),
        format!(
            "{{ defaults: {{ images: {{ {required}, {KEY} }} }}, \
             cluster: {{ images: {{ signatureRequired: false }} }} }}"
        ),
        "{ namespaces: { a: { images: { signatureKeys: [] } } } }".to_owned(),
    ] {
        assert_eq!(fields(&spec), [""; 0], "{spec}");
    }
}

/// Fields whose value must fit other fields: the schema accepts what the host refuses.
fn is_of_rules(field: &str) -> bool {
    let fields = [
        "spec.inputs[0]",
        "spec.source",
        "spec.source.file",
        "spec.source.script",
        "spec.source.script.inline",
        "spec.limits.reuse",
        "spec.serviceAccountName",
        "spec.serviceAccountNamespace",
        "spec.registries[0].caFile",
    ];
    fields.contains(&field)
        || [".images.signatureRequired", ".images.signatureKeys"].iter().any(|end| field.ends_with(end))
        || ["spec.limits.cpuMillis", "spec.watch.sections", "spec.watch.selector", "spec.config"].contains(&field)
        || ["spec.watch.related.by", "spec.watch.related.label"].contains(&field)
}

#[test]
fn the_schema_is_looser_than_the_host_only_between_fields() {
    let samples =
        SUBJECTS.iter().flat_map(|subject| (subject.samples)().into_iter().map(move |sample| (subject, sample)));
    for (subject, sample) in samples {
        let mut differences = Vec::new();
        for document in drift::mutations(&sample).into_iter().filter(|document| !document.is_null()).step_by(7) {
            let yaml = document.to_string();
            let (by_the_schema, by_the_host) = judge(subject, &yaml);
            let only_by_the_host: Fields =
                by_the_host.difference(&by_the_schema).filter(|field| !is_of_rules(field)).cloned().collect();
            let only_by_the_schema: Fields = by_the_schema.difference(&by_the_host).cloned().collect();
            if !only_by_the_schema.is_empty() || !only_by_the_host.is_empty() {
                differences.push((only_by_the_schema, only_by_the_host, yaml));
            }
        }
        assert!(
            differences.is_empty(),
            "{:#?} and more of {}",
            &differences[..differences.len().min(5)],
            differences.len()
        );
    }
}

#[test]
fn the_rules_of_texts_and_their_expressions_agree() {
    let texts = [
        "",
        "a",
        "A",
        "a-b",
        "-a",
        "a-",
        "a.b",
        "a..b",
        "a/b",
        "a/B_c",
        "/a",
        "a/",
        "a b",
        "a*",
        "*",
        "a/*",
        "a/b*",
        "a/*b",
        "a.example/*",
        "k8s.io/*",
        "x.k8s.io/a*",
        "notk8s.io/a*",
        "kubernetes.io/a",
        "Ready",
        "Pod",
        "PodX",
        "pods",
        "podsx",
        "v1",
        "apps/v1",
        "a/b/c",
        "podium.dev/applied-x",
        "podium.dev/*",
        "podium.dev/a*",
        "a.podium.dev/*",
        "kubectl.kubernetes.io/last-applied-configuration",
        "ä",
        "a\n",
        "9",
        "a_",
        "A/b",
        "PodScheduled",
        "shop.example/Ready",
        "a.example:5000/team/a_b:v1.0",
        "a.example/a@sha256:0",
        "[::1]:5000/a:1",
        "team/a:1",
        "team:5000/a:1",
        "localhost/a:1",
        "a.example:5000",
        "-----BEGIN PUBLIC KEY-----\nYQ==\n-----END PUBLIC KEY-----\n",
        "-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n",
    ];
    let long = ["a".repeat(63), "a".repeat(64), "a".repeat(253), "a".repeat(254), "a".repeat(400), "A".repeat(129)];
    let mut formats = BTreeMap::new();
    [&PLUGIN, &POLICY].into_iter().for_each(|schema| collect(schema, &mut formats));
    assert_eq!(formats.len(), text::RULES.len());
    for rule in text::RULES {
        for text in texts.into_iter().chain(long.iter().map(String::as_str)) {
            let by_rule = rule.check(text).is_ok();
            let by_schema = is_valid(&formats[rule.format], &json!(text));
            // An expression has one length for the domain and the name.
            let is_looser = text.len() > 60;
            assert!(by_rule == by_schema || by_schema && is_looser, "{}: {text:?} {by_rule} {by_schema}", rule.format);
        }
    }
}

/// The schema of each format.
fn collect(schema: &Value, formats: &mut BTreeMap<String, Value>) {
    match schema {
        Value::Object(entries) => {
            if let Some(format) = entries.get("format").and_then(Value::as_str) {
                let mut own = schema.clone();
                own["type"] = "string".into();
                formats.insert(format.to_owned(), own);
            }
            entries.values().for_each(|schema| collect(schema, formats));
        }
        Value::Array(items) => items.iter().for_each(|schema| collect(schema, formats)),
        _ => {}
    }
}
