//! Claims about loads and unloads that meet, over an ingest loop at work and without WebAssembly.

mod absent;
mod hangs;
mod inputs;
mod versions;

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};

use futures::future::BoxFuture;
use podium_api::Api;
use podium_config::Problem;
use podium_engine::{
    clock::Clock,
    dispatch::{Expectations, PodQueue, Registry},
    fixtures::Nowhere,
    ingest::{GonePods, Ingest, IngestOptions},
    ports::{Blocking, Failure, FailureKind, Outcome, Reconcile, Request, RunReport, Staged, Usage, World},
    queue::{Backoff, MemoryBudget, Queue},
};
use podium_life::{Object, Parts, Tried};
use podium_pods::{
    cache,
    pod::{CachedPod, Observation, PodEvent, PodView},
    testing,
};
use podium_runtime::{Engine, EngineOptions};
use podium_vocabulary::{Limits, Revision, Source as Place};
use serde_json::json;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};

use super::{
    super::{blocking::BlockingJobs, inputs::InputStates},
    *,
};
use crate::{
    config::Policy,
    images::Store,
    objects::{FetchFailure, Step},
};

pub(in crate::app) struct Idle;

impl Reconcile for Idle {
    fn reconcile(&self, _: Request, _: Box<dyn World>) -> BoxFuture<'_, RunReport<Staged>> {
        let settled = RunReport { result: Ok(Outcome::Settled), staged: Staged::default(), usage: Usage::default() };
        Box::pin(std::future::ready(settled))
    }
}

pub(in crate::app) fn spec() -> PluginSpec {
    PluginSpec { source: Place::File("/nowhere/tidy.wasm".into()), ..testing::plugin(Some("shop"), "tidy") }
}

/// Has a plugin's component be this code from now on.
pub(in crate::app) fn give(driver: &Driver, id: &PluginId, reconcile: impl Reconcile + 'static) {
    give_as(driver, id, "", reconcile);
}

/// As [`give`], with the SHA-256 of the component.
pub(in crate::app) fn give_as(driver: &Driver, id: &PluginId, sha256: &str, reconcile: impl Reconcile + 'static) {
    let component = Arc::new(Component { sha256: sha256.to_owned(), ..Component::default() });
    let code = Code { reconcile: Arc::new(reconcile), component };
    driver.components.given.lock().insert(id.clone(), Some(code));
}

/// Has the components of plugins be missing again.
pub(in crate::app) fn take(driver: &Driver) {
    driver.components.given.lock().clear();
}

/// Loads a plugin that does nothing, after which its component is missing again.
pub(in crate::app) async fn load(driver: &Arc<Driver>, spec: PluginSpec) {
    give(driver, &spec.id, Idle);
    let prepared = driver.prepare(spec).await.unwrap();
    driver.install(prepared).await;
    take(driver);
}

/// A driver beside an ingest loop that has listed one Pod. The sender keeps the loop alive.
pub(in crate::app) async fn driver() -> (Arc<Driver>, mpsc::Sender<Observation>) {
    driver_with(Rules::default()).await
}

async fn driver_with(rules: Rules) -> (Arc<Driver>, mpsc::Sender<Observation>) {
    driver_on(rules, None).await
}

/// A driver whose components and records are in a state directory.
pub(in crate::app) async fn driver_on(rules: Rules, state: Option<&Path>) -> (Arc<Driver>, mpsc::Sender<Observation>) {
    let disk = |state| Disk::new(Store::open(state).unwrap(), Arc::new(BlockingJobs::new(None)));
    driver_beside(rules, state.map(disk)).await
}

pub(in crate::app) async fn driver_beside(
    rules: Rules,
    store: Option<Disk>,
) -> (Arc<Driver>, mpsc::Sender<Observation>) {
    driver_until(rules, store, None, std::future::pending()).await
}

/// A driver whose ingest loop hangs when a future has ended.
async fn driver_until(
    rules: Rules,
    store: Option<Disk>,
    journal: Option<Arc<Journal>>,
    hangs: impl Future<Output = ()> + Send + 'static,
) -> (Arc<Driver>, mpsc::Sender<Observation>) {
    let (writer, reader) = cache::new(7);
    let (observe, observations) = mpsc::channel(1);
    let registry = Arc::new(Registry::default());
    let budget = MemoryBudget::new(128 << 20);
    let queue: Arc<PodQueue> = Arc::new(Queue::new(Backoff::default(), 1, 1).within(budget, registry.clone()));
    let expectations = Arc::new(Expectations::default());
    let options = IngestOptions {
        observations,
        registry: registry.clone(),
        queue: queue.clone(),
        expectations: expectations.clone(),
        reopened: None,
        gone: Arc::new(GonePods::new(|_| 0)),
        blocking: Arc::new(BlockingJobs::new(None)),
    };
    let (ingest, handle) = Ingest::new((writer, reader.clone()), options);
    tokio::spawn(async move {
        let run = std::pin::pin!(ingest.run());
        let _ingest = futures::future::select(run, std::pin::pin!(hangs)).await;
        std::future::pending::<()>().await;
    });
    let mut pod = podium_wire::Pod::default();
    pod.header.namespace = "shop".into();
    pod.header.name = "cart-0".into();
    pod.header.uid = "u1".into();
    pod.header.resource_version = "5".into();
    let pods = [Arc::new(CachedPod::new(&pod).unwrap()).into()].into_iter().collect();
    observe.send(Observation::Relisted { pods, revision: Revision(5) }).await.unwrap();
    let mut listed = reader.clone();
    listed.wait_for(|snapshot| snapshot.by_uid("u1").is_some()).await.unwrap();
    let dispatch = Arc::new(Dispatch {
        queue,
        registry,
        expectations,
        reader,
        deliver: Arc::new(Nowhere),
        live: Arc::new(Nowhere),
        tasks: super::super::deliveries::Deliveries::default().tasks(),
        clock: Clock::starting_at(0),
        seed: 1,
        traces: None,
    });
    // Components are in files, or in the ConfigMap of the test.
    let service = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
        if request.uri().path().ends_with("/slow") {
            sleep(Duration::from_secs(3)).await;
        }
        if request.uri().path().ends_with("/hangs") {
            std::future::pending::<()>().await;
        }
        let body = match *request.method() {
            // The host's finalizer is added.
            http::Method::PATCH => "{}".to_owned(),
            _ => config_map(request.uri().path()).unwrap_or_default(),
        };
        let code = if body.is_empty() { 404 } else { 200 };
        http::Response::builder().status(code).body(http_body_util::Full::new(bytes::Bytes::from(body)))
    });
    let api = Api::new(kube::Client::new(service, "default"), Duration::from_secs(5));
    let engine = Engine::new(EngineOptions { tick: None, concurrent_runs: 1, ..EngineOptions::default() }).unwrap();
    let given = <_>::default();
    let holds = Holds::default();
    let files = Files::new();
    let runners = Runners::new(None);
    let inputs = Arc::new(InputStates::new(api.clone()));
    let components = Components { engine, inputs, api, store, simulated: false, files, holds, runners, given };
    let driver = Driver::new(dispatch, Arc::default(), handle, journal, rules, components);
    tokio::spawn(driver.clone().run());
    (driver, observe)
}

fn policy(file: &Path) -> Rules {
    Rules { policy: Some(Policy::read(file).unwrap()), ..Rules::default() }
}

/// How many keys wait for the plugin.
fn depth(driver: &Driver) -> usize {
    let loaded = driver.dispatch.registry.all();
    loaded.iter().map(|loaded| driver.dispatch.queue.depth(loaded.lane)).sum()
}

fn states(driver: &Driver) -> Vec<LoadState> {
    driver.plugins().into_iter().map(|plugin| plugin.load).collect()
}

/// Why a plugin is not prepared.
async fn failure_of(driver: &Arc<Driver>, spec: PluginSpec) -> Arc<LoadFailure> {
    driver.prepare(spec).await.err().unwrap()
}

async fn turns() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

async fn seconds(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_plugin_loaded_during_the_unload_of_its_predecessor_runs_on_all_pods() {
    let (driver, _observe) = driver().await;
    load(&driver, spec()).await;
    assert_eq!(depth(&driver), 1);
    // The unload waits for the ingest loop when the load begins.
    let id = spec().id;
    let (there_was_one, ()) = tokio::join!(driver.unload(&id), load(&driver, spec()));
    turns().await;
    assert!(there_was_one);
    assert_eq!((depth(&driver), states(&driver)), (1, vec![LoadState::Loaded]));
}

#[tokio::test(start_paused = true)]
async fn a_standby_compiles_and_queues_nothing_until_it_holds_the_lease() {
    let (driver, _observe) = driver().await;
    driver.feed(Event::Owned(Shards::NONE));
    load(&driver, spec()).await;
    assert_eq!(states(&driver), [LoadState::Standby], "the start does not wait for the Lease");
    // The component is missing from here on, also when the policy is replaced.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("policy.yaml");
    std::fs::write(&file, "apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec: {}\n").unwrap();
    for _ in 0..2 {
        driver.set_policy(Policy::read(&file).unwrap(), None);
        turns().await;
        assert_eq!(states(&driver), [LoadState::Standby]);
        seconds(600).await;
        assert!(driver.dispatch.registry.all().is_empty());
        driver.feed(Event::Owned(Shards::ALL));
        turns().await;
        assert_eq!((depth(&driver), states(&driver)), (1, vec![LoadState::Loaded]), "at once");
        driver.feed(Event::Owned(Shards::NONE));
        assert!(driver.dispatch.registry.all().is_empty(), "in the same step");
        turns().await;
        assert_eq!(states(&driver), [LoadState::Standby]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_failed_on_a_standby_is_tried_again_at_the_taking() {
    let (driver, _observe) = driver().await;
    driver.feed(Event::Owned(Shards::NONE));
    assert!(failure_of(&driver, spec()).await.is_passing());
    seconds(3_600).await;
    give(&driver, &spec().id, Idle);
    driver.feed(Event::Owned(Shards::ALL));
    turns().await;
    assert_eq!((depth(&driver), states(&driver)), (1, vec![LoadState::Loaded]), "without the rest of its back-off");
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_is_unloaded_during_its_first_attempt_does_not_come_back() {
    let (driver, _observe) = driver().await;
    give(&driver, &spec().id, Idle);
    let number = driver.begin(spec(), Source::File(true));
    assert_eq!(states(&driver), [LoadState::Loading]);
    assert!(driver.unload(&spec().id).await);
    turns().await;
    assert!(driver.result(&spec().id, number).await.is_err());
    assert!(states(&driver).is_empty() && driver.dispatch.registry.all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_fails_after_another_load_succeeded_changes_nothing() {
    let (driver, _observe) = driver().await;
    // It does not permit the version that is loaded meanwhile.
    let other = PluginSpec { impersonate: Some("system:serviceaccount:shop:tidy".into()), ..spec() };
    let number = driver.begin(other, Source::File(true));
    load(&driver, spec()).await;
    seconds(600).await;
    assert!(driver.result(&spec().id, number).await.is_err(), "there is no such file");
    assert_eq!((depth(&driver), states(&driver)), (1, vec![LoadState::Loaded]));
}

#[test]
fn attempts_are_further_apart_each_time_and_never_more_than_five_minutes() {
    let failure = |retry_after: Option<u64>| {
        let reason = "Busy";
        let message = String::new();
        let retry_after = retry_after.map(Duration::from_secs);
        let failure = FetchFailure { step: Step::Fetched, reason, message, passing: true, retry_after };
        Arc::new(LoadFailure::Unfetched(failure))
    };
    let seconds = |failures| Host::retry(&failure(None), failures).unwrap().as_secs();
    assert_eq!([1, 2, 3, 9, 10, 40].map(seconds), [1, 2, 4, 256, 300, 300]);
    assert_eq!(Host::retry(&failure(Some(90)), 1), Some(Duration::from_secs(90)), "a registry asked for it");
    assert_eq!(Host::retry(&Arc::new(LoadFailure::WithoutAccount), 1), None);
}

#[tokio::test(start_paused = true)]
async fn the_policy_refuses_a_plugin_before_its_component_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("policy.yaml");
    let yaml = "apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec:\n  defaults: { limits: { writes: 19 } }\n";
    std::fs::write(&file, yaml).unwrap();
    let (driver, _observe) = driver_with(policy(&file)).await;
    let Err(failure) = driver.prepare(spec()).await else { unreachable!("it is prepared") };
    assert!(matches!(*failure, LoadFailure::Forbidden(_)) && !failure.is_passing(), "{failure}");
    let reason = failure.to_string();
    let begin =
        "the policy does not permit it: spec.limits.writes is 20, and plugins of namespace shop may have at most 19";
    assert!(reason.starts_with(begin) && reason.contains("policy.yaml: spec.defaults.limits.writes"), "{reason}");
    assert_eq!(states(&driver), [LoadState::Refused { reason }]);

    // A permitted plugin's component is read, and does not exist.
    let modest = PluginSpec { limits: Limits { writes: 19, ..Limits::default() }, ..spec() };
    assert!(matches!(*failure_of(&driver, modest).await, LoadFailure::Unreadable { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_file_on_a_disk_that_hangs_is_read_again_later() {
    let (driver, _observe) = driver().await;
    let hang = driver.components.files.all.clone().acquire_many_owned(16).await.unwrap();
    let failure = failure_of(&driver, spec()).await;
    assert!(failure.is_passing() && failure.to_string().contains("timed out"), "{failure}");
    drop(hang);
    sleep(Duration::from_secs(5)).await;
    let [LoadState::Waiting { reason, .. }] = &states(&driver)[..] else { unreachable!("it does not exist") };
    assert!(reason.contains("No such file"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_plugin_with_more_memory_than_its_tenants_is_refused_unread() {
    let (driver, _observe) = driver().await;
    let with = |mib: usize| PluginSpec { limits: Limits { memory_bytes: mib << 20, ..Limits::default() }, ..spec() };
    let Err(failure) = driver.prepare(with(65)).await else { unreachable!("it is prepared") };
    assert!(matches!(*failure, LoadFailure::OverMemory { .. }) && !failure.is_passing(), "{failure}");
    let reason = failure.to_string();
    assert!(reason.starts_with("spec.limits.memoryMiB is 65, and") && reason.contains(" 64 MiB together"), "{reason}");
    assert!(reason.ends_with("--run-memory-mib to at least 130"), "{reason}");
    assert_eq!(states(&driver), [LoadState::Refused { reason }]);
    assert!(matches!(*failure_of(&driver, with(64)).await, LoadFailure::Unreadable { .. }), "it is looked for");
}

#[tokio::test(start_paused = true)]
async fn a_plugin_without_an_account_is_refused_where_one_is_required() {
    let (driver, _observe) = driver_with(Rules { require_service_account: true, ..Rules::default() }).await;
    let Err(failure) = driver.prepare(spec()).await else { unreachable!("it is prepared") };
    assert!(matches!(*failure, LoadFailure::WithoutAccount) && !failure.is_passing(), "{failure}");
    let reason = failure.to_string();
    assert!(reason.starts_with("spec.serviceAccountName is missing, and --require-service-account"), "{reason}");
    assert_eq!(states(&driver), [LoadState::Refused { reason }]);
    let suspended = PluginSpec { suspend: true, ..spec() };
    assert!(matches!(*failure_of(&driver, suspended).await, LoadFailure::WithoutAccount));
    let with = PluginSpec { impersonate: Some("system:serviceaccount:shop:tidy".into()), ..spec() };
    assert!(matches!(*failure_of(&driver, with).await, LoadFailure::Unreadable { .. }), "its component is looked for");
}

#[tokio::test(start_paused = true)]
async fn a_suspended_plugin_is_taken_out_and_has_no_keys_until_it_is_resumed() {
    let (driver, observe) = driver().await;
    load(&driver, spec()).await;
    assert_eq!(depth(&driver), 1);
    // Its component is not there, and is not looked for.
    let suspended = PluginSpec { suspend: true, ..spec() };
    driver.install(driver.prepare(suspended.clone()).await.unwrap()).await;
    assert_eq!((depth(&driver), states(&driver)), (0, vec![LoadState::Suspended]));
    assert!(driver.plugins().iter().all(|plugin| !plugin.runs) && driver.dispatch.registry.all().is_empty());

    let mut pod = podium_wire::Pod::default();
    pod.header.namespace = "shop".into();
    pod.header.name = "cart-1".into();
    pod.header.uid = "u2".into();
    pod.header.resource_version = "6".into();
    observe.send(Observation::Events(vec![PodEvent::applied(Arc::new(CachedPod::new(&pod).unwrap()))])).await.unwrap();
    turns().await;
    assert_eq!(depth(&driver), 0, "an event queues no key");

    load(&driver, spec()).await;
    turns().await;
    assert_eq!((depth(&driver), states(&driver)), (2, vec![LoadState::Loaded]), "also the Pod that came meanwhile");

    driver.install(driver.prepare(suspended).await.unwrap()).await;
    assert!(driver.unload(&spec().id).await, "a suspended plugin is configured");
    assert!(!driver.unload(&spec().id).await && states(&driver).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_refused_configuration_that_suspends_stops_the_version() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("policy.yaml");
    let yaml = "apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec:\n  defaults: { limits: { writes: 19 } }\n";
    std::fs::write(&file, yaml).unwrap();
    let (driver, _observe) = driver_with(policy(&file)).await;
    load(&driver, PluginSpec { limits: Limits { writes: 19, ..Limits::default() }, ..spec() }).await;
    assert!(driver.prepare(PluginSpec { suspend: true, ..spec() }).await.is_err());
    assert!(driver.dispatch.registry.all().is_empty());
}

/// The version that is loaded, and whether its runs were ended.
fn is_revoked(driver: &Driver) -> Vec<bool> {
    driver.dispatch.registry.all().iter().map(|loaded| loaded.is_revoked()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_narrower_configuration_ends_runs_before_its_component_is_read() {
    let (driver, _observe) = driver().await;
    let mut wide = spec();
    wide.grants.write.delete = true;
    load(&driver, wide.clone()).await;
    wide.grants.write.evict = true;
    driver.begin(wide, Source::File(true));
    assert_eq!(is_revoked(&driver), [false], "everything that it may do is still permitted");
    assert!(driver.plugins()[0].runs);
    driver.begin(spec(), Source::File(true));
    assert_eq!(is_revoked(&driver), [true]);
    assert!(!driver.plugins()[0].runs, "the version that is loaded does not run any more");
    assert_eq!(depth(&driver), 1, "its keys wait for the next version");
    seconds(1).await;
    assert!(driver.dispatch.registry.all().is_empty(), "no version that runs is permitted, and there is no such file");
}

#[tokio::test(start_paused = true)]
async fn a_version_that_was_stopped_never_runs_again() {
    let (driver, _observe) = driver().await;
    let mut wide = spec();
    wide.grants.write.delete = true;
    load(&driver, wide.clone()).await;
    driver.feed(Event::Restricted(Arc::new(spec())));
    assert_eq!(is_revoked(&driver), [true]);
    assert!(driver.prepare(wide).await.is_err(), "there is no such file");
    assert!(driver.dispatch.registry.all().is_empty());
}

/// The ConfigMap that the API server of these tests has.
fn config_map(path: &str) -> Option<String> {
    (path == "/api/v1/namespaces/shop/configmaps/tidy").then(|| r#"{"data":{"plugin.wasm":"abc"}}"#.to_owned())
}

/// The SHA-256 of the ConfigMap's value.
const DIGEST: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn in_config_map(name: &str, sha256: &str) -> PluginSpec {
    let [namespace, name, key, sha256] = ["shop", name, "plugin.wasm", sha256].map(str::to_owned);
    PluginSpec { source: Place::ConfigMap { namespace, name, key, sha256 }, ..spec() }
}

#[tokio::test(start_paused = true)]
async fn a_component_of_a_config_map_is_read_and_one_of_another_digest_is_not() {
    let (driver, _observe) = driver().await;
    let attempt = async |spec: PluginSpec| match driver.prepare(spec).await {
        Ok(_) => unreachable!("no ConfigMap has a component"),
        Err(failure) => (failure.step().1, failure.is_passing()),
    };
    assert_eq!(attempt(in_config_map("tidy", DIGEST)).await, ("InvalidComponent", false), "its bytes are inspected");
    assert_eq!(attempt(in_config_map("tidy", &"0".repeat(64))).await, ("DigestMismatch", true));
    assert_eq!(attempt(in_config_map("missing", DIGEST)).await, ("ConfigMapNotFound", true));
}

#[tokio::test(start_paused = true)]
async fn a_load_that_was_superseded_changes_nothing() {
    let (driver, _observe) = driver().await;
    give(&driver, &spec().id, Idle);
    let suspended = PluginSpec { suspend: true, ..spec() };
    let earlier = driver.prepare(suspended.clone()).await.unwrap();
    load(&driver, spec()).await;
    // It would succeed, and take the plugin out.
    driver.install(earlier).await;
    assert_eq!((depth(&driver), states(&driver)), (1, vec![LoadState::Loaded]));
    driver.begin(suspended, Source::File(true));
    assert_eq!(states(&driver), [LoadState::Suspended]);
}

#[tokio::test(start_paused = true)]
async fn a_configuration_with_mistakes_keeps_only_a_permitted_version() {
    let (driver, _observe) = driver().await;
    let refuse = |permissions: Option<PluginSpec>| {
        let problem = Problem { line: None, field: "spec.watch".into(), message: "must be a mapping".into() };
        let failure = Arc::new(LoadFailure::Mistaken(vec![problem]));
        let want = Want::Mistaken { failure, permissions: permissions.map(Arc::new) };
        driver.feed(Event::Seen(spec().id, Source::File(true), want));
    };
    load(&driver, spec()).await;
    refuse(Some(spec()));
    let reason = "spec.watch must be a mapping".to_owned();
    assert_eq!((depth(&driver), states(&driver)), (1, vec![LoadState::Refused { reason }]));
    assert!(driver.plugins()[0].runs, "it goes on");

    refuse(None);
    assert!(driver.dispatch.registry.all().is_empty(), "nothing is known to be permitted");
    load(&driver, spec()).await;
    refuse(Some(PluginSpec { impersonate: Some("system:serviceaccount:shop:tidy".into()), ..spec() }));
    assert!(driver.dispatch.registry.all().is_empty(), "it may do less");
}

#[tokio::test(start_paused = true)]
async fn loads_that_were_superseded_while_they_waited_are_not_fetched() {
    let (driver, _observe) = driver().await;
    let began = Instant::now();
    for at in 0..100 {
        let namespace = "shop".into();
        let name = "slow".into();
        let key = "a".into();
        let source = Place::ConfigMap { namespace, name, key, sha256: "0".repeat(64) };
        driver.begin(PluginSpec { source, config: format!("{{\"at\":{at}}}").into(), ..spec() }, Source::File(true));
    }
    while !matches!(driver.plugins()[0].load, LoadState::Waiting { .. }) {
        sleep(Duration::from_millis(100)).await;
    }
    // The API server answers for a ConfigMap after 3 s: for the first loads, and for the last.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}
