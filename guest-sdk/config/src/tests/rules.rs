//! Each rule between fields: a document that breaks it has that problem and no other, and its neighbours are valid.

use serde_json::{Value, json};

use crate::{Problem, plugins, policy};

/// A document, changes of it by JSON pointer, and the field and the beginning of the message of its only problem.
/// A document, and its changes.
type Neighbours = (fn() -> Value, Vec<(&'static str, Value)>);
type Row = (fn() -> Value, Vec<(&'static str, Value)>, &'static str, &'static str);

fn namespaced() -> Value {
    json!({
        "apiVersion": "podium.dev/v1alpha1", "kind": "ReconcilePlugin",
        "metadata": { "name": "a", "namespace": "shop" },
        "spec": { "source": { "file": "a.wasm" } },
    })
}

fn cluster() -> Value {
    json!({
        "apiVersion": "podium.dev/v1alpha1", "kind": "ClusterReconcilePlugin",
        "metadata": { "name": "a" },
        "spec": { "source": { "file": "a.wasm" } },
    })
}

fn platform() -> Value {
    json!({ "apiVersion": "podium.dev/v1alpha1", "kind": "Policy", "spec": {} })
}

/// Sets values at pointers, with the objects above them.
fn with(mut document: Value, changes: &[(&str, Value)]) -> Value {
    for (pointer, value) in changes {
        let mut place = &mut document;
        for name in pointer.split('/').skip(1) {
            place = &mut place[name];
        }
        *place = value.clone();
    }
    document
}

fn problems(document: &Value) -> Vec<Problem> {
    let yaml = document.to_string();
    if document["kind"] == "Policy" && document["spec"].get("source").is_none() {
        return policy(&yaml).err().unwrap_or_default();
    }
    plugins(&yaml).unwrap().remove(0).content.err().unwrap_or_default()
}

fn oci(secret: &str) -> (&'static str, Value) {
    ("/spec/source", json!({ "oci": { "image": "a.example/a:1", "pullSecretName": secret } }))
}

/// Inputs with these ids, of one kind.
fn inputs(ids: &[&str], kind: &str) -> (&'static str, Value) {
    let input = |id| json!({ "id": id, "apiVersion": "v1", "kind": kind, "resource": "as", "name": "a" });
    ("/spec/inputs", ids.iter().map(input).collect())
}

/// A requirement with the most values, each of the most bytes.
fn long(key: &str) -> Value {
    let values: Vec<String> = (100..164).map(|at| format!("{at}{}", "v".repeat(60))).collect();
    json!({ "key": key, "operator": "In", "values": values })
}

fn forced() -> Value {
    json!([{ "apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps", "force": true }])
}

/// An input with these fields of its objects.
fn selected(mut input: Value) -> (&'static str, Value) {
    for (field, value) in [("id", "a"), ("apiVersion", "v1"), ("kind", "ConfigMap"), ("resource", "as")] {
        input[field] = value.into();
    }
    ("/spec/inputs", json!([input]))
}

/// A script, with its place.
fn script(place: &Value) -> (&'static str, Value) {
    let mut script = place.clone();
    script["language"] = "javascript".into();
    ("/spec/source", json!({ "script": script }))
}

fn config_map() -> (&'static str, Value) {
    ("/spec/source", json!({ "configMap": { "name": "a", "key": "a", "sha256": "0".repeat(64) } }))
}

fn account() -> (&'static str, Value) {
    ("/spec/serviceAccountName", json!("a"))
}

fn account_namespace() -> (&'static str, Value) {
    ("/spec/serviceAccountNamespace", json!("a"))
}

fn grants(grants: &[[&str; 3]]) -> (&'static str, Value) {
    let grant =
        |[version, kind, resource]: &[&str; 3]| json!({ "apiVersion": version, "kind": kind, "resource": resource });
    ("/spec/grants/write/objects", grants.iter().map(grant).collect())
}

fn readable(kinds: &[[&str; 3]]) -> (&'static str, Value) {
    ("/spec/grants/read/objects", grants(kinds).1)
}

fn requirement(operator: &str, values: &[&str]) -> (&'static str, Value) {
    ("/spec/watch/selector/matchExpressions", json!([{ "key": "a", "operator": operator, "values": values }]))
}

fn labels(count: usize) -> (&'static str, Value) {
    ("/spec/watch/selector/matchLabels", (0..count).map(|index| (format!("l{index}"), json!("a"))).collect())
}

fn interpreter(reuse: u32, permitted: bool) -> (&'static str, Value) {
    ("/spec/limits", json!({ "class": "interpreter", "reuse": reuse, "reuseInterpreter": permitted }))
}

const KEY: &str = "-----BEGIN PUBLIC KEY-----\nYQ==\n-----END PUBLIC KEY-----\n";

/// Returns rows about places, accounts and kinds.
fn of_plugins() -> Vec<Row> {
    let file_and_map = ("/spec/source/configMap", config_map().1["configMap"].clone());
    vec![
        (platform, vec![("/spec", json!({ "source": { "file": "a" } }))], "kind", "a Policy is no plugin"),
        (namespaced, vec![("/spec/source", json!({}))], "spec.source.file", "is missing: name"),
        (namespaced, vec![script(&json!({}))], "spec.source.script.inline", "is missing: name"),
        (
            namespaced,
            vec![script(&json!({ "inline": "1", "configMap": config_map().1["configMap"] }))],
            "spec.source.script",
            "has more than one place",
        ),
        (
            namespaced,
            vec![script(&json!({ "inline": "1" })), ("/spec/source/file", json!("a.wasm"))],
            "spec.source",
            "has more than one place",
        ),
        (cluster, vec![script(&config_map().1)], "spec.serviceAccountNamespace", "is missing: the ConfigMap of"),
        (namespaced, vec![file_and_map], "spec.source", "has more than one place"),
        // The host's own account never reads a Secret for a plugin.
        (namespaced, vec![oci("s")], "spec.serviceAccountName", "is missing: source.oci.pullSecretName is read as"),
        (cluster, vec![oci("s")], "spec.serviceAccountName", "is missing: source.oci.pullSecretName is read as"),
        (namespaced, vec![("/metadata", json!({ "name": "a" }))], "metadata.namespace", "is missing: a Reconcile"),
        (
            namespaced,
            vec![account(), account_namespace()],
            "spec.serviceAccountNamespace",
            "is for a ClusterReconcilePlugin",
        ),
        (
            cluster,
            vec![("/metadata/namespace", json!("shop"))],
            "metadata.namespace",
            "a ClusterReconcilePlugin has no",
        ),
        (cluster, vec![account()], "spec.serviceAccountNamespace", "serviceAccountName and"),
        (cluster, vec![account_namespace()], "spec.serviceAccountName", "serviceAccountName and"),
        (cluster, vec![config_map()], "spec.serviceAccountNamespace", "is missing: the ConfigMap of"),
    ]
}

/// Returns rows about grants, selectors, limits and the plugin's own configuration.
fn of_runs() -> Vec<Row> {
    let read = ("/spec/grants/read/pods/sections", json!(["labels"]));
    let watch = ("/spec/watch/sections", json!(["status"]));
    let grant = "spec.grants.write.objects[0].kind";
    let resource = "spec.grants.write.objects[1].resource";
    let config_maps = ["v1", "ConfigMap", "configmaps"];
    let reads = |sections: &[&str]| ("/spec/grants/read/pods/sections", json!(sections));
    let related = |related: Value| ("/spec/watch/related", related);
    let by = "spec.watch.related.by";
    let label = "spec.watch.related.label";
    let workload = || related(json!({ "by": "workload" }));
    let tier = || related(json!({ "by": "label", "label": "tier" }));
    let unnamed = || related(json!({ "by": "label" }));
    let too_named = || related(json!({ "by": "node", "label": "tier" }));
    vec![
        (namespaced, vec![workload()], by, "which the groups reveal"),
        (namespaced, vec![reads(&["owners"]), workload()], by, "which the groups reveal"),
        (cluster, vec![reads(&["labels"]), related(json!({ "by": "node" }))], by, "which the groups reveal"),
        (namespaced, vec![reads(&["spec"]), tier()], by, "which the groups reveal"),
        (namespaced, vec![reads(&["labels"]), unnamed()], label, "is missing: name the label whose"),
        (namespaced, vec![reads(&["spec"]), too_named()], label, "is for by: label"),
        (namespaced, vec![read, watch], "spec.watch.sections", "status cannot be watched without being granted"),
        (namespaced, vec![labels(33)], "spec.watch.selector", "has 33 requirements"),
        (namespaced, vec![labels(32), requirement("Exists", &[])], "spec.watch.selector", "has 33 requirements"),
        (namespaced, vec![requirement("In", &[])], "spec.watch.selector.matchExpressions[0].values", "In and NotIn"),
        (namespaced, vec![requirement("NotIn", &[])], "spec.watch.selector.matchExpressions[0].values", "In and NotIn"),
        (
            namespaced,
            vec![requirement("Exists", &["a"])],
            "spec.watch.selector.matchExpressions[0].values",
            "Exists and DoesNotExist take no values",
        ),
        (
            namespaced,
            vec![requirement("DoesNotExist", &["a"])],
            "spec.watch.selector.matchExpressions[0].values",
            "Exists and DoesNotExist take no values",
        ),
        (namespaced, vec![grants(&[["v1", "Namespace", "namespaces"]])], grant, "objects have no namespace"),
        (
            namespaced,
            vec![grants(&[["rbac.authorization.k8s.io/v1", "Role", "clusterroles"]])],
            "spec.grants.write.objects[0].resource",
            "objects have no namespace",
        ),
        (
            namespaced,
            vec![grants(&[config_maps, ["v1", "ConfigMap", "secrets"]])],
            resource,
            "ConfigMap is granted with",
        ),
        (
            namespaced,
            vec![grants(&[config_maps, ["v1", "Secret", "configmaps"]])],
            "spec.grants.write.objects[1].kind",
            "\"configmaps\" is granted with the kind",
        ),
        (namespaced, vec![("/spec/limits", json!({ "wallMillis": 10 }))], "spec.limits.cpuMillis", "is more than wall"),
        (
            namespaced,
            vec![("/spec/limits", json!({ "cpuMillis": 9_000 }))],
            "spec.limits.cpuMillis",
            "is more than wall",
        ),
        (namespaced, vec![interpreter(2, false)], "spec.limits.reuse", "is above 1 in class interpreter or"),
        (
            namespaced,
            vec![script(&json!({ "inline": "1" })), ("/spec/limits", json!({ "reuse": 2 }))],
            "spec.limits.reuse",
            "is above 1 in class interpreter or",
        ),
        (namespaced, vec![("/spec/config", json!({ "a": "x".repeat(64 << 10) }))], "spec.config", "has 65544 bytes"),
        (
            namespaced,
            vec![("/spec/config", json!({ "a": [{ "$serde_json::private::a": 1 }] }))],
            "spec.config.a[0].$serde_json::private::a",
            "is a name that the JSON library",
        ),
    ]
}

fn of_inputs() -> Vec<Row> {
    let config_maps = ["v1", "ConfigMap", "configmaps"];
    let node = readable(&[["v1", "Node", "nodes"]]);
    let twice = readable(&[config_maps, ["v1", "ConfigMap", "other"]]);
    vec![
        (namespaced, vec![readable(&[config_maps])], "spec.serviceAccountName", "is missing: objects of spec.grants."),
        (cluster, vec![readable(&[config_maps])], "spec.serviceAccountName", "is missing: objects of spec.grants."),
        (
            namespaced,
            vec![("/spec/grants/write/scale", grants(&[config_maps]).1)],
            "spec.serviceAccountName",
            "is missing: objects of spec.grants.",
        ),
        (
            namespaced,
            vec![account(), ("/spec/grants/write/scale", grants(&[["v1", "Node", "nodes"]]).1)],
            "spec.grants.write.scale[0].kind",
            "objects have no namespace",
        ),
        (namespaced, vec![account(), node], "spec.grants.read.objects[0].kind", "objects have no namespace"),
        (namespaced, vec![account(), twice], "spec.grants.read.objects[1].resource", "ConfigMap is granted with"),
        (namespaced, vec![inputs(&["a"], "ConfigMap")], "spec.serviceAccountName", "is missing: spec.inputs are read"),
        (
            namespaced,
            vec![account(), inputs(&["a"], "ConfigMap"), ("/spec/config", json!({ "inputs": 1 }))],
            "spec.config.inputs",
            "is the place of the objects of spec.inputs",
        ),
        (
            namespaced,
            vec![account(), inputs(&["a", "b", "a"], "ConfigMap")],
            "spec.inputs[2].id",
            "is the id of an input before",
        ),
        (
            namespaced,
            vec![account(), inputs(&["a"], "Node")],
            "spec.inputs[0].kind",
            "objects have no namespace, and inputs are",
        ),
        (
            namespaced,
            vec![("/spec/grants/write/objects", forced())],
            "spec.serviceAccountName",
            "is missing: force: true in",
        ),
        (
            namespaced,
            vec![account(), selected(json!({ "selector": { "matchExpressions": [long("a"), long("b"), long("c")] } }))],
            "spec.inputs[0].selector",
            "bytes of keys and values; at most 8192",
        ),
        (namespaced, vec![account(), selected(json!({}))], "spec.inputs[0]", "names no object; set name, or selector"),
        (
            namespaced,
            vec![account(), selected(json!({ "name": "a", "selector": {} }))],
            "spec.inputs[0]",
            "has name and selector; remove one",
        ),
        (
            namespaced,
            vec![
                account(),
                selected(json!({ "selector": { "matchExpressions": [{ "key": "a", "operator": "In" }] } })),
            ],
            "spec.inputs[0].selector.matchExpressions[0].values",
            "In and NotIn",
        ),
    ]
}

fn of_policies() -> Vec<Row> {
    let registry = |host: &str| json!({ "host": host });
    let plain = json!([{ "host": "a.example", "plainHttp": true, "caFile": "ca.pem" }]);
    let signed = json!({ "images": { "signatureRequired": true } });
    vec![
        (
            platform,
            vec![("/spec/registries", json!([registry("a.example"), registry("A.example")]))],
            "spec.registries[1].host",
            "is listed already",
        ),
        (platform, vec![("/spec/registries", plain)], "spec.registries[0].caFile", "is for https"),
        (platform, vec![("/spec/defaults", signed.clone())], "spec.defaults.images.signatureRequired", "needs a key"),
        (platform, vec![("/spec/cluster", signed.clone())], "spec.cluster.images.signatureRequired", "needs a key"),
        (
            platform,
            vec![("/spec/namespaces/shop", signed.clone())],
            "spec.namespaces.shop.images.signatureRequired",
            "needs a key",
        ),
        (
            platform,
            vec![
                ("/spec/defaults", json!({ "images": { "signatureRequired": true, "signatureKeys": [KEY] } })),
                ("/spec/cluster", json!({ "images": { "signatureKeys": [] } })),
            ],
            "spec.cluster.images.signatureKeys",
            "needs a key",
        ),
    ]
}

#[test]
fn each_rule_has_a_document_that_breaks_only_it() {
    let rows: Vec<Row> = [of_plugins(), of_runs(), of_inputs(), of_policies()].concat();
    for (document, changes, field, message) in &rows {
        let document = with(document(), changes);
        let found = problems(&document);
        // A policy among plugins has other mistakes too.
        let only = found.len() == 1 || *field == "kind";
        let expected = found.iter().any(|found| found.field == *field && found.message.contains(message));
        assert!(only && expected, "{document}: {found:?}, and not {field}: {message}");
    }
    // A new rule needs a row.
    let rules = include_str!("../rules.rs").matches(".problem(").count();
    let messages: std::collections::BTreeSet<&str> = rows.iter().map(|(_, _, _, message)| *message).collect();
    assert_eq!(messages.len(), rules, "messages of rows and rules: {messages:?}");
}

#[test]
fn the_neighbours_of_broken_rules_are_valid() {
    let whole = json!({ "images": { "signatureRequired": true, "signatureKeys": [KEY] } });
    let rows: Vec<Neighbours> = vec![
        (namespaced, vec![oci("s"), account()]),
        (namespaced, vec![("/spec/source", json!({ "oci": { "image": "a.example/a:1" } }))]),
        (cluster, vec![oci("s"), account(), account_namespace()]),
        (cluster, vec![config_map(), account(), account_namespace()]),
        (cluster, vec![script(&json!({ "inline": "1" }))]),
        (namespaced, vec![script(&json!({ "inline": "x".repeat(64 << 10) }))]),
        (namespaced, vec![script(&config_map().1)]),
        (
            namespaced,
            vec![script(&json!({ "inline": "1" })), ("/spec/limits", json!({ "reuse": 2, "reuseInterpreter": true }))],
        ),
        (cluster, vec![grants(&[["v1", "Namespace", "namespaces"]])]),
        (namespaced, vec![grants(&[["v1", "ConfigMap", "configmaps"], ["v1", "ConfigMap", "configmaps"]])]),
        (namespaced, vec![grants(&[["a.example/v1", "Namespace", "namespaces"]])]),
        (namespaced, vec![("/spec/watch/sections", json!(["lifecycle"]))]),
        (
            namespaced,
            vec![
                ("/spec/grants/read/pods/sections", json!(["full"])),
                ("/spec/watch/related", json!({ "by": "workload", "debounceSeconds": 3_600 })),
            ],
        ),
        (
            cluster,
            vec![
                ("/spec/grants/read/pods/sections", json!(["labels"])),
                ("/spec/watch/related", json!({ "by": "label", "label": "a.example/b" })),
            ],
        ),
        (
            namespaced,
            vec![
                ("/spec/grants/read/pods/sections", json!(["labels", "status"])),
                ("/spec/watch/sections", json!(["status"])),
            ],
        ),
        (namespaced, vec![labels(31), requirement("In", &["a"])]),
        (namespaced, vec![requirement("DoesNotExist", &[])]),
        (namespaced, vec![("/spec/limits", json!({ "cpuMillis": 10, "wallMillis": 10 }))]),
        (namespaced, vec![interpreter(2, true)]),
        (namespaced, vec![interpreter(1, false)]),
        (namespaced, vec![("/spec/config", json!({ "a": "x".repeat((64 << 10) - 8) }))]),
        (platform, vec![("/spec/registries", json!([{ "host": "a.example" }, { "host": "b.example" }]))]),
        (platform, vec![("/spec/registries", json!([{ "host": "a.example", "caFile": "ca.pem" }]))]),
        (
            platform,
            vec![("/spec/defaults", whole), ("/spec/cluster", json!({ "images": { "signatureRequired": true } }))],
        ),
    ];
    for (document, changes) in rows {
        let document = with(document(), &changes);
        assert_eq!(problems(&document), [], "{document}");
    }
}
