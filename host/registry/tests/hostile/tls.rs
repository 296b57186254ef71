//! TLS: the certificates that are accepted, and that no redirect leads from https to http.
//!
//! The certificates are for these tests only, and valid until 2120.

use std::sync::Arc;

use podium_registry::Error;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::*;

/// The authority, whose key was thrown away.
const AUTHORITY: &[u8] = b"-----BEGIN CERTIFICATE-----\n\
    MIIBZjCCAQygAwIBAgIUdeeHwbLmUKaBt7y4Itij4TsUJmowCgYIKoZIzj0EAwIw\n\
    EDEOMAwGA1UEAwwFdGVzdHMwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAw\n\
    MDBaMBAxDjAMBgNVBAMMBXRlc3RzMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n\
    +ezWjhJM43L4Gkb0fWp7eC9kn2aSulH8Oa12HPhA910bzyxMBjUFTQELAgcxu3yt\n\
    qxwrUvSvmRvo/bZeXm77TqNCMEAwDwYDVR0TAQH/BAUwAwEB/zAOBgNVHQ8BAf8E\n\
    BAMCAgQwHQYDVR0OBBYEFFHy3oW4hO4y+B2qYrkkwgBLeoD4MAoGCCqGSM49BAMC\n\
    A0gAMEUCIQD4D389tGoYktcaVl/mY1AgkqIuddJ0aVklAj7jo4EmSAIgbj+xIyCA\n\
    C2TSmMuVZW5wkHMbclmuzDGHZUJ5ze2bbsU=\n\
    -----END CERTIFICATE-----\n";
/// The certificate of `registry.test`, by the authority.
const REGISTRY: &[u8] = b"-----BEGIN CERTIFICATE-----\n\
    MIIBkzCCATmgAwIBAgIUEmymEGApMcs8PZBiZWdENPv81LQwCgYIKoZIzj0EAwIw\n\
    EDEOMAwGA1UEAwwFdGVzdHMwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAw\n\
    MDBaMBgxFjAUBgNVBAMMDXJlZ2lzdHJ5LnRlc3QwWTATBgcqhkjOPQIBBggqhkjO\n\
    PQMBBwNCAAQ4xmWhuxg+wfxqZYVPqst1MU0LEElUCPVWgbbJTixpDjA0kEOE28UM\n\
    jGQt6lYHrTluPaGNraTjk0vHfHuwmdAgo2cwZTAYBgNVHREEETAPgg1yZWdpc3Ry\n\
    eS50ZXN0MAkGA1UdEwQCMAAwHQYDVR0OBBYEFF7URfYSAxd8wvzrRMnkcj/lEcWR\n\
    MB8GA1UdIwQYMBaAFFHy3oW4hO4y+B2qYrkkwgBLeoD4MAoGCCqGSM49BAMCA0gA\n\
    MEUCIQDDdDYz9Lr43eS6iKwSq/zZ4nP2VIlSKIdu1xqPYwdeZgIgXkRBRbvm4Oxd\n\
    mWFnRROg6Bbx0QSRJKbUNLtExqcq/Fc=\n\
    -----END CERTIFICATE-----\n";
/// The key of this certificate.
const KEY: &[u8] = b"-----BEGIN PRIVATE KEY-----\n\
    MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgzeXCM/WcnsCCmuYz\n\
    hyoZ5nHA6uIhQaMRLWZRJz16vZqhRANCAAQ4xmWhuxg+wfxqZYVPqst1MU0LEElU\n\
    CPVWgbbJTixpDjA0kEOE28UMjGQt6lYHrTluPaGNraTjk0vHfHuwmdAg\n\
    -----END PRIVATE KEY-----\n";

/// A certificate of `registry.test` with CA:TRUE, which signed itself, as `openssl req -x509` makes it.
const SELF_SIGNED: &[u8] = b"-----BEGIN CERTIFICATE-----\n\
    MIIBbTCCAROgAwIBAgIBATAKBggqhkjOPQQDAjAYMRYwFAYDVQQDDA1yZWdpc3Ry\n\
    eS50ZXN0MCAXDTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAwMDAwWjAYMRYwFAYD\n\
    VQQDDA1yZWdpc3RyeS50ZXN0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEkRWB\n\
    EnFrihxB6iG7wWOuzaCpU1T3/576Xn/4QTEPm1ce6Mr5130Z19M9xFokaJQcqjxk\n\
    lExXE21QrlF7+A+sFKNMMEowHQYDVR0OBBYEFHn8Lhn6gp/Mu2RSJ9KBNixA2dP2\n\
    MA8GA1UdEwEB/wQFMAMBAf8wGAYDVR0RBBEwD4INcmVnaXN0cnkudGVzdDAKBggq\n\
    hkjOPQQDAgNIADBFAiEAnVBt4jDhyllwSxEwkBsznOEhxhX0KhkC4Xwy3U8SjAYC\n\
    IE3a3wpSzZ4BMVqznhp3UWDHgAXR7YViANCdUn9qgbPg\n\
    -----END CERTIFICATE-----\n";
/// Its key.
const SELF_SIGNED_KEY: &[u8] = b"-----BEGIN PRIVATE KEY-----\n\
    MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgVkWaXThIQak518h+\n\
    oMjehc7rfxK7YFmnb09h5LyQ1GChRANCAASRFYEScWuKHEHqIbvBY67NoKlTVPf/\n\
    nvpef/hBMQ+bVx7oyvnXfRnX0z3EWiRolByqPGSUTFcTbVCuUXv4D6wU\n\
    -----END PRIVATE KEY-----\n";

fn certificate(pem: &[u8]) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem).unwrap()
}

pub(crate) fn authority() -> CertificateDer<'static> {
    certificate(AUTHORITY)
}

/// Passes connections on to a server, with TLS before it. Returns the port.
pub(crate) async fn in_front_of(server: &Server) -> u16 {
    presenting(server, REGISTRY, KEY).await
}

async fn presenting(server: &Server, chain: &[u8], key: &[u8]) -> u16 {
    let key = PrivateKeyDer::from_pem_slice(key).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate(chain)], key)
        .unwrap();
    accepting(server, TlsAcceptor::from(Arc::new(config))).await
}

async fn accepting(server: &Server, acceptor: TlsAcceptor) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let behind = server.address;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that does not accept the certificate hangs up.
                let Ok(mut near) = acceptor.accept(stream).await else { return };
                let mut far = TcpStream::connect(behind).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    port
}

async fn pull_from(
    name: &str,
    port: u16,
    own: Vec<CertificateDer<'static>>,
    system: Vec<CertificateDer<'static>>,
) -> Result<podium_registry::Component, Error> {
    let host: Host = format!("{name}:{port}").parse().unwrap();
    let registry = Registry { private_addresses: true, certificates: own, ..Registry::new(host) };
    let client = Client::new(Allowed::new(vec![registry], system).unwrap(), Loopback);
    client.pull(&format!("{name}:{port}/team/plugin:1").parse().unwrap(), &[], &LIMITS).await
}

#[tokio::test]
async fn a_registry_is_believed_by_its_authority_and_its_name() {
    let server = honest().await;
    let port = in_front_of(&server).await;
    assert!(pull_from("registry.test", port, vec![authority()], vec![]).await.is_ok());
    assert!(pull_from("registry.test", port, vec![], vec![authority()]).await.is_ok());
    let asked = server.asked().len();
    let itself = certificate(REGISTRY);
    for (name, own, system) in [
        ("registry.test", vec![], vec![]),
        ("other.test", vec![authority()], vec![]),
        // The authority of an entry replaces those of the system.
        ("registry.test", vec![itself], vec![authority()]),
    ] {
        let pulled = pull_from(name, port, own, system).await;
        assert!(
            matches!(&pulled, Err(Error::Unavailable(message)) if message.contains("certificate")),
            "{name}: {pulled:?}"
        );
    }
    assert_eq!(server.asked().len(), asked, "nothing is asked before the certificate is believed");
}

#[tokio::test]
async fn a_self_signed_certificate_is_believed_where_exactly_it_is_listed() {
    let server = honest().await;
    let port = presenting(&server, SELF_SIGNED, SELF_SIGNED_KEY).await;
    let listed = || vec![certificate(SELF_SIGNED)];
    assert!(pull_from("registry.test", port, listed(), vec![]).await.is_ok());
    assert!(pull_from("registry.test", port, vec![authority(), certificate(SELF_SIGNED)], vec![]).await.is_ok());
    let asked = server.asked().len();
    for (name, own, system) in [
        // Its name, and that it is listed as the registry's own.
        ("other.test", listed(), vec![]),
        ("registry.test", vec![authority()], vec![]),
        ("registry.test", vec![authority()], listed()),
        ("registry.test", vec![], listed()),
    ] {
        let pulled = pull_from(name, port, own, system).await;
        assert!(matches!(&pulled, Err(Error::Unavailable(message)) if message.contains("certificate")), "{pulled:?}");
    }
    let Err(error) = pull_from("registry.test", port, vec![], vec![]).await else { panic!("accepted") };
    assert!(error.to_string().contains("with CA:FALSE"), "{error}");
    assert_eq!(server.asked().len(), asked);
    // A server without the certificate's key does not get so far.
    let provider = ring::default_provider();
    let other = provider.key_provider.load_private_key(PrivateKeyDer::from_pem_slice(KEY).unwrap()).unwrap();
    let stolen = rustls::sign::CertifiedKey::new(vec![certificate(SELF_SIGNED)], other);
    let config = ServerConfig::builder_with_provider(Arc::new(provider)).with_safe_default_protocol_versions();
    let config = config.unwrap().with_no_client_auth();
    let config = config.with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(stolen)));
    let port = accepting(&server, TlsAcceptor::from(Arc::new(config))).await;
    assert!(pull_from("registry.test", port, listed(), vec![]).await.is_err());
    assert_eq!(server.asked().len(), asked);
}

#[tokio::test]
async fn a_redirect_from_https_to_http_is_refused() {
    let plain = Server::start(|_| Reply::ok(WASM)).await;
    let to = format!("http://plain.test:{}/x", plain.address.port());
    let server = Server::start(move |asked| {
        let manifest = manifest(WASM.len(), &Digest::sha256(WASM));
        if asked.path.contains("/manifests/") { Reply::ok(manifest) } else { Reply::redirect(to.clone()) }
    })
    .await;
    let port = in_front_of(&server).await;
    let host: Host = format!("registry.test:{port}").parse().unwrap();
    let secure = Registry { private_addresses: true, certificates: vec![authority()], ..Registry::new(host) };
    // The host over http is listed as such.
    let client = client(vec![secure, entry("plain.test", &plain)]);
    let pulled = client.pull(&format!("registry.test:{port}/team/plugin:1").parse().unwrap(), &[], &LIMITS).await;
    assert!(matches!(&pulled, Err(Error::Forbidden(message)) if message.contains("https to http")), "{pulled:?}");
    assert!(plain.asked().is_empty());
}
