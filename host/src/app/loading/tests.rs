//! Claims about loads and unloads that meet, over an ingest loop at work and without WebAssembly.

use std::{path::Path, time::Duration};

use futures::future::BoxFuture;
use podium_engine::{
    clock::Clock,
    dispatch::{Expectations, PodQueue, Registry},
    fixtures::Nowhere,
    ingest::{Ingest, IngestOptions},
    ports::{Outcome, Request, RunReport, Staged, Usage, World},
    queue::{Backoff, MemoryBudget, Queue},
};
use podium_pods::{
    cache,
    pod::{CachedPod, Observation, PodEvent, PodView},
    testing,
};
use podium_vocabulary::{Limits, Revision, Source, Tenant};
use tokio::{sync::mpsc, time::Instant};

use super::{super::blocking::BlockingJobs, retry::BACKOFF, *};
use crate::{images::Store, objects::FetchFailure, runtime::EngineOptions};

pub(in crate::app) struct Idle;

impl Reconcile for Idle {
    fn reconcile(&self, _: Request, _: Box<dyn World>) -> BoxFuture<'_, RunReport<Staged>> {
        let settled = RunReport { result: Ok(Outcome::Settled), staged: Staged::default(), usage: Usage::default() };
        Box::pin(std::future::ready(settled))
    }
}

pub(super) fn spec() -> PluginSpec {
    PluginSpec { source: Source::File("/nowhere/tidy.wasm".into()), ..testing::plugin(Some("shop"), "tidy") }
}

fn prepared() -> Prepared {
    loaded_as(spec(), Arc::new(Idle))
}

/// Returns a version that replaces another one without a probe.
pub(in crate::app) fn loaded_as(spec: PluginSpec, plugin: Arc<dyn Reconcile>) -> Prepared {
    Prepared { spec, number: 0, component: None, plugin: Some(plugin), swap: Swap::Direct }
}

/// A loader beside an ingest loop that has listed one Pod. The sender keeps the loop alive.
pub(in crate::app) async fn loader() -> (Arc<Loader>, mpsc::Sender<Observation>) {
    loader_with(Rules::default()).await
}

async fn loader_with(rules: Rules) -> (Arc<Loader>, mpsc::Sender<Observation>) {
    loader_on(rules, None).await
}

/// A loader whose components and records are in a state directory.
pub(in crate::app) async fn loader_on(rules: Rules, state: Option<&Path>) -> (Arc<Loader>, mpsc::Sender<Observation>) {
    let disk = |state| Disk::new(Store::open(state).unwrap(), Arc::new(BlockingJobs::new(None)));
    loader_beside(rules, state.map(disk)).await
}

pub(in crate::app) async fn loader_beside(
    rules: Rules,
    store: Option<Disk>,
) -> (Arc<Loader>, mpsc::Sender<Observation>) {
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
        blocking: Arc::new(BlockingJobs::new(None)),
    };
    let (ingest, handle) = Ingest::new((writer, reader.clone()), options);
    tokio::spawn(ingest.run());
    let mut pod = podium_wire::Pod::default();
    (pod.header.namespace, pod.header.name, pod.header.uid) = ("shop".into(), "cart-0".into(), "u1".into());
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
        write_through: Arc::new(handle.clone()),
        tasks: super::super::deliveries::Deliveries::default().tasks(),
        clock: Clock::starting_at(0),
        seed: 1,
    });
    // Components are in files, or in the ConfigMap of the test.
    let service = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
        if request.uri().path().ends_with("/slow") {
            tokio::time::sleep(Duration::from_secs(3)).await;
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
    (
        Arc::new(Loader::new(
            engine,
            dispatch,
            Arc::default(),
            handle,
            None,
            rules,
            Preparation { api, images: None, store, simulated: false },
        )),
        observe,
    )
}

fn policy(file: &Path) -> Rules {
    Rules { policy: Some(Policy::read(file).unwrap()), ..Rules::default() }
}

/// How many keys wait for the plugin.
fn depth(loader: &Loader) -> usize {
    let loaded = loader.dispatch.registry.all();
    loaded.iter().map(|loaded| loader.dispatch.queue.depth(loaded.lane)).sum()
}

fn states(loader: &Loader) -> Vec<LoadState> {
    loader.plugins().into_iter().map(|plugin| plugin.load).collect()
}

impl Loader {
    /// Keeps components from being read.
    async fn all_turns(&self) -> Vec<turns::Turn> {
        let tenants = (0..CONCURRENT_LOADS).map(|number| (Tenant::Namespace(format!("t{number}").into()), None));
        futures::future::join_all(tenants.map(|tenant| self.turns.take(tenant))).await
    }
}

async fn turns() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_plugin_loaded_during_the_unload_of_its_predecessor_runs_on_all_pods() {
    let (loader, _observe) = loader().await;
    loader.install(prepared()).await;
    assert_eq!(depth(&loader), 1);
    // The unload waits for the ingest loop when the load begins.
    let id = spec().id;
    let (there_was_one, ()) = tokio::join!(loader.unload(&id), loader.install(prepared()));
    turns().await;
    assert!(there_was_one);
    assert_eq!((depth(&loader), states(&loader)), (1, vec![LoadState::Loaded]));
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_is_unloaded_during_its_first_attempt_does_not_come_back() {
    let (loader, _observe) = loader().await;
    let turn = loader.all_turns().await;
    let preparing = tokio::spawn({
        let loader = loader.clone();
        async move { loader.prepare(spec()).await.is_ok() }
    });
    turns().await;
    assert_eq!(states(&loader), [LoadState::Loading]);
    assert!(loader.unload(&spec().id).await);
    drop(turn);
    assert!(!preparing.await.unwrap(), "there is no such file");
    assert!(states(&loader).is_empty() && loader.pending.lock().waiting.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_fails_after_another_load_succeeded_changes_nothing() {
    let (loader, _observe) = loader().await;
    let turn = loader.all_turns().await;
    let preparing = tokio::spawn({
        let loader = loader.clone();
        // It does not permit the version that is loaded meanwhile.
        let other = PluginSpec { impersonate: Some("system:serviceaccount:shop:tidy".into()), ..spec() };
        async move { loader.prepare(other).await.is_ok() }
    });
    turns().await;
    loader.install(prepared()).await;
    drop(turn);
    assert!(!preparing.await.unwrap(), "there is no such file");
    assert_eq!((depth(&loader), states(&loader)), (1, vec![LoadState::Loaded]));
    assert!(loader.pending.lock().waiting.is_empty());
}

#[test]
fn attempts_are_further_apart_each_time_and_never_more_than_five_minutes() {
    let seconds = |attempts| BACKOFF.doubled(attempts).as_secs();
    assert_eq!([1, 2, 3, 9, 10, 40].map(seconds), [1, 2, 4, 256, 300, 300]);
}

#[tokio::test(start_paused = true)]
async fn the_policy_refuses_a_plugin_before_its_component_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("policy.yaml");
    let yaml = "apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec:\n  defaults: { limits: { writes: 19 } }\n";
    std::fs::write(&file, yaml).unwrap();
    let (loader, _observe) = loader_with(policy(&file)).await;
    let Err(failure) = loader.prepare(spec()).await else { unreachable!("it is prepared") };
    assert!(matches!(failure, LoadFailure::Forbidden(_)) && !failure.is_passing(), "{failure}");
    let reason = failure.to_string();
    let begin =
        "the policy does not permit it: spec.limits.writes is 20, and plugins of namespace shop may have at most 19";
    assert!(reason.starts_with(begin) && reason.contains("policy.yaml: spec.defaults.limits.writes"), "{reason}");
    assert_eq!(states(&loader), [LoadState::Refused { reason }]);

    // A permitted plugin's component is read, and does not exist.
    let modest = PluginSpec { limits: Limits { writes: 19, ..Limits::default() }, ..spec() };
    assert!(matches!(loader.prepare(modest).await, Err(LoadFailure::Unreadable { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_plugin_with_more_memory_than_its_tenants_is_refused_unread() {
    let (loader, _observe) = loader().await;
    let with = |mib: usize| PluginSpec { limits: Limits { memory_bytes: mib << 20, ..Limits::default() }, ..spec() };
    let Err(failure) = loader.prepare(with(65)).await else { unreachable!("it is prepared") };
    assert!(matches!(failure, LoadFailure::OverMemory { .. }) && !failure.is_passing(), "{failure}");
    let reason = failure.to_string();
    assert!(reason.starts_with("spec.limits.memoryMiB is 65, and") && reason.contains(" 64 MiB together"), "{reason}");
    assert!(reason.ends_with("--run-memory-mib to at least 130"), "{reason}");
    assert_eq!(states(&loader), [LoadState::Refused { reason }]);
    assert!(matches!(loader.prepare(with(64)).await, Err(LoadFailure::Unreadable { .. })), "it is looked for");
}

#[tokio::test(start_paused = true)]
async fn a_plugin_without_an_account_is_refused_where_one_is_required() {
    let (loader, _observe) = loader_with(Rules { require_service_account: true, ..Rules::default() }).await;
    let Err(failure) = loader.prepare(spec()).await else { unreachable!("it is prepared") };
    assert!(matches!(failure, LoadFailure::WithoutAccount) && !failure.is_passing(), "{failure}");
    let reason = failure.to_string();
    assert!(reason.starts_with("spec.serviceAccountName is missing, and --require-service-account"), "{reason}");
    assert_eq!(states(&loader), [LoadState::Refused { reason }]);
    let suspended = PluginSpec { suspend: true, ..spec() };
    assert!(matches!(loader.prepare(suspended).await, Err(LoadFailure::WithoutAccount)));
    let with = PluginSpec { impersonate: Some("system:serviceaccount:shop:tidy".into()), ..spec() };
    assert!(matches!(loader.prepare(with).await, Err(LoadFailure::Unreadable { .. })), "its component is looked for");
}

#[tokio::test(start_paused = true)]
async fn a_suspended_plugin_is_taken_out_and_has_no_keys_until_it_is_resumed() {
    let (loader, observe) = loader().await;
    loader.install(prepared()).await;
    assert_eq!(depth(&loader), 1);
    // Its component is not there, and is not looked for.
    let suspended = PluginSpec { suspend: true, ..spec() };
    loader.install(loader.prepare(suspended.clone()).await.unwrap()).await;
    assert_eq!((depth(&loader), states(&loader)), (0, vec![LoadState::Suspended]));
    assert!(loader.plugins().iter().all(|plugin| !plugin.runs) && loader.dispatch.registry.all().is_empty());

    let mut pod = podium_wire::Pod::default();
    (pod.header.namespace, pod.header.name, pod.header.uid) = ("shop".into(), "cart-1".into(), "u2".into());
    pod.header.resource_version = "6".into();
    observe.send(Observation::Events(vec![PodEvent::applied(Arc::new(CachedPod::new(&pod).unwrap()))])).await.unwrap();
    turns().await;
    assert_eq!(depth(&loader), 0, "an event queues no key");

    loader.install(prepared()).await;
    turns().await;
    assert_eq!((depth(&loader), states(&loader)), (2, vec![LoadState::Loaded]), "also the Pod that came meanwhile");

    loader.install(loader.prepare(suspended).await.unwrap()).await;
    assert!(loader.unload(&spec().id).await, "a suspended plugin is configured");
    assert!(!loader.unload(&spec().id).await && states(&loader).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_refused_configuration_that_suspends_stops_the_version() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("policy.yaml");
    let yaml = "apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec:\n  defaults: { excluded: true }\n";
    std::fs::write(&file, yaml).unwrap();
    let (loader, _observe) = loader_with(policy(&file)).await;
    loader.install(prepared()).await;
    assert!(loader.prepare(PluginSpec { suspend: true, ..spec() }).await.is_err());
    assert!(loader.dispatch.registry.all().is_empty());
}

/// The version that is loaded, and whether its runs were ended.
fn is_revoked(loader: &Loader) -> Vec<bool> {
    loader.dispatch.registry.all().iter().map(|loaded| loaded.is_revoked()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_narrower_configuration_ends_runs_before_its_component_is_read() {
    let (loader, _observe) = loader().await;
    let mut wide = spec();
    wide.grants.write.delete = true;
    loader.install(loaded_as(wide.clone(), Arc::new(Idle))).await;
    let turn = loader.all_turns().await;
    let preparing = |spec: PluginSpec| {
        let loader = loader.clone();
        tokio::spawn(async move { loader.prepare(spec).await.is_ok() })
    };
    wide.grants.write.evict = true;
    let wider = preparing(wide.clone());
    turns().await;
    assert_eq!(is_revoked(&loader), [false], "everything that it may do is still permitted");
    assert!(loader.plugins()[0].runs);
    let narrower = preparing(spec());
    turns().await;
    assert_eq!(is_revoked(&loader), [true]);
    assert!(!loader.plugins()[0].runs, "the version that is loaded does not run any more");
    assert_eq!(depth(&loader), 1, "its keys wait for the next version");
    drop(turn);
    assert!(!wider.await.unwrap() && !narrower.await.unwrap(), "there is no such file");
    turns().await;
    assert!(loader.dispatch.registry.all().is_empty(), "no version that runs is permitted");
}

#[tokio::test(start_paused = true)]
async fn a_version_that_was_stopped_never_runs_again() {
    let (loader, _observe) = loader().await;
    let mut wide = spec();
    wide.grants.write.delete = true;
    loader.install(loaded_as(wide.clone(), Arc::new(Idle))).await;
    loader.restrict(&spec());
    assert!(loader.prepare(wide).await.is_err(), "there is no such file");
    assert!(loader.dispatch.registry.all().is_empty());
}

/// The ConfigMap that the API server of these tests has.
fn config_map(path: &str) -> Option<String> {
    (path == "/api/v1/namespaces/shop/configmaps/tidy").then(|| r#"{"data":{"plugin.wasm":"abc"}}"#.to_owned())
}

/// The SHA-256 of the ConfigMap's value.
const DIGEST: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn in_config_map(name: &str, sha256: &str) -> PluginSpec {
    let [namespace, name, key, sha256] = ["shop", name, "plugin.wasm", sha256].map(str::to_owned);
    PluginSpec { source: Source::ConfigMap { namespace, name, key, sha256 }, ..spec() }
}

#[tokio::test(start_paused = true)]
async fn a_component_of_a_config_map_is_read_and_one_of_another_digest_is_not() {
    let (loader, _observe) = loader().await;
    let attempt = async |spec: PluginSpec| match loader.prepare(spec).await {
        Ok(_) => unreachable!("no ConfigMap has a component"),
        Err(failure) => (failure.step().1, failure.is_passing()),
    };
    assert_eq!(attempt(in_config_map("tidy", DIGEST)).await, ("InvalidComponent", false), "its bytes are inspected");
    assert_eq!(attempt(in_config_map("tidy", &"0".repeat(64))).await, ("DigestMismatch", true));
    assert_eq!(attempt(in_config_map("missing", DIGEST)).await, ("ConfigMapNotFound", true));
}

#[tokio::test(start_paused = true)]
async fn a_load_that_was_superseded_changes_nothing() {
    let (loader, _observe) = loader().await;
    let suspended = PluginSpec { suspend: true, ..spec() };
    let earlier = loader.begin(&suspended, None);
    loader.install(prepared()).await;
    // It would succeed, and take the plugin out.
    loader.load(suspended.clone(), earlier).await;
    assert_eq!((depth(&loader), states(&loader)), (1, vec![LoadState::Loaded]));
    let latest = loader.begin(&suspended, None);
    loader.load(suspended, latest).await;
    assert_eq!(states(&loader), [LoadState::Suspended]);
}

#[tokio::test(start_paused = true)]
async fn a_configuration_with_mistakes_keeps_only_a_permitted_version() {
    let (loader, _observe) = loader().await;
    let mistakes = || vec![Problem { line: None, field: "spec.watch".into(), message: "must be a mapping".into() }];
    loader.install(prepared()).await;
    loader.forget(loader.refuse(&spec().id, Some(&spec()), mistakes()).1).await;
    let reason = "spec.watch must be a mapping".to_owned();
    assert_eq!((depth(&loader), states(&loader)), (1, vec![LoadState::Refused { reason }]));
    assert!(loader.plugins()[0].runs, "it goes on");
    let failure = loader.outcome(&spec().id).failure.unwrap();
    assert_eq!((failure.step, failure.reason), (Step::Ready, "InvalidSpec"));

    loader.forget(loader.refuse(&spec().id, None, mistakes()).1).await;
    assert!(loader.dispatch.registry.all().is_empty(), "nothing is known to be permitted");
    loader.install(prepared()).await;
    let narrower = PluginSpec { impersonate: Some("system:serviceaccount:shop:tidy".into()), ..spec() };
    loader.forget(loader.refuse(&spec().id, Some(&narrower), mistakes()).1).await;
    assert!(loader.dispatch.registry.all().is_empty(), "it may do less");
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_a_registry_asks_for_is_kept() {
    let (loader, _observe) = loader().await;
    let busy = |retry_after: Option<u64>| {
        LoadFailure::Unfetched(FetchFailure {
            step: Step::Fetched,
            reason: "RegistryBusy",
            message: "it is busy".to_owned(),
            passing: true,
            retry_after: retry_after.map(Duration::from_secs),
        })
    };
    let number = loader.begin(&spec(), None);
    for (asked, waits) in [(None, 1), (Some(90), 90)] {
        loader.failed(spec(), 1, number, &busy(asked)).await;
        let due = loader.pending.lock().waiting[&spec().id].due;
        assert_eq!(due - Instant::now(), Duration::from_secs(waits));
    }
}

#[tokio::test(start_paused = true)]
async fn loads_that_were_superseded_while_they_waited_are_not_fetched() {
    let (loader, _observe) = loader().await;
    let began = Instant::now();
    for at in 0..100 {
        let (namespace, name, key) = ("shop".into(), "slow".into(), "a".into());
        let source = Source::ConfigMap { namespace, name, key, sha256: "0".repeat(64) };
        let spec = PluginSpec { source, config: format!("{{\"at\":{at}}}"), ..spec() };
        let number = loader.begin(&spec, None);
        let loader = loader.clone();
        tokio::spawn(async move { loader.load(spec, number).await });
    }
    while !matches!(loader.plugins()[0].load, LoadState::Waiting { .. }) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // The API server answers for a ConfigMap after 3 s: for the first load, and for the last.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}
