//! Whatever happens to the host or to its view, the same end: each plugin of `plugins/` is killed before and after each
//! of its host's requests, and sees each event late or never, one fault in each simulation. The end state of the
//! cluster has to be that of the simulation without a fault.
//!
//! Events are not compared: the host sends them after the writes and does not repeat them after a restart.

mod stories;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use podium_devcluster::{Cluster, Garble, Options};
use podium_host::app::App;
use podium_tests::{embedded, plugins, wire::Wire};
use podium_vocabulary::PluginSpec;
use serde_json::{Value, json};
use stories::Story;
use tokio::{sync::Notify, time::sleep};

/// The time between a kill and the next start.
const DOWN: Duration = Duration::from_secs(1);
/// The events after which a late one is sent.
const LATE: u32 = 5;

/// The fault of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The host is killed before its request with this number reaches the API server.
    Before(usize),
    /// The host is killed when the API server has executed this request, before it has the answer.
    After(usize),
    /// The event with this number is late.
    Late(u32),
    /// The event with this number is never sent. At the end the host has to list again.
    Dropped(u32),
}

/// The end of a simulation.
#[derive(Debug)]
struct End {
    /// By the Pod's name: all that plugins write.
    pods: BTreeMap<String, Value>,
    /// The host's requests before the first kill, or all.
    requests: usize,
    /// The most events that the watch has sent: the Pods at the start, and their changes.
    events: u32,
}

/// Counts requests, and stops one of them for ever.
#[derive(Default)]
struct Point {
    requests: AtomicUsize,
    answers: AtomicUsize,
    reached: Notify,
}

impl Point {
    /// Returns a wire whose requests or answers end at the fault's number.
    fn wire(self: &Arc<Self>, cluster: &Cluster, fault: Fault) -> Wire {
        let (before, after) = (Arc::clone(self), Arc::clone(self));
        Wire::around(
            cluster,
            move |_| {
                let at = before.requests.fetch_add(1, Ordering::Relaxed);
                Arc::clone(&before).hold(fault == Fault::Before(at))
            },
            move |_| {
                let at = after.answers.fetch_add(1, Ordering::Relaxed);
                Arc::clone(&after).hold(fault == Fault::After(at))
            },
        )
    }

    fn hold(self: Arc<Self>, held: bool) -> futures::future::BoxFuture<'static, ()> {
        Box::pin(async move {
            if held {
                self.reached.notify_one();
                std::future::pending::<()>().await;
            }
        })
    }
}

/// Simulates the plugin's story with one fault.
async fn simulate(plugin: &PluginSpec, story: &Story, fault: Fault) -> End {
    let cluster = Arc::new(Cluster::start(Options { simulate: false, ..Options::default() }).unwrap());
    story.begin(&cluster).await;
    match fault {
        Fault::Late(event) => cluster.faults().garble_after(event, Garble::Late(LATE)),
        Fault::Dropped(event) => cluster.faults().garble_after(event, Garble::Drop),
        Fault::None | Fault::Before(_) | Fault::After(_) => {}
    }
    let (first, before) = cluster.list("pods");
    let point = Arc::<Point>::default();
    let mut app = Some(start(&cluster, &point.wire(&cluster, fault), plugin).await);
    let story_told = {
        let cluster = Arc::clone(&cluster);
        let story = story.clone();
        tokio::spawn(async move { story.tell(&cluster).await })
    };
    let reached = tokio::time::timeout(story.length(), point.reached.notified()).await.is_ok();
    let killed = matches!(fault, Fault::Before(_) | Fault::After(_));
    assert_eq!(reached, killed, "{fault:?} is not a point of the story");
    let requests = point.requests.load(Ordering::Relaxed);
    if killed {
        // Dropped tasks run no further: nothing is sent, and no answer is read.
        drop(app.take());
        sleep(DOWN).await;
        app = Some(start(&cluster, &Wire::new(&cluster), plugin).await);
    }
    story_told.await.unwrap();
    if matches!(fault, Fault::Dropped(_)) {
        cluster.faults().heal();
        cluster.faults().next_watch_gone();
        cluster.faults().disconnect_watches();
    }
    sleep(story.rest()).await;
    let app = app.unwrap();
    let rest = embedded::at_rest(&cluster, &app).await;
    assert!(rest.is_ok(), "{fault:?}: {rest:?}");
    app.shutdown().await;
    let (last, pods) = cluster.list("pods");
    let events = u32::try_from(last - first).unwrap() + u32::try_from(before.len()).unwrap();
    End { pods: pods.iter().map(written).collect(), requests, events }
}

async fn start(cluster: &Cluster, wire: &Wire, plugin: &PluginSpec) -> App {
    let app = App::start_simulated(embedded::options(cluster, wire.client())).await.unwrap();
    app.load(plugin.clone()).await.unwrap();
    app
}

/// Returns a Pod's name and what plugins can write to it.
fn written(pod: &Value) -> (String, Value) {
    let metadata = &pod["metadata"];
    let condition = |condition: &Value| {
        let texts = ["type", "status", "reason", "message"].map(|field| condition[field].clone());
        Value::from(texts.to_vec())
    };
    let conditions: Vec<_> = pod["status"]["conditions"].as_array().into_iter().flatten().map(condition).collect();
    let state = json!({
        "labels": metadata["labels"],
        "annotations": metadata["annotations"],
        "finalizers": metadata["finalizers"],
        "terminating": metadata["deletionTimestamp"].is_string(),
        "conditions": conditions,
    });
    (metadata["name"].as_str().unwrap_or_default().to_owned(), state)
}

/// Simulates the plugin's story with every fault.
fn same_end(name: &str, story: &Story) {
    let plugin = plugins::configured(&story.configuration(&plugins::sample_yaml(name).unwrap())).unwrap();
    let end = |fault| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(simulate(&plugin, story, fault))
    };
    let expected = end(Fault::None);
    story.check(&expected.pods);
    let kills = (0..expected.requests).flat_map(|at| [Fault::Before(at), Fault::After(at)]);
    let views = (0..expected.events).flat_map(|at| [Fault::Late(at), Fault::Dropped(at)]);
    let faults: Vec<_> = kills.chain(views).collect();
    println!("{name}: {} requests, {} events, {} faults", expected.requests, expected.events, faults.len());
    for fault in faults {
        assert_eq!(end(fault).pods, expected.pods, "{name} after {fault:?}");
    }
}

#[test]
fn crashloop_triage_has_one_end_whatever_fails() {
    same_end("crashloop-triage", &stories::triage());
}

#[test]
fn image_policy_has_one_end_whatever_fails() {
    same_end("image-policy", &stories::policy());
}

#[test]
fn pod_ttl_has_one_end_whatever_fails() {
    same_end("pod-ttl", &stories::ttl());
}

#[test]
fn spread_guard_has_one_end_whatever_fails() {
    same_end("spread-guard", &stories::spread());
}

#[test]
fn workload_label_has_one_end_whatever_fails() {
    same_end("workload-label", &stories::label());
}
