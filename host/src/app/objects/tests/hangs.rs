//! Claims about changes of many objects while the effects of one tenant's plugins never end.

use std::{
    future::pending,
    io,
    net::SocketAddr,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;
use futures::{
    StreamExt,
    channel::mpsc::{UnboundedSender, unbounded},
    future::BoxFuture,
    stream,
};
use http_body_util::StreamBody;
use hyper::body::Frame;
use podium_engine::{
    clock::Clock,
    ports::{Failure, Reconcile, RunReport, Staged, World},
};
use podium_registry::{Allowed, Registry, Resolve};
use rand::{Rng, SeedableRng, rngs::SmallRng, seq::SliceRandom};
use serde_json::Value;
use tokio::{sync::watch, time::sleep};

use super::{
    super::super::{
        Phase,
        cleanup::Removals,
        life::{Disk, Rules},
        object_status::StatusTask,
        operator::tests::observed,
        watchdog::Watchdog,
    },
    changes::SlowDisk,
    *,
};
use crate::images::{Images, Store};

/// The tenants whose objects change, with ten each.
const TENANTS: usize = 10;

/// The effect that never ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// All reads and writes of the state directory.
    Disk,
    /// The API server does not answer for a ConfigMap.
    ConfigMap,
    /// The name of a registry is not resolved.
    Registry,
    /// The API server does not answer for the host's finalizer.
    Finalizer,
    Compile,
    Probe,
    /// The API server answers for no status and for no Event.
    Status,
}

const KINDS: [Kind; 7] =
    [Kind::Disk, Kind::ConfigMap, Kind::Registry, Kind::Finalizer, Kind::Compile, Kind::Probe, Kind::Status];

/// No name is ever resolved.
struct NoNames;

impl Resolve for NoNames {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(pending())
    }
}

/// A probe of it never ends.
struct Hangs;

impl Reconcile for Hangs {
    fn reconcile(&self, _: podium_engine::ports::Request, _: Box<dyn World>) -> BoxFuture<'_, RunReport<Staged>> {
        Box::pin(pending())
    }

    fn instantiate(&self, _: Box<dyn World>) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(pending())
    }
}

/// An object as the API server has it.
#[derive(Debug, Clone)]
struct Made {
    id: PluginId,
    uid: usize,
    generation: u64,
    spec: Value,
    runs: bool,
}

impl Made {
    fn new(namespace: &str, name: &str, uid: usize) -> Self {
        let source = json!({ "configMap": { "name": "missing", "key": "a", "sha256": "0".repeat(64) } });
        let id = PluginId { namespace: Some(namespace.into()), name: name.into() };
        Self { id, uid, generation: 1, spec: json!({ "source": source }), runs: true }
    }

    fn json(&self) -> Value {
        let Self { id, uid, generation, spec, .. } = self;
        let metadata = json!({
            "name": &*id.name, "namespace": id.namespace.as_deref(), "uid": format!("u-{uid}"),
            "generation": generation,
        });
        json!({ "metadata": metadata, "spec": spec })
    }

    fn event(&self, kind: &str) -> String {
        json!({ "type": kind, "object": self.json() }).to_string() + "\n"
    }

    fn changed(&mut self, field: &str, value: Value, stays: bool) -> String {
        self.generation += 1;
        self.spec[field] = value;
        self.runs &= stays;
        self.event("MODIFIED")
    }
}

/// An API server of these objects, whose watch brings the events of a channel. With `silent` it answers for no status
/// and for no Event.
fn api_server(objects: &[Made], silent: bool) -> (Api, UnboundedSender<String>, Arc<AtomicUsize>) {
    let (events, watch) = unbounded::<String>();
    let watch = Arc::new(Mutex::new(watch));
    let items: Vec<_> = objects.iter().map(Made::json).collect();
    let lists = Arc::new(AtomicUsize::new(0));
    let unanswered = Arc::new(AtomicUsize::new(0));
    let count = unanswered.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let is_cluster = path.ends_with("/clusterreconcileplugins");
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=1"));
        let is_list = !is_watch && request.method() == http::Method::GET && path.ends_with("reconcileplugins");
        // Later lists, after silent watches, would have to have all changes.
        let hangs = (is_list && lists.fetch_add(1, Relaxed) >= 2)
            || (is_watch && is_cluster)
            || (silent && request.method() != http::Method::GET);
        let list =
            json!({ "metadata": { "resourceVersion": "7" }, "items": if is_cluster { &[][..] } else { &items } });
        let watch = watch.clone();
        let count = count.clone();
        async move {
            if hangs {
                count.fetch_add(usize::from(!is_list && !is_watch), Relaxed);
                pending::<()>().await;
            }
            let texts = match (is_watch, is_list) {
                (true, _) => stream::poll_fn(move |context| watch.lock().poll_next_unpin(context)).boxed(),
                (_, true) => stream::iter([list.to_string()]).boxed(),
                _ => stream::iter(["{}".to_owned()]).boxed(),
            };
            let frames = texts.map(|text| Ok::<_, Infallible>(Frame::data(Bytes::from(text))));
            Ok::<_, Infallible>(Response::new(StreamBody::new(frames)))
        }
    });
    (Api::new(kube::Client::new(service, "default"), Duration::from_secs(5)), events, unanswered)
}

/// A host that follows objects, all of which run.
struct Scene {
    driver: Arc<Driver>,
    disk: Arc<SlowDisk>,
    events: UnboundedSender<String>,
    unanswered: Arc<AtomicUsize>,
    watchdog: Arc<Watchdog>,
    _observe: Box<dyn std::any::Any + Send>,
    _phase: watch::Sender<Phase>,
}

impl Scene {
    async fn new(state: &Path, kind: Kind, objects: &[Made]) -> Self {
        let disk = SlowDisk::new(0, 1, false);
        let registry = Registry::new("registry.test".parse().unwrap());
        let images = Images::new(Allowed::new(vec![registry], Vec::new()).unwrap(), NoNames);
        let rules = Rules { images: Some(images), ..Rules::default() };
        let store = Disk::new(Store::open(state).unwrap(), disk.clone());
        let (driver, observe) = tests::driver_beside(rules, Some(store)).await;
        let (api, events, unanswered) = api_server(objects, kind == Kind::Status);
        let (follower, mut started) = Follower::new(driver.clone(), &api, None, [], 1);
        let known = follower.known();
        let watchdog = Arc::<Watchdog>::default();
        watchdog.watch(follower.watched());
        tokio::spawn(watchdog.clone().run());
        objects.iter().for_each(|made| tests::give(&driver, &made.id, tests::Idle));
        tokio::spawn(follower.run());
        let (_phase, phase) = watch::channel(Phase::Serving);
        let status = StatusTask {
            api,
            known,
            driver: driver.clone(),
            status: driver.status.clone(),
            observed: Arc::new(observed(driver.status.clone(), phase)),
            removals: Removals::default(),
            releases: <_>::default(),
            clock: Clock::starting_at(0),
        };
        if kind == Kind::Status {
            tokio::spawn(status.run());
        }
        started.wait_for(|started| *started).await.unwrap();
        sleep(Duration::from_secs(60)).await;
        Self { driver, disk, events, unanswered, watchdog, _observe: Box::new(observe), _phase }
    }

    fn send(&self, chunk: String) {
        self.events.unbounded_send(chunk).unwrap();
    }

    /// Has the next load of a plugin hang. Returns the event that begins it.
    fn hang(&self, kind: Kind, made: &mut Made) -> String {
        let given = || self.driver.components.given.lock();
        match kind {
            Kind::Disk | Kind::Status => {}
            Kind::ConfigMap => {
                given().remove(&made.id);
                made.spec["source"]["configMap"]["name"] = "hangs".into();
            }
            Kind::Registry => {
                given().remove(&made.id);
                made.spec["source"] = json!({ "oci": { "image": "registry.test/a:1" } });
            }
            Kind::Finalizer => {
                let own = format!("shop.example/{}", made.id.name);
                made.spec["grants"] = json!({ "write": { "finalizers": [own] } });
            }
            Kind::Compile => drop(given().insert(made.id.clone(), None)),
            Kind::Probe => tests::give(&self.driver, &made.id, Hangs),
        }
        made.changed("config", json!({ "is": 2 }), true)
    }

    fn runs(&self, id: &PluginId) -> bool {
        let is_shown = self.driver.plugins().iter().any(|plugin| plugin.id == *id && plugin.runs);
        let in_registry = self.driver.dispatch.registry.by_id(id).is_some_and(|loaded| !loaded.is_revoked());
        assert_eq!(is_shown, in_registry, "{id}");
        in_registry
    }
}

/// Suspends, narrows, changes, deletes or replaces an object.
fn change(random: &mut SmallRng, made: &mut Made) -> String {
    let number = random.random_range(1_000..1_000_000);
    match random.random_range(0..5) {
        0 => made.changed("suspend", true.into(), false),
        1 => made.changed("serviceAccountName", "other".into(), false),
        2 => made.changed("config", json!({ "is": number }), true),
        3 => {
            made.runs = false;
            made.event("DELETED")
        }
        _ => {
            let deleted = made.event("DELETED");
            let Made { id, uid, .. } = made.clone();
            *made = Made { id, uid: uid + number, runs: false, ..made.clone() };
            deleted + &made.event("ADDED")
        }
    }
}

#[tokio::test(start_paused = true)]
async fn effects_that_hang_delay_no_change_of_a_hundred_other_plugins() {
    for (seed, kind) in (0..).zip(KINDS) {
        let state = tempfile::tempdir().unwrap();
        let mut random = SmallRng::seed_from_u64(seed);
        let mut others: Vec<Made> =
            (0..10 * TENANTS).map(|at| Made::new(&format!("n{}", at % TENANTS), &format!("p{at}"), at)).collect();
        // The server of the tests does not answer for objects of the first name.
        let names = ["hangs", "h1", "h2", "h3"];
        let mut hanging: Vec<Made> = (1_000..).zip(names).map(|(uid, name)| Made::new("stuck", name, uid)).collect();
        let scene = Scene::new(state.path(), kind, &[&*others, &*hanging].concat()).await;
        assert!(others.iter().chain(&hanging).all(|made| scene.runs(&made.id)), "{kind:?}: all run at first");

        scene.disk.hangs.store(kind == Kind::Disk, Relaxed);
        scene.driver.components.given.lock().retain(|id, _| id.namespace.as_deref() == Some("stuck"));
        let chunk: String = hanging.iter_mut().map(|made| scene.hang(kind, made)).collect();
        scene.send(chunk);
        sleep(Duration::from_secs(1)).await;
        let result = |made: &Made| scene.driver.read(&made.id, |plugin| plugin.result(plugin.load()).is_none());
        if !matches!(kind, Kind::Disk | Kind::Status) {
            assert_eq!(result(&hanging[0]), Some(true), "{kind:?}: it hangs");
        }

        others.shuffle(&mut random);
        let chunk: String = others.iter_mut().map(|made| change(&mut random, made)).collect();
        scene.send(chunk);
        sleep(Duration::from_secs(1)).await;
        for made in &others {
            assert_eq!(scene.runs(&made.id), made.runs, "{kind:?}: {made:?}");
        }
        // Nor a load of another tenant; without the disk it goes on after a while.
        let fresh = Made::new("fresh", "a", 2_000);
        tests::give(&scene.driver, &fresh.id, tests::Idle);
        scene.send(fresh.event("ADDED"));
        sleep(Duration::from_secs(30)).await;
        assert!(scene.runs(&fresh.id), "{kind:?}: {:?}", scene.driver.plugins().first());
        assert!(kind != Kind::Status || scene.unanswered.load(Relaxed) > 0, "no status was tried");

        // Those that hang are suspended and deleted as quickly as others.
        let suspended = hanging[1].changed("suspend", true.into(), false);
        scene.send(hanging[0].event("DELETED") + &suspended);
        sleep(Duration::from_secs(1)).await;
        assert!(!scene.runs(&hanging[0].id) && !scene.runs(&hanging[1].id), "{kind:?}");
        assert!(scene.runs(&hanging[2].id), "{kind:?}: its version before goes on");
        for _ in 0..10 {
            assert_eq!((scene.watchdog.unready(), scene.watchdog.dead()), (None, None), "{kind:?}");
            sleep(Duration::from_secs(30)).await;
        }
        for made in &others {
            assert_eq!(scene.runs(&made.id), made.runs, "{kind:?}, later: {made:?}");
        }
    }
}
