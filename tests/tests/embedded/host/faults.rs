//! The cache's guarantees while the API server or the network fails. The watch's requests are tested with scripted
//! responses beside its code; this suite checks what readers see.

use std::{collections::BTreeSet, time::Duration};

use podium_devcluster::{Cluster, Garble, Logged, Options, Refusal, Requests, Verb};
use podium_host::app::App;
use podium_pods::pod::PodView;
use podium_tests::{
    embedded,
    oracle::{Observer, converged, regressions},
    wire::Wire,
};
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};

/// The interval between two observations of a test.
const LOOK: Duration = Duration::from_millis(50);
const MINUTE: Duration = Duration::from_secs(60);

/// A host without plugins, and Pods in its cache.
struct Scene {
    cluster: Cluster,
    app: App,
    /// A closed gate holds back the host's reads.
    gate: watch::Sender<bool>,
    pods: usize,
}

impl Scene {
    async fn start(pods: usize) -> Self {
        let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
        let gate = watch::Sender::new(true);
        let waiting = gate.subscribe();
        let wire = Wire::with(&cluster, move |_| {
            let mut gate = waiting.clone();
            Box::pin(async move {
                gate.wait_for(|open| *open).await.unwrap();
            })
        });
        let app = embedded::host(&cluster, wire.client(), Vec::new()).await.unwrap();
        let mut scene = Self { cluster, app, gate, pods: 0 };
        scene.create(pods);
        converged(&scene.cluster, &scene.app, MINUTE).await.unwrap();
        scene
    }

    fn create(&mut self, pods: usize) -> Vec<String> {
        let names: Vec<String> = (self.pods..self.pods + pods).map(|index| format!("cart-{index}")).collect();
        self.pods += pods;
        names.iter().for_each(|name| drop(embedded::create_pod(&self.cluster, name, "cart").unwrap()));
        names
    }

    /// Deletes the first Pod, changes the second and creates a new one.
    async fn change(&mut self) {
        let (_, pods) = self.cluster.list("pods");
        let names: Vec<&str> = pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
        embedded::delete_pod(&self.cluster, names[0]).await.unwrap();
        let patch = json!({"metadata": {"labels": {"round": self.pods.to_string()}}});
        let api = embedded::pods(&self.cluster, Some("default"));
        api.patch(names[1], &Default::default(), &kube::api::Patch::Merge(patch)).await.unwrap();
        self.create(1);
    }

    /// Returns the time until the cache equals the cluster, which must not exceed `within`.
    async fn convergence(&self, within: Duration) -> Duration {
        let began = Instant::now();
        converged(&self.cluster, &self.app, within).await.unwrap();
        began.elapsed()
    }

    /// Returns the host's requests, without reads of single objects.
    fn asked(&self) -> Vec<Logged> {
        let all = self.cluster.requests().all();
        all.into_iter().filter(|logged| matches!(logged.verb, Verb::List | Verb::Watch)).collect()
    }

    /// Returns the times at which lists began, in milliseconds.
    fn lists(&self) -> Vec<i64> {
        let first = |logged: &&Logged| match logged.verb {
            // A list of one Pod only requests the revision.
            Verb::List => !logged.query.contains("continue=") && logged.query != "limit=1",
            _ => logged.query.contains("sendInitialEvents"),
        };
        self.asked().iter().filter(first).map(|logged| logged.at_millis).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_zombie_watch_is_noticed_within_10_seconds_whenever_it_dies() {
    let mut scene = Scene::start(5).await;
    for round in 0..10 {
        tokio::time::sleep(Duration::from_millis(round * 1_700)).await;
        scene.cluster.faults().swallow_watches();
        scene.change().await;
        let took = scene.convergence(Duration::from_secs(11)).await;
        assert!(took <= Duration::from_secs(10) + LOOK, "{took:?}");
    }
    assert_eq!(scene.lists().len(), 1);
    scene.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn silent_watches_cost_a_request_in_five_seconds_and_no_list() {
    let mut scene = Scene::start(5).await;
    let before = scene.asked().len();
    for _ in 0..300 {
        scene.cluster.faults().swallow_watches();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let asked = scene.asked().len() - before;
    assert!((20..=60).contains(&asked), "{asked} requests in 300 s");
    assert_eq!(scene.lists().len(), 1);
    scene.change().await;
    scene.convergence(Duration::from_secs(11)).await;
    scene.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_hour_without_changes_costs_no_list_and_is_never_stale() {
    for others_change in [true, false] {
        let mut scene = Scene::start(5).await;
        let mut reader = scene.app.reader();
        let stale = tokio::spawn(async move { reader.wait_for(|snapshot| snapshot.staleness().is_some()).await });
        let before = scene.asked().len();
        let seen = scene.app.reader().snapshot().revision();
        for second in 0..3_600 {
            if others_change && second % 3 == 0 {
                let name = format!("c-{second}");
                let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
                scene.cluster.create(other).unwrap();
            }
            if second % 60 == 59 {
                scene.cluster.faults().compact();
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!(!stale.is_finished(), "readers learned that the view is stale");
        stale.abort();
        assert_eq!(scene.lists().len(), 1);
        let watches = scene.asked().len() - before;
        assert!(watches <= 720, "{watches} requests in an hour are more than a fifth per second");
        assert_eq!(scene.app.reader().snapshot().revision() > seen, others_change, "bookmarks move the revision");
        scene.change().await;
        scene.convergence(Duration::from_secs(1)).await;
        scene.app.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn readers_see_whole_states_while_history_is_lost_repeatedly() {
    let mut scene = Scene::start(20).await;
    let observer = Observer::unblinking(scene.app.reader());
    let uids = |cluster: &Cluster| -> BTreeSet<String> {
        cluster.list("pods").1.iter().map(|pod| embedded::uid(pod).unwrap()).collect()
    };
    let mut worlds = vec![uids(&scene.cluster)];
    let mut forgotten = 0;
    for round in 0..8 {
        scene.gate.send_replace(false);
        scene.cluster.faults().disconnect_watches();
        for pod in scene.cluster.list("pods").1 {
            embedded::delete_pod(&scene.cluster, pod["metadata"]["name"].as_str().unwrap()).await.unwrap();
        }
        scene.create(20);
        worlds.push(uids(&scene.cluster));
        let more = round % 4;
        scene.cluster.faults().compact();
        scene.cluster.faults().refuse(Requests::Watches, Refusal::Gone, more);
        // Once for the history; the first refusal is reported instead of it.
        forgotten += more.max(1) as usize;
        scene.gate.send_replace(true);
        converged(&scene.cluster, &scene.app, MINUTE).await.unwrap();
    }
    let history = observer.history();
    assert!(history.len() >= worlds.len(), "{} publications are fewer than {} worlds", history.len(), worlds.len());
    for seen in &history {
        let pods: BTreeSet<String> = seen.pods.values().map(|(uid, _)| uid.clone()).collect();
        assert!(worlds.contains(&pods), "{} Pods that never were together", pods.len());
    }
    assert_eq!(regressions(&history), [""; 0]);
    let lists = scene.lists().len();
    assert!(lists <= 1 + forgotten, "{lists} lists for {forgotten} times 410");
    scene.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_lagging_server_is_waited_for_without_a_list() {
    let mut scene = Scene::start(5).await;
    for times in 1..=3 {
        scene.cluster.faults().refuse(Requests::Watches, Refusal::RevisionTooLarge, times);
        scene.cluster.faults().disconnect_watches();
        scene.change().await;
        scene.convergence(Duration::from_secs(10)).await;
        assert_eq!(scene.lists().len(), 1);
    }
    scene.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_restored_etcd_is_detected_and_applied_within_10_seconds() {
    for phase in 0..5 {
        let mut scene = Scene::start(5).await;
        let saved = scene.cluster.faults().save();
        for _ in 0..4 {
            scene.change().await;
        }
        scene.convergence(MINUTE).await;
        let lost = scene.app.reader().snapshot().revision();
        tokio::time::sleep(Duration::from_millis(phase * 1_900)).await;
        scene.cluster.faults().restore(&saved);
        let took = scene.convergence(Duration::from_secs(10)).await;
        let revision = scene.app.reader().snapshot().revision();
        assert!(revision < lost, "{revision} is of the old history, which ended at {lost}; after {took:?}");
        scene.change().await;
        scene.convergence(Duration::from_secs(1)).await;
        scene.app.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn with_lagging_replicas_no_reader_sees_the_cache_go_back() {
    let mut scene = Scene::start(6).await;
    let observer = Observer::start(scene.app.reader());
    let mut past = vec![scene.cluster.faults().save()];
    for round in 0..150_usize {
        for _ in 0..=round % 3 {
            scene.change().await;
        }
        past.push(scene.cluster.faults().save());
        // Later requests are answered with the present state or one of the last eight.
        match round * 7 % 9 {
            0 | 3 | 5 => scene.cluster.faults().catch_up(),
            back => scene.cluster.faults().lag(&past[past.len().saturating_sub(back)]),
        }
        match round % 5 {
            0 => scene.cluster.faults().compact(),
            1 => scene.cluster.faults().next_watch_gone(),
            _ => scene.cluster.faults().disconnect_watches(),
        }
        tokio::time::sleep(Duration::from_millis(100 + round as u64 * 137 % 5_000)).await;
    }
    scene.cluster.faults().heal();
    scene.convergence(Duration::from_secs(10)).await;
    let history = observer.history();
    assert!(history.len() > 100, "{} publications are too few to judge by", history.len());
    assert_eq!(regressions(&history), [""; 0]);
    scene.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn malformed_events_neither_block_nor_corrupt_the_cache() {
    let all = [Garble::Duplicate, Garble::Swap, Garble::Truncate, Garble::Malformed, Garble::Null];
    let mut scene = Scene::start(5).await;
    let observer = Observer::start(scene.app.reader());
    for how in all {
        for events in [1, 2, 5] {
            scene.cluster.faults().garble(how, events);
            for _ in 0..3 {
                scene.change().await;
            }
            let took = scene.convergence(Duration::from_secs(10)).await;
            assert!(took <= Duration::from_secs(10), "{how:?} {events}: {took:?}");
            scene.cluster.faults().heal();
        }
    }
    for round in 0..200 {
        scene.cluster.faults().garble(all[round * 3 % 5], 1 + u32::try_from(round % 2).unwrap());
        scene.change().await;
        tokio::time::sleep(Duration::from_millis(round as u64 * 53 % 700)).await;
    }
    scene.cluster.faults().heal();
    scene.convergence(Duration::from_secs(10)).await;
    assert_eq!(regressions(&observer.history()), [""; 0]);
    scene.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_without_an_end_delays_the_cache_by_15_s() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    cluster.faults().without_end_bookmark(1);
    let began = Instant::now();
    let app = embedded::host(&cluster, Wire::new(&cluster).client(), Vec::new()).await.unwrap();
    converged(&cluster, &app, MINUTE).await.unwrap();
    assert!(began.elapsed() <= Duration::from_secs(15) + LOOK, "{:?}", began.elapsed());
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_hundred_lost_watches_cost_a_hundred_lists_one_at_a_time() {
    /// The duration of each response in milliseconds.
    const ANSWER: i64 = 40;
    let mut scene = Scene::start(20).await;
    scene.cluster.faults().delay(Duration::from_millis(ANSWER as u64));
    for kill in 0..100 {
        scene.cluster.faults().next_watch_gone();
        scene.cluster.faults().disconnect_watches();
        scene.create(1);
        tokio::time::sleep(Duration::from_millis(kill * 41 % 600)).await;
    }
    scene.cluster.faults().heal();
    scene.convergence(Duration::from_secs(10)).await;
    let lists = scene.lists();
    assert!((10..=101).contains(&lists.len()), "{} lists", lists.len());
    let apart = lists.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
    assert!(apart >= ANSWER, "a list began {apart} ms after another one, which took {ANSWER}");
    scene.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_is_observed_and_the_cache_converges() {
    let mut scene = Scene::start(5).await;
    let patience = Refusal::TooManyRequests { retry_after_seconds: 7 };
    for (refusal, times, at_most) in [(patience, 1, 9), (Refusal::Internal, 4, 10), (Refusal::Unavailable, 4, 10)] {
        let before = scene.asked().len();
        scene.cluster.faults().refuse(Requests::All, refusal, times);
        scene.cluster.faults().disconnect_watches();
        // After the refusals.
        scene.create(1);
        let took = scene.convergence(Duration::from_secs(at_most)).await;
        if refusal == patience {
            assert!(took >= Duration::from_secs(7), "{took:?}");
        }
        let asked = scene.asked().len() - before;
        assert!(asked <= times as usize + 1, "{asked} requests, of which {times} were refused");
    }
    assert_eq!(scene.lists().len(), 1);
    scene.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn every_field_of_every_pod_is_correct_after_faults() {
    let cluster = Cluster::start(Options { seed: 5, ..Options::default() }).unwrap();
    let app = embedded::host(&cluster, Wire::new(&cluster).client(), Vec::new()).await.unwrap();
    let faults = cluster.faults();
    for round in 0..40_usize {
        let behaviour = ["", "crash", "oom", "finish", "fail", "pending"][round % 6];
        cluster.create(lively(round, behaviour)).unwrap();
        match round % 8 {
            0 => faults.swallow_watches(),
            1 => faults.garble(Garble::Swap, 2),
            2 => faults.next_watch_gone(),
            3 => faults.garble(Garble::Truncate, 1),
            4 => faults.compact(),
            5 => faults.without_end_bookmark(1),
            6 => faults.refuse(Requests::Lists, Refusal::Internal, 1),
            _ => faults.disconnect_watches(),
        }
        if round >= 20 {
            embedded::delete_pod(&cluster, &format!("lively-{}", round - 20)).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(180)).await;
        converged(&cluster, &app, MINUTE).await.unwrap();
    }
    assert_eq!(app.reader().snapshot().len(), 20);
    app.shutdown().await;
}

/// Returns a Pod with data in each section.
fn lively(index: usize, behaviour: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("lively-{index}"), "labels": {"app": "cart", "index": index.to_string()},
            "annotations": {podium_devcluster::BEHAVIOUR: behaviour},
            "ownerReferences": [{"apiVersion": embedded::UNSERVED, "kind": "ReplicaSet", "name": "cart", "uid": "cart",
                "controller": true}],
        },
        "spec": {
            "containers": [{"name": "c", "image": "registry.example/c:1", "env": [{"name": "A", "value": "b"}],
                "resources": {"limits": {"memory": "64Mi"}}}],
            "tolerations": [{"key": "k", "operator": "Exists"}],
        },
    })
}
