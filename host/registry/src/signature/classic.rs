//! The classic form: a layer of a manifest under the tag `sha256-<hex>.sig`, with its signature as an annotation.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;

use super::Key;
use crate::Digest;

pub(super) const LAYER: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
pub(super) const ANNOTATION: &str = "dev.cosignproject.cosign/signature";
const TYPE: &str = "cosign container image signature";

#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Image,
    r#type: String,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

/// Returns whether the payload is signed with the key and names the manifest. The signature is checked first, over the
/// bytes as they came: nothing is read of a payload without a valid signature.
pub(super) fn is_signed(key: &Key, manifest: &Digest, payload: &[u8], signature: &str) -> bool {
    let Ok(signature) = BASE64_STANDARD.decode(signature) else { return false };
    if !key.signed(payload, &signature) {
        return false;
    }
    let Ok(Payload { critical }) = serde_json::from_slice(payload) else { return false };
    critical.r#type == TYPE && critical.image.digest.parse() == Ok(*manifest)
}
