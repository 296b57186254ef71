//! The host as a process on a real control plane: its guarantees, verified through the API server.

mod children;
mod churn;
mod compaction;
mod conformance;
mod cookbook;
mod crowd;
mod deputies;
mod faulty;
mod fights;
mod finalizers;
mod five_plugins;
mod groups;
mod handover;
mod health;
mod idle;
mod images;
mod impersonation;
mod inputs;
mod install;
mod kills;
mod kubectl;
mod load;
mod many_objects;
mod metrics_access;
mod monitoring;
mod object_reads;
mod objects;
mod owners;
mod plugins;
mod printed_rights;
mod replicas;
mod restarts;
mod run_reports;
mod scripts;
mod second_wall;
mod small;
mod soak;
mod takeovers;
mod tenants;
mod workloads;

use anyhow::Result;
use kube::Client;
use podium_tests::controlplane::{ControlPlane, Options};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The control planes that run at a time, if their tests mostly wait.
const TURNS: u32 = 2;

/// Starts a control plane for one test, because a host sees all namespaces and the audit log has the same user for each
/// host. Two tests run at a time if they have no nodes, since they mostly wait. Returns `None` if the suites are
/// skipped.
async fn cluster(nodes: usize) -> Result<Option<(ControlPlane, Client, SemaphorePermit<'static>)>> {
    let turns = if nodes == 0 { 1 } else { TURNS };
    start(Options { nodes, ..Options::default() }, turns).await
}

/// Starts a control plane beside which no other test runs: for those that measure, or wait for a time at most.
async fn exclusive(options: Options) -> Result<Option<(ControlPlane, Client, SemaphorePermit<'static>)>> {
    start(options, TURNS).await
}

async fn start(options: Options, turns: u32) -> Result<Option<(ControlPlane, Client, SemaphorePermit<'static>)>> {
    static FREE: Semaphore = Semaphore::const_new(TURNS as usize);
    let turn = FREE.acquire_many(turns).await?;
    let Some(plane) = ControlPlane::start(options).await? else { return Ok(None) };
    let client = plane.client().await?;
    Ok(Some((plane, client, turn)))
}
