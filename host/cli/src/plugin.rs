//! A plugin's configuration joined with a component, by the host's own reader and checks.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use podium_config::Problem;
use podium_host::config::{self, ConfigError, Defined, Policy};
use podium_registry::Digest;
use podium_runtime::{self, LoadError};
use podium_vocabulary::{PluginSpec, Source, text};

use crate::script;

/// The name of the configuration beside a plugin's source.
pub(crate) const FILE: &str = "plugin.yaml";

/// Reads the plugins of configuration files, each with its file, for messages. The paths of their components are
/// relative to `components`, or else to the file; whether they exist is not checked.
///
/// # Errors
/// Returns every mistake in the files, one line each.
pub(crate) fn read(files: &[PathBuf], components: Option<&Path>) -> anyhow::Result<Vec<Defined>> {
    let config::Configurations { plugins, errors, .. } = config::load_built(files, components);
    if !errors.is_empty() {
        bail!("{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
    }
    if plugins.is_empty() {
        let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        bail!("no plugin in {}", files.join(", "));
    }
    Ok(script::complete(plugins))
}

/// Reads the policy that a flag names.
///
/// # Errors
/// Returns every mistake in the file, one line each.
pub(crate) fn policy(file: &Path) -> anyhow::Result<Policy> {
    Policy::read(file).map_err(|errors| {
        let errors: Vec<_> = errors.iter().map(|error| format!("--policy {error}")).collect();
        anyhow!("{}", errors.join("\n"))
    })
}

/// Returns everything of a plugin that a policy does not permit, with its lines; podium-host would refuse the plugin.
pub(crate) fn forbidden(policy: &Policy, Defined { file, lines, spec }: &Defined) -> Vec<ConfigError> {
    let of_plugin = |Problem { field, message, .. }: Problem| {
        let message = format!("of plugin {}: {message}", spec.id);
        ConfigError { file: file.clone(), line: Some(lines.line(&field)), field, message }
    };
    policy.problems(spec).into_iter().map(of_plugin).collect()
}

/// Reads the plugins of a configuration file whose component was just built.
///
/// # Errors
/// See [`read`]. Also returns an error if the source is not this component.
pub(crate) fn specs(file: &Path, component: &Path) -> anyhow::Result<Vec<Defined>> {
    let plugins = read(&[file.to_owned()], component.parent())?;
    if let Some(Defined { spec, .. }) = plugins.iter().find(|plugin| plugin.spec.source.file() != Some(component)) {
        let source = spec.source.path();
        bail!(
            "{}: spec.source.file of {} is {}, but the crate builds {}",
            file.display(),
            spec.id,
            text::path(component.parent().and_then(|parent| source.strip_prefix(parent).ok()).unwrap_or(&source)),
            text::path(component.file_name().unwrap_or_default().as_ref())
        );
    }
    Ok(plugins)
}

/// Checks a component without compiling it: the digest that its configuration names, size, world, and imports against
/// grants.
///
/// # Errors
/// Returns an error if the component cannot be read, or if the host would refuse to load it.
pub(crate) fn check(spec: &PluginSpec, component: &Path) -> anyhow::Result<Vec<podium_runtime::Import>> {
    let shown = text::path(component);
    let wasm = std::fs::read(component).with_context(|| format!("cannot read {shown}"))?;
    if let Source::ConfigMap { sha256, .. } = &spec.source {
        let found = Digest::sha256(&wasm).hex();
        if found != *sha256 {
            bail!(
                "{shown}: the host would refuse it (DigestMismatch): its SHA-256 is {found}, and \
                 spec.source.configMap.sha256 is {sha256}; correct sha256, or check the component that it is of"
            );
        }
    }
    // The configuration may name another file than the one that is checked.
    podium_runtime::check(spec, &wasm).map_err(|error| LoadError { file: component.to_owned(), ..error }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLUGIN: &str = "apiVersion: podium.dev/v1alpha1\nkind: ClusterReconcilePlugin\nmetadata: { name: hello }\n\
        spec: { source: { file: hello.wasm }, watch: { sections: [labels] }, \
        grants: { read: { pods: { sections: [labels] } } } }\n";

    /// Returns a crate's folder and a target folder with components.
    fn folders(components: &[&str]) -> (tempfile::TempDir, tempfile::TempDir) {
        let source = tempfile::tempdir().unwrap();
        let target = tempfile::tempdir().unwrap();
        std::fs::write(source.path().join("plugin.yaml"), PLUGIN).unwrap();
        for component in components {
            std::fs::write(target.path().join(component), "").unwrap();
        }
        (source, target)
    }

    /// A plugin whose component is in a ConfigMap, with this digest.
    fn in_config_map(sha256: &str) -> PluginSpec {
        let source = format!("configMap: {{ name: a, key: a, sha256: '{sha256}' }}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plugin.yaml");
        let of_namespace = PLUGIN.replace("ClusterReconcilePlugin", "ReconcilePlugin");
        let text = of_namespace.replace("name: hello }", "name: hello, namespace: shop }");
        std::fs::write(&file, text.replace("file: hello.wasm", &source)).unwrap();
        read(&[file], None).unwrap().remove(0).spec
    }

    #[test]
    fn a_component_of_another_digest_is_refused_with_both_digests() {
        let (source, target) = folders(&["hello.wasm"]);
        let component = target.path().join("hello.wasm");
        let wrong = "0".repeat(64);
        let right = Digest::sha256(b"").hex();
        let error = check(&in_config_map(&wrong), &component).unwrap_err().to_string();
        for part in ["DigestMismatch", &wrong, &right, "hello.wasm", "correct sha256"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        // Of the right digest it is refused for another reason, about the file that was read.
        for spec in [in_config_map(&right), read(&[source.path().join("plugin.yaml")], None).unwrap().remove(0).spec] {
            let error = check(&spec, &component).unwrap_err().to_string();
            assert!(!error.contains("DigestMismatch"), "{error}");
            assert!(error.starts_with(&component.display().to_string()), "{error}");
            assert_eq!(error.matches(".wasm").count(), 1, "no file but the one that was read: {error}");
        }
    }

    #[test]
    fn the_built_component_is_found_wherever_cargo_put_it() {
        let (source, target) = folders(&["hello.wasm"]);
        let component = target.path().join("hello.wasm");
        let specs = specs(&source.path().join("plugin.yaml"), &component).unwrap();
        assert_eq!(specs[0].spec.source.file(), Some(&*component));
    }

    #[test]
    fn a_configuration_that_names_another_component_is_refused() {
        let (source, target) = folders(&["hello.wasm", "other.wasm"]);
        let error = specs(&source.path().join("plugin.yaml"), &target.path().join("other.wasm")).unwrap_err();
        assert!(error.to_string().ends_with("but the crate builds other.wasm"), "{error}");
    }

    #[test]
    fn mistakes_are_reported_with_file_and_line() {
        let (source, target) = folders(&["hello.wasm"]);
        let file = source.path().join("plugin.yaml");
        std::fs::write(&file, PLUGIN.replace("labels] }, grants", "lables] }, grants")).unwrap();
        let error = specs(&file, &target.path().join("hello.wasm")).unwrap_err().to_string();
        assert!(error.contains("plugin.yaml:4") && error.contains("lables"), "{error}");
    }
}
