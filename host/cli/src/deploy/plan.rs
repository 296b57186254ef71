//! The objects of a deployment, from a document of plugin.yaml and the place of its code. Pure.

use std::path::Path;

use anyhow::{anyhow, bail};
use podium_host::config::{ConfigError, Defined};
use podium_registry::Digest;
use podium_vocabulary::{Language, PluginSpec};
use serde_json::{Value, json};

use crate::{
    args::HostAccount,
    inspect::{self, Account},
    publish::configmap::Target,
    ui,
};

/// Where the code of a plugin is.
#[derive(Debug)]
pub(super) enum Code {
    /// The document contains the script, or names the place of the code.
    InPlace,
    /// An image with its digest, and the Secret with credentials for its registry.
    Image { image: String, pull_secret: Option<String> },
    /// For a ConfigMap.
    Bytes { key: String, bytes: Vec<u8>, is_interpreted: bool },
}

/// The objects of one plugin, in the order in which they depend on each other.
#[derive(Debug)]
pub(super) struct Planned {
    /// The account and its rights.
    pub(super) rights: Vec<Value>,
    /// The ConfigMap with the code.
    pub(super) code: Option<Value>,
    pub(super) plugin: Value,
    /// The fields that were filled in, and advice.
    pub(super) notes: Vec<String>,
}

impl Planned {
    /// Returns all objects.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Value> {
        self.rights.iter().chain(&self.code).chain([&self.plugin])
    }
}

/// Plans the deployment of one document.
///
/// # Errors
/// Returns an error with file and line if the host would refuse the object, and if the code is too large.
pub(super) fn plan(
    defined: &Defined,
    mut plugin: Value,
    code: &Code,
    arguments: &HostAccount,
) -> anyhow::Result<Planned> {
    let host = inspect::host(&arguments.host)?;
    let account = Account::for_plugin(&defined.spec, &host);
    let is_of_cluster = defined.spec.id.namespace.is_none();
    let mut notes = Vec::new();
    if defined.spec.impersonate.is_none() {
        plugin["spec"]["serviceAccountName"] = account.name.as_str().into();
        let mut filled = format!("serviceAccountName: {}", account.name);
        if is_of_cluster {
            plugin["spec"]["serviceAccountNamespace"] = account.namespace.as_str().into();
            filled += &format!(" and serviceAccountNamespace: {}", account.namespace);
        }
        notes.push(format!("{}: {filled} is filled in, an account of this plugin only", defined.spec.id));
    }
    let code = match code {
        Code::InPlace => None,
        Code::Image { image, pull_secret } => {
            let mut oci = json!({ "image": image });
            if let Some(secret) = pull_secret {
                oci["pullSecretName"] = secret.as_str().into();
            }
            plugin["spec"]["source"] = json!({ "oci": oci });
            None
        }
        Code::Bytes { key, bytes, is_interpreted } => {
            if defined.spec.language.is_some() && bytes.len() > Language::MOST_BYTES {
                let [size, most] = [bytes.len(), Language::MOST_BYTES].map(|bytes| ui::size(bytes as u64));
                bail!(
                    "{key} has {size}, and a script has at most {most}; leave out what it does not use, or minify it"
                );
            }
            let name = inspect::name("plugin", &defined.spec);
            let target = Target { namespace: account.namespace, name, key: key.clone() };
            let place = json!({ "name": target.name, "key": key, "sha256": Digest::sha256(bytes).hex() });
            plugin["spec"]["source"] = match defined.spec.language {
                Some(language) => json!({ "script": { "language": language.name(), "configMap": place } }),
                None => json!({ "configMap": place }),
            };
            Some(target.manifest(bytes, *is_interpreted)?)
        }
    };
    let spec = spec(defined, &plugin)?;
    let rights = inspect::rights(&spec, &host, arguments.impersonation);
    notes.extend(inspect::notes(&spec, &host, arguments.impersonation));
    Ok(Planned { rights, code, plugin, notes })
}

/// Reads the object as the host does.
fn spec(defined: &Defined, plugin: &Value) -> anyhow::Result<PluginSpec> {
    let plugin = podium_config::plugin_object(plugin).map_err(|problems| {
        let lines = problems.into_iter().map(|problem| {
            let line = Some(defined.lines.line(&problem.field));
            let file = defined.file.clone();
            ConfigError { file, line, field: problem.field, message: problem.message }.to_string()
        });
        anyhow!("{}", lines.collect::<Vec<_>>().join("\n"))
    })?;
    Ok(podium_config::spec(plugin, Path::new("")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{args::Impersonation, plugin};

    /// Plans a document of which the file has no more.
    fn planned(document: &Value, code: &Code) -> anyhow::Result<Planned> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plugin.yaml");
        std::fs::write(&file, ui::yaml(document).unwrap()).unwrap();
        let defined = plugin::read(&[file], None).unwrap().remove(0);
        let arguments = HostAccount { host: "podium/podium-host".to_owned(), impersonation: Impersonation::Plain };
        plan(&defined, document.clone(), code, &arguments)
    }

    fn document(kind: &str, source: &Value) -> Value {
        let mut metadata = json!({ "name": "hello", "labels": { "team": "web" } });
        if kind == "ReconcilePlugin" {
            metadata["namespace"] = "shop".into();
        }
        json!({
            "apiVersion": "podium.dev/v1alpha1", "kind": kind, "metadata": metadata,
            "spec": { "grants": { "write": { "labels": ["team"] } }, "source": source },
        })
    }

    fn names(planned: &Planned) -> Vec<String> {
        planned.objects().map(super::super::named).collect()
    }

    fn script() -> Value {
        json!({ "script": { "language": "javascript", "inline": "export default () => {};" } })
    }

    #[test]
    fn an_account_is_filled_in_and_gets_the_rights_of_the_grants() {
        let mut document = document("ReconcilePlugin", &script());
        let planned = planned(&document, &Code::InPlace).unwrap();
        document["spec"]["serviceAccountName"] = "podium-plugin-hello".into();
        assert_eq!(planned.plugin, document, "nothing else is changed");
        let metadata = json!({ "name": "podium-plugin-hello", "namespace": "shop" });
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata });
        assert_eq!(planned.rights[0], account);
        let rule = json!({ "apiGroups": [""], "resources": ["pods"], "verbs": ["patch"] });
        assert_eq!(planned.rights[1]["rules"], json!([rule]));
        let expected = [
            "ServiceAccount shop/podium-plugin-hello",
            "Role shop/podium-plugin-hello",
            "RoleBinding shop/podium-plugin-hello",
            "Role shop/podium-host-hello",
            "RoleBinding shop/podium-host-hello",
            "ReconcilePlugin shop/hello",
        ];
        assert_eq!(names(&planned), expected);
        let [note] = &planned.notes[..] else { unreachable!("{:?}", planned.notes) };
        assert!(note.starts_with("shop/hello: serviceAccountName: podium-plugin-hello is filled in"), "{note}");
    }

    #[test]
    fn a_named_account_is_kept_without_a_note() {
        let mut document = document("ReconcilePlugin", &script());
        document["spec"]["serviceAccountName"] = "own".into();
        let planned = planned(&document, &Code::InPlace).unwrap();
        assert_eq!((planned.plugin, planned.notes), (document, Vec::new()));
        assert_eq!(planned.rights[0]["metadata"]["name"], "own");
    }

    #[test]
    fn a_plugin_of_the_cluster_has_its_account_beside_the_host() {
        let bytes = b"export default () => {};".to_vec();
        let code = Code::Bytes { key: "plugin.js".to_owned(), bytes, is_interpreted: false };
        let planned = planned(&document("ClusterReconcilePlugin", &script()), &code).unwrap();
        let expected = [
            "ServiceAccount podium/podium-cluster-plugin-hello",
            "ClusterRole podium-cluster-plugin-hello",
            "ClusterRoleBinding podium-cluster-plugin-hello",
            "Role podium/podium-cluster-component-hello",
            "RoleBinding podium/podium-cluster-component-hello",
            "Role podium/podium-cluster-host-hello",
            "RoleBinding podium/podium-cluster-host-hello",
            "ConfigMap podium/podium-cluster-plugin-hello",
            "ClusterReconcilePlugin hello",
        ];
        assert_eq!(names(&planned), expected);
        let spec = &planned.plugin["spec"];
        assert_eq!(
            (&spec["serviceAccountName"], &spec["serviceAccountNamespace"]),
            (&"podium-cluster-plugin-hello".into(), &"podium".into())
        );
        assert!(planned.notes[0].contains("and serviceAccountNamespace: podium"), "{:?}", planned.notes);
    }

    #[test]
    fn code_for_a_config_map_is_named_with_its_digest_and_may_be_read() {
        let sha256 = Digest::sha256(b"code").hex();
        for (source, key, place) in [
            (script(), "plugin.js", "/spec/source/script"),
            (json!({ "file": "hello.wasm" }), "hello.wasm", "/spec/source"),
        ] {
            let code = Code::Bytes { key: key.to_owned(), bytes: b"code".to_vec(), is_interpreted: false };
            let planned = planned(&document("ReconcilePlugin", &source), &code).unwrap();
            let of = planned.plugin.pointer(place).unwrap();
            let named = json!({ "name": "podium-plugin-hello", "key": key, "sha256": sha256 });
            assert_eq!(of["configMap"], named, "{}", planned.plugin);
            assert_eq!((of.get("inline"), of.get("file")), (None, None));
            assert_eq!(planned.code.as_ref().unwrap()["binaryData"], json!({ key: "Y29kZQ==" }));
            let role = planned.rights.iter().find(|of| of["metadata"]["name"] == "podium-component-hello");
            assert_eq!(role.unwrap()["rules"][0]["resourceNames"], json!(["podium-plugin-hello"]));
        }
        let large =
            Code::Bytes { key: "plugin.js".to_owned(), bytes: vec![b' '; (512 << 10) + 1], is_interpreted: false };
        let error = planned(&document("ReconcilePlugin", &script()), &large).unwrap_err().to_string();
        assert!(error.starts_with("plugin.js has 512.0 KiB, and a script has at most 512.0 KiB"), "{error}");
    }

    #[test]
    fn an_image_replaces_the_file_with_the_secret_of_its_registry() {
        let file = document("ReconcilePlugin", &json!({ "file": "hello.wasm" }));
        let image = format!("registry.example/hello:1@sha256:{}", "0".repeat(64));
        let code = Code::Image { image: image.clone(), pull_secret: Some("pull".to_owned()) };
        let planned = planned(&file, &code).unwrap();
        let source = json!({ "oci": { "image": image, "pullSecretName": "pull" } });
        assert_eq!(planned.plugin["spec"]["source"], source);
        assert!(planned.rights.iter().any(|of| of["rules"][0]["resources"] == json!(["secrets"])), "{planned:?}");
    }

    #[test]
    fn a_digest_in_the_file_is_applied_as_it_is() {
        let image = format!("registry.example/hello:1@sha256:{}", "0".repeat(64));
        let mut pinned = document("ReconcilePlugin", &json!({ "oci": { "image": image } }));
        pinned["spec"]["serviceAccountName"] = "hello".into();
        assert_eq!(planned(&pinned, &Code::InPlace).unwrap().plugin, pinned);
    }

    #[test]
    fn what_only_a_file_may_have_is_refused_with_its_line() {
        let error = planned(
            &document("ReconcilePlugin", &json!({ "file": "a.wasm" })),
            &Code::Image { image: "no image".to_owned(), pull_secret: None },
        );
        let error = error.unwrap_err().to_string();
        let (_, place) = error.split_once("plugin.yaml:").unwrap();
        assert!(place.starts_with(|line: char| line.is_ascii_digit()), "{error}");
        assert!(place.contains("spec.source.oci.image"), "{error}");
    }
}
