//! `podium push`: a component into a registry or a ConfigMap, and the source to write into plugin.yaml.

use std::{path::Path, process::ExitCode};

use anyhow::{Context, bail};
use bytes::Bytes;
use podium_registry::{Artifact, Digest, Pushed};
use podium_vocabulary::LimitClass;
use serde_json::{Value, json};

use super::{MAX_BYTES, access::Access, configmap::Target, reported};
use crate::{
    args::{self, Output},
    build::{Built, shown},
    ui,
};

/// Publishes and prints.
///
/// # Errors
/// Returns an error if the file is no plugin, and if the registry or the cluster refuses it.
pub(crate) async fn run(arguments: &args::Push) -> anyhow::Result<ExitCode> {
    let artifact = artifact(&arguments.file, arguments.component_version.clone())?;
    match (&arguments.configmap, &arguments.reference) {
        (Some(configmap), _) => into_configmap(configmap, &artifact, arguments).await?,
        (None, Some(reference)) => {
            let pushed = to_registry(reference, &artifact, &arguments.registry).await?;
            print_pushed(&pushed, &artifact, arguments.output)?;
        }
        (None, None) => bail!("name a reference or --configmap"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the file, its imports and its exports.
pub(crate) fn artifact(file: &Path, version: Option<String>) -> anyhow::Result<Artifact> {
    let shown_file = file.display();
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {shown_file}"))?;
    if bytes.len() as u64 > MAX_BYTES {
        bail!("{shown_file} has {}, and at most {} are pushed", ui::size(bytes.len() as u64), ui::size(MAX_BYTES));
    }
    let interface = podium_runtime::inspect(&bytes).with_context(|| shown_file.to_string())?;
    let built = Built {
        name: String::new(),
        component: file.to_owned(),
        bytes: bytes.len() as u64,
        imports: shown(interface.imports),
        exports: interface.exports,
    };
    if !built.is_plugin() {
        bail!("{shown_file} is a component and no plugin: it exports no reconciler");
    }
    Ok(Artifact {
        bytes: Bytes::from(bytes),
        title: file.file_name().map(|name| name.to_string_lossy().into_owned()),
        version,
        imports: built.imports.into_iter().map(|import| import.interface).collect(),
        exports: built.exports,
    })
}

/// Pushes a component.
///
/// # Errors
/// Returns an error with advice if the registry refuses it.
pub(crate) async fn to_registry(
    reference: &str,
    artifact: &Artifact,
    arguments: &args::RegistryAccess,
) -> anyhow::Result<Pushed> {
    let access = Access::new(reference, arguments)?;
    let what = format!("pushing {} to {}", ui::size(artifact.bytes.len() as u64), access.reference.host());
    let push = access.client.push(&access.reference, artifact, &access.credentials, &access.limits);
    reported(&what, push).await.map_err(|error| access.explain(error))
}

fn print_pushed(pushed: &Pushed, artifact: &Artifact, output: Output) -> anyhow::Result<()> {
    let source = json!({ "source": { "oci": { "image": pushed.reference.to_string() } } });
    let printed = match output {
        Output::Json => json_line(json!({
            "ok": true,
            "reference": pushed.reference.to_string(),
            "manifest": pushed.reference.digest().map(ToString::to_string),
            "layer": pushed.layer.to_string(),
            "bytes": artifact.bytes.len(),
            "spec": source,
        })),
        Output::Table => {
            format!("{}\n\n# In plugin.yaml:\n{}", pushed.reference, ui::yaml(&json!({ "spec": source }))?)
        }
    };
    ui::print(&printed)
}

/// Returns true if the component has an interpreter. A native component is never that large.
pub(crate) fn is_interpreted(artifact: &Artifact) -> bool {
    artifact.exports.iter().any(|export| export.starts_with("podium:reconcile/reconciler-json@"))
        || artifact.bytes.len() > podium_runtime::max_component_bytes(LimitClass::Native)
}

async fn into_configmap(configmap: &str, artifact: &Artifact, arguments: &args::Push) -> anyhow::Result<()> {
    let target = Target::parse(configmap, artifact.title.as_deref().unwrap_or_default())?;
    let manifest = target.manifest(&artifact.bytes, is_interpreted(artifact))?;
    if arguments.apply {
        let what = format!("writing ConfigMap {}/{}", target.namespace, target.name);
        reported(&what, target.apply(&manifest, arguments)).await?;
    }
    let sha256 = Digest::sha256(&artifact.bytes).hex();
    let source = json!({ "source": { "configMap": { "name": target.name, "key": target.key, "sha256": sha256 } } });
    let printed = match (arguments.output, arguments.apply) {
        (Output::Json, applied) => {
            // The component itself is printed only for a caller that has yet to apply it.
            let map = if applied { without_data(manifest) } else { manifest };
            json_line(json!({
                "ok": true,
                "applied": applied,
                "sha256": sha256,
                "bytes": artifact.bytes.len(),
                "spec": source,
                "configMap": map,
            }))
        }
        (Output::Table, true) => format!(
            "ConfigMap {}/{} has the component under {}\n\n# In plugin.yaml:\n{}",
            target.namespace,
            target.name,
            target.key,
            ui::yaml(&json!({ "spec": source }))?
        ),
        // The source is a comment, so that the output can be applied as it is.
        (Output::Table, false) => {
            let source = ui::yaml(&json!({ "spec": source }))?;
            let comments: String = source.lines().map(|line| format!("#   {line}\n")).collect();
            format!("# In plugin.yaml:\n{comments}{}", ui::yaml(&manifest)?)
        }
    };
    ui::print(&printed)
}

fn without_data(mut manifest: Value) -> Value {
    if let Some(members) = manifest.as_object_mut() {
        members.remove("binaryData");
    }
    manifest
}

fn json_line(value: Value) -> String {
    format!("{value}\n")
}
