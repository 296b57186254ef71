//! The host as a process on a real control plane: its guarantees, verified through the API server.

mod churn;
mod compaction;
mod conformance;
mod deputies;
mod faulty;
mod fights;
mod finalizers;
mod five_plugins;
mod health;
mod idle;
mod images;
mod impersonation;
mod install;
mod kills;
mod kubectl;
mod load;
mod many_objects;
mod metrics_access;
mod monitoring;
mod objects;
mod owners;
mod plugins;
mod restarts;
mod second_wall;
mod small;
mod soak;
mod tenants;
mod warm;
mod workloads;

use anyhow::Result;
use kube::Client;
use podium_tests::controlplane::{ControlPlane, Options};
use tokio::sync::{Mutex, MutexGuard};

/// Starts a control plane for one test, because a host sees all namespaces and the audit log has the same user for each
/// host. Tests run one after the other, because a machine may have two processors. Returns `None` if the suites are
/// skipped.
async fn cluster(nodes: usize) -> Result<Option<(ControlPlane, Client, MutexGuard<'static, ()>)>> {
    cluster_with(Options { nodes, ..Options::default() }).await
}

async fn cluster_with(options: Options) -> Result<Option<(ControlPlane, Client, MutexGuard<'static, ()>)>> {
    static TURN: Mutex<()> = Mutex::const_new(());
    let turn = TURN.lock().await;
    let Some(plane) = ControlPlane::start(options).await? else { return Ok(None) };
    let client = plane.client().await?;
    Ok(Some((plane, client, turn)))
}
