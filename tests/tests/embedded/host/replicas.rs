//! Two hosts of one cluster: one runs the plugins, and the other one goes on after it.

use std::time::Duration;

use anyhow::ensure;
use podium_devcluster::{Cluster, Options};
use podium_host::app::App;
use podium_tests::{
    embedded, plugins,
    wait::until,
    wire::{Sent, Wire},
};
use podium_vocabulary::PluginSpec;
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};

/// The duration of the Lease.
const LEASE: Duration = Duration::from_secs(8);
/// The time after which a standby takes the Lease as soon as it may.
pub(super) const WARM: Duration = Duration::from_secs(120);
const LABEL: &str = "guests.example/seen";

/// A host with the plugin `registrar`, which labels each Pod, and the wires of its requests.
pub(super) struct Replica {
    pub(super) app: App,
    pub(super) wire: Wire,
    pub(super) lease: Wire,
}

impl Replica {
    pub(super) async fn start(cluster: &Cluster, name: &str) -> Self {
        Self::started(cluster, name, "podium", Wire::new(cluster)).await
    }

    async fn started(cluster: &Cluster, name: &str, own_namespace: &str, lease: Wire) -> Self {
        let spec = plugins::guest("registrar", "registrar", "").unwrap();
        Self::with(cluster, name, own_namespace, lease, Wire::new(cluster), spec).await
    }

    async fn with(
        cluster: &Cluster,
        name: &str,
        own_namespace: &str,
        lease: Wire,
        wire: Wire,
        spec: PluginSpec,
    ) -> Self {
        let options = podium_host::app::Options {
            lease: Some(embedded::lease(lease.client(), own_namespace, name)),
            ..embedded::options(cluster, wire.client())
        };
        Self { app: serving(options, [spec]).await, wire, lease }
    }

    pub(super) fn writes(&self) -> usize {
        self.wire.writes().len()
    }
}

/// Starts a host with these plugins.
pub(super) async fn serving(options: podium_host::app::Options, specs: impl IntoIterator<Item = PluginSpec>) -> App {
    let app = App::start_simulated(options).await.unwrap();
    for spec in specs {
        app.load(spec).await.unwrap();
    }
    app.started();
    app
}

pub(super) fn cluster() -> Cluster {
    Cluster::start(Options { simulate: false, ..Options::default() }).unwrap()
}

pub(super) fn lease(cluster: &Cluster) -> Value {
    let (_, leases) = cluster.list("leases.coordination.k8s.io");
    leases.into_iter().find(|lease| lease["metadata"]["name"] == "podium-host").unwrap_or_default()
}

/// Creates a Pod, and returns the time until it has its label.
pub(super) async fn labelled(cluster: &Cluster, pod: &str) -> Duration {
    let began = Instant::now();
    embedded::create_pod(cluster, pod, "cart").unwrap();
    until("the label", Duration::from_secs(60), async || {
        ensure!(embedded::label(cluster, pod, LABEL).await?.is_some(), "none yet");
        Ok(())
    })
    .await
    .unwrap();
    began.elapsed()
}

/// Each Pod was written to once, by one of the replicas.
pub(super) fn assert_nothing_twice(replicas: &[&Wire], pods: usize) {
    let mut writes: Vec<String> = replicas
        .iter()
        .flat_map(|wire| wire.writes())
        .map(|Sent { uri, .. }| uri.split('?').next().unwrap().into())
        .collect();
    writes.sort_unstable();
    let all = writes.len();
    writes.dedup();
    assert_eq!((all, writes.len()), (pods, pods), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn of_two_replicas_one_acts_and_after_its_crash_the_other() {
    let cluster = cluster();
    let first = Replica::start(&cluster, "a").await;
    labelled(&cluster, "cart-0").await;
    let second = Replica::start(&cluster, "b").await;
    labelled(&cluster, "cart-1").await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!((first.writes(), second.writes()), (2, 0));
    assert_eq!(second.lease.writes(), [], "a standby reads");
    let renewals = first.lease.writes().len();
    assert!((3_500..4_600).contains(&renewals), "one renewal a second: {renewals}");

    let Replica { app, wire, .. } = first;
    drop(app);
    let took = labelled(&cluster, "cart-2").await;
    assert!(took <= LEASE + Duration::from_secs(2), "{took:?}");
    embedded::at_rest(&cluster, &second.app).await.unwrap();
    assert_nothing_twice(&[&wire, &second.wire], 3);
    assert_eq!(
        (lease(&cluster)["spec"]["holderIdentity"].clone(), lease(&cluster)["spec"]["leaseTransitions"].clone()),
        ("b".into(), 2.into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_hands_over_within_a_second() {
    let cluster = cluster();
    let first = Replica::start(&cluster, "a").await;
    labelled(&cluster, "cart-0").await;
    let second = Replica::start(&cluster, "b").await;
    // It knows all deletions that the mark leaves open.
    tokio::time::sleep(WARM).await;
    let Replica { app, wire, .. } = first;
    app.shutdown().await;
    assert_eq!(lease(&cluster)["spec"]["holderIdentity"], Value::Null);
    let took = labelled(&cluster, "cart-1").await;
    assert!(took <= Duration::from_secs(1), "{took:?}");
    assert_nothing_twice(&[&wire, &second.wire], 2);
    second.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_holder_without_answers_stops_before_another_begins() {
    let cluster = cluster();
    let cut = watch::Sender::new(false);
    let is_cut = cut.subscribe();
    let lease = Wire::with(&cluster, move |_| {
        let mut is_cut = is_cut.clone();
        Box::pin(async move { drop(is_cut.wait_for(|cut| !cut).await) })
    });
    let first = Replica::started(&cluster, "a", "podium", lease).await;
    labelled(&cluster, "cart-0").await;
    let second = Replica::start(&cluster, "b").await;
    // It knows all deletions that the mark leaves open.
    tokio::time::sleep(WARM).await;
    cut.send_replace(true);
    let began = Instant::now();
    // It goes on for as long as no other replica may take the Lease, and then none writes for a moment.
    let mut pods = 1;
    let mut by_first = 1;
    while second.writes() == 0 {
        embedded::create_pod(&cluster, &format!("cart-{pods}"), "cart").unwrap();
        pods += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
        if first.writes() > by_first {
            by_first = first.writes();
            assert!(began.elapsed() <= LEASE * 7 / 8 + Duration::from_millis(100), "{:?}", began.elapsed());
        }
        assert!(began.elapsed() <= LEASE + Duration::from_secs(2), "{:?}", began.elapsed());
    }
    assert!(began.elapsed() >= LEASE - Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(by_first > 50, "{by_first}");
    cut.send_replace(false);
    tokio::time::sleep(Duration::from_secs(60)).await;
    embedded::at_rest(&cluster, &second.app).await.unwrap();
    assert_eq!(first.writes(), by_first, "it is a standby");
    assert_nothing_twice(&[&first.wire, &second.wire], pods);
}

#[tokio::test(start_paused = true)]
async fn renewals_whose_answers_are_lost_keep_the_lease() {
    let cluster = cluster();
    let lost = watch::Sender::new(false);
    let is_lost = lost.subscribe();
    let wire = Wire::around(
        &cluster,
        |_| Box::pin(std::future::ready(())),
        move |sent| {
            let is_lost = sent.is_write() && *is_lost.borrow();
            Box::pin(async move {
                if is_lost {
                    std::future::pending().await
                }
            })
        },
    );
    let first = Replica::started(&cluster, "a", "podium", wire).await;
    labelled(&cluster, "cart-0").await;
    let second = Replica::start(&cluster, "b").await;
    // It knows all deletions that the mark leaves open.
    tokio::time::sleep(WARM).await;
    lost.send_replace(true);
    tokio::time::sleep(Duration::from_secs(3)).await;
    lost.send_replace(false);
    tokio::time::sleep(Duration::from_secs(60)).await;
    labelled(&cluster, "cart-1").await;
    assert_eq!((first.writes(), second.writes()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_deleted_ends_the_term_and_is_taken_again_once() {
    let cluster = cluster();
    let first = Replica::start(&cluster, "a").await;
    labelled(&cluster, "cart-0").await;
    let second = Replica::start(&cluster, "b").await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/podium-host";
    let client = kube::Client::new(cluster.service(), "default");
    client.request::<Value>(http::Request::delete(path).body(Vec::new()).unwrap()).await.unwrap();
    let took = labelled(&cluster, "cart-1").await;
    assert!(took <= LEASE + Duration::from_secs(3), "{took:?}");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_nothing_twice(&[&first.wire, &second.wire], 2);
}

/// Returns the uids of the deletions that the plugin has noted in the Pod `register`.
async fn noted(cluster: &Cluster) -> Vec<String> {
    let annotations = embedded::annotations(cluster, "register").await.unwrap();
    annotations.into_keys().filter_map(|key| Some(key.strip_prefix("guests.example/deleted-")?.to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn deletions_that_the_other_replica_has_not_delivered_are_delivered() {
    let cluster = cluster();
    let register = embedded::create_pod(&cluster, "register", "cart").unwrap();
    let open = watch::Sender::new(true);
    let is_open = open.subscribe();
    let wire = Wire::with(&cluster, move |sent| {
        let mut is_open = is_open.clone();
        let is_write = sent.is_write();
        Box::pin(async move {
            if is_write {
                drop(is_open.wait_for(|open| *open).await);
            }
        })
    });
    let spec = || {
        let mut spec = plugins::guest("registrar", "registrar", "").unwrap();
        spec.config = json!({ "register": register }).to_string().into();
        spec
    };
    let first = Replica::with(&cluster, "a", "podium", Wire::new(&cluster), wire, spec()).await;
    labelled(&cluster, "early").await;
    let second = Replica::with(&cluster, "b", "podium", Wire::new(&cluster), Wire::new(&cluster), spec()).await;
    let mut uids = Vec::new();
    for pod in ["settled", "unsettled", "after"] {
        labelled(&cluster, pod).await;
        let pod = embedded::pods(&cluster, Some("default")).get(pod).await.unwrap();
        uids.push(pod.metadata.uid.unwrap());
    }
    embedded::delete_pod(&cluster, "settled").await.unwrap();
    // The mark says that it has settled.
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert_eq!(noted(&cluster).await, uids[..1]);
    open.send_replace(false);
    embedded::delete_pod(&cluster, "unsettled").await.unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let Replica { app, wire, .. } = first;
    drop(app);
    embedded::delete_pod(&cluster, "after").await.unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let mut expected = uids.clone();
    expected.sort_unstable();
    let mut found = noted(&cluster).await;
    found.sort_unstable();
    assert_eq!(found, expected);
    let id = spec().id;
    embedded::at_rest(&cluster, &second.app).await.unwrap();
    let runs = second.app.status().plugin(&id).runs();
    assert!(runs <= 2 + 2 + 2, "one for each Pod and deletion, and for the changes of the register: {runs}");
    drop(wire);
}

#[tokio::test(start_paused = true)]
async fn a_host_of_another_installation_writes_nothing() {
    let cluster = cluster();
    let first = Replica::start(&cluster, "a").await;
    labelled(&cluster, "cart-0").await;
    let other = Replica::started(&cluster, "b", "elsewhere", Wire::new(&cluster)).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    drop(first);
    tokio::time::sleep(Duration::from_secs(600)).await;
    embedded::create_pod(&cluster, "cart-1", "cart").unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((other.writes(), other.lease.writes().len()), (0, 0));
}
