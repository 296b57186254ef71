//! The bundle form: an envelope (DSSE) with a statement (in-toto) about the manifest, in a Sigstore bundle.
//!
//! The same key signs attestations in the same form, such as the result of a scan, also a failed one. Only the
//! predicate type makes a statement a signature, so it is compared.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;

use super::Key;
use crate::Digest;

pub(super) const MEDIA_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// The same version in the form of older tools.
const OLDER_MEDIA_TYPE: &str = "application/vnd.dev.sigstore.bundle+json";
const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
const STATEMENT: &str = "https://in-toto.io/Statement/v1";
const PREDICATE: &str = "https://sigstore.dev/cosign/sign/v1";
/// The most signatures of one envelope that are tried.
const SIGNATURES: usize = 8;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    media_type: String,
    dsse_envelope: Envelope,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<Signature>,
}

#[derive(Deserialize)]
struct Signature {
    sig: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statement {
    #[serde(rename = "_type")]
    r#type: String,
    subject: Vec<Subject>,
    predicate_type: String,
}

#[derive(Deserialize)]
struct Subject {
    digest: Digests,
}

#[derive(Deserialize)]
struct Digests {
    #[serde(default)]
    sha256: String,
}

/// Returns whether a media type is that of a bundle of version 0.3.
pub(super) fn is_bundle(media_type: &str) -> bool {
    let older = || media_type.split_once(';').filter(|(name, _)| name.trim_end() == OLDER_MEDIA_TYPE);
    media_type == MEDIA_TYPE || older().is_some_and(|(_, parameter)| parameter.trim() == "version=0.3")
}

/// Returns whether the envelope is signed with the key and its statement is a signature of the manifest. The hint at
/// the key that a bundle has is not read.
pub(super) fn is_signed(key: &Key, manifest: &Digest, json: &[u8]) -> bool {
    let Ok(Bundle { media_type, dsse_envelope: envelope }) = serde_json::from_slice(json) else { return false };
    if !is_bundle(&media_type) || envelope.payload_type != PAYLOAD_TYPE {
        return false;
    }
    let Ok(payload) = BASE64_STANDARD.decode(&envelope.payload) else { return false };
    let signed = encoded(PAYLOAD_TYPE, &payload);
    let is_valid = |signature: &Signature| {
        BASE64_STANDARD.decode(&signature.sig).is_ok_and(|signature| key.signed(&signed, &signature))
    };
    if !envelope.signatures.iter().take(SIGNATURES).any(is_valid) {
        return false;
    }
    let Ok(statement) = serde_json::from_slice::<Statement>(&payload) else { return false };
    statement.r#type == STATEMENT
        && statement.predicate_type == PREDICATE
        && statement.subject.iter().any(|subject| Digest::from_hex(&subject.digest.sha256).as_ref() == Some(manifest))
}

/// Returns the bytes that an envelope's signature is of (PAE).
pub(super) fn encoded(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}
