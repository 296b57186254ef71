//! Names of fields within `spec.config`.

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
