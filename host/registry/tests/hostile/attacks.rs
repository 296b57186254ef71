//! Manifests and blobs that are not what they should be.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use podium_registry::Error;

use super::*;

#[tokio::test]
async fn an_honest_registry_is_asked_twice_and_believed() {
    let server = honest().await;
    let component = pull(&server).await.unwrap();
    assert_eq!((&component.bytes[..], component.layer), (WASM, Digest::sha256(WASM)));
    assert_eq!(component.manifest, Digest::sha256(manifest(WASM.len(), &Digest::sha256(WASM)).as_bytes()));
    let asked = server.asked();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked.iter().all(|asked| asked.method == "GET" && asked.body.is_empty()));
    assert!(asked.iter().all(|asked| !asked.headers.contains_key("authorization")));
    assert!(asked[0].headers["accept"].contains(MANIFEST), "{asked:?}");
    assert_eq!(asked[1].path, format!("/v2/team/plugin/blobs/{}", Digest::sha256(WASM)));
}

#[tokio::test]
async fn a_blob_with_another_digest_is_refused() {
    let mut changed = WASM.to_vec();
    changed[7] ^= 1;
    let server = serving(manifest(WASM.len(), &Digest::sha256(WASM)), move |_| Reply::ok(changed.clone())).await;
    assert!(matches!(pull(&server).await, Err(Error::DigestMismatch(_))));
}

#[tokio::test]
async fn a_manifest_pulled_by_digest_is_compared_with_it() {
    let server = honest().await;
    let client = client(vec![entry("registry.test", &server)]);
    let own = reference(&server).with_digest(Digest::sha256(manifest(WASM.len(), &Digest::sha256(WASM)).as_bytes()));
    assert!(client.pull(&own, &[], &LIMITS).await.is_ok());
    let other = reference(&server).with_digest(Digest::sha256(b"another manifest"));
    assert!(matches!(client.pull(&other, &[], &LIMITS).await, Err(Error::DigestMismatch(_))));
}

#[tokio::test]
async fn a_forged_digest_header_changes_nothing_but_is_noticed() {
    let forged = Digest::sha256(b"another manifest");
    let server = Server::start(move |asked| {
        let reply =
            Reply::ok(manifest(WASM.len(), &Digest::sha256(WASM))).with("Docker-Content-Digest", forged.to_string());
        if asked.path.contains("/manifests/") { reply } else { Reply::ok(WASM) }
    })
    .await;
    assert!(matches!(pull(&server).await, Err(Error::DigestMismatch(_))));
    let client = client(vec![entry("registry.test", &server)]);
    let by_digest = reference(&server).with_digest(forged);
    assert!(matches!(client.pull(&by_digest, &[], &LIMITS).await, Err(Error::DigestMismatch(_))));
}

#[tokio::test]
async fn a_small_layer_answered_with_much_is_cut_at_its_size() {
    const MUCH: u64 = 50 << 20;
    let size = 77 << 10;
    let digest = Digest::sha256(&vec![0; size]);
    for reply in [Reply::ok(vec![0; MUCH as usize]), Reply::chunks(MUCH), Reply::raw(vec![0; MUCH as usize])] {
        let server = serving(manifest(size, &digest), move |_| reply.clone()).await;
        assert!(matches!(pull(&server).await, Err(Error::TooLarge(_))));
        assert!(server.written() < UNDER_WAY, "{} bytes were read", server.written());
    }
}

#[tokio::test]
async fn a_body_announced_with_much_is_refused_before_its_first_byte() {
    let manifest = manifest(WASM.len(), &Digest::sha256(WASM));
    let server = serving(manifest, |_| Reply::silence().with("Content-Length", "1000000000")).await;
    assert!(matches!(pull(&server).await, Err(Error::TooLarge(_))));
}

#[tokio::test]
async fn an_endless_body_ends_at_its_bound() {
    let server = serving(manifest(1 << 20, &Digest::sha256(WASM)), |_| Reply::endless()).await;
    assert!(matches!(pull(&server).await, Err(Error::TooLarge(_))));
    assert!(server.written() < UNDER_WAY, "{} bytes were read", server.written());
    let server = Server::start(|_| Reply::endless()).await;
    assert!(matches!(pull(&server).await, Err(Error::TooLarge(_))));
    assert!(server.written() < UNDER_WAY, "{} bytes were read", server.written());
    // The text of an error has a bound too, and the status says enough.
    let server = Server::start(|_| Reply::endless().with("X", "y")).await;
    let client = client(vec![entry("registry.test", &server)]);
    assert!(
        client
            .signatures(&reference(&server), &Digest::sha256(WASM), &[], &[], &LIMITS)
            .await
            .is_ok_and(|claims| { claims.claims.is_empty() && claims.passed_over == 3 })
    );
}

#[tokio::test]
async fn a_layer_above_the_limit_is_not_downloaded() {
    let server = serving(manifest((1 << 20) + 1, &Digest::sha256(WASM)), |_| Reply::ok(WASM)).await;
    assert!(matches!(pull(&server).await, Err(Error::TooLarge(_))));
    assert_eq!(server.asked().len(), 1, "only the manifest");
    let server = serving(manifest(usize::MAX, &Digest::sha256(WASM)), |_| Reply::endless()).await;
    assert!(matches!(pull(&server).await, Err(Error::TooLarge(_))));
    assert_eq!(server.asked().len(), 1, "only the manifest");
}

#[tokio::test]
async fn a_giant_manifest_is_refused_before_it_is_read() {
    let server = serving("x".repeat(40 << 20), |_| Reply::ok(WASM)).await;
    assert!(matches!(pull(&server).await, Err(Error::TooLarge(_))));
    assert!(server.written() < UNDER_WAY, "{} bytes were read", server.written());
}

#[tokio::test]
async fn a_body_shorter_than_announced_is_refused() {
    let server = serving(manifest(WASM.len() + 1, &Digest::sha256(WASM)), |_| Reply::ok(WASM)).await;
    assert!(matches!(pull(&server).await, Err(Error::Invalid(_))));
    // Without a length the end of the connection is the end of the body.
    let server = serving(manifest(WASM.len() + 1, &Digest::sha256(WASM)), |_| Reply::raw(WASM)).await;
    assert!(matches!(pull(&server).await, Err(Error::DigestMismatch(_))));
    let server = serving(manifest(WASM.len(), &Digest::sha256(WASM)), |_| {
        Reply::raw(&WASM[1..]).with("Content-Length", WASM.len().to_string())
    })
    .await;
    assert!(matches!(pull(&server).await, Err(Error::Unavailable(_))));
}

#[tokio::test]
async fn a_compressed_answer_is_refused_unread() {
    for encoding in ["gzip", "deflate", "br", "zstd", "gzip, gzip"] {
        let server = serving(manifest(WASM.len(), &Digest::sha256(WASM)), move |_| {
            Reply::ok(vec![0; 10 << 20]).with("Content-Encoding", encoding)
        })
        .await;
        assert!(matches!(pull(&server).await, Err(Error::Invalid(_))), "{encoding}");
        assert!(server.asked().iter().all(|asked| asked.headers["accept-encoding"] == "identity"));
        let server = Server::start(move |_| Reply::ok("{}").with("Content-Encoding", encoding)).await;
        assert!(matches!(pull(&server).await, Err(Error::Invalid(_))), "{encoding}");
    }
}

#[tokio::test]
async fn an_index_and_many_layers_are_refused_by_name() {
    let layer =
        json!({ "mediaType": "application/wasm", "digest": Digest::sha256(WASM).to_string(), "size": WASM.len() });
    let config = json!({ "mediaType": "application/vnd.wasm.config.v0+json", "digest": "", "size": 0 });
    for (manifest, part) in [
        (json!({ "schemaVersion": 2, "manifests": [] }), "index"),
        (json!({ "schemaVersion": 2, "config": config, "layers": vec![layer; 300] }), "300 layers"),
    ] {
        let server = serving(manifest.to_string(), |_| Reply::ok(WASM)).await;
        let Err(Error::Invalid(message)) = pull(&server).await else { panic!("{part}") };
        assert!(message.contains(part), "{message}");
        assert_eq!(server.asked().len(), 1, "only the manifest");
    }
}

#[tokio::test]
async fn the_urls_of_a_layer_are_ignored() {
    let elsewhere = Server::start(|_| Reply::ok(WASM)).await;
    let manifest = manifest(WASM.len(), &Digest::sha256(WASM)).replace("127.0.0.1:1", &elsewhere.address.to_string());
    let server = serving(manifest, |_| Reply::status(404)).await;
    assert!(matches!(pull(&server).await, Err(Error::NotFound(_))));
    assert!(elsewhere.asked().is_empty());
}

#[tokio::test]
async fn each_status_is_the_error_that_says_whether_to_try_again() {
    type Check = fn(&Error) -> bool;
    let busy: Check =
        |error| matches!(error, Error::Busy { retry_after: Some(wait), .. } if *wait == Duration::from_secs(7));
    let cases: [(Reply, Check, bool); 9] = [
        (Reply::status(429).with("Retry-After", "7"), busy, true),
        (Reply::status(503).with("Retry-After", "7"), busy, true),
        (Reply::status(429), |error| matches!(error, Error::Busy { retry_after: None, .. }), true),
        (Reply::status(503), |error| matches!(error, Error::Unavailable(_)), true),
        (Reply::status(500), |error| matches!(error, Error::Unavailable(_)), true),
        (Reply::status(404), |error| matches!(error, Error::NotFound(_)), true),
        (Reply::status(403), |error| matches!(error, Error::Denied(_)), false),
        (Reply::status(400), |error| matches!(error, Error::Invalid(_)), false),
        (Reply::status(206), |error| matches!(error, Error::Invalid(_)), false),
    ];
    for (reply, check, may_succeed_later) in cases {
        let shown = format!("{reply:?}");
        let server = Server::start(move |_| reply.clone()).await;
        let error = pull(&server).await.unwrap_err();
        assert!(check(&error) && error.may_succeed_later() == may_succeed_later, "{shown}: {error:?}");
        assert_eq!(server.asked().len(), 1, "the caller decides about another try");
    }
}

#[tokio::test]
async fn the_text_of_an_error_is_escaped_and_bounded() {
    let body = format!(r#"{{"errors":[{{"code":"DENIED","message":"a\n\u001b[31m\u202e{}"}}]}}"#, "x".repeat(4_000));
    let server = Server::start(move |_| Reply::ok(body.clone()).with_status(403)).await;
    let message = pull(&server).await.unwrap_err().to_string();
    assert!(message.contains("DENIED a") && message.len() < 600, "{message}");
    assert!(!message.contains(['\n', '\u{1b}', '\u{202e}']), "{message:?}");
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let server = Server::start(|_| Reply::ok("").with("X", "y".repeat(20 << 20))).await;
    assert!(matches!(pull(&server).await, Err(Error::Unavailable(_))));
    let many = |_: &Asked| (0..5_000).fold(Reply::ok(""), |reply, at| reply.with(&format!("X-{at}"), "y"));
    let server = Server::start(many).await;
    assert!(matches!(pull(&server).await, Err(Error::Unavailable(_))));
}

#[tokio::test]
async fn a_silent_registry_ends_with_the_callers_deadline() {
    let server = serving(manifest(WASM.len(), &Digest::sha256(WASM)), |_| Reply::silence()).await;
    let client = client(vec![entry("registry.test", &server)]);
    let limits = Limits { time: Duration::from_millis(300), ..LIMITS };
    let error = client.pull(&reference(&server), &[], &limits).await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable(message) if message.contains("took more than")), "{error:?}");
}

#[tokio::test]
async fn no_changed_bit_of_a_pinned_manifest_or_layer_is_accepted() {
    let honest = manifest(WASM.len(), &Digest::sha256(WASM));
    let bits = 8 * (honest.len() + WASM.len());
    let bit = Arc::new(AtomicUsize::new(bits));
    let server = Server::start({
        let honest = honest.clone();
        let bit = bit.clone();
        move |asked| {
            let mut texts = [honest.clone().into_bytes(), WASM.to_vec()];
            let at = bit.load(Ordering::SeqCst) / 8;
            let mask = 1 << (bit.load(Ordering::SeqCst) % 8);
            if at < honest.len() {
                texts[0][at] ^= mask;
            } else if let Some(byte) = texts[1].get_mut(at - honest.len()) {
                *byte ^= mask;
            }
            let [manifest, layer] = texts;
            Reply::ok(if asked.path.contains("/manifests/") { manifest } else { layer })
        }
    })
    .await;
    let client = client(vec![entry("registry.test", &server)]);
    let pinned = reference(&server).with_digest(Digest::sha256(honest.as_bytes()));
    assert!(client.pull(&pinned, &[], &LIMITS).await.is_ok(), "nothing is changed");
    for changed in 0..bits {
        bit.store(changed, Ordering::SeqCst);
        let pulled = client.pull(&pinned, &[], &LIMITS).await;
        assert!(matches!(pulled, Err(Error::DigestMismatch(_))), "bit {changed}: {pulled:?}");
    }
}
