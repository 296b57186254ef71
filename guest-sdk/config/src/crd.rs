//! The CustomResourceDefinitions of the kinds. Those of plugins are from the same types as the JSON Schema of a file.
//!
//! Fields, descriptions, bounds, words and defaults are those of [`Plugin`](crate::Plugin). A structural schema cannot
//! have `if` and `propertyNames`; the rules between fields that they express, and some of `rules`, are in CEL here. The
//! host checks every object again, by the same pass as a file, so a rule that is missing here is a condition
//! `InvalidSpec` instead of a refused request.

use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use crate::{check, cluster_kinds, plugin, rules::KINDS, run_report, schema, status::Status, text};

const GROUP: &str = "podium.dev";
const VERSION: &str = "v1alpha1";

/// Returns the definitions of `ReconcilePlugin`, `ClusterReconcilePlugin` and `RunReport`.
#[must_use]
pub fn definitions() -> [Value; 3] {
    let namespaced = Names { kind: "ReconcilePlugin", plural: "reconcileplugins", short: "rp", scope: "Namespaced" };
    let cluster =
        Names { kind: "ClusterReconcilePlugin", plural: "clusterreconcileplugins", short: "crp", scope: "Cluster" };
    let report = Names { kind: "RunReport", plural: "runreports", short: "rr", scope: "Namespaced" };
    [
        definition(&namespaced, &columns(), &object(true)),
        definition(&cluster, &columns(), &object(false)),
        definition(&report, &report_columns(), &report_object()),
    ]
}

struct Names {
    kind: &'static str,
    plural: &'static str,
    short: &'static str,
    scope: &'static str,
}

fn definition(names: &Names, columns: &Value, schema: &Value) -> Value {
    let Names { kind, plural, short, scope } = names;
    let singular = kind.to_lowercase();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{GROUP}"),
            "labels": { "app.kubernetes.io/name": "podium", "app.kubernetes.io/part-of": "podium" },
        },
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular,
                "shortNames": [short], "categories": ["podium"],
            },
            "scope": scope,
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "subresources": { "status": {} },
                "additionalPrinterColumns": columns,
                "schema": { "openAPIV3Schema": schema },
            }],
        },
    })
}

fn column(name: &str, kind: &str, path: &str, description: &str) -> Value {
    let mut column = json!({ "name": name, "type": kind, "jsonPath": path });
    column["description"] = description.into();
    column
}

fn report_columns() -> Value {
    json!([
        column("Pod", "string", ".spec.pod.name", "The Pod that is asked about"),
        column("Plugin", "string", ".spec.plugin", "The only plugin that is asked about"),
        column("Answered", "date", ".status.answeredAt", "The age of the answer"),
    ])
}

fn columns() -> Value {
    let condition = |of: &str, field: &str| format!(".status.conditions[?(@.type==\"{of}\")].{field}");
    // Only with `--output wide`: the other columns fit 80 letters.
    let mut digest = column("Digest", "string", ".status.active.digest", "The digest of the component that runs");
    digest["priority"] = 1.into();
    json!([
        column("Ready", "string", &condition("Ready", "status"), "Whether the version of spec runs"),
        column("Reason", "string", &condition("Ready", "reason"), "Why it runs or does not"),
        column("Healthy", "string", &condition("Healthy", "status"), "Whether its runs and writes succeed"),
        column("Suspend", "boolean", ".spec.suspend", "Whether spec stops the plugin"),
        column("Age", "date", ".metadata.creationTimestamp", "The age of the object"),
        digest,
    ])
}

/// The schema of `spec` with its rules. The two kinds differ in what they may name of other namespaces.
fn spec(namespaced: bool) -> Value {
    let mut spec = structural_schema::<plugin::Spec>();
    let source = &mut spec["properties"]["source"];
    without(source, "file");
    rules(
        source,
        &[
            (
                "has(self.configMap) || has(self.oci) || has(self.script)",
                "names no place of the component; set configMap, oci or script",
            ),
            (
                "(has(self.configMap) ? 1 : 0) + (has(self.oci) ? 1 : 0) + (has(self.script) ? 1 : 0) <= 1",
                "names more than one place; set configMap, oci or script",
            ),
        ],
    );
    rules(
        &mut source["properties"]["script"],
        &[("has(self.inline) != has(self.configMap)", "names no place or two of the script; set inline or configMap")],
    );
    requirement(&mut spec["properties"]["watch"]["properties"]["selector"]["properties"]["matchExpressions"]["items"]);
    let input = &mut spec["properties"]["inputs"]["items"];
    requirement(&mut input["properties"]["selector"]["properties"]["matchExpressions"]["items"]);
    rules(input, &[("has(self.name) != has(self.selector)", "names no object or both; set name or selector")]);
    rules(
        &mut spec["properties"]["watch"]["properties"]["related"],
        &[("(self.by == 'label') == has(self.label)", "label is required with by: label, and invalid otherwise")],
    );
    let limits = &mut spec["properties"]["limits"];
    // The API server fills in the limits that hold, so that the object shows them. The rules below need all of them.
    limits["default"] = defaults(limits);
    rules(
        limits,
        &[
            (
                "self.cpuMillis <= self.wallMillis",
                "cpuMillis is more than wallMillis, which includes it; lower cpuMillis, or raise wallMillis",
            ),
            (
                "self.class != 'interpreter' || self.reuse == 1 || self.reuseInterpreter",
                "reuse above 1 in class interpreter, where all state carries over from run to run, needs \
                 reuseInterpreter: true",
            ),
        ],
    );
    let account = "!has(self.source.oci) || !has(self.source.oci.pullSecretName) || has(self.serviceAccountName)";
    let reuse = "!has(self.source.script) || self.limits.reuse == 1 || self.limits.reuseInterpreter";
    rules(
        &mut spec,
        &[
            (account, "serviceAccountName is missing: source.oci.pullSecretName is read as this account"),
            (
                reuse,
                "limits.reuse above 1 of a script, where all state carries over from run to run, needs \
                 limits.reuseInterpreter: true",
            ),
        ],
    );
    watched(&mut spec);
    let inputs = &mut spec["properties"]["inputs"];
    inputs["x-kubernetes-list-type"] = "map".into();
    inputs["x-kubernetes-list-map-keys"] = json!(["id"]);
    as_account(&mut spec);
    // Equal lists, as of each write of a status, are compared in a time that is linear in their length.
    let finalizers = "!has(oldSelf.grants) || !has(oldSelf.grants.write) || !has(oldSelf.grants.write.finalizers) || \
        oldSelf.grants.write.finalizers == [] || (has(self.grants) && has(self.grants.write) && \
        has(self.grants.write.finalizers) && (self.grants.write.finalizers == oldSelf.grants.write.finalizers || \
        oldSelf.grants.write.finalizers.all(old, old in self.grants.write.finalizers)))";
    // Without the grant nothing would remove them: the deletion of the object removes those of its last grants.
    let message = "grants.write.finalizers lacks a finalizer that it had, which pods may have; to revoke it, delete \
        this object, which removes its finalizers from pods, and create it again";
    rules(&mut spec, &[(finalizers, message)]);
    if namespaced {
        of_a_namespace(&mut spec)
    } else {
        of_the_cluster(&mut spec)
    }
    spec
}

/// Adds the rules of the parts that are read or written as the account, and never as the host.
fn as_account(spec: &mut Value) {
    let inputs = "!has(self.inputs) || size(self.inputs) == 0 || has(self.serviceAccountName)";
    rules(spec, &[(inputs, "serviceAccountName is missing: inputs are read as this account")]);
    let forced = "!has(self.grants) || !has(self.grants.write) || !has(self.grants.write.objects) || \
                  !self.grants.write.objects.exists(grant, has(grant.force) && grant.force) || \
                  has(self.serviceAccountName)";
    rules(spec, &[(forced, "serviceAccountName is missing: force takes fields as this account")]);
    for (access, list, verb) in [("read", "objects", "read"), ("write", "scale", "scaled")] {
        let rule = format!(
            "!has(self.grants) || !has(self.grants.{access}) || !has(self.grants.{access}.{list}) || \
             size(self.grants.{access}.{list}) == 0 || has(self.serviceAccountName)"
        );
        let message =
            format!("serviceAccountName is missing: objects of grants.{access}.{list} are {verb} as this account");
        rules(spec, &[(&rule, &message)]);
    }
}

/// Adds the rules that watched sections, and those that groups reveal, are granted.
fn watched(spec: &mut Value) {
    let sections = "!has(self.watch) || !has(self.watch.sections) || self.watch.sections.all(section, section == \
        'lifecycle' || (has(self.grants) && has(self.grants.read) && has(self.grants.read.pods) && \
        has(self.grants.read.pods.sections) && section in self.grants.read.pods.sections))";
    let related = "!has(self.watch) || !has(self.watch.related) || (has(self.grants) && has(self.grants.read) && \
        has(self.grants.read.pods) && has(self.grants.read.pods.sections) && \
        ('full' in self.grants.read.pods.sections || \
        (self.watch.related.by == 'node' ? ['spec'] : self.watch.related.by == 'label' ? ['labels'] : \
        ['labels', 'owners']).all(section, section in self.grants.read.pods.sections)))";
    rules(
        spec,
        &[
            (
                sections,
                "watch.sections has a section that grants.read.pods.sections does not have; add it \
                 there, or do not watch it",
            ),
            (
                related,
                "watch.related needs sections that grants.read.pods.sections does not have: spec for a node, labels \
                 for a label, owners and labels for a workload",
            ),
        ],
    );
}

fn of_a_namespace(spec: &mut Value) {
    without(spec, "serviceAccountNamespace");
    let group = "(self.apiVersion.contains('/') ? self.apiVersion.split('/')[0] : '')";
    let kinds = json!(cluster_kinds::all().map(|(group, kind)| format!("{group}/{kind}")).collect::<Vec<_>>());
    for (access, list, verb) in KINDS {
        let message = format!(
            "objects of this kind have no namespace, and a ReconcilePlugin {verb} objects of its own namespace only; \
             remove the grant, or use ClusterReconcilePlugin"
        );
        let grant = &mut spec["properties"]["grants"]["properties"][access]["properties"][list]["items"];
        rules(grant, &[(&format!("!({group} + '/' + self.kind in {kinds})"), &message)]);
    }
}

fn of_the_cluster(spec: &mut Value) {
    rules(
        spec,
        &[
            (
                "has(self.serviceAccountName) == has(self.serviceAccountNamespace)",
                "serviceAccountName and serviceAccountNamespace go together; set both or none",
            ),
            (
                "(!has(self.source.configMap) && (!has(self.source.script) || !has(self.source.script.configMap))) || \
                 has(self.serviceAccountNamespace)",
                "serviceAccountNamespace is missing: the ConfigMap is one of that namespace",
            ),
        ],
    );
}

fn object(namespaced: bool) -> Value {
    let description = "A reconciler of Pods, which Podium runs in a sandbox.";
    let after = "!has(self.spec.after) || !(self.metadata.name in self.spec.after)";
    let mut object = whole(description, &spec(namespaced), &structural_schema::<Status>());
    rules(&mut object, &[(after, "spec.after names the plugin itself; remove its name")]);
    object
}

fn report_object() -> Value {
    let mut spec = structural_schema::<run_report::Spec>();
    // The admission policy compares the rights of the requester with this Pod when the object is created.
    rules(&mut spec, &[("self == oldSelf", "cannot be changed; create another RunReport")]);
    let mut status = structural_schema::<run_report::Status>();
    // Its fields are of one manager, which need not be listed one by one.
    status["properties"]["report"]["x-kubernetes-map-type"] = "atomic".into();
    whole("A question about the runs of plugins on a Pod, which the host answers in the status.", &spec, &status)
}

fn whole(description: &str, spec: &Value, status: &Value) -> Value {
    json!({
        "type": "object",
        "description": description,
        "required": ["spec"],
        "properties": {
            // The API server's own fields, in its own words.
            "apiVersion": { "type": "string", "description": "The version of the schema of this object." },
            "kind": { "type": "string", "description": "The kind of this object." },
            "metadata": { "type": "object" },
            "spec": spec,
            "status": status,
        },
    })
}

/// The defaults of a mapping's fields.
fn defaults(schema: &Value) -> Value {
    let fields = schema["properties"].as_object().into_iter().flatten();
    fields.filter_map(|(name, field)| Some((name.clone(), field.get("default")?.clone()))).collect()
}

fn requirement(requirement: &mut Value) {
    rules(
        requirement,
        &[
            (
                "self.operator in ['Exists', 'DoesNotExist'] || (has(self.values) && size(self.values) > 0)",
                "In and NotIn need at least one value",
            ),
            (
                "self.operator in ['In', 'NotIn'] || !has(self.values) || size(self.values) == 0",
                "Exists and DoesNotExist take no values; remove them",
            ),
        ],
    );
}

/// Adds rules in CEL, with their messages.
fn rules(schema: &mut Value, rules: &[(&str, &str)]) {
    let rules = rules.iter().map(|(rule, message)| json!({ "rule": rule, "message": message }));
    let mut all = schema["x-kubernetes-validations"].as_array().cloned().unwrap_or_default();
    all.extend(rules);
    schema["x-kubernetes-validations"] = all.into();
}

fn without(schema: &mut Value, field: &str) {
    if let Some(fields) = schema["properties"].as_object_mut() {
        fields.remove(field);
    }
}

/// Generates the structural schema of a type.
fn structural_schema<T: JsonSchema>() -> Value {
    let schema = schema::generate::<T>();
    structural(schema.as_object().unwrap_or(&Map::new()))
}

/// Translates JSON Schema as `schema` generates it; `null` is no value here. The keywords that are not named have no
/// equivalent.
fn structural(schema: &Map<String, Value>) -> Value {
    let mut translated = Map::new();
    let mut validations = Vec::new();
    for (keyword, value) in schema {
        let value = match (&**keyword, value) {
            ("type", _) => check::kind(schema).into(),
            ("properties", Value::Object(fields)) => {
                fields.iter().map(|(name, field)| (name.clone(), below(field))).collect::<Map<_, _>>().into()
            }
            ("items", value) => {
                translated.entry("x-kubernetes-list-type").or_insert("atomic".into());
                below(value)
            }
            // Any content, as it is.
            ("additionalProperties", Value::Bool(true)) => {
                translated.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
                continue;
            }
            ("additionalProperties", Value::Object(_)) => below(value),
            ("not", value) => {
                validations.extend(forbidden(value));
                continue;
            }
            // A `pattern` of the API server has no message.
            ("pattern", Value::String(pattern)) if syntax(schema).is_some() => {
                validations.extend(syntax(schema).and_then(|rule| matching(pattern, rule)));
                continue;
            }
            ("enum" | "oneOf", _) => {
                translated.insert("enum".to_owned(), check::words(&Value::Object(schema.clone())).into());
                continue;
            }
            ("format", Value::String(format)) if format != "date-time" && format != "int64" => continue,
            (
                "description" | "default" | "required" | "minimum" | "maximum" | "minLength" | "maxLength" | "pattern"
                | "minItems" | "maxItems" | "maxProperties" | "format",
                value,
            ) => value.clone(),
            (keyword, value) if keyword.starts_with("x-kubernetes-") => value.clone(),
            _ => continue,
        };
        translated.insert(keyword.clone(), value);
    }
    if !validations.is_empty() {
        translated.insert("x-kubernetes-validations".to_owned(), validations.into());
    }
    if let Some(words) = described(schema) {
        let description = translated.get("description").and_then(Value::as_str).unwrap_or_default();
        translated.insert("description".to_owned(), format!("{description}{words}").into());
    }
    translated.into()
}

fn below(schema: &Value) -> Value {
    schema.as_object().map_or_else(|| schema.clone(), structural)
}

/// The descriptions of an enumeration's words, as lines.
fn described(schema: &Map<String, Value>) -> Option<String> {
    let words = schema.get("oneOf")?.as_array()?;
    let line = |word: &Value| Some(format!("\n{}: {}", word["const"].as_str()?, word["description"].as_str()?));
    Some(words.iter().filter_map(line).collect())
}

fn syntax(schema: &Map<String, Value>) -> Option<&'static text::Rule> {
    text::format(&Value::Object(schema.clone()))
}

/// Returns the rule of a text's syntax, with the message that the host has for a text that no syntax permits.
fn matching(pattern: &str, rule: &text::Rule) -> Option<Value> {
    let message = rule.check("*").err()?;
    let message = message.strip_prefix("\"*\" ").unwrap_or(&message);
    Some(json!({ "rule": format!("self.matches(r'{pattern}')"), "message": message }))
}

/// Translates what a value must not be into rules: a `not` of the API server has no message.
fn forbidden(schema: &Value) -> Vec<Value> {
    if let Some(several) = schema["anyOf"].as_array() {
        return several.iter().flat_map(forbidden).collect();
    }
    let rule = match (&schema["pattern"], &schema["enum"], &schema["const"]) {
        // No pattern has a quotation mark.
        (Value::String(pattern), ..) => format!("!self.matches(r'{pattern}')"),
        (_, Value::Array(_), _) => format!("!(self in {})", json!(check::words(schema))),
        (.., Value::String(word)) => format!("self != '{word}'"),
        _ => return Vec::new(),
    };
    vec![json!({ "rule": rule, "message": schema["description"] })]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls a function with every mapping of a value.
    fn visit(value: &Value, each: &mut impl FnMut(&Map<String, Value>)) {
        match value {
            Value::Object(fields) => {
                each(fields);
                fields.values().for_each(|value| visit(value, each));
            }
            Value::Array(items) => items.iter().for_each(|value| visit(value, each)),
            _ => {}
        }
    }

    #[test]
    fn a_refusal_by_the_api_server_has_a_message_and_never_an_expression() {
        let mut messages = Vec::new();
        for definition in definitions() {
            visit(&definition, &mut |fields| {
                assert!(!fields.get("pattern").is_some_and(Value::is_string), "{fields:?}");
                if let Some(Value::String(_)) = fields.get("rule") {
                    messages.push(fields["message"].as_str().unwrap().to_owned());
                }
            });
        }
        for expected in ["must be 64 hexadecimal digits in lower case, as sha256sum prints them", "remove its name"] {
            assert!(messages.iter().any(|message| message.ends_with(expected)), "{messages:#?}");
        }
        // Each has what to do, or the syntax that is right.
        assert!(messages.iter().all(|message| message.len() > 25), "{messages:#?}");
    }

    #[test]
    fn the_default_columns_leave_20_of_80_letters_for_the_name() {
        let columns = columns();
        let shown = columns.as_array().unwrap().iter().filter(|column| column["priority"].is_null());
        // The longest reason; an age such as 365d; kubectl writes three blanks before each of them.
        let width = |column: &Value| match column["name"].as_str().unwrap() {
            "Reason" => "RemovingFinalizers".len().max("ServiceAccountRequired".len()),
            name => name.len().max(4),
        };
        assert!(shown.map(|column| width(column) + 3).sum::<usize>() <= 80 - 20);
    }
}
