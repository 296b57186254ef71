//! Workers, queue and writeback against an API server that asks to wait, under paused time.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::Response;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use parking_lot::Mutex;
use podium_api::{Api, live::LivePods};
use podium_engine::{
    clock::Clock,
    dispatch::{Dispatch, Expectations, Lane},
    ports::{Outcome, Request, RunReport, Staged, Tasks, Usage},
    ports::{Reconcile, Sender, World},
    queue::{Backoff, Queue},
    status::PluginStatus,
};
use podium_pods::{
    cache,
    pod::{CachedPod, PodEvent, PodList, Record},
    testing,
};
use podium_vocabulary::{Action, Grants, KeyPattern, PluginSpec, Prune, Revision, Write, authz::authorize};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::service_fn;

use crate::Writeback;

const PODS: u64 = 2_000;
const WORKERS: usize = 8;
const SECOND: Duration = Duration::from_secs(1);

struct Refusal {
    code: u16,
    retry_after: u64,
    body: String,
}

/// The response of the API server's priority and fairness filter: not a Status, with a header that all of its
/// responses have.
fn fairness(seconds: u64) -> Refusal {
    Refusal { code: 429, retry_after: seconds, body: "Too many requests, please try again later.\n".into() }
}

fn unavailable(seconds: u64) -> Refusal {
    Refusal { code: 503, retry_after: seconds, body: "upstream is away".into() }
}

fn budget(seconds: u64) -> Refusal {
    let causes = json!([{ "reason": "DisruptionBudget", "message": "still being processed" }]);
    let details = json!({ "causes": causes, "retryAfterSeconds": seconds });
    let body = json!({ "kind": "Status", "code": 429, "reason": "TooManyRequests", "details": details });
    Refusal { code: 429, retry_after: seconds, body: body.to_string() }
}

/// The response for a budget whose count another client changes each time that the API server wants to decrement it.
fn contested(seconds: u64) -> Refusal {
    let message = "Timeout: couldn't update PodDisruptionBudget \"cart\" due to conflicts";
    let details = json!({ "retryAfterSeconds": seconds });
    let body = json!({ "kind": "Status", "code": 504, "reason": "Timeout", "message": message, "details": details });
    Refusal { code: 504, retry_after: seconds, body: body.to_string() }
}

struct Cluster {
    dispatch: Arc<Dispatch>,
    began: Instant,
    requests: Arc<Mutex<Vec<(Duration, String, u16)>>>,
    attempts: Arc<AtomicU32>,
    /// The value that plugins set.
    wave: Arc<AtomicU32>,
}

struct Plugin(Box<dyn Fn(&Request) -> Action + Send + Sync>, Arc<AtomicU32>);

fn grants() -> Grants {
    let mut grants = Grants::default();
    grants.write.labels = ["a", "b"].map(|key| KeyPattern(key.into())).into();
    grants.write.evict = true;
    grants
}

impl Reconcile for Plugin {
    fn reconcile(&self, request: Request, _: Box<dyn World>) -> BoxFuture<'_, RunReport<Staged>> {
        self.1.fetch_max(request.attempt, SeqCst);
        let write = Write { id: 0, action: (self.0)(&request) };
        let write = authorize(&podium_vocabulary::Scope::Cluster, &grants(), write).unwrap();
        let staged = Staged { writes: vec![write], ..Staged::default() };
        let report = RunReport { result: Ok(Outcome::Settled), staged, usage: Usage::default() };
        Box::pin(async { report })
    }
}

/// Runs deliveries on the test's runtime.
struct Spawned;

impl Tasks for Spawned {
    fn start(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}

fn name(index: u64) -> String {
    format!("cart-{index:04}")
}

/// A cluster of [`PODS`] Pods with workers. `rule` returns the server's error by time, account and path.
fn cluster(rule: impl Fn(Duration, &str, &str) -> Option<Refusal> + Send + Sync + 'static) -> Cluster {
    let began = Instant::now();
    let requests = Arc::<Mutex<Vec<_>>>::default();
    let log = requests.clone();
    let rule = Arc::new(rule);
    let revision = Arc::new(AtomicU64::new(9));
    let pods: Arc<Mutex<BTreeMap<String, Value>>> = Arc::default();
    let (mut writer, reader) = cache::new(7);
    let listed = (0..PODS).map(|index| {
        let mut pod = podium_wire::Pod::default();
        pod.header.namespace = "shop".into();
        pod.header.name = name(index);
        pod.header.uid = format!("u-{}", name(index));
        pod.header.resource_version = "5".into();
        Record::from(Arc::new(CachedPod::new(&pod).unwrap()))
    });
    writer.relist(listed.collect::<PodList>(), Revision(5)).publish();
    let watch = Arc::new(Mutex::new(writer));
    let expectations = Arc::<Expectations>::default();
    let seen = expectations.clone();
    let service = service_fn(move |request: http::Request<Body>| {
        let log = log.clone();
        let rule = rule.clone();
        let revision = revision.clone();
        let pods = pods.clone();
        let watch = watch.clone();
        let seen = seen.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(2)).await;
            let (parts, body) = request.into_parts();
            let body: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap_or_default();
            let account = parts.headers.get("impersonate-user").map_or("", |user| user.to_str().unwrap()).to_owned();
            let path = parts.uri.path().to_owned();
            let refusal = rule(began.elapsed(), &account, &path);
            log.lock().push((began.elapsed(), account, refusal.as_ref().map_or(200, |refusal| refusal.code)));
            let response = Response::builder().header("x-kubernetes-pf-prioritylevel-uid", "u");
            if let Some(Refusal { code, retry_after, body }) = refusal {
                let response = response.status(code).header("retry-after", retry_after);
                return response.body(Full::new(Bytes::from(body)));
            }
            let name = path.rsplit('/').next().unwrap().to_owned();
            let fresh = json!({ "namespace": "shop", "name": name, "uid": format!("u-{name}"), "labels": {},
                "resourceVersion": "5" });
            let mut pods = pods.lock();
            let metadata = pods.entry(name).or_insert(fresh);
            for (key, value) in body["metadata"]["labels"].as_object().into_iter().flatten() {
                metadata["labels"][key] = value.clone();
                metadata["resourceVersion"] = revision.fetch_add(1, SeqCst).to_string().into();
            }
            let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}, "status": {} });
            let pod = pod.to_string();
            let event = Arc::new(CachedPod::unshared(pod.as_bytes(), &Prune::NOTHING).unwrap());
            let at = event.revision;
            watch.lock().apply(vec![PodEvent::applied(event)]).publish();
            seen.seen.up_to(at);
            response.body(Full::new(Bytes::from(pod)))
        }
    });
    let api = Api::new(kube::Client::new(service, "default"), Duration::from_secs(5)).with_backpressure();
    let dispatch = Arc::new(Dispatch {
        queue: Arc::new(Queue::new(Backoff::default(), WORKERS / 2, 1)),
        registry: Arc::default(),
        expectations,
        reader,
        deliver: Arc::new(Writeback::new(&api, Prune::NOTHING)),
        live: Arc::new(LivePods::new(api, Prune::NOTHING)),
        tasks: Arc::new(Spawned),
        clock: Clock::starting_at(1_000),
        seed: 1,
        traces: None,
    });
    for _ in 0..WORKERS {
        tokio::spawn(dispatch.clone().work());
    }
    Cluster { dispatch, began, requests, attempts: Arc::default(), wave: Arc::new(AtomicU32::new(1)) }
}

impl Cluster {
    fn load(&self, name: &str, account: &str, act: impl Fn(&Request) -> Action + Send + Sync + 'static) -> Lane {
        let spec = PluginSpec { impersonate: Some(account.into()), grants: grants(), ..testing::plugin(None, name) };
        let sender = Sender { manager: format!("podium/{account}"), impersonate: Some(account.into()) };
        let plugin = Arc::new(Plugin(Box::new(act), self.attempts.clone()));
        self.dispatch.registry.put(spec, plugin, sender, Arc::new(PluginStatus::default()), None, None)
    }

    /// A plugin that sets the label named for its account to the number of the wave.
    fn labels(&self, account: &'static str) -> Lane {
        let wave = self.wave.clone();
        self.load(&format!("labels-{account}"), account, move |request| {
            let value = wave.load(SeqCst).to_string();
            Action::SetLabel { target: request.key.clone(), key: account.into(), value }
        })
    }

    fn add(&self, lane: Lane, pods: std::ops::Range<u64>) {
        let items = pods.map(|index| {
            let name = name(index);
            (lane, ("shop".into(), (*name).into()), format!("u-{name}").into())
        });
        self.dispatch.queue.add(items);
    }

    async fn at(&self, second: u64) {
        tokio::time::sleep_until(self.began + Duration::from_secs(second)).await;
    }

    fn requests(&self, account: Option<&str>, from: u64, to: u64) -> usize {
        let within = Duration::from_secs(from)..Duration::from_secs(to);
        let counts =
            |(at, of, _): &&(Duration, String, u16)| within.contains(at) && account.is_none_or(|account| account == of);
        self.requests.lock().iter().filter(counts).count()
    }

    fn labelled(&self, key: &str, value: &str) -> usize {
        let has = |pod: &Arc<CachedPod>| pod.labels().unwrap().get(key).is_some_and(|held| held == value);
        self.dispatch.reader.snapshot().iter().filter(has).count()
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_api_server_gets_one_probe_a_second() {
    let cluster = cluster(|at, account, _| match (at.as_secs(), account) {
        (0..25, "a") => Some(fairness(10)),
        (25..45, _) => Some(unavailable(5)),
        _ => None,
    });
    let a = cluster.labels("a");
    let b = cluster.labels("b");
    cluster.add(a, 0..PODS);
    cluster.at(12).await;
    cluster.add(b, 0..PODS);
    cluster.at(15).await;
    assert_eq!((cluster.labelled("a", "1"), cluster.labelled("b", "1")), (0, PODS as usize), "the other account");
    cluster.at(26).await;
    cluster.wave.store(2, SeqCst);
    cluster.add(b, 0..PODS);
    cluster.at(50).await;
    assert_eq!((cluster.labelled("a", "2"), cluster.labelled("b", "2")), (PODS as usize, PODS as usize));
    assert!(cluster.requests(Some("a"), 0, 1) <= WORKERS / 2, "only requests that were in flight");
    assert!((1..=24).contains(&cluster.requests(Some("a"), 1, 25)), "{}", cluster.requests(Some("a"), 1, 25));
    assert!(cluster.requests(None, 26, 27) <= WORKERS, "only requests that were in flight");
    assert!((1..=18).contains(&cluster.requests(None, 27, 45)), "{}", cluster.requests(None, 27, 45));
    // After a lost response one live read determines the expectation of the next run.
    let writes = 2 * PODS as usize;
    let reads = 2 * WORKERS;
    assert!((writes..=writes + reads).contains(&cluster.requests(None, 45, 50)));
    assert!(cluster.attempts.load(SeqCst) > 1);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_with_refused_evictions_delays_only_its_own_keys() {
    evictions(budget).await;
    evictions(contested).await;
}

async fn evictions(refused: fn(u64) -> Refusal) {
    let cluster = cluster(move |_, _, path| path.ends_with("/eviction").then(|| refused(10)));
    let evict = |request: &Request| Action::EvictPod { target: request.key.clone() };
    let a = cluster.load("evict", "a", evict);
    let b = cluster.labels("b");
    cluster.add(a, 0..100);
    cluster.at(5).await;
    cluster.add(b, 0..PODS);
    cluster.at(8).await;
    assert_eq!(cluster.labelled("b", "1"), PODS as usize);
    cluster.at(35).await;
    // Each key by itself: at 0, 10, 20 and 30 s.
    assert_eq!(cluster.requests(Some("a"), 0, 35), 400);
    // Evictions that have to wait do not hold other requests of the same account.
    let of_a = cluster.labels("a");
    cluster.add(of_a, 100..200);
    cluster.at(36).await;
    assert_eq!(cluster.labelled("a", "1"), 100);
    assert_eq!(cluster.began.elapsed(), 36 * SECOND);
}
