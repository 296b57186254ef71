//! The cache compared with the API server while hundreds of Pods are created and deleted: at every time it equals an
//! exact list at its own revision.
//!
//! A task adds to each Pod what a network plugin adds in a dual-stack cluster, an IPv6 address and an annotation with
//! addresses of the Pod's own, and changes another annotation until the test ends.
//!
//! Ends after a number of comparisons at different revisions; `PODIUM_CHURN_COMPARISONS` sets it.

use std::{
    collections::BTreeSet,
    io::Write,
    net::{Ipv4Addr, Ipv6Addr},
    time::Duration,
};

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
const DEFAULT_COMPARISONS: usize = 100;
/// Sufficient on a busy machine.
const WITHIN: Duration = Duration::from_secs(180);
/// The annotation in which a network plugin reports a Pod's interfaces.
const INTERFACES: &str = "k8s.v1.cni.cncf.io/network-status";
/// An annotation with a new value at each visit.
const VISITED: &str = "suite.podium.dev/visited";
/// The pause between two comparisons, without which the API server would only serve lists.
const PACE: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cache_equals_an_exact_list_during_churn() -> Result<()> {
    let Some((_plane, client, _turn)) = cluster(20).await? else { return Ok(()) };
    let wanted = match std::env::var("PODIUM_CHURN_COMPARISONS") {
        Ok(text) => text.parse().context("PODIUM_CHURN_COMPARISONS is not a number")?,
        Err(_) => DEFAULT_COMPARISONS,
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
        compared = compare(&app, &client, wanted) => compared?,
        churned = churn(&client) => bail!("the Deployments stopped changing: {churned:?}"),
        stopped = connect(&client) => bail!("Pods get no addresses any more: {stopped:?}"),
    };
    ensure!(compared.dual > 0, "no Pod had two addresses");
    let Compared { checks, pods, dual, revisions } = compared;
    let revisions = revisions.len();
    print_line(&format!(
        "{checks} comparisons at {revisions} revisions, {pods} Pods, {dual} of them dual-stack, no difference"
    ));
    app.shutdown().await;
    Ok(())
}

/// Prints to stderr directly, because the test harness captures `eprintln`.
fn print_line(line: &str) {
    let _ = writeln!(std::io::stderr(), "churn: {line}");
}

#[derive(Debug, Default)]
struct Compared {
    checks: u32,
    /// The number of compared Pods over all lists.
    pods: usize,
    /// Those among them that have two addresses.
    dual: usize,
    revisions: BTreeSet<u64>,
}

/// Compares until this number of revisions were compared, which takes a minute for 200 on an idle machine.
async fn compare(app: &App, client: &Client, wanted: usize) -> Result<Compared> {
    let end = Instant::now() + WITHIN + PACE * 20 * u32::try_from(wanted)?;
    let mut compared = Compared::default();
    while compared.revisions.len() < wanted {
        ensure!(Instant::now() < end, "the cluster hardly changed: {:?}", compared.revisions);
        let snapshot = app.reader().snapshot();
        let revision = snapshot.revision();
        let path = format!("/api/v1/pods?resourceVersion={revision}&resourceVersionMatch=Exact");
        let list: Value = client.request(Request::get(path).body(Vec::new())?).await?;
        let listed = list["items"].as_array().context("a list without items")?;
        let differences = differences(&snapshot, listed)?;
        ensure!(differences.is_empty(), "at revision {revision}: {differences:#?}");
        compared.checks += 1;
        compared.pods += listed.len();
        compared.dual += listed.iter().filter(|pod| addresses(pod).is_some_and(|all| all.len() == 2)).count();
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

fn addresses(pod: &Value) -> Option<&Vec<Value>> {
    pod["status"]["podIPs"].as_array()
}

/// Visits all running Pods again and again, as the network plugin of a dual-stack cluster does.
async fn connect(client: &Client) -> Result<()> {
    for visit in 0.. {
        let path = format!("/api/v1/namespaces/{SHOP}/pods?labelSelector=app%3Dchurn");
        let list: Value = client.request(Request::get(path).body(Vec::new())?).await?;
        for (index, pod) in list["items"].as_array().context("a list without items")?.iter().enumerate() {
            let Some(name) = pod["metadata"]["name"].as_str() else { continue };
            let Some(v4) = pod["status"]["podIP"].as_str() else { continue };
            let connected = addresses(pod).is_some_and(|all| all.len() == 2);
            // Of the connected Pods one in eight at each visit, so that most patches connect new ones.
            if connected && index % 8 != visit % 8 {
                continue;
            }
            connect_one(client, name, v4, visit).await?;
        }
    }
    Ok(())
}

async fn connect_one(client: &Client, name: &str, v4: &str, visit: usize) -> Result<()> {
    let [a, b, c, d] = v4.parse::<Ipv4Addr>().with_context(|| format!("the IPv4 address {v4}"))?.octets();
    let [high, low] = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
    let v6 = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, high, low).to_string();
    let interfaces = json!([{
        "name": "mesh", "interface": "eth0", "ips": [v4, v6],
        "mac": format!("0a:58:{a:02x}:{b:02x}:{c:02x}:{d:02x}"), "default": true, "dns": {},
    }]);
    let interfaces = serde_json::to_string_pretty(&interfaces)?;
    let body = json!({
        "metadata": { "annotations": { INTERFACES: interfaces, VISITED: format!("visit {visit} of {name}") } },
        "status": { "podIPs": [{ "ip": v4 }, { "ip": v6 }] },
    });
    let path = format!("/api/v1/namespaces/{SHOP}/pods/{name}/status");
    let patch = Request::patch(path).header("Content-Type", "application/merge-patch+json");
    match client.request::<Value>(patch.body(body.to_string().into_bytes())?).await {
        // The Pod may be gone.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        patched => patched.map(|_| ()).with_context(|| format!("{name}: {body}")),
    }
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
