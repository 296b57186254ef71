//! Budgets of requests: runs wait for tokens, and their deliveries are sent into debt.

use podium_vocabulary::RequestRates;
use tokio::time::advance;

use super::*;
use crate::dispatch::budget;

const RATES: RequestRates = RequestRates { writes: 5, live_reads: 2, events: 1 };
const BURST: usize = 50;

pub(super) fn named(name: &str, revision: usize) -> Arc<CachedPod> {
    let mut pod = podium_wire::Pod::default();
    pod.header.namespace = "shop".into();
    pod.header.name = name.into();
    pod.header.uid = name.into();
    pod.header.resource_version = revision.to_string();
    Arc::new(CachedPod::new(&pod).unwrap())
}

impl Rig {
    /// Loads the plugin again with low rates and a right to write, and adds keys of `pods` Pods.
    fn limited(&mut self, pods: usize) {
        let old = self.dispatch.registry.get(self.lane).unwrap();
        let mut spec = PluginSpec::clone(&old.spec);
        spec.grants.write.labels = vec![KeyPattern("team".into())];
        spec.limits.requests = RATES;
        self.dispatch.registry.put(spec, old.reconcile.clone(), old.sender.clone(), self.status.clone(), None, None);
        self.dispatch.queue.claim_changed(self.lane);
        let names: Vec<_> = (0..pods).map(|index| format!("cart-{index}")).collect();
        let events = names.iter().zip(1..).map(|(name, revision)| PodEvent::applied(named(name, revision)));
        self.writer.apply(events.collect());
        let keys = names.iter().map(|name| (self.lane, ("shop".into(), (**name).into()), (**name).into()));
        self.dispatch.queue.add(keys);
    }

    /// Runs due keys for this time.
    async fn work_for(&self, time: Duration) {
        let work = async {
            loop {
                self.turn().await;
            }
        };
        let _ = tokio::time::timeout(time, work).await;
    }

    fn sent(&self) -> usize {
        self.script.sent.lock().len()
    }

    fn of_tenant(&self) -> crate::queue::TenantFigures {
        self.dispatch.queue.tenants()[&1]
    }
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_always_writes_sends_its_rate_and_its_burst() {
    let mut rig = rig(|request, _| report(Ok(Outcome::RequeueAfter(Duration::ZERO)), vec![label(&request)]));
    // A value a field each 12 s: no loop.
    rig.limited(70);
    rig.work_for(Duration::from_secs(60)).await;
    let expected = BURST + 5 * 60;
    assert!((expected - 1..=expected).contains(&rig.sent()), "{} writes", rig.sent());
    assert_eq!(rig.of_tenant().without_tokens, rig.of_tenant().waiting);
    assert!(rig.status.writes().keys().all(|result| *result == "applied"), "runs wait, and not their writes");
}

#[tokio::test(start_paused = true)]
async fn after_a_storm_every_key_has_settled_and_the_burst_is_full() {
    let mut rig = rig(|request, _| report(Ok(Outcome::Settled), vec![label(&request)]));
    rig.limited(200);
    rig.work_for(Duration::from_secs(1)).await;
    assert!((BURST..BURST + 10).contains(&rig.sent()), "{} writes", rig.sent());
    rig.work_for(Duration::from_secs(60)).await;
    assert_eq!(rig.sent(), 200);
    assert!(rig.dispatch.queue.is_idle() && rig.of_tenant().without_tokens == 0);
    rig.limited(BURST);
    let start = Instant::now();
    while rig.sent() < 200 + BURST {
        rig.turn().await;
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_may_not_write_starts_without_tokens() {
    let mut rig = rig(|_, _| report(Ok(Outcome::Settled), Vec::new()));
    rig.limited(0);
    let old = rig.dispatch.registry.get(rig.lane).unwrap();
    let spec = PluginSpec { grants: Grants::default(), ..PluginSpec::clone(&old.spec) };
    rig.dispatch.registry.put(spec, old.reconcile.clone(), old.sender.clone(), rig.status.clone(), None, None);
    rig.add();
    let job = rig.dispatch.queue.next().await.unwrap();
    rig.dispatch.queue.spend(&job, budget::WRITES, 10_000);
    rig.dispatch.queue.done(&job, Next::Settled);
    rig.add();
    let start = Instant::now();
    rig.turn().await;
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_event_of_the_host_about_a_plugin_costs_a_token_of_its_tenant() {
    let mut rig = rig(|request, _| report(Ok(Outcome::Settled), vec![label(&request)]));
    rig.limited(1);
    let old = rig.dispatch.registry.get(rig.lane).unwrap();
    let mut spec = PluginSpec::clone(&old.spec);
    spec.grants.write.events = true;
    rig.dispatch.registry.put(spec, old.reconcile.clone(), old.sender.clone(), rig.status.clone(), None, None);
    let verb = "patch";
    let resource = "pods".to_owned();
    let namespace = None;
    rig.script.closings.lock().push(Closing { verb, resource, namespace, wait: Duration::ZERO, is_first: true });
    rig.turn().await;
    rig.add();
    let job = rig.dispatch.queue.next().await.unwrap();
    // Of a bucket of ten.
    rig.dispatch.queue.spend(&job, budget::EVENTS, 8);
    assert!(rig.dispatch.queue.has_tokens(&job, budget::EVENTS, 1));
    rig.dispatch.queue.spend(&job, budget::EVENTS, 1);
    assert!(!rig.dispatch.queue.has_tokens(&job, budget::EVENTS, 1));
}

#[tokio::test(start_paused = true)]
async fn live_reads_after_a_long_cut_are_within_the_rate_of_the_tenant() {
    for writes in [true, false] {
        read_after_a_cut(writes).await;
    }
}

/// With `writes`, the plugin may still write.
async fn read_after_a_cut(writes: bool) {
    let mut rig = rig(|_, _| report(Ok(Outcome::Settled), Vec::new()));
    rig.limited(200);
    if !writes {
        let old = rig.dispatch.registry.get(rig.lane).unwrap();
        let spec = PluginSpec { grants: Grants::default(), ..PluginSpec::clone(&old.spec) };
        rig.dispatch.registry.put(spec, old.reconcile.clone(), old.sender.clone(), rig.status.clone(), None, None);
        rig.dispatch.queue.claim_changed(rig.lane);
    }
    let shown = Shown::Revision(Revision(10_000));
    let expected: Vec<_> =
        (0..200).map(|index| Expectation { key: named(&format!("cart-{index}"), 1).key.clone(), shown }).collect();
    let Dispatch { expectations, reader, .. } = &*rig.dispatch;
    expectations.gates.expect(rig.lane, &expected, reader, Instant::now());
    advance(Duration::from_secs(60)).await;
    rig.work_for(Duration::from_secs(1)).await;
    let reads = rig.server.reads.load(SeqCst);
    assert!((BURST..BURST + 10).contains(&reads), "{reads} reads");
}

/// Commits until two commits were sent, and stages a write for the end of the run.
#[derive(Default)]
struct Eager {
    committed: AtomicUsize,
    /// The commits that were not sent in each run.
    refused: Mutex<Vec<usize>>,
}

impl Reconcile for Eager {
    fn reconcile(&self, request: Request, mut world: Box<dyn World>) -> BoxFuture<'_, RunReport<Staged>> {
        Box::pin(async move {
            assert_eq!(request.unsettled, [], "writes for the end of a run are sent");
            let mut refused = 0;
            for _ in self.committed.load(SeqCst)..2 {
                let reports = world.commit(report(Ok(Outcome::Settled), vec![label(&request)]).staged).await;
                match &reports[0].result {
                    WriteResult::NotSent => refused += 1,
                    _ => _ = self.committed.fetch_add(1, SeqCst),
                }
            }
            self.refused.lock().push(refused);
            report(Ok(Outcome::Settled), vec![label(&request)])
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_without_a_token_is_not_sent_and_the_key_is_run_again() {
    let mut rig = rig(|_, _| unreachable!("another plugin is loaded"));
    let old = rig.dispatch.registry.get(rig.lane).unwrap();
    let eager = Arc::new(Eager::default());
    let sender = old.sender.clone();
    let status = rig.status.clone();
    rig.dispatch.registry.put(old.spec.clone(), eager.clone(), sender, status, None, None);
    rig.limited(1);
    // No token is left for the run.
    let job = rig.dispatch.queue.next().await.unwrap();
    rig.dispatch.queue.spend(&job, budget::WRITES, u32::try_from(BURST).unwrap());
    assert!(matches!(rig.finish(job).await, Next::Again(_)), "the key does not settle");
    assert_eq!((rig.sent(), eager.refused.lock().clone()), (1, vec![2]), "the delivery of the run is sent into debt");
    assert_eq!(rig.of_tenant().refused[budget::WRITES], 2);
    rig.work_for(Duration::from_secs(60)).await;
    assert_eq!(*eager.refused.lock(), [2, 1, 0]);
    assert!(rig.dispatch.queue.is_idle());
}

/// Commits, and fails permanently if the commit was not sent.
struct Hopeless;

impl Reconcile for Hopeless {
    fn reconcile(&self, request: Request, mut world: Box<dyn World>) -> BoxFuture<'_, RunReport<Staged>> {
        Box::pin(async move {
            let reports = world.commit(report(Ok(Outcome::Settled), vec![label(&request)]).staged).await;
            let is_sent = reports[0].result != WriteResult::NotSent;
            let failure = Failure { kind: FailureKind::Terminal, message: "no".into() };
            report(if is_sent { Ok(Outcome::Settled) } else { Err(failure) }, Vec::new())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_final_failure_after_an_unsent_commit_does_not_settle_the_key() {
    let mut rig = rig(|_, _| unreachable!("another plugin is loaded"));
    let old = rig.dispatch.registry.get(rig.lane).unwrap();
    let sender = old.sender.clone();
    let status = rig.status.clone();
    rig.dispatch.registry.put(old.spec.clone(), Arc::new(Hopeless), sender, status, None, None);
    rig.limited(1);
    let job = rig.dispatch.queue.next().await.unwrap();
    rig.dispatch.queue.spend(&job, budget::WRITES, u32::try_from(BURST).unwrap());
    assert!(matches!(rig.finish(job).await, Next::Again(_)));
    rig.work_for(Duration::from_secs(60)).await;
    assert_eq!(rig.sent(), 1);
}

/// Reads live until that is refused.
struct Curious(AtomicUsize);

impl Reconcile for Curious {
    fn reconcile(&self, _: Request, mut world: Box<dyn World>) -> BoxFuture<'_, RunReport<Staged>> {
        Box::pin(async move {
            for _ in 0..10 {
                match world.live("shop", "cart-0").await {
                    Ok(_) => self.0.fetch_add(1, SeqCst),
                    Err(Refused::Unavailable(text)) => {
                        assert_eq!(text, budget::NO_LIVE_READS);
                        break;
                    }
                    Err(other) => panic!("{other:?}"),
                };
            }
            report(Ok(Outcome::RequeueAfter(Duration::ZERO)), Vec::new())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn live_reads_beyond_the_budget_are_refused_and_not_sent() {
    let mut rig = rig(|_, _| unreachable!("another plugin is loaded"));
    let dispatch = Arc::get_mut(&mut rig.dispatch).unwrap();
    dispatch.live = Arc::new(Nowhere);
    let old = rig.dispatch.registry.get(rig.lane).unwrap();
    let curious = Arc::new(Curious(AtomicUsize::new(0)));
    let sender = old.sender.clone();
    let status = rig.status.clone();
    rig.dispatch.registry.put(old.spec.clone(), curious.clone(), sender, status, None, None);
    rig.limited(20);
    rig.work_for(Duration::from_secs(60)).await;
    let reads = curious.0.load(SeqCst);
    let most = 20 + 2 * 60;
    assert!((most - 20..=most).contains(&reads), "{reads} live reads of {most}");
    assert!(rig.of_tenant().refused[budget::LIVE_READS] > 0);
    assert!(rig.status.runs() < 200, "{} runs for nothing", rig.status.runs());
}

#[tokio::test(start_paused = true)]
async fn the_policy_of_a_tenant_bounds_its_plugins_together() {
    let mut rig = rig(|request, _| report(Ok(Outcome::RequeueAfter(Duration::ZERO)), vec![label(&request)]));
    rig.dispatch.registry.set_rates(spec().tenant(), RequestRates { writes: 1, ..RATES });
    rig.limited(20);
    advance(Duration::from_secs(60)).await;
    rig.work_for(Duration::from_secs(60)).await;
    // The burst, one a second, and the token that the key had while it was not run.
    assert!((70..=71).contains(&rig.sent()), "{} writes", rig.sent());
}

#[tokio::test(start_paused = true)]
async fn another_policy_bounds_plugins_that_are_loaded() {
    let mut rig = rig(|request, _| report(Ok(Outcome::RequeueAfter(Duration::ZERO)), vec![label(&request)]));
    rig.limited(20);
    let registry = &rig.dispatch.registry;
    let queue = &rig.dispatch.queue;
    let slow = RequestRates { writes: 1, ..RATES };
    let changed = registry.replace_rates(|_| slow);
    assert_eq!(changed, [rig.lane]);
    changed.into_iter().for_each(|lane| queue.claim_changed(lane));
    assert_eq!(registry.replace_rates(|_| slow), []);
    advance(Duration::from_secs(60)).await;
    rig.work_for(Duration::from_secs(60)).await;
    assert!((70..=71).contains(&rig.sent()), "{} writes", rig.sent());
}
