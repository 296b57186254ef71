//! Signatures as cosign attaches them, with a key of their own.

use anyhow::{Context, Result, anyhow, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::{client::legacy, rt::TokioExecutor};
use podium_registry::{Digest, signature::Key};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair},
};
use serde_json::{Value, json};

use super::Registry;

/// The media type of a manifest.
pub const IMAGE: &str = "application/vnd.oci.image.manifest.v1+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// The type of a statement that is a signature.
pub const SIGNATURE: &str = "https://sigstore.dev/cosign/sign/v1";

/// Writes manifests and blobs as cosign does.
#[derive(Debug)]
pub struct Signer {
    pair: EcdsaKeyPair,
    base: String,
    /// The header Authorization.
    authorization: Option<String>,
}

impl Signer {
    /// Returns a signer with a new key, for a repository. `credentials` are `user:password`.
    ///
    /// # Errors
    /// Returns an error if no key can be made.
    pub fn new(registry: &Registry, repository: &str, credentials: Option<&str>) -> Result<Self> {
        let random = SystemRandom::new();
        let failed = |_| anyhow!("no key");
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).map_err(failed)?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key.as_ref(), &random);
        Ok(Self {
            pair: pair.map_err(|error| anyhow!("no key: {error}"))?,
            base: format!("http://{}/v2/{repository}", registry.address()),
            authorization: credentials.map(|credentials| format!("Basic {}", BASE64_STANDARD.encode(credentials))),
        })
    }

    /// Returns the public key in PEM.
    ///
    /// # Errors
    /// Never returns one.
    pub fn pem(&self) -> Result<String> {
        let prefix = BASE64_STANDARD.decode("MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE")?;
        let der = [&prefix[..], &self.pair.public_key().as_ref()[1..]].concat();
        let body = BASE64_STANDARD.encode(der);
        Ok(format!("-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n"))
    }

    /// Returns the public key.
    ///
    /// # Errors
    /// Returns an error if the host could not use it.
    pub fn key(&self) -> Result<Key> {
        Ok(Key::from_pem(&self.pem()?)?)
    }

    fn sign(&self, bytes: &[u8]) -> Result<String> {
        let signature = self.pair.sign(&SystemRandom::new(), bytes).map_err(|_| anyhow!("no signature"))?;
        Ok(BASE64_STANDARD.encode(signature))
    }

    async fn send(&self, method: &str, url: &str, media_type: &str, body: String) -> Result<http::HeaderMap> {
        let client: legacy::Client<_, Full<Bytes>> = legacy::Client::builder(TokioExecutor::new()).build_http();
        let mut request = Request::builder().method(method).uri(url).header("Content-Type", media_type);
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        let answer = client.request(request.body(Full::from(body))?).await?;
        ensure!(answer.status().is_success(), "{url}: {answer:?}");
        Ok(answer.headers().clone())
    }

    /// Writes a manifest under a tag or digest, and returns its descriptor.
    ///
    /// # Errors
    /// Returns an error if the registry refuses it.
    pub async fn put(&self, name: &str, manifest: &Value) -> Result<Value> {
        let media_type = manifest["mediaType"].as_str().context("a manifest without a type")?;
        let text = manifest.to_string();
        self.send("PUT", &format!("{}/manifests/{name}", self.base), media_type, text.clone()).await?;
        let digest = Digest::sha256(text.as_bytes()).to_string();
        Ok(json!({ "mediaType": media_type, "digest": digest, "size": text.len() }))
    }

    /// Writes a blob, and returns its descriptor.
    ///
    /// # Errors
    /// Returns an error if the registry refuses it.
    pub async fn blob(&self, media_type: &str, text: &str) -> Result<Value> {
        let started = self.send("POST", &format!("{}/blobs/uploads/", self.base), "", String::new()).await?;
        let digest = Digest::sha256(text.as_bytes()).to_string();
        let url = format!("{}&digest={digest}", started["location"].to_str()?);
        self.send("PUT", &url, "application/octet-stream", text.to_owned()).await?;
        Ok(json!({ "mediaType": media_type, "digest": digest, "size": text.len() }))
    }

    /// Attaches a signature in the classic form.
    ///
    /// # Errors
    /// Returns an error if the registry refuses it.
    pub async fn sign_classic(&self, of: &Digest) -> Result<()> {
        let payload = json!({ "critical": {
            "identity": { "docker-reference": "" },
            "image": { "docker-manifest-digest": of.to_string() },
            "type": "cosign container image signature",
        } });
        let payload = payload.to_string();
        let mut layer = self.blob("application/vnd.dev.cosign.simplesigning.v1+json", &payload).await?;
        layer["annotations"] = json!({ "dev.cosignproject.cosign/signature": self.sign(payload.as_bytes())? });
        let config = self.blob("application/vnd.oci.image.config.v1+json", "{}").await?;
        let manifest = json!({ "schemaVersion": 2, "mediaType": IMAGE, "config": config, "layers": [layer] });
        self.put(&format!("sha256-{}.sig", of.hex()), &manifest).await?;
        Ok(())
    }

    /// Attaches a statement with this predicate type as a bundle, by the tag of referrers.
    ///
    /// # Errors
    /// Returns an error if the registry refuses it.
    pub async fn attach(&self, of: &Digest, predicate_type: &str) -> Result<()> {
        let statement = json!({
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{ "digest": { "sha256": of.hex() } }],
            "predicateType": predicate_type,
            "predicate": {},
        });
        let payload = statement.to_string();
        let payload_type = "application/vnd.in-toto+json";
        let signed = format!("DSSEv1 {} {payload_type} {} {payload}", payload_type.len(), payload.len());
        let bundle = json!({ "mediaType": BUNDLE, "dsseEnvelope": {
            "payload": BASE64_STANDARD.encode(payload),
            "payloadType": payload_type,
            "signatures": [{ "sig": self.sign(signed.as_bytes())? }],
        } });
        let layer = self.blob(BUNDLE, &bundle.to_string()).await?;
        let config = self.blob("application/vnd.oci.empty.v1+json", "{}").await?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": IMAGE,
            "artifactType": BUNDLE,
            "config": config,
            "layers": [layer],
            "subject": { "mediaType": IMAGE, "digest": of.to_string(), "size": 1 },
        });
        let digest = Digest::sha256(manifest.to_string().as_bytes()).to_string();
        let entry = self.put(&digest, &manifest).await?;
        let index =
            json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry] });
        self.put(&format!("sha256-{}", of.hex()), &index).await?;
        Ok(())
    }
}
