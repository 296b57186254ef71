//! The allocations of an event, a run and a write, beside those of before. Unlike times these counts are the same on
//! each machine, and in a build for tests.
//!
//! `tests/bench/allocations.json` has the counts. More than a tenth more fails, and so does more than a tenth less, so
//! that a gain is kept. `just allocations` writes those of them again; one that has grown has an empty
//! `because` then, which needs a text of the changelog that says what for.
//!
//! Its own suite, because it replaces the allocator of its process.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a panic is how a test fails")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    collections::BTreeMap,
    env, fs, io,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures::{
    StreamExt,
    channel::mpsc::{UnboundedReceiver, unbounded},
};
use http::{Request, Response};
use http_body_util::{Full, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use podium_api::{
    Api,
    watch::{Watch, WatchOptions},
};
use podium_bench::generate::{Action, Options, Population, PopulationKind};
use podium_encoding::Pool;
use podium_engine::{
    ports::{Deliver, Reconcile, Sender, Staged},
    queue::{Backoff, Next, Queue},
    wake::Wake,
};
use podium_pods::{
    cache,
    pod::{Observation, PodEvent},
    testing,
};
use podium_tests::{
    guests,
    sandbox::{self, FakeWorld},
};
use podium_vocabulary::{
    Action as WriteAction, Grants, KeyPattern, PodKey, Prune, Scope, WatchSpec, Write, authz::authorize,
};
use podium_wire::{Section, SectionSet};
use podium_writeback::Writeback;
use tokio::{runtime::Runtime, sync::mpsc};

struct Counting;

thread_local! {
    /// The allocations of this thread, `None` while they are not counted.
    static COUNT: Cell<Option<u64>> = const { Cell::new(None) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count() {
    // A thread that ends may allocate when its variables are gone.
    let _ = COUNT.try_with(|count| count.set(count.get().map(|allocations| allocations + 1)));
}

// SAFETY: every call is forwarded to the system's allocator with the same arguments; counting allocates nothing.
#[expect(unsafe_code, reason = "an allocator is unsafe to implement")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's guarantees are those that the callee requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from this allocator with this layout, and so from the system's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: the pointer came from this allocator with this layout, and so from the system's.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

/// The number of measured repetitions, after as many that are not.
const TIMES: u64 = 300;
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/allocations.json");
const CHANGELOG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../CHANGELOG.md");

/// Returns the allocations of this thread for each call of `once`, the first ones not counted.
async fn allocations(mut once: impl AsyncFnMut(u64) -> u64) -> f64 {
    let mut all = 0;
    for at in 0..2 * TIMES {
        let some = once(at).await;
        all += if at < TIMES { 0 } else { some };
    }
    all as f64 / TIMES as f64
}

/// Returns the allocations of this thread until the future is ready.
async fn counted(work: impl Future) -> u64 {
    COUNT.set(Some(0));
    work.await;
    COUNT.take().unwrap()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn line(action: &str, object: &str) -> Bytes {
    Bytes::from(format!("{{\"type\":\"{action}\",\"object\":{object}}}\n"))
}

/// Returns an API server that answers the first request with the list, and the next one with the chunks.
fn api(population: &Population, chunks: UnboundedReceiver<Bytes>) -> Api {
    let (list, listed) = unbounded();
    for at in 0..population.len() {
        list.unbounded_send(line("ADDED", &population.json(at))).unwrap();
    }
    let revision = population.revision();
    let end = r#""annotations":{"k8s.io/initial-events-end":"true"}"#;
    let end = format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"resourceVersion":"{revision}",{end}}}}}"#);
    list.unbounded_send(line("BOOKMARK", &end)).unwrap();
    let bodies = Mutex::new(vec![chunks, listed]);
    let service = tower::service_fn(move |_: Request<Body>| {
        let body = bodies.lock().unwrap().pop();
        async move {
            let body = body.expect("two requests").map(|bytes| Ok::<_, io::Error>(Frame::data(bytes)));
            Response::builder().body(StreamBody::new(body))
        }
    });
    Api::new(kube::Client::new(service, "default"), Duration::from_secs(5))
}

/// An event from the bytes of the response until the Pod is visible, and the key of one plugin taken and settled.
async fn event(kind: PopulationKind) -> f64 {
    const LONG: Duration = Duration::from_secs(3_600);
    let options = Options { kind, pods: 200, pods_per_workload: 20, ..Options::default() };
    let mut population = Population::generate(&options).unwrap();
    let (chunks, body) = unbounded::<Bytes>();
    let api = api(&population, body);
    let (mut writer, reader) = cache::new(1);
    let options = WatchOptions { watch_timeout: LONG, ..WatchOptions::default() };
    let watch = Watch::new(api, options, Arc::new(Pool::new(1)), Arc::new(reader.clone()), 1);
    let (observed, mut observations) = mpsc::channel(1);
    tokio::spawn(watch.run(observed));

    let watches = WatchSpec { sections: SectionSet::EMPTY.with(Section::Status), ..WatchSpec::default() };
    let plugin = podium_vocabulary::PluginSpec { watch: watches, ..testing::plugin(None, "plugin") };
    let wake = Wake::new([(1, &plugin)]);
    let queue: Queue<u32, (Arc<str>, Arc<str>), Arc<str>> = Queue::new(Backoff::default(), 4, 1);
    let mut is_live = false;
    let mut apply = |observation| match observation {
        Observation::Relisted { pods, revision } => drop(writer.relist(pods, revision).publish()),
        Observation::Live => is_live = true,
        Observation::Events(events) => {
            let changes = writer.apply(events).publish();
            let keys = changes.iter().filter_map(|change| Some((change, change.key()?)));
            let items = keys.flat_map(|(change, key)| {
                wake.concerned(change)
                    .pods
                    .into_iter()
                    .map(move |lane| (lane, (Arc::clone(&key.namespace), Arc::clone(&key.name)), Arc::clone(&key.uid)))
            });
            queue.add(items);
        }
        _ => {}
    };
    for _ in 0..2 {
        apply(observations.recv().await.unwrap());
    }
    let each = allocations(async |_| {
        let event = population.next_event().unwrap();
        let action = match event.action {
            Action::Added => "ADDED",
            Action::Modified => "MODIFIED",
            Action::Deleted => "DELETED",
        };
        chunks.unbounded_send(line(action, &population.json(event.at))).unwrap();
        counted(async {
            apply(observations.recv().await.unwrap());
            let job = queue.next().await.unwrap();
            queue.done(&job, Next::Settled);
        })
        .await
    });
    let each = each.await;
    assert!(is_live && reader.snapshot().len().abs_diff(population.len()) <= 1);
    each
}

/// A run in the sandbox, with what its environment of a test takes.
async fn run(guest: &str, reuse: u32) -> f64 {
    let mut spec = sandbox::spec("good");
    spec.limits.reuse = reuse;
    let plugin = sandbox::engine().compile(&spec, &guests::component(guest).unwrap()).unwrap();
    let request = sandbox::request();
    allocations(async |_| {
        let world = Box::new(FakeWorld::default());
        let request = request.clone();
        counted(async {
            let report = plugin.reconcile(request, world).await;
            assert!(report.result.is_ok(), "{:?}", report.result);
        })
        .await
    })
    .await
}

/// A label of one Pod: plan, request and answer, without a connection.
async fn write() -> f64 {
    const ANSWER: &str = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"cart-0",
        "namespace":"shop","uid":"u","resourceVersion":"7"}}"#;
    let service = tower::service_fn(async |_: Request<Body>| Response::builder().body(Full::from(ANSWER)));
    let api = Api::new(kube::Client::new(service, "default"), Duration::from_secs(5));
    let writeback = Writeback::new(&api, Prune::NOTHING);
    let (mut writer, reader) = cache::new(1);
    writer.apply(vec![PodEvent::applied(testing::cached(&testing::pod("cart-0", "u", 1, "web")))]).publish();
    let view = reader.snapshot();
    let target = PodKey::new("shop", "cart-0", "u");
    let mut grants = Grants::default();
    grants.write.labels = vec![KeyPattern("guests.example/*".to_owned())];
    let sender = Sender { manager: "podium/shop/hello".to_owned(), impersonate: None };
    allocations(async |at| {
        let key = "guests.example/seen".to_owned();
        let action = WriteAction::SetLabel { target: target.clone(), key, value: at.to_string() };
        let write = authorize(&Scope::Cluster, &grants, Write { id: 0, action }).unwrap();
        let staged = Staged { writes: vec![write], ..Staged::default() };
        counted(async {
            let sent = writeback.deliver(&sender, &target, &*view, staged, sandbox::NOW_MILLIS).await;
            assert_eq!(sent.requests, 1);
        })
        .await
    })
    .await
}

#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Cost {
    allocations: f64,
    /// Words of one line of the changelog that say what the last growth was for.
    because: String,
}

type Costs = BTreeMap<String, Cost>;

/// Returns the differences to the counts of before, and the reasons that the changelog lacks.
fn faults(now: &BTreeMap<&str, f64>, before: &Costs, changelog: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, now) in now {
        match before.get(*name) {
            None => faults.push(format!("{name}: {now} allocations, and none before")),
            Some(before) if *now > before.allocations * 1.1 => {
                faults.push(format!("{name}: {now} allocations instead of {}", before.allocations));
            }
            Some(before) if *now < before.allocations * 0.9 => {
                faults.push(format!("{name}: only {now} allocations instead of {}; keep that", before.allocations));
            }
            Some(before) if before.because.is_empty() || !changelog.contains(&before.because) => {
                faults.push(format!("{name}: the changelog does not have its `because`, {:?}", before.because));
            }
            Some(_) => {}
        }
    }
    faults
}

#[test]
fn an_event_a_run_and_a_write_allocate_as_often_as_before() {
    let runtime = runtime();
    let now = BTreeMap::from([
        ("event of a status", runtime.block_on(event(PopulationKind::Status))),
        ("event of churn", runtime.block_on(event(PopulationKind::Churn))),
        ("fresh run with a read and a label", runtime.block_on(run("good", 1))),
        ("reused run with a read and a label", runtime.block_on(run("good", 1_000_000))),
        ("write of a label", runtime.block_on(write())),
    ]);
    now.iter().for_each(|(name, allocations)| println!("{name}: {allocations} allocations"));
    let before: Costs = serde_json::from_str(&fs::read_to_string(FILE).unwrap_or("{}".to_owned())).unwrap();
    if env::var_os("PODIUM_RENEW_ALLOCATIONS").is_some() {
        let renewed: Costs =
            now.iter().map(|(name, now)| ((*name).to_owned(), renewed(*now, before.get(*name)))).collect();
        fs::write(FILE, serde_json::to_string_pretty(&renewed).unwrap() + "\n").unwrap();
        return;
    }
    let faults = faults(&now, &before, &fs::read_to_string(CHANGELOG).unwrap());
    assert!(faults.is_empty(), "renew the file with `just allocations`:\n{}", faults.join("\n"));
}

/// Returns the count of before while it holds, so that small steps add up.
fn renewed(now: f64, before: Option<&Cost>) -> Cost {
    let before = before.map_or((0.0, ""), |before| (before.allocations, &before.because));
    match now / before.0 {
        0.9..=1.1 => Cost { allocations: before.0, because: before.1.to_owned() },
        ..0.9 => Cost { allocations: now, because: before.1.to_owned() },
        _ => Cost { allocations: now, because: String::new() },
    }
}

#[test]
fn a_count_that_has_grown_needs_a_line_in_the_changelog() {
    let cost = |allocations| Cost { allocations, because: "a line".to_owned() };
    let before = Costs::from([("run".to_owned(), cost(100.0))]);
    let with = |now, before: &Costs, changelog| faults(&BTreeMap::from([("run", now)]), before, changelog).join(";");
    for now in [91.0, 109.0] {
        assert_eq!(with(now, &before, "has a line"), "");
    }
    assert_eq!(with(111.0, &before, "has a line"), "run: 111 allocations instead of 100");
    assert!(with(89.0, &before, "has a line").contains("only 89 allocations"));
    assert!(with(100.0, &before, "has none").contains("does not have its `because`"));
    assert!(with(100.0, &Costs::new(), "has a line").contains("none before"));
    assert_eq!(renewed(105.0, before.get("run")), cost(100.0));
    assert_eq!(renewed(50.0, before.get("run")), cost(50.0));
    let grown = Costs::from([("run".to_owned(), renewed(120.0, before.get("run")))]);
    assert!(with(120.0, &grown, "has a line").contains("does not have"), "{grown:?}");
}
