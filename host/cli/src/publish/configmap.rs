//! A component in a ConfigMap: the manifest, and its creation or change.

use anyhow::{Context, bail};
use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use podium_vocabulary::syntax;
use serde_json::{Value, json};

use crate::{args, cluster, ui};

/// The most bytes of all values of a ConfigMap, by the API server.
const MAX_BYTES: usize = 1 << 20;
/// The longest key, by the API server.
const KEY_BYTES: usize = 253;
/// The field manager of changes by `--apply`.
const MANAGER: &str = "podium";

/// A key of a ConfigMap.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) key: String,
}

impl Target {
    /// Reads `NAMESPACE/NAME[:KEY]`. The key is `file` by default.
    pub(super) fn parse(text: &str, file: &str) -> anyhow::Result<Self> {
        let (namespace, rest) = text.split_once('/').unwrap_or(("", text));
        let (name, key) = rest.split_once(':').unwrap_or((rest, file));
        if syntax::dns_label(namespace).is_err() || syntax::dns_subdomain(name).is_err() {
            bail!("--configmap {text}: must be NAMESPACE/NAME or NAMESPACE/NAME:KEY");
        }
        let is_key = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if key.is_empty() || key.len() > KEY_BYTES || !key.bytes().all(is_key) || key.starts_with("..") || key == "." {
            bail!(
                "--configmap {text}: the key {key:?} must be letters, digits, '-', '_' and '.'; write one after a colon"
            );
        }
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned(), key: key.to_owned() })
    }

    /// Returns the manifest with the component. One that is `interpreted` contains an interpreter.
    pub(crate) fn manifest(&self, wasm: &[u8], interpreted: bool) -> anyhow::Result<Value> {
        if wasm.len() > MAX_BYTES {
            let step = if interpreted {
                "its interpreter is larger than that: push it to a registry, by `podium push FILE HOST/REPOSITORY:TAG`"
            } else {
                "push it to a registry, or make it smaller with opt-level = \"s\", lto and strip"
            };
            let size = ui::size(wasm.len() as u64);
            let most = ui::size(MAX_BYTES as u64);
            bail!("the component has {size}, and a ConfigMap holds at most {most}; {step}");
        }
        Ok(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": self.name, "namespace": self.namespace },
            "binaryData": { &self.key: BASE64_STANDARD.encode(wasm) },
        }))
    }

    /// Creates the ConfigMap, or changes its key. Other keys stay.
    pub(super) async fn apply(&self, manifest: &Value, arguments: &args::Push) -> anyhow::Result<()> {
        let client = cluster::connect(arguments.kubeconfig.as_deref(), None).await?;
        let maps: Api<ConfigMap> = Api::namespaced(client, &self.namespace);
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let what = || format!("ConfigMap {}/{}", self.namespace, self.name);
        let patch = json!({ "binaryData": manifest["binaryData"] });
        match maps.patch(&self.name, &parameters, &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
                let map = serde_json::from_value(manifest.clone())?;
                maps.create(&parameters, &map).await.with_context(|| format!("cannot create {}", what()))?;
            }
            patched => {
                patched.with_context(|| format!("cannot change {}", what()))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_the_name_of_the_file_unless_it_is_written() {
        let target = |text: &str| {
            let Target { namespace, name, key } = Target::parse(text, "ttl.wasm").unwrap();
            [namespace, name, key].join(" ")
        };
        assert_eq!(target("shop/plugins"), "shop plugins ttl.wasm");
        assert_eq!(target("shop/plugins:a_b"), "shop plugins a_b");
        for wrong in ["plugins", "/plugins", "shop/", "Shop/plugins", "shop/plugins:", "shop/plugins:a/b", "shop/a/b"] {
            assert!(Target::parse(wrong, "ttl.wasm").is_err(), "{wrong}");
        }
        let error = Target::parse("shop/plugins", "my plugin.wasm").unwrap_err().to_string();
        assert!(error.contains("after a colon"), "{error}");
    }

    #[test]
    fn a_component_that_does_not_fit_is_refused_with_what_to_do() {
        let target = Target::parse("shop/plugins", "ttl.wasm").unwrap();
        assert!(target.manifest(&vec![0; MAX_BYTES], true).is_ok());
        for (interpreted, compilers) in [(false, true), (true, false)] {
            let error = target.manifest(&vec![0; MAX_BYTES + 1], interpreted).unwrap_err().to_string();
            assert!(error.contains("push it to a registry") && error.contains("1.0 MiB"), "{error}");
            assert_eq!(error.contains("opt-level"), compilers, "{error}");
        }
    }
}
