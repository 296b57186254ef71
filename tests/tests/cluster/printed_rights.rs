//! Plugins whose account has the rights that `podium inspect` prints and no others, and a host with one of them, a
//! script in JavaScript.

use std::{fs, path::Path, process::Command};

use anyhow::{Result, ensure};
use podium_tests::{
    controlplane::ControlPlane,
    process::{HostOptions, podium_binary},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kubectl::Kubectl;

/// Creates the rights of a plugin in its namespace, which is there. Returns the options of its host, whose files are in
/// the directory.
pub(crate) fn grant(plane: &ControlPlane, runner: &Path, plugin: &Value) -> Result<(HostOptions, TempDir)> {
    let directory = tempfile::tempdir()?;
    let [plugins, runners] = ["plugins", "runners"].map(|name| directory.path().join(name));
    [&plugins, &runners].into_iter().try_for_each(fs::create_dir)?;
    fs::copy(runner, runners.join("javascript-1.wasm"))?;
    let configured = plugins.join("plugin.json.yaml");
    fs::write(&configured, plugin.to_string())?;
    apply(plane, &configured)?;
    let arguments = vec!["--runners".to_owned(), runners.to_string_lossy().into_owned()];
    Ok((HostOptions { kubeconfig: plane.kubeconfig_path(), plugins: vec![plugins], arguments }, directory))
}

/// Creates the rights of a plugin in its namespace, which is there.
pub(crate) fn apply(plane: &ControlPlane, configured: &Path) -> Result<()> {
    let mut inspect = Command::new(podium_binary()?);
    let output = inspect.args(["inspect", "--output", "yaml"]).arg(configured).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(std::str::from_utf8(&output.stdout)?)?;
    let plugin: Value = serde_saphyr::from_str(&fs::read_to_string(configured)?)?;
    objects.retain(|object| object["metadata"]["namespace"] == plugin["metadata"]["namespace"]);
    let directory = tempfile::tempdir()?;
    let rights = directory.path().join("rights.json");
    fs::write(&rights, json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string())?;
    Kubectl::new(plane).admin(&["apply", "-f", &rights.to_string_lossy()])?;
    Ok(())
}
