//! The whole host on the embedded cluster, in one process and without sockets: under paused time a day passes in a
//! second, and results do not depend on the machine's speed.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use podium_devcluster::Cluster;
use podium_host::app::{App, LeaseOptions, Mode, Options};
use podium_pods::pod::PodView;
use podium_vocabulary::PluginSpec;
use serde_json::{Value, json};

use crate::wait::until;

/// A version of owners that the cluster does not serve, so that its garbage collector keeps Pods whose owners do not
/// exist.
pub const UNSERVED: &str = "extensions/v1beta1";

/// Timeout in the cluster's time. A disconnected host retries after 5 s at most; the rest is for back-offs.
const WITHIN: Duration = Duration::from_secs(120);

/// Returns options of a replica of an installation, which takes the Lease after 8 s.
pub fn lease(client: kube::Client, own_namespace: &str, holder: &str) -> LeaseOptions {
    LeaseOptions {
        connection: client.into(),
        namespace: Some("default".to_owned()),
        own_namespace: own_namespace.to_owned(),
        holder: holder.to_owned(),
        duration: Duration::from_secs(8),
        active_replicas: Mode::One,
        boot_time: None,
    }
}

/// Starts a host, with plugins, that talks to the cluster through `client`.
///
/// # Errors
/// Returns an error if a plugin is not loaded.
pub async fn host(cluster: &Cluster, client: kube::Client, plugins: Vec<PluginSpec>) -> Result<App> {
    let app = App::start_simulated(options(cluster, client)).await?;
    for spec in plugins {
        app.load(spec).await?;
    }
    Ok(app)
}

/// Returns options with four workers, no ports, and the cluster's own time.
#[must_use]
pub fn options(cluster: &Cluster, client: kube::Client) -> Options {
    let now_millis = u64::try_from(cluster.now_millis()).unwrap_or_default();
    Options { workers: 4, ..Options::new(client, 7, now_millis) }
}

/// Returns a client of all Pods, or those of a namespace, that bypasses the recorded wire.
#[must_use]
pub fn pods(cluster: &Cluster, namespace: Option<&str>) -> Api<Pod> {
    let client = kube::Client::new(cluster.service(), "default");
    namespace.map_or_else(|| Api::all(client.clone()), |namespace| Api::namespaced(client.clone(), namespace))
}

/// Creates a Pod in the namespace `default` with the label `app`, and returns its uid.
///
/// # Errors
/// Returns an error if the cluster refuses it.
pub fn create_pod(cluster: &Cluster, name: &str, app: &str) -> Result<String> {
    let pod = cluster.create(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"containers": [{"name": "c", "image": "registry.example/c:1"}]},
    }))?;
    uid(&pod)
}

/// Deletes a Pod of the namespace `default` at once.
///
/// # Errors
/// Returns an error if there is none.
pub async fn delete_pod(cluster: &Cluster, name: &str) -> Result<()> {
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    pods(cluster, Some("default")).delete(name, &now).await?;
    Ok(())
}

/// # Errors
/// Returns an error if it has none.
pub fn uid(object: &Value) -> Result<String> {
    object["metadata"]["uid"].as_str().map(str::to_owned).context("an object without a uid")
}

/// Returns a label of a Pod in the namespace `default`.
///
/// # Errors
/// Returns an error if the Pod does not exist.
pub async fn label(cluster: &Cluster, name: &str, key: &str) -> Result<Option<String>> {
    let pod = pods(cluster, Some("default")).get(name).await?;
    Ok(pod.metadata.labels.and_then(|mut labels| labels.remove(key)))
}

/// Returns the annotations of a Pod in the namespace `default`.
///
/// # Errors
/// Returns an error if the Pod does not exist.
pub async fn annotations(cluster: &Cluster, name: &str) -> Result<BTreeMap<String, String>> {
    Ok(pods(cluster, Some("default")).get(name).await?.metadata.annotations.unwrap_or_default())
}

/// Waits until the host's cache equals the cluster's list and no key is due or running: the host has then completed all
/// work for the events so far, except keys that wait for a delay of more than 300 ms.
///
/// # Errors
/// Returns an error if this takes longer than two minutes of the cluster's time.
pub async fn at_rest(cluster: &Cluster, app: &App) -> Result<()> {
    until("the host to be at rest", WITHIN, async || {
        let present = listed(cluster).await?;
        let cached = cached(app);
        ensure!(cached == present, "the cache has {cached:#?}, the cluster {present:#?}");
        ensure!(app.unready().is_none(), "{:?}", app.unready());
        ensure!(app.is_idle(), "runs are due or under way");
        // A key of a Pod that does not show a write to it yet is tried again after a quarter of a second.
        tokio::time::sleep(Duration::from_millis(300)).await;
        ensure!(app.is_idle() && cached == listed(cluster).await?, "runs were due");
        Ok(())
    })
    .await
}

/// Uid and revision by namespace and name.
type Present = BTreeMap<(String, String), (String, String)>;

async fn listed(cluster: &Cluster) -> Result<Present> {
    let list = pods(cluster, None).list(&ListParams::default()).await?;
    let entry = |pod: Pod| {
        let metadata = pod.metadata;
        let text = Option::unwrap_or_default;
        let name = (text(metadata.namespace), text(metadata.name));
        (name, (text(metadata.uid), text(metadata.resource_version)))
    };
    Ok(list.items.into_iter().map(entry).collect())
}

fn cached(app: &App) -> Present {
    let snapshot = app.reader().snapshot();
    let entry = |pod: std::sync::Arc<podium_pods::pod::CachedPod>| {
        let name = (pod.key.namespace.to_string(), pod.key.name.to_string());
        let held = snapshot.by_uid(&pod.key.uid).map_or_else(String::new, |pod| pod.revision.to_string());
        (name, (pod.key.uid.to_string(), held))
    };
    snapshot.iter().map(entry).collect()
}
