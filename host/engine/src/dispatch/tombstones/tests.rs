//! Claims about tombstones, with one thread; `tests/schedules` has the rest.

use podium_pods::pod::PodView;

use super::*;
use crate::queue::Backoff;

thread_local! {
    /// The deletions that were looked at to find one to give up.
    pub(super) static LOOKED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

const BOUNDS: Bounds = Bounds { states: 2, waiting: 8, unsettled: 4, all: 8 };

fn pod(number: usize, revision: u64) -> Arc<CachedPod> {
    let mut pod = podium_wire::Pod::default();
    pod.header.namespace = "shop".into();
    pod.header.name = format!("cart-{number}");
    pod.header.uid = format!("u{number}");
    pod.header.resource_version = revision.to_string();
    Arc::new(CachedPod::new(&pod).unwrap())
}

/// A view in which every Pod is gone.
fn nothing() -> Arc<podium_pods::cache::Snapshot> {
    podium_pods::cache::new(7).1.snapshot()
}

struct Rig {
    queue: Keys<u8>,
    tombstones: Tombstones<u8>,
}

impl Rig {
    fn new() -> Self {
        Self::within(BOUNDS)
    }

    fn within(bounds: Bounds) -> Self {
        Self { queue: Queue::new(Backoff::default(), usize::MAX, 1), tombstones: Tombstones::new(bounds) }
    }

    /// Deletes Pods that concern the lanes, and returns the excess.
    fn delete(&self, numbers: impl IntoIterator<Item = usize>, lanes: &[u8]) -> Vec<(u8, Excess)> {
        let gone = numbers.into_iter().map(|number| Change::between(Some(pod(number, 5)), None).unwrap());
        let changes: Vec<_> = gone.collect();
        let now = Instant::now();
        let mut plan = self.tombstones.plan(&self.queue, &changes, |_| lanes.to_vec(), |_| Vec::new(), now);
        let excess = std::mem::take(&mut plan.excess);
        self.tombstones.queue(&self.queue, plan);
        excess
    }

    /// Runs each due key once, and returns the uids, those with a last state marked.
    fn run(&self, next: Next) -> (Vec<String>, Excess) {
        let mut ran = Vec::new();
        let mut excess = Excess::default();
        while let Some(job) = futures::FutureExt::now_or_never(Box::pin(self.queue.next())).flatten() {
            let FoundSubject { subject, gone_for } = self.tombstones.find_subject(
                &self.queue,
                &job,
                nothing().by_uid(&job.item),
                |_, _| true,
                Instant::now(),
            );
            let mark = if matches!(subject, Subject::Deleted(Some(_))) { "+" } else { "" };
            ran.push(format!("{}{mark}", job.item));
            let ended = self.tombstones.done(&self.queue, &job, next, gone_for.is_some(), || {});
            excess.states += ended.1.states;
            excess.given_up.extend(ended.1.given_up);
        }
        ran.sort();
        (ran, excess)
    }
}

fn uids(keys: &[PodKey]) -> Vec<&str> {
    keys.iter().map(|key| &*key.uid).collect()
}

#[tokio::test(start_paused = true)]
async fn a_deletion_within_the_bounds_looks_at_no_other_one() {
    let looked = |count: usize| {
        let rig = Rig::within(Bounds::default());
        LOOKED.set(0);
        rig.delete(0..count, &[1]);
        rig.run(Next::Failed);
        LOOKED.get()
    };
    assert_eq!([10, 1_000].map(looked), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn the_plugins_of_a_tenant_have_equal_parts_of_its_bounds() {
    let rig = Rig::within(Bounds { states: 8, waiting: 8, unsettled: 8, all: 8 });
    // The plugins 1 and 2 are of one tenant, and 3 of another.
    assert!(rig.delete(0..8, &[1, 3]).is_empty());
    rig.tombstones.share(&[], &[1, 2]);
    let excess = rig.tombstones.enforce(&rig.queue, &[1, 2].into());
    let [(1, excess)] = &excess[..] else { panic!("{excess:?}") };
    assert_eq!((excess.states, uids(&excess.given_up)), (4, vec!["u0", "u1", "u2", "u3"]));
    assert!(rig.delete(10..14, &[2]).is_empty());
    let more: Vec<u8> = rig.delete(20..21, &[1, 2]).into_iter().map(|(lane, _)| lane).collect();
    assert_eq!(more, [1, 2]);
    let all = |lane: u8| rig.tombstones.figures(lane).all;
    assert_eq!([1, 2, 3].map(all), [4, 4, 8]);
    rig.tombstones.share(&[1, 2], &[]);
    assert!(rig.tombstones.enforce(&rig.queue, &[1, 2, 3].into()).is_empty());
    assert!(rig.delete(30..34, &[1]).is_empty(), "the other one was unloaded");
}

#[tokio::test(start_paused = true)]
async fn deletions_of_one_name_are_bounded_and_the_oldest_are_given_up() {
    let rig = Rig::within(Bounds::default());
    let mut given_up = Vec::new();
    for uid in 0..1_500 {
        let mut pod = podium_wire::Pod::default();
        pod.header.namespace = "shop".into();
        pod.header.name = "cart".into();
        pod.header.uid = format!("u{uid}");
        pod.header.resource_version = "5".into();
        let gone = Change::between(Some(Arc::new(CachedPod::new(&pod).unwrap())), None).unwrap();
        let mut plan = rig.tombstones.plan(&rig.queue, &[gone], |_| vec![1, 2], |_| Vec::new(), Instant::now());
        let excess = std::mem::take(&mut plan.excess).into_iter().filter(|(lane, _)| *lane == 1);
        given_up.extend(excess.flat_map(|(_, excess)| excess.given_up));
        rig.tombstones.queue(&rig.queue, plan);
    }
    let expected: Vec<_> = (0..500).map(|uid| format!("u{uid}")).collect();
    assert_eq!((uids(&given_up), rig.tombstones.figures(1).all), (expected.iter().map(|uid| &**uid).collect(), 1_000));
}

#[tokio::test(start_paused = true)]
async fn the_oldest_unsettled_deletions_are_dropped_first() {
    let rig = Rig::new();
    let hour = Duration::from_secs(3_600);
    assert!(rig.delete(0..3, &[1]).is_empty());
    let (ran, excess) = rig.run(Next::Failed);
    assert_eq!((ran, excess), (vec!["u0+".into(), "u1+".into(), "u2+".into()], Excess { states: 1, given_up: vec![] }));
    tokio::time::advance(hour).await;
    assert!(rig.delete(3..6, &[1]).is_empty());
    let (ran, excess) = rig.run(Next::After(Duration::from_secs(60)));
    // The fifth and the sixth are too many.
    assert_eq!(ran, ["u2", "u3+", "u4+", "u5+"]);
    assert_eq!(uids(&excess.given_up), ["u0", "u1"]);
    assert_eq!(rig.tombstones.figures(1), Figures { states: 2, waiting: 0, unsettled: 4, all: 4 });
    tokio::time::advance(hour).await;
    let (ran, _) = rig.run(Next::Settled);
    assert_eq!(ran, ["u2", "u3", "u4+", "u5+"], "given up is not run again");
    assert_eq!(rig.tombstones.figures(1), Figures::default());
    assert!(rig.queue.is_idle() && rig.tombstones.inner.lock().by_uid.is_empty());
}

#[tokio::test(start_paused = true)]
async fn last_states_of_unseen_deletions_are_bounded_by_plugin() {
    let rig = Rig::new();
    assert!(rig.delete(0..8, &[1, 2]).is_empty());
    let excess = rig.delete(8..11, &[1]);
    let given_up: Vec<_> =
        excess.iter().flat_map(|(lane, excess)| excess.given_up.iter().map(|key| (*lane, &*key.uid))).collect();
    assert_eq!(given_up, [(1, "u0"), (1, "u1"), (1, "u2")]);
    let (ran, excess) = rig.run(Next::Settled);
    assert_eq!((ran.len(), excess), (16, Excess::default()));
    assert!(ran.iter().all(|uid| uid.ends_with('+')), "{ran:?}");
}

#[tokio::test(start_paused = true)]
async fn unseen_deletions_beyond_the_bound_have_no_last_states() {
    let rig = Rig::within(Bounds { waiting: 3, ..BOUNDS });
    assert!(rig.delete(0..3, &[1, 2]).is_empty());
    let dropped: Vec<_> = rig.delete(3..5, &[1]).into_iter().map(|(lane, excess)| (lane, excess.states)).collect();
    assert_eq!(dropped, [(1, 1), (1, 1)], "each plugin by itself");
    assert_eq!(rig.tombstones.figures(1), Figures { waiting: 3, all: 5, ..Figures::default() });
    let (ran, excess) = rig.run(Next::Failed);
    assert_eq!(ran, ["u0", "u0+", "u1", "u1+", "u2+", "u2+", "u3+", "u4+"]);
    // Deletions on which a run has failed have their own bound, and leave the other one to other deletions.
    assert_eq!(rig.tombstones.figures(1), Figures { states: 2, waiting: 0, unsettled: 4, all: 4 });
    assert_eq!((excess.states, uids(&excess.given_up)), (2, vec!["u0"]));
    assert!(rig.delete(5..8, &[1]).is_empty());
    assert_eq!(rig.tombstones.figures(1).waiting, 3);
    tokio::time::advance(Duration::from_secs(3_600)).await;
    rig.run(Next::Settled);
    assert_eq!((rig.tombstones.figures(1), rig.tombstones.figures(2)), <_>::default());
}

#[tokio::test(start_paused = true)]
async fn a_recreated_pod_has_no_last_state_and_is_run() {
    let rig = Rig::new();
    let (mut writer, reader) = podium_pods::cache::new(7);
    rig.delete([0], &[1]);
    let job = rig.queue.next().await.unwrap();
    assert!(
        rig.tombstones
            .find_subject(&rig.queue, &job, nothing().by_uid(&job.item), |_, _| true, Instant::now())
            .gone_for
            .is_some()
    );
    // The API server's history was set back.
    let back = [Change::between(None, Some(pod(0, 3))).unwrap()];
    let plan = rig.tombstones.plan(&rig.queue, &back, |_| vec![1], |_| vec![1], Instant::now());
    writer.apply(vec![podium_pods::pod::PodEvent::applied(pod(0, 3))]).publish();
    rig.tombstones.queue(&rig.queue, plan);
    let ended = rig.tombstones.done(&rig.queue, &job, Next::Settled, true, || panic!("the deletion was not"));
    assert_eq!((ended.0, rig.tombstones.figures(1).all), (Done::Kept, 0));
    let job = rig.queue.next().await.unwrap();
    let looked =
        rig.tombstones.find_subject(&rig.queue, &job, reader.snapshot().by_uid(&job.item), |_, _| true, Instant::now());
    assert!(matches!(looked.subject, Subject::Present(_)));
}

#[tokio::test(start_paused = true)]
async fn a_requeued_deletion_that_settled_is_not_delivered_again() {
    let rig = Rig::new();
    let key = || vec![pod(0, 5).key.clone()];
    assert_eq!(rig.tombstones.queue_deletions(&rig.queue, 1, key, Instant::now()).0, 1);
    let job = rig.queue.next().await.unwrap();
    rig.tombstones.find_subject(&rig.queue, &job, nothing().by_uid(&job.item), |_, _| true, Instant::now());
    // The plugin's component is swapped: its pending deletions are queued again.
    rig.tombstones.queue_deletions(&rig.queue, 1, key, Instant::now());
    let mut settled = false;
    assert_eq!(rig.tombstones.done(&rig.queue, &job, Next::Settled, true, || settled = true).0, Done::Forgotten);
    assert!(settled && rig.queue.is_idle());
}

#[tokio::test(start_paused = true)]
async fn deletions_beyond_the_bound_are_given_up_before_queueing() {
    let rig = Rig::new();
    let keys =
        |numbers: std::ops::Range<usize>| -> Vec<PodKey> { numbers.map(|number| pod(number, 5).key.clone()).collect() };
    let (queued, excess) = rig.tombstones.queue_deletions(&rig.queue, 1, || keys(0..11), Instant::now());
    assert_eq!((queued, rig.queue.depth(1), rig.tombstones.figures(1).all), (8, 8, 8));
    assert_eq!(uids(&excess.given_up), ["u0", "u1", "u2"]);
    // Later deletions displace those that wait in the queue.
    let (queued, excess) = rig.tombstones.queue_deletions(&rig.queue, 1, || keys(11..13), Instant::now());
    assert_eq!((queued, rig.queue.depth(1)), (2, 8));
    assert_eq!(uids(&excess.given_up), ["u3", "u4"]);
    assert_eq!(rig.run(Next::Settled).0.len(), 8);
    assert!(rig.queue.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_deletion_given_up_while_its_key_was_taken_ends() {
    let rig = Rig::new();
    rig.delete([0], &[1]);
    // A worker has the key and has not looked yet: it waits for the journal.
    let job = rig.queue.next().await.unwrap();
    let excess = rig.delete(1..9, &[1]);
    assert_eq!(uids(&excess[0].1.given_up), ["u0"]);
    rig.run(Next::Settled);
    let looked =
        rig.tombstones.find_subject(&rig.queue, &job, nothing().by_uid(&job.item), |_, _| true, Instant::now());
    let mut settled = false;
    let ended = rig.tombstones.done(&rig.queue, &job, Next::Failed, looked.gone_for.is_some(), || settled = true);
    assert_eq!((ended.0, settled), (Done::Forgotten, true), "the journal may have noted the run since");
    let mut runs = 0;
    for _ in 0..30 * 24 {
        tokio::time::advance(Duration::from_secs(3_600)).await;
        runs += rig.run(Next::Failed).0.len();
    }
    assert_eq!(runs, 0, "it was given up, is in no figure, and is run again after a month");
}

#[tokio::test(start_paused = true)]
async fn a_run_on_a_withdrawn_deletion_is_repeated() {
    let rig = Rig::new();
    rig.delete([0], &[1]);
    let job = rig.queue.next().await.unwrap();
    rig.tombstones.find_subject(&rig.queue, &job, nothing().by_uid(&job.item), |_, _| true, Instant::now());
    // The API server's history was set back, and the Pod that is back does not concern the plugin any more.
    let back = [Change::between(None, Some(pod(0, 3))).unwrap()];
    let plan = rig.tombstones.plan(&rig.queue, &back, |_| Vec::new(), |_| vec![1], Instant::now());
    rig.tombstones.queue(&rig.queue, plan);
    let ended = rig.tombstones.done(&rig.queue, &job, Next::Failed, true, || panic!("the Pod is there"));
    assert_eq!((ended.0, rig.tombstones.figures(1)), (Done::Kept, Figures::default()));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_seen_by_an_unloaded_plugin_reaches_its_successor() {
    let rig = Rig::new();
    let key = pod(0, 5).key.clone();
    rig.queue.add([(1, (key.namespace.clone(), key.name.clone()), key.uid.clone())]);
    let old = rig.queue.next().await.unwrap();
    // The plugin is unloaded and loaded again while its run waits for the journal or for a live read.
    rig.queue.remove_lane(1);
    rig.tombstones.forget_lane(1);
    // The Pod goes: planned, published, and then the old run looks before the keys are queued.
    let gone = [Change::between(Some(pod(0, 5)), None).unwrap()];
    let plan = rig.tombstones.plan(&rig.queue, &gone, |_| vec![1], |_| vec![1], Instant::now());
    rig.tombstones.find_subject(&rig.queue, &old, nothing().by_uid(&old.item), |_, _| true, Instant::now());
    rig.tombstones.queue(&rig.queue, plan);
    let ended = rig.tombstones.done(&rig.queue, &old, Next::Settled, true, || panic!("not of the loaded plugin"));
    assert_eq!(ended.0, Done::Orphaned);
    assert_eq!(rig.tombstones.figures(1).all, 1, "the deletion is kept");
    assert_eq!(rig.run(Next::Settled).0, ["u0+"], "and is delivered");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_group_given_up_while_its_key_was_taken_is_no_younger() {
    let rig = Rig::new();
    let group = |number: usize| PodKey::new("shop", &format!("label/app={number}"), &format!("label/app={number}"));
    let queue = |numbers: std::ops::Range<usize>| {
        rig.tombstones.queue_deletions(&rig.queue, 1, || numbers.map(group).collect(), Instant::now()).1
    };
    queue(0..1);
    let job = rig.queue.next().await.unwrap();
    let hour = Duration::from_secs(3_600);
    tokio::time::advance(hour).await;
    assert_eq!(uids(&queue(1..9).given_up), ["label/app=0"]);
    let looked = rig.tombstones.find_subject(&rig.queue, &job, None, |_, _| true, Instant::now());
    assert_eq!(looked.gone_for, Some(hour));
    assert_eq!(rig.tombstones.done(&rig.queue, &job, Next::Settled, true, || {}).0, Done::Forgotten);
    rig.run(Next::Settled);
    assert_eq!((rig.tombstones.figures(1).all, rig.queue.kept(1)), (0, 0));
    assert_eq!((rig.tombstones.take_unsure(|_| true), rig.tombstones.has_unsure()), (vec![1], false));
}

/// A worker is slow: its view has no Pod of the group, one comes and goes, and the next run sees it.
#[tokio::test(start_paused = true)]
async fn a_run_on_the_end_of_a_group_before_it_is_queued_does_not_lose_it() {
    let rig = Rig::new();
    let group = PodKey::new("shop", "label/app=web", "label/app=web");
    let woken = |left| {
        move |_: &Change| {
            let key = PodKey::new("shop", "label/app=web", "label/app=web");
            Woken { pods: Vec::new(), groups: vec![WokenGroup { lane: 1, key, left }] }
        }
    };
    let now = Instant::now();
    let plan = |change: Change, left| rig.tombstones.plan(&rig.queue, &[change], woken(left), |_| Vec::new(), now);
    let find = |job: &Job<u8, Slot, Arc<str>>, present: Option<Arc<CachedPod>>| {
        rig.tombstones.find_subject(&rig.queue, job, present, |_, _| false, now).subject
    };
    rig.queue.add([(1, slot(&group), group.uid.clone())]);
    let early = rig.queue.next().await.unwrap();
    rig.tombstones.queue(&rig.queue, plan(Change::between(None, Some(pod(0, 5))).unwrap(), false));
    let gone = plan(Change::between(Some(pod(0, 5)), None).unwrap(), true);
    assert!(matches!(find(&early, None), Subject::Deleted(Some(_))));
    assert_eq!(rig.tombstones.done(&rig.queue, &early, Next::Settled, true, || {}).0, Done::Kept);
    let late = rig.queue.next().await.unwrap();
    assert!(matches!(find(&late, Some(pod(0, 5))), Subject::Present(_)));
    assert_eq!(rig.tombstones.done(&rig.queue, &late, Next::Settled, false, || {}).0, Done::Forgotten);
    assert_eq!(rig.tombstones.queue(&rig.queue, gone), BTreeMap::from([(1, 1)]));
    assert_eq!(rig.run(Next::Settled).0, ["label/app=web+"]);
}
