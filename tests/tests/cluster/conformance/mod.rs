//! The same operations on the API server in the process (devcluster) and on a real kube-apiserver 1.36.3, over HTTP.
//! The responses of both must be equal, except for the differences that `normal` removes.

mod difference;
mod exchange;
mod normal;
mod scenarios;

use std::{fmt::Write as _, fs, net::Ipv4Addr, path::Path};

use anyhow::{Context, Result, ensure};
use exchange::Exchange;
use futures::future::try_join_all;
use podium_devcluster::{Cluster, Options as DevOptions};
use podium_tests::controlplane::{ControlPlane, Options, client_of};
use scenarios::{HISTORIES, SCENARIOS, Scenario};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devcluster_answers_as_the_real_api_server_does() -> Result<()> {
    let still = DevOptions { nodes: 0, simulate: false, ..Default::default() };
    agree(SCENARIOS, Options::default(), still).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workloads_settle_as_with_the_real_controllers() -> Result<()> {
    agree(HISTORIES, Options { nodes: 2, ..Options::default() }, DevOptions::default()).await
}

async fn agree(scenarios: &[Scenario], real: Options, ours: DevOptions) -> Result<()> {
    let Some(plane) = ControlPlane::start(real).await? else { return Ok(()) };
    let devcluster = Cluster::start(ours)?;
    let server = devcluster.listen((Ipv4Addr::LOCALHOST, 0).into()).await?;
    let directory = tempfile::tempdir()?;
    let kubeconfig = directory.path().join("devcluster.kubeconfig");
    fs::write(&kubeconfig, server.kubeconfig())?;

    let comparisons = scenarios.iter().map(|scenario| compare(scenario, &plane, &kubeconfig));
    let report = try_join_all(comparisons).await?.concat();
    ensure!(report.is_empty(), "- the real API server, + devcluster\n{report}");
    Ok(())
}

/// Returns the differences of one scenario; empty if there are only known ones.
async fn compare(scenario: &Scenario, plane: &ControlPlane, devcluster: &Path) -> Result<String> {
    let Scenario { name, run } = scenario;
    let mut real = Exchange::begin(plane.client().await?, name).await?;
    let mut ours = Exchange::begin(client_of(devcluster).await?, name).await?;
    let (real_ran, ours_ran) = tokio::join!(run(&mut real), run(&mut ours));
    real_ran.with_context(|| format!("{name} on the real API server"))?;
    let mut report = difference::between(name, real.steps(), ours.steps());
    if let Err(error) = ours_ran {
        writeln!(report, "## {name}: cut short on devcluster: {error:#}")?;
    }
    Ok(report)
}
