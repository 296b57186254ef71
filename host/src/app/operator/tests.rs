use parking_lot::Mutex;
use podium_engine::{
    ingest::GonePods,
    ports::Usage,
    queue::{Backoff, Queue},
};
use podium_lease::Part;
use podium_pods::{
    cache,
    testing::{NASTY, assert_clean},
};
use podium_vocabulary::Limits;
use tokio::sync::mpsc;

use super::{
    super::watchdog::{Steps, Watched, is_waiting},
    *,
};

/// Returns a host without plugins.
pub(in crate::app) fn observed(status: Arc<Status>, phase: watch::Receiver<Phase>) -> Observed {
    let (_writer, reader) = cache::new(1);
    Observed {
        status,
        registry: Arc::default(),
        queue: Arc::new(Queue::new(Backoff::default(), 1, 1)),
        most_runs: 1,
        requests: Arc::default(),
        expectations: Arc::default(),
        closed: Box::new(Vec::new),
        explain: Box::new(|_, _, _| Vec::new()),
        held: Box::new(Vec::new),
        reader,
        journal: None,
        phase,
        removals: Box::new(Vec::new),
        policy_file: None,
        stalled: Box::new(|| None),
        watchdog: Arc::default(),
        leadership: None,
        gone: Arc::new(GonePods::new(podium_lease::Mark::hash)),
        other_holds: None,
        outbox: None,
    }
}

#[test]
fn readyz_waits_for_the_first_load_and_lists_failures() {
    let (progress, phase) = watch::channel(Phase::Loading);
    let status = Arc::<Status>::default();
    let stalled = Arc::<Mutex<Option<String>>>::default();
    let stall = stalled.clone();
    let stalled_now = Box::new(move || stall.lock().clone());
    let observed = Observed { stalled: stalled_now, ..observed(status.clone(), phase) };
    let [good, bad] = ["good", "bad"].map(|name| PluginId { namespace: Some("shop".into()), name: name.into() });
    status.set_load(&good, LoadState::Loaded, true);
    status.set_load(&bad, LoadState::Loading, false);
    let failures = |observed: &Observed| {
        let checks = observed.readiness().checks.into_iter().filter(|check| check.name != "watch");
        checks.filter_map(|check| Some((check.name, check.required, check.failure?))).collect::<Vec<_>>()
    };
    let loading = ("plugins".to_owned(), true, "still loading: shop/bad".to_owned());
    assert_eq!(failures(&observed), [loading, ("plugin/shop/bad".to_owned(), false, "loading".to_owned())]);

    status.set_load(&bad, LoadState::Refused { reason: "secret".to_owned() }, false);
    progress.send_replace(Phase::Serving);
    assert_eq!(failures(&observed), [("plugin/shop/bad".to_owned(), false, "refused".to_owned())]);
    status.set_load(&bad, LoadState::Waiting { reason: "secret".to_owned(), attempts: 2 }, true);
    let waiting = "waiting, an earlier version runs".to_owned();
    assert_eq!(failures(&observed), [("plugin/shop/bad".to_owned(), false, waiting)]);

    status.set_load(&bad, LoadState::Suspended, false);
    assert_eq!(failures(&observed), []);
    assert!(observed.readiness().render(true).contains("[+]plugin/shop/bad ok: suspended\n"));

    *stalled.lock() = Some(NASTY.repeat(100));
    observed.readiness().render(true).lines().for_each(|line| assert_clean(line, 3 << 10));
    assert_eq!(observed.readiness().render(true).lines().count(), 8);

    let usage = Usage { host_calls: 7, ..Usage::default() };
    status.plugin(&good).used(&usage, &Limits::default());
    let line = "[+]plugin/shop/good ok: used by the last run (peak) of limit: hostCalls 7 (7) of 1000\n";
    assert!(observed.readiness().render(true).contains(line), "{}", observed.readiness().render(true));

    // It was unloaded since its state was copied.
    let gone = PluginId { namespace: Some("shop".into()), name: "gone".into() };
    assert_eq!((observed.uses(&gone), status.plugins().len()), (None, 1), "no figures are created");

    *stalled.lock() = Some("no ticks".to_owned());
    assert_eq!(failures(&observed), [("interruption".to_owned(), true, "no ticks".to_owned())]);
    *stalled.lock() = None;

    let (sender, _receiver) = mpsc::channel(1);
    sender.try_send(()).unwrap();
    let what = "events wait, and none was processed";
    observed.watchdog.watch(Watched::new(Part::Ingest, what, Steps::default(), is_waiting(&sender)));
    (0..30).for_each(|_| observed.watchdog.tick());
    assert_eq!(failures(&observed), [("progress".to_owned(), true, format!("{what} for 30 s"))]);

    progress.send_replace(Phase::Draining);
    assert!(failures(&observed).contains(&("shutdown".to_owned(), true, "draining".to_owned())));
}
