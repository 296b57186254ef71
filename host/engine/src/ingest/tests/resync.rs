//! When the Pods of a plugin with a resync are queued.

use std::collections::BTreeMap;

use super::{super::resync::Resyncs, *};

/// Returns a cache with a number of Pods of `shop`, and a plugin of that namespace with a resync.
fn resyncing(count: usize, every: Duration) -> (Writer, Reader, Arc<crate::dispatch::LoadedPlugin>) {
    let (mut writer, reader) = cache::new(7);
    let events =
        (0..count).map(|at| PodEvent::applied(pod(&format!("p{at:05}"), &format!("u{at}"), "web", 1 + at as u64)));
    writer.apply(events.collect()).publish();
    let registry = Registry::default();
    let mut spec = PluginSpec { watch: spec(Some("web")).watch, ..testing::plugin(Some("shop"), "tidy") };
    spec.watch.resync = Some(every);
    let body: Box<Body> = Box::new(|_, _| Box::pin(std::future::ready(Ok(Outcome::Settled))));
    let sender = Sender { manager: "podium/tidy".into(), impersonate: None };
    let lane = registry.put(spec, Arc::new(Closure(body)), sender, Arc::default(), None, None);
    (writer, reader, registry.get(lane).unwrap())
}

/// Returns when each Pod is queued until then.
fn queued(
    resyncs: &mut Resyncs,
    reader: &Reader,
    until: Instant,
) -> (BTreeMap<Arc<str>, Vec<Instant>>, BTreeMap<Instant, usize>) {
    let (mut of_pods, mut slices) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::new());
    while let Some(due) = resyncs.due().filter(|due| *due <= until) {
        let (_, keys) = resyncs.next(&reader.snapshot(), due).unwrap();
        *slices.entry(due).or_default() += keys.len();
        keys.into_iter().for_each(|key| of_pods.entry(key.uid).or_default().push(due));
    }
    (of_pods, slices)
}

#[test]
fn a_resync_queues_every_pod_once_and_never_many_at_once() {
    let start = Instant::now();
    for (count, every) in [(1, 10), (3, 10), (1_001, 10), (5_000, 60), (20_000, 10)] {
        let every = Duration::from_secs(every);
        let (_writer, reader, loaded) = resyncing(count, every);
        let mut resyncs = Resyncs::default();
        resyncs.plan(&loaded, &reader.snapshot(), start);
        let (pods, slices) = queued(&mut resyncs, &reader, start + every * 3);
        assert_eq!(pods.len(), count);
        for times in pods.values() {
            assert_eq!(times.len(), 3, "{count} Pods every {every:?}: {times:?}");
            assert!(times[0] <= start + every && times.windows(2).all(|pair| pair[1] - pair[0] == every), "{times:?}");
        }
        let slices_of_interval = (every.as_millis() / 100) as usize;
        assert!(slices.values().all(|pods| *pods <= count.div_ceil(slices_of_interval)), "{count}: {slices:?}");
    }
}

#[test]
fn pods_that_come_and_go_during_a_pass_do_not_stop_it() {
    let start = Instant::now();
    let every = Duration::from_secs(10);
    let (mut writer, reader, loaded) = resyncing(0, every);
    let mut resyncs = Resyncs::default();
    resyncs.plan(&loaded, &reader.snapshot(), start);
    assert_eq!(resyncs.due(), Some(start + every), "without Pods");
    let new = |at: usize, revision| pod(&format!("p{at:05}"), &format!("u{at}"), "web", revision + at as u64);
    writer.apply((0..500).map(|at| PodEvent::applied(new(at, 1))).collect()).publish();
    let half = queued(&mut resyncs, &reader, start + every * 3 / 2).0;
    assert!((240..=260).contains(&half.len()), "{}", half.len());
    writer.apply((0..499).map(|at| PodEvent::deleted(new(at, 1_000))).collect()).publish();
    let rest = queued(&mut resyncs, &reader, start + every * 4).0;
    assert_eq!(rest.keys().map(|uid| &**uid).collect::<Vec<_>>(), ["u499"]);
    assert!(rest["u499"].len() >= 2, "{rest:?}");
    resyncs.retain(|_| false);
    assert_eq!(resyncs.due(), None);
}

#[tokio::test(start_paused = true)]
async fn a_resync_runs_a_plugin_again_once_for_each_group() {
    let mut harness = Harness::plain(Backoff::default());
    let apps = ["api", "cart", "web"];
    for at in 0..30 {
        harness.apply(pod(&format!("{}-{at:02}", apps[at % 3]), &format!("u{at}"), apps[at % 3], 1 + at as u64));
    }
    let (named, body) = groups::naming(|_| Ok(Outcome::Settled));
    let mut spec = groups::by_app();
    spec.watch.resync = Some(Duration::from_secs(10));
    harness.load_spec(spec, body);
    harness.work(1);
    harness.settle().await;
    let assert_each_has_run = || {
        let mut runs = groups::taken(&named);
        runs.sort_unstable();
        assert_eq!(runs, ["api-00", "cart-01", "web-02"]);
    };
    assert_each_has_run();
    let Harness { ingest, observed, workers: _workers, .. } = harness;
    let running = tokio::spawn(ingest.run());
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(10_050)).await;
        assert_each_has_run();
    }
    drop(observed);
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_loop_runs_a_plugin_again_on_each_pod() {
    let mut harness = Harness::plain(Backoff::default());
    let (delivered, body) = noting(|_| Ok(Outcome::Settled));
    (0..10).for_each(|at| harness.apply(pod(&format!("p{at}"), &format!("u{at}"), "web", 1 + at)));
    harness.load_with(Some("web"), Some(Duration::from_secs(10)), body);
    harness.work(1);
    harness.settle().await;
    assert_eq!(delivered.lock().len(), 10, "after the load");
    let Harness { ingest, observed, workers: _workers, .. } = harness;
    let running = tokio::spawn(ingest.run());
    tokio::time::sleep(Duration::from_millis(5_050)).await;
    assert_eq!(delivered.lock().len(), 15, "one each second");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(delivered.lock().len(), 20);
    drop(observed);
    running.await.unwrap();
}
