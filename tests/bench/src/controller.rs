//! The peer in Rust of the benchmark of new Pods: one program of kube-rs, which labels Pods as the plugin
//! workload-label does.
//!
//! All namespaces share one watch and one store. `Controller` can share a watch only with an unstable feature of
//! kube-rs, so this is what it is made of: a reflector and an applier, with its own defaults.

use std::{collections::HashSet, future::ready, path::Path, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config, ResourceExt,
    api::{Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{
        WatchStreamExt,
        controller::{self, Action, applier, trigger_self},
        reflector, watcher,
    },
};
use serde_json::json;

pub(crate) const LABEL: &str = "podium.dev/workload";
const RETRY: Duration = Duration::from_secs(1);

/// Reconciles the Pods of these namespaces until the process ends.
///
/// # Errors
/// Returns an error if the kubeconfig cannot be used.
pub(crate) fn run(kubeconfig: &Path, namespaces: &[String]) -> anyhow::Result<()> {
    tokio::runtime::Runtime::new()?.block_on(reconcile_all(kubeconfig, namespaces))
}

/// Returns the configuration of a client, as the file has it.
///
/// # Errors
/// Returns an error if the kubeconfig cannot be used.
pub(crate) async fn config(kubeconfig: &Path) -> anyhow::Result<Config> {
    // For a second caller it is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

async fn reconcile_all(kubeconfig: &Path, namespaces: &[String]) -> anyhow::Result<()> {
    let client = Client::try_from(config(kubeconfig).await?)?;
    let namespaces: HashSet<&String> = namespaces.iter().collect();
    let (store, writer) = reflector::store();
    let events = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default().streaming_lists());
    let pods = reflector(writer, events.default_backoff()).applied_objects();
    let own = pods.try_filter(|pod| ready(pod.metadata.namespace.as_ref().is_some_and(|own| namespaces.contains(own))));
    let retry = |_: Arc<Pod>, _: &kube::Error, _| Action::requeue(RETRY);
    let (client, settings) = (Arc::new(client), controller::Config::default());
    let reconcile = |pod, client| label(pod, client).boxed();
    let ended = applier(reconcile, retry, client, store, trigger_self(own, ()), settings);
    let mut ended = std::pin::pin!(ended);
    while let Some(result) = ended.next().await {
        if let Err(error) = result {
            eprintln!("controller: {error}");
        }
    }
    anyhow::bail!("the controller ended")
}

/// Returns the name of a Pod's workload, from its controller's kind and name and from its label `pod-template-hash`.
pub(crate) fn workload<'a>(kind: &str, name: &'a str, hash: Option<&str>) -> &'a str {
    let hash = hash.filter(|_| kind == "ReplicaSet");
    hash.and_then(|hash| name.strip_suffix(hash)?.strip_suffix('-')).unwrap_or(name)
}

async fn label(pod: Arc<Pod>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let owners = pod.owner_references();
    let Some(controller) = owners.iter().find(|owner| owner.controller == Some(true)) else {
        return Ok(Action::await_change());
    };
    if pod.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let hash = pod.labels().get("pod-template-hash").map(String::as_str);
    let workload = workload(&controller.kind, &controller.name, hash);
    if pod.labels().get(LABEL).is_some_and(|label| label == workload) {
        return Ok(Action::await_change());
    }
    let patch = json!({ "metadata": { "labels": { LABEL: workload } } });
    let pods: Api<Pod> = Api::namespaced(Client::clone(&client), pod.metadata.namespace.as_deref().unwrap_or_default());
    match pods.patch_metadata(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Action::await_change()),
        patched => patched.map(|_| Action::await_change()),
    }
}
