//! Reads the files that a start needs: the kubeconfig with its certificates, and the state directory. All calls
//! block.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use podium_engine::journal;
use tokio::runtime::Handle;

use super::{CheckpointOptions, compile};
use crate::{api, checkpoint, runtime::Cache};

/// Why no client of the API server could be made.
pub(super) enum NoClient {
    Misconfigured(anyhow::Error),
    Failed(kube::Error),
}

/// Why the state directory cannot be used. The message follows the flag's name.
pub(super) enum NoState {
    Journal(journal::Error),
    Checkpoint(io::Error),
}

impl fmt::Display for NoState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Journal(error) => write!(formatter, " {error}"),
            Self::Checkpoint(error) => write!(formatter, ": cannot remove its checkpoint: {error}"),
        }
    }
}

/// Returns two clients of one API server: one for all requests except the watch, and one for the watch. Must be
/// called within a runtime.
pub(super) fn clients(kubeconfig: Option<&Path>) -> Result<(kube::Client, kube::Client), NoClient> {
    let config = Handle::current().block_on(kube_config(kubeconfig)).map_err(NoClient::Misconfigured)?;
    if config.accept_invalid_certs {
        tracing::warn!(
            "the API server's certificate is not verified, because the kubeconfig sets insecure-skip-tls-verify: anyone \
             on the network path can read and change all traffic"
        );
    }
    // This reads the client certificate.
    let client = |config| api::client(config).map_err(|error| NoClient::Failed(*error));
    let watch_client = client(config.clone())?;
    Ok((client(config)?, watch_client))
}

/// The state directory, opened. Everything is `None` when no directory is given.
#[derive(Default)]
pub(super) struct State {
    pub(super) journal: Option<journal::Opened>,
    pub(super) checkpoint: Option<CheckpointOptions>,
    pub(super) code: Option<Arc<Cache>>,
}

/// Opens the journal and the cache of compiled code of the directory, if one is given, and says where Pods are saved.
pub(super) fn state(directory: Option<PathBuf>, checkpoint_seconds: u32, now_millis: u64) -> Result<State, NoState> {
    // The journal's lock keeps other hosts out of the directory.
    let journal = journal(directory.as_deref(), now_millis).map_err(NoState::Journal)?;
    let code = directory.as_deref().and_then(|directory| compile::cache(directory, now_millis));
    let checkpoint = checkpoints(directory, checkpoint_seconds).map_err(NoState::Checkpoint)?;
    Ok(State { journal, checkpoint, code })
}

/// Opens the directory's journal, if a directory is configured.
fn journal(directory: Option<&Path>, now_millis: u64) -> Result<Option<journal::Opened>, journal::Error> {
    let Some(directory) = directory else {
        tracing::info!(
            "no --state-dir: deletions of pods while the host is down are not delivered, unless a finalizer holds the pod"
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

/// The messages of these errors contain their causes, so the chain is not printed again.
async fn kube_config(file: Option<&Path>) -> anyhow::Result<kube::Config> {
    match file {
        Some(file) => {
            let unusable = |error| anyhow::anyhow!("--kubeconfig {} cannot be used: {error}", file.display());
            let kubeconfig = kube::config::Kubeconfig::read_from(file).map_err(unusable)?;
            let options = kube::config::KubeConfigOptions::default();
            kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(unusable)
        }
        None => match kube::Config::incluster() {
            Ok(config) => Ok(config),
            Err(_) => kube::Config::infer()
                .await
                .context("no cluster: not in a Pod with a ServiceAccount, and no kubeconfig; pass --kubeconfig FILE"),
        },
    }
}
