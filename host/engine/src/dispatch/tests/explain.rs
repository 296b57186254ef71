//! Claims about run records and the reasons why a plugin does not run.

use super::{
    loops::Code,
    order::{change, does_nothing, spec as named, stage},
    *,
};

fn reasons(dispatch: &Dispatch, lane: Lane) -> Vec<&'static str> {
    let plugin = dispatch.registry.get(lane).unwrap();
    dispatch.explain(&plugin, "shop", "cart-0").iter().map(|reason| reason.name).collect()
}

#[tokio::test(start_paused = true)]
async fn only_a_plugin_that_a_stop_has_skipped_is_stopped() {
    let stops: Code = |_, _| (Ok(Outcome::Stop), Vec::new());
    let stage = stage(vec![(named("guard", &[]), stops), (named("next", &["guard"]), does_nothing)]);
    let settled = || tokio::time::sleep(Duration::from_secs(1));
    settled().await;
    let guard = stage.lanes[0];
    let next = stage.lanes[1];
    assert_eq!(reasons(&stage.dispatch, next), ["Stopped"], "the Pod was added");
    assert_eq!(reasons(&stage.dispatch, guard), ["Settled"]);
    stage.dispatch.queue.add([(next, ("shop".into(), "cart-0".into()), "u0".into())]);
    settled().await;
    assert_eq!(reasons(&stage.dispatch, next), ["Settled"], "it has run since");
    // Only the guard runs, and has nothing to skip.
    *stage.server.lanes.lock() = vec![guard];
    change(&stage, |pod| _ = pod.annotations.insert("note".into(), "x".into()));
    settled().await;
    assert_eq!(stage.status(0).runs(), 2);
    assert_eq!(reasons(&stage.dispatch, next), ["SectionNotWatched"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_the_host_repeats_is_not_the_plugins_request() {
    let minute = Outcome::RequeueAfter(Duration::from_secs(60));
    let mut rig = rig(move |request, _| report(Ok(minute), vec![label(&request)]));
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    *rig.script.shown.lock() = Some(Shown::Revision(Revision(6)));
    rig.add();
    assert_eq!(rig.turn().await, Next::Again(LEAST_REQUEUE), "the cache does not show the write");
    assert_eq!(reasons(&rig.dispatch, rig.lane), ["WritesPending", "Expectation"]);
    rig.writer.apply(vec![PodEvent::applied(pod(6))]);
    *rig.script.shown.lock() = None;
    assert_eq!(rig.turn().await, Next::After(Duration::from_secs(60)));
    assert_eq!(reasons(&rig.dispatch, rig.lane), ["RequeueAfter"]);
    let runs = rig.dispatch.registry.runs(&spec().id, 1, |_| true);
    assert_eq!(runs[0].why.names(), ["writes"]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_host_beside_a_run_is_a_record() {
    let mut rig = rig(|request, _| report(Ok(Outcome::Settled), vec![label(&request)]));
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    *rig.script.sending.lock() = Some(Box::new(|| panic!("a bug")));
    rig.add();
    assert_eq!(rig.turn().await, Next::Failed);
    let runs = rig.dispatch.registry.runs(&spec().id, 9, |_| true);
    let failure = runs[0].result.clone().unwrap_err();
    assert_eq!((runs.len(), failure.kind, runs[0].read), (1, FailureKind::Host, Revision(5)));
    assert_eq!(failure.message, "the host panicked beside the run: a bug");
}

#[tokio::test(start_paused = true)]
async fn records_outlive_an_unload_and_not_the_plugin() {
    let mut rig = rig(|_, _| report(Ok(Outcome::Settled), Vec::new()));
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    rig.add();
    assert_eq!(rig.turn().await, Next::Settled);
    let registry = &rig.dispatch.registry;
    let of = registry.get(rig.lane).unwrap();
    registry.remove(&spec().id).unwrap();
    rig.dispatch.forget(rig.lane);
    assert_eq!(registry.runs(&spec().id, 9, |_| true).len(), 1, "a suspended plugin has its runs");
    registry.forget_runs(&spec().id);
    let lane = registry.put(spec(), of.reconcile.clone(), of.sender.clone(), rig.status.clone(), None, None);
    assert_eq!(registry.runs(&spec().id, 9, |_| true).len(), 0);
    assert_eq!(reasons(&rig.dispatch, lane), ["NoRecord"]);
}
