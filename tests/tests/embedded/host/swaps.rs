//! Many swaps of a plugin's code under load, in real time: no key is lost, no two runs of a key overlap, and another
//! tenant's plugin does not wait for swaps.
//!
//! That plugin has Pods of its own: a write of the plugin that is swapped would be an event for it too, and its 99th
//! percentile would be that of its own burst of events.
//!
//! PODIUM_PLUGIN_SWAPS sets the number; `just test-swaps`.

use std::{
    collections::BTreeSet,
    env, fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use kube::api::{ListParams, Patch, PatchParams};
use podium_devcluster::{Cluster, Options};
use podium_engine::status::PluginStatus;
use podium_host::app::App;
use podium_tests::{embedded, guests, plugins, wire::Wire};
use podium_vocabulary::{PluginSpec, Source};
use serde_json::json;
use tokio::time::Instant;

const SWAPS: usize = 1_000;
/// Swaps between two looks at all Pods.
const BLOCK: usize = 100;
/// Pods that change all the time.
const PODS: usize = 40;
/// The most others, which come and go: each swap queues all Pods, so that more would only make the test longer.
const OTHERS: usize = 100;
/// Pods of the neighbour that change all the time.
const NEIGHBOURS: usize = 20;
/// The neighbour's 99th percentile beside swaps, against that beside loads of the same version, which also run the
/// plugin on all Pods: a bound that the load of a machine does not reach.
const RATIO: f64 = 10.0;
const LEAST: Duration = Duration::from_secs(1);

/// Writes the component with a byte behind it that changes its digest and nothing else.
fn with_digest(directory: &Path, byte: u8) -> Source {
    let mut wasm = guests::component("registrar").unwrap().to_vec();
    // A custom section named "v".
    wasm.extend([0, 3, 1, b'v', byte]);
    let file = directory.join(format!("{byte}.wasm"));
    fs::write(&file, wasm).unwrap();
    Source::File(file)
}

/// A plugin of the Pods with this value of the label `app`. Of 20,000 runs in an unoptimised build, beside other
/// suites, one may take more than the 20 ms of processor time that are the default.
fn registrar(name: &str, label: &str, app: &str) -> PluginSpec {
    let watch = format!("  watch: {{ selector: {{ matchLabels: {{ app: {app} }} }} }}");
    let config = format!("  config: {{ label: guests.example/{label} }}");
    plugins::guest("registrar", name, &format!("{config}\n{watch}\n  limits: {{ cpuMillis: 1000 }}")).unwrap()
}

/// Changes Pods in turn until it is stopped. Returns the number of changes.
async fn change(cluster: Arc<Cluster>, stopped: Arc<AtomicBool>, changes: Arc<AtomicUsize>) {
    let pods = embedded::pods(&cluster, Some("default"));
    while !stopped.load(SeqCst) {
        let turn = changes.fetch_add(1, SeqCst);
        let patch = Patch::Merge(json!({ "metadata": { "labels": { "turn": turn.to_string() } } }));
        let name = match turn % 2 {
            0 => format!("cart-{}", turn / 2 % PODS),
            _ => format!("quiet-{}", turn / 2 % NEIGHBOURS),
        };
        pods.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Panics if two runs of the plugin are on one Pod.
fn check_overlap(status: &PluginStatus) {
    let runs = status.active_runs();
    let pods: BTreeSet<_> = runs.iter().map(|run| (run.pod.namespace.clone(), run.pod.name.clone())).collect();
    assert_eq!(pods.len(), runs.len(), "two runs on one Pod: {runs:?}");
}

fn p99(status: &PluginStatus, earlier: &[u64]) -> Duration {
    status.queue_time.quantile_since(earlier, 0.99).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 5)]
async fn many_swaps_under_load_lose_no_key_and_harm_no_neighbour() {
    let swaps = env::var("PODIUM_PLUGIN_SWAPS").map_or(SWAPS, |swaps| swaps.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let digests = [1, 2].map(|byte| with_digest(directory.path(), byte));
    let cluster = Arc::new(Cluster::start(Options { simulate: false, ..Options::default() }).unwrap());
    for index in 0..PODS {
        embedded::create_pod(&cluster, &format!("cart-{index}"), "cart").unwrap();
    }
    for index in 0..NEIGHBOURS {
        embedded::create_pod(&cluster, &format!("quiet-{index}"), "quiet").unwrap();
    }
    let wire = Wire::new(&cluster);
    let app = App::start(embedded::options(&cluster, wire.client())).await.unwrap();
    // Both digests stay compiled.
    for (index, source) in digests.iter().enumerate() {
        let keeper = registrar(&format!("keeper-{index}"), "kept", "none");
        app.load(PluginSpec { source: source.clone(), ..keeper }).await.unwrap();
    }
    let neighbour = registrar("neighbour", "neighbour", "quiet");
    let neighbours = app.status().plugin(&neighbour.id);
    app.load(neighbour).await.unwrap();
    let version = |turn: usize| {
        let spec = registrar("swapped", &format!("v{}", turn / BLOCK), "cart");
        PluginSpec { source: digests[turn % 2].clone(), ..spec }
    };
    app.load(version(1)).await.unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    let swapped = app.status().plugin(&version(0).id);

    let (stopped, changes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let load = tokio::spawn(change(cluster.clone(), stopped.clone(), changes.clone()));
    let before = neighbours.queue_time.counts();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let alone = p99(&neighbours, &before);
    let before = neighbours.queue_time.counts();
    for _ in 0..BLOCK {
        app.load(version(1)).await.unwrap();
    }
    let reloaded = p99(&neighbours, &before);
    let (mut apart, began) = (neighbours.queue_time.counts(), Instant::now());
    let (mut pods, mut next) = (PODS, PODS);
    for turn in 0..swaps {
        app.load(version(turn)).await.unwrap();
        check_overlap(&swapped);
        if turn % 10 == 0 {
            embedded::create_pod(&cluster, &format!("cart-{next}"), "cart").unwrap();
            if pods < PODS + OTHERS {
                pods += 1;
            } else {
                embedded::delete_pod(&cluster, &format!("cart-{}", next - OTHERS)).await.unwrap();
            }
            next += 1;
        }
        if (turn + 1) % BLOCK == 0 {
            // Listing all Pods again and again takes more of the processors than swaps do: it does not count.
            let before = neighbours.queue_time.counts();
            labelled(&cluster, pods, &format!("guests.example/v{}", turn / BLOCK)).await;
            let meanwhile = neighbours.queue_time.counts();
            for (apart, (before, after)) in apart.iter_mut().zip(before.iter().zip(meanwhile)) {
                *apart += after - before;
            }
        }
    }
    let (beside, took) = (p99(&neighbours, &apart), began.elapsed());
    stopped.store(true, SeqCst);
    load.await.unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    labelled(&cluster, pods, &format!("guests.example/v{}", (swaps - 1) / BLOCK)).await;
    let (runs, changes) = (swapped.runs(), changes.load(SeqCst));
    println!(
        "{swaps} swaps in {took:?} beside {changes} changes of Pods, {runs} runs; the neighbour's p99 from event to \
         run: {alone:?} without them, {reloaded:?} beside loads of one version, {beside:?} beside swaps"
    );
    assert!(!wire.overlapped(), "two writes of one plugin to one Pod at the same time");
    assert_eq!(swapped.failures(), Default::default());
    let bound = reloaded.mul_f64(RATIO).max(LEAST);
    assert!(beside <= bound, "the neighbour waits {beside:?}, and {reloaded:?} beside loads of one version");
    app.shutdown().await;
}

/// Waits until each Pod has the label.
async fn labelled(cluster: &Cluster, pods: usize, label: &str) {
    let complete = async || {
        let carts = ListParams::default().labels("app=cart");
        let all = embedded::pods(cluster, Some("default")).list(&carts).await?.items;
        let missing = all.iter().filter(|pod| !pod.metadata.labels.as_ref().is_some_and(|has| has.contains_key(label)));
        let missing: Vec<_> = missing.map(|pod| pod.metadata.name.clone()).collect();
        anyhow::ensure!(all.len() == pods && missing.is_empty(), "{} Pods, without {label}: {missing:?}", all.len());
        Ok(())
    };
    podium_tests::wait::until("every Pod to be labelled", Duration::from_secs(60), complete).await.unwrap();
}
