//! The peer in Rust of the benchmark of rolling restarts: one program of kube-rs with a `Controller` for each
//! namespace, which labels Pods as the plugin workload-label does.
//!
//! Each controller has a watch of its own namespace: sharing one watch is an unstable feature of kube-rs.

use std::{path::Path, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config, ResourceExt,
    api::{Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{controller::Action, controller::Controller, watcher},
};
use serde_json::json;

const LABEL: &str = "podium.dev/workload";
const RETRY: Duration = Duration::from_secs(1);

/// Reconciles the Pods of these namespaces until the process ends.
///
/// # Errors
/// Returns an error if the kubeconfig cannot be used.
pub(crate) fn run(kubeconfig: &Path, namespaces: &[String]) -> anyhow::Result<()> {
    tokio::runtime::Runtime::new()?.block_on(reconcile_all(kubeconfig, namespaces))
}

async fn reconcile_all(kubeconfig: &Path, namespaces: &[String]) -> anyhow::Result<()> {
    // For a second caller it is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let client = Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)?;
    let controllers = namespaces.iter().map(|namespace| {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let context = Arc::new(pods.clone());
        Controller::new(pods, watcher::Config::default().streaming_lists()).run(
            label,
            |_, _, _| Action::requeue(RETRY),
            context,
        )
    });
    let mut ended = stream::select_all(controllers.map(StreamExt::boxed));
    while let Some(result) = ended.next().await {
        if let Err(error) = result {
            eprintln!("controller: {error}");
        }
    }
    anyhow::bail!("the controllers ended")
}

async fn label(pod: Arc<Pod>, pods: Arc<Api<Pod>>) -> Result<Action, kube::Error> {
    let owners = pod.owner_references();
    let Some(controller) = owners.iter().find(|owner| owner.controller == Some(true)) else {
        return Ok(Action::await_change());
    };
    if pod.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let hash = pod.labels().get("pod-template-hash").filter(|_| controller.kind == "ReplicaSet");
    let workload = hash.and_then(|hash| controller.name.strip_suffix(hash.as_str())?.strip_suffix('-'));
    let workload = workload.unwrap_or(&controller.name);
    if pod.labels().get(LABEL).is_some_and(|label| label == workload) {
        return Ok(Action::await_change());
    }
    let patch = json!({ "metadata": { "labels": { LABEL: workload } } });
    match pods.patch_metadata(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Action::await_change()),
        patched => patched.map(|_| Action::await_change()),
    }
}
