//! Claims about plugins of one tenant that have an order, on the workers of a stage: each label that a plugin sets
//! wakes all of them.

use podium_vocabulary::Phase;

use super::{
    super::order::order,
    loops::{Code, Stage, number, set},
    *,
};

const LINKS: u64 = 8;

/// Sets the label of a link when those of all links before are there.
fn link<const N: u64>(request: &Request, pod: &podium_wire::Pod) -> (Result<Outcome, Failure>, Vec<Action>) {
    let label = |link: u64| format!("shop.example/link-{link}");
    let is_next = number(pod, &label(N)) == 0 && (0..N).all(|link| number(pod, &label(link)) == 1);
    (Ok(Outcome::Settled), is_next.then(|| set(request, &label(N), 1)).into_iter().collect())
}

const CODES: [Code; LINKS as usize] =
    [link::<0>, link::<1>, link::<2>, link::<3>, link::<4>, link::<5>, link::<6>, link::<7>];

pub(super) fn spec(name: &str, after: &[&str]) -> PluginSpec {
    let after = after.iter().map(|name| (*name).to_owned()).collect();
    PluginSpec { after, ..testing::plugin(Some("shop"), name) }
}

/// Returns a stage with these plugins and one Pod, whose addition wakes them all in their order.
pub(super) fn stage(plugins: Vec<(PluginSpec, Code)>) -> Stage {
    let stage = loaded(plugins);
    stage.dispatch.queue.set_order(&[0], order(0, &stage.dispatch.registry.all()));
    change(&stage, |_| {});
    stage
}

fn loaded(plugins: Vec<(PluginSpec, Code)>) -> Stage {
    let mut stage = Stage::new(0, &[]);
    plugins.into_iter().for_each(|(spec, code)| stage.load_with(spec, code));
    (*stage.server.lanes.lock()).clone_from(&stage.lanes);
    stage
}

/// Returns the plugins of a chain, the last link first.
fn chain(length: usize) -> Vec<(PluginSpec, Code)> {
    let names: Vec<String> = (0..length).map(|link| format!("link-{link}")).collect();
    let links = (0..length).map(|link| {
        let after: Vec<&str> = link.checked_sub(1).map(|before| names[before].as_str()).into_iter().collect();
        (spec(&names[link], &after), CODES[link])
    });
    links.rev().collect()
}

/// Changes the Pod as another client does.
pub(super) fn change(stage: &Stage, change: impl FnOnce(&mut podium_wire::Pod)) {
    let mut pods = stage.server.pods.lock();
    let pod = pods.entry("cart-0".to_owned()).or_default();
    pod.header.namespace = "shop".into();
    pod.header.name = "cart-0".into();
    pod.header.uid = "u0".into();
    change(pod);
    stage.server.publish(pod);
}

fn runs(stage: &Stage) -> Vec<u64> {
    (0..stage.lanes.len()).map(|index| stage.status(index).runs()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_chain_of_plugins_is_run_at_most_once_for_each_write() {
    let late = [None, Some(0), Some(5), Some(1_999)].map(|millis| millis.map(Duration::from_millis));
    for (length, late) in (1..=LINKS as usize).flat_map(|length| late.map(|late| (length, late))) {
        let stage = stage(chain(length));
        *stage.server.late.lock() = late;
        assert_eq!(stage.applied_within(20).await, length, "every link has written");
        let before = runs(&stage);
        let most = length as u64 + 1;
        assert!(before.iter().all(|runs| *runs <= most), "{before:?}: the events come {late:?} after the responses");
        // A run that changes nothing ends it.
        change(&stage, |pod| _ = pod.annotations.insert("note".into(), "x".into()));
        assert_eq!(stage.applied_within(5).await, 0);
        assert!(runs(&stage).into_iter().eq(before.into_iter().map(|runs| runs + 1)), "{:?}", runs(&stage));
        assert!(stage.dispatch.queue.is_idle());
    }
}

/// Without an order the same chain needs more runs, and begins with its last link.
#[tokio::test(start_paused = true)]
async fn a_chain_of_plugins_runs_from_its_first_to_its_last() {
    let links = async |stage: Stage| -> Vec<usize> {
        assert_eq!(stage.applied_within(20).await, 4);
        stage.server.ran.lock().iter().map(|index| 3 - index).collect()
    };
    assert_eq!(links(stage(chain(4))).await, [0, 1, 0, 2, 0, 1, 3, 0, 1, 2, 0, 1, 2, 3]);
    let without = loaded(chain(4));
    change(&without, |_| {});
    assert_eq!(links(without).await, [[3, 2, 1, 0]; 5].concat());
}

fn stops_at_skip(_: &Request, pod: &podium_wire::Pod) -> (Result<Outcome, Failure>, Vec<Action>) {
    let outcome = if pod.labels.contains_key("skip") { Outcome::Stop } else { Outcome::Settled };
    (Ok(outcome), Vec::new())
}

pub(super) fn does_nothing(_: &Request, _: &podium_wire::Pod) -> (Result<Outcome, Failure>, Vec<Action>) {
    (Ok(Outcome::Settled), Vec::new())
}

#[tokio::test(start_paused = true)]
async fn stop_skips_later_plugins_until_the_pod_changes() {
    let mut last = spec("last", &[]);
    last.phase = Phase::After;
    let stage = stage(vec![
        (spec("guard", &[]), stops_at_skip),
        (spec("next", &["guard"]), does_nothing),
        (last, does_nothing),
    ]);
    stage.applied_within(1).await;
    assert_eq!(runs(&stage), [1, 1, 1]);
    change(&stage, |pod| _ = pod.labels.insert("skip".into(), "yes".into()));
    stage.applied_within(1).await;
    assert_eq!(runs(&stage), [2, 1, 1]);
    change(&stage, |pod| pod.labels.clear());
    stage.applied_within(1).await;
    assert_eq!(runs(&stage), [3, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn stop_with_a_write_skips_later_plugins_for_that_write_too() {
    let code: Code = |request, _| (Ok(Outcome::Stop), vec![set(request, "shop.example/seen", 1)]);
    let stage = stage(vec![(spec("guard", &[]), code), (spec("next", &["guard"]), does_nothing)]);
    assert_eq!(stage.applied_within(1).await, 1);
    assert_eq!(runs(&stage), [2, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_fails_does_not_hold_up_the_next_one() {
    let fails: Code = |_, _| (Err(Failure { kind: FailureKind::Retry, message: "no".into() }), Vec::new());
    let writes: Code = |request, _| (Ok(Outcome::Stop), vec![set(request, "shop.example/refused", 1)]);
    for code in [fails, writes] {
        let stage = stage(vec![(spec("first", &[]), code), (spec("next", &["first", "absent"]), does_nothing)]);
        *stage.server.refuses.lock() = Some("refused");
        tokio::time::sleep(Duration::from_millis(4)).await;
        assert_eq!(runs(&stage), [1, 1]);
    }
}
