//! Registries that are reached through a proxy, and what the proxy gets.

use podium_registry::{Credentials, Error, Proxies};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use super::*;

fn proxies(variable: &str, port: u16, no_proxy: &str) -> Proxies {
    let url = format!("http://user:p%40ss@proxy.test:{port}");
    let value = |name: &str| match name {
        "NO_PROXY" => Some(no_proxy.to_owned()),
        name => (name == variable).then(|| url.clone()),
    };
    Proxies::new(value).unwrap()
}

/// A proxy that connects everything to this port, and reports the heads that it receives.
async fn tunnelling(to: u16, status: &'static str) -> (u16, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (heads, received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let heads = heads.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = near.read_u8().await else { return };
                    head.push(byte);
                }
                heads.send(String::from_utf8(head).unwrap()).unwrap();
                near.write_all(format!("HTTP/1.1 {status}\r\nVia: x\r\n\r\n").as_bytes()).await.unwrap();
                if status.starts_with("200") {
                    let mut far = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                }
            });
        }
    });
    (port, received)
}

fn secure(port: u16) -> Registry {
    let host: Host = format!("registry.test:{port}").parse().unwrap();
    Registry { certificates: vec![tls::authority()], ..Registry::new(host) }
}

#[tokio::test]
async fn a_registry_over_https_is_reached_through_a_tunnel() {
    let server = honest().await;
    let port = tls::in_front_of(&server).await;
    let (proxy, mut heads) = tunnelling(port, "200 Connection established").await;
    // Without privateAddresses: nothing is known of the addresses that the proxy finds.
    let client = client(vec![secure(port)]);
    let reference: Reference = format!("registry.test:{port}/team/plugin:1").parse().unwrap();
    let user = [Credentials::new("alice", "s3cret")];
    let pulled = client.clone().through(proxies("HTTPS_PROXY", proxy, "")).pull(&reference, &user, &LIMITS).await;
    assert_eq!(&pulled.unwrap().bytes[..], WASM);
    for _ in 0..2 {
        let head = heads.try_recv().unwrap();
        let expected = format!(
            "CONNECT registry.test:{port} HTTP/1.1\r\nHost: registry.test:{port}\r\n\
             Proxy-Authorization: Basic dXNlcjpwQHNz\r\n\r\n"
        );
        assert_eq!(head, expected);
    }
    // The variable of the other scheme, and a target of NO_PROXY: directly, with the rules for addresses.
    for direct in [proxies("HTTP_PROXY", proxy, ""), proxies("HTTPS_PROXY", proxy, "other.example, .test")] {
        let pulled = client.clone().through(direct).pull(&reference, &user, &LIMITS).await;
        assert!(matches!(&pulled, Err(Error::Forbidden(message)) if message.contains("127.0.0.1")), "{pulled:?}");
    }
    assert!(heads.try_recv().is_err());
}

#[tokio::test]
async fn a_registry_over_http_is_asked_through_the_proxy_with_the_whole_url() {
    let proxy = honest().await;
    let host: Host = "registry.test:5000".parse().unwrap();
    let registry = Registry { plain_http: true, ..Registry::new(host) };
    let client = client(vec![registry]).through(proxies("HTTP_PROXY", proxy.address.port(), ""));
    let pulled = client.pull(&"registry.test:5000/team/plugin:1".parse().unwrap(), &[], &LIMITS).await;
    assert_eq!(&pulled.unwrap().bytes[..], WASM);
    let asked = proxy.asked();
    assert_eq!(asked[0].path, "http://registry.test:5000/v2/team/plugin/manifests/1");
    for asked in asked {
        assert_eq!(asked.headers["host"], "registry.test:5000");
        assert_eq!(asked.headers["proxy-authorization"], "Basic dXNlcjpwQHNz");
    }
}

#[tokio::test]
async fn a_written_address_is_checked_before_the_proxy_is_asked() {
    let proxy = honest().await;
    for name in ["169.254.169.254", "10.0.0.1", "[fd20:ce::254]", "[::ffff:169.254.169.254]"] {
        for is_private in [false, true].into_iter().take(if name == "10.0.0.1" { 1 } else { 2 }) {
            let host: Host = format!("{name}:5000").parse().unwrap();
            let registry = Registry { plain_http: true, private_addresses: is_private, ..Registry::new(host) };
            let client = client(vec![registry]).through(proxies("HTTP_PROXY", proxy.address.port(), ""));
            let pulled = client.pull(&format!("{name}:5000/team/plugin:1").parse().unwrap(), &[], &LIMITS).await;
            assert!(matches!(pulled, Err(Error::Forbidden(_))), "{name}: {pulled:?}");
        }
    }
    assert!(proxy.asked().is_empty(), "{:?}", proxy.asked());
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named_without_its_password() {
    let (refusing, _heads) = tunnelling(1, "407 Proxy Authentication Required").await;
    let endless = Server::start(|_| Reply::ok("").with("X", "y".repeat(20_000))).await;
    let reference: Reference = "registry.test:443/team/plugin:1".parse().unwrap();
    for (port, part) in [(refusing, "407"), (endless.address.port(), "too long"), (1, "efused")] {
        let client = client(vec![secure(443)]).through(proxies("HTTPS_PROXY", port, ""));
        let error = client.pull(&reference, &[], &LIMITS).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
        let text = error.to_string();
        let proxy = format!("HTTPS_PROXY=http://proxy.test:{port}");
        assert!(text.contains(part) && text.contains(&proxy) && !text.contains("ss@"), "{text}");
    }
    let socks = Proxies::new(|name| (name == "HTTPS_PROXY").then(|| "socks5://proxy.test".to_owned())).unwrap();
    let error = client(vec![secure(443)]).through(socks).pull(&reference, &[], &LIMITS).await.unwrap_err();
    assert!(error.to_string().contains("NO_PROXY"), "{error}");
}
