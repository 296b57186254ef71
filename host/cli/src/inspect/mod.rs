//! `podium inspect`: the functions that a component imports, the smallest grants that fit it, and the RBAC that its
//! plugin needs. Reads files and nothing else; whether the host would load the plugin is `podium check`'s to report.

mod rbac;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use podium_host::config::Defined;
use podium_vocabulary::{
    PluginSpec, syntax,
    text::{line, path as text_of},
};
use serde::Serialize;
use serde_json::Value;

pub(crate) use self::rbac::{Account, name};
use crate::{
    args::{self, Format},
    build::{Built, Import, shown},
    check, plugin, suggestion, ui,
};

/// The result for one plugin, or for a component without a configuration.
#[derive(Debug, Serialize)]
struct Inspected {
    /// The plugin; `None` for a component without a configuration.
    plugin: Option<String>,
    component: Option<PathBuf>,
    /// The place of a component that is in a ConfigMap or a registry.
    #[serde(skip)]
    elsewhere: Option<String>,
    bytes: Option<u64>,
    /// `None` if the component is not built.
    imports: Option<Vec<Import>>,
    /// Fields below `spec.grants` that the component does not use.
    unused_grants: Vec<&'static str>,
    /// The smallest configuration that fits the imports, with keys to be filled in.
    configuration: Option<String>,
    /// The objects to apply for the plugin.
    rbac: Vec<Value>,
    /// Advice that concerns the RBAC.
    notes: Vec<String>,
}

/// Inspects and prints.
///
/// # Errors
/// Returns an error if a file cannot be read, is no component, or has mistakes as a configuration.
pub fn run(arguments: &args::Inspect) -> anyhow::Result<ExitCode> {
    let host = host(&arguments.host.host)?;
    let inspected = match component_or_plugins(&arguments.path)? {
        Of::Component(component) => vec![of_component(&component)?],
        Of::Plugins(files) => plugin::read(&files, None)?
            .iter()
            .map(|defined| of_plugin(defined, &host, arguments))
            .collect::<anyhow::Result<_>>()?,
    };
    let text = match arguments.output {
        Format::Table => inspected.iter().map(text).collect::<anyhow::Result<Vec<_>>>()?.join("\n"),
        Format::Json => format!("{}\n", serde_json::json!({"ok": true, "inspected": inspected})),
        Format::Yaml => {
            if inspected.iter().any(|one| one.plugin.is_none()) {
                bail!("--output yaml: a component has no RBAC; inspect the plugin.yaml");
            }
            // The notes say which of the objects have no effect yet.
            inspected.iter().flat_map(|one| &one.notes).for_each(|note| ui::report(&format!("note: {note}")));
            ui::yaml_documents(inspected.iter().flat_map(|one| &one.rbac))?
        }
    };
    ui::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

enum Of {
    Component(PathBuf),
    /// The configuration files.
    Plugins(Vec<PathBuf>),
}

/// Returns whether a path is a component or configurations. A folder means the same as in `podium check`.
fn component_or_plugins(path: &Path) -> anyhow::Result<Of> {
    if path.is_dir() {
        return check::files(&[path.to_owned()]).map(Of::Plugins);
    }
    let mut start = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| std::io::Read::read(&mut file, &mut start));
    read.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(if start == *b"\0asm" { Of::Component(path.to_owned()) } else { Of::Plugins(vec![path.to_owned()]) })
}

/// Reads the name of the host's account.
pub(crate) fn host(text: &str) -> anyhow::Result<Account> {
    match text.split_once('/') {
        Some((namespace, name)) if syntax::dns_label(namespace).is_ok() && syntax::dns_subdomain(name).is_ok() => {
            Ok(Account { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => bail!("--host {text}: must be NAMESPACE/NAME of the host's ServiceAccount"),
    }
}

/// Reads a component: its size, and its imports and exports.
fn interface(component: &Path) -> anyhow::Result<(u64, podium_runtime::Interface)> {
    let wasm = std::fs::read(component).with_context(|| format!("cannot read {}", component.display()))?;
    let interface = podium_runtime::inspect(&wasm).with_context(|| component.display().to_string())?;
    Ok((wasm.len() as u64, interface))
}

fn of_component(component: &Path) -> anyhow::Result<Inspected> {
    let (bytes, interface) = interface(component)?;
    let name = component.file_stem().unwrap_or_default().to_string_lossy().replace('_', "-");
    let name = if syntax::dns_label(&name).is_ok() { name } else { "my-plugin".to_owned() };
    let built = Built {
        name,
        component: component.to_owned(),
        bytes,
        imports: shown(interface.imports),
        exports: interface.exports,
    };
    if !built.is_plugin() {
        bail!("{} is a component and no plugin: it exports no reconciler", component.display());
    }
    let configuration = Some(suggestion::for_component(&built));
    Ok(Inspected {
        plugin: None,
        component: Some(built.component),
        elsewhere: None,
        bytes: Some(built.bytes),
        imports: Some(built.imports),
        unused_grants: Vec::new(),
        configuration,
        rbac: Vec::new(),
        notes: vec![
            "for the RBAC, inspect the plugin.yaml: it has the keys, the kinds and the ServiceAccount".to_owned(),
        ],
    })
}

fn of_plugin(defined: &Defined, host: &Account, arguments: &args::Inspect) -> anyhow::Result<Inspected> {
    let Defined { file, spec, .. } = defined;
    let component = check::built(file, spec);
    let read = component.as_deref().map(interface).transpose()?;
    let (bytes, imports) = read.map(|(bytes, interface)| (bytes, shown(interface.imports))).unzip();
    let unused_grants = imports.as_deref().map_or_else(Vec::new, |imports| suggestion::unused(&spec.grants, imports));
    Ok(Inspected {
        plugin: Some(spec.id.to_string()),
        component,
        elsewhere: spec.source.file().is_none().then(|| spec.source.to_string()),
        bytes,
        imports,
        unused_grants,
        configuration: None,
        rbac: rights(spec, host, arguments.host.impersonation),
        notes: notes(spec, host, arguments.host.impersonation),
    })
}

/// Returns the objects with the rights of a plugin's account, in the order in which they depend on each other.
pub(crate) fn rights(spec: &PluginSpec, host: &Account, impersonation: args::Impersonation) -> Vec<Value> {
    rbac::objects(spec, host, impersonation)
}

/// Returns advice about these rights.
pub(crate) fn notes(spec: &PluginSpec, host: &Account, impersonation: args::Impersonation) -> Vec<String> {
    let account = Account::for_plugin(spec, host);
    let mut notes = Vec::new();
    if spec.impersonate.is_none() {
        let namespace = if spec.id.namespace.is_none() {
            format!(" and serviceAccountNamespace: {}", account.namespace)
        } else {
            String::new()
        };
        notes.push(format!(
            "the configuration has no serviceAccountName, so its writes are sent as the host's own account; for the \
            RBAC below add spec.serviceAccountName: {}{namespace}",
            account.name
        ));
    }
    if !spec.grants.write.conditions.is_empty() {
        notes.push(
            "patch on pods/status also permits changes of labels, annotations and finalizers through that subresource; \
             the admission policy podium-pods-status of the chart closes this"
                .to_owned(),
        );
    }
    if !spec.grants.write.objects.is_empty() {
        notes.push(rbac::owners(spec, impersonation));
    }
    notes
}

fn text(inspected: &Inspected) -> anyhow::Result<String> {
    let Inspected { plugin, component, elsewhere, bytes, imports, unused_grants, configuration, rbac, notes } =
        inspected;
    let mut text = String::new();
    let missing = || elsewhere.as_deref().map_or("not built".to_owned(), line);
    let component = component.as_ref().map_or_else(missing, |path| text_of(path));
    let size = bytes.map_or(String::new(), |bytes| format!("  {}", ui::size(bytes)));
    text += &format!("# {}{component}{size}\n", plugin.as_ref().map_or(String::new(), |plugin| format!("{plugin}  ")));
    match imports.as_deref() {
        Some([]) => text += "# It imports nothing: it can read no other Pod and write nothing.\n",
        Some(imports) => {
            let rows = imports.iter().map(|import| [import.interface.clone(), import.functions.join(", ")]);
            text += &commented(&ui::table(["IMPORTS", "FUNCTIONS"], rows));
        }
        None if elsewhere.is_some() => text += "# Its imports are not known: inspect the component's file.\n",
        None => text += "# Its imports are not known: run podium build.\n",
    }
    if !unused_grants.is_empty() {
        text += &format!("# Granted and not imported, so it can go from spec.grants: {}\n", unused_grants.join(", "));
    }
    text += &notes.iter().map(|note| format!("# Note: {note}\n")).collect::<String>();
    if let Some(configuration) = configuration {
        text += &format!("# The smallest grants that fit; replace the keys:\n{configuration}");
    }
    Ok(text + &ui::yaml_documents(rbac)?)
}

/// Lines of a table as comments of YAML, so that all of the output can be applied. The names in it are a component's:
/// a line break of any kind in them would end the comment.
fn commented(table: &str) -> String {
    table.lines().map(|row| format!("# {}\n", line(row))).collect()
}

#[cfg(test)]
mod tests {
    use podium_pods::testing;

    use super::*;

    #[test]
    fn all_of_the_output_for_a_plugin_is_yaml_to_apply() {
        let spec = testing::plugin(Some("shop"), "tidy");
        let host = host("podium/podium-host").unwrap();
        let inspected = Inspected {
            plugin: Some("shop/tidy".into()),
            component: None,
            elsewhere: None,
            bytes: None,
            imports: Some(vec![Import {
                interface: "podium:reconcile/writes@0.1.0".into(),
                functions: vec!["commit".into()],
            }]),
            unused_grants: vec!["write.delete"],
            configuration: None,
            rbac: rbac::objects(&spec, &host, args::Impersonation::Plain),
            notes: notes(&spec, &host, args::Impersonation::Plain),
        };
        let text = text(&inspected).unwrap();
        let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        let objects: Vec<_> = objects.into_iter().filter(|object| !object.is_null()).collect();
        assert_eq!(objects, inspected.rbac, "{text}");
        assert!(text.contains("serviceAccountName: podium-plugin-tidy") && text.contains("write.delete"), "{text}");
    }

    #[test]
    fn a_component_in_a_config_map_is_not_said_to_be_built() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plugin.yaml");
        let source = format!("configMap: {{ name: code, key: a.wasm, sha256: '{}' }}", "0".repeat(64));
        for (source, place) in [
            (&*source, "# shop/tidy  configMap shop/code a.wasm\n"),
            ("oci: { image: 'a.example/a:1' }", "# shop/tidy  a.example/a:1\n"),
            ("file: a.wasm", "# shop/tidy  not built\n"),
        ] {
            let text = format!(
                "apiVersion: podium.dev/v1alpha1\nkind: ReconcilePlugin\nmetadata: {{ name: tidy, namespace: shop }}\n\
                 spec: {{ source: {{ {source} }}, serviceAccountName: tidy }}\n"
            );
            std::fs::write(&file, text).unwrap();
            let defined = plugin::read(std::slice::from_ref(&file), None).unwrap().remove(0);
            let arguments = args::Inspect {
                path: file.clone(),
                host: args::HostAccount {
                    host: "podium/podium-host".to_owned(),
                    impersonation: args::Impersonation::Plain,
                },
                output: Format::Table,
            };
            let shown =
                super::text(&of_plugin(&defined, &host(&arguments.host.host).unwrap(), &arguments).unwrap()).unwrap();
            assert!(shown.starts_with(place), "{shown}");
            assert_eq!(shown.contains("run podium build"), source.starts_with("file"), "{shown}");
        }
    }

    #[test]
    fn the_reads_for_owners_are_printed_where_objects_are_granted() {
        use podium_vocabulary::{ObjectGrant, WriteGrants};
        let mut spec = testing::plugin(Some("shop"), "tidy");
        spec.grants.write = WriteGrants { events: true, ..WriteGrants::default() };
        let owners = |spec: &PluginSpec, impersonation| {
            let mut notes = notes(spec, &host("podium/podium-host").unwrap(), impersonation);
            notes.retain(|note| note.contains("ObjectOwner::Workload"));
            notes.pop()
        };
        assert_eq!(owners(&spec, args::Impersonation::Plain), None);
        let api_version = "v1".to_owned();
        let kind = "ConfigMap".to_owned();
        spec.grants.write.objects = vec![ObjectGrant { api_version, kind, resource: "configmaps".to_owned() }];
        let note = owners(&spec, args::Impersonation::Plain).unwrap();
        let rules = note.split_once("rules ").unwrap().1;
        let rules = rules.split_once(" to ").unwrap().0;
        let rules: Value = serde_saphyr::from_str(rules).unwrap();
        for (at, group, resources) in [
            (0, "apps", &["replicasets", "deployments", "statefulsets", "daemonsets"][..]),
            (1, "batch", &["jobs", "cronjobs"]),
        ] {
            assert_eq!(rules[at], serde_json::json!({"apiGroups": [group], "resources": resources, "verbs": ["get"]}));
        }
        assert!(note.contains("Role podium-plugin-tidy"), "{note}");
        let constrained = owners(&spec, args::Impersonation::Constrained).unwrap();
        assert!(constrained.contains("impersonate-on:serviceaccount:get"), "{constrained}");
    }

    #[test]
    fn no_name_of_a_component_and_no_path_ends_a_comment() {
        for hostile in [testing::NASTY, "x\n---\nkind: Evil", "x\r---\rkind: Evil", "x\u{85}kind: Evil"] {
            let inspected = Inspected {
                plugin: Some("shop/tidy".into()),
                component: Some(hostile.into()),
                elsewhere: Some(hostile.into()),
                bytes: Some(1),
                imports: Some(vec![Import { interface: hostile.into(), functions: vec![hostile.into()] }]),
                unused_grants: Vec::new(),
                configuration: None,
                rbac: Vec::new(),
                notes: Vec::new(),
            };
            let text = text(&inspected).unwrap();
            assert!(text.lines().all(|line| line.starts_with('#')), "{text:?}");
            text.split('\n').for_each(|line| testing::assert_clean(line, 4 << 10));
        }
    }

    #[test]
    fn a_folder_of_plugins_is_inspected_as_it_is_checked() {
        let folder = tempfile::tempdir().unwrap();
        let plugins_of = |path: &Path| match component_or_plugins(path) {
            Ok(Of::Plugins(files)) => {
                let plugins = plugin::read(&files, None).map_err(|error| error.to_string())?;
                Ok(plugins.iter().map(|defined| defined.spec.id.to_string()).collect::<Vec<_>>())
            }
            Ok(Of::Component(path)) => Err(format!("{} is a component", path.display())),
            Err(error) => Err(error.to_string()),
        };
        let error = plugins_of(folder.path()).unwrap_err();
        assert!(error.contains("neither it nor its folders have a plugin.yaml"), "{error}");

        let write = |file: &str, name: &str| {
            let file = folder.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            let text = "apiVersion: podium.dev/v1alpha1\nkind: ReconcilePlugin\n\
                metadata: { name: NAME, namespace: shop }\nspec: { source: { file: a.wasm } }\n";
            std::fs::write(file, text.replace("NAME", name)).unwrap();
        };
        write("a/plugin.yaml", "one");
        write("b/plugin.yaml", "two");
        write("c.yaml", "three");
        assert_eq!(plugins_of(folder.path()), Ok(["shop/one", "shop/two", "shop/three"].map(str::to_owned).to_vec()));
        assert_eq!(plugins_of(&folder.path().join("b")), Ok(vec!["shop/two".to_owned()]));
    }

    #[test]
    fn the_hosts_account_has_a_namespace_and_a_name() {
        assert!(host("podium/podium-host").is_ok());
        for wrong in ["", "podium-host", "/a", "a/", "a/b/c", "A_/b"] {
            assert!(host(wrong).unwrap_err().to_string().starts_with(&format!("--host {wrong}: ")), "{wrong}");
        }
    }
}
