//! Requests to etcd that bypass the API server, through its JSON gateway.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Value, json};

/// Compacts all history up to now, also in the files. Returns the current revision.
pub(super) async fn compact(etcd: SocketAddr) -> Result<u64> {
    let status = ask(etcd, "/v3/maintenance/status", json!({})).await?;
    let revision = status["header"]["revision"].as_str().context("etcd reports no revision")?.to_owned();
    ask(etcd, "/v3/kv/compaction", json!({ "revision": revision, "physical": true })).await?;
    revision.parse().context("a revision of etcd")
}

async fn ask(etcd: SocketAddr, path: &str, body: Value) -> Result<Value> {
    let client: Client<HttpConnector, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
    let request = Request::post(format!("http://{etcd}{path}")).body(Full::from(body.to_string()))?;
    let answer = tokio::time::timeout(Duration::from_secs(10), client.request(request)).await??;
    let status = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    // A compaction that is already done counts as success.
    let done = status.is_success() || body.windows(9).any(|part| part == b"compacted");
    ensure!(done, "etcd answered {status} to {path}: {}", String::from_utf8_lossy(&body));
    Ok(serde_json::from_slice(&body)?)
}
