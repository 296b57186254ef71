//! Pushing a component in the layout of the CNCF.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{
    Client, Credentials, Digest, Error, Limits, Reference,
    client::within,
    layout::{CONFIG, Descriptor, IMAGE_MANIFEST, LAYER, Manifest},
    session::{Outgoing, Session},
};

/// The time in every config: the same component has the same digest whenever it is pushed.
const CREATED: &str = "1970-01-01T00:00:00Z";
const TITLE: &str = "org.opencontainers.image.title";
const VERSION: &str = "org.opencontainers.image.version";

/// A component to push, and its description in the config.
#[derive(Debug, Clone)]
pub struct Artifact {
    pub bytes: Bytes,
    /// The name of the file, without a folder.
    pub title: Option<String>,
    pub version: Option<String>,
    /// Interfaces, in the form `podium:plugin/host@0.1.0`.
    pub imports: Vec<String>,
    pub exports: Vec<String>,
}

/// The result of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// The reference with the digest of the manifest.
    pub reference: Reference,
    pub layer: Digest,
}

impl Artifact {
    /// Returns the digest that the manifest has when the component is pushed.
    ///
    /// # Errors
    /// Returns an error if the manifest cannot be written.
    pub fn digest(&self) -> Result<Digest, Error> {
        self.documents().map(|(_, manifest)| Digest::sha256(&manifest))
    }

    /// Returns the config and the manifest. They depend on the artifact only.
    fn documents(&self) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let mut layer = Descriptor::new(LAYER, &self.bytes);
        let title = self.title.clone().map(|title| (TITLE.to_owned(), title));
        layer.annotations = title.map(|title| BTreeMap::from([title]));
        let config = serde_json::json!({
            "created": CREATED,
            "author": null,
            "architecture": "wasm",
            "os": "wasip2",
            "layerDigests": [layer.digest],
            "component": { "exports": self.exports, "imports": self.imports, "target": null },
        });
        let config = serde_json::to_vec(&config).map_err(unwritten)?;
        let annotations = self.version.clone().map(|version| (VERSION.to_owned(), version)).into_iter().collect();
        let manifest = Manifest::of_component(Descriptor::new(CONFIG, &config), layer, annotations);
        let manifest = serde_json::to_vec(&manifest).map_err(unwritten)?;
        Ok((config, manifest))
    }
}

fn unwritten(error: serde_json::Error) -> Error {
    Error::Invalid(format!("the manifest cannot be written: {error}"))
}

impl Client {
    /// Pushes a component under the reference's tag, or its digest if it has no tag. Blobs that the registry has are
    /// not sent.
    ///
    /// # Errors
    /// Returns an error if the reference's digest is not the one of the manifest, and see [`Client::pull`].
    pub async fn push(
        &self,
        reference: &Reference,
        artifact: &Artifact,
        credentials: &[Credentials],
        limits: &Limits,
    ) -> Result<Pushed, Error> {
        let (config, manifest) = artifact.documents()?;
        let digest = Digest::sha256(&manifest);
        if let Some(other) = reference.digest().filter(|other| **other != digest) {
            let message = format!("the reference names {other}, and the manifest of this component is {digest}");
            return Err(Error::DigestMismatch(message));
        }
        within(limits, "the push", async {
            let mut session = Session::new(self, reference.host(), reference.repository(), "pull,push", credentials)?;
            session.upload_blob(&artifact.bytes).await?;
            session.upload_blob(&config.into()).await?;
            let selector = reference.tag().map_or_else(|| digest.to_string(), str::to_owned);
            let outgoing = Outgoing {
                method: Method::PUT,
                accept: None,
                content_type: Some(IMAGE_MANIFEST),
                body: manifest.into(),
            };
            let target = session.below(&format!("manifests/{selector}"));
            let answer = session.send(&target, &outgoing).await?;
            if answer.status != StatusCode::CREATED {
                return Err(answer.refusal("the manifest").await);
            }
            Ok(Pushed { reference: reference.with_digest(digest), layer: Digest::sha256(&artifact.bytes) })
        })
        .await
    }
}

impl Session<'_> {
    /// Sends a blob in one piece, unless the registry has it.
    async fn upload_blob(&mut self, bytes: &Bytes) -> Result<(), Error> {
        let outgoing = |method: Method, body: Bytes| Outgoing {
            content_type: (!body.is_empty()).then_some("application/octet-stream"),
            method,
            accept: None,
            body,
        };
        let digest = Digest::sha256(bytes);
        let own = self.below(&format!("blobs/{digest}"));
        if self.send(&own, &outgoing(Method::HEAD, Bytes::new())).await?.status == StatusCode::OK {
            return Ok(());
        }
        let uploads = self.below("blobs/uploads/");
        let started = self.send(&uploads, &outgoing(Method::POST, Bytes::new())).await?;
        if started.status != StatusCode::ACCEPTED {
            return Err(started.refusal("the upload").await);
        }
        let digest = utf8_percent_encode(&digest.to_string(), NON_ALPHANUMERIC).to_string();
        let target = self.location(&uploads, &started)?.with_query(&format!("digest={digest}"));
        let done = self.send(&target, &outgoing(Method::PUT, bytes.clone())).await?;
        if done.status != StatusCode::CREATED {
            return Err(done.refusal("the upload").await);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_component_has_the_same_manifest_in_a_layout_that_is_read() {
        let artifact = Artifact {
            bytes: Bytes::from_static(b"\0asm"),
            title: Some("a.wasm".to_owned()),
            version: Some("1.0".to_owned()),
            imports: vec!["podium:plugin/host@0.1.0".to_owned()],
            exports: Vec::new(),
        };
        let (config, manifest) = artifact.documents().unwrap();
        assert_eq!((config.clone(), manifest.clone()), artifact.documents().unwrap());
        let parsed = Manifest::parse(&manifest, Some(IMAGE_MANIFEST)).unwrap();
        assert_eq!(parsed.clone().component().unwrap().digest, Digest::sha256(b"\0asm").to_string());
        assert_eq!(parsed.config.unwrap().digest, Digest::sha256(&config).to_string());
        let text = String::from_utf8(manifest).unwrap();
        assert!(text.contains(r#""org.opencontainers.image.title":"a.wasm""#), "{text}");
        assert!(text.contains(r#""org.opencontainers.image.version":"1.0""#) && !text.contains("null"), "{text}");
        assert!(String::from_utf8(config).unwrap().contains(r#""created":"1970-01-01T00:00:00Z""#));
    }
}
