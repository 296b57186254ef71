//! StatefulSets and Jobs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]

mod common;

use common::{Cluster, START, job, stateful_set};
use podium_workloads::Kind;
use proptest::prelude::*;
use serde_json::{Value, json};

fn set_image(cluster: &mut Cluster, image: &str) {
    cluster.edit(Kind::StatefulSet, "db", |db| db["spec"]["template"]["spec"]["containers"][0]["image"] = image.into());
}

fn image(cluster: &Cluster, name: &str) -> String {
    cluster.get(Kind::Pod, name)["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
}

/// Returns the names of Pods in the order in which they were created, and in which they began to end.
fn story(cluster: &mut Cluster) -> (Vec<String>, Vec<String>) {
    let mut created = Vec::new();
    let mut ended = Vec::new();
    loop {
        let changes = cluster.step().changes;
        for change in changes.iter().filter(|change| change.kind == Kind::Pod) {
            match change.action {
                podium_workloads::Action::Create(_) => created.push(change.name.clone()),
                podium_workloads::Action::Delete(_) => ended.push(change.name.clone()),
                _ => {}
            }
        }
        let before = cluster.objects.clone();
        cluster.names(Kind::Pod).iter().for_each(|name| cluster.kubelet(name));
        if changes.is_empty() && cluster.objects == before {
            return (created, ended);
        }
    }
}

#[test]
fn a_stateful_set_starts_upwards_and_stops_downwards() {
    let mut cluster = Cluster::new();
    cluster.create(Kind::StatefulSet, stateful_set(3, "OrderedReady"));
    assert_eq!(story(&mut cluster).0, ["db-0", "db-1", "db-2"]);
    let pod = cluster.get(Kind::Pod, "db-1");
    assert_eq!(pod["spec"]["hostname"], "db-1");
    assert_eq!(pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"], "1");
    cluster.edit(Kind::StatefulSet, "db", |db| db["spec"]["replicas"] = 1.into());
    assert_eq!(story(&mut cluster).1, ["db-2", "db-1"]);
    let status = &cluster.get(Kind::StatefulSet, "db")["status"];
    assert_eq!([&status["replicas"], &status["readyReplicas"], &status["currentReplicas"]], [1, 1, 1]);
}

#[test]
fn an_update_begins_at_the_highest_ordinal_and_stops_at_the_partition() {
    let mut cluster = Cluster::new();
    cluster.create(Kind::StatefulSet, stateful_set(4, "OrderedReady"));
    cluster.settle();
    cluster.edit(Kind::StatefulSet, "db", |db| {
        db["spec"]["updateStrategy"]["rollingUpdate"] = json!({"partition": 2});
    });
    set_image(&mut cluster, "2");
    assert_eq!(story(&mut cluster).1, ["db-3", "db-2"]);
    cluster.delete(Kind::Pod, "db-1");
    cluster.settle();
    assert_eq!([image(&cluster, "db-1"), image(&cluster, "db-2")], ["1", "2"]);
    let status = cluster.get(Kind::StatefulSet, "db")["status"].clone();
    assert_eq!([&status["currentReplicas"], &status["updatedReplicas"]], [2, 2]);
    assert_ne!(status["currentRevision"], status["updateRevision"]);
    cluster.edit(Kind::StatefulSet, "db", |db| db["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = 0.into());
    assert_eq!(story(&mut cluster).1, ["db-1", "db-0"]);
    let status = cluster.get(Kind::StatefulSet, "db")["status"].clone();
    assert_eq!(status["currentRevision"], status["updateRevision"]);
}

#[test]
fn on_delete_replaces_deleted_pods_and_a_return_reuses_a_revision() {
    let mut cluster = Cluster::new();
    cluster.create(Kind::StatefulSet, stateful_set(2, "Parallel"));
    cluster.settle();
    cluster.edit(Kind::StatefulSet, "db", |db| db["spec"]["updateStrategy"] = json!({"type": "OnDelete"}));
    set_image(&mut cluster, "2");
    cluster.settle();
    assert_eq!([image(&cluster, "db-0"), image(&cluster, "db-1")], ["1", "1"]);
    cluster.delete(Kind::Pod, "db-0");
    cluster.settle();
    assert_eq!([image(&cluster, "db-0"), image(&cluster, "db-1")], ["2", "1"]);
    set_image(&mut cluster, "1");
    cluster.settle();
    let mut numbers: Vec<_> =
        cluster.of_kind(Kind::ControllerRevision).iter().map(|of| of["revision"].as_i64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [2, 3]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_stateful_set_in_order_starts_one_pod_at_a_time_and_ends_without_gaps(
        ops in prop::collection::vec((0_u8..8, 0_usize..8), 0..100), parallel in any::<bool>(),
    ) {
        let mut cluster = Cluster::new();
        cluster.create(Kind::StatefulSet, stateful_set(3, if parallel { "Parallel" } else { "OrderedReady" }));
        for (op, number) in ops {
            match op {
                0 => cluster.edit(Kind::StatefulSet, "db", |db| db["spec"]["replicas"] = number.into()),
                1 => set_image(&mut cluster, &number.to_string()),
                2..5 => {
                    let name = cluster.names(Kind::Pod).get(number).cloned();
                    name.into_iter().for_each(|name| cluster.kubelet(&name));
                }
                _ => drop(cluster.step()),
            }
            let starting = cluster.active().len() - cluster.ready();
            prop_assert!(parallel || starting <= 1, "{starting} Pods start");
            // One of an update, and one of a smaller set.
            let stopping = cluster.of_kind(Kind::Pod).len() - cluster.active().len();
            prop_assert!(parallel || stopping <= 2, "{stopping} Pods stop");
        }
        set_image(&mut cluster, "last");
        cluster.settle();
        let replicas = cluster.get(Kind::StatefulSet, "db")["spec"]["replicas"].as_u64().unwrap();
        let names: Vec<String> = (0..replicas).map(|ordinal| format!("db-{ordinal}")).collect();
        prop_assert_eq!(cluster.names(Kind::Pod), names.clone());
        prop_assert!(names.iter().all(|name| image(&cluster, name) == "last"));
        prop_assert_eq!(cluster.step().changes, vec![]);
    }
}

fn conditions(cluster: &Cluster) -> Vec<(String, String)> {
    let conditions = cluster.get(Kind::Job, "backup")["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    conditions.iter().map(|condition| (text(&condition["type"]), text(&condition["reason"]))).collect()
}

fn run_all(cluster: &mut Cluster, phase: &str) {
    let names: Vec<String> =
        cluster.active().iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    names.iter().for_each(|name| cluster.finish(name, phase));
    cluster.settle();
}

#[test]
fn a_job_runs_as_many_pods_as_it_may_until_enough_have_succeeded() {
    let mut cluster = Cluster::new();
    cluster.create(Kind::Job, job(5, 2));
    for (active, succeeded) in [(2, 0), (2, 2), (1, 4)] {
        cluster.settle();
        assert_eq!(cluster.active().len(), active);
        assert_eq!(cluster.get(Kind::Job, "backup")["status"]["succeeded"].as_i64().unwrap_or(0), succeeded);
        run_all(&mut cluster, "Succeeded");
    }
    let status = &cluster.get(Kind::Job, "backup")["status"];
    assert_eq!((&status["succeeded"], &status["active"]), (&json!(5), &Value::Null));
    assert!(status["completionTime"].is_string() && status["startTime"].is_string());
    let reason = || "CompletionsReached".to_owned();
    assert_eq!(conditions(&cluster), [("SuccessCriteriaMet".into(), reason()), ("Complete".into(), reason())]);
    assert!(cluster.of_kind(Kind::Pod).iter().all(|pod| pod["metadata"]["finalizers"] == json!([])));
    cluster.delete(Kind::Job, "backup");
    cluster.settle();
    assert_eq!(cluster.names(Kind::Pod).len(), 0);
}

#[test]
fn a_job_waits_before_it_replaces_failed_pods_and_fails_at_its_limit() {
    let mut cluster = Cluster::new();
    cluster.create(Kind::Job, job(1, 1));
    for waited in [0, 10, 30] {
        cluster.settle();
        assert_eq!((cluster.active().len(), cluster.now - START), (1, waited));
        run_all(&mut cluster, "Failed");
    }
    let reason = || "BackoffLimitExceeded".to_owned();
    assert_eq!(conditions(&cluster), [("FailureTarget".into(), reason()), ("Failed".into(), reason())]);
    assert_eq!(cluster.get(Kind::Job, "backup")["status"]["failed"], 3);
}

#[test]
fn a_job_is_deleted_after_its_time_and_one_that_is_late_fails() {
    let mut cluster = Cluster::new();
    let mut backup = job(1, 1);
    backup["spec"]["ttlSecondsAfterFinished"] = 60.into();
    backup["spec"]["activeDeadlineSeconds"] = 100.into();
    cluster.create(Kind::Job, backup);
    cluster.settle();
    assert_eq!((cluster.names(Kind::Job).len(), cluster.now), (0, START + 160));
    assert_eq!(cluster.names(Kind::Pod).len(), 0);
}

#[test]
fn a_suspended_job_has_no_pods_until_it_is_resumed() {
    let mut cluster = Cluster::new();
    cluster.create(Kind::Job, job(2, 2));
    let suspend = |cluster: &mut Cluster, suspended: bool| {
        cluster.edit(Kind::Job, "backup", |backup| backup["spec"]["suspend"] = suspended.into());
        cluster.settle();
    };
    suspend(&mut cluster, true);
    assert_eq!(cluster.names(Kind::Pod).len(), 0);
    assert_eq!(conditions(&cluster), [("Suspended".into(), "JobSuspended".into())]);
    suspend(&mut cluster, false);
    assert_eq!(cluster.active().len(), 2);
    assert_eq!(conditions(&cluster), [("Suspended".into(), "JobResumed".into())]);
}

#[test]
fn pods_that_a_suspended_job_stops_are_no_failures() {
    let mut cluster = Cluster::new();
    let mut backup = job(5, 5);
    backup["spec"]["backoffLimit"] = 2.into();
    cluster.create(Kind::Job, backup);
    cluster.step();
    assert_eq!(cluster.active().len(), 5);
    cluster.edit(Kind::Job, "backup", |backup| backup["spec"]["suspend"] = true.into());
    cluster.settle();
    assert_eq!(cluster.names(Kind::Pod).len(), 0);
    assert_eq!(conditions(&cluster), [("Suspended".into(), "JobSuspended".into())]);
}

#[test]
fn a_job_whose_deletion_waits_for_its_pods_releases_them() {
    let mut cluster = Cluster::new();
    cluster.create(Kind::Job, job(2, 2));
    cluster.step();
    cluster.edit(Kind::Job, "backup", |backup| backup["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
    cluster.step();
    let pods = cluster.of_kind(Kind::Pod);
    let finalizers = |pod: &&Value| pod["metadata"]["finalizers"].as_array().is_some_and(|of| !of.is_empty());
    assert_eq!((pods.len(), pods.iter().filter(|pod| finalizers(pod)).count()), (2, 0));
}

#[test]
fn a_stateful_set_takes_no_pod_of_another_name() {
    let mut cluster = Cluster::new();
    cluster.create(Kind::StatefulSet, stateful_set(2, "OrderedReady"));
    let labels = stateful_set(2, "OrderedReady")["spec"]["template"]["metadata"]["labels"].clone();
    cluster.create(Kind::Pod, json!({"metadata": {"name": "debug", "labels": labels}, "spec": {}}));
    cluster.settle();
    assert_eq!(cluster.get(Kind::Pod, "debug")["metadata"]["ownerReferences"], Value::Null);
    assert_eq!(cluster.get(Kind::StatefulSet, "db")["status"]["replicas"], 2);
}

#[test]
fn a_set_that_is_created_again_adopts_its_pods_and_revisions() {
    let mut cluster = Cluster::new();
    cluster.create(Kind::StatefulSet, stateful_set(3, "OrderedReady"));
    cluster.settle();
    let uids = |cluster: &Cluster| -> Vec<Value> {
        cluster.of_kind(Kind::Pod).iter().map(|pod| pod["metadata"]["uid"].clone()).collect()
    };
    let before = uids(&cluster);
    // As a deletion that leaves the dependents.
    for (kind, name) in cluster.objects.keys().cloned().collect::<Vec<_>>() {
        cluster.edit(kind, &name, |object| object["metadata"]["ownerReferences"] = json!([]));
    }
    cluster.delete(Kind::StatefulSet, "db");
    cluster.create(Kind::StatefulSet, stateful_set(3, "OrderedReady"));
    let (created, ended) = story(&mut cluster);
    assert_eq!((created, ended, uids(&cluster)), (Vec::new(), Vec::new(), before));
    assert_eq!(cluster.names(Kind::ControllerRevision).len(), 1);
}
