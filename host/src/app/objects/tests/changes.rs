//! Claims about changes that meet, over a watch that brings them in one piece.

use std::{
    collections::BTreeMap,
    future::pending,
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use bytes::Bytes;
use futures::{StreamExt, channel::mpsc::UnboundedSender, stream};
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use podium_engine::{clock::Clock, ports::Blocking};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::Value;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{
    super::super::{
        Phase,
        cleanup::Removals,
        life::{Disk, Rules},
        object_status::StatusTask,
        operator::tests::observed,
        watchdog::Watchdog,
    },
    *,
};
use crate::{images::Store, objects::Object};

/// A disk whose calls take a random time.
pub(super) struct SlowDisk {
    /// The longest time of a call.
    seconds: u64,
    random: Mutex<SmallRng>,
    /// Half of the calls do nothing.
    fails: bool,
    /// No call ends.
    pub(super) hangs: AtomicBool,
}

impl SlowDisk {
    pub(super) fn new(seconds: u64, seed: u64, fails: bool) -> Arc<Self> {
        let random = Mutex::new(SmallRng::seed_from_u64(seed));
        Arc::new(Self { seconds, random, fails, hangs: AtomicBool::default() })
    }
}

impl Blocking for SlowDisk {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        let millis = self.random.lock().random_range(0..=1_000 * self.seconds);
        let fails = self.fails && self.random.lock().random();
        let hangs = self.hangs.load(Relaxed);
        tokio::spawn(async move {
            sleep(Duration::from_millis(millis)).await;
            if hangs {
                pending::<()>().await;
            }
            if !fails {
                job();
            }
        });
    }
}

/// An object as a test changes it, and whether its plugin should run.
#[derive(Debug, Clone)]
struct Made {
    name: String,
    uid: u64,
    generation: u64,
    spec: Value,
    runs: bool,
    /// Its spec means what it meant when the plugin was installed.
    is_same: bool,
}

impl Made {
    /// Its component is not there.
    fn new(name: &str, uid: u64) -> Self {
        let source = json!({ "configMap": { "name": "missing", "key": "a", "sha256": "0".repeat(64) } });
        Self {
            name: name.to_owned(),
            uid,
            generation: 1,
            spec: json!({ "source": source }),
            runs: false,
            is_same: false,
        }
    }

    fn json(&self) -> Value {
        let Self { name, uid, generation, spec, .. } = self;
        let metadata =
            json!({ "name": name, "namespace": "shop", "uid": format!("u-{uid}"), "generation": generation });
        json!({ "metadata": metadata, "spec": spec })
    }

    fn event(&self, kind: &str) -> String {
        json!({ "type": kind, "object": self.json() }).to_string() + "\n"
    }

    fn plugin(&self) -> PluginSpec {
        PluginSpec::clone(&Object::read(Kind::Namespaced, &self.json().to_string()).unwrap().plugin.unwrap())
    }

    /// Changes the spec. Returns the event.
    fn changed(&mut self, field: &str, value: Value, stays: bool) -> String {
        self.generation += 1;
        self.is_same &= value == false;
        self.spec[field] = value;
        self.runs &= stays;
        self.event("MODIFIED")
    }

    fn is_suspended(&self) -> bool {
        self.spec["suspend"] == true
    }
}

/// A host that follows objects, all of which run.
struct Scene {
    driver: Arc<Driver>,
    objects: BTreeMap<String, Made>,
    events: UnboundedSender<String>,
    follower: tokio::task::JoinHandle<anyhow::Result<()>>,
    known: Shared,
    api: Api,
    /// When a status was applied, by object. The API server does not answer for p0.
    applied: Arc<Mutex<Vec<(String, Instant)>>>,
    watchdog: Arc<Watchdog>,
    _observe: Box<dyn std::any::Any + Send>,
}

impl Scene {
    async fn new(count: u64, state: &Path, disk: Arc<SlowDisk>) -> Self {
        let disk = Disk::new(Store::open(state).unwrap(), disk);
        let (driver, observe) = tests::driver_beside(Rules::default(), Some(disk)).await;
        let objects: BTreeMap<_, _> =
            (0..count).map(|at| (format!("p{at}"), Made::new(&format!("p{at}"), at))).collect();
        let names = ["p0", "p1", "p2"].map(str::to_owned);
        let items: Vec<_> = objects.values().map(Made::json).collect();
        let list = json!({ "metadata": { "resourceVersion": "7" }, "items": items }).to_string();
        let (events, watch) = futures::channel::mpsc::unbounded::<String>();
        // A watch that ends is resumed.
        let watch = Arc::new(Mutex::new(watch));
        let is_listed = Arc::new(AtomicBool::new(false));
        let applied: Arc<Mutex<Vec<(String, Instant)>>> = Arc::default();
        let record = applied.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let is_of = |name: &String| request.uri().path().ends_with(&format!("/{name}/status"));
            let written = names.iter().find(|name| is_of(name)).cloned();
            record.lock().extend(written.clone().map(|name| (name, Instant::now())));
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=1"));
            let watch = watch.clone();
            let list = list.clone();
            // The list of the start only: later ones, after silent watches, would have to have all changes.
            let is_late = !is_watch && request.method() == http::Method::GET && is_listed.swap(true, Relaxed);
            async move {
                if is_late {
                    pending::<()>().await;
                }
                if written.is_some_and(|name| name == "p0") {
                    pending::<()>().await;
                }
                let texts = if is_watch {
                    stream::poll_fn(move |context| watch.lock().poll_next_unpin(context)).boxed()
                } else {
                    stream::iter([list]).boxed()
                };
                let frames = texts.map(|text| Ok::<_, Infallible>(Frame::data(Bytes::from(text))));
                Ok::<_, Infallible>(Response::new(StreamBody::new(frames)))
            }
        });
        let api = Api::new(kube::Client::new(service, "default"), Duration::from_secs(5));
        let (follower, mut started) = Follower::new(driver.clone(), &api, Some("shop"), [], 1);
        let known = follower.known();
        let watchdog = Arc::<Watchdog>::default();
        watchdog.watch(follower.watched());
        tokio::spawn(watchdog.clone().run());
        objects.values().for_each(|made| tests::give(&driver, &made.plugin().id, tests::Idle));
        let follower = tokio::spawn(follower.run());
        started.wait_for(|started| *started).await.unwrap();
        let mut scene =
            Self { driver, objects, events, follower, known, api, applied, watchdog, _observe: Box::new(observe) };
        for made in scene.objects.values_mut() {
            made.runs = true;
            made.is_same = true;
        }
        tests::take(&scene.driver);
        scene.sleep(60).await;
        scene
    }

    async fn sleep(&self, seconds: u64) {
        sleep(Duration::from_secs(seconds)).await;
    }

    fn send(&self, chunk: String) {
        self.events.unbounded_send(chunk).unwrap();
    }

    /// Suspends a plugin. Returns the event.
    fn suspend(&mut self, name: &str) -> String {
        self.objects.get_mut(name).unwrap().changed("suspend", true.into(), false)
    }

    /// Returns whether runs of a plugin may start.
    fn runs(&self, name: &str) -> bool {
        self.driver.plugins().iter().any(|plugin| &*plugin.id.name == name && plugin.runs)
    }

    /// Every change was processed, and exactly the plugins run that should.
    fn assert_settled(&self, seed: u64) {
        assert!(!self.follower.is_finished(), "seed {seed}: the follower has ended");
        let mut states = self.driver.plugins().into_iter();
        for made in self.objects.values() {
            let state = states.find(|state| *state.id.name == made.name);
            let Some(state) = state else { panic!("seed {seed}: {made:?} is unknown") };
            let is_processed = match state.load {
                LoadState::Suspended => made.is_suspended(),
                LoadState::Waiting { .. } => !made.is_suspended(),
                // Otherwise the component is missing.
                LoadState::Loaded => made.is_same,
                _ => false,
            };
            let generation = self.driver.read(&state.id, Plugin::generation).flatten();
            assert!(is_processed, "seed {seed}: {made:?} {state:?}");
            assert_eq!(generation, Some(i64::try_from(made.generation).unwrap()), "seed {seed}: {made:?}");
            assert_eq!(state.runs, made.runs, "seed {seed}: {made:?} {state:?}");
        }
        let names: Vec<_> = self.driver.plugins().iter().map(|state| state.id.name.to_string()).collect();
        assert_eq!(names, self.objects.keys().cloned().collect::<Vec<_>>(), "seed {seed}");
        let running: Vec<_> =
            self.driver.dispatch.registry.all().iter().map(|loaded| loaded.spec.id.name.to_string()).collect();
        assert!(running.iter().all(|name| self.objects[name].runs), "seed {seed}: {running:?}");
    }
}

/// Suspends, resumes, deletes, makes, replaces, changes and narrows objects.
fn chunk(random: &mut SmallRng, objects: &mut BTreeMap<String, Made>, made: &mut u64) -> String {
    let mut chunk = String::new();
    for _ in 0..random.random_range(1..10) {
        let name = format!("p{}", random.random_range(0..12));
        *made += 1;
        let new = Made::new(&name, 100 + *made);
        let Some(object) = objects.get_mut(&name) else {
            chunk += &new.event("ADDED");
            objects.insert(name, new);
            continue;
        };
        chunk += &match random.random_range(0..6) {
            0 => object.changed("suspend", true.into(), false),
            1 => object.changed("suspend", false.into(), true),
            2 => object.changed("config", json!({ "is": *made }), true),
            3 => object.changed("serviceAccountName", format!("a{made}").into(), false),
            4 => objects.remove(&name).unwrap().event("DELETED"),
            _ => {
                let deleted = std::mem::replace(object, new).event("DELETED");
                deleted + &object.event("ADDED")
            }
        };
    }
    chunk
}

#[tokio::test(start_paused = true)]
async fn whatever_changes_at_once_exactly_what_is_desired_runs() {
    for seed in 0..12_u64 {
        let state = tempfile::tempdir().unwrap();
        let mut random = SmallRng::seed_from_u64(seed);
        let fails = seed.is_multiple_of(2);
        let mut scene = Scene::new(8, state.path(), SlowDisk::new(20, seed, fails)).await;
        let mut made = 0;
        for _ in 0..5 {
            let chunk = chunk(&mut random, &mut scene.objects, &mut made);
            scene.send(chunk);
            scene.sleep(random.random_range(0..20)).await;
        }
        scene.sleep(1_000).await;
        scene.assert_settled(seed);
        assert_eq!(scene.watchdog.unready(), None);
        let store = Store::open(state.path()).unwrap();
        for (name, made) in scene.objects.iter().filter(|_| !fails) {
            let id = PluginId { namespace: Some("shop".into()), name: (**name).into() };
            assert_eq!(store.record(&id).unwrap().is_some(), made.runs, "seed {seed}: {made:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_for_an_hour_delays_no_change() {
    let state = tempfile::tempdir().unwrap();
    let disk = SlowDisk::new(1, 1, false);
    let mut scene = Scene::new(40, state.path(), disk.clone()).await;
    disk.hangs.store(true, Relaxed);
    for at in 0..38 {
        let chunk = match at % 2 {
            0 => scene.suspend(&format!("p{at}")),
            _ => scene.objects.remove(&format!("p{at}")).unwrap().event("DELETED"),
        };
        let other = Made::new(&format!("q{at}"), 100 + at);
        scene.send(chunk + &other.event("ADDED"));
        scene.objects.insert(other.name.clone(), other);
        scene.sleep(1).await;
        assert!(!scene.runs(&format!("p{at}")), "p{at}");
        scene.sleep(90).await;
        assert_eq!((scene.watchdog.unready(), scene.watchdog.dead()), (None, None));
    }
    scene.sleep(600).await;
    assert!(scene.runs("p39"), "nothing has changed it");
    scene.assert_settled(0);
}

#[tokio::test(start_paused = true)]
async fn a_write_of_a_status_that_hangs_delays_no_other_object() {
    let state = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(2, state.path(), SlowDisk::new(0, 1, false)).await;
    let chunk = scene.suspend("p0") + &scene.suspend("p1");
    let (_phase, phase) = watch::channel(Phase::Serving);
    let status = StatusTask {
        api: scene.api.clone(),
        known: scene.known.clone(),
        driver: scene.driver.clone(),
        status: scene.driver.status.clone(),
        observed: Arc::new(observed(scene.driver.status.clone(), phase)),
        removals: Removals::default(),
        releases: <_>::default(),
        clock: Clock::starting_at(0),
    };
    scene.send(chunk);
    scene.sleep(1).await;
    tokio::spawn(status.run());
    let began = Instant::now();
    let seconds = |scene: &Scene, name: &str| {
        let applied = scene.applied.lock();
        applied.iter().filter(|(of, _)| of == name).map(|(_, at)| (*at - began).as_secs()).collect::<Vec<_>>()
    };
    scene.sleep(3).await;
    assert_eq!([seconds(&scene, "p0"), seconds(&scene, "p1")], [[2], [2]]);
    let mut other = Made::new("p2", 2);
    other.spec["suspend"] = true.into();
    scene.send(other.event("ADDED"));
    scene.sleep(2).await;
    assert_eq!(seconds(&scene, "p2"), [4], "while the API server does not answer for p0");
}
