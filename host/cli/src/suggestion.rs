//! A first plugin.yaml for the imports of a component. A component does not contain the keys that a plugin writes, so
//! the author has to add them; this is printed and never used.

use podium_vocabulary::Grants;

use crate::build::{Built, Import};

/// Grants below `write`, an example of each, and the functions of the interface `writes` that need it.
const WRITES: [(&str, &str, &[&str]); 7] = [
    ("labels", "[example.com/my-label]", &["set-label", "remove-label"]),
    ("annotations", "[example.com/my-annotation]", &["set-annotation", "remove-annotation"]),
    ("finalizers", "[example.com/my-finalizer]", &["add-finalizer", "remove-finalizer"]),
    ("conditions", "[example.com/MyCondition]", &["set-condition", "remove-condition"]),
    ("delete", "true", &["delete-pod"]),
    ("evict", "true", &["evict-pod"]),
    ("objects", "[{ apiVersion: v1, kind: ConfigMap, resource: configmaps }]", &["apply-object", "delete-object"]),
];

fn uses(imports: &[Import], interface: &str, functions: &[&str]) -> bool {
    let named = |import: &&Import| {
        import.interface.strip_prefix("podium:reconcile/").and_then(|rest| rest.split('@').next()) == Some(interface)
    };
    let imported = imports.iter().filter(named).flat_map(|import| &import.functions);
    imported.into_iter().any(|function| functions.contains(&function.as_str()))
}

fn reads_live(imports: &[Import]) -> bool {
    uses(imports, "pods", &["get-live"]) || uses(imports, "pods-json", &["get-live"])
}

/// Returns the fields below `spec.grants` that are granted and that no import needs.
pub(crate) fn unused(grants: &Grants, imports: &[Import]) -> Vec<String> {
    let write = &grants.write;
    let granted = [
        !write.labels.is_empty(),
        !write.annotations.is_empty(),
        !write.finalizers.is_empty(),
        !write.conditions.is_empty(),
        write.delete,
        write.evict,
        !write.objects.is_empty(),
    ];
    let unused = WRITES.iter().zip(granted).filter(|((.., functions), is)| *is && !uses(imports, "writes", functions));
    let mut fields: Vec<_> = unused.map(|((field, ..), _)| format!("write.{field}")).collect();
    fields.extend((write.events && !uses(imports, "events", &["emit"])).then(|| "write.events".to_owned()));
    let live = grants.read.as_ref().is_some_and(|read| read.live);
    fields.extend((live && !reads_live(imports)).then(|| "read.pods.live".to_owned()));
    fields
}

/// Returns the text of a configuration that grants exactly the imports, with keys to be filled in.
pub(crate) fn for_component(built: &Built) -> String {
    let mut grants = Vec::new();
    for (grant, value, functions) in WRITES {
        if uses(&built.imports, "writes", functions) {
            grants.push(format!("      {grant}: {value}\n"));
        }
    }
    if uses(&built.imports, "events", &["emit"]) {
        grants.push("      events: true\n".to_owned());
    }
    let live = if reads_live(&built.imports) { ", live: true" } else { "" };
    let write = if grants.is_empty() { String::new() } else { format!("    write:\n{}", grants.concat()) };
    let file = built.component.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let file = if file.bytes().all(is_plain) { file } else { format!("{file:?}") };
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
    fn the_host_accepts_the_suggestion_unchanged() {
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
