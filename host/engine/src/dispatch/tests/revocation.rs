//! Claims about a plugin whose configuration permits less while its runs are under way.

use super::*;

/// An API server that never answers.
#[derive(Default)]
struct Silent {
    asked: AtomicUsize,
}

impl Deliver for Silent {
    fn deliver<'a>(
        &'a self,
        _: &'a Sender,
        _: &'a PodKey,
        _: &'a dyn PodView,
        _: Staged,
        _: u64,
    ) -> BoxFuture<'a, Sent> {
        self.asked.fetch_add(1, SeqCst);
        Box::pin(std::future::pending())
    }

    fn held(&self, _: &Sender) -> Option<Duration> {
        None
    }
}

impl Live for Silent {
    fn get<'a>(
        &'a self,
        _: Asker,
        _: &'a Sender,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<CachedPod>>, Refused>> {
        self.asked.fetch_add(1, SeqCst);
        Box::pin(std::future::pending())
    }
}

/// The writes of a commit.
const COMMITTED: usize = 30;

/// The work of a run.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    ReadLive,
    Commit,
    /// Yields like a guest that computes.
    Compute,
    StageOnly,
}

struct Guest {
    work: Work,
    /// Calls of the host after a wait, which a run that was ended does not reach.
    after: Arc<AtomicUsize>,
}

impl Reconcile for Guest {
    fn reconcile(&self, request: Request, mut world: Box<dyn World>) -> BoxFuture<'_, RunReport<Staged>> {
        Box::pin(async move {
            match self.work {
                Work::ReadLive => drop(world.live("shop", "cart-0").await),
                Work::Commit => {
                    let writes = (0..COMMITTED).map(|_| label(&request)).collect();
                    let staged = report(Ok(Outcome::Settled), writes).staged;
                    drop(world.commit(staged).await);
                }
                Work::Compute => loop {
                    tokio::task::yield_now().await;
                },
                Work::StageOnly => return report(Ok(Outcome::Settled), vec![label(&request)]),
            }
            self.after.fetch_add(1, SeqCst);
            report(Ok(Outcome::Settled), Vec::new())
        })
    }
}

struct Cut {
    rig: Rig,
    silent: Arc<Silent>,
    after: Arc<AtomicUsize>,
}

/// A plugin that may label and delete Pods, whose run on one Pod does `work`.
fn working(work: Work) -> Cut {
    let mut rig = rig(|_, _| report(Ok(Outcome::Settled), Vec::new()));
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    let silent = Arc::<Silent>::default();
    let after = Arc::<AtomicUsize>::default();
    let Dispatch { queue, registry, expectations, reader, clock, .. } = &*rig.dispatch;
    rig.dispatch = Arc::new(Dispatch {
        queue: queue.clone(),
        registry: registry.clone(),
        expectations: expectations.clone(),
        reader: reader.clone(),
        deliver: silent.clone(),
        live: silent.clone(),
        tasks: Arc::new(Spawned),
        clock: clock.clone(),
        seed: 1,
        traces: None,
    });
    let cut = Cut { rig, silent, after };
    cut.load(granted(), work);
    cut.rig.add();
    cut
}

fn granted() -> PluginSpec {
    let mut spec = spec();
    spec.grants.write.labels = vec![KeyPattern("team".into())];
    spec.grants.write.delete = true;
    spec
}

impl Cut {
    fn load(&self, spec: PluginSpec, work: Work) {
        let sender = Sender { manager: "podium/shop/tidy".into(), impersonate: None };
        let guest = Arc::new(Guest { work, after: self.after.clone() });
        self.rig.dispatch.registry.put(spec, guest, sender, self.rig.status.clone(), None, None);
    }

    /// Replaces the version by one that may do as much, and that one by one that may do more.
    fn replace_by_more(&self) {
        let mut more = granted();
        more.grants.write.evict = true;
        assert!(!self.rig.dispatch.registry.restrict(&more));
        self.load(granted(), Work::StageOnly);
        self.load(more, Work::StageOnly);
    }

    /// Runs the key until the run waits.
    async fn begin(&self) -> tokio::task::JoinHandle<Next> {
        let dispatch = self.rig.dispatch.clone();
        let run = tokio::spawn(async move {
            let job = dispatch.queue.next().await.unwrap();
            finish(dispatch, job).await
        });
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert!(!run.is_finished());
        run
    }

    fn revoked(&self) -> u64 {
        self.rig.status.failures_by(FailureKind::Revoked)
    }
}

type Change = fn(&Cut);

/// Changes that end the runs of a plugin.
const CHANGES: [(&str, Change); 3] = [
    ("restricted", |cut| assert!(cut.rig.dispatch.registry.restrict(&spec()))),
    ("replaced by less", |cut| cut.load(spec(), Work::StageOnly)),
    ("taken out", |cut| assert!(cut.rig.dispatch.registry.remove(&spec().id).is_some())),
];

#[tokio::test(start_paused = true)]
async fn a_run_ends_when_its_plugin_is_restricted_or_removed() {
    for work in [Work::ReadLive, Work::Commit, Work::Compute, Work::StageOnly] {
        for (name, change) in CHANGES {
            let cut = working(work);
            let begun = Instant::now();
            let run = cut.begin().await;
            change(&cut);
            assert_eq!(run.await.unwrap(), Next::Postponed(Duration::ZERO), "{name}");
            assert_eq!(begun.elapsed(), Duration::ZERO, "{name}");
            assert_eq!((cut.revoked(), cut.rig.status.active()), (1, 0), "{name}");
            assert_eq!(cut.after.load(SeqCst), 0, "{name}: the run continued");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_of_a_replaced_version_ends_with_the_versions_after_it() {
    for work in [Work::ReadLive, Work::Commit, Work::Compute, Work::StageOnly] {
        for (name, change) in CHANGES {
            let cut = working(work);
            let run = cut.begin().await;
            cut.replace_by_more();
            change(&cut);
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            assert!(run.is_finished(), "{name}: the run continues");
            assert_eq!(run.await.unwrap(), Next::Postponed(Duration::ZERO), "{name}");
            assert_eq!((cut.revoked(), cut.rig.status.active()), (1, 0), "{name}");
            assert_eq!(cut.after.load(SeqCst), 0, "{name}: the run continued");
            cut.load(granted(), Work::StageOnly);
            let next = cut.rig.dispatch.registry.get(cut.rig.lane).unwrap();
            assert!(!next.is_revoked(), "{name}: a later version may run");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_revoked_is_charged_its_time_up_to_its_limit() {
    let limit = spec().limits.cpu;
    for (ran, charged) in [(limit / 4, limit / 4), (limit * 50, limit)] {
        let cut = working(Work::Compute);
        let dispatch = cut.rig.dispatch.clone();
        let run = cut.begin().await;
        let charge = || dispatch.queue.tenants().values().map(|tenant| tenant.debt).sum::<Duration>();
        let before = charge();
        tokio::time::advance(ran).await;
        assert!(cut.rig.dispatch.registry.restrict(&spec()));
        assert_eq!(run.await.unwrap(), Next::Postponed(Duration::ZERO));
        let cost = charge() - before;
        // A job costs a little besides its run.
        assert!((charged..charged + Duration::from_millis(1)).contains(&cost), "{cost:?} for {ran:?}");
        assert_eq!(cut.rig.status.cpu(), charged);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_when_its_plugin_is_replaced_by_as_much_or_more() {
    let cut = working(Work::Compute);
    let run = cut.begin().await;
    cut.replace_by_more();
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert!(!run.is_finished() && cut.revoked() == 0);
}

#[tokio::test(start_paused = true)]
async fn staged_writes_are_dropped_when_the_plugin_is_restricted() {
    let registry = Arc::new(Mutex::new(None::<Arc<Registry>>));
    let shared = registry.clone();
    let mut rig = rig(move |request, world| {
        assert!(!world.is_revoked());
        assert!(shared.lock().as_ref().unwrap().restrict(&spec()));
        assert!(world.is_revoked(), "the engine refuses what the guest calls now");
        report(Ok(Outcome::Settled), vec![label(&request)])
    });
    *registry.lock() = Some(rig.dispatch.registry.clone());
    rig.grant_labels();
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    rig.add();
    assert_eq!(rig.turn().await, Next::Postponed(Duration::ZERO));
    assert!(rig.script.sent.lock().is_empty());
    assert_eq!(rig.turn().await, Next::Postponed(Duration::from_secs(1)), "no run starts");
    assert_eq!(rig.status.runs(), 1);
    let old = rig.dispatch.registry.get(rig.lane).unwrap();
    let sender = old.sender.clone();
    let idle = Closure(Box::new(|_, _| report(Ok(Outcome::Settled), Vec::new())));
    rig.dispatch.registry.put(spec(), Arc::new(idle), sender, rig.status.clone(), None, None);
    assert_eq!(rig.turn().await, Next::Settled, "the key was kept for the next version");
}

#[tokio::test(start_paused = true)]
async fn keys_that_wait_for_the_next_version_are_looked_at_less_and_less_often() {
    let mut rig = rig(|_, _| report(Ok(Outcome::Settled), Vec::new()));
    rig.grant_labels();
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    rig.add();
    assert!(rig.dispatch.registry.restrict(&spec()));
    let start = Instant::now();
    let mut looks = 0;
    while start.elapsed() < Duration::from_secs(600) {
        assert!(matches!(rig.turn().await, Next::Postponed(_)));
        looks += 1;
    }
    assert!(looks <= 30, "{looks} looks in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn after_a_cut_delivery_the_next_version_waits_for_a_live_read() {
    let cut = working(Work::Commit);
    let run = cut.begin().await;
    assert_eq!(cut.silent.asked.load(SeqCst), 1, "the write is under way");
    cut.load(spec(), Work::StageOnly);
    run.await.unwrap();
    let gates = &cut.rig.dispatch.expectations.gates;
    let view = cut.rig.dispatch.reader.snapshot();
    assert_eq!(gates.gate(cut.rig.lane, &pod(5).key, &*view, Instant::now()), Gate::ReadLive);
}

#[tokio::test(start_paused = true)]
async fn a_cut_delivery_is_charged_for_all_its_writes() {
    let cut = working(Work::Commit);
    let mut limited = granted();
    // A bucket of 20 tokens.
    limited.limits.requests.writes = 2;
    cut.load(limited.clone(), Work::Commit);
    cut.rig.dispatch.queue.claim_changed(cut.rig.lane);
    let run = cut.begin().await;
    cut.rig.dispatch.registry.restrict(&spec());
    run.await.unwrap();
    cut.load(limited, Work::StageOnly);
    let start = Instant::now();
    let dispatch = &cut.rig.dispatch;
    let job = dispatch.queue.next().await.unwrap();
    dispatch.queue.done(&job, Next::Settled);
    assert!(start.elapsed() > Duration::from_secs(4), "{:?}", start.elapsed());
}
