//! Rolling restarts of many Deployments on the real control plane, with a plugin for each namespace that labels new
//! Pods: each real change costs one write. The audit log counts the writes, and another client's watch the changes.
//!
//! `just bench-load` measures new Pods beside the same logic as programs of controller-runtime and of kube-rs.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use futures::StreamExt;
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, watcher, watcher::watcher as watch},
};
use podium_tests::{
    controlplane::Mark,
    plugins::write_labellers,
    process::{Host, HostOptions},
    wait::until,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    cluster,
    workloads::{HOST, Shape, deployment, host_account, namespace},
};

const LABEL: &str = "podium.dev/workload";
const NAME: &str = "web";
const WITHIN: Duration = Duration::from_secs(600);
/// Sufficient for the API server to write its audit log and for the watch of the test.
const SETTLES: Duration = Duration::from_secs(3);

const NAMESPACES: usize = 4;
/// Pods of each Deployment.
const REPLICAS: usize = 8;
const PODS: usize = NAMESPACES * REPLICAS;
const LASTS: Duration = Duration::from_secs(20);
/// The pause between the restarts of two Deployments.
const PAUSE: Duration = Duration::from_secs(4);

fn teams() -> Vec<String> {
    (0..NAMESPACES).map(|index| format!("team-{index:02}")).collect()
}

/// The Pods as another client's watch shows them.
#[derive(Debug, Default)]
struct Seen {
    by_uid: HashMap<String, Label>,
    /// Pods that exist, and those of them that have the label.
    present: HashMap<String, bool>,
    failures: usize,
}

#[derive(Debug, Default)]
struct Label {
    /// How often its value changed.
    changes: u64,
    value: Option<String>,
}

impl Seen {
    fn apply(&mut self, pod: &PartialObjectMeta<Pod>) {
        let Some(uid) = pod.metadata.uid.clone() else { return };
        let value = pod.metadata.labels.as_ref().and_then(|labels| labels.get(LABEL)).cloned();
        let is_ending = pod.metadata.deletion_timestamp.is_some();
        self.present.insert(uid.clone(), value.is_some() || is_ending);
        let label = self.by_uid.entry(uid).or_default();
        if value != label.value {
            label.changes += 1;
            label.value = value;
        }
    }

    fn changes(&self) -> u64 {
        self.by_uid.values().map(|label| label.changes).sum()
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Follows the metadata of all Pods until it is dropped.
async fn follow(client: Client, seen: Arc<Mutex<Seen>>) {
    let pods: Api<PartialObjectMeta<Pod>> = Api::all(client);
    let mut events = watch(pods, watcher::Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        let mut seen = lock(&seen);
        match event {
            Ok(watcher::Event::InitApply(pod) | watcher::Event::Apply(pod)) => seen.apply(&pod),
            Ok(watcher::Event::Delete(pod)) => {
                seen.present.remove(pod.metadata.uid.as_deref().unwrap_or_default());
            }
            Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
            // Changes may be missed.
            Err(_) => seen.failures += 1,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_restarts_cost_one_write_for_each_new_pod() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(3).await? else { return Ok(()) };
    for team in teams() {
        namespace(&client, &team).await?;
        deployment(&client, &team, NAME, REPLICAS, Shape::default()).await?;
    }
    until("all Deployments", WITHIN, async || rolled_out(&client).await).await?;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let following = tokio::spawn(follow(plane.client().await?, Arc::clone(&seen)));
    until("the watch", WITHIN, async || {
        ensure!(lock(&seen).present.len() == PODS);
        Ok(())
    })
    .await?;

    let directory = tempfile::tempdir()?;
    let host = start_podium(&host_account(&plane, &client).await?, directory.path()).await?;
    let all_labelled = async || {
        until("a label on every Pod", WITHIN, async || {
            let seen = lock(&seen);
            let left = seen.present.values().filter(|labelled| !**labelled).count();
            ensure!(left == 0 && seen.present.len() >= PODS, "{left} of {}", seen.present.len());
            Ok(())
        })
        .await
    };
    all_labelled().await?;
    restart(&client).await?;
    until("the last restarts", WITHIN, async || rolled_out(&client).await).await?;
    all_labelled().await?;
    sleep(SETTLES).await;

    let audited = plane.audit().writes_of(HOST, Mark::default())?;
    let patches = audited.iter().filter(|write| write.verb == "patch" && write.resource == "pods");
    let writes = patches.filter(|write| write.code < 300).count() as u64;
    {
        let seen = lock(&seen);
        ensure!(seen.failures == 0, "the watch of the test was interrupted {} times", seen.failures);
        ensure!(writes == seen.changes() && writes >= 2 * PODS as u64, "{writes} writes, {} changes", seen.changes());
    }
    following.abort();
    ensure!(host.terminate().await?.success());
    Ok(())
}

async fn start_podium(kubeconfig: &Path, directory: &Path) -> Result<Host> {
    write_labellers(directory, &teams())?;
    let options = HostOptions {
        kubeconfig: kubeconfig.to_owned(),
        plugins: vec![directory.to_owned()],
        arguments: vec!["--strict".to_owned()],
    };
    Host::spawn(&options).await
}

/// Restarts one Deployment after the other.
async fn restart(client: &Client) -> Result<()> {
    let end = Instant::now() + LASTS;
    for (round, team) in teams().iter().cycle().enumerate() {
        if Instant::now() >= end {
            break;
        }
        let path = format!("/apis/apps/v1/namespaces/{team}/deployments/{NAME}");
        let annotations = json!({ "suite.podium.dev/round": round.to_string() });
        let body = json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } }).to_string();
        let patch = Request::patch(path).header("Content-Type", "application/merge-patch+json");
        client.request::<Value>(patch.body(body.into_bytes())?).await?;
        sleep(PAUSE).await;
    }
    Ok(())
}

/// Fails unless every Deployment has only Pods of its last template.
async fn rolled_out(client: &Client) -> Result<()> {
    let list: Value = client.request(Request::get("/apis/apps/v1/deployments").body(Vec::new())?).await?;
    let items = list["items"].as_array().context("a list without items")?;
    ensure!(items.len() == NAMESPACES, "{} Deployments", items.len());
    for deployment in items {
        let (status, metadata) = (&deployment["status"], &deployment["metadata"]);
        let is_observed = status["observedGeneration"] == metadata["generation"];
        let counts = ["replicas", "updatedReplicas", "readyReplicas"];
        if !is_observed || counts.iter().any(|count| status[*count].as_u64() != Some(REPLICAS as u64)) {
            bail!("{}: {status}", metadata["namespace"]);
        }
    }
    Ok(())
}
