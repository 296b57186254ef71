//! The port of metrics with authentication: the API server's own answers to its reviews, over TLS.

use std::time::Duration;

use anyhow::{Result, ensure};
use http::Request;
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use podium_tests::{
    process::{Host, HostOptions},
    wait::until,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    cluster,
    kubectl::Kubectl,
    workloads::{account, create, namespace},
};

const SOON: Duration = Duration::from_secs(60);
/// How long the host keeps a decision.
const KEPT: Duration = Duration::from_secs(10);
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// Returns a client of the host's port that sends a token, and does not verify the certificate, which is self-signed.
pub(crate) fn client(host: &Host, token: Option<&str>) -> Result<Client> {
    let mut config = kube::Config::new(format!("https://{}", host.metrics_address()).parse()?);
    config.accept_invalid_certs = true;
    config.default_retry = false;
    config.auth_info.token = token.map(|token| token.to_owned().into());
    Ok(Client::try_from(config)?)
}

async fn get(client: &Client, path: &str) -> Result<(u16, String)> {
    let response = client.send(Request::get(path).body(Body::empty())?).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

/// Waits until the response has this status. Returns its body.
async fn answers(client: &Client, path: &str, expected: u16) -> Result<String> {
    until(&format!("{path} to answer {expected}"), SOON, async || {
        let (status, body) = get(client, path).await?;
        ensure!(status == expected, "{status}: {body}");
        Ok(body)
    })
    .await
}

/// Binds a ClusterRole to the ServiceAccount `prometheus`.
pub(crate) async fn bind(client: &Client, role: &str) -> Result<()> {
    let binding: Value = json!({
        "metadata": { "name": role },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring" }],
    });
    create(client, BINDINGS, binding).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_are_for_accounts_with_the_right_while_the_api_server_says_so() -> Result<()> {
    let Some((plane, admin, _turn)) = cluster(0).await? else { return Ok(()) };
    let kubectl = Kubectl::new(&plane);
    kubectl.install(&["namespace.yaml", "rbac.yaml"])?;
    account(&admin, "podium", "default").await?;
    namespace(&admin, "monitoring").await?;
    account(&admin, "monitoring", "prometheus").await?;
    let token = plane.token_of("monitoring", "prometheus").await?;
    let proxy = plane.proxy(&plane.kubeconfig_of("podium", "podium-host").await?).await?;
    let flags = ["--watch-plugins", "--metrics-authentication", "on", "--log-level", "trace"];
    let host = Host::spawn(&HostOptions {
        kubeconfig: proxy.kubeconfig_path().to_owned(),
        arguments: flags.map(str::to_owned).to_vec(),
        ..HostOptions::default()
    })
    .await?;
    let (prometheus, none, wrong) =
        (client(&host, Some(&token))?, client(&host, None)?, client(&host, Some("not.a.token"))?);

    // The host's account may not ask.
    let body = answers(&prometheus, "/metrics", 503).await?;
    ensure!(body.contains("apply deploy/kustomize/base/metrics-rbac.yaml"), "{body}");
    kubectl.install(&["metrics-rbac.yaml"])?;
    let body = answers(&prometheus, "/metrics", 403).await?;
    let role = "system:serviceaccount:monitoring:prometheus may not get /metrics; bind the ClusterRole \
                podium-metrics-reader to it";
    ensure!(body.trim_end() == role, "{body}");
    for client in [&none, &wrong] {
        let (status, body) = get(client, "/metrics").await?;
        ensure!(status == 401 && body.contains("bearer token"), "{status}: {body}");
    }
    // Without TLS there is no answer but the advice to use it.
    let refused = host.get("/metrics").await.unwrap_err().to_string();
    ensure!(refused.contains("400") && refused.contains("https://"), "{refused}");

    bind(&admin, "podium-metrics-reader").await?;
    let metrics = answers(&prometheus, "/metrics", 200).await?;
    ensure!(metrics.contains("\npodium_cache_pods "), "{metrics}");
    let (status, body) = get(&prometheus, "/debug/reconcile-status").await?;
    ensure!(status == 403 && body.contains("podium-debug-reader"), "{status}: {body}");
    bind(&admin, "podium-debug-reader").await?;
    let body = answers(&prometheus, "/debug/reconcile-status", 200).await?;
    ensure!(body.contains("\"activeRuns\""), "{body}");

    admin.request::<Value>(Request::delete(format!("{BINDINGS}/podium-metrics-reader")).body(Vec::new())?).await?;
    let revoked = Instant::now();
    answers(&prometheus, "/metrics", 403).await?;
    // The API server's own cache of rights follows within about a second; the machine may be busy.
    ensure!(revoked.elapsed() < KEPT + Duration::from_secs(5), "admitted for {:?}", revoked.elapsed());

    bind(&admin, "podium-metrics-reader").await?;
    answers(&prometheus, "/metrics", 200).await?;
    drop(proxy);
    let away = Instant::now();
    // The known token is admitted to metrics, which show the outage, and to nothing else.
    let body = answers(&prometheus, "/debug/reconcile-status", 503).await?;
    ensure!(body.contains("repeat the request when the API server is available"), "{body}");
    until("the outage in the metrics", SOON, async || {
        let (status, body) = get(&prometheus, "/metrics").await?;
        ensure!(status == 200, "{status}: {body}");
        ensure!(body.contains("\npodium_cache_stale 1\n") && away.elapsed() > KEPT, "{body}");
        Ok(())
    })
    .await?;
    let log = host.log();
    ensure!(log.contains("client of metrics not authenticated"), "{log}");
    ensure!(!log.contains(&token) && !log.contains("not.a.token"), "a token is in the log");
    Ok(())
}
