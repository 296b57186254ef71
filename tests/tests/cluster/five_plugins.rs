//! The project's five plugins on 20 nodes and 500 Pods: they act and then settle, and neither a restart nor a SIGKILL
//! changes the final state.

use std::{io::Write, time::Duration};

use anyhow::{Result, ensure};
use kube::Client;
use podium_tests::{
    controlplane::{Audit, Mark},
    plugins::FIVE,
    process::{Host, HostOptions},
    wait::until,
};
use tokio::time::{Instant, sleep};

use crate::{
    cluster,
    plugins::write_five,
    workloads::{
        HOST, Shape, all, annotation, condition, deployment, host_account, job, label, namespace, pause_crashes, pods,
    },
};

const SHOP: &str = "shop";
/// Sufficient for a debug build of the host on a busy machine.
const CONVERGED_WITHIN: Duration = Duration::from_secs(180);
const WORKLOAD: &str = "podium.dev/workload";
const POLICY: &str = "podium.dev/ImagePolicy";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_plugins_fall_silent_and_survive_restart_and_sigkill() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(20).await? else { return Ok(()) };
    let directory = tempfile::tempdir()?;
    write_five(directory.path())?;
    let kubeconfig = host_account(&plane, &client).await?;
    let options =
        HostOptions { kubeconfig, plugins: vec![directory.path().to_owned()], arguments: vec!["--strict".to_owned()] };
    namespace(&client, SHOP).await?;

    // 470 Pods of ten compliant Deployments, 10 that violate the policy, 10 crowded, 10 crashing: 500, and a Job that
    // finishes.
    for index in 0..10 {
        deployment(&client, SHOP, &format!("web-{index}"), 47, Shape::default()).await?;
    }
    deployment(&client, SHOP, "careless", 10, Shape { careless: true, ..Shape::default() }).await?;
    deployment(&client, SHOP, "crowded", 10, Shape { node: Some("node-03"), ..Shape::default() }).await?;
    deployment(&client, SHOP, "crashing", 10, Shape { crashes: true, ..Shape::default() }).await?;
    job(&client, SHOP, "import", 5).await?;
    until("the Job's Pods", CONVERGED_WITHIN, async || {
        all(&pods(&client, SHOP, "job=import").await?, 5, "they are there", |_| true)
    })
    .await?;

    print_line("500 Pods and a Job are made; starting the host");
    let host = Host::spawn(&options).await?;
    let audit = plane.audit();
    until("what the five plugins write", CONVERGED_WITHIN, async || is_converged(&client, 47).await).await?;

    print_line("converged; 30 s of silence follow");
    pause_crashes(&client, SHOP, "app=crashing").await?;
    let silent_since = silence(&audit, Duration::from_secs(5)).await?;
    stays_silent(&audit, silent_since, Duration::from_secs(30)).await?;

    print_line("silent; restarting the host");
    let status = host.terminate().await?;
    ensure!(status.success(), "SIGTERM ends with {status}");
    let before = audit.now()?;
    let host = Host::spawn(&options).await?;
    until("a run of every plugin on every Pod", CONVERGED_WITHIN, async || {
        for plugin in FIVE {
            let runs =
                host.metric("controller_runtime_reconcile_total", &[&format!("controller=\"{plugin}\"")]).await?;
            // One of them runs for each of the 13 Deployments.
            let least = if plugin == "spread-guard" { 13.0 } else { 500.0 };
            ensure!(runs >= least, "{runs} of {plugin}");
        }
        Ok(())
    })
    .await?;
    stays_silent(&audit, before, Duration::from_secs(5)).await?;

    print_line("nothing was written; killing the host in the middle of a rollout");
    killed_in_the_middle(&client, &audit, host, &options).await
}

/// Prints to stderr directly, which the test harness never hides: this test takes a minute.
fn print_line(line: &str) {
    let _ = writeln!(std::io::stderr(), "five plugins: {line}");
}

/// Kills the host during a rollout. The next host must lead to the same final state.
async fn killed_in_the_middle(client: &Client, audit: &Audit, host: Host, options: &HostOptions) -> Result<()> {
    let before = audit.now()?;
    for index in 0..10 {
        let path = format!("/apis/apps/v1/namespaces/{SHOP}/deployments/web-{index}/scale");
        let scale = serde_json::json!({ "spec": { "replicas": 60 } }).to_string().into_bytes();
        let patch = http::Request::patch(path).header("Content-Type", "application/merge-patch+json").body(scale)?;
        client.request::<serde_json::Value>(patch).await?;
    }
    until("the first writes to the new Pods", CONVERGED_WITHIN, async || {
        let written = audit.writes_of(HOST, before)?.len();
        ensure!(written >= 20, "{written} writes");
        Ok(())
    })
    .await?;
    host.kill().await?;
    let written = audit.writes_of(HOST, before)?.len();
    ensure!(written < 260, "killed too late to prove anything: {written} writes");
    let _host = Host::spawn(options).await?;
    until("the same end state", CONVERGED_WITHIN, async || is_converged(client, 60).await).await?;
    silence(audit, Duration::from_secs(5)).await.map(drop)
}

async fn is_converged(client: &Client, replicas: usize) -> Result<()> {
    for index in 0..10 {
        let name = format!("web-{index}");
        let found = pods(client, SHOP, &format!("app={name}")).await?;
        all(&found, replicas, "labelled and within the policy", |pod| {
            label(pod, WORKLOAD) == Some(&*name) && condition(pod, POLICY).is_none()
        })?;
    }
    let careless = pods(client, SHOP, "app=careless").await?;
    all(&careless, 10, "against the policy", |pod| condition(pod, POLICY) == Some("False"))?;
    let crowded = pods(client, SHOP, "app=crowded").await?;
    all(&crowded, 10, "marked as crowded", |pod| annotation(pod, "podium.dev/crowded") == Some("node-03"))?;
    let crashing = pods(client, SHOP, "app=crashing").await?;
    all(&crashing, 10, "diagnosed", |pod| annotation(pod, "triage.podium.dev/diagnosis").is_some())?;
    let finished = pods(client, SHOP, "job=import").await?;
    ensure!(finished.is_empty(), "{} finished Pods are still there", finished.len());
    Ok(())
}

/// Waits until the host has written nothing for this long.
async fn silence(audit: &Audit, quiet: Duration) -> Result<Mark> {
    let deadline = Instant::now() + CONVERGED_WITHIN;
    loop {
        let mark = audit.now()?;
        sleep(quiet).await;
        let writes = audit.writes_of(HOST, mark)?;
        if writes.is_empty() {
            return Ok(mark);
        }
        ensure!(Instant::now() < deadline, "the host still writes: {writes:?}");
    }
}

/// Fails if the host writes anything from `since` until `long` from now. This is a real wait, because the host is
/// another process with its own clock.
async fn stays_silent(audit: &Audit, since: Mark, long: Duration) -> Result<()> {
    sleep(long).await;
    let writes = audit.writes_of(HOST, since)?;
    ensure!(writes.is_empty(), "quiet means quiet, but the host wrote {writes:?}");
    Ok(())
}
