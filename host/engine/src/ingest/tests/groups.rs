//! Plugins that run for groups of Pods: which Pod a run gets, and when a group is gone.

use std::collections::{BTreeMap, BTreeSet};

use podium_vocabulary::{Related, Relation};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::*;

/// Returns a plugin for the groups of Pods with the same label `app`.
pub(super) fn by_app() -> PluginSpec {
    let mut spec = spec(None);
    spec.watch.related = Some(Related { by: Relation::Label("app".into()), debounce: Duration::ZERO });
    spec
}

/// Returns a harness with the journal of a directory, which is written at once.
fn journaled(directory: &Path) -> Harness {
    journaled_within(directory, Bounds::default())
}

pub(super) fn journaled_within(directory: &Path, bounds: Bounds) -> Harness {
    let Opened { journal, recovery, mut store } = journal::open(directory, 0).unwrap();
    let mut harness = Harness::new(Backoff::default(), bounds, Some((journal.clone(), recovery)));
    harness.workers.spawn(async move {
        loop {
            journal.due().await;
            store.write(&journal).unwrap();
        }
    });
    harness
}

/// The subjects of a plugin's runs, with the names of their Pods.
pub(super) type Named = Arc<Mutex<Vec<String>>>;

/// Returns a plugin that records its subjects as texts, such as `deleted cart-0 5`, and fails as `outcome` says.
pub(super) fn naming(
    outcome: fn(&Delivered) -> RunOutcome,
) -> (Named, impl Fn(Request, Delivered) -> std::future::Ready<RunOutcome>) {
    let named = Named::default();
    let noted = named.clone();
    let body = move |request: Request, delivered: Delivered| {
        let outcome = outcome(&delivered);
        noted.lock().push(match delivered {
            Delivered::Present => request.key.name.to_string(),
            Delivered::Deleted(Some(revision)) => format!("deleted {} {revision}", request.key.name),
            Delivered::Deleted(None) => format!("deleted {}", request.key.name),
        });
        std::future::ready(outcome)
    };
    (named, body)
}

pub(super) fn taken(named: &Named) -> Vec<String> {
    std::mem::take(&mut *named.lock())
}

fn terminating(name: &str, uid: &str, app: &str, revision: u64) -> Arc<CachedPod> {
    let mut wire = podium_wire::Pod::default();
    wire.header.namespace = "shop".into();
    wire.header.name = name.into();
    wire.header.uid = uid.into();
    wire.header.resource_version = revision.to_string();
    wire.labels.insert("app".into(), app.into());
    wire.lifecycle.deletion_timestamp = Some(podium_wire::Timestamp(1));
    Arc::new(CachedPod::new(&wire).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_group_runs_once_on_its_first_living_pod_and_once_when_it_is_gone() {
    let mut harness = Harness::plain(Backoff::default());
    let pods = ["a", "b", "c"].map(|name| Record::from(pod(name, name, "web", 1)));
    harness.list(pods.into_iter().collect(), 2);
    let (named, body) = naming(|_| Ok(Outcome::Settled));
    harness.load_spec(by_app(), body);
    harness.work(2);
    harness.settle().await;
    assert_eq!(taken(&named), ["a"]);
    harness.apply(pod("c", "c", "web", 3));
    harness.settle().await;
    assert_eq!(taken(&named), Vec::<String>::new(), "nothing that it watches has changed");
    harness.apply(terminating("a", "a", "web", 4));
    harness.settle().await;
    assert_eq!(taken(&named), ["b"], "one that is not being deleted");
    for (name, revision) in [("b", 5), ("c", 6)] {
        harness.delete(pod(name, name, "web", revision));
        harness.settle().await;
    }
    assert_eq!(taken(&named), ["c", "a"], "the last one, although it is being deleted");
    harness.delete(terminating("a", "a", "web", 7));
    harness.settle().await;
    assert_eq!(taken(&named), ["deleted a 7"]);
    assert_eq!(harness.dispatch.expectations.tombstones.figures(harness.lane).all, 0);
    harness.apply(pod("d", "d", "web", 8));
    harness.settle().await;
    assert_eq!(taken(&named), ["d"]);
}

#[tokio::test(start_paused = true)]
async fn a_group_of_one_namespace_is_gone_when_its_last_pod_has_left_it() {
    let mut harness = Harness::plain(Backoff::default());
    let (named, body) = naming(|_| Ok(Outcome::Settled));
    harness.load_spec(by_app(), body);
    harness.work(2);
    harness.apply(pod("a", "a", "web", 3));
    harness.settle().await;
    harness.apply(pod("a", "a", "api", 4));
    harness.settle().await;
    let mut runs = taken(&named);
    runs.sort_unstable();
    assert_eq!(runs, ["a", "a", "deleted a 3"], "both groups: the old one with the state in which it was there");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_while_the_end_of_its_group_is_delivered_is_run() {
    // The run on the deletion settles, fails, or asks for another one.
    let outcomes: [fn(&Delivered) -> RunOutcome; 3] = [
        |_| Ok(Outcome::Settled),
        |delivered| if *delivered == Delivered::Present { Ok(Outcome::Settled) } else { failure() },
        |delivered| match delivered {
            Delivered::Present => Ok(Outcome::Settled),
            Delivered::Deleted(_) => Ok(Outcome::RequeueAfter(Duration::from_secs(5))),
        },
    ];
    for outcome in outcomes {
        let mut harness = Harness::plain(Backoff::default());
        let named = Named::default();
        let go = Arc::new(tokio::sync::Semaphore::new(0));
        let noted = named.clone();
        let went = go.clone();
        harness.load_spec(by_app(), move |request: Request, delivered| {
            let noted = noted.clone();
            let went = went.clone();
            async move {
                went.acquire().await.unwrap().forget();
                noted.lock().push(format!("{:?} {}", delivered, request.key.name));
                outcome(&delivered)
            }
        });
        harness.work(1);
        let turns = || async { futures::future::join_all((0..20).map(|_| tokio::task::yield_now())).await };
        harness.apply(pod("a", "a", "web", 3));
        go.add_permits(1);
        harness.settle().await;
        harness.delete(pod("a", "a", "web", 4));
        for _ in 0..10 {
            turns().await;
        }
        // The run on the deletion is under way.
        harness.apply(pod("b", "b", "web", 5));
        harness.delete(pod("b", "b", "web", 6));
        harness.apply(pod("c", "c", "web", 7));
        go.add_permits(9);
        harness.settle().await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        harness.settle().await;
        assert_eq!(*named.lock(), ["Present a", "Deleted(Some(4)) a", "Present c"]);
        assert_eq!(harness.dispatch.expectations.tombstones.figures(harness.lane).all, 0);
        // The end of the group is delivered again.
        harness.delete(pod("c", "c", "web", 8));
        harness.settle().await;
        assert_eq!(named.lock()[3..4], ["Deleted(Some(8)) c"]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_group_is_delivered_after_a_restart_and_a_suspension() {
    let directory = tempfile::tempdir().unwrap();
    let mut harness = journaled(directory.path());
    let (named, body) = naming(|_| Ok(Outcome::Settled));
    harness.list(PodList::default(), 1);
    harness.load_spec(by_app(), body);
    harness.work(2);
    for (name, app, revision) in [("a", "web", 2), ("b", "api", 3), ("c", "old", 4)] {
        harness.apply(pod(name, name, app, revision));
    }
    harness.settle().await;
    assert_eq!(taken(&named).len(), 3);
    harness.unload();
    harness.delete(pod("a", "a", "web", 5));
    let (named, body) = naming(|_| Ok(Outcome::Settled));
    harness.load_spec(by_app(), body);
    harness.settle().await;
    let mut runs = taken(&named);
    runs.sort_unstable();
    assert_eq!(runs, ["b", "c", "deleted label/app=web"], "each group once");
    harness.workers.shutdown().await;
    drop(harness);

    let mut harness = journaled(directory.path());
    let (named, body) = naming(|_| Ok(Outcome::Settled));
    harness.load_spec(by_app(), body);
    harness.work(2);
    harness.settle().await;
    assert_eq!(taken(&named), Vec::<String>::new(), "nothing is known before the first list");
    let pods = [("d", "api"), ("e", "new")].map(|(name, app)| Record::from(pod(name, name, app, 6)));
    harness.list(pods.into_iter().collect(), 7);
    for _ in 0..3 {
        harness.turn();
        harness.settle().await;
    }
    let mut runs = taken(&named);
    runs.sort_unstable();
    runs.dedup();
    assert_eq!(runs, ["d", "deleted label/app=old", "e"]);
    assert_eq!(harness.journal.as_ref().unwrap().figures().entries, 2);
}

#[tokio::test(start_paused = true)]
async fn keys_of_another_configuration_are_dropped_with_their_deletions() {
    let directory = tempfile::tempdir().unwrap();
    let mut harness = journaled(directory.path());
    harness.list(PodList::default(), 1);
    let by_pod = spec(None);
    for (before, after, runs) in [(by_pod.clone(), by_app(), &["a"][..]), (by_app(), by_pod, &["a", "b"])] {
        let (named, body) = naming(|_| Ok(Outcome::RequeueAfter(Duration::from_secs(5))));
        harness.load_spec(before, body);
        harness.work(1);
        harness.apply(pod("a", "a", "web", 2));
        harness.apply(pod("b", "b", "web", 3));
        harness.settle().await;
        drop(named);
        let (named, body) = naming(|_| Ok(Outcome::Settled));
        harness.load_spec(after, body);
        harness.delete(pod("c", "c", "web", 4));
        tokio::time::sleep(Duration::from_secs(60)).await;
        harness.settle().await;
        assert_eq!(taken(&named), runs);
        assert_eq!(harness.journal.as_ref().unwrap().figures().entries, runs.len());
        harness.unload();
    }
}

#[tokio::test(start_paused = true)]
async fn groups_that_come_and_go_leave_one_entry_each_in_a_compacted_journal() {
    let directory = tempfile::tempdir().unwrap();
    let mut harness = journaled(directory.path());
    harness.list(PodList::default(), 1);
    let (named, body) = naming(|_| Ok(Outcome::Settled));
    harness.load_spec(by_app(), body);
    harness.work(2);
    for revision in 2..1_002 {
        let there = pod("a", &format!("u{}", revision / 2), "web", revision);
        if revision % 2 == 0 {
            harness.apply(there)
        } else {
            harness.delete(there)
        }
        harness.settle().await;
    }
    harness.apply(pod("a", "last", "web", 2_000));
    harness.settle().await;
    assert_eq!(taken(&named).len(), 1_001);
    harness.workers.shutdown().await;
    drop(harness);
    let Opened { journal, mut store, .. } = journal::open(directory.path(), 0).unwrap();
    store.compact_now(&journal);
    let bytes = directory.path().join("journal").metadata().unwrap().len();
    assert!(bytes < 16 << 10, "{bytes} bytes");
    assert_eq!(journal.plugin_entries(&by_app().id).pending_deletions().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn bounds_of_deletions_drop_no_run_for_a_group_that_lives() {
    let bounds = Bounds { states: 1, waiting: 1, unsettled: 1, all: 1 };
    let mut harness = Harness::new(Backoff::default(), bounds, None);
    let (named, body) = naming(|_| Ok(Outcome::Settled));
    harness.load_spec(by_app(), body);
    let apps = ["web", "api", "old"];
    let pods = |name: &str, first: u64| {
        let pods = apps.into_iter().zip(first..).map(|(app, revision)| {
            let name = format!("{app}-{name}");
            pod(&name, &name, app, revision)
        });
        pods.collect::<Vec<_>>()
    };
    pods("a", 2).into_iter().chain(pods("b", 5)).for_each(|pod| harness.apply(pod));
    // Each group loses a Pod, and waits for its run.
    pods("a", 10).into_iter().for_each(|pod| harness.delete(pod));
    assert_eq!(harness.status.deletions_given_up.get(), 2);
    tokio::time::advance(Duration::from_secs(60)).await;
    harness.turn();
    harness.work(1);
    harness.settle().await;
    let mut runs = taken(&named);
    runs.sort_unstable();
    assert_eq!(runs, ["api-b", "old-b", "web-b"]);
    // Two ends are beyond the bounds, as two deletions of Pods are.
    pods("b", 20).into_iter().for_each(|pod| harness.delete(pod));
    tokio::time::advance(Duration::from_secs(60)).await;
    harness.turn();
    harness.settle().await;
    assert_eq!(taken(&named), ["deleted old-b 22"]);
}

const APPS: [&str; 4] = ["web", "api", "old", "new"];
const WORKERS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_last_run_of_each_group_is_on_its_last_state() {
    for seed in 0..20 {
        last_runs(seed).await;
    }
}

async fn last_runs(seed: u64) {
    let backoff = Backoff { first: Duration::from_millis(1), most: Duration::from_millis(4) };
    let mut harness = Harness::plain(backoff);
    // By app: the revision of the last state, for a group that is gone.
    let settled = Arc::new(Mutex::new(BTreeMap::<String, Option<u64>>::new()));
    let noted = settled.clone();
    let under_way = Arc::new(Mutex::new(BTreeSet::<String>::new()));
    harness.load_spec(by_app(), move |request: Request, delivered| {
        let noted = noted.clone();
        let under_way = under_way.clone();
        async move {
            let (Subject::Present(pod) | Subject::Deleted(Some(pod))) = &request.subject else { return failure() };
            let app = pod.labels().unwrap()["app"].clone();
            assert!(under_way.lock().insert(app.clone()), "two runs for {app} at once");
            tokio::task::yield_now().await;
            under_way.lock().remove(&app);
            if (request.seed >> 40).is_multiple_of(5) {
                return failure();
            }
            let gone = if let Delivered::Deleted(revision) = delivered { revision } else { None };
            noted.lock().insert(app, gone);
            Ok(Outcome::Settled)
        }
    });
    harness.work(WORKERS);
    let mut random = SmallRng::seed_from_u64(seed);
    let mut alive = BTreeMap::<String, (String, &str, u64)>::new();
    let mut expected = BTreeMap::<String, Option<u64>>::new();
    let Harness { ingest, observed, dispatch, lane, mut workers, .. } = harness;
    let mut ingesting = JoinSet::new();
    ingesting.spawn(ingest.run());
    for revision in 2..400 {
        let name = format!("p{}", random.random_range(0..5));
        let app = APPS[random.random_range(0..APPS.len())];
        let before = alive.remove(&name);
        let event = match (&before, random.random_range(0..3)) {
            (Some((uid, app, _)), 0 | 1) => PodEvent::deleted(pod(&name, uid, app, revision)),
            (before, _) => {
                let uid = before.as_ref().map_or_else(|| format!("u{revision}"), |(uid, ..)| uid.clone());
                alive.insert(name.clone(), (uid.clone(), app, revision));
                PodEvent::applied(pod(&name, &uid, app, revision))
            }
        };
        let before_revision = before.as_ref().map_or(0, |(_, _, revision)| *revision);
        if let Some((_, app, last)) = before {
            let last = if event.deleted { revision } else { last };
            expected.insert(app.to_owned(), Some(last));
        }
        let present: BTreeSet<_> = alive.values().map(|(_, app, _)| (*app).to_owned()).collect();
        expected.extend(present.into_iter().map(|app| (app, None)));
        let observation = if random.random_range(0..8) > 0 {
            Observation::Events(vec![event])
        } else {
            // The list lacks the Pod of a deletion, whose last state is then that of before.
            let app = event.pod.labels().unwrap()["app"].clone();
            if let Some(last) = expected.get_mut(&app).filter(|_| event.deleted).and_then(Option::as_mut)
                && *last == revision
            {
                *last = before_revision;
            }
            let pods = alive.iter().map(|(name, (uid, app, revision))| Record::from(pod(name, uid, app, *revision)));
            Observation::Relisted { pods: pods.collect(), revision: Revision(revision) }
        };
        observed.send(observation).await.unwrap();
    }
    drop(observed);
    ingesting.join_next().await.unwrap().unwrap();
    let is_done = || *settled.lock() == expected && dispatch.queue.is_idle();
    let since = Instant::now();
    while !is_done() && since.elapsed() < Duration::from_secs(60) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let left = dispatch.expectations.tombstones.figures(lane);
    let kept = dispatch.queue.kept(lane);
    dispatch.queue.close();
    while workers.join_next().await.is_some() {}
    assert_eq!(*settled.lock(), expected, "seed {seed}, {kept} keys, {left:?}");
    // At most the tombstones of groups that live are left, until the next run for them.
    assert!(dispatch.expectations.tombstones.figures(lane).all <= alive.len(), "seed {seed}");
}

#[tokio::test(start_paused = true)]
async fn only_a_view_of_after_it_shows_that_a_pod_has_left_a_group() {
    for (app, revision, left, expected) in [
        ("old", 5, 8, false),
        ("web", 5, 8, false),
        ("web", 8, 8, false),
        ("old", 8, 8, true),
        ("web", 9, 8, true),
        ("old", 9, 8, true),
    ] {
        let mut harness = Harness::plain(Backoff::default());
        harness.list([Record::from(pod("a", "a", app, revision))].into_iter().collect(), revision);
        harness.load_spec(by_app(), |_, _| std::future::ready(Ok(Outcome::Settled)));
        let plugin = harness.dispatch.registry.get(harness.lane).unwrap();
        let group = plugin.group(&pod("a", "a", "web", revision)).unwrap();
        let view = harness.dispatch.reader.snapshot();
        let has_left = |uid: &str| plugin.has_left(&group, uid, Revision(left), &*view);
        assert_eq!(has_left("a"), expected, "{app} at {revision}");
        assert_eq!(has_left("unknown"), revision >= left, "a view at {revision} without it");
    }
}
