//! The look-up of signatures: errors, entries that are passed over, and the number of requests.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use podium_registry::{
    Credentials, Error,
    signature::{Claim, Claims, Key, MOST, verify},
};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair},
};

use super::*;

const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const OLDER_BUNDLE: &str = "application/vnd.dev.sigstore.bundle+json;version=0.3";
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// The header `Link` with the second page of the list of referrers.
const NEXT: &str = "</v2/team/plugin/referrers/second>; rel=\"next\"";

/// A repository with these texts by the last part of their path.
type Texts = BTreeMap<String, String>;

fn signed() -> Digest {
    Digest::sha256(b"the signed manifest")
}

fn descriptor(media_type: &str, text: &str) -> serde_json::Value {
    json!({ "mediaType": media_type, "digest": Digest::sha256(text.as_bytes()).to_string(), "size": text.len() })
}

/// Adds the manifest of the classic form with these payloads and signatures.
fn classic(texts: &mut Texts, layers: &[(&str, &str)]) {
    let layer = |(payload, signature): &(&str, &str)| {
        let mut layer = descriptor(PAYLOAD, payload);
        layer["annotations"] = json!({ "dev.cosignproject.cosign/signature": signature });
        layer
    };
    let layers_json: Vec<_> = layers.iter().map(layer).collect();
    texts.extend(
        layers.iter().map(|(payload, _)| (Digest::sha256(payload.as_bytes()).to_string(), (*payload).to_owned())),
    );
    let manifest = json!({ "schemaVersion": 2, "layers": layers_json }).to_string();
    texts.insert(format!("sha256-{}.sig", signed().hex()), manifest);
}

/// Adds a referrer of `subject` with a bundle, and returns its entry.
fn bundle(texts: &mut Texts, subject: &Digest, media_type: &str, json: &str) -> serde_json::Value {
    let subject = json!({ "mediaType": MANIFEST, "digest": subject.to_string(), "size": 1 });
    let layers = [descriptor(media_type, json)];
    let manifest = json!({ "schemaVersion": 2, "layers": layers, "subject": subject }).to_string();
    let entry = descriptor(MANIFEST, &manifest);
    texts.insert(Digest::sha256(json.as_bytes()).to_string(), json.to_owned());
    texts.insert(Digest::sha256(manifest.as_bytes()).to_string(), manifest);
    entry
}

fn index(entries: &[serde_json::Value]) -> String {
    json!({ "schemaVersion": 2, "manifests": entries }).to_string()
}

async fn holding(texts: Texts) -> Server {
    Server::start(move |asked| {
        let name = asked.path.rsplit('/').next().unwrap();
        let is_referrers = asked.path.contains("/referrers/");
        let key = if is_referrers { format!("referrers/{name}") } else { name.to_owned() };
        texts.get(&key).map_or_else(|| Reply::status(404), |text| Reply::ok(text.clone()))
    })
    .await
}

async fn claims(server: &Server) -> Result<Claims, Error> {
    let client = client(vec![entry("registry.test", server)]);
    client.signatures(&reference(server), &signed(), &[], &[], &LIMITS).await
}

/// A required key, and a valid signature of each form.
struct Signatures {
    keys: Vec<Key>,
    /// The payload of the classic form and its signature.
    classic: (String, String),
    bundle: String,
}

impl Signatures {
    fn new() -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref(), &random).unwrap();
        let sign = |bytes: &[u8]| BASE64_STANDARD.encode(pair.sign(&random, bytes).unwrap());
        let prefix = BASE64_STANDARD.decode("MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE").unwrap();
        let body = BASE64_STANDARD.encode([&prefix[..], &pair.public_key().as_ref()[1..]].concat());
        let key = Key::from_pem(&format!("-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n")).unwrap();
        let payload = json!({ "critical": {
            "identity": { "docker-reference": "" },
            "image": { "docker-manifest-digest": signed().to_string() },
            "type": "cosign container image signature",
        } });
        let payload = payload.to_string();
        let statement = json!({
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{ "digest": { "sha256": signed().hex() } }],
            "predicateType": "https://sigstore.dev/cosign/sign/v1",
        });
        let statement = statement.to_string();
        const TYPE: &str = "application/vnd.in-toto+json";
        let encoded = format!("DSSEv1 {} {TYPE} {} {statement}", TYPE.len(), statement.len());
        let bundle = json!({ "mediaType": BUNDLE, "dsseEnvelope": {
            "payload": BASE64_STANDARD.encode(&statement),
            "payloadType": TYPE,
            "signatures": [{ "sig": sign(encoded.as_bytes()) }],
        } });
        let signature = sign(payload.as_bytes());
        Self { keys: vec![key], classic: (payload, signature), bundle: bundle.to_string() }
    }

    /// Fetches the signatures with these credentials, and verifies them as the host does.
    async fn check(&self, server: &Server, credentials: &[Credentials]) -> Result<usize, Error> {
        let client = client(vec![entry("registry.test", server)]);
        let found = client.signatures(&reference(server), &signed(), &self.keys, credentials, &LIMITS).await?;
        verify(&self.keys, &signed(), &found)
    }
}

/// Serves the texts, and `reply` instead of lists of referrers.
async fn with_referrers(texts: Texts, reply: Reply) -> Server {
    Server::start(move |asked| match texts.get(asked.path.rsplit('/').next().unwrap()) {
        _ if asked.path.contains("/referrers/") => reply.clone(),
        Some(text) => Reply::ok(text.clone()),
        None => Reply::status(404),
    })
    .await
}

/// Serves the texts, and a list of referrers in two pages, of which the first has this header `Link`.
async fn with_pages(texts: Texts, first: String, link: &'static str, second: Reply) -> Server {
    Server::start(move |asked| match texts.get(asked.path.rsplit('/').next().unwrap()) {
        _ if asked.path.ends_with("/referrers/second") => second.clone(),
        _ if asked.path.contains("/referrers/") => {
            Reply::ok(first.clone()).with("Link", link.replace("HOST", &asked.headers["host"]))
        }
        Some(text) => Reply::ok(text.clone()),
        None => Reply::status(404),
    })
    .await
}

/// Answers of registries that have no lists of referrers, that have none now, or that do not show them.
fn answers_to_referrers() -> Vec<(&'static str, Reply)> {
    let statuses = [
        ("400", 400),
        ("401 without a challenge", 401),
        ("403", 403),
        ("404", 404),
        ("405", 405),
        ("406", 406),
        ("408", 408),
        ("422", 422),
        ("429", 429),
        ("500", 500),
        ("501", 501),
        ("503", 503),
    ];
    let mut all: Vec<_> = statuses.map(|(name, status)| (name, Reply::status(status))).into();
    all.push(("401", Reply::status(401).with("WWW-Authenticate", "Basic realm=\"x\"")));
    all.push(("a page", Reply::ok("<!doctype html><html></html>").with("Content-Type", "text/html")));
    all.push(("an empty index", Reply::ok(index(&[]))));
    all.push(("too many bytes", Reply::endless()));
    all.push(("a circle", Reply::redirect("/v2/team/plugin/referrers/x")));
    all
}

#[tokio::test]
async fn a_valid_signature_suffices_whatever_the_list_of_referrers_is() {
    let signatures = Signatures::new();
    let mut texts = Texts::new();
    classic(&mut texts, &[("other", "s1"), (&signatures.classic.0, &signatures.classic.1)]);
    for (name, reply) in answers_to_referrers().into_iter().chain([("nothing", Reply::silence())]) {
        let server = with_referrers(texts.clone(), reply).await;
        assert_eq!(signatures.check(&server, &[]).await, Ok(0), "{name}");
    }
    // In the form of a bundle of an older tool, which only the tag for registries without lists names.
    let mut texts = Texts::new();
    let entries =
        [bundle(&mut texts, &signed(), BUNDLE, "{}"), bundle(&mut texts, &signed(), OLDER_BUNDLE, &signatures.bundle)];
    texts.insert(format!("sha256-{}", signed().hex()), index(&entries));
    for (name, reply) in answers_to_referrers() {
        let server = with_referrers(texts.clone(), reply).await;
        assert_eq!(signatures.check(&server, &[]).await, Ok(0), "{name}");
    }
}

#[tokio::test]
async fn a_valid_signature_suffices_beside_entries_that_cannot_be_read() {
    let signatures = Signatures::new();
    let mut texts = Texts::new();
    classic(&mut texts, &[("lost", "s1"), (&signatures.classic.0, &signatures.classic.1)]);
    let entries =
        [bundle(&mut texts, &signed(), BUNDLE, "{}"), bundle(&mut texts, &signed(), BUNDLE, &signatures.bundle)];
    let bundles = Texts::from([(format!("sha256-{}", signed().hex()), index(&entries))]);
    let lost = [Digest::sha256(b"lost"), Digest::sha256(b"{}")].map(|digest| format!("/blobs/{digest}"));
    for without in [format!("sha256-{}", signed().hex()), format!("sha256-{}.sig", signed().hex())] {
        for status in [401, 403, 429, 503] {
            let mut texts: Texts = texts.clone().into_iter().chain(bundles.clone()).collect();
            texts.remove(&without);
            let lost = lost.clone();
            let server = Server::start(move |asked| match texts.get(asked.path.rsplit('/').next().unwrap()) {
                _ if lost.iter().any(|path| asked.path.ends_with(path)) => Reply::status(status),
                // The look-up of the other form fails too.
                None => Reply::status(status),
                Some(text) => Reply::ok(text.clone()),
            })
            .await;
            assert_eq!(signatures.check(&server, &[]).await, Ok(0), "{status}, without {without}");
        }
    }
}

#[tokio::test]
async fn a_valid_signature_suffices_beside_entries_that_are_none() {
    let signatures = Signatures::new();
    let mut texts = Texts::new();
    let mut entry = bundle(&mut texts, &signed(), BUNDLE, &signatures.bundle);
    for (field, value) in [("artifactType", json!(null)), ("annotations", json!(null)), ("platform", json!(7))] {
        entry[field] = value;
    }
    let without_digest = json!({ "mediaType": MANIFEST, "digest": null, "size": 7 });
    for none in [json!(null), json!({}), json!("text"), without_digest, json!({ "digest": "a", "size": -1 })] {
        texts.insert(format!("sha256-{}", signed().hex()), index(&[none.clone(), entry.clone()]));
        let server = holding(texts.clone()).await;
        assert_eq!(signatures.check(&server, &[]).await, Ok(0), "{none}");
    }
}

#[tokio::test]
async fn a_valid_signature_suffices_on_a_later_page_of_the_list() {
    let signatures = Signatures::new();
    let mut texts = Texts::new();
    let entries =
        [bundle(&mut texts, &signed(), BUNDLE, "{}"), bundle(&mut texts, &signed(), BUNDLE, &signatures.bundle)];
    let [first, second] = entries.map(|entry| index(&[entry]));
    for (link, expected) in [
        (NEXT, true),
        ("</v2/team/other/referrers/second>; rel=\"next\"", false),
        ("<https://elsewhere.test/v2/team/plugin/referrers/second>; rel=\"next\"", false),
        ("<http://HOST/v2/team/plugin/referrers/second>; rel=\"next\"", true),
        ("<https://HOST/v2/team/plugin/referrers/second>; rel=\"next\"", false),
        // A circle.
        ("</v2/team/plugin/referrers/first>; rel=\"next\"", false),
        ("second", false),
    ] {
        let server = with_pages(texts.clone(), first.clone(), link, Reply::ok(second.clone())).await;
        assert_eq!(signatures.check(&server, &[]).await.is_ok(), expected, "{link}");
    }
}

#[tokio::test]
async fn a_valid_signature_suffices_behind_many_entries_of_other_types() {
    let signatures = Signatures::new();
    let mut texts = Texts::new();
    let mut signature = bundle(&mut texts, &signed(), BUNDLE, &signatures.bundle);
    let others = (0..2 * MOST).map(|number| {
        let mut entry = bundle(&mut texts, &signed(), "application/spdx+json", &format!("{number}"));
        entry["artifactType"] = json!("application/spdx+json");
        entry
    });
    let others = index(&others.collect::<Vec<_>>());
    signature["artifactType"] = json!(BUNDLE);
    let server = with_pages(texts, others, NEXT, Reply::ok(index(&[signature]))).await;
    assert_eq!(signatures.check(&server, &[]).await, Ok(0));
}

/// The second page of the list does not answer.
async fn check_second_page(signatures: &Signatures) {
    let mut texts = Texts::new();
    let first = index(&[bundle(&mut texts, &signed(), BUNDLE, &signatures.bundle)]);
    let server = with_pages(texts, first, NEXT, Reply::silence()).await;
    assert_eq!(signatures.check(&server, &[]).await, Ok(0));
}

#[tokio::test]
async fn a_valid_signature_suffices_beside_a_place_that_does_not_answer() {
    let signatures = Signatures::new();
    let mut texts = Texts::new();
    let entry = bundle(&mut texts, &signed(), BUNDLE, &signatures.bundle);
    texts.insert(format!("sha256-{}", signed().hex()), index(&[entry]));
    let check = async |silent: &'static str| {
        let texts = texts.clone();
        let server = Server::start(move |asked| match texts.get(asked.path.rsplit('/').next().unwrap()) {
            _ if asked.path.contains(silent) => Reply::silence(),
            Some(text) => Reply::ok(text.clone()),
            None => Reply::status(404),
        })
        .await;
        assert_eq!(signatures.check(&server, &[]).await, Ok(0), "{silent}");
    };
    tokio::join!(check(".sig"), check("/referrers/"), check_second_page(&signatures));
}

#[tokio::test]
async fn without_a_valid_signature_a_failed_list_is_named_and_retried() {
    let signatures = Signatures::new();
    let mut texts = Texts::new();
    classic(&mut texts, &[("payload", "s1")]);
    for (name, reply) in answers_to_referrers() {
        let server = with_referrers(texts.clone(), reply).await;
        let error = signatures.check(&server, &[]).await.unwrap_err();
        let is_failure =
            ["401", "401 without a challenge", "403", "408", "429", "500", "503", "a circle"].contains(&name);
        let may_pass = ["408", "429", "500", "503"].contains(&name);
        assert_eq!(error.to_string().contains("the list of referrers: "), is_failure, "{name}: {error}");
        assert_eq!(error.may_succeed_later(), may_pass, "{name}: {error}");
    }
}

#[tokio::test]
async fn credentials_that_worked_are_used_after_a_path_that_refuses_all() {
    let signatures = Signatures::new();
    let mut texts = Texts::new();
    let entry = bundle(&mut texts, &signed(), BUNDLE, &signatures.bundle);
    texts.insert(format!("sha256-{}", signed().hex()), index(&[entry]));
    let alice = [Credentials::new("alice", "a"), Credentials::new("bob", "b")];
    for status in [401, 403] {
        let texts = texts.clone();
        let server = Server::start(move |asked| {
            if asked.headers.get("authorization").map(String::as_str) != Some("Basic YWxpY2U6YQ==") {
                return Reply::status(401).with("WWW-Authenticate", "Basic");
            }
            match texts.get(asked.path.rsplit('/').next().unwrap()) {
                _ if asked.path.contains("/referrers/") => Reply::status(status).with("WWW-Authenticate", "Basic"),
                Some(text) => Reply::ok(text.clone()),
                None => Reply::status(404),
            }
        })
        .await;
        assert_eq!(signatures.check(&server, &alice).await, Ok(0), "{status}");
    }
}

#[tokio::test]
async fn both_forms_are_found_whether_by_referrers_or_by_the_tag() {
    for tag in [format!("referrers/{}", signed()), format!("sha256-{}", signed().hex())] {
        let mut texts = Texts::new();
        classic(&mut texts, &[("payload", "s1"), ("payload", "s2")]);
        let entry = bundle(&mut texts, &signed(), BUNDLE, "{\"a\":1}");
        texts.insert(tag.clone(), index(&[entry]));
        let server = holding(texts).await;
        let classic =
            |signature: &str| Claim::Classic { payload: b"payload".to_vec(), signature: signature.to_owned() };
        let expected = vec![classic("s1"), classic("s2"), Claim::Bundle(b"{\"a\":1}".to_vec())];
        assert_eq!(claims(&server).await, Ok(Claims { claims: expected, passed_over: 0 }), "{tag}");
        let of_payload = server.asked().iter().filter(|asked| asked.path.contains("/blobs/")).count();
        assert_eq!(of_payload, 2, "a payload with two signatures is read once");
    }
    let server = holding(Texts::new()).await;
    assert_eq!(claims(&server).await, Ok(Claims::default()), "nothing is attached");
}

#[tokio::test]
async fn a_failure_of_any_request_is_an_error_and_not_unsigned() {
    let mut texts = Texts::new();
    classic(&mut texts, &[("payload", "s1")]);
    let entry = bundle(&mut texts, &signed(), BUNDLE, "{}");
    texts.insert(format!("sha256-{}", signed().hex()), index(&[entry]));
    let all = holding(texts.clone()).await;
    assert!(claims(&all).await.is_ok());
    let paths: Vec<_> = all.asked().into_iter().map(|asked| asked.path).collect();
    assert_eq!(paths.len(), 6, "{paths:?}");
    for status in [401, 403, 429, 500, 503] {
        for failing in &paths {
            let texts = texts.clone();
            let path = failing.clone();
            let server = Server::start(move |asked| {
                let name = asked.path.rsplit('/').next().unwrap();
                match texts.get(name) {
                    _ if asked.path == path => Reply::status(status),
                    Some(text) if !asked.path.contains("/referrers/") => Reply::ok(text.clone()),
                    _ => Reply::status(404),
                }
            })
            .await;
            let found = claims(&server).await;
            let is_expected = |error: &Error| match status {
                401 | 403 => matches!(error, Error::Denied(_)),
                429 => matches!(error, Error::Busy { .. }),
                _ => matches!(error, Error::Unavailable(_)),
            };
            assert!(found.as_ref().is_err_and(is_expected), "{status} at {failing}: {found:?}");
        }
    }
}

#[tokio::test]
async fn entries_that_are_no_signature_of_this_manifest_are_passed_over() {
    let mut texts = Texts::new();
    let entries = [
        bundle(&mut texts, &Digest::sha256(b"another"), BUNDLE, "{\"other\":1}"),
        bundle(&mut texts, &signed(), "text/plain", "note"),
        json!({ "mediaType": MANIFEST, "digest": "sha256:x", "size": 1 }),
        json!({ "mediaType": MANIFEST, "digest": Digest::sha256(b"z").to_string(), "size": 1_u64 << 40 }),
        bundle(&mut texts, &signed(), BUNDLE, &"x".repeat(70 << 10)),
        bundle(&mut texts, &signed(), BUNDLE, "{\"good\":1}"),
    ];
    texts.insert(format!("referrers/{}", signed()), index(&entries));
    texts.insert(format!("sha256-{}.sig", signed().hex()), "not a manifest".to_owned());
    let server = holding(texts).await;
    let claims = claims(&server).await.unwrap();
    assert_eq!(claims.claims, [Claim::Bundle(b"{\"good\":1}".to_vec())]);
    assert_eq!(claims.passed_over, entries.len());
}

#[tokio::test]
async fn the_number_of_signatures_that_are_read_is_bounded() {
    let mut texts = Texts::new();
    let payloads: Vec<_> = (0..200).map(|number| format!("payload {number}")).collect();
    classic(&mut texts, &payloads.iter().map(|payload| (payload.as_str(), "s")).collect::<Vec<_>>());
    let entries: Vec<_> = (0..500).map(|number| bundle(&mut texts, &signed(), BUNDLE, &format!("{number}"))).collect();
    texts.insert(format!("referrers/{}", signed()), index(&entries));
    let server = holding(texts).await;
    let claims = claims(&server).await.unwrap();
    assert_eq!((claims.claims.len(), claims.passed_over), (2 * MOST, 200 + 500 - 2 * MOST));
    assert_eq!(server.asked().len(), 3 + MOST + 2 * MOST);
}

#[tokio::test]
async fn a_list_of_referrers_that_refers_to_itself_is_not_followed() {
    let own = index(&[json!({ "mediaType": "application/vnd.oci.image.index.v1+json", "digest": signed().to_string(),
        "size": 1, "artifactType": BUNDLE })]);
    let server = Server::start(
        move |asked| {
            if asked.path.contains(".sig") { Reply::status(404) } else { Reply::ok(own.clone()) }
        },
    )
    .await;
    let claims = claims(&server).await.unwrap();
    assert_eq!((claims.claims.len(), claims.passed_over), (0, 2));
    assert_eq!(server.asked().len(), 5, "two lists, and the entry of each");
}
