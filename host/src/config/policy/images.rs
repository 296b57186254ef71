//! The part of the policy about components in registries: which registries, tags and signatures it permits.

use std::{collections::BTreeMap, path::Path};

use podium_config::{
    Problem,
    policy::{Registry as Listed, Spec},
};
use podium_registry::{Hops, Host, Reference, Registry, authorities, signature::Key};
use podium_vocabulary::{Source, Tenant, text};

use super::{
    super::{ConfigError, read_file},
    Policy, ReadFile,
};

/// Reads the keys, by their texts.
///
/// # Errors
/// Returns the mistakes in keys that are public keys, but none that a signature can be checked with.
pub(super) fn keys(spec: &Spec) -> Result<BTreeMap<String, Key>, Vec<Problem>> {
    let Spec { registries: _, defaults, namespaces, cluster } = spec;
    let sections = [("spec.defaults".to_owned(), defaults), ("spec.cluster".to_owned(), cluster)];
    let of_namespaces = namespaces.iter().map(|(name, rules)| (format!("spec.namespaces.{}", &**name), rules));
    let mut keys = BTreeMap::new();
    let mut problems = Vec::new();
    for (path, rules) in sections.into_iter().chain(of_namespaces) {
        for (at, text) in rules.images.signature_keys.iter().flatten().enumerate() {
            match Key::from_pem(text) {
                Ok(key) => drop(keys.insert(text.to_string(), key)),
                Err(error) => {
                    let field = format!("{path}.images.signatureKeys[{at}]");
                    problems.push(Problem { line: None, field, message: error.to_string() });
                }
            }
        }
    }
    if problems.is_empty() { Ok(keys) } else { Err(problems) }
}

impl Policy {
    /// Returns a mistake in a field of the policy.
    pub(crate) fn error(&self, field: &str, message: String) -> ConfigError {
        ConfigError { file: self.file.clone(), line: None, field: field.to_owned(), message }
    }

    /// Returns the registries that may be connected to, and reads the certificates of their authorities.
    ///
    /// # Errors
    /// Returns every file that cannot be read or has no certificate.
    pub fn registries(&self) -> Result<Vec<Registry>, Vec<ConfigError>> {
        self.registries_by(&mut read_file)
    }

    /// Returns the registries, with the certificates in the bytes that `read` returns for their files.
    pub(crate) fn registries_by(&self, read: ReadFile<'_>) -> Result<Vec<Registry>, Vec<ConfigError>> {
        let mut registries = Vec::new();
        let mut errors = Vec::new();
        for (at, listed) in self.spec.registries.iter().enumerate() {
            match self.registry(listed, read) {
                Ok(registry) => registries.push(registry),
                Err(message) => {
                    errors.push(self.error(&format!("spec.registries[{at}].caFile"), message));
                }
            }
        }
        if errors.is_empty() { Ok(registries) } else { Err(errors) }
    }

    fn registry(&self, listed: &Listed, read: ReadFile<'_>) -> Result<Registry, String> {
        let host = |text: &str| text.parse::<Host>().map_err(|error| error.to_string());
        let certificates = match &listed.ca_file {
            None => Vec::new(),
            Some(name) => {
                let path = self.file.parent().unwrap_or(Path::new("")).join(&**name);
                let shown = text::path(&path);
                let pem = read(&path).map_err(|error| format!("{shown} {error}"))?;
                authorities(&pem).map_err(|error| format!("{shown} {error}"))?
            }
        };
        Ok(Registry {
            host: host(&listed.host)?,
            plain_http: listed.plain_http,
            private_addresses: listed.private_addresses,
            certificates,
            hops: Hops::Listed(listed.redirect_hosts.iter().map(|text| host(text)).collect::<Result<_, _>>()?),
        })
    }

    /// Returns the keys of which one must have signed an image of a tenant; `None` if no signature is required.
    #[must_use]
    pub fn required_keys(&self, tenant: &Tenant) -> Option<Vec<Key>> {
        self.rule(tenant, |rules| rules.images.signature_required).filter(|(_, required)| *required)?;
        let keys = self.rule(tenant, |rules| rules.images.signature_keys.as_ref());
        Some(keys.into_iter().flat_map(|(_, keys)| keys).filter_map(|key| self.keys.get(&**key)).cloned().collect())
    }

    /// Compares the place of a component with the list of registries and the rules of images. A file is the platform's.
    pub(super) fn source(&self, tenant: &Tenant, source: &Source) -> Option<Problem> {
        let image = match source {
            Source::File(_) | Source::Inline(_) => return None,
            Source::ConfigMap { .. } => {
                let (path, _) =
                    self.rule(tenant, |rules| rules.images.signature_required).filter(|(_, required)| *required)?;
                let message = format!("has no signature, and components of {tenant} must have one");
                let path = format!("{path}.images.signatureRequired");
                let next = "push the component to a registry, sign it, and use source.oci";
                return Some(self.problem("spec.source.configMap", &path, message, next));
            }
            Source::Oci { image, .. } => image,
        };
        const FIELD: &str = "spec.source.oci.image";
        // The configuration was checked for a reference.
        let reference: Reference = image.parse().ok()?;
        let is_listed = |listed: &Listed| {
            listed.host.parse::<Host>().is_ok_and(|host| host.is(reference.host(), listed.plain_http))
        };
        if !self.spec.registries.iter().any(is_listed) {
            let message = format!("is of registry {}, which is not listed", reference.host());
            let next = "push the component to a listed registry";
            return Some(self.problem(FIELD, "spec.registries", message, next));
        }
        let tags = self.rule(tenant, |rules| rules.images.tags_permitted);
        let (path, permitted) = tags.unwrap_or(("spec.defaults".to_owned(), false));
        if reference.digest().is_none() && !permitted {
            let message = format!("has a tag and no digest, and images of {tenant} must have one");
            let next = "append @sha256: and the digest that podium push printed";
            return Some(self.problem(FIELD, &format!("{path}.images.tagsPermitted"), message, next));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use podium_pods::testing;
    use podium_vocabulary::{PluginSpec, PullSecret};

    use super::*;

    const KEY: &str = "-----BEGIN PUBLIC KEY-----\n\
        MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEPlDFDYGACj+EvYOSlwQT9aUleMBV\n\
        wHWIcVIOBJTe3AzVIiPxkkLYxw7Nk36x3ZKtSm7fWLFKZ0mtUWTvLXdoMg==\n\
        -----END PUBLIC KEY-----\n";
    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn read(spec: serde_json::Value) -> Result<(tempfile::TempDir, Policy), Vec<ConfigError>> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("policy.yaml");
        let policy = serde_json::json!({ "apiVersion": "podium.dev/v1alpha1", "kind": "Policy", "spec": spec });
        fs::write(&file, policy.to_string()).unwrap();
        Policy::read(&file).map(|policy| (directory, policy))
    }

    fn plugin(namespace: Option<&str>, source: Source) -> PluginSpec {
        PluginSpec { source, ..testing::plugin(namespace, "tidy") }
    }

    fn problem(policy: &Policy, namespace: Option<&str>, image: &str) -> Option<String> {
        let pull_secret =
            Some(PullSecret { account: "a".to_owned(), namespace: "shop".to_owned(), name: "pull".to_owned() });
        let problems = policy.problems(&plugin(namespace, Source::Oci { image: image.to_owned(), pull_secret }));
        assert!(problems.len() < 2, "{problems:?}");
        problems.into_iter().next().map(|problem| {
            assert_eq!(problem.field, "spec.source.oci.image");
            problem.message
        })
    }

    #[test]
    fn only_listed_registries_and_permitted_tags_are_used() {
        let spec = serde_json::json!({
            "registries": [{ "host": "A.example" }, { "host": "b.example:5000", "plainHttp": true }],
            "namespaces": { "shop": { "images": { "tagsPermitted": true } } },
        });
        let (_directory, policy) = read(spec).unwrap();
        let pinned = |host: &str| format!("{host}/team/a@{DIGEST}");
        for host in ["a.example", "a.example:443", "b.example:5000"] {
            assert_eq!(problem(&policy, Some("bank"), &pinned(host)), None, "{host}");
        }
        for host in ["c.example", "a.example:5000", "b.example", "a.example.c.example", "127.0.0.1"] {
            let message = problem(&policy, Some("shop"), &pinned(host)).unwrap();
            assert!(message.contains("which is not listed") && message.contains("spec.registries"), "{message}");
        }
        assert_eq!(problem(&policy, Some("shop"), "a.example/a:1"), None);
        assert_eq!(problem(&policy, Some("bank"), &format!("a.example/a:1@{DIGEST}")), None);
        for namespace in [Some("bank"), None] {
            let message = problem(&policy, namespace, "a.example/a:1").unwrap();
            assert!(message.contains("spec.defaults.images.tagsPermitted"), "{message}");
        }
        let (_directory, none) = read(serde_json::json!({})).unwrap();
        assert!(problem(&none, Some("shop"), &pinned("a.example")).unwrap().contains("which is not listed"));
    }

    #[test]
    fn a_required_signature_has_the_tenants_keys() {
        let spec = serde_json::json!({
            "defaults": { "images": { "signatureRequired": true, "signatureKeys": [KEY] } },
            "namespaces": {
                "shop": { "images": { "signatureKeys": [KEY, KEY] } },
                "lax": { "images": { "signatureRequired": false } },
            },
        });
        let (_directory, policy) = read(spec).unwrap();
        let keys = |tenant: Tenant| policy.required_keys(&tenant).map(|keys| keys.len());
        let namespace = |name: &str| Tenant::Namespace(name.into());
        assert_eq!([keys(namespace("shop")), keys(namespace("bank")), keys(Tenant::Cluster)], [2, 1, 1].map(Some));
        assert_eq!(keys(namespace("lax")), None);
        let source = || Source::ConfigMap {
            namespace: "shop".to_owned(),
            name: "a".to_owned(),
            key: "a".to_owned(),
            sha256: "0".repeat(64),
        };
        let problems = policy.problems(&plugin(Some("shop"), source()));
        assert_eq!(problems[0].field, "spec.source.configMap");
        assert!(problems[0].message.contains("spec.defaults.images.signatureRequired"), "{problems:?}");
        assert!(policy.problems(&plugin(Some("lax"), source())).is_empty());
        assert!(policy.problems(&plugin(Some("shop"), Source::File("a.wasm".into()))).is_empty());
    }

    #[test]
    fn a_key_of_another_curve_is_a_mistake_of_the_policy() {
        let other = KEY.replace("DQgAE", "DQgAC");
        let images = serde_json::json!({ "images": { "signatureKeys": [KEY, other] } });
        for (spec, field) in [
            (serde_json::json!({ "defaults": images }), "spec.defaults.images.signatureKeys[1]"),
            (serde_json::json!({ "cluster": images }), "spec.cluster.images.signatureKeys[1]"),
            (serde_json::json!({ "namespaces": { "a": images } }), "spec.namespaces.a.images.signatureKeys[1]"),
        ] {
            let errors = read(spec).unwrap_err();
            assert_eq!(errors.iter().map(|error| &*error.field).collect::<Vec<_>>(), [field]);
            assert!(errors[0].message.contains("P-256"), "{errors:?}");
        }
    }

    #[test]
    fn authorities_are_read_from_files_beside_the_policy() {
        let listed = |file: &str| serde_json::json!({ "registries": [{ "host": "a.example", "caFile": file }] });
        let (directory, policy) = read(listed("ca.pem")).unwrap();
        let error = || policy.registries().unwrap_err().remove(0);
        assert!(error().message.contains("ca.pem cannot be read"), "{}", error());
        assert_eq!(error().field, "spec.registries[0].caFile");
        fs::write(directory.path().join("ca.pem"), KEY).unwrap();
        assert!(error().message.contains("has no certificate"), "{}", error());
        let (_directory, policy) = read(serde_json::json!({
            "registries": [{ "host": "a.example:1", "privateAddresses": true, "redirectHosts": ["b.example"] }],
        }))
        .unwrap();
        let Registry { host, plain_http, private_addresses, certificates, hops } =
            policy.registries().unwrap().remove(0);
        assert_eq!((host.to_string(), plain_http, private_addresses), ("a.example:1".to_owned(), false, true));
        let Hops::Listed(hops) = hops else { unreachable!("{hops:?}") };
        assert_eq!((hops.len(), certificates.len()), (1, 0));
    }
}
