//! Plugins that are loaded, replaced and removed while there are Pods and runs.

use podium_vocabulary::Shards;

use super::*;

/// A run under way, also until it is dropped: the runs at present, and the most at once.
struct UnderWay(Arc<Mutex<(i32, i32)>>);

impl UnderWay {
    fn new(runs: Arc<Mutex<(i32, i32)>>) -> Self {
        {
            let mut runs = runs.lock();
            runs.0 += 1;
            runs.1 = runs.0.max(runs.1);
        }
        Self(runs)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.lock().0 -= 1;
    }
}

#[tokio::test(start_paused = true)]
async fn a_reloaded_plugin_waits_for_its_previous_run_on_the_same_pod() {
    let mut harness = Harness::plain(Backoff::default());
    let runs = Arc::new(Mutex::new((0, 0)));
    let most = Arc::new(tokio::sync::Semaphore::new(0));
    let body = || {
        let runs = runs.clone();
        let go = most.clone();
        move |_: Request, _: Delivered| {
            let runs = runs.clone();
            let go = go.clone();
            async move {
                let _run = UnderWay::new(runs);
                go.acquire().await.unwrap().forget();
                Ok(Outcome::Settled)
            }
        }
    };
    harness.load(None, body());
    harness.work(2);
    harness.apply(pod("cart-0", "u1", "web", 5));
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    harness.unload();
    harness.load(None, body());
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!(*runs.lock(), (1, 1), "running now, and most at once");
    most.add_permits(2);
    harness.settle().await;
    assert_eq!((*runs.lock(), harness.status.runs()), ((0, 1), 2), "the plugin that was loaded again has had no run");
}

#[tokio::test(start_paused = true)]
async fn a_version_that_replaces_another_one_runs_on_all_pods() {
    let mut harness = Harness::plain(Backoff::default());
    let pods = (0..2_500).map(|at| Record::from(pod(&format!("cart-{at}"), &format!("u{at}"), "web", 5)));
    harness.list(pods.collect(), 9);
    let ran = Arc::new(Mutex::new(0));
    let counted = ran.clone();
    let body = move |_, _| -> BoxFuture<'static, RunOutcome> {
        *counted.lock() += 1;
        Box::pin(std::future::ready(Ok(Outcome::Settled)))
    };
    let sender = Sender { manager: "podium/tidy".into(), impersonate: None };
    let registry = harness.dispatch.registry.clone();
    let status = harness.status.clone();
    let lane = registry.put(spec(None), Arc::new(Closure(Box::new(body))), sender, status, None, None);
    harness.work(1);
    let swapped = |harness: &mut Harness| harness.ingest.plugins_changed(Some((lane, Why::LOAD)), oneshot::channel().0);
    swapped(&mut harness);
    harness.ingest.sweep();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(*ran.lock(), SLICE);
    swapped(&mut harness);
    harness.turn();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(*ran.lock(), SLICE + 2_500);
}

#[tokio::test(start_paused = true)]
async fn changes_of_plugins_that_come_at_once_are_taken_over_once() {
    let mut harness = Harness::plain(Backoff::default());
    harness.ingest.follow_registry();
    assert!(!harness.ingest.follow_registry(), "nothing has changed");
    let others = harness.ingest.interests.lanes().len();
    let registry = harness.dispatch.registry.clone();
    let put = |name: &str| {
        let reconcile = Arc::new(Closure(Box::new(|_, _| Box::pin(std::future::ready(Ok(Outcome::Settled))))));
        let sender = Sender { manager: format!("podium/{name}"), impersonate: None };
        let id = PluginId { namespace: Some("shop".into()), name: name.into() };
        registry.put(PluginSpec { id, ..spec(None) }, reconcile, sender, Arc::default(), None, None)
    };
    let names: Vec<_> = (0..100).map(|at| format!("p{at}")).collect();
    names.iter().for_each(|name| _ = put(name));
    let taken = |harness: &mut Harness| {
        let taken = names.iter().filter(|_| harness.ingest.follow_registry()).count();
        (taken, harness.ingest.interests.lanes().len())
    };
    assert_eq!(taken(&mut harness), (1, others + 100));
    put("p7");
    assert_eq!(taken(&mut harness), (1, others + 100), "a version that replaces another one");
    for name in &names {
        registry.remove(&PluginId { namespace: Some("shop".into()), name: name.as_str().into() });
    }
    assert_eq!(taken(&mut harness), (1, others));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_plugin_is_about_the_plugins_of_its_tenant() {
    let mut harness = Harness::plain(Backoff::default());
    let registry = harness.dispatch.registry.clone();
    let put = |namespace: Option<&str>, name: &str| {
        let reconcile = Arc::new(Closure(Box::new(|_, _| Box::pin(std::future::ready(Ok(Outcome::Settled))))));
        let sender = Sender { manager: format!("podium/{name}"), impersonate: None };
        let id = PluginId { namespace: namespace.map(Into::into), name: name.into() };
        registry.put(PluginSpec { id, ..spec(None) }, reconcile, sender, Arc::default(), None, None)
    };
    (0..50).for_each(|at| _ = put(Some("bank"), &format!("p{at}")));
    harness.ingest.follow_registry();
    let expected = [put(Some("shop"), "b"), put(Some("shop"), "a")];
    put(None, "c");
    registry.remove(&PluginId { namespace: None, name: "c".into() });
    let changed = registry.take_changed();
    let lanes = changed.iter().map(|(namespace, plugins)| {
        let lanes = plugins.iter().map(|loaded| loaded.lane).filter(|lane| expected.contains(lane));
        (namespace.as_deref(), lanes.collect::<Vec<_>>(), plugins.len() < 4)
    });
    assert_eq!(lanes.collect::<Vec<_>>(), [(None, vec![], true), (Some("shop"), expected.to_vec(), true)]);
}

#[tokio::test(start_paused = true)]
async fn events_are_handled_while_many_pods_of_a_plugin_are_queued() {
    let mut harness = Harness::plain(Backoff::default());
    let pods =
        |number: u64| (0..number).map(|at| Record::from(pod(&format!("cart-{at}"), &format!("u{at}"), "web", 5)));
    harness.list(pods(3_500).collect(), 9);
    let reconcile = Arc::new(Closure(Box::new(|_, _| Box::pin(std::future::ready(Ok(Outcome::Settled))))));
    let sender = Sender { manager: "podium/tidy".into(), impersonate: None };
    let dispatch = harness.dispatch.clone();
    let status = harness.status.clone();
    let lane = dispatch.registry.put(spec(None), reconcile, sender, status, None, None);
    let Harness { mut ingest, observed, .. } = harness;
    let (done, mut queued) = oneshot::channel();
    ingest.plugins_changed(Some((lane, Why::LOAD)), done);
    // More observations than one iteration handles, so the loop yields.
    observed.try_send(Observation::Events(vec![PodEvent::applied(pod("cart-x", "ux", "web", 10))])).unwrap();
    let mut running = Box::pin(ingest.run());
    let mut slices = 0;
    while queued.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
        assert!(FutureExt::now_or_never(running.as_mut()).is_none());
        slices += 1;
        let depth = dispatch.queue.depth(lane);
        assert!(depth <= (slices + 1) * (SLICE + 1), "{depth} after {slices} turns");
        assert!(dispatch.reader.snapshot().by_uid("ux").is_some(), "the event waits for the plugin");
        tokio::task::yield_now().await;
    }
    assert_eq!((dispatch.queue.depth(lane), slices > 2), (3_501, true), "{slices} turns");
}

/// Returns a harness in which this number of Pods were deleted during a standby that has ended.
fn after_a_standby(count: usize) -> Harness {
    let mut harness = Harness::plain(Backoff::default());
    let pods = (0..count).map(|at| Record::from(pod(&format!("cart-{at}"), &format!("u{at}"), "web", 5)));
    harness.list(pods.collect(), 9);
    let gone = harness.ingest.gone.clone();
    gone.begin_standby(Shards::ALL, Revision(9), Vec::new);
    harness.list(PodList::default(), 10);
    assert_eq!(gone.end_standby(Shards::ALL), (count, 0));
    harness
}

#[tokio::test(start_paused = true)]
async fn a_takeover_queues_the_deletions_of_the_standby_in_slices() {
    let count = 3 * SLICE + 7;
    let mut harness = after_a_standby(count);
    let (_, body) = noting(|_| Ok(Outcome::Settled));
    harness.load(None, body);
    assert_eq!((harness.dispatch.queue.depth(harness.lane), harness.most), (count, SLICE));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_replaces_another_one_gets_the_rest_of_the_deletions() {
    let mut harness = after_a_standby(2 * SLICE + 7);
    let reconcile = Arc::new(Closure(Box::new(|_, _| Box::pin(std::future::ready(Ok(Outcome::Settled))))));
    let sender = Sender { manager: "podium/tidy".into(), impersonate: None };
    let status = Arc::<PluginStatus>::default();
    let lane = harness.dispatch.registry.put(spec(None), reconcile, sender, status.clone(), None, None);
    for _ in 0..2 {
        harness.ingest.plugins_changed(Some((lane, Why::LOAD)), oneshot::channel().0);
        harness.ingest.sweep();
    }
    harness.apply(pod("cart-x", "ux", "web", 11));
    harness.delete(pod("cart-x", "ux", "web", 12));
    assert_eq!((harness.dispatch.queue.depth(lane), status.adds.get()), (2 * SLICE + 8, 2 * SLICE as u64 + 10));
}

#[tokio::test(start_paused = true)]
async fn a_second_plugin_of_a_tenant_displaces_its_deletions_in_slices() {
    const ALL: usize = 4_000;
    let bounds = Bounds { all: ALL, ..Bounds::default() };
    let mut harness = Harness::new(Backoff::default(), bounds, None);
    let registry = harness.dispatch.registry.clone();
    let put = |name: &str| {
        let reconcile = Arc::new(Closure(Box::new(|_, _| Box::pin(std::future::ready(Ok(Outcome::Settled))))));
        let sender = Sender { manager: format!("podium/{name}"), impersonate: None };
        let id = PluginId { namespace: Some("shop".into()), name: name.into() };
        registry.put(PluginSpec { id, ..spec(None) }, reconcile, sender, Arc::default(), None, None)
    };
    let lane = put("first");
    harness.ingest.follow_registry();
    let pods = (0..ALL).map(|at| Record::from(pod(&format!("cart-{at}"), &format!("u{at}"), "web", 5)));
    harness.list(pods.collect(), 9);
    harness.list(PodList::default(), 10);
    let kept = |harness: &Harness| harness.dispatch.expectations.tombstones.figures(lane).all;
    assert_eq!(kept(&harness), ALL);
    put("second");
    harness.ingest.follow_registry();
    let mut before = ALL;
    while kept(&harness) > ALL / 2 {
        assert!((1..=500).contains(&(before - kept(&harness))), "{before} and then {}", kept(&harness));
        before = kept(&harness);
        assert!(harness.ingest.is_sweeping(), "the loop goes on");
        harness.ingest.sweep();
    }
    assert_eq!((kept(&harness), before - ALL / 2 <= 500), (ALL / 2, true));
    harness.ingest.sweep();
    assert!(!harness.ingest.is_sweeping());
}
