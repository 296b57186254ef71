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

use podium_api::watch::Counters;
use podium_encoding::Pool;
use podium_engine::clock::Clock;
use podium_pods::{
    cache::Reader,
    pod::{Checkpoint, PodView},
};
use podium_vocabulary::Revision;
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
    /// The counters of the watch. While it knows Pods that cannot be decoded, the previous checkpoint is kept: a host
    /// that resumed from a later one would not learn their states, and a later version may be able to decode them.
    counters: Arc<Counters>,
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
        counters: Arc<Counters>,
        cluster: Cluster,
        clock: Clock,
        simulated: bool,
    ) -> Self {
        let saver = Some(Saver::new(options.directory, coverage));
        let saved = Arc::default();
        Self { reader, counters, every: options.every, saver, simulated, cluster, clock, saved }
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
        // A watch that went back in time is stale until the list that follows: its Pods may be of no history.
        if snapshot.revision() == Revision::default() || snapshot.staleness().is_some() || self.counters.undecoded() > 0
        {
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
    pool: &Arc<Pool>,
    simulated: bool,
) -> anyhow::Result<Option<Checkpoint>> {
    let directory = options.directory.clone();
    let pool = pool.clone();
    let load = move || checkpoint::load(&directory, &coverage, &pool);
    Ok(if simulated { load() } else { tokio::task::spawn_blocking(load).await? })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::{FutureExt, StreamExt, stream};
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use kube::client::Body;
    use podium_api::{
        Api,
        watch::{Watch, WatchOptions},
    };
    use podium_pods::{
        cache,
        pod::{Observation, PodList, Staleness},
    };
    use serde_json::{Value, json};
    use tokio::sync::mpsc;

    use super::*;

    fn pod(name: &str, containers: Value) -> Value {
        let metadata = json!({ "namespace": "shop", "name": name, "uid": format!("u-{name}"), "resourceVersion": "5" });
        json!({ "metadata": metadata, "spec": { "containers": containers }, "status": {} })
    }

    /// A start from the checkpoint would resume behind the states that are missing in it.
    #[tokio::test(start_paused = true)]
    async fn no_checkpoint_is_saved_while_a_pod_cannot_be_decoded() {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, reader) = cache::new(7);
        let (counters, pool) = (Arc::<Counters>::default(), Arc::new(Pool::new(7)));
        let line = |kind: &str, object: Value| json!({ "type": kind, "object": object }).to_string() + "\n";
        let mut end = pod("", json!([]));
        end["metadata"] = json!({ "resourceVersion": "10", "annotations": { "k8s.io/initial-events-end": "true" } });
        let mut changed = pod("b", json!([]));
        changed["metadata"]["resourceVersion"] = "12".into();
        let list = line("ADDED", pod("a", json!([]))) + &line("ADDED", pod("b", json!(7))) + &line("BOOKMARK", end);
        let change = line("MODIFIED", changed);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let is_list = request.uri().query().is_some_and(|query| query.contains("sendInitialEvents=true"));
            let text = if is_list { list.clone() } else { change.clone() };
            let wait = Duration::from_secs(if is_list { 0 } else { 3 });
            let frame = tokio::time::sleep(wait).map(|()| Ok::<_, Infallible>(Frame::data(bytes::Bytes::from(text))));
            let frames = stream::once(frame).chain(stream::pending());
            async move { Ok::<_, Infallible>(http::Response::new(StreamBody::new(frames))) }
        });
        let api = Api::new(kube::Client::new(service, "default"), Duration::from_secs(5));
        let watch = Watch::new(api, WatchOptions::default(), pool.clone(), Arc::new(reader.clone()), 7);
        let (sender, mut observations) = mpsc::channel(4);
        tokio::spawn(watch.counted_by(counters.clone()).run(sender));

        let options = CheckpointOptions { directory: directory.path().to_owned(), every: Duration::from_secs(1) };
        let (coverage, clock) = (Coverage::new(None, &Default::default()), Clock::starting_at(1_000));
        let mut task =
            CheckpointTask::new(options, coverage.clone(), reader, counters.clone(), Cluster::default(), clock, true);
        let saved = || checkpoint::load(directory.path(), &coverage, &pool).map(|checkpoint| checkpoint.revision.0);
        let Some(Observation::Relisted { pods, revision }) = observations.recv().await else { panic!("no list") };
        writer.relist(pods, revision).publish();
        writer.set_live();
        task.save().await.unwrap();
        assert_eq!((counters.undecoded(), saved()), (1, None));
        while !matches!(observations.recv().await, Some(Observation::Events(_))) {}
        task.save().await.unwrap();
        assert_eq!((counters.undecoded(), saved()), (0, Some(10)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_checkpoint_is_saved_only_while_the_watch_is_live() {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, reader) = cache::new(7);
        let options = CheckpointOptions { directory: directory.path().to_owned(), every: Duration::from_secs(1) };
        let (coverage, clock) = (Coverage::new(None, &Default::default()), Clock::starting_at(1_000));
        let mut task =
            CheckpointTask::new(options, coverage.clone(), reader, Arc::default(), Cluster::default(), clock, true);
        let pool = Pool::new(7);
        let saved = || checkpoint::load(directory.path(), &coverage, &pool).map(|checkpoint| checkpoint.revision.0);
        writer.relist(PodList::default(), Revision(10)).publish();
        task.save().await.unwrap();
        assert_eq!(saved(), None, "the watch has not begun");
        writer.set_live();
        task.save().await.unwrap();
        assert_eq!(saved(), Some(10));
        writer.bookmark(Revision(20));
        writer.set_stale(Staleness { reason: "the watch went back from revision 20 to 15".into() });
        task.save().await.unwrap();
        assert_eq!(saved(), Some(10), "a state of no history is saved");
        writer.set_live();
        task.save().await.unwrap();
        assert_eq!(saved(), Some(20));
    }
}
