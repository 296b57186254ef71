//! The look-up of signatures: errors, entries that are passed over, and the number of requests.

use std::collections::BTreeMap;

use podium_registry::{
    Error,
    signature::{Claim, Claims, MOST},
};

use super::*;

const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// A repository with these texts by the last part of their path.
type Texts = BTreeMap<String, String>;

fn signed() -> Digest {
    Digest::of(b"the signed manifest")
}

fn descriptor(media_type: &str, text: &str) -> serde_json::Value {
    json!({ "mediaType": media_type, "digest": Digest::of(text.as_bytes()).to_string(), "size": text.len() })
}

/// Adds the manifest of the classic form with these payloads and signatures.
fn classic(texts: &mut Texts, layers: &[(&str, &str)]) {
    let layer = |(payload, signature): &(&str, &str)| {
        let mut layer = descriptor(PAYLOAD, payload);
        layer["annotations"] = json!({ "dev.cosignproject.cosign/signature": signature });
        layer
    };
    let layers_json: Vec<_> = layers.iter().map(layer).collect();
    texts.extend(layers.iter().map(|(payload, _)| (Digest::of(payload.as_bytes()).to_string(), (*payload).to_owned())));
    let manifest = json!({ "schemaVersion": 2, "layers": layers_json }).to_string();
    texts.insert(format!("sha256-{}.sig", signed().hex()), manifest);
}

/// Adds a referrer of `subject` with a bundle, and returns its entry.
fn bundle(texts: &mut Texts, subject: &Digest, media_type: &str, json: &str) -> serde_json::Value {
    let subject = json!({ "mediaType": MANIFEST, "digest": subject.to_string(), "size": 1 });
    let layers = [descriptor(media_type, json)];
    let manifest = json!({ "schemaVersion": 2, "layers": layers, "subject": subject }).to_string();
    let entry = descriptor(MANIFEST, &manifest);
    texts.insert(Digest::of(json.as_bytes()).to_string(), json.to_owned());
    texts.insert(Digest::of(manifest.as_bytes()).to_string(), manifest);
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
    client.signatures(&reference(server), &signed(), &[], &LIMITS).await
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
            let (texts, path) = (texts.clone(), failing.clone());
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
        bundle(&mut texts, &Digest::of(b"another"), BUNDLE, "{\"other\":1}"),
        bundle(&mut texts, &signed(), "text/plain", "note"),
        json!({ "mediaType": MANIFEST, "digest": "sha256:x", "size": 1 }),
        json!({ "mediaType": MANIFEST, "digest": Digest::of(b"z").to_string(), "size": 1_u64 << 40 }),
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
    assert_eq!(server.asked().len(), 2 + MOST + 2 * MOST);
}

#[tokio::test]
async fn a_list_of_referrers_that_refers_to_itself_is_read_once() {
    let own = index(&[json!({ "mediaType": "application/vnd.oci.image.index.v1+json", "digest": signed().to_string(),
        "size": 1, "artifactType": BUNDLE })]);
    let server = Server::start(
        move |asked| {
            if asked.path.contains(".sig") { Reply::status(404) } else { Reply::ok(own.clone()) }
        },
    )
    .await;
    let claims = claims(&server).await.unwrap();
    assert_eq!((claims.claims.len(), claims.passed_over), (0, 1));
    assert_eq!(server.asked().len(), 3);
}
