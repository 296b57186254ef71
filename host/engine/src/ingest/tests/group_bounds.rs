//! Groups whose ends do not settle, or come faster than they are delivered, are bounded as deletions of Pods are.

use super::{
    groups::{by_app, journaled_within, naming, taken},
    *,
};

const BOUNDS: Bounds = Bounds { states: 5, waiting: 10, unsettled: 10, all: 20 };
const HOUR: Duration = Duration::from_secs(3_600);

/// Returns a plugin for the groups of Pods with the same label `app`, with the longest pause between two runs.
fn debounced() -> PluginSpec {
    let mut spec = by_app();
    spec.watch.related.as_mut().unwrap().debounce = HOUR;
    spec
}

impl Harness {
    /// Returns the keys, the tombstones and the journal entries of the plugin.
    fn kept(&self) -> [usize; 3] {
        let tombstones = self.dispatch.expectations.tombstones.figures(self.lane).all;
        [self.dispatch.queue.kept(self.lane), tombstones, self.journal.as_ref().unwrap().figures().entries]
    }

    /// Changes the label of one Pod again and again.
    async fn relabel(&mut self, times: u64) {
        for at in 0..times {
            self.apply(pod("a", "a", &format!("v{at}"), 2 + at));
            self.settle().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_label_that_changes_again_and_again_leaves_a_bounded_number_of_groups() {
    let directory = tempfile::tempdir().unwrap();
    let mut harness = journaled_within(directory.path(), BOUNDS);
    harness.list(PodList::default(), 1);
    let (named, body) = naming(|_| Ok(Outcome::Settled));
    harness.load_spec(debounced(), body);
    harness.work(2);
    harness.relabel(2_000).await;
    assert_eq!(harness.kept(), [21, 20, 21], "20 ends, and the group that lives");
    assert_eq!(taken(&named).len(), 2_000, "each group once, while it had its Pod");
    assert_eq!(harness.status.deletions_given_up.get(), 1_979);
    tokio::time::sleep(HOUR).await;
    harness.settle().await;
    assert_eq!(taken(&named).iter().filter(|run| run.starts_with("deleted a ")).count(), 10, "with their last states");
    assert_eq!(harness.kept(), [0, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_ended_groups_on_which_a_plugin_always_fails() {
    let directory = tempfile::tempdir().unwrap();
    let mut harness = journaled_within(directory.path(), BOUNDS);
    harness.list(PodList::default(), 1);
    let (_, body) = naming(|delivered| match delivered {
        Delivered::Present => Ok(Outcome::Settled),
        Delivered::Deleted(_) => failure(),
    });
    harness.load_spec(by_app(), body);
    harness.work(2);
    harness.relabel(100).await;
    assert_eq!(harness.kept(), [10, 10, 11]);
    tokio::time::sleep(HOUR * 25).await;
    assert_eq!(harness.kept(), [0, 0, 1]);
    assert_eq!(harness.status.deletions_given_up.get(), 99);
}

#[tokio::test(start_paused = true)]
async fn ended_groups_of_a_journal_have_the_same_bounds_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let mut harness = journaled_within(directory.path(), Bounds::default());
    harness.list(PodList::default(), 1);
    harness.load_spec(debounced(), |_, _| std::future::ready(Ok(Outcome::Settled)));
    harness.work(2);
    harness.relabel(100).await;
    assert_eq!(harness.kept(), [100, 99, 100]);
    harness.workers.shutdown().await;
    drop(harness);

    let mut harness = journaled_within(directory.path(), BOUNDS);
    let (named, body) = naming(|_| Ok(Outcome::Settled));
    harness.load_spec(by_app(), body);
    let living = (0..5).map(|at| Record::from(pod(&format!("b{at}"), &format!("b{at}"), &format!("v{at}"), 200)));
    harness.list(living.collect(), 201);
    for _ in 0..3 {
        harness.turn();
    }
    assert_eq!(harness.kept(), [25, 20, 25], "20 ends, and the groups that live");
    assert_eq!(harness.status.deletions_given_up.get(), 75);
    harness.work(2);
    harness.settle().await;
    let runs = taken(&named);
    let (ends, present): (Vec<_>, Vec<_>) = runs.iter().partition(|run| run.starts_with("deleted label/app=v"));
    assert_eq!((ends.len(), present.len()), (20, 5));
    assert_eq!(harness.kept(), [0, 0, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_lives_is_run_after_its_tombstone_was_given_up() {
    let bounds = Bounds { states: 1, waiting: 1, unsettled: 1, all: 1 };
    let directory = tempfile::tempdir().unwrap();
    let mut harness = journaled_within(directory.path(), bounds);
    let apps = ["api", "old", "web"];
    let pods = |name: &str, first: u64| {
        let pods = apps.into_iter().zip(first..).map(|(app, revision)| {
            let name = format!("{app}-{name}");
            pod(&name, &name, app, revision)
        });
        pods.collect::<Vec<_>>()
    };
    harness.list(pods("a", 1).into_iter().chain(pods("b", 4)).map(Record::from).collect(), 8);
    let (named, body) = naming(|_| Ok(Outcome::Settled));
    harness.load_spec(by_app(), body);
    harness.work(1);
    for (round, (gone, left)) in [("a", "b"), ("b", "c")].into_iter().enumerate() {
        let revision = 10 * (round as u64 + 1);
        harness.settle().await;
        taken(&named);
        // One step: two of the tombstones are given up before their keys are queued.
        let joined = pods("c", revision).into_iter().filter(|_| round == 0).map(PodEvent::applied);
        let gone = pods(gone, revision + 5).into_iter().map(PodEvent::deleted);
        harness.observe(Observation::Events(joined.chain(gone).collect()));
        harness.settle().await;
        tokio::time::advance(Duration::from_secs(60)).await;
        harness.turn();
        harness.settle().await;
        let runs = taken(&named);
        for app in apps {
            let last = runs.iter().rfind(|run| run.starts_with(app));
            assert_eq!(last, Some(&format!("{app}-{left}")), "{runs:?}");
        }
        assert_eq!(harness.kept()[1..], [0, 3], "their entries are in the journal again");
    }
    assert!(harness.status.deletions_given_up.get() > 0);
}
