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
            return Reply::ok(manifest(WASM.len(), &Digest::of(WASM)));
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
    let server = redirecting(format!("http://{host}/x?signature=y")).await;
    let own = Registry { hops: Hops::Listed(vec![host.parse().unwrap()]), ..entry("registry.test", &server) };
    for registries in [vec![own], vec![entry("registry.test", &server), entry("blobs.test", &blobs)]] {
        let component = client(registries).pull(&reference(&server), &user(), &LIMITS).await.unwrap();
        assert_eq!(&component.bytes[..], WASM);
    }
    let asked = blobs.asked();
    assert_eq!(asked.len(), 2);
    for asked in asked {
        assert_eq!(asked.path, "/x?signature=y");
        for header in ["authorization", "cookie", "referer"] {
            assert!(!asked.headers.contains_key(header), "{asked:?}");
        }
    }
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
