//! Manifests of components: the layouts that are recognised, and why others are not.
//!
//! The layout of the CNCF has a config of its own type and one layer `application/wasm`, which is the component. Older
//! tools used other names for the same thing. The config is the publisher's claim about the component and is not read:
//! what a component imports is decided from the component.

use serde::{Deserialize, Serialize};

use crate::{Digest, Error, error::words};

/// The most bytes of a manifest. One with a single layer has less than one thousandth of this.
pub(crate) const MANIFEST: u64 = 64 << 10;
pub(crate) const IMAGE_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const IMAGE_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// An index is asked for too, only to refuse it by name: without, registries answer that there is nothing.
pub(crate) const ACCEPT: &str = "application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json";

pub(crate) const CONFIG: &str = "application/vnd.wasm.config.v0+json";
pub(crate) const LAYER: &str = "application/wasm";
/// Layers of older tools that are a component as it is.
const OLDER_LAYERS: [&str; 2] =
    ["application/vnd.wasm.content.layer.v1+wasm", "application/vnd.module.wasm.content.layer.v1+wasm"];
/// Configs of tools that store one component.
const CONFIGS: [&str; 5] = [
    CONFIG,
    "application/vnd.wasm.config.v1+json",
    "application/vnd.module.wasm.config.v1+json",
    "application/vnd.wasmcloud.actor.archive.config",
    "application/vnd.oci.empty.v1+json",
];

/// A manifest, as far as it is read. `urls` of a descriptor are not: a manifest does not choose where blobs come from.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) artifact_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) config: Option<Descriptor>,
    #[serde(default)]
    pub(crate) layers: Vec<Descriptor>,
    /// The list of an index.
    #[serde(default, skip_serializing)]
    manifests: Option<serde::de::IgnoredAny>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subject: Option<Descriptor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    annotations: Option<std::collections::BTreeMap<String, String>>,
}

/// A manifest's description of a blob or another manifest.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub(crate) media_type: String,
    pub(crate) digest: String,
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) annotations: Option<std::collections::BTreeMap<String, String>>,
}

impl Descriptor {
    pub(crate) fn new(media_type: &str, bytes: &[u8]) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest: Digest::sha256(bytes).to_string(),
            size: bytes.len() as u64,
            annotations: None,
        }
    }
}

impl Manifest {
    /// Returns the manifest of a component in the layout of the CNCF.
    pub(crate) fn of_component(
        config: Descriptor,
        layer: Descriptor,
        annotations: std::collections::BTreeMap<String, String>,
    ) -> Self {
        Self {
            schema_version: 2,
            media_type: Some(IMAGE_MANIFEST.to_owned()),
            artifact_type: None,
            config: Some(config),
            layers: vec![layer],
            manifests: None,
            subject: None,
            annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
        }
    }

    /// Reads a manifest, and refuses an index.
    pub(crate) fn parse(bytes: &[u8], content_type: Option<&str>) -> Result<Self, Error> {
        let invalid = |why: &str| Error::Invalid(format!("the manifest {why}"));
        let is_index = |media_type: &str| [IMAGE_INDEX, DOCKER_LIST].iter().any(|index| media_type.starts_with(index));
        let index = || invalid("is an index of several; name one of its manifests by digest");
        if content_type.is_some_and(is_index) {
            return Err(index());
        }
        let manifest: Self = serde_json::from_slice(bytes)
            .map_err(|error| invalid(&format!("is not one of an OCI image: {}", words(&error.to_string()))))?;
        if manifest.manifests.is_some() || manifest.media_type.as_deref().is_some_and(is_index) {
            return Err(index());
        }
        if manifest.schema_version != 2 {
            return Err(invalid("is not of schema version 2"));
        }
        // Helm, among others, leaves the media type out.
        match manifest.media_type.as_deref() {
            None | Some(IMAGE_MANIFEST) => Ok(manifest),
            Some(other) => {
                Err(invalid(&format!("has the media type {}; push it as an OCI image manifest", words(other))))
            }
        }
    }

    /// Returns the layer that is the component.
    pub(crate) fn component(mut self) -> Result<Descriptor, Error> {
        let invalid = |why: String| Error::Invalid(format!("not a component: {why}"));
        let config = self.config.as_ref().map_or("", |config| config.media_type.as_str());
        let all = || self.layers.iter().map(|layer| layer.media_type.as_str()).chain([config]);
        if all().any(|media_type| media_type.contains("fermyon.spin")) {
            return Err(invalid("it is an application of Spin, which may have several components".to_owned()));
        }
        let count = self.layers.len();
        let Some(layer) = self.layers.pop().filter(|_| count == 1) else {
            return Err(invalid(format!("the manifest has {count} layers, and a component is exactly one")));
        };
        let media_type = layer.media_type.as_str();
        if media_type != LAYER && !OLDER_LAYERS.contains(&media_type) {
            let media_type = words(media_type);
            return Err(invalid(format!("the layer is {media_type} and not {LAYER}; push it with podium push")));
        }
        if !CONFIGS.contains(&config) {
            return Err(invalid(format!("the config is {} and not {CONFIG}; push it with podium push", words(config))));
        }
        Ok(layer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(config: &str, layers: &[&str]) -> String {
        let digest = Digest::sha256(b"").to_string();
        let descriptor = |media_type: &str| serde_json::json!({"mediaType": media_type, "digest": digest, "size": 0});
        let layers: Vec<_> = layers.iter().map(|layer| descriptor(layer)).collect();
        serde_json::json!({"schemaVersion": 2, "config": descriptor(config), "layers": layers}).to_string()
    }

    fn refusal(text: &str) -> String {
        match Manifest::parse(text.as_bytes(), None).and_then(Manifest::component) {
            Err(Error::Invalid(message)) => message,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn layouts_of_one_component_are_recognised() {
        for (config, layer) in [
            (CONFIG, LAYER),
            ("application/vnd.wasm.config.v1+json", "application/vnd.wasm.content.layer.v1+wasm"),
            ("application/vnd.wasmcloud.actor.archive.config", "application/vnd.module.wasm.content.layer.v1+wasm"),
        ] {
            let manifest = Manifest::parse(manifest(config, &[layer]).as_bytes(), None).unwrap();
            assert_eq!(manifest.component().unwrap().media_type, layer);
        }
    }

    #[test]
    fn other_layouts_are_refused_with_what_they_are() {
        const OLDER: &str = "application/vnd.wasm.content.layer.v1+wasm";
        let image = "application/vnd.oci.image.layer.v1.tar+gzip";
        for (text, part) in [
            (manifest(CONFIG, &[LAYER, LAYER]), "2 layers"),
            (manifest(CONFIG, &[]), "0 layers"),
            (manifest(CONFIG, &vec![LAYER; 400]), "400 layers"),
            (manifest("application/vnd.fermyon.spin.application.v1+config", &[OLDER]), "Spin"),
            (manifest(CONFIG, &[image]), "tar+gzip"),
            (manifest("application/vnd.oci.image.config.v1+json", &[LAYER]), "image.config"),
            (r#"{"schemaVersion":2,"manifests":[]}"#.to_owned(), "index"),
            (format!(r#"{{"schemaVersion":2,"mediaType":"{IMAGE_INDEX}"}}"#), "index"),
            (r#"{"schemaVersion":1,"layers":[]}"#.to_owned(), "schema version"),
            (r#"{"schemaVersion":2,"mediaType":"a\nb","layers":[]}"#.to_owned(), r"a\nb"),
            ("[".repeat(60_000), "not one of an OCI image"),
            (String::new(), "not one of an OCI image"),
        ] {
            let message = refusal(&text);
            assert!(message.contains(part) && message.len() < 500, "{part}: {message}");
        }
        let index = Manifest::parse(manifest(CONFIG, &[LAYER]).as_bytes(), Some(IMAGE_INDEX));
        assert!(matches!(index, Err(Error::Invalid(message)) if message.contains("index")));
    }
}
