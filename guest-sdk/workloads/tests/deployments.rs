//! Deployments: random histories, and the steps that users see.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]

mod common;

use common::{Cluster, deployment};
use podium_workloads::Kind;
use proptest::prelude::*;
use serde_json::{Value, json};

fn rolling(surge: &Value, unavailable: &Value) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
}

fn images(cluster: &Cluster) -> Vec<&str> {
    cluster.active().into_iter().map(|pod| pod["spec"]["containers"][0]["image"].as_str().unwrap()).collect()
}

fn condition(cluster: &Cluster, kind: &str) -> Value {
    let conditions = cluster.get(Kind::Deployment, "web")["status"]["conditions"].as_array().unwrap().clone();
    conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
}

fn set_image(cluster: &mut Cluster, image: &str) {
    cluster
        .edit(Kind::Deployment, "web", |web| web["spec"]["template"]["spec"]["containers"][0]["image"] = image.into());
}

fn set(cluster: &mut Cluster, field: &str, value: Value) {
    cluster.edit(Kind::Deployment, "web", |web| web["spec"][field] = value);
}

#[derive(Clone, Debug)]
enum Op {
    Scale(i64),
    Image(u8),
    Pause(bool),
    DeletePod(usize),
    Kubelet(usize),
    Wait(i64),
    Step,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        1 => (0_i64..12).prop_map(Op::Scale),
        1 => (0_u8..4).prop_map(Op::Image),
        1 => any::<bool>().prop_map(Op::Pause),
        1 => (0_usize..20).prop_map(Op::DeletePod),
        8 => (0_usize..20).prop_map(Op::Kubelet),
        1 => (1_i64..30).prop_map(Op::Wait),
        8 => Just(Op::Step),
    ]
}

fn bound() -> impl Strategy<Value = Value> {
    prop_oneof![(0_i64..5).prop_map(Value::from), (0_u32..101).prop_map(|percent| Value::from(format!("{percent}%"))),]
}

/// Returns the bound as a number, rounded as Kubernetes does.
fn resolved(bound: &Value, replicas: i64, up: bool) -> i64 {
    bound.as_i64().unwrap_or_else(|| {
        let percent: i64 = bound.as_str().unwrap().trim_end_matches('%').parse().unwrap();
        (replicas * percent + if up { 99 } else { 0 }) / 100
    })
}

/// The bounds within which the Pods stay. After a change of the size they begin at the present numbers.
struct Bounds {
    most: i64,
    least: i64,
    /// Whether ReplicaSets have the size of an earlier number of replicas: scaling keeps proportions, not bounds.
    scaled: bool,
}

impl Bounds {
    fn new(cluster: &Cluster, surge: &Value, unavailable: &Value) -> Self {
        let spec = &cluster.get(Kind::Deployment, "web")["spec"];
        let replicas = spec["replicas"].as_i64().unwrap();
        let surge = resolved(surge, replicas, true);
        let unavailable = resolved(unavailable, replicas, false).max(i64::from(surge == 0)).min(replicas);
        let available = cluster.available_pods(spec["minReadySeconds"].as_i64().unwrap());
        let mut total = 0;
        let mut lasting = 0;
        let mut scaled = false;
        for set in cluster.of_kind(Kind::ReplicaSet) {
            let size = set["spec"]["replicas"].as_i64().unwrap();
            let own = |pod: &&&Value| pod["metadata"]["ownerReferences"][0]["uid"] == set["metadata"]["uid"];
            total += size;
            lasting += size.min(available.iter().filter(own).count() as i64);
            let desired = &set["metadata"]["annotations"]["deployment.kubernetes.io/desired-replicas"];
            scaled |= size > 0 && desired.as_str() != Some(&*replicas.to_string());
        }
        let most = (replicas + surge).max(cluster.active().len() as i64).max(total);
        Self { most, least: (replicas - unavailable).min(lasting), scaled }
    }

    /// Bounds become narrower when the Pods have come closer to the wanted numbers.
    fn narrow(&mut self, other: &Self) {
        self.most = self.most.min(other.most);
        self.least = self.least.max(other.least);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_rollout_keeps_its_bounds_at_each_step_and_ends(
        ops in prop::collection::vec(op(), 0..120), surge in bound(), unavailable in bound(), wait in 0_i64..3,
    ) {
        let mut cluster = Cluster::new();
        let mut web = deployment(4, rolling(&surge, &unavailable));
        web["spec"]["minReadySeconds"] = wait.into();
        cluster.create(Kind::Deployment, web);
        let mut bounds = Bounds::new(&cluster, &surge, &unavailable);
        for op in ops {
            match op {
                Op::Scale(replicas) => set(&mut cluster, "replicas", replicas.into()),
                Op::Image(3) => set_image(&mut cluster, "bad"),
                Op::Image(image) => set_image(&mut cluster, &image.to_string()),
                Op::Pause(paused) => set(&mut cluster, "paused", paused.into()),
                Op::DeletePod(index) => {
                    let name = cluster.names(Kind::Pod).get(index).cloned();
                    name.into_iter().for_each(|name| cluster.delete(Kind::Pod, &name));
                }
                Op::Kubelet(index) => {
                    let name = cluster.names(Kind::Pod).get(index).cloned();
                    name.into_iter().for_each(|name| cluster.kubelet(&name));
                }
                Op::Wait(seconds) => cluster.now += seconds,
                Op::Step => drop(cluster.step()),
            }
            let present = Bounds::new(&cluster, &surge, &unavailable);
            if bounds.scaled || matches!(op, Op::Scale(_) | Op::DeletePod(_)) {
                bounds = present;
            } else {
                bounds.narrow(&present);
            }
            let pods = cluster.active().len() as i64;
            let available = cluster.available(wait) as i64;
            prop_assert!(pods <= bounds.most, "{pods} Pods, {} allowed", bounds.most);
            prop_assert!(available >= bounds.least, "{available} available Pods of {}", bounds.least);
        }
        set_image(&mut cluster, "last");
        set(&mut cluster, "paused", false.into());
        cluster.settle();
        let replicas = cluster.get(Kind::Deployment, "web")["spec"]["replicas"].as_i64().unwrap();
        prop_assert_eq!(images(&cluster), vec!["last"; usize::try_from(replicas).unwrap()]);
        prop_assert_eq!(cluster.step().changes, vec![]);
        let status = &cluster.get(Kind::Deployment, "web")["status"];
        prop_assert_eq!(status["updatedReplicas"].as_i64().unwrap_or(0), replicas);
        prop_assert_eq!(status["availableReplicas"].as_i64().unwrap_or(0), replicas);
        prop_assert_eq!(&condition(&cluster, "Progressing")["reason"], "NewReplicaSetAvailable");
    }

    #[test]
    fn recreate_never_runs_two_versions_at_once(ops in prop::collection::vec(op(), 0..120)) {
        let mut cluster = Cluster::new();
        cluster.create(Kind::Deployment, deployment(4, json!({"type": "Recreate"})));
        for op in ops {
            match op {
                Op::Image(image) => set_image(&mut cluster, &image.to_string()),
                Op::Kubelet(index) => {
                    let name = cluster.names(Kind::Pod).get(index).cloned();
                    name.into_iter().for_each(|name| cluster.kubelet(&name));
                }
                _ => drop(cluster.step()),
            }
            let image = |pod: &Value| pod["spec"]["containers"][0]["image"].clone();
            let mut images: Vec<_> = cluster.of_kind(Kind::Pod).into_iter().map(image).collect();
            images.dedup();
            prop_assert!(images.len() <= 1, "{images:?}");
        }
        set_image(&mut cluster, "last");
        cluster.settle();
        prop_assert_eq!(images(&cluster), vec!["last"; 4]);
    }
}

#[test]
fn a_new_deployment_has_one_replica_set_and_pods_that_name_it() {
    let mut cluster = Cluster::new();
    cluster.create(Kind::Deployment, deployment(3, Value::Null));
    cluster.settle();
    let [name] = <[String; 1]>::try_from(cluster.names(Kind::ReplicaSet)).unwrap();
    let set = cluster.get(Kind::ReplicaSet, &name);
    let hash = set["metadata"]["labels"]["pod-template-hash"].as_str().unwrap();
    assert_eq!(name, format!("web-{hash}"));
    assert_eq!(set["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
    assert_eq!(set["spec"]["selector"]["matchLabels"], json!({"app": "web", "pod-template-hash": hash}));
    for pod in cluster.active() {
        let suffix = pod["metadata"]["name"].as_str().unwrap().strip_prefix(&format!("{name}-")).unwrap();
        assert!(suffix.len() == 5 && suffix.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)), "{suffix}");
        assert_eq!(pod["metadata"]["ownerReferences"][0]["controller"], true);
        assert_eq!(pod["metadata"]["ownerReferences"][0]["blockOwnerDeletion"], true);
    }
    let web = cluster.get(Kind::Deployment, "web");
    assert_eq!(web["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
    assert_eq!(web["status"]["observedGeneration"], 1);
    assert_eq!(condition(&cluster, "Available")["status"], "True");
}

#[test]
fn an_undo_makes_the_old_replica_set_the_newest_revision() {
    let mut cluster = Cluster::new();
    cluster.create(Kind::Deployment, deployment(2, Value::Null));
    cluster.settle();
    set_image(&mut cluster, "2");
    cluster.settle();
    set_image(&mut cluster, "1");
    cluster.settle();
    let mut revisions: Vec<_> = cluster
        .of_kind(Kind::ReplicaSet)
        .into_iter()
        .map(|set| {
            let of = |key: &str| set["metadata"]["annotations"][key].as_str().unwrap_or_default();
            let image = set["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap();
            let history = of("deployment.kubernetes.io/revision-history");
            (image, of("deployment.kubernetes.io/revision"), history, set["spec"]["replicas"].as_i64().unwrap())
        })
        .collect();
    revisions.sort_unstable();
    assert_eq!(revisions, [("1", "3", "1", 2), ("2", "2", "", 0)]);
}

#[test]
fn old_replica_sets_beyond_the_history_are_deleted() {
    let mut cluster = Cluster::new();
    let mut web = deployment(1, Value::Null);
    web["spec"]["revisionHistoryLimit"] = 2.into();
    cluster.create(Kind::Deployment, web);
    for image in 1..6 {
        set_image(&mut cluster, &image.to_string());
        cluster.settle();
    }
    assert_eq!(cluster.names(Kind::ReplicaSet).len(), 3);
}

#[test]
fn a_rollout_without_progress_misses_its_deadline() {
    let mut cluster = Cluster::new();
    let mut web = deployment(2, Value::Null);
    web["spec"]["progressDeadlineSeconds"] = 30.into();
    cluster.create(Kind::Deployment, web);
    cluster.settle();
    set_image(&mut cluster, "bad");
    cluster.settle();
    assert_eq!(condition(&cluster, "Progressing")["reason"], "ProgressDeadlineExceeded");
    assert_eq!(cluster.now, common::START + 31);
    assert_eq!(cluster.ready(), 2);
}

#[test]
fn a_relabelled_pod_is_released_replaced_and_adopted_again() {
    let mut cluster = Cluster::new();
    cluster.create(Kind::Deployment, deployment(2, Value::Null));
    cluster.settle();
    let name = cluster.names(Kind::Pod)[0].clone();
    let relabel = |cluster: &mut Cluster, app: &str| {
        cluster.edit(Kind::Pod, &name, |pod| pod["metadata"]["labels"]["app"] = app.into());
    };
    relabel(&mut cluster, "debug");
    cluster.settle();
    assert_eq!(cluster.get(Kind::Pod, &name)["metadata"]["ownerReferences"], json!([]));
    assert_eq!(cluster.active().len(), 3);
    relabel(&mut cluster, "web");
    cluster.settle();
    assert_eq!(cluster.active().len(), 2);
}

#[test]
fn pods_that_are_adopted_are_not_created_too() {
    let mut cluster = Cluster::new();
    cluster.create(Kind::Deployment, deployment(3, Value::Null));
    cluster.settle();
    // As a deletion of the ReplicaSet that leaves its Pods.
    for name in cluster.names(Kind::Pod) {
        cluster.edit(Kind::Pod, &name, |pod| pod["metadata"]["ownerReferences"] = json!([]));
    }
    let set = cluster.names(Kind::ReplicaSet)[0].clone();
    cluster.delete(Kind::ReplicaSet, &set);
    let before = cluster.names(Kind::Pod);
    cluster.settle();
    assert_eq!(cluster.names(Kind::Pod), before);
    assert_eq!(cluster.names(Kind::ReplicaSet), [set]);
}

#[test]
fn a_template_with_the_label_of_another_hash_is_rolled_out() {
    let mut cluster = Cluster::new();
    let mut web = deployment(2, Value::Null);
    web["spec"]["template"]["metadata"]["labels"]["pod-template-hash"] = "copied".into();
    cluster.create(Kind::Deployment, web);
    cluster.settle();
    assert_eq!((cluster.ready(), cluster.names(Kind::ReplicaSet).len()), (2, 1));
    assert_ne!(cluster.active()[0]["metadata"]["labels"]["pod-template-hash"], "copied");
}
