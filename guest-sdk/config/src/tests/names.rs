//! Names of fields within `spec.config`, and of finalizers.

use crate::plugins;

#[test]
fn a_name_that_serde_json_would_parse_as_json_is_refused() {
    let read = |config: &str| {
        let yaml = format!(
            "apiVersion: podium.dev/v1alpha1\nkind: ReconcilePlugin\nmetadata: {{ namespace: shop, name: a }}\n\
             spec:\n  source: {{ file: a.wasm }}\n  config: {config}"
        );
        plugins(&yaml).unwrap().remove(0).content
    };
    assert!(read(r#"{ "$serde_json": "[1]", a: [{ b: "[1]" }] }"#).is_ok());
    for (config, field) in [
        (r#"{ "$serde_json::private::RawValue": "[1]" }"#, ""),
        (r#"{ a: { "$serde_json::private::RawValue": "[1]" } }"#, ".a"),
        (r#"{ a: [0, { b: { "$serde_json::private::Number": "1" } }] }"#, ".a[1].b"),
    ] {
        let problems = read(config).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].field.starts_with(&format!("spec.config{field}.$serde_json::private::")), "{problems:?}");
        assert!(problems[0].message.starts_with("is a name that"), "{problems:?}");
    }
}

#[test]
fn finalizers_of_kubernetes_and_of_the_host_cannot_be_granted() {
    let read = |finalizer: &str| {
        let yaml = format!(
            "apiVersion: podium.dev/v1alpha1\nkind: ReconcilePlugin\nmetadata: {{ namespace: shop, name: a }}\n\
             spec:\n  source: {{ file: a.wasm }}\n  grants: {{ write: {{ finalizers: ['{finalizer}'] }} }}"
        );
        plugins(&yaml).unwrap().remove(0).content.map(drop)
    };
    for own in ["shop.example/a", "shop.example/*", "kubernetes.io.example/a", "notk8s.io/a", "a.podium.dev/a"] {
        assert_eq!(read(own), Ok(()), "{own}");
    }
    let domains = ["kubernetes.io", "batch.kubernetes.io", "k8s.io", "a.b.k8s.io", "podium.dev"];
    for finalizer in domains.iter().flat_map(|domain| ["a", "*", "a*"].map(|name| format!("{domain}/{name}"))) {
        let problems = read(&finalizer).unwrap_err();
        let [problem] = &problems[..] else { unreachable!("{finalizer}: {problems:?}") };
        let begin = format!("\"{finalizer}\" is of a domain of Kubernetes or of the host");
        assert!(problem.message.starts_with(&begin), "{problem:?}");
        assert!(problem.message.contains("name one of your own domain, such as shop.example/cleanup"), "{problem:?}");
        // Earlier versions granted it.
        let command = format!("jq '.metadata.finalizers -= [\"{finalizer}\"]' | kubectl replace -f -");
        assert_eq!(problem.message.ends_with(&command), !finalizer.ends_with('*'), "{problem:?}");
    }
    // A text that is no name is in no command.
    let problems = read("k8s.io/$(a)").unwrap_err();
    assert!(!problems[0].message.contains("kubectl"), "{problems:?}");
}
