//! Objects that must not be applied or deleted.

use bindings::{
    types::{ObjectOwner, ObjectRef, PodKey},
    writes,
};

use crate::{Attack, foreign, tally::Tally, tricks};

pub const ATTACKS: &[(&str, Attack)] = &[
    ("apply-kinds-without-a-grant", |_, tally| {
        for (api_version, kind) in [
            ("v1", "Secret"),
            ("v1", "Pod"),
            ("v1", "Namespace"),
            ("v1", "Node"),
            ("v2", "ConfigMap"),
            ("apps/v1", "ConfigMap"),
            ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
            ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
        ] {
            apply(tally, &object(api_version, kind, "\"namespace\":\"shop\",\"name\":\"a\""));
        }
        None
    }),
    ("apply-lists", |_, tally| {
        let item = object("v1", "ConfigMap", "\"namespace\":\"bank\",\"name\":\"a\"");
        for kind in ["List", "ConfigMapList", "PodList"] {
            apply(tally, &format!("{{\"apiVersion\":\"v1\",\"kind\":\"{kind}\",\"items\":[{item}]}}"));
            let named = "\"metadata\":{\"namespace\":\"shop\",\"name\":\"a\"}";
            apply(tally, &format!("{{\"apiVersion\":\"v1\",\"kind\":\"{kind}\",{named},\"items\":[{item}]}}"));
        }
        apply(tally, &format!("[{item}]"));
        None
    }),
    ("apply-subresources", |_, tally| {
        for (api_version, kind, name) in [
            ("v1", "ConfigMap/status", "a"),
            ("v1", "ConfigMap", "a/status"),
            ("v1", "ConfigMap", "a/../../secrets/b"),
            ("v1", "ConfigMap", "a?force=true"),
            ("v1", "ConfigMap", "a%2fstatus"),
            ("v1/configmaps", "ConfigMap", "a"),
            ("v1/../..", "ConfigMap", "a"),
            ("", "ConfigMap", "a"),
            ("V1", "ConfigMap", "a"),
            (" v1", "ConfigMap", "a"),
            ("v1", "configMap", "a"),
            ("v1", "CONFIGMAP", "a"),
            ("policy/v1", "Eviction", "cart-0"),
            ("autoscaling/v1", "Scale", "a"),
        ] {
            apply(tally, &object(api_version, kind, &format!("\"namespace\":\"shop\",\"name\":\"{name}\"")));
        }
        None
    }),
    ("apply-into-other-namespaces", |_, tally| {
        for namespace in ["\"bank\"", "\"\"", "null", "7", "[\"shop\"]", "\"SHOP\"", "\"shop \"", "\"shop/../bank\""] {
            apply(tally, &object("v1", "ConfigMap", &format!("\"namespace\":{namespace},\"name\":\"a\"")));
        }
        apply(tally, &object("v1", "ConfigMap", "\"name\":\"a\""));
        None
    }),
    ("apply-names-with-paths", |_, tally| {
        for trick in tricks() {
            let name: String = trick.chars().map(|letter| format!("\\u{:04x}", letter as u32)).collect();
            apply(tally, &object("v1", "ConfigMap", &format!("\"namespace\":\"shop\",\"name\":\"{name}\"")));
        }
        None
    }),
    ("apply-a-cluster-scoped-kind", |_, tally| {
        for namespace in ["", "\"namespace\":\"bank\",", "\"namespace\":\"\","] {
            apply(tally, &object("v1", "Namespace", &format!("{namespace}\"name\":\"a\"")));
        }
        let object =
            ObjectRef { api_version: "v1".into(), kind: "Namespace".into(), namespace: None, name: "bank".into() };
        tally.add(writes::delete_object(&object, None));
        None
    }),
    ("apply-with-duplicate-keys", |_, tally| {
        for text in [
            r#"{"apiVersion":"v1","kind":"ConfigMap","kind":"Secret","metadata":{"namespace":"shop","name":"a"}}"#,
            r#"{"apiVersion":"v1","kind":"ConfigMap","\u006bind":"Secret","metadata":{"namespace":"shop","name":"a"}}"#,
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"shop","namespace":"bank","name":"a"}}"#,
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"shop","name":"a"},"metadata":{}}"#,
            "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"namespace\":\"shop\",\"name\":\"a\"},\
            \"data\":{\"a\":\"\",\"a\":\"\"}}",
        ] {
            apply(tally, text);
        }
        None
    }),
    ("apply-deep-objects", |_, tally| {
        for depth in [101, 127, 200, 20_000, 200_000] {
            apply(tally, &with(&format!("\"data\":{}{}", "[".repeat(depth), "]".repeat(depth))));
        }
        None
    }),
    ("apply-directives-of-patches", |_, tally| {
        for directive in ["$patch", "$retainKeys", "$setElementOrder/finalizers", "$deleteFromPrimitiveList/x"] {
            apply(tally, &with(&format!("\"{directive}\":\"replace\"")));
            apply(tally, &with(&format!("\"data\":{{\"a\":{{\"{directive}\":[]}}}}")));
        }
        None
    }),
    ("apply-names-reserved-by-the-parser", |_, tally| {
        apply(tally, &with(r#""data":{"$serde_json::private::RawValue":"[[[[]]]]"}"#));
        apply(tally, &with(r#""data":{"$serde_json::private::Number":"1e9"}"#));
        None
    }),
    ("apply-numbers-out-of-range", |_, tally| {
        for number in ["1e999", "-1e999", "18446744073709551616", "-9223372036854775809", "NaN", "Infinity", "0x10"] {
            apply(tally, &with(&format!("\"data\":{{\"a\":{number}}}")));
        }
        None
    }),
    ("apply-text-that-is-no-json", |_, tally| {
        for text in ["", "{", "null", "7", "\"v1\"", "apiVersion: v1", "\u{feff}{}", "{}", "{} {}"] {
            apply(tally, text);
        }
        for text in ["{\"a\":\"\n\"}", "\0"] {
            apply(tally, text);
        }
        None
    }),
    ("apply-metadata-of-others", |_, tally| {
        for field in [
            "\"uid\":\"a\"",
            "\"resourceVersion\":\"1\"",
            "\"generateName\":\"a\"",
            "\"managedFields\":[]",
            "\"ownerReferences\":[{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"vault-0\",\"uid\":\"x\"}]",
            "\"deletionTimestamp\":\"2026-01-01T00:00:00Z\"",
            "\"creationTimestamp\":null",
            "\"selfLink\":\"/api\"",
            "\"generation\":1",
        ] {
            apply(tally, &object("v1", "ConfigMap", &format!("\"namespace\":\"shop\",\"name\":\"a\",{field}")));
        }
        apply(tally, &with("\"status\":{}"));
        None
    }),
    ("apply-finalizers-of-others", |_, tally| {
        for field in [
            "\"finalizers\":[\"bank.example/hold\"]",
            "\"finalizers\":[\"kubernetes.io/pvc-protection\"]",
            "\"labels\":{\"app.kubernetes.io/managed-by\":\"Helm\"}",
            "\"annotations\":{\"kubectl.kubernetes.io/last-applied-configuration\":\"{}\"}",
            "\"annotations\":{\"podium.dev/applied-x\":\"1\"}",
        ] {
            apply(tally, &object("v1", "ConfigMap", &format!("\"namespace\":\"shop\",\"name\":\"a\",{field}")));
        }
        let template = "\"data\":{\"template\":{\"metadata\":{\"finalizers\":[\"bank.example/hold\"]}}}";
        apply(tally, &with(template));
        None
    }),
    ("apply-with-owners-elsewhere", |_, tally| {
        for owner in [
            foreign(),
            PodKey { namespace: "../shop".into(), ..foreign() },
            PodKey { namespace: "shop".into(), name: "../cart-0".into(), uid: "x".into() },
            PodKey { namespace: "shop".into(), name: "cart-0".into(), uid: String::new() },
        ] {
            for owner in [ObjectOwner::Pod(owner.clone()), ObjectOwner::Workload(owner)] {
                tally.add(writes::apply_object(&with("\"data\":{}"), Some(&owner)));
            }
        }
        None
    }),
    ("apply-with-an-owner-that-never-was", |_, tally| {
        let owner = PodKey { namespace: "shop".into(), name: "cart-0".into(), uid: "dead".into() };
        tally.add(writes::apply_object(&with("\"data\":{}"), Some(&ObjectOwner::Pod(owner))));
        Some(Ok(bindings::Outcome::Settled))
    }),
    ("apply-huge-objects", |_, tally| {
        let value = "x".repeat(1_048_000);
        for _ in 0..4 {
            apply(tally, &with(&format!("\"data\":{{\"a\":\"{value}\"}}")));
        }
        None
    }),
    ("apply-objects-of-many-values", |_, tally| {
        let zeros = vec!["0"; 19_900].join(",");
        for _ in 0..3 {
            apply(tally, &with(&format!("\"data\":[{zeros}]")));
        }
        None
    }),
    ("delete-objects-of-others", |_, tally| {
        for (kind, namespace, name) in [
            ("Pod", Some("shop"), "cart-1"),
            ("ConfigMap", Some("bank"), "a"),
            ("ConfigMap", None, "a"),
            ("configMap", Some("shop"), "a"),
            ("ConfigMap", Some("shop"), "../../bank/configmaps/a"),
            ("ConfigMap", Some(""), "a"),
            ("ConfigMap", Some("shop"), ""),
            ("Secret", Some("shop"), "a"),
        ] {
            let object = ObjectRef {
                api_version: "v1".into(),
                kind: kind.into(),
                namespace: namespace.map(Into::into),
                name: name.into(),
            };
            tally.add(writes::delete_object(&object, None));
        }
        None
    }),
];

fn apply(tally: &mut Tally, text: &str) {
    tally.add(writes::apply_object(text, None));
}

fn object(api_version: &str, kind: &str, metadata: &str) -> String {
    format!("{{\"apiVersion\":\"{api_version}\",\"kind\":\"{kind}\",\"metadata\":{{{metadata}}}}}")
}

/// A ConfigMap of the guest's own namespace with a further member.
fn with(member: &str) -> String {
    let own = object("v1", "ConfigMap", "\"namespace\":\"shop\",\"name\":\"a\"");
    format!("{},{member}}}", own.trim_end_matches('}').to_owned() + "}")
}
