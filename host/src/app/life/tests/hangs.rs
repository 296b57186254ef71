//! Claims about effects that never end.

use super::*;

/// A disk whose calls never end.
#[derive(Default)]
struct NoDisk(Mutex<Vec<Box<dyn FnOnce() + Send>>>);

impl Blocking for NoDisk {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        self.0.lock().push(job);
    }
}

/// A probe of it never ends.
struct Hangs;

impl Reconcile for Hangs {
    fn reconcile(&self, _: Request, _: Box<dyn World>) -> BoxFuture<'_, RunReport<Staged>> {
        Box::pin(std::future::pending())
    }

    /// No Pod matches the plugins of the test.
    fn instantiate(&self, _: Box<dyn World>) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(std::future::pending())
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// The record of a plugin is read and written.
    Disk,
    Fetch,
    Compile,
    Probe,
    /// Pods are queued, and keys are removed.
    Ingest,
}

#[tokio::test(start_paused = true)]
async fn an_effect_that_never_ends_delays_no_suspension_and_no_deletion() {
    for kind in [Kind::Disk, Kind::Fetch, Kind::Compile, Kind::Probe, Kind::Ingest] {
        let state = tempfile::tempdir().unwrap();
        let blocking: Arc<dyn Blocking> = match kind {
            Kind::Disk => Arc::new(NoDisk::default()),
            _ => Arc::new(BlockingJobs::new(None)),
        };
        let disk = Disk::new(Store::open(state.path()).unwrap(), blocking);
        let (hang, hangs) = tokio::sync::oneshot::channel::<()>();
        let (driver, _observe) =
            driver_until(Rules::default(), Some(disk), None, async move { drop(hangs.await) }).await;
        let plugin = |namespace: &str, name: String, source: &str| PluginSpec {
            id: PluginId { namespace: Some(namespace.into()), name: name.as_str().into() },
            ..in_config_map(source, &"0".repeat(64))
        };
        let feed = |spec: PluginSpec, generation: i64| {
            let object = Object { uid: "u".into(), generation, spec: spec.config.clone(), held: false, ran: false };
            driver.feed(Event::Seen(spec.id.clone(), Source::Object(object), Want::Run(Arc::new(spec))));
        };
        let others: Vec<_> = (0..100).map(|at| plugin("shop", format!("p{at}"), "tidy")).collect();
        let hanging: Vec<_> = (0..4).map(|at| plugin(&format!("t{at}"), "a".to_owned(), "hangs")).collect();
        others.iter().chain(&hanging).for_each(|spec| give(&driver, &spec.id, Idle));
        others.iter().for_each(|spec| feed(spec.clone(), 1));
        if kind == Kind::Probe {
            hanging.iter().for_each(|spec| feed(spec.clone(), 1));
        }
        // Without the disk a load goes on after 10 s.
        seconds(15).await;
        let running =
            || driver.plugins().iter().filter(|plugin| plugin.runs && plugin.id.name.starts_with('p')).count();
        assert_eq!(running(), 100, "{kind:?}");
        match kind {
            Kind::Disk => {}
            Kind::Fetch => hanging.iter().for_each(|spec| drop(driver.components.given.lock().remove(&spec.id))),
            Kind::Compile => driver.components.given.lock().extend(hanging.iter().map(|spec| (spec.id.clone(), None))),
            Kind::Probe => hanging.iter().for_each(|spec| give(&driver, &spec.id, Hangs)),
            Kind::Ingest => hang.send(()).unwrap(),
        }
        hanging.iter().for_each(|spec| feed(PluginSpec { config: "other".into(), ..spec.clone() }, 2));
        seconds(1).await;
        for (at, spec) in others.iter().enumerate() {
            match at % 2 {
                0 => feed(PluginSpec { suspend: true, ..spec.clone() }, 2),
                _ => driver.feed(Event::Gone(spec.id.clone(), false)),
            }
        }
        let left = driver.dispatch.registry.all();
        assert!(left.iter().all(|loaded| !loaded.spec.id.name.starts_with('p')), "{kind:?}: in force at once");
        seconds(1).await;
        assert_eq!(running(), 0, "{kind:?}");
        let suspended = states(&driver).into_iter().filter(|state| *state == LoadState::Suspended).count();
        assert_eq!(suspended, 50, "{kind:?}");
        let hangs = |spec: &PluginSpec| driver.read(&spec.id, |plugin| plugin.result(plugin.load()).is_none());
        let hang = hanging.iter().all(|spec| hangs(spec) == Some(true));
        // Without the disk they are loaded all the same.
        assert!(hang || kind == Kind::Disk, "{kind:?}: the effects hang");
    }
}

/// A disk whose calls take a second each.
struct SlowDisk;

impl Blocking for SlowDisk {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        tokio::spawn(async {
            seconds(1).await;
            job();
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_its_turn_on_a_slow_disk_does_not_give_up() {
    let state = tempfile::tempdir().unwrap();
    let disk = Disk::new(Store::open(state.path()).unwrap(), Arc::new(SlowDisk));
    let calls = (0..400).map(|_| disk::on_disk(disk.clone(), |_| ()));
    let ended = futures::future::join_all(calls).await;
    assert_eq!(ended.into_iter().flatten().count(), 400, "25 s for all of them");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_hangs_keeps_one_turn_however_often_it_is_read() {
    let files = Files::new();
    let mut hanging = Vec::new();
    for _ in 0..20 {
        hanging.push(timeout(disk::GIVE_UP, files.turn(Path::new("/hangs/a.wasm"))).await.ok());
    }
    assert!(timeout(disk::GIVE_UP, files.turn(Path::new("/other/a.wasm"))).await.is_ok());
}
