//! Hosts that share the plugins: each runs those of its shards of namespaces.

use std::{collections::BTreeMap, time::Duration};

use anyhow::ensure;
use podium_devcluster::{Cluster, Options};
use podium_host::app::{App, Mode};
use podium_tests::{embedded, plugins, wait::until, wire::Wire};
use podium_vocabulary::{PluginSpec, Shards};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

/// The duration of the Leases.
const LEASE: Duration = Duration::from_secs(8);
/// The time in which a replica that has started takes its share: it learns which deletions the others have not settled,
/// and then one shard after another is handed over.
const SHARED: Duration = Duration::from_secs(180);
const TENANTS: usize = 20;
const LABEL: &str = "guests.example/seen";

/// A host with the plugin `registrar`, which labels each Pod, of each tenant.
struct Replica {
    name: &'static str,
    app: App,
    wire: Wire,
    lease: Wire,
}

fn tenant(number: usize) -> String {
    format!("team-{number:02}")
}

fn cluster() -> Cluster {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    for number in 0..TENANTS {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant(number)}});
        cluster.create(namespace).unwrap();
    }
    cluster
}

/// The plugins of all tenants, and one of the cluster, which labels no Pod.
fn specs() -> Vec<PluginSpec> {
    let spec = plugins::guest("registrar", "registrar", "").unwrap();
    let of = |number| {
        let mut spec = spec.clone();
        spec.id.namespace = Some(tenant(number).into());
        spec
    };
    (0..TENANTS).map(of).collect()
}

impl Replica {
    async fn start(cluster: &Cluster, name: &'static str, active_replicas: Mode) -> Self {
        Self::with(cluster, name, active_replicas, Wire::new(cluster), specs()).await
    }

    async fn with(
        cluster: &Cluster,
        name: &'static str,
        active_replicas: Mode,
        wire: Wire,
        specs: Vec<PluginSpec>,
    ) -> Self {
        let lease = Wire::new(cluster);
        let lease_options =
            podium_host::app::LeaseOptions { active_replicas, ..embedded::lease(lease.client(), "podium", name) };
        let options =
            podium_host::app::Options { lease: Some(lease_options), ..embedded::options(cluster, wire.client()) };
        let app = App::start_simulated(options).await.unwrap();
        for spec in specs {
            app.load(spec).await.unwrap();
        }
        app.started();
        Self { name, app, wire, lease }
    }

    /// The tenants whose Pods it has written to.
    fn tenants(&self) -> Vec<String> {
        let mut tenants: Vec<_> = self.wire.writes().iter().map(|sent| namespace(&sent.uri)).collect();
        tenants.sort_unstable();
        tenants.dedup();
        tenants
    }
}

fn namespace(uri: &str) -> String {
    uri.split('/').nth(4).unwrap().to_owned()
}

/// Creates a Pod of each tenant, and returns the time until each has its label.
async fn labelled(cluster: &Cluster, name: &str) -> Duration {
    let began = Instant::now();
    for number in 0..TENANTS {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": tenant(number)},
            "spec": {"containers": [{"name": "c", "image": "registry.example/c:1"}]},
        });
        cluster.create(pod).unwrap();
    }
    until("the labels", Duration::from_secs(90), async || {
        for number in 0..TENANTS {
            let pod = embedded::pods(cluster, Some(&tenant(number))).get(name).await?;
            ensure!(pod.metadata.labels.is_some_and(|labels| labels.contains_key(LABEL)), "{}", tenant(number));
        }
        Ok(())
    })
    .await
    .unwrap();
    began.elapsed()
}

/// Each Pod was written to once, by one of the replicas.
fn assert_nothing_twice(replicas: &[&Wire], pods: usize) {
    let writes = replicas.iter().flat_map(|wire| wire.writes());
    let mut writes: Vec<String> = writes.map(|sent| sent.uri.split('?').next().unwrap().into()).collect();
    writes.sort_unstable();
    let all = writes.len();
    writes.dedup();
    assert_eq!((all, writes.len()), (pods * TENANTS, pods * TENANTS), "{writes:?}");
}

/// The number of shards by holder.
fn holders(cluster: &Cluster) -> BTreeMap<String, usize> {
    let (_, leases) = cluster.list("leases.coordination.k8s.io");
    let mut holders = BTreeMap::new();
    for number in 0..Shards::COUNT {
        let lease = leases.iter().find(|lease| lease["metadata"]["name"] == format!("podium-host-shard-{number}"));
        let holder = lease.map_or(&Value::Null, |lease| &lease["spec"]["holderIdentity"]);
        *holders.entry(holder.as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    holders
}

fn expect(cluster: &Cluster, expected: &[(&str, usize)]) {
    let expected: BTreeMap<_, _> = expected.iter().map(|(holder, count)| ((*holder).to_owned(), *count)).collect();
    assert_eq!(holders(cluster), expected);
}

#[tokio::test(start_paused = true)]
async fn replicas_share_the_tenants_and_go_on_for_one_that_crashes() {
    let cluster = cluster();
    let first = Replica::start(&cluster, "a", Mode::All).await;
    labelled(&cluster, "cart-0").await;
    assert_eq!(first.tenants().len(), TENANTS);
    let second = Replica::start(&cluster, "b", Mode::All).await;
    sleep(SHARED).await;
    expect(&cluster, &[("a", 8), ("b", 8)]);
    labelled(&cluster, "cart-1").await;
    assert_nothing_twice(&[&first.wire, &second.wire], 2);
    let before = first.wire.writes().len();
    let third = Replica::start(&cluster, "c", Mode::All).await;
    sleep(SHARED).await;
    assert_eq!(
        holders(&cluster).values().filter(|count| (5..=6).contains(*count)).count(),
        3,
        "{:?}",
        holders(&cluster)
    );
    assert_eq!((first.wire.writes().len(), third.wire.writes().len()), (before, 0), "nothing needed a write");
    labelled(&cluster, "cart-2").await;
    assert!((3..=9).contains(&third.tenants().len()), "{} has {:?}", third.name, third.tenants());

    let Replica { app, wire, .. } = first;
    drop(app);
    let took = labelled(&cluster, "cart-3").await;
    assert!(took <= LEASE + Duration::from_secs(3), "{took:?}");
    sleep(SHARED).await;
    expect(&cluster, &[("b", 8), ("c", 8)]);
    embedded::at_rest(&cluster, &third.app).await.unwrap();
    let Replica { app, wire: of_second, .. } = second;
    app.shutdown().await;
    let took = labelled(&cluster, "cart-4").await;
    assert!(took <= Duration::from_millis(1_500), "{took:?}");
    embedded::at_rest(&cluster, &third.app).await.unwrap();
    assert_nothing_twice(&[&wire, &of_second, &third.wire], 5);
    expect(&cluster, &[("c", 16)]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_its_label_is_taken_and_one_with_rubbish_is_left() {
    let cluster = cluster();
    for (shard, format) in [(9, "2"), (3, "rubbish")] {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": format!("podium-host-shard-{shard}"), "namespace": "default",
                "labels": {"app.kubernetes.io/managed-by": "somebody"},
                "annotations": {
                    "podium.dev/format": format, "podium.dev/shards": "16",
                    "podium.dev/installation": "podium", "podium.dev/renewal": "1",
                },
            },
            "spec": {"leaseDurationSeconds": 8, "leaseTransitions": 3},
        });
        cluster.create(lease).unwrap();
    }
    let _first = Replica::start(&cluster, "a", Mode::All).await;
    sleep(SHARED).await;
    expect(&cluster, &[("a", 15), ("", 1)]);
    let _second = Replica::start(&cluster, "b", Mode::All).await;
    sleep(SHARED).await;
    let shared = holders(&cluster);
    assert!(shared["a"].abs_diff(shared["b"]) <= 1, "{shared:?}");
}

#[tokio::test(start_paused = true)]
async fn a_rollout_from_one_active_replica_to_all_and_back_writes_nothing_twice() {
    let cluster = cluster();
    let one = Replica::start(&cluster, "a", Mode::One).await;
    labelled(&cluster, "cart-0").await;
    let all = [Replica::start(&cluster, "b", Mode::All).await, Replica::start(&cluster, "c", Mode::All).await];
    sleep(SHARED).await;
    labelled(&cluster, "cart-1").await;
    assert_eq!(all.each_ref().map(|replica| replica.wire.writes().len()), [0, 0], "standbys");
    let Replica { app, wire: of_one, .. } = one;
    app.shutdown().await;
    let took = labelled(&cluster, "cart-2").await;
    assert!(took <= LEASE + Duration::from_secs(4), "{took:?}");
    sleep(SHARED).await;
    expect(&cluster, &[("b", 8), ("c", 8)]);

    let back = Replica::start(&cluster, "d", Mode::One).await;
    sleep(SHARED).await;
    labelled(&cluster, "cart-3").await;
    assert_eq!(back.wire.writes().len(), 0, "a standby");
    let [second, third] = all;
    let Replica { app, wire: of_second, .. } = second;
    app.shutdown().await;
    labelled(&cluster, "cart-4").await;
    assert_eq!(back.wire.writes().len(), 0, "one of the others goes on");
    let Replica { app, wire: of_third, .. } = third;
    drop(app);
    let took = labelled(&cluster, "cart-5").await;
    assert!(took <= LEASE + Duration::from_secs(3), "{took:?}");
    assert_nothing_twice(&[&of_one, &of_second, &of_third, &back.wire], 6);
}

#[tokio::test(start_paused = true)]
async fn sharing_costs_a_renewal_of_each_lease_and_few_lists() {
    let cluster = cluster();
    let replicas = [Replica::start(&cluster, "a", Mode::All).await, Replica::start(&cluster, "b", Mode::All).await];
    sleep(2 * SHARED).await;
    let writes = || replicas.iter().map(|replica| replica.lease.writes().len()).sum::<usize>();
    let before = writes();
    cluster.requests().clear();
    sleep(Duration::from_secs(100)).await;
    let renewals = writes() - before;
    assert!((1_700..2_300).contains(&renewals), "17 renewals a second: {renewals}");
    let reads = cluster.requests().all().iter().filter(|logged| logged.resource.starts_with("leases.")).count();
    assert!(reads - renewals <= 2 * 4 * 100, "4 lists a second and replica: {reads}");
    assert_eq!(replicas.iter().map(|replica| replica.wire.writes().len()).sum::<usize>(), 0);
}

/// Returns the uids of the deletions that the plugin has noted in the Pod `register`.
async fn noted(cluster: &Cluster) -> Vec<String> {
    let annotations = embedded::annotations(cluster, "register").await.unwrap();
    let uid = |key: String| Some(key.strip_prefix("guests.example/deleted-")?.to_owned());
    annotations.into_keys().filter_map(uid).collect()
}

#[tokio::test(start_paused = true)]
async fn deletions_that_the_holder_of_the_shard_has_not_delivered_are_delivered() {
    let cluster = cluster();
    let register = embedded::create_pod(&cluster, "register", "cart").unwrap();
    let mut spec = plugins::guest("registrar", "registrar", "").unwrap();
    spec.id.namespace = Some("default".into());
    spec.config = json!({ "register": register }).to_string().into();
    let open = watch::Sender::new(true);
    let wire = || {
        let is_open = open.subscribe();
        Wire::with(&cluster, move |sent| {
            let mut is_open = is_open.clone();
            let is_write = sent.is_write();
            Box::pin(async move {
                if is_write {
                    drop(is_open.wait_for(|open| *open).await);
                }
            })
        })
    };
    let first = Replica::with(&cluster, "a", Mode::All, wire(), vec![spec.clone()]).await;
    let second = Replica::with(&cluster, "b", Mode::All, wire(), vec![spec.clone()]).await;
    sleep(SHARED).await;
    expect(&cluster, &[("a", 8), ("b", 8)]);
    let mut uids = Vec::new();
    for pod in ["settled", "unsettled", "after"] {
        uids.push(embedded::create_pod(&cluster, pod, "cart").unwrap());
    }
    sleep(Duration::from_secs(5)).await;
    let (holder, other) =
        if first.wire.writes().len() > second.wire.writes().len() { (first, second) } else { (second, first) };
    embedded::delete_pod(&cluster, "settled").await.unwrap();
    // The mark says that it has settled.
    sleep(Duration::from_secs(90)).await;
    assert_eq!(noted(&cluster).await, uids[..1]);
    open.send_replace(false);
    embedded::delete_pod(&cluster, "unsettled").await.unwrap();
    sleep(Duration::from_secs(30)).await;
    drop(holder);
    open.send_replace(true);
    embedded::delete_pod(&cluster, "after").await.unwrap();
    sleep(Duration::from_secs(30)).await;
    let mut found = noted(&cluster).await;
    found.sort_unstable();
    uids.sort_unstable();
    assert_eq!(found, uids);
    let runs = other.app.status().plugin(&spec.id).runs();
    assert!(runs <= 1 + 2 + 2, "one for each Pod and deletion, and for the changes of the register: {runs}");
}
