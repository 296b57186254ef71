//! Plugins as read by the host's configuration reader: those of `plugins/` with their sample configuration, and guests
//! of `tests/guests` with a configuration of the test. Components are built at the first use in a suite.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use podium_cli::build::Options;
use podium_host::config;
use podium_vocabulary::PluginSpec;
use tempfile::TempDir;

use crate::{guests, process};

/// The plugins in Rust that come with Podium.
pub const FIVE: [&str; 5] = ["crashloop-triage", "image-policy", "pod-ttl", "spread-guard", "workload-label"];

/// Returns a plugin of `plugins/` with its sample configuration.
///
/// # Errors
/// Returns an error if it does not build, or if its sample is invalid.
pub fn sample(name: &str) -> Result<PluginSpec> {
    configured(&sample_yaml(name)?)
}

/// Returns the configuration of [`sample`] as text, with the absolute path of the built component.
///
/// # Errors
/// Returns an error if it does not build.
pub fn sample_yaml(name: &str) -> Result<String> {
    yaml_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins").join(name))
}

/// Returns the configuration of a crate's plugin as text, with the absolute path of the built component.
///
/// # Errors
/// Returns an error if it does not build.
pub fn yaml_of(crate_dir: &Path) -> Result<String> {
    let mut options = Options::new(crate_dir);
    // Beside the guests, so that it neither waits for a build of the host nor delays one.
    options.target_dir = Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/guests"));
    let component = guests::build_once(options)?.canonicalize()?;
    let text = fs::read_to_string(crate_dir.join("plugin.yaml"))?;
    let file = component.file_name().and_then(|file| file.to_str()).context("a component without a name")?;
    ensure!(text.contains(file), "the configuration in {} does not name {file}", crate_dir.display());
    Ok(text.replace(file, &component.display().to_string()))
}

/// Writes the sample of the plugin `workload-label` into a directory as a plugin of each namespace.
///
/// # Errors
/// Returns an error if it does not build, or if the directory cannot be written.
pub fn write_labellers(directory: &Path, namespaces: &[String]) -> Result<()> {
    let sample = sample_yaml("workload-label")?;
    let (kind, name) = ("kind: ClusterReconcilePlugin", "name: workload-label");
    ensure!(sample.contains(kind) && sample.contains(name), "{sample}");
    for namespace in namespaces {
        let own = sample.replace(kind, "kind: ReconcilePlugin");
        let own = own.replace(name, &format!("name: workload-label\n  namespace: {namespace}"));
        fs::write(directory.join(format!("{namespace}.yaml")), own)?;
    }
    Ok(())
}

/// Builds the component of the plugin in Python by its own recipe. Returns `None` without Python.
///
/// # Errors
/// Returns an error if the recipe fails, and without Python in CI.
pub fn python() -> Result<Option<PathBuf>> {
    let recipe = process::workspace_dir().join("plugins/pod-age-python/build.sh");
    let output = Command::new("sh").arg(&recipe).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "{}: {}", recipe.display(), output.status);
    let printed = String::from_utf8(output.stdout)?;
    let component = printed.lines().last().map(PathBuf::from);
    ensure!(component.is_some() || !process::in_ci(), "no Python, and in CI no suite is skipped");
    Ok(component)
}

/// A guest of `tests/guests` as a plugin `name` of the whole cluster that may read labels and write the labels and
/// annotations of `guests.example/`; `more` are further lines of `spec`, indented by two.
///
/// # Errors
/// Returns an error if it does not build, or if `more` is invalid.
pub fn guest(guest: &str, name: &str, more: &str) -> Result<PluginSpec> {
    configured(&guest_yaml(guest, name, more)?)
}

/// Returns the configuration of [`guest`] as text.
///
/// # Errors
/// Returns an error if it does not build.
pub fn guest_yaml(guest: &str, name: &str, more: &str) -> Result<String> {
    let component = guests::path(guest)?;
    Ok(format!(
        "apiVersion: podium.dev/v1alpha1\n\
         kind: ClusterReconcilePlugin\n\
         metadata: {{ name: {name} }}\n\
         spec:\n  \
           source: {{ file: {} }}\n  \
           grants:\n    \
             read: {{ pods: {{ sections: [labels] }} }}\n    \
             write: {{ labels: [guests.example/*], annotations: [guests.example/*] }}\n\
         {more}\n",
        component.display()
    ))
}

/// Returns the only plugin of a configuration.
///
/// # Errors
/// Returns the mistakes in the configuration.
pub fn configured(text: &str) -> Result<PluginSpec> {
    let directory: TempDir = tempfile::tempdir()?;
    fs::write(directory.path().join("plugin.yaml"), text)?;
    let mut loaded = config::load(&[directory.path().to_owned()]);
    ensure!(loaded.errors.is_empty(), "{:?}", loaded.errors);
    Ok(loaded.plugins.pop().context("no plugin in the configuration")?.spec)
}
