//! The cache compared with the API server while hundreds of Pods are created and deleted: at every time it equals an
//! exact list at its own revision.
//!
//! Runs for a bounded time; `PODIUM_CHURN_SECONDS` sets it.

use std::{collections::BTreeSet, io::Write, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use http::Request;
use kube::Client;
use podium_host::app::{App, Options};
use podium_pods::pod::PodView;
use podium_tests::{oracle::differences, wait::until};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    cluster,
    workloads::{Shape, deployment, namespace, pods},
};

const SHOP: &str = "shop";
const MANY: usize = 300;
const REPLICAS: usize = 20;
const DEFAULT_SECONDS: u64 = 25;
/// Sufficient on a busy machine.
const WITHIN: Duration = Duration::from_secs(180);
/// The pause between two comparisons, without which the API server would only serve lists.
const PACE: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cache_equals_an_exact_list_during_scaling_rollouts_and_a_node_loss() -> Result<()> {
    let Some((_plane, client, _turn)) = cluster(20).await? else { return Ok(()) };
    let seconds = match std::env::var("PODIUM_CHURN_SECONDS") {
        Ok(text) => text.parse().context("PODIUM_CHURN_SECONDS is not a number of seconds")?,
        Err(_) => DEFAULT_SECONDS,
    };
    namespace(&client, SHOP).await?;
    deployment(&client, SHOP, "churn", REPLICAS, Shape::default()).await?;
    deployment(&client, SHOP, "crashing", 5, Shape { crashes: true, ..Shape::default() }).await?;

    let options = Options { workers: 2, ..Options::new(client.clone(), 7, 0) };
    let app = App::start(options).await?;
    until("the first list", WITHIN, async || {
        ensure!(app.reader().staleness().is_none(), "{:?}", app.reader().staleness());
        Ok(())
    })
    .await?;
    let compared = tokio::select! {
        compared = compare(&app, &client, Duration::from_secs(seconds)) => compared?,
        churned = churn(&client) => bail!("the Deployments stopped changing: {churned:?}"),
    };
    ensure!(compared.revisions.len() > 10, "the cluster hardly changed: {:?}", compared.revisions);
    let Compared { checks, pods, revisions } = compared;
    print_line(&format!("{checks} comparisons at {} revisions, {pods} Pods, no difference", revisions.len()));
    app.shutdown().await;
    Ok(())
}

/// Prints to stderr directly, which the test harness never hides.
fn print_line(line: &str) {
    let _ = writeln!(std::io::stderr(), "churn: {line}");
}

#[derive(Debug, Default)]
struct Compared {
    checks: u32,
    /// The number of compared Pods over all lists.
    pods: usize,
    revisions: BTreeSet<u64>,
}

async fn compare(app: &App, client: &Client, long: Duration) -> Result<Compared> {
    let end = Instant::now() + long;
    let mut compared = Compared::default();
    while Instant::now() < end {
        let snapshot = app.reader().snapshot();
        let revision = snapshot.revision();
        let path = format!("/api/v1/pods?resourceVersion={revision}&resourceVersionMatch=Exact");
        let list: Value = client.request(Request::get(path).body(Vec::new())?).await?;
        let listed = list["items"].as_array().context("a list without items")?;
        let differences = differences(&snapshot, listed)?;
        ensure!(differences.is_empty(), "at revision {revision}: {differences:#?}");
        compared.checks += 1;
        compared.pods += listed.len();
        compared.revisions.insert(revision.0);
        sleep(PACE).await;
    }
    Ok(compared)
}

/// Changes Pods until it is dropped or fails.
async fn churn(client: &Client) -> Result<()> {
    let node = Request::delete("/api/v1/nodes/node-07").body(Vec::new())?;
    let mut node = Some(node);
    for round in 0.. {
        scale(client, MANY).await?;
        at_least(client, MANY).await?;
        let rollout =
            json!({"spec": {"template": {"metadata": {"annotations": {"suite.podium.dev/round": round.to_string()}}}}});
        patch(client, "", rollout).await?;
        if let Some(node) = node.take() {
            client.request::<Value>(node).await?;
        }
        until("half of the rollout", WITHIN, async || {
            let found = pods(client, SHOP, "app=churn").await?;
            let new = found.iter().filter(|pod| {
                let annotations = pod.metadata.annotations.as_ref();
                annotations.and_then(|annotations| annotations.get("suite.podium.dev/round"))
                    == Some(&round.to_string())
            });
            let new = new.count();
            ensure!(new >= MANY / 2, "{new} new Pods");
            Ok(())
        })
        .await?;
        scale(client, REPLICAS).await?;
        until("most Pods to be gone", WITHIN, async || {
            let found = pods(client, SHOP, "app=churn").await?.len();
            ensure!(found < 2 * REPLICAS, "{found} Pods");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

async fn at_least(client: &Client, count: usize) -> Result<()> {
    until("Pods", WITHIN, async || {
        let found = pods(client, SHOP, "app=churn").await?.len();
        ensure!(found >= count, "{found} Pods");
        Ok(())
    })
    .await
}

async fn scale(client: &Client, replicas: usize) -> Result<()> {
    patch(client, "/scale", json!({ "spec": { "replicas": replicas } })).await
}

async fn patch(client: &Client, subresource: &str, body: Value) -> Result<()> {
    let path = format!("/apis/apps/v1/namespaces/{SHOP}/deployments/churn{subresource}");
    let patch = Request::patch(path).header("Content-Type", "application/merge-patch+json");
    client.request::<Value>(patch.body(body.to_string().into_bytes())?).await?;
    Ok(())
}
