//! The plugin with its own configuration.

use std::time::Duration;

use podium_sdk::{
    Outcome,
    testing::{Host, NOW, PodBuilder, Run, Write, pod},
};
use spread_guard::{CROWDED, reconcile};

fn member(name: &str, node: &str) -> PodBuilder {
    pod("shop", name).owned_by("ReplicaSet", "web").node(node).phase("Running")
}

fn host(pods: impl IntoIterator<Item = PodBuilder>) -> Host {
    Host::with_pods(pods).configured_by(include_str!("../plugin.yaml"))
}

fn run(host: &mut Host, name: &str) -> Run {
    host.reconcile(reconcile, "shop", name)
}

fn crowded(name: &str, node: &str) -> Write {
    Write::set_annotation(&format!("shop/{name}"), CROWDED, node)
}

fn spread_out(name: &str) -> Write {
    Write::remove_annotation(&format!("shop/{name}"), CROWDED)
}

#[test]
fn a_crowd_is_marked_with_one_event_from_any_of_its_pods() {
    let others = [
        pod("shop", "x").owned_by("ReplicaSet", "api").node("n1").phase("Running"),
        pod("bank", "a").owned_by("ReplicaSet", "web").node("n2").phase("Running"),
    ];
    let members = [member("a", "n1"), member("b", "n1"), member("c", "n1"), member("d", "n2")];
    let mut host = host(members.into_iter().chain(others));
    let first = run(&mut host, "d");
    first.assert_writes([crowded("a", "n1"), crowded("b", "n1"), crowded("c", "n1")]).assert_events(["Crowded"]);
    assert_eq!(first.events()[0].event.note, "3 of 4 Pods of web are on node n1");
    host.restart();
    for name in ["a", "b", "c", "d"] {
        run(&mut host, name).assert_quiet();
    }
}

#[test]
fn a_pod_that_joins_a_crowd_is_marked_without_another_event() {
    let mut host = host([
        member("a", "n1").annotation(CROWDED, "n1"),
        member("b", "n1").annotation(CROWDED, "n1"),
        member("c", "n2"),
        member("d", "n1"),
    ]);
    run(&mut host, "d").assert_writes([crowded("d", "n1")]).assert_events([]);
}

#[test]
fn the_mark_goes_with_the_crowd_also_when_a_pod_is_gone() {
    let mut host = host([
        member("a", "n1").annotation(CROWDED, "n1"),
        member("b", "n1").annotation(CROWDED, "n1"),
        member("c", "n2"),
        member("d", "n1").annotation(CROWDED, "n1"),
    ]);
    host.remove_pod("shop", "d");
    run(&mut host, "a").assert_quiet();
    host.put_pod(member("e", "n2"));
    run(&mut host, "a").assert_writes([spread_out("a"), spread_out("b")]).assert_events([]);
    host.remove_pod("shop", "e");
    host.remove_pod("shop", "c");
    host.put_pod(member("f", "n1"));
    run(&mut host, "a").assert_writes([crowded("a", "n1"), crowded("b", "n1"), crowded("f", "n1")]);
}

#[test]
fn finished_and_terminating_pods_do_not_count() {
    let mut host = host([
        member("a", "n1"),
        member("b", "n1").phase("Succeeded"),
        member("c", "n1").terminating(NOW),
        member("d", "n2"),
        member("e", "n3"),
    ]);
    run(&mut host, "a").assert_quiet();
}

#[test]
fn a_workload_is_judged_only_when_its_youngest_pod_has_settled() {
    let young = Duration::from_secs(4);
    let mut host = host([member("a", "n1"), member("b", "n1"), member("c", "n1").age(young)]);
    let wait = Duration::from_secs(30) - young;
    run(&mut host, "a").assert_quiet().assert_outcome(Outcome::requeue_after(wait));
    host.advance(wait);
    assert_eq!(run(&mut host, "a").writes().len(), 3);
}

#[test]
fn a_crowd_beyond_the_budget_is_marked_in_several_runs() {
    let mut host = host((0..25).map(|number| member(&format!("web-{number:02}"), "n1")));
    let first = run(&mut host, "web-00");
    first.assert_events(["Crowded"]).assert_outcome(Outcome::requeue_after(Duration::from_secs(1)));
    assert_eq!(first.writes().len(), 19, "the Event counts as a write");
    let second = run(&mut host, "web-00");
    second.assert_events([]).assert_outcome(Outcome::settled());
    assert_eq!(second.writes().len(), 6);
    run(&mut host, "web-00").assert_quiet();
}

#[test]
fn pods_without_a_controller_are_left_alone() {
    let mut host = host([pod("shop", "a").node("n1")]);
    run(&mut host, "a").assert_quiet();
    host.remove_pod("shop", "a");
    host.restart();
    run(&mut host, "a").assert_quiet();
}

#[test]
fn a_workload_is_judged_once_for_all_its_pods_and_through_a_rollout() {
    let replica = |name: &str, hash: &str, node: &str| {
        pod("shop", name)
            .owned_by("ReplicaSet", &format!("web-{hash}"))
            .label("pod-template-hash", hash)
            .node(node)
            .phase("Running")
    };
    let ran = |host: &mut Host| {
        let runs = host.settle(reconcile).into_iter();
        runs.map(|(pod, run)| (pod, run.writes().to_vec())).collect::<Vec<_>>()
    };
    let quiet = |pod: &str| (pod.to_owned(), Vec::new());
    let mut host = host((0..700).map(|at| replica(&format!("web-{at:03}"), "7d9f8", &format!("n{}", at % 20))));
    assert_eq!(ran(&mut host), [quiet("shop/web-000")]);
    // The first Pods of the rollout, on one node; the old ones go.
    for at in 0..700 {
        host.remove_pod("shop", &format!("web-{at:03}"));
    }
    for (name, node) in [("x", "n1"), ("y", "n1"), ("z", "n2")] {
        host.put_pod(replica(name, "66c4b", node));
    }
    let marks = vec![crowded("x", "n1"), crowded("y", "n1")];
    assert_eq!(ran(&mut host), [("shop/x".to_owned(), marks)]);
    for name in ["x", "y", "z"] {
        host.remove_pod("shop", name);
    }
    assert_eq!(ran(&mut host), [quiet("shop/z")], "the end of the workload");
}
