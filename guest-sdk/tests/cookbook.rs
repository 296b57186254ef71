//! The plugins of the cookbook, each with its own configuration.

#[path = "../../docs/cookbook/cost-label/src/lib.rs"]
pub mod cost_label;
#[path = "../../docs/cookbook/finished-ttl/src/lib.rs"]
pub mod finished_ttl;
#[path = "../../docs/cookbook/night-scale/src/lib.rs"]
pub mod night_scale;
#[path = "../../docs/cookbook/quorum/src/lib.rs"]
pub mod quorum;
#[path = "../../docs/cookbook/restart-loop/src/lib.rs"]
pub mod restart_loop;
#[path = "../../docs/cookbook/top-workload/src/lib.rs"]
pub mod top_workload;
#[path = "../../docs/cookbook/workload-configmap/src/lib.rs"]
pub mod workload_configmap;
#[path = "../../docs/cookbook/workload-pdb/src/lib.rs"]
pub mod workload_pdb;

use std::time::Duration;

use podium_sdk::{
    Condition, ConditionStatus, ObjectRef, Outcome, json,
    testing::{AppliedOwner, Host, NOW, PodBuilder, Write, pod},
};

const MINUTE: Duration = Duration::from_secs(60);
const ZONE: &str = "topology.kubernetes.io/zone";

/// Returns a host with Pods and the configuration of a plugin.
macro_rules! host {
    ($name:literal, $pods:expr) => {
        Host::with_pods($pods).configured_by(include_str!(concat!("../../docs/cookbook/", $name, "/plugin.yaml")))
    };
}

/// Returns a Pod of a Deployment, in a rollout.
fn replica(name: &str, deployment: &str, hash: &str) -> PodBuilder {
    let set = format!("{deployment}-{hash}");
    pod("shop", &format!("{set}-{name}")).owned_by("ReplicaSet", &set).label("pod-template-hash", hash)
}

/// Declares the Deployment above both ReplicaSets of a rollout.
fn in_rollout(host: Host) -> Host {
    ["web-7d9f8", "web-66c4b"]
        .into_iter()
        .fold(host, |host, set| host.controlled("ReplicaSet", set, "Deployment", "web"))
}

#[test]
fn a_pod_has_the_name_of_its_deployment_and_its_zone() {
    let mut host = host!("top-workload", [replica("x", "web", "7d9f8").label(ZONE, "eu-1a"), pod("shop", "bare")]);
    let [(_, web), (_, bare), (_, again)] = &host.settle(top_workload::reconcile)[..] else { panic!("three runs") };
    bare.assert_quiet();
    web.assert_writes([
        Write::set_label("shop/web-7d9f8-x", "example.com/workload", "web"),
        Write::set_annotation("shop/web-7d9f8-x", "example.com/zone", "eu-1a"),
    ]);
    again.assert_quiet();
    host.restart();
    host.reconcile(top_workload::reconcile, "shop", "web-7d9f8-x").assert_quiet();
}

#[test]
fn a_restart_loop_is_one_event_until_the_container_runs_for_ten_minutes() {
    let looping = || pod("shop", "web").waiting("c", "CrashLoopBackOff", 3);
    let mut host = host!("restart-loop", [looping(), pod("shop", "slow").waiting("c", "ContainerCreating", 0)]);
    let run = |host: &mut Host| host.reconcile(restart_loop::reconcile, "shop", "web");
    host.reconcile(restart_loop::reconcile, "shop", "slow").assert_quiet().assert_outcome(Outcome::settled());
    run(&mut host).assert_events(["RestartLoop"]).assert_outcome(Outcome::requeue_after(10 * MINUTE));
    let marked = host.pod("shop", "web").unwrap().status.conditions[0].clone();
    assert_eq!(marked.message.as_deref(), Some("container c restarts again and again"));
    host.restart();
    // The fourth restart, a start, and the time in which it may crash again.
    host.put_pod(looping().with(|pod| pod.status.container_statuses[0].restart_count = 4).condition(marked.clone()));
    run(&mut host).assert_quiet();
    let finished = pod("shop", "web").terminated("c", 0, NOW).phase("Succeeded").condition(marked.clone());
    host!("restart-loop", [finished.with(|pod| pod.status.container_statuses[0].restart_count = 4)])
        .reconcile(restart_loop::reconcile, "shop", "web")
        .assert_events(["RestartLoopEnded"]);
    host.put_pod(pod("shop", "web").running_since("c", NOW, 4).condition(marked));
    run(&mut host).assert_quiet().assert_outcome(Outcome::requeue_after(10 * MINUTE));
    host.advance(10 * MINUTE);
    run(&mut host).assert_events(["RestartLoopEnded"]).assert_writes([Write::set_condition(
        "shop/web",
        &Condition::new("example.com/RestartLoop", ConditionStatus::False),
    )]);
    run(&mut host).assert_quiet().assert_outcome(Outcome::settled());
}

#[test]
fn a_finished_pod_is_deleted_after_the_time_of_its_annotation() {
    let finished = |ttl| pod("shop", "report").annotation("example.com/ttl", ttl).terminated("c", 0, NOW);
    let kept = [finished("1m").phase("Running"), pod("shop", "report").terminated("c", 0, NOW).phase("Succeeded")];
    for kept in kept {
        let mut host = host!("finished-ttl", [kept]);
        host.advance(60 * MINUTE);
        host.reconcile(finished_ttl::reconcile, "shop", "report").assert_quiet().assert_outcome(Outcome::settled());
    }
    let mut host = host!("finished-ttl", [finished("1h30m").phase("Failed")]);
    let run = |host: &mut Host| host.reconcile(finished_ttl::reconcile, "shop", "report");
    run(&mut host).assert_quiet().assert_outcome(Outcome::requeue_after(90 * MINUTE));
    host.advance(90 * MINUTE);
    run(&mut host).assert_writes([Write::delete("shop/report")]).assert_events(["Expired"]);
    let wrong =
        host!("finished-ttl", [finished("soon").phase("Failed")]).reconcile(finished_ttl::reconcile, "shop", "report");
    let error = wrong.result().as_ref().unwrap_err();
    assert!(error.is_terminal() && error.message().starts_with("example.com/ttl: \"soon\" is no duration"), "{error}");
}

#[test]
fn the_cost_of_a_pod_is_that_of_its_requests() {
    let web = pod("shop", "web").container("c", "nginx:1").request("cpu", "500m").request("memory", "3Gi");
    let mut host = host!("cost-label", [web, pod("shop", "free").container("c", "nginx:1")]);
    let runs = host.settle(cost_label::reconcile);
    assert_eq!(runs.len(), 2, "its own label does not wake it");
    runs[0].1.assert_writes([Write::set_label("shop/web", "example.com/cost", "18")]);
    runs[1].1.assert_writes([Write::set_label("shop/free", "example.com/cost", "0")]);
}

#[test]
fn a_deployment_is_scaled_down_at_eight_in_the_evening_and_up_at_six() {
    let web = replica("x", "web", "7d9f8").annotation("example.com/day-replicas", "3");
    let mut host = host!("night-scale", [web]).now(NOW + (19 * 60 + 30) * MINUTE);
    let run = |host: &mut Host| host.reconcile(night_scale::reconcile, "shop", "web-7d9f8-x");
    let deployment = ObjectRef::new("apps/v1", "Deployment", "shop", "web");
    let replicas = |host: &Host| host.object(&deployment).map(|deployment| deployment["spec"].clone());
    let scaled_to = |host: &mut Host, replicas: u32| {
        let metadata = json!({ "namespace": "shop", "name": "web" });
        let spec = json!({ "replicas": replicas, "paused": true });
        host.set_object(json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec }));
    };
    run(&mut host).assert_quiet();
    scaled_to(&mut host, 2);
    for (wait, expected, next) in [(0, 3, 30), (30, 1, 60), (599, 1, 1), (1, 3, 60)] {
        host.advance(wait * MINUTE);
        run(&mut host).assert_outcome(Outcome::requeue_after(next * MINUTE));
        assert_eq!(replicas(&host), Some(json!({ "replicas": expected, "paused": true })), "{wait} minutes later");
    }
    scaled_to(&mut host, 0);
    run(&mut host).assert_quiet();
    host.put_pod(replica("x", "web", "7d9f8").annotation("example.com/day-replicas", "0"));
    let error = run(&mut host).result().clone().unwrap_err();
    assert!(error.is_terminal() && error.message().starts_with("example.com/day-replicas: "), "{error}");
}

#[test]
fn a_budget_belongs_to_its_workload_and_selects_its_pods() {
    let job = pod("shop", "report-1").owned_by("Job", "report");
    let mut host = in_rollout(host!("workload-pdb", [replica("x", "web", "7d9f8"), replica("y", "web", "66c4b"), job]));
    let runs = host.settle(workload_pdb::reconcile);
    let [apply] = &runs.iter().flat_map(|(_, run)| run.writes()).filter(is_apply).collect::<Vec<_>>()[..] else {
        panic!("one apply: {runs:?}")
    };
    let Write::ApplyObject { object, owner } = apply else { panic!("{apply:?}") };
    assert_eq!(owner, &Some(AppliedOwner::Workload("shop/web-7d9f8-x".to_owned())));
    let selector = &object["spec"]["selector"]["matchLabels"];
    for pod in ["web-7d9f8-x", "web-66c4b-y"] {
        let label = &host.pod("shop", pod).unwrap().labels["example.com/budget"];
        assert_eq!(selector, &json!({ "example.com/budget": label }));
    }
    assert!(host.pod("shop", "report-1").unwrap().labels.is_empty());
}

fn is_apply(write: &&Write) -> bool {
    matches!(write, Write::ApplyObject { .. })
}

#[test]
fn the_config_map_of_a_workload_survives_a_rollout_and_its_last_pod() {
    let mut host = in_rollout(host!(
        "workload-configmap",
        [
            replica("x", "web", "7d9f8").node("n1"),
            replica("y", "web", "7d9f8").node("n2"),
            pod("shop", "bare").node("n1"),
        ]
    ));
    let nodes = |host: &Host| {
        let map = ObjectRef::new("v1", "ConfigMap", "shop", "deployment-web-nodes");
        host.object(&map).map(|map| (map["data"].clone(), map["metadata"]["ownerReferences"][0]["kind"].clone()))
    };
    let of_deployment = |data| Some((data, json!("Deployment")));
    host.settle(workload_configmap::reconcile);
    assert_eq!(nodes(&host), of_deployment(json!({ "web-7d9f8-x": "n1", "web-7d9f8-y": "n2" })));
    host.put_pod(replica("z", "web", "66c4b").node("n3"));
    host.remove_pod("shop", "web-7d9f8-x");
    host.remove_pod("shop", "web-7d9f8-y");
    host.settle(workload_configmap::reconcile);
    assert_eq!(nodes(&host), of_deployment(json!({ "web-66c4b-z": "n3" })));
    host.remove_pod("shop", "web-66c4b-z");
    let runs = host.settle(workload_configmap::reconcile);
    for (_, run) in runs {
        run.assert_quiet().assert_outcome(Outcome::settled());
    }
    assert!(nodes(&host).is_some(), "Kubernetes deletes it with the Deployment");
}

#[test]
fn all_pods_of_a_stateful_set_are_marked_while_its_quorum_is_lost() {
    let db = |index: u32, ready| pod("shop", &format!("db-{index}")).owned_by("StatefulSet", "db").ready(ready);
    let mut host = host!("quorum", [db(0, true), db(1, true), db(2, false), replica("x", "web", "7d9f8").ready(false)]);
    let marked = |host: &Host| {
        let is_marked = |name: &&str| host.pod("shop", name).unwrap().labels.contains_key("example.com/quorum");
        ["db-0", "db-1", "db-2", "web-7d9f8-x"].into_iter().filter(is_marked).collect::<Vec<_>>()
    };
    for (_, run) in host.settle(quorum::reconcile) {
        run.assert_quiet();
    }
    let unready = |host: &mut Host, index: u32, ready| {
        let labels = host.pod("shop", &format!("db-{index}")).unwrap().labels;
        host.put_pod(db(index, ready).with(|pod| pod.labels = labels));
    };
    unready(&mut host, 1, false);
    assert_eq!(host.settle(quorum::reconcile).len(), 1, "its own labels do not wake it");
    assert_eq!(marked(&host), ["db-0", "db-1", "db-2"]);
    unready(&mut host, 1, true);
    host.settle(quorum::reconcile);
    assert!(marked(&host).is_empty());
    // The Pod with the lower ordinal is away, and one of three is ready.
    unready(&mut host, 2, true);
    host.remove_pod("shop", "db-0");
    unready(&mut host, 1, false);
    host.settle(quorum::reconcile);
    assert_eq!(host.pod("shop", "db-2").unwrap().labels["example.com/quorum"], "lost");
}
