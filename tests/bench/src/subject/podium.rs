//! Podium: the host's own watch, cache, wake and queue, combined as in its ingest loop. No plugin runs: keys are taken
//! from the queue and settled immediately.

use std::{hint::black_box, sync::Arc, time::Duration};

use anyhow::Context;
use podium_api::{
    self, Api,
    watch::{Counters, Watch, WatchOptions},
};
use podium_encoding::Pool;
use podium_engine::{
    memory::{TrimSchedule, trim},
    queue::{Backoff, Next, Queue},
    wake::Wake,
};
use podium_host::app::ingest_runtime;
use podium_pods::{
    cache,
    pod::{Change, Observation, PodEvent, PodView},
    testing,
};
use podium_vocabulary::{PluginSpec, WatchSpec};
use podium_wire::{Section, SectionSet};
use tokio::sync::mpsc;

use super::control::{Control, Reads, median};

pub(super) const PLUGINS: usize = 10;
/// The value of the host.
const OBSERVATIONS: usize = 16;
const REQUEST_DEADLINE: Duration = Duration::from_secs(5);
const LANE_LIMIT: usize = 4;

/// A queue of plugin, namespace and name, and uid.
type Keys = Queue<usize, (Arc<str>, Arc<str>), Arc<str>>;

pub(super) fn run(config: kube::Config, plugins: usize) -> anyhow::Result<()> {
    let counters = Arc::<Counters>::default();
    ingest_runtime(Arc::clone(&counters))?.block_on(follow(config, counters, plugins))
}

async fn follow(config: kube::Config, counters: Arc<Counters>, plugins: usize) -> anyhow::Result<()> {
    let api = Api::new(podium_api::client(config)?, REQUEST_DEADLINE);
    let (mut writer, reader) = cache::new(1);
    let watch = Watch::new(api, WatchOptions::default(), Arc::new(Pool::new(1)), Arc::new(reader.clone()), 1);
    let watch = watch.counted_by(counters);
    let (observed, mut observations) = mpsc::channel(OBSERVATIONS);
    let specs: Vec<_> = (0..plugins).map(plugin).collect();
    let wake = Wake::new(specs.iter().enumerate());
    let queue: Arc<Keys> = Arc::new(Queue::new(Backoff::default(), LANE_LIMIT, 1));

    let sizes = reader.clone();
    let (control, go) = Control::start(move || reads(&reader));
    go.await.context("no order came")?;
    tokio::spawn(watch.run(observed));
    let worker = Arc::clone(&queue);
    tokio::spawn(async move {
        while let Some(job) = worker.next().await {
            worker.done(&job, Next::Settled);
        }
    });
    let mut trims = TrimSchedule::default();
    loop {
        let observation = tokio::select! {
            biased;
            observation = observations.recv() => observation.context("the watch ended")?,
            () = trims.due() => {
                drop(tokio::task::spawn_blocking(trim));
                continue;
            }
        };
        match observation {
            Observation::Relisted { pods, revision } => {
                let listed = pods.len();
                enqueue(&wake, &queue, &writer.relist(pods, revision).publish());
                trims.plan();
                control.synced(listed)?;
                control.seen(revision.0)?;
            }
            Observation::Events(events) => {
                let revisions: Vec<u64> = match control.is_recording() {
                    true => events.iter().map(revision).collect(),
                    false => events.last().map(revision).into_iter().collect(),
                };
                let changes = writer.apply(events).publish();
                enqueue(&wake, &queue, &changes);
                trims.changed(changes.len(), sizes.snapshot().len());
                for revision in revisions {
                    control.seen(revision)?;
                }
            }
            Observation::Bookmark(revision) => writer.bookmark(revision),
            Observation::RolledBack => writer.roll_back(),
            Observation::Live => writer.set_live(),
            Observation::Stale(staleness) => writer.set_stale(staleness),
        }
    }
}

fn revision(event: &PodEvent) -> u64 {
    event.pod.revision.0
}

fn enqueue(wake: &Wake<usize>, queue: &Keys, changes: &[Change]) {
    let mut items = Vec::new();
    for change in changes {
        let Some(key) = change.key() else { continue };
        for lane in wake.concerned(change).pods {
            items.push((lane, (Arc::clone(&key.namespace), Arc::clone(&key.name)), Arc::clone(&key.uid)));
        }
    }
    queue.add(items);
}

/// Returns a plugin: one watches every Pod's status, one every Pod's labels, the others the status in one namespace
/// of the generator each.
fn plugin(at: usize) -> PluginSpec {
    let namespace = match at {
        0 | 1 => None,
        _ => Some(format!("{}-{at}", ["shop", "bank", "media", "ops"][at % 4])),
    };
    let section = if at == 1 { Section::Labels } else { Section::Status };
    let sections = SectionSet::EMPTY.with(section);
    let watch = WatchSpec { sections, ..WatchSpec::default() };
    PluginSpec { watch, ..testing::plugin(namespace.as_deref(), &format!("plugin-{at}")) }
}

fn reads(reader: &cache::Reader) -> Reads {
    let snapshot = reader.snapshot();
    let names: Vec<_> = snapshot.iter().map(|pod| (pod.key.namespace.clone(), pod.key.name.clone())).collect();
    let get = median(|at| {
        let (namespace, name) = &names[at % names.len()];
        black_box(snapshot.get(namespace, name));
    });
    Reads { snapshot: median(|_| drop(black_box(reader.snapshot()))), get }
}
