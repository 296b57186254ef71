//! Saves the cache periodically and at shutdown, for a warm start. Disk calls block and run on blocking threads; in a
//! simulation they run in this task.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use podium_engine::clock::Clock;
use podium_pods::{
    cache::Reader,
    encoding::SkeletonPool,
    model::Revision,
    pod::{Checkpoint, PodView},
};
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use crate::{
    checkpoint::{self, Coverage, Saver},
    telemetry::CheckpointFigures,
};

/// The directory and the interval of checkpoints.
#[derive(Debug, Clone)]
pub struct CheckpointOptions {
    /// An existing directory that only this host uses.
    pub directory: PathBuf,
    /// The time between two checkpoints. One more is written at shutdown.
    pub every: Duration,
}

pub(super) struct CheckpointTask {
    reader: Reader,
    /// True while the cache lacks Pods of the journal. The previous checkpoint is kept during that time.
    incomplete: Arc<AtomicBool>,
    every: Duration,
    /// `None` while a blocking thread uses it.
    saver: Option<Saver>,
    simulated: bool,
    cluster: Cluster,
    clock: Clock,
    saved: Arc<LastSave>,
}

/// When the checkpoint was last written, for metrics.
#[derive(Debug, Default)]
pub(super) struct LastSave {
    /// Epoch milliseconds; 0 before the first checkpoint.
    at_millis: AtomicU64,
    failing: AtomicBool,
}

impl LastSave {
    pub(super) fn figures(&self) -> CheckpointFigures {
        let at = self.at_millis.load(Relaxed);
        CheckpointFigures { saved_millis: (at > 0).then_some(at), failing: self.failing.load(Relaxed) }
    }
}

impl CheckpointTask {
    pub(super) fn new(
        options: CheckpointOptions,
        coverage: Coverage,
        reader: Reader,
        incomplete: Arc<AtomicBool>,
        cluster: Cluster,
        clock: Clock,
        simulated: bool,
    ) -> Self {
        let saver = Some(Saver::new(options.directory, coverage));
        let saved = Arc::default();
        Self { reader, incomplete, every: options.every, saver, simulated, cluster, clock, saved }
    }

    pub(super) fn saved(&self) -> Arc<LastSave> {
        self.saved.clone()
    }

    /// Runs until `stop`, and then saves one last checkpoint.
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
        let Some(mut saver) = self.saver.take() else { anyhow::bail!("the checkpoint was lost in a panic") };
        let cluster = self.cluster.clone();
        let save = move || {
            let cluster = cluster.get().map(|uid| &**uid);
            let saved = saver.save(snapshot.iter(), snapshot.revision(), snapshot.edits(), cluster);
            (saver, saved)
        };
        let (saver, saved) = if self.simulated { save() } else { tokio::task::spawn_blocking(save).await? };
        self.saver = Some(saver);
        self.record(saved);
        Ok(())
    }

    fn record(&self, saved: io::Result<()>) {
        let failed_before = self.saved.failing.swap(saved.is_err(), Relaxed);
        match saved {
            Ok(()) => self.saved.at_millis.store(self.clock.now_millis(), Relaxed),
            Err(error) if !failed_before => {
                tracing::warn!(%error, "checkpoint failed; the next start may list all pods");
            }
            Err(_) => {}
        }
    }
}

/// Loads the checkpoint that an earlier host saved.
pub(super) async fn load(
    options: &CheckpointOptions,
    coverage: Coverage,
    pool: &Arc<SkeletonPool>,
    simulated: bool,
) -> anyhow::Result<Option<Checkpoint>> {
    let (directory, pool) = (options.directory.clone(), pool.clone());
    let load = move || checkpoint::load(&directory, &coverage, &pool);
    Ok(if simulated { load() } else { tokio::task::spawn_blocking(load).await? })
}
