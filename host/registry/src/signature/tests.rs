//! Signatures of both forms, whole and with one thing changed.

use base64::{Engine, prelude::BASE64_STANDARD};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair},
};
use serde_json::{Value, json};

use super::*;

const TYPE: &str = "application/vnd.in-toto+json";

/// A key pair of this test.
struct Signer(EcdsaKeyPair);

impl Signer {
    fn new() -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref(), &random).unwrap())
    }

    fn key(&self) -> Key {
        let prefix = BASE64_STANDARD.decode("MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE").unwrap();
        let der = [&prefix[..], &self.0.public_key().as_ref()[1..]].concat();
        let body = BASE64_STANDARD.encode(der);
        Key::from_pem(&format!("-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n")).unwrap()
    }

    fn sign(&self, bytes: &[u8]) -> String {
        BASE64_STANDARD.encode(self.0.sign(&SystemRandom::new(), bytes).unwrap())
    }

    fn classic(&self, payload: &Value) -> Claim {
        let payload = payload.to_string().into_bytes();
        Claim::Classic { signature: self.sign(&payload), payload }
    }

    fn bundle(&self, statement: &Value) -> Value {
        let payload = statement.to_string().into_bytes();
        let signature = self.sign(&bundle::encoded(TYPE, &payload));
        json!({
            "mediaType": bundle::MEDIA_TYPE,
            "verificationMaterial": { "publicKey": { "hint": "x" } },
            "dsseEnvelope": {
                "payload": BASE64_STANDARD.encode(payload),
                "payloadType": TYPE,
                "signatures": [{ "sig": signature }],
            },
        })
    }
}

fn manifest() -> Digest {
    Digest::sha256(b"a manifest")
}

fn payload() -> Value {
    json!({
        "critical": {
            "identity": { "docker-reference": "registry.example/plugin" },
            "image": { "docker-manifest-digest": manifest().to_string() },
            "type": "cosign container image signature",
        },
        "optional": null,
    })
}

fn statement() -> Value {
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{ "digest": { "sha256": manifest().hex() } }],
        "predicateType": "https://sigstore.dev/cosign/sign/v1",
        "predicate": {},
    })
}

fn of_json(bundle: &Value) -> Claim {
    Claim::Bundle(bundle.to_string().into_bytes())
}

fn verifies(signer: &Signer, claim: Claim) -> bool {
    verify(&[signer.key()], &manifest(), &Claims { claims: vec![claim], passed_over: 0 }).is_ok()
}

/// Returns the document with another value at a path.
fn with(mut document: Value, pointer: &str, value: Value) -> Value {
    *document.pointer_mut(pointer).unwrap() = value;
    document
}

#[test]
fn a_signature_of_either_form_is_accepted() {
    let signer = Signer::new();
    assert!(verifies(&signer, signer.classic(&payload())));
    assert!(verifies(&signer, of_json(&signer.bundle(&statement()))));
    for older in ["version=0.3", " version=0.3 "] {
        let older = json!(format!("application/vnd.dev.sigstore.bundle+json;{older}"));
        assert!(verifies(&signer, of_json(&with(signer.bundle(&statement()), "/mediaType", older))));
    }
}

#[test]
fn a_payload_that_says_something_else_is_no_signature() {
    let signer = Signer::new();
    let other = Digest::sha256(b"another").to_string();
    for (pointer, value) in [
        ("/critical/image/docker-manifest-digest", json!(other)),
        ("/critical/image/docker-manifest-digest", json!(manifest().hex())),
        ("/critical/image", json!({})),
        ("/critical/type", json!("atomic container signature")),
        ("/critical", json!(null)),
    ] {
        assert!(!verifies(&signer, signer.classic(&with(payload(), pointer, value.clone()))), "{pointer} {value}");
    }
}

#[test]
fn a_statement_that_says_something_else_is_no_signature() {
    let signer = Signer::new();
    let other = json!({ "digest": { "sha256": Digest::sha256(b"another").hex() } });
    for (pointer, value) in [
        ("/predicateType", json!("https://cosign.sigstore.dev/attestation/v1")),
        ("/predicateType", json!("https://sigstore.dev/cosign/sign/v2")),
        ("/_type", json!("https://in-toto.io/Statement/v0.1")),
        ("/subject", json!([other])),
        ("/subject", json!([])),
        ("/subject/0/digest", json!({ "sha512": manifest().hex() })),
    ] {
        let bundle = signer.bundle(&with(statement(), pointer, value.clone()));
        assert!(!verifies(&signer, of_json(&bundle)), "{pointer} {value}");
    }
    let both = with(statement(), "/subject", json!([other, { "digest": { "sha256": manifest().hex() } }]));
    assert!(verifies(&signer, of_json(&signer.bundle(&both))));
}

#[test]
fn an_envelope_of_another_kind_is_no_signature() {
    let signer = Signer::new();
    let bundle = signer.bundle(&statement());
    let bare = signer.sign(statement().to_string().as_bytes());
    for (pointer, value) in [
        ("/mediaType", json!("application/vnd.dev.sigstore.bundle+json;version=0.2")),
        ("/mediaType", json!("application/vnd.dev.sigstore.bundle+json")),
        ("/mediaType", json!("application/vnd.dev.sigstore.bundle+json;version=0.30")),
        ("/mediaType", json!("text/plain;version=0.3")),
        ("/dsseEnvelope", json!(null)),
        ("/dsseEnvelope/payloadType", json!("application/json")),
        ("/dsseEnvelope/signatures", json!([])),
        // Over the payload instead of its encoding.
        ("/dsseEnvelope/signatures/0/sig", json!(bare)),
        ("/dsseEnvelope/payload", json!("!")),
    ] {
        assert!(!verifies(&signer, of_json(&with(bundle.clone(), pointer, value.clone()))), "{pointer} {value}");
    }
}

#[test]
fn every_changed_byte_of_a_payload_or_a_signature_is_noticed() {
    let signer = Signer::new();
    let Claim::Classic { payload, signature } = signer.classic(&payload()) else { unreachable!() };
    let signature = BASE64_STANDARD.decode(signature).unwrap();
    let claim = |payload: &[u8], signature: &[u8]| Claim::Classic {
        payload: payload.to_vec(),
        signature: BASE64_STANDARD.encode(signature),
    };
    assert!(verifies(&signer, claim(&payload, &signature)));
    for at in 0..payload.len() {
        let mut changed = payload.clone();
        changed[at] ^= 1;
        assert!(!verifies(&signer, claim(&changed, &signature)), "byte {at} of the payload");
    }
    for at in 0..signature.len() {
        let mut changed = signature.clone();
        changed[at] ^= 1;
        assert!(!verifies(&signer, claim(&payload, &changed)), "byte {at} of the signature");
    }
    assert!(!verifies(&signer, claim(&payload, &[])) && !verifies(&signer, claim(&[], &signature)));
}

#[test]
fn every_changed_byte_of_a_bundles_signed_parts_is_noticed() {
    let signer = Signer::new();
    let bundle = signer.bundle(&statement());
    for pointer in ["/dsseEnvelope/payload", "/dsseEnvelope/signatures/0/sig"] {
        let bytes = BASE64_STANDARD.decode(bundle.pointer(pointer).unwrap().as_str().unwrap()).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let changed = with(bundle.clone(), pointer, json!(BASE64_STANDARD.encode(changed)));
            assert!(!verifies(&signer, of_json(&changed)), "byte {at} of {pointer}");
        }
    }
}

#[test]
fn the_signature_of_another_key_is_refused_and_counted() {
    let signer = Signer::new();
    let other = Signer::new();
    let claims =
        Claims { claims: vec![signer.classic(&payload()), of_json(&signer.bundle(&statement()))], passed_over: 3 };
    let Err(Error::Denied(message)) = verify(&[other.key()], &manifest(), &claims) else { panic!("accepted") };
    assert!(message.contains("2 signatures do not verify") && message.contains("3 entries"), "{message}");
    assert_eq!(verify(&[other.key(), signer.key()], &manifest(), &claims), Ok(1));
    assert!(verify(&[], &manifest(), &claims).is_err());
    let Err(Error::Denied(message)) = verify(&[other.key()], &manifest(), &Claims::default()) else { panic!() };
    assert!(message.ends_with("is not signed"), "{message}");
}

#[test]
fn what_others_attached_does_not_hide_a_valid_signature() {
    let signer = Signer::new();
    let other = Signer::new();
    let attestation = with(statement(), "/predicateType", json!("https://cosign.sigstore.dev/attestation/v1"));
    let claims = vec![
        Claim::Bundle(b"{".to_vec()),
        of_json(&other.bundle(&statement())),
        of_json(&signer.bundle(&attestation)),
        Claim::Classic { payload: Vec::new(), signature: "!".to_owned() },
        signer.classic(&payload()),
    ];
    assert_eq!(verify(&[signer.key()], &manifest(), &Claims { claims, passed_over: 0 }), Ok(0));
    assert!(!verifies(&signer, of_json(&signer.bundle(&attestation))), "an attestation is no signature");
}
