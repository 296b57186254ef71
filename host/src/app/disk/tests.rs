//! Credentials of a kubeconfig that are replaced while the host runs.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use http::Request;
use parking_lot::Mutex;
use podium_api::Api;
use rcgen::{CertificateParams, CertifiedKey, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer},
    server::WebPkiClientVerifier,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use super::*;

/// Returns a certificate that is its own authority, without being one for others.
fn certified(name: &str) -> CertifiedKey<KeyPair> {
    let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::ExplicitNoCa;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let signing_key = KeyPair::generate().unwrap();
    CertifiedKey { cert: params.self_signed(&signing_key).unwrap(), signing_key }
}

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", BASE64_STANDARD.encode(der))
}

/// Reads the head of a request.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// The client that is admitted, by its certificate or its token.
#[derive(Default)]
struct Admitted {
    certificate: Option<CertificateDer<'static>>,
    token: Option<&'static str>,
}

/// An API server with these certificates, of which it presents the first while `first` says so.
async fn api_server(
    servers: [&CertifiedKey<KeyPair>; 2],
    clients: [&CertifiedKey<KeyPair>; 2],
    second: Arc<Mutex<bool>>,
    admitted: Arc<Mutex<Admitted>>,
) -> u16 {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    clients.iter().for_each(|client| roots.add(client.cert.der().clone()).unwrap());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let verifier = verifier.allow_unauthenticated().build().unwrap();
    let acceptors = servers.map(|server| {
        let key = PrivateKeyDer::try_from(server.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let config = config.unwrap().with_client_cert_verifier(verifier.clone());
        TlsAcceptor::from(Arc::new(config.with_single_cert(vec![server.cert.der().clone()], key).unwrap()))
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptors[usize::from(*second.lock())].clone();
            let admitted = admitted.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let peer = stream.get_ref().1.peer_certificates().map(|all| all[0].clone().into_owned());
                let Ok(head) = head(&mut stream).await else { return };
                let is_admitted = {
                    let admitted = admitted.lock();
                    let has_token = |token: &str| head.contains(&format!("Bearer {token}\r\n"));
                    (peer.is_some() && peer == admitted.certificate) || admitted.token.is_some_and(has_token)
                };
                let status = if is_admitted { "200 OK" } else { "401 Unauthorized" };
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}");
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            });
        }
    });
    port
}

/// A proxy that connects to what it is asked for. Returns its port, and how many connections it made.
async fn proxy() -> (u16, Arc<Mutex<usize>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connected = Arc::new(Mutex::new(0));
    let count = connected.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            *count.lock() += 1;
            tokio::spawn(async move {
                let head = head(&mut stream).await.unwrap();
                let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).unwrap();
                let mut server = tokio::net::TcpStream::connect(target).await.unwrap();
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
            });
        }
    });
    (port, connected)
}

async fn get(connection: &Connection) -> Result<bytes::Bytes, podium_api::ApiError> {
    let api = Api::new(connection.clone(), Duration::from_secs(30));
    api.bytes(Request::get("/api/v1/pods").body(Vec::new()).unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_programs_that_are_missing_are_named() {
    let _ = ring::default_provider().install_default();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config");
    let refused = |file: PathBuf| match connections(Some(file), Proxies::default()) {
        Ok(_) => unreachable!("it is missing"),
        Err(error) => error.to_string(),
    };
    let error = refused(file.clone());
    assert!(error.contains(file.to_str().unwrap()) && error.contains("No such file"), "{error}");
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, \
                command: no-such-program, installHint: 'Take it from a.example'}";
    let text = format!(
        "clusters: [{{name: a, cluster: {{server: 'https://127.0.0.1:1'}}}}]\n\
         contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\ncurrent-context: a\n\
         users: [{{name: a, user: {{{exec}}}}}]\n"
    );
    fs::write(&file, text).unwrap();
    let error = tokio::task::spawn_blocking(move || refused(file)).await.unwrap();
    for part in ["no-such-program", "install it", "Take it from a.example"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_credentials_of_every_kind_are_used_without_a_restart() {
    let _ = ring::default_provider().install_default();
    let servers = ["s1", "s2"].map(certified);
    let clients = ["c1", "c2"].map(certified);
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let write = |name: &str, text: &str| fs::write(file(name), text).unwrap();
    let plugin = "#!/bin/sh\nprintf '{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\
        \"status\":{\"token\":\"%s\"}}' \"$(cat \"$(dirname \"$0\")\"/exec-token)\"\n";
    write("plugin", plugin);
    fs::set_permissions(file("plugin"), fs::Permissions::from_mode(0o700)).unwrap();
    let path = |name: &str| file(name).to_str().unwrap().to_owned();
    let users = [
        (
            "exec",
            format!(
                "exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: {}}}",
                path("plugin")
            ),
        ),
        ("token file", format!("tokenFile: {}", path("token"))),
        ("token file, behind a proxy", format!("tokenFile: {}", path("token"))),
        ("inline token", "token: TOKEN".to_owned()),
        ("client certificate", format!("client-certificate: {}\n    client-key: {}", path("c.crt"), path("c.key"))),
    ];
    let (proxy, proxied) = proxy().await;
    for (kind, user) in users {
        let by = if kind.ends_with("a proxy") { format!(", proxy-url: 'http://127.0.0.1:{proxy}'") } else { "".into() };
        let second = Arc::new(Mutex::new(false));
        let admitted = Arc::new(Mutex::new(Admitted::default()));
        let of_servers = servers.each_ref();
        let of_clients = clients.each_ref();
        let port = api_server(of_servers, of_clients, second.clone(), admitted.clone()).await;
        let place = |number: usize| {
            let token = ["first", "second"][number];
            write("exec-token", token);
            write("token", token);
            write("c.crt", &pem("CERTIFICATE", clients[number].cert.der()));
            write("c.key", &pem("PRIVATE KEY", &clients[number].signing_key.serialize_der()));
            write(
                "config",
                &format!(
                    "clusters: [{{name: a, cluster: {{server: 'https://127.0.0.1:{port}', \
                     certificate-authority: {}{by}}}}}]\n\
                 contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\ncurrent-context: a\nusers:\n- name: a\n  \
                 user:\n    {}\n",
                    path("ca.crt"),
                    user.replace("TOKEN", token),
                ),
            );
        };
        let admit = |number: usize| {
            let certificate = Some(clients[number].cert.der().clone());
            *admitted.lock() = Admitted { certificate, token: Some(["first", "second"][number]) };
        };
        place(0);
        write("ca.crt", &pem("CERTIFICATE", servers[0].cert.der()));
        admit(0);
        let config = file("config");
        let connections =
            tokio::task::spawn_blocking(move || connections(Some(config), Proxies::default())).await.unwrap();
        let (connections, _) = connections.unwrap_or_else(|error| panic!("{kind}: {error}"));
        for connection in &connections {
            get(connection).await.unwrap_or_else(|error| panic!("{kind}: {error}"));
        }
        // The credentials, and the certificate of the API server with its authority.
        place(1);
        admit(1);
        write("ca.crt", &pem("CERTIFICATE", servers[1].cert.der()));
        *second.lock() = true;
        for connection in &connections {
            get(connection).await.unwrap_or_else(|error| panic!("{kind}: {error}"));
        }
    }
    assert!(*proxied.lock() >= 4, "{} connections by the proxy", proxied.lock());
}
