//! The objects of a plugin's inputs, and the kinds that it reads, for the cluster of `podium run` and `podium test`.

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::{Context, bail};
use podium_devcluster::{Cluster, StartError};
use podium_vocabulary::{Input, InputObjects, ObjectGrant, PluginSpec};
use serde_json::{Map, Value, json};

/// The objects by the ids of the inputs. An input without one is of an object that does not exist.
pub(crate) type Inputs = BTreeMap<String, Value>;

/// Parses `ID=FILE`.
///
/// # Errors
/// Returns an error for another text.
pub(crate) fn argument(text: &str) -> Result<(String, PathBuf), &'static str> {
    let (id, file) = text.split_once('=').ok_or("must be the id of an input and a file, such as prices=prices.yaml")?;
    Ok((id.to_owned(), file.into()))
}

/// Reads the files of objects in YAML or JSON.
///
/// # Errors
/// Returns an error that names the file if one is no object.
pub(crate) fn read(files: &[(String, PathBuf)]) -> anyhow::Result<Inputs> {
    let object = |(id, file): &(String, PathBuf)| {
        let text = fs::read_to_string(file).with_context(|| format!("{}: cannot be read", file.display()))?;
        let object: Value = serde_saphyr::from_str(&text).with_context(|| format!("{}: no YAML", file.display()))?;
        let is_list = object.as_array().is_some_and(|objects| objects.iter().all(Value::is_object));
        if !object.is_object() && !is_list {
            bail!("{}: is no object; write its fields, such as data: {{}}, or a list for a selector", file.display());
        }
        Ok((id.clone(), object))
    };
    files.iter().map(object).collect()
}

/// Stores the objects, and defines the kinds of all inputs and of the objects that the plugin may read.
///
/// # Errors
/// Returns an error if the plugin has no such input, or if the cluster refuses an object.
pub(super) fn store(cluster: &Cluster, spec: &PluginSpec, objects: &Inputs) -> anyhow::Result<()> {
    let namespace = spec.account().map(|(namespace, _)| namespace);
    for Input { api_version, kind, resource, .. } in &spec.inputs {
        define(cluster, api_version, kind, resource)?;
    }
    for ObjectGrant { api_version, kind, resource } in &spec.grants.read_objects {
        define(cluster, api_version, kind, resource)?;
    }
    for (id, fields) in objects {
        let Some(input) = spec.inputs.iter().find(|input| input.id == *id) else {
            let known: Vec<&str> = spec.inputs.iter().map(|input| &*input.id).collect();
            bail!("input {id}: spec.inputs has none of this id; it has {known:?}");
        };
        let objects = match (&input.objects, fields) {
            (_, Value::Null) => continue,
            (InputObjects::Named(name), fields) => vec![(Some(name), fields)],
            (InputObjects::Labelled(_), Value::Array(objects)) => objects.iter().map(|fields| (None, fields)).collect(),
            (InputObjects::Labelled(_), _) => {
                bail!("input {id}: has a selector; write a list of objects, with metadata.name and metadata.labels")
            }
        };
        for (name, fields) in objects {
            let object = complete(fields, input, namespace, name)
                .with_context(|| format!("input {id}: is no object; write its fields, such as data: {{}}, or null"))?;
            cluster.create(object).with_context(|| format!("the object of the input {id}"))?;
        }
    }
    Ok(())
}

/// Returns the object with these fields, and with a name that is not among them; `None` if it is no mapping.
fn complete(fields: &Value, input: &Input, namespace: Option<&str>, name: Option<&String>) -> Option<Value> {
    let mut object = fields.as_object()?.clone();
    object.insert("apiVersion".to_owned(), json!(input.api_version));
    object.insert("kind".to_owned(), json!(input.kind));
    let metadata = object.entry("metadata").or_insert_with(|| Map::new().into());
    if !metadata.is_object() {
        *metadata = Map::new().into();
    }
    metadata["namespace"] = json!(namespace);
    if let Some(name) = name {
        metadata["name"] = json!(name);
    }
    Some(object.into())
}

/// Defines a kind that the cluster does not serve by itself.
fn define(cluster: &Cluster, api_version: &str, kind: &str, resource: &str) -> anyhow::Result<()> {
    let Some((group, version)) = api_version.split_once('/') else { return Ok(()) };
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let version = json!({ "name": version, "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } });
    let names = json!({ "kind": kind, "plural": resource });
    let spec = json!({ "group": group, "scope": "Namespaced", "names": names, "versions": [version] });
    let metadata = json!({ "name": format!("{resource}.{group}") });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata,
        "spec": spec,
    });
    match cluster.create(definition) {
        // Refused is a kind that is there.
        Ok(_) | Err(StartError::Refused { .. }) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("the kind {kind} cannot be defined")),
    }
}
