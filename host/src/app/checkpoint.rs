//! Saves the cache now and then and at the end, for a warm start. The disk's calls block and are made on threads of their
//! own; but in a simulation in this task.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use crate::{
    cache::Reader,
    checkpoint::{self, Saver, Scope},
    model::{Checkpoint, PodView, Revision},
    shape::Shapes,
};

/// Where and how often the cache is saved.
#[derive(Debug, Clone)]
pub struct CheckpointOptions {
    /// The host's own, and there.
    pub directory: PathBuf,
    pub every: Duration,
}

pub(super) struct Keeper {
    reader: Reader,
    /// While the cache lacks Pods that the journal knows, the checkpoint before it is the better one.
    incomplete: Arc<AtomicBool>,
    every: Duration,
    /// None while a thread has it.
    saver: Option<Saver>,
    simulated: bool,
    /// What was last told of a failure.
    failed: bool,
    cluster: Cluster,
}

impl Keeper {
    pub(super) fn new(
        options: CheckpointOptions,
        scope: Scope,
        reader: Reader,
        incomplete: Arc<AtomicBool>,
        cluster: Cluster,
        simulated: bool,
    ) -> Self {
        let saver = Some(Saver::new(options.directory, scope));
        Self { reader, incomplete, every: options.every, saver, simulated, failed: false, cluster }
    }

    /// Runs until `stop`, and saves a last time.
    pub(super) async fn run(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        loop {
            let stopped = tokio::time::timeout(self.every, stop.cancelled()).await.is_ok();
            self.save().await?;
            if stopped {
                return Ok(());
            }
        }
    }

    async fn save(&mut self) -> anyhow::Result<()> {
        let snapshot = self.reader.snapshot();
        if snapshot.revision() == Revision::default() || self.incomplete.load(Relaxed) {
            return Ok(());
        }
        let Some(mut saver) = self.saver.take() else { anyhow::bail!("the checkpoint was lost by a panic") };
        let cluster = self.cluster.clone();
        let save = move || {
            let cluster = cluster.get().map(|uid| &**uid);
            let saved = saver.save(snapshot.iter(), snapshot.revision(), snapshot.edits(), cluster);
            (saver, saved)
        };
        let (saver, saved) = if self.simulated { save() } else { tokio::task::spawn_blocking(save).await? };
        self.saver = Some(saver);
        self.tell(saved);
        Ok(())
    }

    fn tell(&mut self, saved: io::Result<()>) {
        if let Err(error) = &saved
            && !self.failed
        {
            tracing::warn!(%error, "the cache cannot be saved: the next start lists all pods");
        }
        self.failed = saved.is_err();
    }
}

/// What an earlier host saved.
pub(super) async fn load(
    options: &CheckpointOptions,
    scope: Scope,
    shapes: &Arc<Shapes>,
    simulated: bool,
) -> anyhow::Result<Option<Checkpoint>> {
    let (directory, shapes) = (options.directory.clone(), shapes.clone());
    let load = move || checkpoint::load(&directory, &scope, &shapes);
    Ok(if simulated { load() } else { tokio::task::spawn_blocking(load).await? })
}
