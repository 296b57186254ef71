//! Claims about probes of a new version.

use super::*;

const TRAP: &str = "unreachable";

/// A version that makes the calls of `body`, waits for them, and answers `result`.
struct Version<F>(F);

impl<F, R> Reconcile for Version<F>
where
    F: Fn(Request, Box<dyn World>) -> R + Send + Sync,
    R: Future<Output = Result<Outcome, Failure>> + Send,
{
    fn reconcile(&self, request: Request, world: Box<dyn World>) -> BoxFuture<'_, RunReport<Staged>> {
        Box::pin(async move {
            let result = (self.0)(request, world).await;
            RunReport { result, staged: Staged::default(), usage: Usage::default() }
        })
    }

    fn instantiate(&self, _: Box<dyn World>) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(std::future::ready(Err(trap())))
    }
}

fn trap() -> Failure {
    Failure { kind: FailureKind::Trap, message: TRAP.to_owned() }
}

fn settled() -> RunReport<Staged> {
    RunReport { result: Ok(Outcome::Settled), staged: Staged::default(), usage: Usage::default() }
}

/// A rig with a number of Pods, and the version that runs.
fn rig_of(pods: u64) -> (Rig, Arc<LoadedPlugin>) {
    let mut rig = rig(|_, _| settled());
    let pod = |number: u64| {
        let mut pod = podium_wire::Pod::default();
        pod.header.namespace = "shop".into();
        pod.header.name = format!("cart-{number}");
        pod.header.uid = format!("u{number}");
        pod.header.resource_version = (number + 1).to_string();
        PodEvent::applied(Arc::new(CachedPod::new(&pod).unwrap()))
    };
    rig.writer.apply((0..pods).map(pod).collect());
    let loaded = rig.dispatch.registry.get(rig.lane).unwrap();
    (rig, loaded)
}

async fn probe(rig: &Rig, before: &Arc<LoadedPlugin>, version: &dyn Reconcile) -> Result<usize, String> {
    rig.dispatch.probe(before, &spec(), version, None, Arc::new(|| true)).await
}

#[tokio::test(start_paused = true)]
async fn a_probe_runs_on_at_most_eight_pods_and_the_same_ones_each_time() {
    let (rig, before) = rig_of(100);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let version = Version(|request: Request, _| {
        seen.lock().push(request.key.name);
        std::future::ready(Ok(Outcome::Settled))
    });
    assert_eq!(probe(&rig, &before, &version).await, Ok(8));
    let first = std::mem::take(&mut *seen.lock());
    assert_eq!(probe(&rig, &before, &version).await, Ok(8));
    assert_eq!(*seen.lock(), first);
    assert!(first.iter().collect::<BTreeSet<_>>().len() == 8, "{first:?}");
}

#[tokio::test(start_paused = true)]
async fn a_probe_changes_no_state_reads_nothing_live_and_ends_at_a_commit() {
    let (rig, before) = rig_of(3);
    before.state.lock().put("k", vec![1], None).unwrap();
    let version = Version(async |_: Request, mut world: Box<dyn World>| {
        let Some(entry) = world.state_get("k") else { return Err(trap()) };
        world.state_put("k", vec![entry.value[0] + 1], Some(entry.version)).unwrap();
        let live = world.live("shop", "cart-0").await;
        assert!(matches!(live, Err(Refused::Unavailable(_))), "{live:?}");
        world.commit(Staged::default()).await;
        Err(trap())
    });
    assert_eq!(probe(&rig, &before, &version).await, Ok(3), "what follows the commit is not run");
    assert_eq!(before.state.lock().get("k").unwrap().value, [1]);
    assert!(rig.script.sent.lock().is_empty() && !rig.server.asked.load(SeqCst));
    assert_eq!(rig.status.runs(), 0, "a probe is no run of the plugin");
}

#[tokio::test(start_paused = true)]
async fn only_a_trap_or_an_exceeded_limit_fails_a_probe() {
    let (rig, before) = rig_of(2);
    for kind in FailureKind::ALL {
        let version = Version(move |_, _| std::future::ready(Err(Failure { kind, message: TRAP.to_owned() })));
        let result = probe(&rig, &before, &version).await;
        assert_eq!(result.is_err(), kind.is_panic(), "{kind:?}: {result:?}");
        if let Err(failure) = result {
            let expected = format!(", reason {}: {TRAP}", kind.name());
            assert!(failure.starts_with("on pod shop/cart-") && failure.ends_with(&expected), "{failure}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_pod_an_instance_is_created() {
    let (rig, before) = rig_of(0);
    let version = Version(|_, _| std::future::ready(Ok(Outcome::Settled)));
    assert_eq!(probe(&rig, &before, &version).await, Err(format!("at its start, reason trap: {TRAP}")));
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_was_superseded_has_no_more_rights_and_ends() {
    let (rig, before) = rig_of(3);
    let wanted = Arc::new(AtomicBool::new(true));
    let runs = AtomicUsize::new(0);
    let version = Version(|_: Request, world: Box<dyn World>| {
        assert!(!world.is_revoked());
        wanted.store(false, SeqCst);
        assert!(world.is_revoked());
        runs.fetch_add(1, SeqCst);
        std::future::ready(Ok(Outcome::Settled))
    });
    let is_wanted = wanted.clone();
    let probed = rig.dispatch.probe(&before, &spec(), &version, None, Arc::new(move || is_wanted.load(SeqCst))).await;
    assert_eq!((probed, runs.load(SeqCst)), (Ok(1), 1));
}

fn debt(rig: &Rig) -> Duration {
    rig.dispatch.queue.tenants().values().map(|tenant| tenant.debt).sum()
}

/// A version each of whose runs reports 7 ms of processor time.
struct Costly;

impl Reconcile for Costly {
    fn reconcile(&self, _: Request, _: Box<dyn World>) -> BoxFuture<'_, RunReport<Staged>> {
        let usage = Usage { cpu: Duration::from_millis(7), ..Usage::default() };
        Box::pin(std::future::ready(RunReport { usage, ..settled() }))
    }

    fn instantiate(&self, _: Box<dyn World>) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(2)).await;
            Ok(())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn the_tenant_is_charged_for_the_runs_of_a_probe() {
    let (rig, before) = rig_of(3);
    assert_eq!(debt(&rig), Duration::ZERO);
    assert_eq!(probe(&rig, &before, &Costly).await, Ok(3));
    assert_eq!((debt(&rig), rig.status.cpu()), (Duration::from_millis(3 * 7), Duration::from_millis(3 * 7)));
    let (rig, before) = rig_of(0);
    assert_eq!(probe(&rig, &before, &Costly).await, Ok(0));
    assert_eq!(
        (debt(&rig), rig.status.cpu()),
        (Duration::from_millis(2), Duration::from_millis(2)),
        "the time of an instance, which has no report"
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_of_a_probe_that_commits_is_charged_for_its_time_up_to_its_limit() {
    for (slept, charged) in [(5, 5), (60_000, spec().limits.cpu.as_millis() as u64)] {
        let (rig, before) = rig_of(1);
        let version = Version(async |_: Request, mut world: Box<dyn World>| {
            tokio::time::sleep(Duration::from_millis(slept)).await;
            world.commit(Staged::default()).await;
            Err(trap())
        });
        assert_eq!(probe(&rig, &before, &version).await, Ok(1));
        assert_eq!(debt(&rig), Duration::from_millis(charged));
        assert_eq!(rig.status.cpu(), Duration::from_millis(charged));
    }
}
