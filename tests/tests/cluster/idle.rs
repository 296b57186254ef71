//! A cluster in which Pods do not change, everything else changes often, and etcd is compacted repeatedly.
//!
//! Runs for a bounded time; `PODIUM_IDLE_SECONDS` sets it.

use std::{collections::BTreeSet, io::Write, time::Duration};

use anyhow::{Context, Result, ensure};
use podium_tests::{
    process::{Host, HostOptions},
    wait::until,
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    exclusive,
    plugins::write_labeller,
    workloads::{create, host_account, namespace, pod},
};

const IDLE: &str = "idle";
const PODS: usize = 5;
const DEFAULT_SECONDS: u64 = 30;
const SOON: Duration = Duration::from_secs(60);
/// The pause between two observations of the host.
const LOOK: Duration = Duration::from_millis(100);
/// The number of observations between two connection losses. A watch after a loss lasts 3 s; the next one is cut in
/// its middle.
const LOOKS: u32 = 70;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_idle_pods_the_revision_advances_without_lists() -> Result<()> {
    let Some((plane, client, _turn)) = exclusive(<_>::default()).await? else { return Ok(()) };
    let seconds = match std::env::var("PODIUM_IDLE_SECONDS") {
        Ok(text) => text.parse().context("PODIUM_IDLE_SECONDS is not a number of seconds")?,
        Err(_) => DEFAULT_SECONDS,
    };
    let directory = tempfile::tempdir()?;
    let proxy = plane.proxy(&host_account(&plane, &client).await?).await?;
    namespace(&client, IDLE).await?;
    write_labeller(directory.path(), IDLE, None)?;
    for index in 0..PODS {
        pod(&client, IDLE, &format!("idle-{index}")).await?;
    }
    let kubeconfig = proxy.kubeconfig_path().to_owned();
    let options = HostOptions { kubeconfig, plugins: vec![directory.path().to_owned()], arguments: Vec::new() };
    let host = Host::spawn(&options).await?;
    until("a label on every Pod", SOON, async || {
        let applied = host.metric("podium_writes_total", &[r#"result="applied""#]).await?;
        ensure!(applied == PODS as f64, "{applied}");
        Ok(())
    })
    .await?;

    let mut revisions = BTreeSet::new();
    let (mut losses, mut compactions) = (0_u32, 0_u32);
    let end = Instant::now() + Duration::from_secs(seconds);
    for look in 1_u32.. {
        if Instant::now() >= end {
            break;
        }
        let name = format!("other-{look}");
        create(&client, &format!("/api/v1/namespaces/{IDLE}/configmaps"), json!({"metadata": {"name": name}})).await?;
        if look % 10 == 0 {
            plane.compact().await?;
            compactions += 1;
        }
        if look % LOOKS == 0 {
            proxy.lose_connections();
            losses += 1;
        }
        host.get("/readyz").await?;
        revisions.insert(host.metric("podium_cache_revision", &[]).await?.to_bits());
        sleep(LOOK).await;
    }
    // An API server whose etcd reports no progress sends few bookmarks, but not none.
    ensure!(revisions.len() > 1, "the revision stood still for {seconds} s");
    ensure!(losses > 0 && compactions > 0, "{losses} losses, {compactions} compactions");

    pod(&client, IDLE, "new").await?;
    until("the new Pod", SOON, async || {
        let held = host.metric("podium_cache_pods", &[]).await?;
        ensure!(held == PODS as f64 + 1.0, "{held} Pods");
        Ok(())
    })
    .await?;
    let lists = host.log().matches("pods listed").count();
    ensure!(lists == 1, "{lists} lists:\n{}", host.log());
    let said = format!("{seconds} s, {losses} losses, {compactions} compactions, {} revisions", revisions.len());
    writeln!(std::io::stderr(), "idle: {said}, no list")?;
    ensure!(host.terminate().await?.success());
    Ok(())
}
