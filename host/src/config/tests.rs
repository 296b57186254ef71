use std::{fs, time::Duration};

use podium_vocabulary::{LimitClass, Phase, Scope};
use podium_wire::{Section, SectionSet};
use proptest::prelude::*;

use super::*;

const WHOLE: &str = r#"
apiVersion: podium.dev/v1alpha1
kind: ReconcilePlugin
metadata: { name: crashloop-triage, namespace: shop }
spec:
  source: { file: plugin.wasm }
  serviceAccountName: podium-crashloop
  watch: { selector: { matchLabels: { app: web } }, sections: [status], resyncSeconds: 600 }
  grants:
    read:  { pods: { sections: [labels, owners, status], live: true } }
    write: { labels: ["triage.shop.example/*"], annotations: [], finalizers: [], conditions: [],
      events: true, delete: false, evict: false,
      objects: [{ apiVersion: v1, kind: ConfigMap, resource: configmaps }] }
  limits: { class: interpreter, memoryMiB: 64, cpuMillis: 30, wallMillis: 3000,
    hostCalls: 500, writes: 10, logKiB: 4, reuse: 7, reuseInterpreter: true }
  phase: after
  after: []
  config: { threshold: 5, nested: { list: [a, 1.5, true, null] } }
"#;

/// Loads texts as files `0.yaml`, `1.yaml` beside a component.
fn load_texts(texts: &[&str]) -> Configurations {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("plugin.wasm"), b"").unwrap();
    for (index, text) in texts.iter().enumerate() {
        fs::write(directory.path().join(format!("{index}.yaml")), text).unwrap();
    }
    load(&[directory.path().to_owned()])
}

fn minimal(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: podium.dev/v1alpha1\nkind: ReconcilePlugin\nmetadata: {{ name: {name}, namespace: shop }}\nspec:\n\
        \x20 source: {{ file: plugin.wasm }}\n{spec}"
    )
}

/// The errors as `file:line: field: message`, without the directory.
fn errors(texts: &[&str]) -> Vec<String> {
    let loaded = load_texts(texts);
    let messages = |error: ConfigError| {
        let file = error.file.file_name().unwrap().into();
        ConfigError { file, ..error }.to_string()
    };
    loaded.errors.into_iter().map(messages).collect()
}

fn only_error(spec: &str) -> String {
    match &errors(&[&minimal("a", spec)])[..] {
        [error] => error.clone(),
        other => panic!("{other:#?}"),
    }
}

#[test]
fn the_documented_example_is_read_field_by_field() {
    let loaded = load_texts(&[WHOLE]);
    assert_eq!(loaded.errors, []);
    let spec = &loaded.plugins[0].spec;
    assert_eq!(spec.id.to_string(), "shop/crashloop-triage");
    assert_eq!(spec.scope(), Scope::Namespace("shop".into()));
    let file = spec.source.file().unwrap();
    assert!(file.ends_with("plugin.wasm") && file.is_absolute());
    assert_eq!(spec.impersonate.as_deref(), Some("system:serviceaccount:shop:podium-crashloop"));
    assert_eq!(spec.watch.sections, SectionSet::EMPTY.with(Section::Status));
    assert_eq!(spec.watch.resync, Some(Duration::from_secs(600)));
    assert!(spec.watch.selector.matches(&[("app".to_owned(), "web".to_owned())].into()));
    assert!(!spec.watch.selector.matches(&BTreeMap::new()));
    assert!(spec.grants.read.as_ref().is_some_and(|read| read.live));
    assert!(spec.grants.write.events && !spec.grants.write.delete);
    assert_eq!(spec.grants.write.objects[0].kind, "ConfigMap");
    assert_eq!((spec.limits.class, spec.limits.memory_bytes), (LimitClass::Interpreter, 64 << 20));
    assert_eq!((spec.limits.host_calls, spec.limits.writes, spec.limits.log_bytes), (500, 10, 4 << 10));
    assert_eq!(spec.limits.reuse, 7);
    assert_eq!(spec.limits.cpu, Duration::from_millis(30));
    assert_eq!(spec.phase, Phase::After);
    let config: serde_json::Value = serde_json::from_str(&spec.config).unwrap();
    assert_eq!(config, serde_json::json!({"threshold": 5, "nested": {"list": ["a", 1.5, true, null]}}));
}

#[test]
fn absent_fields_grant_nothing_and_watch_the_lifecycle() {
    let loaded = load_texts(&[&minimal("a", "")]);
    assert_eq!(loaded.errors, []);
    let spec = &loaded.plugins[0].spec;
    assert_eq!(spec.grants, podium_vocabulary::Grants::default());
    assert_eq!(spec.limits, podium_vocabulary::Limits::default());
    assert_eq!(spec.watch.sections, SectionSet::EMPTY.with(Section::Lifecycle));
    assert_eq!((&*spec.config, &spec.impersonate), ("{}", &None));
}

#[test]
fn every_error_names_file_line_field_and_the_next_step() {
    let table = [
        ("  colour: red", "0.yaml:6: spec.colour: is not a known field; known here: after, config, finalizers"),
        ("  limits: { memoryMb: 3 }", "0.yaml:6: spec.limits.memoryMb: is not a known field"),
        ("  limits:\n    memoryMiB: 0", "0.yaml:7: spec.limits.memoryMiB: must be a whole number from 1 to 256"),
        ("  limits:\n    memoryMiB: 257", "0.yaml:7: spec.limits.memoryMiB: must be a whole number from 1 to 256"),
        ("  limits: { cpuMillis: 1.5 }", "spec.limits.cpuMillis: must be a whole number from 1 to 10000"),
        ("  limits: { wallMillis: -1 }", "spec.limits.wallMillis: must be a whole number from 10 to 60000"),
        ("  limits: { hostCalls: many }", "spec.limits.hostCalls: must be a whole number from 1 to 1000000"),
        ("  limits: { writes: 1001 }", "spec.limits.writes: must be a whole number from 0 to 1000"),
        ("  limits: { logKiB: 1025 }", "spec.limits.logKiB: must be a whole number from 0 to 1024"),
        ("  limits: { cpuMillis: 100, wallMillis: 50 }", "spec.limits.cpuMillis: is more than wallMillis"),
        ("  limits: { reuse: 0 }", "spec.limits.reuse: must be a whole number from 1 to 1000"),
        ("  limits: { reuse: 1001 }", "spec.limits.reuse: must be a whole number from 1 to 1000"),
        ("  limits: { class: interpreter, reuse: 2 }", "spec.limits.reuse: is above 1 in class interpreter"),
        (
            "  limits: { class: interpreter, reuse: 2, reuseInterpreter: false }",
            "spec.limits.reuse: is above 1 in class interpreter",
        ),
        ("  limits: { class: huge }", "spec.limits.class: \"huge\" is not known; use one of native, interpreter"),
        ("  phase: late", "spec.phase: \"late\" is not known; use one of before, main, after"),
        ("  after: main", "spec.after: must be a list"),
        ("  config: 5", "spec.config: must be a mapping"),
        ("  serviceAccountName: A", "spec.serviceAccountName: \"A\" must consist of lower case"),
        ("  serviceAccountNamespace: a", "spec.serviceAccountNamespace: is for a ClusterReconcilePlugin; remove it"),
        ("  watch: { resyncSeconds: 1 }", "spec.watch.resyncSeconds: must be a whole number from 10 to 604800"),
        (
            "  watch: { sections: [status] }",
            "spec.watch.sections: status cannot be watched without being granted; add it to",
        ),
        ("  watch: { sections: [full] }", "spec.watch.sections: full cannot be watched without being granted"),
        ("  watch: { selector: { matchLabels: { a: b c } } }", "matchLabels.a: \"b c\" must consist of"),
        ("  watch: { selector: { matchLabels: { app: 1 } } }", "matchLabels.app: must be a text; put it in quotes"),
        ("  watch: { selector: { matchExpressions: [{ key: a, operator: In }] } }", "[0].values: In and NotIn need"),
        ("  watch: { selector: { matchExpressions: [{ key: a, operator: Exists, values: [b] }] } }", "take no values"),
        (
            "  watch: { selector: { matchExpressions: [{ key: a, operator: Near }] } }",
            "operator: \"Near\" is not known",
        ),
        ("  grants: { read: { pods: { sections: [body] } } }", "sections[0]: \"body\" is not known; use one of labels"),
        ("  grants: { read: { pods: { live: yes please } } }", "spec.grants.read.pods.live: must be true or false"),
        (
            "  grants: { write: { labels: ['*'] } }",
            "spec.grants.write.labels[0]: \"*\" may have a '*' only after a domain",
        ),
        ("  grants: { write: { labels: ['te*'] } }", "\"te*\" may have a '*' only after a domain"),
        ("  grants: { write: { labels: ['a.example/*/b'] } }", "may have a '*' only at its end"),
        ("  grants: { write: { labels: ['a.example/**'] } }", "may have a '*' only at its end"),
        ("  grants: { write: { labels: ['*/*'] } }", "may have a '*' only at its end"),
        ("  grants: { write: { labels: ['app.kubernetes.io/*'] } }", "keys are granted one by one"),
        ("  grants: { write: { labels: ['a b'] } }", "labels[0]: \"a b\" must be a name"),
        (
            "  grants: { write: { annotations: [kubectl.kubernetes.io/last-applied-configuration] } }",
            "belongs to kubectl",
        ),
        ("  grants: { write: { finalizers: [mine] } }", "must have a domain, such as"),
        ("  grants: { write: { conditions: [Ready] } }", "belongs to Kubernetes"),
        (
            "  grants: { write: { objects: [{ apiVersion: v1, kind: Pod, resource: a }] } }",
            "objects[0].kind: Pods are not written",
        ),
        (
            "  serviceAccountName: a\n  grants: { read: { objects: [{ apiVersion: v1, kind: Secret, resource: a }] } }",
            "read.objects[0].kind: Pods and Secrets are not read",
        ),
        (
            "  serviceAccountName: a\n  grants: { read: { objects: [{ apiVersion: v1, kind: A, resource: pods }] } }",
            "read.objects[0].resource: Pods and Secrets are not read",
        ),
        (
            "  grants: { read: { objects: [{ apiVersion: v1, kind: A, resource: a }] } }",
            "spec.serviceAccountName: is missing: objects of spec.grants.read.objects are read as this account",
        ),
        ("  grants: { write: { objects: [{ apiVersion: v1, resource: a }] } }", "objects[0].kind: is missing"),
        ("  grants: { write: { objects: [{ apiVersion: v1, kind: A }] } }", "objects[0].resource: is missing"),
        (
            "  grants: { write: { objects: [{ apiVersion: v1, kind: A, resource: pods }] } }",
            "objects[0].resource: Pods are not written",
        ),
        (
            "  grants: { write: { objects: [{ apiVersion: a/b/c, kind: A, resource: a }] } }",
            "objects[0].apiVersion: \"a/b/c\" must be",
        ),
    ];
    for (spec, expected) in table {
        let error = only_error(spec);
        assert!(error.starts_with("0.yaml:") && error.contains(expected), "{spec}\n{error}");
    }
}

#[test]
fn a_selector_has_the_same_bounds_as_a_query() {
    let exists = |count: usize| (0..count).map(|at| format!("{{ key: k{at}, operator: Exists }}")).collect::<Vec<_>>();
    let requirements = |count| format!("matchLabels: {{ app: web }}, matchExpressions: [{}]", exists(count).join(", "));
    let values = |operator: &str, count: usize| {
        let values: Vec<String> = (0..count).map(|at| format!("v{at}")).collect();
        format!("matchExpressions: [{{ key: a, operator: {operator}, values: [{}] }}]", values.join(", "))
    };
    let spec = |selector: &str| format!("  watch:\n    selector: {{ {selector} }}");
    for selector in [requirements(31), values("In", 64), values("NotIn", 64)] {
        assert_eq!(errors(&[&minimal("a", &spec(&selector))]), Vec::<String>::new());
    }
    let requirements = only_error(&spec(&requirements(32)));
    let expected = "spec.watch.selector: has 33 requirements, labels and expressions together; at most 32";
    assert!(requirements.starts_with("0.yaml:7: ") && requirements.contains(expected), "{requirements}");
    for operator in ["In", "NotIn"] {
        let values = only_error(&spec(&values(operator, 65)));
        let expected = "0.yaml:7: spec.watch.selector.matchExpressions[0].values: has 65 values; at most 64";
        assert!(values.contains(expected), "{values}");
    }
}

#[test]
fn all_mistakes_of_a_document_are_reported_at_once() {
    let messages = errors(&[&minimal("A", "  phase: late\n  colour: red")]);
    assert_eq!(messages.len(), 3, "{messages:#?}");
}

#[test]
fn kind_metadata_and_source_are_checked() {
    let table = [
        ("kind: ReconcilePlugin", "kind: Plugin", "kind: \"Plugin\" is not known; use one of ReconcilePlugin, Cluster"),
        ("kind: ReconcilePlugin\n", "", "kind: is missing"),
        ("podium.dev/v1alpha1", "podium.dev/v2", "apiVersion: must be podium.dev/v1alpha1"),
        (", namespace: shop", "", "metadata.namespace: is missing: a ReconcilePlugin lives in a namespace"),
        ("kind: Rec", "kind: ClusterRec", "metadata.namespace: a ClusterReconcilePlugin has no namespace"),
        ("name: a,", "", "metadata.name: is missing"),
        ("file: plugin.wasm", "", "spec.source.file: is missing"),
        ("file: plugin.wasm", "configMap: { name: a, key: a, sha256: a }", "spec.source.configMap.sha256: "),
        (
            "file: plugin.wasm",
            "oci: { image: a }",
            "spec.source.oci.image: \"a\" must begin with the host of a registry",
        ),
        ("file: plugin.wasm", "file: a.wasm, oci: { image: a.example/b:1 }", "spec.source: has more than one place"),
    ];
    for (from, to, expected) in table {
        let messages = errors(&[&minimal("a", "").replace(from, to)]);
        assert!(messages.len() == 1 && messages[0].contains(expected), "{to}: {messages:#?}");
    }
}

#[test]
fn a_kind_without_namespaces_is_granted_to_cluster_plugins_only() {
    let grants = |api_version: &str, kind: &str, resource: &str| {
        format!(
            "  grants:\n    write:\n      objects:\n        - apiVersion: {api_version}\n          kind: {kind}\n\
             \x20         resource: {resource}"
        )
    };
    let rbac = "rbac.authorization.k8s.io/v1";
    let admission = "admissionregistration.k8s.io/v1";
    for (api_version, kind, resource) in [
        ("v1", "Namespace", "namespaces"),
        ("v1", "Node", "nodes"),
        ("v1", "PersistentVolume", "persistentvolumes"),
        (rbac, "ClusterRole", "clusterroles"),
        (rbac, "ClusterRoleBinding", "clusterrolebindings"),
        ("rbac.authorization.k8s.io/v1beta1", "ClusterRole", "clusterroles"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions"),
        (admission, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
        (admission, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
        ("storage.k8s.io/v1", "StorageClass", "storageclasses"),
        ("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses"),
        // Writes go to the resource, whatever the kind is called.
        (rbac, "Role", "clusterroles"),
        (rbac, "ClusterRole", "roles"),
    ] {
        let error = only_error(&grants(api_version, kind, resource));
        let (line, field, named) = match kind {
            "Role" => (11, "resource", "ClusterRole"),
            _ => (10, "kind", kind),
        };
        let expected =
            format!("0.yaml:{line}: spec.grants.write.objects[0].{field}: {named} objects have no namespace");
        assert!(error.starts_with(&expected) && error.contains("use ClusterReconcilePlugin"), "{kind}: {error}");
        let cluster = minimal("a", &grants(api_version, kind, resource)).replace("kind: Rec", "kind: ClusterRec");
        assert_eq!(errors(&[&cluster.replace(", namespace: shop", "")]), Vec::<String>::new(), "{kind}");
    }
    for (api_version, kind, resource) in
        [("v1", "ConfigMap", "configmaps"), (rbac, "Role", "roles"), ("shop.example/v1", "Node", "nodes")]
    {
        assert_eq!(errors(&[&minimal("a", &grants(api_version, kind, resource))]), Vec::<String>::new(), "{kind}");
    }
}

#[test]
fn a_cluster_plugin_names_the_namespace_of_its_account() {
    let cluster =
        |spec: &str| minimal("a", spec).replace("kind: Rec", "kind: ClusterRec").replace(", namespace: shop", "");
    let loaded = load_texts(&[&cluster("  serviceAccountName: a\n  serviceAccountNamespace: ops")]);
    assert_eq!(loaded.plugins[0].spec.impersonate.as_deref(), Some("system:serviceaccount:ops:a"));
    assert_eq!(loaded.plugins[0].spec.scope(), Scope::Cluster);
    let messages = errors(&[&cluster("  serviceAccountName: a")]);
    assert!(
        messages[0]
            .contains("spec.serviceAccountNamespace: serviceAccountName and serviceAccountNamespace go together")
    );
}

#[test]
fn one_bad_document_leaves_the_others_in_its_file_and_directory() {
    let two = format!("{}\n---\n{}\n---\n", minimal("a", ""), minimal("b", "  phase: late"));
    let loaded = load_texts(&[&two, "a: [", &minimal("c", "")]);
    let names: Vec<String> = loaded.plugins.iter().map(|plugin| plugin.spec.id.to_string()).collect();
    assert_eq!(names, ["shop/a", "shop/c"]);
    assert_eq!(loaded.errors.len(), 2);
    assert!(loaded.errors[1].message.starts_with("is not valid YAML: "), "{}", loaded.errors[1]);
}

#[test]
fn a_duplicate_key_and_a_document_without_a_mapping_are_errors() {
    assert!(errors(&[&minimal("a", "  phase: main\n  phase: main")])[0].contains("spec.phase: is there twice"));
    assert!(!errors(&["just text"]).is_empty());
}

#[test]
fn a_merge_key_is_refused_with_its_line() {
    let messages = only_error("  grants: { write: { <<: { delete: true } } }");
    assert!(messages.starts_with("0.yaml:6: has a merge key"), "{messages}");
    let messages = only_error("  grants: { write: { '<<': { delete: true } } }");
    assert!(messages.contains("spec.grants.write.<<: is not a known field"), "{messages}");
}

#[test]
fn the_expansion_of_aliases_is_bounded() {
    let lines = |aliases: usize| {
        let text = "x".repeat(1_000);
        format!("  config:\n    one: &one \"{text}\"\n    many: [{}]", vec!["*one"; aliases].join(", "))
    };
    let loaded = load_texts(&[&minimal("a", &lines(60))]);
    assert!(loaded.errors.is_empty() && loaded.plugins[0].spec.config.len() > 60_000, "{:?}", loaded.errors);
    let messages = only_error(&lines(66));
    assert!(messages.contains("spec.config: has 67") && messages.contains("at most 65536"), "{messages}");
    let messages = only_error(&lines(3_000));
    assert!(messages.contains("has more than 2 MiB of text"), "as a whole: {messages}");
}

#[test]
fn no_text_of_a_file_makes_an_error_long_or_of_two_lines() {
    let long = "y".repeat(5_000);
    for hostile in ["a\\nERROR forged", "a\\u001b[2Jb", "a\\u202eb", "a\\u2028b", &long] {
        for spec in [
            format!("  \"{hostile}\": 1"),
            format!("  phase: \"{hostile}\""),
            format!("  after: [\"{hostile}\"]\n  watch: {{ sections: [\"{hostile}\"] }}"),
            format!("  watch: {{ selector: {{ matchLabels: {{ \"{hostile}\": \"{hostile}\" }} }} }}"),
            format!("  config: *\"{hostile}\""),
        ] {
            for messages in errors(&[&minimal("a", &spec)]) {
                assert!(!messages.chars().any(|character| character.is_control()), "{messages:?}");
                assert!(!messages.contains(['\u{202e}', '\u{2028}']), "{messages:?}");
                assert!(messages.len() < 2_400, "{} bytes: {messages}", messages.len());
            }
        }
    }
}

#[test]
fn a_plugin_defined_twice_is_kept_once_and_both_files_are_named() {
    let messages = errors(&[&minimal("a", ""), &minimal("a", "")]);
    assert!(messages.len() == 1 && messages[0].starts_with("1.yaml:3: metadata.name: shop/a is already defined in"));
    assert!(messages[0].contains("0.yaml"), "{messages:?}");
}

#[test]
fn a_cycle_is_named_and_affects_no_other_plugin() {
    let after = |name: &str, after: &str| minimal(name, &format!("  after: [{after}]"));
    let texts = [after("a", "b"), after("b", "c"), after("c", "a"), after("d", "a"), after("e", "e")];
    let loaded = load_texts(&texts.each_ref().map(String::as_str));
    assert_eq!(loaded.plugins.len(), 1);
    assert_eq!(&*loaded.plugins[0].spec.id.name, "d");
    let messages: Vec<&str> = loaded.errors.iter().map(|error| &*error.message).collect();
    assert!(messages[0].contains("shop/a after shop/b after shop/c after shop/a"), "{messages:?}");
    assert!(messages[3].contains("shop/e after shop/e"), "{messages:?}");
}

#[test]
fn an_unknown_name_in_after_is_a_warning() {
    let loaded = load_texts(&[&minimal("a", "  after: [absent]")]);
    assert_eq!((loaded.plugins.len(), loaded.errors.len()), (1, 0));
    assert!(loaded.warnings[0].to_string().contains("spec.after: names shop/absent, which is not configured"));
}

#[test]
fn a_missing_path_and_a_huge_file_are_errors() {
    let loaded = load(&[PathBuf::from("nowhere/at/all.yaml")]);
    assert!(loaded.errors[0].to_string().starts_with("nowhere/at/all.yaml: cannot be read: "));
    let huge = "#".repeat(1 << 21);
    assert!(errors(&[&huge])[0].contains("at most 1048576 are read"));
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_an_error_or_a_plugin_but_never_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let text = String::from_utf8_lossy(&bytes);
        parse(Path::new("a.yaml"), None, &text, &mut Vec::new(), &mut Vec::new());
    }

    #[test]
    fn an_edited_example_is_an_error_or_a_plugin_but_never_a_panic(
        at in 0..WHOLE.len(), cut in 0..40_usize, insert in "[-a-z0-9:{}\\[\\]*&!|>'\"# \n]{0,8}",
    ) {
        let end = (at + cut).min(WHOLE.len());
        let text = format!("{}{insert}{}", &WHOLE[..at], &WHOLE[end..]);
        parse(Path::new("a.yaml"), None, &text, &mut Vec::new(), &mut Vec::new());
    }
}
