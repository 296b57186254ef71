//! A plugin.yaml to begin with, from what a component imports. Which keys a plugin writes is nowhere in a component, so
//! the author has the last word, and this is printed, never used.

use crate::build::{Built, Import};

/// Returns the text of a configuration that grants exactly the imports, with keys to be filled in.
pub(crate) fn for_component(built: &Built) -> String {
    let uses = |interface: &str, functions: &[&str]| {
        let named = |import: &&Import| {
            import.interface.strip_prefix("podium:reconcile/").and_then(|rest| rest.split('@').next())
                == Some(interface)
        };
        let imported = built.imports.iter().filter(named).flat_map(|import| &import.functions);
        imported.into_iter().any(|function| functions.contains(&function.as_str()))
    };
    let mut grants = Vec::new();
    for (grant, value, functions) in [
        ("labels", "[example.com/my-label]", ["set-label", "remove-label"].as_slice()),
        ("annotations", "[example.com/my-annotation]", &["set-annotation", "remove-annotation"]),
        ("finalizers", "[example.com/my-finalizer]", &["add-finalizer", "remove-finalizer"]),
        ("conditions", "[example.com/MyCondition]", &["set-condition", "remove-condition"]),
        ("delete", "true", &["delete-pod"]),
        ("evict", "true", &["evict-pod"]),
        ("objects", "[{ apiVersion: v1, kind: ConfigMap, resource: configmaps }]", &["apply-object", "delete-object"]),
    ] {
        if uses("writes", functions) {
            grants.push(format!("      {grant}: {value}\n"));
        }
    }
    if uses("events", &["emit"]) {
        grants.push("      events: true\n".to_owned());
    }
    let live = if uses("pods", &["get-live"]) || uses("pods-json", &["get-live"]) { ", live: true" } else { "" };
    let write = if grants.is_empty() { String::new() } else { format!("    write:\n{}", grants.concat()) };
    let file = built.component.file_name().unwrap_or_default().to_string_lossy();
    format!(
        "apiVersion: podium.dev/v1alpha1\nkind: ClusterReconcilePlugin\nmetadata: {{ name: {} }}\nspec:\n  \
         source: {{ file: {file} }}\n  watch: {{ sections: [labels] }}\n  grants:\n    \
         read: {{ pods: {{ sections: [labels]{live} }} }}\n{write}",
        built.name
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(functions: &[(&str, &[&str])]) -> Built {
        let import = |(interface, functions): &(&str, &[&str])| Import {
            interface: format!("podium:reconcile/{interface}@0.1.0"),
            functions: functions.iter().map(|&function| function.to_owned()).collect(),
        };
        Built {
            name: "hello".into(),
            component: "target/podium/hello.wasm".into(),
            bytes: 1,
            imports: functions.iter().map(import).collect(),
            exports: Vec::new(),
        }
    }

    #[test]
    fn only_imports_are_granted() {
        let text = for_component(&built(&[("writes", &["set-label", "delete-pod"]), ("events", &["emit"])]));
        for grant in ["labels: [example.com/my-label]", "delete: true", "events: true"] {
            assert!(text.contains(grant), "{grant} in {text}");
        }
        for grant in ["annotations", "evict", "objects", "live"] {
            assert!(!text.contains(grant), "{grant} in {text}");
        }
    }

    #[test]
    fn the_host_takes_it_as_it_is() {
        let every = [
            "set-label",
            "set-annotation",
            "add-finalizer",
            "set-condition",
            "delete-pod",
            "evict-pod",
            "apply-object",
        ];
        for imports in [vec![], vec![("writes", every.as_slice()), ("events", &["emit"]), ("pods", &["get-live"])]] {
            let folder = tempfile::tempdir().unwrap();
            let (file, component) = (folder.path().join("plugin.yaml"), folder.path().join("hello.wasm"));
            std::fs::write(&file, for_component(&built(&imports))).unwrap();
            std::fs::write(&component, "").unwrap();
            let specs = crate::plugin::specs(&file, &component).unwrap();
            assert_eq!(specs[0].spec.grants.write.events, !imports.is_empty());
        }
    }
}
