//! The hosts and addresses that a registry can lead its client to.

use podium_registry::{Credentials, Error, SystemResolver};

use super::*;

/// A resolver whose second answer for a name is this machine.
struct Rebinding(std::sync::atomic::AtomicU32);

impl Resolve for Rebinding {
    fn resolve<'a>(&'a self, _: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let count = self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let address = if count == 0 { [169, 254, 169, 254] } else { [127, 0, 0, 1] };
        Box::pin(async move { Ok(vec![SocketAddr::from((address, port))]) })
    }
}

/// Serves the manifest, after Basic authentication, and redirects for blobs.
async fn redirecting(to: impl Into<String>) -> Server {
    let to = to.into();
    Server::start(move |asked| {
        if !asked.headers.contains_key("authorization") {
            return Reply::status(401).with("WWW-Authenticate", "Basic realm=\"x\"");
        }
        if asked.path.contains("/manifests/") {
            return Reply::ok(manifest(WASM.len(), &Digest::sha256(WASM)));
        }
        Reply::redirect(to.clone())
    })
    .await
}

fn user() -> Vec<Credentials> {
    vec![Credentials::new("user", "word")]
}

#[tokio::test]
async fn a_redirect_to_a_listed_host_is_followed_without_credentials() {
    let blobs = Server::start(|_| Reply::ok(WASM)).await;
    let host = format!("blobs.test:{}", blobs.address.port());
    let paths = ["/x?signature=y".to_owned(), format!("/v2/team/plugin/blobs/{}?signature=y", Digest::sha256(WASM))];
    for (number, path) in paths.iter().enumerate() {
        let server = redirecting(format!("http://{host}{path}")).await;
        let own = Registry { hops: Hops::Listed(vec![host.parse().unwrap()]), ..entry("registry.test", &server) };
        // The path of a blob needs no redirectHosts.
        let others = vec![entry("registry.test", &server), entry("blobs.test", &blobs)];
        let registries = if number == 0 { vec![own] } else { others };
        let component = client(registries).pull(&reference(&server), &user(), &LIMITS).await.unwrap();
        assert_eq!(&component.bytes[..], WASM);
    }
    let asked = blobs.asked();
    assert_eq!(asked.len(), 2);
    for (asked, path) in asked.iter().zip(paths) {
        assert_eq!(asked.path, path);
        for header in ["authorization", "cookie", "referer"] {
            assert!(!asked.headers.contains_key(header), "{asked:?}");
        }
    }
}

/// Words of a service that only the host reaches.
const SECRET: &str = "confidential build 7.3 at node-12.corp";

#[tokio::test]
async fn a_registry_is_no_way_to_ask_another_listed_one() {
    let internal = Server::start(|_| Reply::status(404).with_body(SECRET)).await;
    let digest = Digest::sha256(WASM);
    for path in ["/admin".to_owned(), "/v2/other/manifests/1".to_owned(), format!("/v2/other/blobs/{digest}")] {
        let to = format!("http://internal.test:{}{path}", internal.address.port());
        // All requests, those for the manifest and its signatures too.
        let server = Server::start(move |_| Reply::redirect(to.clone())).await;
        let client = client(vec![entry("registry.test", &server), entry("internal.test", &internal)]);
        let pulled = client.pull(&reference(&server), &[], &LIMITS).await;
        assert!(matches!(pulled, Err(Error::Forbidden(_))), "{path}: {pulled:?}");
        let found = client.signatures(&reference(&server), &digest, &[], &[], &LIMITS).await;
        assert!(matches!(found, Err(Error::Forbidden(_))), "{path}: {found:?}");
    }
    assert!(internal.asked().is_empty(), "{:?}", internal.asked());
}

#[tokio::test]
async fn after_a_redirect_no_error_has_anything_of_the_answer() {
    let errors = format!(r#"{{"errors":[{{"code":"{SECRET}","message":"{SECRET}"}}]}}"#);
    let layers = json!({ "schemaVersion": 2, "layers": [{ "mediaType": SECRET, "digest": "", "size": 1 }] });
    let of_schema = json!({ "schemaVersion": SECRET });
    let replies = [
        Reply::ok(SECRET),
        Reply::ok(layers.to_string()),
        Reply::ok(of_schema.to_string()),
        Reply::ok(json!({ "schemaVersion": 2, "mediaType": SECRET }).to_string()),
        Reply::status(403).with_body(errors.clone()),
        Reply::status(500).with_body(errors),
        Reply::redirect(format!("http://{}/", SECRET.replace(' ', "-"))),
    ];
    for reply in replies {
        let text = reply.clone();
        let listed = Server::start(move |_| reply.clone()).await;
        // Also by a redirect to the registry itself, where another repository may be.
        for is_own in [true, false] {
            let to = format!("http://listed.test:{}/elsewhere", listed.address.port());
            let text = text.clone();
            let server = Server::start(move |asked| match asked.path.as_str() {
                _ if !is_own => Reply::redirect(to.clone()),
                "/elsewhere" => text.clone(),
                _ => Reply::redirect("/elsewhere"),
            })
            .await;
            let hops = Hops::Listed(vec![format!("listed.test:{}", listed.address.port()).parse().unwrap()]);
            let client = client(vec![Registry { hops, ..entry("registry.test", &server) }]);
            for reference in [reference(&server), reference(&server).with_digest(Digest::sha256(b"x"))] {
                let error = client.pull(&reference, &[], &LIMITS).await.unwrap_err().to_string();
                let lower = error.to_lowercase();
                for secret in ["confidential", "node-12", "corp"] {
                    assert!(!lower.contains(secret), "{error}");
                }
                for body in [SECRET.as_bytes(), layers.to_string().as_bytes()] {
                    assert!(!error.contains(&Digest::sha256(body).to_string()), "{error}");
                }
            }
        }
    }
    // A blob as well, whose digest the registry's manifest chose.
    let to = Server::start(|_| Reply::ok(WASM)).await;
    let target = format!("http://listed.test:{}/x", to.address.port());
    let other = manifest(WASM.len(), &Digest::sha256(b"other"));
    let server = serving(other, move |_| Reply::redirect(target.clone())).await;
    let hops = Hops::Listed(vec![format!("listed.test:{}", to.address.port()).parse().unwrap()]);
    let client = client(vec![Registry { hops, ..entry("registry.test", &server) }]);
    let error = client.pull(&reference(&server), &[], &LIMITS).await.unwrap_err();
    assert!(matches!(error, Error::DigestMismatch(_)), "{error:?}");
    assert!(!error.to_string().contains(&Digest::sha256(WASM).to_string()), "{error}");
}

#[tokio::test]
async fn a_redirect_to_a_host_that_is_not_listed_is_refused_unasked() {
    let other = Server::start(|_| Reply::ok(WASM)).await;
    let port = other.address.port();
    for to in [
        format!("http://other.test:{port}/x"),
        format!("http://127.0.0.1:{port}/x"),
        format!("http://localhost:{port}/x"),
        format!("//127.0.0.1:{port}/x"),
        format!("http://[::ffff:127.0.0.1]:{port}/x"),
        format!("http://2130706433:{port}/x"),
        format!("http://user:word@other.test:{port}/x"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "file:///etc/passwd".to_owned(),
    ] {
        let server = redirecting(to.clone()).await;
        let pulled = client(vec![entry("registry.test", &server)]).pull(&reference(&server), &user(), &LIMITS).await;
        assert!(matches!(pulled, Err(Error::Forbidden(_) | Error::Invalid(_))), "{to}: {pulled:?}");
    }
    assert!(other.asked().is_empty(), "{:?}", other.asked());
}

#[tokio::test]
async fn a_persons_own_client_is_not_led_to_this_machine() {
    let other = Server::start(|_| Reply::ok(WASM)).await;
    for to in [format!("https://{}/x", other.address), format!("https://other.test:{}/x", other.address.port())] {
        let server = redirecting(to.clone()).await;
        let own = Registry { hops: Hops::Public, ..entry("registry.test", &server) };
        let pulled = client(vec![own]).pull(&reference(&server), &user(), &LIMITS).await;
        assert!(matches!(pulled, Err(Error::Forbidden(_))), "{to}: {pulled:?}");
    }
    assert!(other.asked().is_empty());
}

#[tokio::test]
async fn redirects_in_a_circle_end_after_the_third() {
    let server = Server::start(|asked| Reply::redirect(format!("{}x", asked.path))).await;
    assert!(matches!(pull(&server).await, Err(Error::Forbidden(_))));
    assert_eq!(server.asked().len(), 4);
}

#[tokio::test]
async fn a_registry_that_is_not_listed_is_not_connected_to() {
    let server = honest().await;
    let error = client(Vec::new()).pull(&reference(&server), &[], &LIMITS).await.unwrap_err();
    assert!(matches!(&error, Error::Forbidden(message) if message.contains("list of registries")), "{error:?}");
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn a_private_address_needs_an_entry_that_says_so() {
    let server = honest().await;
    let public = Registry { private_addresses: false, ..entry("registry.test", &server) };
    assert!(matches!(client(vec![public]).pull(&reference(&server), &[], &LIMITS).await, Err(Error::Forbidden(_))));
    // Of an address that is written as such, too.
    let literal: Reference = format!("{}/team/plugin:1", server.address).parse().unwrap();
    let public = Registry { private_addresses: false, ..entry("127.0.0.1", &server) };
    let allowed = Allowed::new(vec![public], Vec::new()).unwrap();
    let pulled = Client::new(allowed, SystemResolver).pull(&literal, &[], &LIMITS).await;
    assert!(matches!(pulled, Err(Error::Forbidden(_))), "{pulled:?}");
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn a_metadata_service_is_never_connected_to() {
    let server = honest().await;
    let rebinding = Rebinding(std::sync::atomic::AtomicU32::new(0));
    let allowed = Allowed::new(vec![entry("registry.test", &server)], Vec::new()).unwrap();
    let pulled = Client::new(allowed, rebinding).pull(&reference(&server), &[], &LIMITS).await;
    assert!(matches!(pulled, Err(Error::Forbidden(_))), "{pulled:?}");
    assert!(server.asked().is_empty(), "the name is resolved once, and the address that was checked is used");
}

#[tokio::test]
async fn http_is_not_tried_where_https_is_listed() {
    let server = honest().await;
    let secure = Registry { plain_http: false, ..entry("registry.test", &server) };
    let pulled = client(vec![secure]).pull(&reference(&server), &[], &LIMITS).await;
    assert!(matches!(pulled, Err(Error::Unavailable(_))), "{pulled:?}");
    assert!(server.asked().iter().all(|asked| !asked.path.contains("/v2/")), "{:?}", server.asked());
}
