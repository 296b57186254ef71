//! A host that is not well hands the Lease over to one that is, and says why. One that is only busy keeps it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use podium_devcluster::Cluster;
use podium_engine::{
    fixtures::log_to,
    journal,
    ports::{Outcome, Reconcile, Request, RunReport, Staged, Usage, World},
};
use podium_host::app::Options;
use podium_tests::{embedded, plugins, wire::Wire};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

use super::{
    replicas::{Replica, WARM, assert_nothing_twice, cluster, labelled, lease, serving},
    simulation::Log,
};

/// The time until another replica acts.
const WITHIN: Duration = Duration::from_secs(20);

/// Code whose runs take this time.
struct Takes(Duration);

impl Reconcile for Takes {
    fn reconcile(&self, _: Request, _: Box<dyn World>) -> BoxFuture<'_, RunReport<Staged>> {
        Box::pin(async {
            tokio::time::sleep(self.0).await;
            RunReport { result: Ok(Outcome::Settled), staged: Staged::default(), usage: Usage::default() }
        })
    }
}

/// Returns the log of this test, until the second is dropped.
fn logged() -> (Log, impl Sized) {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_env_filter(EnvFilter::new("off,podium=info"));
    let subscriber = subscriber.with_ansi(false).with_writer(log.clone());
    (log.clone(), log_to(subscriber.finish()))
}

/// The log says once that the Lease was handed over, and why.
fn assert_handed_over(log: &Log, why: &str) {
    let lines = log.lines();
    let lines: Vec<_> = lines.iter().filter(|line| line.contains("handing the Lease over")).collect();
    assert!(lines.len() == 1 && lines[0].contains(why), "{lines:?}");
}

/// Starts the replica `a` with these options. Its plugin `registrar` labels each Pod.
async fn first(cluster: &Cluster, wire: &Wire, options: Options) -> Replica {
    let spec = plugins::guest("registrar", "registrar", "").unwrap();
    let kept = Wire::new(cluster);
    let options = Options { lease: Some(embedded::lease(kept.client(), "podium", "a")), ..options };
    Replica { app: serving(options, [spec]).await, wire: wire.clone(), lease: kept }
}

/// Starts the replica `a`, which has one worker, and a plugin whose runs on Pods of the app `slow` take this time.
async fn slow(cluster: &Cluster, took: Duration, wall_millis: u32) -> Replica {
    let watch = "  watch: { selector: { matchLabels: { app: slow } } }";
    let more = format!("{watch}\n  limits: {{ wallMillis: {wall_millis} }}");
    let spec = plugins::guest("registrar", "slow", &more).unwrap();
    let code: Arc<dyn Reconcile> = Arc::new(Takes(took));
    let code = BTreeMap::from([(spec.id.clone(), code)]);
    let wire = Wire::new(cluster);
    let options = Options { workers: 1, code, ..embedded::options(cluster, wire.client()) };
    let replica = first(cluster, &wire, options).await;
    replica.app.load(spec).await.unwrap();
    replica
}

fn holder(cluster: &Cluster) -> (String, u64) {
    let spec = &lease(cluster)["spec"];
    (
        spec["holderIdentity"].as_str().unwrap_or_default().to_owned(),
        spec["leaseTransitions"].as_u64().unwrap_or_default(),
    )
}

#[tokio::test(start_paused = true)]
async fn workers_that_stand_still_hand_the_lease_over() {
    let cluster = cluster();
    let (log, _logged) = logged();
    let first = slow(&cluster, Duration::from_secs(1 << 30), 2_000).await;
    labelled(&cluster, "cart-0").await;
    let second = Replica::start(&cluster, "b").await;
    tokio::time::sleep(WARM).await;
    embedded::create_pod(&cluster, "slow-0", "slow").unwrap();
    // Its own time, and that in which it may wait.
    tokio::time::sleep(Duration::from_secs(2 + 60)).await;
    let took = labelled(&cluster, "cart-1").await;
    assert!(took <= WITHIN, "{took:?}");
    assert_handed_over(&log, "no worker took a key for ");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(holder(&cluster), ("b".to_owned(), 2));
    assert_nothing_twice(&[&first.wire, &second.wire], 3);
}

#[tokio::test(start_paused = true)]
async fn workers_that_are_busy_with_long_runs_keep_the_lease() {
    let cluster = cluster();
    let first = slow(&cluster, Duration::from_secs(60), 60_000).await;
    labelled(&cluster, "cart-0").await;
    let second = Replica::start(&cluster, "b").await;
    tokio::time::sleep(WARM).await;
    for pod in 0..10 {
        embedded::create_pod(&cluster, &format!("slow-{pod}"), "slow").unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1_500)).await;
    assert_eq!((holder(&cluster), second.writes()), (("a".to_owned(), 1), 0));
    embedded::at_rest(&cluster, &first.app).await.unwrap();
    assert_nothing_twice(&[&first.wire], 11);
}

/// Returns a wire, and what holds back its lists and watches of Pods.
fn watch_of(cluster: &Cluster, cut: &watch::Sender<bool>) -> Wire {
    let is_cut = cut.subscribe();
    Wire::with(cluster, move |sent| {
        let mut is_cut = is_cut.clone();
        let is_of_watch = !sent.is_write() && sent.uri.starts_with("/api/v1/pods?");
        Box::pin(async move {
            if is_of_watch {
                drop(is_cut.wait_for(|cut| !cut).await);
            }
        })
    })
}

#[tokio::test(start_paused = true)]
async fn a_stale_watch_hands_the_lease_over_to_one_that_is_current() {
    let cluster = cluster();
    let (log, _logged) = logged();
    let cut = watch::Sender::new(false);
    let wire = watch_of(&cluster, &cut);
    let first = first(&cluster, &wire, embedded::options(&cluster, wire.client())).await;
    labelled(&cluster, "cart-0").await;
    let second = Replica::start(&cluster, "b").await;
    tokio::time::sleep(WARM).await;
    cut.send_replace(true);
    cluster.faults().disconnect_watches();
    let took = labelled(&cluster, "cart-1").await;
    assert!(took <= WITHIN, "{took:?}");
    assert_handed_over(&log, "the cache is stale: ");
    cut.send_replace(false);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((holder(&cluster), first.writes()), (("b".to_owned(), 2), 1));
    assert_nothing_twice(&[&first.wire, &second.wire], 2);
}

#[tokio::test(start_paused = true)]
async fn where_no_watch_is_current_one_replica_takes_the_lease_and_keeps_it() {
    let cluster = cluster();
    let (log, _logged) = logged();
    let cut = watch::Sender::new(false);
    let wires = [watch_of(&cluster, &cut), watch_of(&cluster, &cut)];
    let first = first(&cluster, &wires[0], embedded::options(&cluster, wires[0].client())).await;
    labelled(&cluster, "cart-0").await;
    let options = embedded::options(&cluster, wires[1].client());
    let kept = embedded::lease(Wire::new(&cluster).client(), "podium", "b");
    let spec = plugins::guest("registrar", "registrar", "").unwrap();
    let _second = serving(Options { lease: Some(kept), ..options }, [spec]).await;
    tokio::time::sleep(WARM).await;
    cut.send_replace(true);
    cluster.faults().disconnect_watches();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_handed_over(&log, "the cache is stale: ");
    let (holder, term) = holder(&cluster);
    assert!(!holder.is_empty() && term == 2, "{holder} {term}");
    cut.send_replace(false);
    labelled(&cluster, "cart-1").await;
    assert_nothing_twice(&[&first.wire, &wires[1]], 2);
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_rejects_the_journal_hands_the_lease_over() {
    let cluster = cluster();
    let (log, _logged) = logged();
    let state = tempfile::tempdir().unwrap();
    let opened = journal::open(state.path(), 0).unwrap();
    let journal = opened.journal.clone();
    let wire = Wire::new(&cluster);
    let options = Options { journal: Some(opened), ..embedded::options(&cluster, wire.client()) };
    let first = first(&cluster, &wire, options).await;
    labelled(&cluster, "cart-0").await;
    let second = Replica::start(&cluster, "b").await;
    tokio::time::sleep(WARM).await;
    journal.failed("no space left on device");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let took = labelled(&cluster, "cart-1").await;
    assert!(took <= WITHIN - Duration::from_secs(2), "{took:?}");
    assert_handed_over(&log, "the state directory rejects writes");
    assert_eq!((holder(&cluster), first.writes()), (("b".to_owned(), 2), 1));
    assert_nothing_twice(&[&first.wire, &second.wire], 2);
}
