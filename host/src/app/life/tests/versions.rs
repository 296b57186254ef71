//! Claims about versions: probe, trial, the one before, and the record of the one that ran.

use super::*;

/// Traps while the flag is set.
#[derive(Clone, Default)]
struct Version(Arc<AtomicBool>);

impl Reconcile for Version {
    fn reconcile(&self, _: Request, _: Box<dyn World>) -> BoxFuture<'_, RunReport<Staged>> {
        let trap = Failure { kind: FailureKind::Trap, message: "unreachable".to_owned() };
        let result = if self.0.load(SeqCst) { Err(trap) } else { Ok(Outcome::Settled) };
        Box::pin(std::future::ready(RunReport { result, staged: Staged::default(), usage: Usage::default() }))
    }
}

fn configured(config: &str) -> PluginSpec {
    PluginSpec { config: config.into(), ..spec() }
}

/// Prepares a version, which passes its probe, and installs it. With `traps` it traps since.
async fn swap(driver: &Arc<Driver>, config: &str, traps: bool) -> Version {
    let version = Version::default();
    give(driver, &spec().id, version.clone());
    let prepared = driver.prepare(configured(config)).await.unwrap();
    version.0.store(traps, SeqCst);
    driver.install(prepared).await;
    seconds(1).await;
    version
}

/// A driver whose keys are run, with a version that runs.
async fn at_work() -> (Arc<Driver>, impl Sized) {
    let (driver, observe) = driver().await;
    tokio::spawn(driver.dispatch.clone().work());
    swap(&driver, "1", false).await;
    (driver, observe)
}

fn config(driver: &Driver) -> String {
    let loaded = driver.dispatch.registry.by_id(&spec().id).filter(|loaded| !loaded.is_revoked());
    loaded.map(|loaded| loaded.spec.config.to_string()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_version_that_traps_in_its_trial_is_replaced_by_the_one_before() {
    let (driver, _observe) = at_work().await;
    swap(&driver, "2", true).await;
    assert_eq!(config(&driver), "1");
    let [state] = &driver.plugins()[..] else { unreachable!("one plugin") };
    let LoadState::Refused { reason } = &state.load else { unreachable!("{state:?}") };
    let expected = "in one of its first runs, on pod shop/cart-0, reason trap: unreachable";
    assert!(state.runs && reason.contains(expected), "{reason}");
    seconds(3_600).await;
    assert_eq!(config(&driver), "1", "it is not tried again");
}

#[tokio::test(start_paused = true)]
async fn a_version_that_traps_in_its_probe_is_not_installed() {
    let (driver, _observe) = at_work().await;
    give(&driver, &spec().id, Version(Arc::new(true.into())));
    let failure = driver.prepare(configured("2")).await.err().unwrap();
    assert!(matches!(*failure, LoadFailure::ProbeFailed(_)), "{failure}");
    assert_eq!(config(&driver), "1");
}

#[tokio::test(start_paused = true)]
async fn a_version_that_traps_after_its_trial_stays() {
    let (driver, _observe) = at_work().await;
    let version = swap(&driver, "2", false).await;
    seconds(61).await;
    version.0.store(true, SeqCst);
    driver.ingest_handle.plugins_changed(Some(Lane(1))).await;
    seconds(1).await;
    assert_eq!(config(&driver), "2");
}

#[tokio::test(start_paused = true)]
async fn a_trial_ends_when_the_next_load_begins() {
    let (driver, _observe) = at_work().await;
    let version = swap(&driver, "2", false).await;
    take(&driver);
    driver.begin(configured("3"), Source::File(true));
    version.0.store(true, SeqCst);
    driver.ingest_handle.plugins_changed(Some(Lane(1))).await;
    seconds(1).await;
    assert_eq!(config(&driver), "2");
}

#[tokio::test(start_paused = true)]
async fn no_version_comes_back_after_a_revocation() {
    let (driver, _observe) = at_work().await;
    let version = swap(&driver, "2", false).await;
    let other = PluginSpec { impersonate: Some("system:serviceaccount:shop:other".into()), ..spec() };
    driver.feed(Event::Restricted(Arc::new(other)));
    version.0.store(true, SeqCst);
    driver.ingest_handle.plugins_changed(Some(Lane(1))).await;
    seconds(61).await;
    assert_eq!(config(&driver), "", "nothing runs");
    assert_eq!(&*driver.dispatch.registry.by_id(&spec().id).unwrap().spec.config, "2");
}

/// Passes its probe, and traps later.
#[derive(Default)]
struct TrapsLater(Version);

impl Reconcile for TrapsLater {
    fn reconcile(&self, request: Request, world: Box<dyn World>) -> BoxFuture<'_, RunReport<Staged>> {
        let report = self.0.reconcile(request, world);
        self.0.0.store(true, SeqCst);
        report
    }
}

/// An object whose spec is the configuration.
fn object(uid: &str, generation: i64, config: &str) -> (PluginId, Source) {
    let sha256 = "0".repeat(64);
    let source = json!({ "configMap": { "name": "tidy", "key": "plugin.wasm", "sha256": sha256 } });
    let text = json!({ "source": source, "config": { "is": config } }).to_string();
    (spec().id, Source::Object(Object { uid: uid.into(), generation, spec: text.into(), held: false, ran: false }))
}

/// Loads an object's plugin, which passes its probe and then traps if asked.
async fn seen(driver: &Arc<Driver>, uid: &str, generation: i64, json: &str, traps: bool) {
    if traps {
        give(driver, &spec().id, TrapsLater::default());
    } else {
        give(driver, &spec().id, Idle);
    }
    let (id, source) = object(uid, generation, json);
    driver.feed(Event::Seen(id, source, Want::Run(Arc::new(in_config_map_as(json)))));
    seconds(1).await;
}

fn config_json(config: &str) -> String {
    json!({ "is": config }).to_string()
}

fn in_config_map_as(config: &str) -> PluginSpec {
    PluginSpec { config: config_json(config).into(), ..in_config_map("tidy", &"0".repeat(64)) }
}

fn record(state: &Path) -> Option<Record> {
    Store::open(state).unwrap().record(&spec().id).unwrap()
}

fn ran(state: &Path) -> i64 {
    record(state).unwrap().ran.unwrap().generation
}

#[tokio::test(start_paused = true)]
async fn a_version_is_recorded_after_its_trial_and_a_rolled_back_one_is_refused() {
    let state = tempfile::tempdir().unwrap();
    let (driver, _observe) = driver_on(Rules::default(), Some(state.path())).await;
    tokio::spawn(driver.dispatch.clone().work());
    seen(&driver, "u", 1, "1", false).await;
    assert_eq!(ran(state.path()), 1);
    seen(&driver, "u", 2, "2", false).await;
    assert_eq!(ran(state.path()), 1, "in its trial");
    seconds(61).await;
    assert_eq!(ran(state.path()), 2);

    seen(&driver, "u", 3, "3", true).await;
    let refused = record(state.path()).unwrap().refused.unwrap();
    assert!(refused.tried == Tried::After && refused.spec.contains(r#""is":"3""#), "{refused:?}");
    assert_eq!(ran(state.path()), 2);

    // The host is started again; the bytes of the version are gone.
    let again = async |uid, generation, config| {
        let (driver, observe) = driver_on(Rules::default(), Some(state.path())).await;
        let (id, source) = object(uid, generation, config);
        driver.feed(Event::Seen(id, source, Want::Run(Arc::new(in_config_map_as(config)))));
        seconds(5).await;
        drop(observe);
        driver.plugins().remove(0).load
    };
    let LoadState::Refused { reason } = again("u", 3, "3").await else { unreachable!("it was rolled back") };
    let expected = "unreachable; the version of generation 2 cannot be run again: the component with the SHA-256";
    assert!(reason.contains(expected), "{reason}");
    // Another spec is tried, and so is one of another object of the name.
    assert!(matches!(again("u", 4, "4").await, LoadState::Waiting { .. }));
    assert!(matches!(again("other", 1, "3").await, LoadState::Waiting { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_is_stopped_or_deleted_leaves_no_version_behind() {
    let state = tempfile::tempdir().unwrap();
    let (driver, _observe) = driver_on(Rules::default(), Some(state.path())).await;
    seen(&driver, "u", 1, "1", false).await;
    assert!(record(state.path()).is_some());
    driver.feed(Event::Gone(spec().id, false));
    seconds(1).await;
    assert_eq!(record(state.path()), None);
    assert!(driver.read(&spec().id, |_| ()).is_none(), "nothing is kept of it");

    seen(&driver, "u", 1, "1", false).await;
    take(&driver);
    let other = PluginSpec { impersonate: Some("system:serviceaccount:shop:other".into()), ..in_config_map_as("2") };
    let (id, source) = object("u", 2, "2");
    driver.feed(Event::Seen(id, source, Want::Run(Arc::new(other))));
    seconds(5).await;
    assert_eq!(record(state.path()), None, "its account was changed, and the new version has no component");
}

#[tokio::test(start_paused = true)]
async fn a_record_that_could_not_be_written_is_written_later() {
    let state = tempfile::tempdir().unwrap();
    let (driver, _observe) = driver_on(Rules::default(), Some(state.path())).await;
    let components = state.path().join("components");
    let away = state.path().join("away");
    std::fs::rename(&components, &away).unwrap();
    seen(&driver, "u", 1, "1", false).await;
    let is_recorded = || {
        let shown = |plugin: &Plugin<Host>| matches!(plugin.shown(), Shown::Running { is_recorded: true, .. });
        driver.read(&spec().id, shown).unwrap()
    };
    seconds(60).await;
    assert!(config(&driver) == config_json("1") && !is_recorded(), "it runs, and its record is not there");
    // The next record takes the place of the one that could not be written.
    seen(&driver, "u", 2, "2", false).await;
    seconds(61).await;
    std::fs::rename(&away, &components).unwrap();
    seconds(301).await;
    assert!(is_recorded());
    assert_eq!(ran(state.path()), 2);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_the_disk_does_not_return_at_once_is_read_again() {
    let state = tempfile::tempdir().unwrap();
    let (driver, _observe) = driver_on(Rules::default(), Some(state.path())).await;
    seen(&driver, "u", 1, "1", false).await;
    let file = std::fs::read_dir(state.path().join("components")).unwrap().next().unwrap().unwrap().path();
    let away = state.path().join("away");
    std::fs::rename(&file, &away).unwrap();
    // The system does not open a socket as a file.
    let socket = state.path().join("socket");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    std::fs::rename(&socket, &file).unwrap();

    let (driver, _observe) = driver_on(Rules::default(), Some(state.path())).await;
    tokio::spawn(driver.dispatch.clone().work());
    seen(&driver, "u", 2, "2", false).await;
    assert_eq!(config(&driver), "", "its record is not known");
    std::fs::rename(&away, &file).unwrap();
    seconds(10).await;
    let in_trial = (config(&driver), ran(state.path()));
    assert_eq!(in_trial, (config_json("2"), 1), "it is tried, because the version before came back");
    seconds(61).await;
    assert_eq!(ran(state.path()), 2);
}

#[tokio::test(start_paused = true)]
async fn a_trial_is_not_woken_by_the_steps_of_other_plugins() {
    let (driver, _observe) = at_work().await;
    let waiting = driver.changed.receiver_count();
    swap(&driver, "2", false).await;
    assert_eq!(driver.read(&spec().id, |plugin| plugin.result(plugin.load()).is_some()), Some(true));
    seconds(30).await;
    assert_eq!(driver.changed.receiver_count(), waiting, "its trial is under way");
}
