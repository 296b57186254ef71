//! Reads the files that a start needs: the kubeconfig with its certificates, and the state directory. All calls
//! block.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use podium_engine::journal;
use podium_pods::model::text;
use podium_registry::Allowed;
use tokio::runtime::Handle;

use super::{CheckpointOptions, compile};
use crate::{
    api, checkpoint,
    config::{ConfigError, Policy},
    images::Store,
    runtime::Cache,
};

/// Why no client of the API server could be made.
pub(super) enum NoClient {
    /// There is no kubeconfig, or it cannot be used.
    Misconfigured(String),
    Failed(kube::Error),
}

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoState {
    #[error(transparent)]
    Journal(#[from] journal::Error),
    #[error("its checkpoint cannot be removed: {0}")]
    Checkpoint(io::Error),
}

/// Returns two clients of one API server: one for all requests except the watch, and one for the watch; and its host
/// and port. Must be called within a runtime.
pub(super) fn clients(kubeconfig: Option<&Path>) -> Result<(kube::Client, kube::Client, String), NoClient> {
    let config = Handle::current().block_on(kube_config(kubeconfig)).map_err(NoClient::Misconfigured)?;
    if config.accept_invalid_certs {
        tracing::warn!(
            "the API server's certificate is not verified, because the kubeconfig sets insecure-skip-tls-verify: \
            anyone on the network path can read and change all traffic"
        );
    }
    // This reads the client certificate.
    let client = |config| api::client(config).map_err(|error| NoClient::Failed(*error));
    let watch_client = client(config.clone())?;
    let server = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    Ok((client(config)?, watch_client, server))
}

/// The state directory, opened. Everything is `None` without a directory.
#[derive(Default)]
pub(super) struct State {
    pub(super) journal: Option<journal::Opened>,
    pub(super) checkpoint: Option<CheckpointOptions>,
    pub(super) code: Option<Arc<Cache>>,
    pub(super) components: Option<Store>,
}

/// Opens the journal and the cache of compiled code of the directory, if there is one, and returns them with the place
/// of checkpoints.
pub(super) fn state(directory: Option<PathBuf>, checkpoint_seconds: u32, now_millis: u64) -> Result<State, NoState> {
    // The journal's lock keeps other hosts out of the directory.
    let journal = journal(directory.as_deref(), now_millis)?;
    let code = directory.as_deref().and_then(|directory| compile::cache(directory, now_millis));
    let components = directory.as_deref().and_then(components);
    let checkpoint = checkpoints(directory, checkpoint_seconds).map_err(NoState::Checkpoint)?;
    Ok(State { journal, checkpoint, code, components })
}

/// Opens the store of components in a state directory. Logs a failure; the host then fetches all components at each
/// start.
fn components(state: &Path) -> Option<Store> {
    let opened = Store::open(state);
    opened
        .inspect_err(|error| {
            let directory = text::path(state);
            let message = "components are not stored; each start fetches all of them, and runs what the objects say";
            tracing::warn!(directory, %error, "{message}");
        })
        .ok()
}

/// Returns the registries of a policy, with the authorities of the system for those that have none of their own.
///
/// # Errors
/// Every file of the policy that cannot be read.
pub(super) fn registries(policy: &Policy) -> Result<Option<Allowed>, Vec<ConfigError>> {
    let registries = policy.registries()?;
    if registries.is_empty() {
        return Ok(None);
    }
    let found = rustls_native_certs::load_native_certs();
    if !found.errors.is_empty() && registries.iter().any(|registry| registry.certificates.is_empty()) {
        let error = found.errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let error = text::line(&error);
        tracing::warn!(error, "not all of the system's certificate authorities can be read; registries may be refused");
    }
    let allowed = Allowed::new(registries, found.certs);
    allowed.map(Some).map_err(|error| vec![policy.error("spec.registries", error.to_string())])
}

/// Opens the directory's journal, if a directory is configured.
fn journal(directory: Option<&Path>, now_millis: u64) -> Result<Option<journal::Opened>, journal::Error> {
    let Some(directory) = directory else {
        tracing::info!(
            "no --state-dir: deletions of pods while the host is down are not delivered, unless a finalizer holds the \
            pod"
        );
        return Ok(None);
    };
    let opened = journal::open(directory, now_millis)?;
    let journal::Figures { entries, bytes, .. } = opened.journal.figures();
    tracing::info!(directory = %directory.display(), entries, bytes, "journal opened");
    Ok(Some(opened))
}

/// Returns the checkpoint's options. If checkpoints are disabled, one of an earlier host is deleted, because it
/// contains whole Pods.
fn checkpoints(directory: Option<PathBuf>, seconds: u32) -> io::Result<Option<CheckpointOptions>> {
    let Some(directory) = directory else { return Ok(None) };
    if seconds == 0 {
        checkpoint::remove(&directory)?;
        return Ok(None);
    }
    Ok(Some(CheckpointOptions { directory, every: Duration::from_secs(seconds.into()) }))
}

/// Reads the kubeconfig, or else the Pod's ServiceAccount or the user's kubeconfig. The messages of kube's errors
/// contain their causes.
async fn kube_config(file: Option<&Path>) -> Result<kube::Config, String> {
    match file {
        Some(file) => {
            let unusable = |error: kube::config::KubeconfigError| error.to_string();
            let kubeconfig = kube::config::Kubeconfig::read_from(file).map_err(unusable)?;
            let options = kube::config::KubeConfigOptions::default();
            kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(unusable)
        }
        None => match kube::Config::incluster() {
            Ok(config) => Ok(config),
            Err(_) => kube::Config::infer().await.map_err(|error| {
                format!("not in a Pod with a ServiceAccount, and no kubeconfig ({error}); pass --kubeconfig FILE")
            }),
        },
    }
}
