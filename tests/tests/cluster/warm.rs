//! Restarts of podium-host on a real API server from its checkpoint: after a shutdown, after a kill, and without
//! changes of Pods meanwhile.

use std::{io::Write, time::Duration};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use podium_tests::{
    process::{Host, HostOptions},
    wait::until,
};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    exclusive,
    plugins::write_labeller,
    workloads::{host_account, namespace, pod},
};

const SHOP: &str = "warm";
const PODS: usize = 40;
const SOON: Duration = Duration::from_secs(60);
const UP_TO_DATE: &str = "checkpoint brought up to date";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_host_requests_only_changes() -> Result<()> {
    let Some((plane, client, _turn)) = exclusive(<_>::default()).await? else { return Ok(()) };
    let (plugins, state) = (tempfile::tempdir()?, tempfile::tempdir()?);
    namespace(&client, SHOP).await?;
    write_labeller(plugins.path(), SHOP, None)?;
    for index in 0..PODS {
        pod(&client, SHOP, &format!("cart-{index}")).await?;
    }
    let flags = ["--state-dir", &state.path().display().to_string(), "--checkpoint-seconds", "1"].map(str::to_owned);
    let options = HostOptions {
        kubeconfig: host_account(&plane, &client).await?,
        plugins: vec![plugins.path().to_owned()],
        arguments: flags.into(),
    };
    let started = async |pods: usize| {
        let began = Instant::now();
        let host = Host::spawn(&options).await?;
        until("the Pods", SOON, async || {
            let held = host.metric("podium_cache_pods", &[]).await?;
            ensure!(held == pods as f64, "{held} Pods");
            host.get("/readyz").await?;
            Ok(())
        })
        .await?;
        Ok::<_, anyhow::Error>((host, began.elapsed()))
    };
    let labelled = async |host: &Host, writes: usize| {
        until("a label on every new Pod", SOON, async || {
            let applied = host.metric("podium_writes_total", &[r#"result="applied""#]).await?;
            ensure!(applied == writes as f64, "{applied}");
            Ok(())
        })
        .await
    };
    let (host, _) = started(PODS).await?;
    ensure!(!host.log().contains(UP_TO_DATE));
    labelled(&host, PODS).await?;
    ensure!(host.terminate().await?.success());

    let api: Api<Pod> = Api::namespaced(client.clone(), SHOP);
    for index in 0..3 {
        api.delete(&format!("cart-{index}"), &DeleteParams::default().grace_period(0)).await?;
    }
    pod(&client, SHOP, "cart-0").await?;
    pod(&client, SHOP, "cart-new").await?;
    let label = json!({ "metadata": { "labels": { "changed": "meanwhile" } } });
    api.patch("cart-9", &PatchParams::default(), &Patch::Merge(label)).await?;
    let (host, changed) = started(PODS - 1).await?;
    ensure!(host.log().contains(UP_TO_DATE), "{}", host.log());
    labelled(&host, 2).await?;

    // Its last checkpoint is older than this.
    host.kill().await?;
    api.delete("cart-30", &DeleteParams::default().grace_period(0)).await?;
    let (host, killed) = started(PODS - 2).await?;
    ensure!(host.log().contains(UP_TO_DATE), "{}", host.log());
    ensure!(host.terminate().await?.success());
    let (host, unchanged) = started(PODS - 2).await?;
    ensure!(host.log().contains(UP_TO_DATE), "{}", host.log());
    ensure!(host.terminate().await?.success());
    let said = format!("{changed:.1?}, killed {killed:.1?}, unchanged {unchanged:.1?}");
    writeln!(std::io::stderr(), "warm: ready after {said}")?;
    Ok(())
}
