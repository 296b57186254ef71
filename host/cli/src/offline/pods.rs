//! Pods of files and of cases: read, and completed so that an API server takes them.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::{Value, json};

/// A Pod with all that it must have.
#[derive(Debug, Clone)]
pub(crate) struct InputPod {
    pub(crate) pod: Value,
    /// Namespace and name.
    pub(crate) name: String,
    /// Where it is, for messages.
    pub(crate) place: String,
    /// The fields that were filled in, one line each.
    pub(crate) filled: Vec<String>,
}

/// Returns namespace and name of an object.
pub(super) fn name(pod: &Value) -> String {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

impl InputPod {
    /// Completes a Pod. `namespace` is that of a Pod without one.
    ///
    /// # Errors
    /// Returns an error with place and field if it is no Pod.
    pub(crate) fn new(mut pod: Value, place: String, namespace: &str) -> anyhow::Result<Self> {
        if !pod.is_object() {
            bail!("{place}: must be a Pod, such as {{ metadata: {{ name: web }} }}");
        }
        match pod.get("kind").map(|kind| kind.as_str().unwrap_or_default()) {
            None | Some("Pod") => {}
            Some(kind) => bail!(
                "{place}: kind: is {kind}, and must be Pod: plugins read Pods and nothing else, so remove the object"
            ),
        }
        let version = pod.get("apiVersion").cloned().unwrap_or_else(|| "v1".into());
        if version != "v1" {
            bail!("{place}: apiVersion: is {version}, and must be v1");
        }
        pod["apiVersion"] = version;
        pod["kind"] = "Pod".into();
        for field in ["metadata", "spec"] {
            if !matches!(pod.get(field), None | Some(Value::Null | Value::Object(_))) {
                bail!("{place}: {field}: must be a mapping of fields");
            }
        }
        if pod["metadata"]["name"].as_str().is_none_or(str::is_empty) {
            bail!("{place}: metadata.name: is missing; a Pod needs a name");
        }
        let mut filled = Vec::new();
        if pod["metadata"]["namespace"].is_null() {
            pod["metadata"]["namespace"] = namespace.into();
            filled.push(format!("{place}: metadata.namespace: {namespace} is filled in"));
        }
        if pod["spec"]["containers"].is_null() {
            pod["spec"]["containers"] = json!([{ "name": "main", "image": "registry.example/main:1" }]);
            filled.push(format!("{place}: spec.containers: a container main is filled in"));
        }
        if pod["status"].is_null() {
            filled.push(format!("{place}: status: that of a new Pod is filled in, which is Pending"));
        }
        Ok(Self { name: name(&pod), pod, place, filled })
    }
}

/// Reads the Pods of a file, in YAML or JSON: documents, and lists of kubectl. Of a directory those of all files that
/// end with .yaml, .yml or .json.
///
/// # Errors
/// Returns an error with file and field if it has none, or other objects.
pub(crate) fn read(path: &Path, namespace: &str) -> anyhow::Result<Vec<InputPod>> {
    if !path.is_dir() {
        return read_file(path, namespace);
    }
    let entries = std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<PathBuf>>>()?;
    files.retain(|file| file.extension().is_some_and(|end| ["yaml", "yml", "json"].iter().any(|known| end == *known)));
    files.sort();
    if files.is_empty() {
        bail!("{}: has no file that ends with .yaml, .yml or .json", path.display());
    }
    let pods = files.iter().map(|file| read_file(file, namespace)).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(pods.into_iter().flatten().collect())
}

fn read_file(file: &Path, namespace: &str) -> anyhow::Result<Vec<InputPod>> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).with_context(|| format!("{shown}: is neither YAML nor JSON"))?;
    let lists = documents.into_iter().filter(|document| !document.is_null()).map(|mut document| {
        let is_list = document.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
        match document.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) if is_list => items,
            Some(items) => {
                document["items"] = items;
                vec![document]
            }
            None => vec![document],
        }
    });
    let pods: Vec<Value> = lists.flatten().collect();
    if pods.is_empty() {
        bail!("{shown}: has no Pod");
    }
    let only = pods.len() == 1;
    let place = |at: usize| if only { shown.to_string() } else { format!("{shown}: Pod {}", at + 1) };
    pods.into_iter().enumerate().map(|(at, pod)| InputPod::new(pod, place(at), namespace)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(pod: Value) -> anyhow::Result<InputPod> {
        InputPod::new(pod, "pod.yaml".to_owned(), "shop")
    }

    #[test]
    fn an_incomplete_pod_is_completed_and_each_field_is_named() {
        let complete = input(json!({ "metadata": { "name": "a" } })).unwrap();
        assert_eq!((&*complete.name, complete.filled.len()), ("shop/a", 3));
        let again = input(complete.pod.clone()).unwrap();
        assert_eq!(again.filled, ["pod.yaml: status: that of a new Pod is filled in, which is Pending"]);
        assert_eq!(again.pod, complete.pod);
    }

    #[test]
    fn what_is_no_pod_is_refused_with_its_field() {
        for (pod, part) in [
            (json!([]), "pod.yaml: must be a Pod"),
            (json!({ "kind": "Secret", "metadata": { "name": "a" } }), "kind: is Secret, and must be Pod"),
            (json!({ "kind": 1 }), "kind: is"),
            (json!({ "apiVersion": "v2", "metadata": { "name": "a" } }), "apiVersion: is \"v2\""),
            (json!({ "metadata": 1 }), "metadata: must be a mapping"),
            (json!({ "metadata": { "name": "a" }, "spec": [] }), "spec: must be a mapping"),
            (json!({ "metadata": {} }), "metadata.name: is missing"),
            (json!({ "metadata": { "name": 5 } }), "metadata.name: is missing"),
        ] {
            let error = input(pod.clone()).unwrap_err().to_string();
            assert!(error.contains(part), "{part:?} in {error:?} of {pod}");
        }
    }

    #[test]
    fn a_file_has_documents_or_lists_and_a_folder_has_files() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("b.yaml", "metadata: { name: c }\n---\n---\nmetadata: { name: d }\n");
        let items = json!([{ "metadata": { "name": "a" } }, { "metadata": { "name": "b", "namespace": "x" } }]);
        write("a.json", &json!({ "kind": "List", "items": items }).to_string());
        write("notes.txt", "no Pods");
        let names = |pods: Vec<InputPod>| pods.into_iter().map(|input| input.name).collect::<Vec<_>>();
        assert_eq!(names(read(folder.path(), "shop").unwrap()), ["shop/a", "x/b", "shop/c", "shop/d"]);
        write("none.yaml", "---\n");
        let error = read(&folder.path().join("none.yaml"), "shop").unwrap_err().to_string();
        assert!(error.ends_with("none.yaml: has no Pod"), "{error}");
    }
}
