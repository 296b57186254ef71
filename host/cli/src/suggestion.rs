//! A first plugin.yaml for the imports of a component. A component does not contain the keys that a plugin writes, so
//! the author has to add them; this is printed and never used.

use podium_vocabulary::{Function, Grant, Grants, PACKAGE};

use crate::build::{Built, Import};

/// Returns true if a function that needs the grant is imported.
fn uses(imports: &[Import], grant: Grant) -> bool {
    imports.iter().any(|import| {
        let interface = import.interface.strip_prefix(PACKAGE).and_then(|rest| rest.split('@').next());
        let functions = import.functions.iter().filter_map(|name| Function::by_name(interface?, name));
        functions.into_iter().any(|function| function.grant() == Some(grant))
    })
}

/// Returns the fields below `spec.grants` that are granted and that no import needs.
pub(crate) fn unused(grants: &Grants, imports: &[Import]) -> Vec<&'static str> {
    let granted = Grant::ALL.into_iter().filter(|grant| *grant != Grant::Read && grant.is_in(grants));
    granted.filter(|grant| !uses(imports, *grant)).map(Grant::field).collect()
}

/// Returns the text of a configuration that grants exactly the imports, with keys to be filled in.
pub(crate) fn for_component(built: &Built) -> String {
    let used = Grant::ALL.into_iter().filter(|grant| uses(&built.imports, *grant));
    let writes = used.filter_map(|grant| Some((grant.field().strip_prefix("write.")?, grant.example())));
    let grants: Vec<_> = writes.map(|(field, example)| format!("      {field}: {example}\n")).collect();
    let live = if uses(&built.imports, Grant::Live) { ", live: true" } else { "" };
    let reads = uses(&built.imports, Grant::ReadObjects);
    let objects = if reads { format!(", objects: {}", Grant::ReadObjects.example()) } else { String::new() };
    // Objects are read and scaled as an account, and never as the host's.
    let account = if reads || uses(&built.imports, Grant::Scale) {
        format!("  serviceAccountName: {}\n  serviceAccountNamespace: default\n", built.name)
    } else {
        String::new()
    };
    let write = if grants.is_empty() { String::new() } else { format!("    write:\n{}", grants.concat()) };
    let file = built.component.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let file = if file.bytes().all(is_plain) { file } else { format!("{file:?}") };
    format!(
        "apiVersion: podium.dev/v1alpha1\nkind: ClusterReconcilePlugin\nmetadata: {{ name: {} }}\nspec:\n  \
         source: {{ file: {file} }}\n{account}  watch: {{ sections: [labels] }}\n  grants:\n    \
         read: {{ pods: {{ sections: [labels]{live} }}{objects} }}\n{write}",
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
        let all = [
            ("writes", every.as_slice()),
            ("events", &["emit"]),
            ("pods", &["get-live"]),
            ("objects", &["get", "scale"]),
        ];
        for imports in [vec![], all.to_vec()] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("plugin.yaml");
            let component = folder.path().join("hello.wasm");
            std::fs::write(&file, for_component(&built(&imports))).unwrap();
            std::fs::write(&component, "").unwrap();
            let specs = crate::plugin::specs(&file, &component).unwrap();
            assert_eq!(specs[0].spec.grants.write.events, !imports.is_empty());
            assert_eq!(specs[0].spec.grants.read_objects.len(), usize::from(!imports.is_empty()));
        }
    }
}
