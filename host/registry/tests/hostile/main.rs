//! The client against a hostile registry: each attack ends with its own error, and with few bytes read.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests have files and tasks of their own")]

mod attacks;
mod authentication;
mod proxies;
mod redirects;
mod server;
mod signatures;
mod tls;

use std::{io, net::SocketAddr, time::Duration};

use futures::future::BoxFuture;
use podium_registry::{Allowed, Client, Digest, Hops, Host, Limits, Reference, Registry, Resolve};
use serde_json::json;
use server::{Asked, Reply, Server};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const LIMITS: Limits = Limits { component: 1 << 20, time: Duration::from_secs(30) };
/// Bytes that may be under way when the client hangs up: the kernel's buffers of both sides.
const UNDER_WAY: u64 = 12 << 20;
const WASM: &[u8] = b"\0asm the component";

/// Every name is this machine.
struct Loopback;

impl Resolve for Loopback {
    fn resolve<'a>(&'a self, _: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]) })
    }
}

/// Returns an entry for a server under a name.
fn entry(name: &str, server: &Server) -> Registry {
    let host: Host = format!("{name}:{}", server.address.port()).parse().unwrap();
    Registry { plain_http: true, private_addresses: true, hops: Hops::Listed(Vec::new()), ..Registry::new(host) }
}

fn client(registries: Vec<Registry>) -> Client {
    Client::new(Allowed::new(registries, Vec::new()).unwrap(), Loopback)
}

fn reference(server: &Server) -> Reference {
    format!("registry.test:{}/team/plugin:1.0", server.address.port()).parse().unwrap()
}

/// Returns the manifest of a component with this size and digest.
fn manifest(size: usize, digest: &Digest) -> String {
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": { "mediaType": "application/vnd.wasm.config.v0+json", "digest": digest.to_string(), "size": 2 },
        "layers": [{
            "mediaType": "application/wasm",
            "digest": digest.to_string(),
            "size": size,
            "urls": ["http://127.0.0.1:1/elsewhere"],
        }],
    })
    .to_string()
}

/// Serves a manifest as it is, and blobs by `blob`.
async fn serving(manifest: String, blob: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Server {
    Server::start(move |asked| {
        if asked.path.contains("/manifests/") {
            Reply::ok(manifest.clone()).with("Content-Type", MANIFEST)
        } else {
            blob(asked)
        }
    })
    .await
}

async fn honest() -> Server {
    serving(manifest(WASM.len(), &Digest::sha256(WASM)), |_| Reply::ok(WASM)).await
}

async fn pull(server: &Server) -> Result<podium_registry::Component, podium_registry::Error> {
    client(vec![entry("registry.test", server)]).pull(&reference(server), &[], &LIMITS).await
}
