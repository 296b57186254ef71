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
    run(&mut host, "d").assert_quiet();
    host.put_pod(member("e", "n2"));
    run(&mut host, "e").assert_writes([spread_out("a"), spread_out("b")]).assert_events([]);
    host.remove_pod("shop", "e");
    host.remove_pod("shop", "c");
    host.put_pod(member("f", "n1"));
    run(&mut host, "e").assert_writes([crowded("a", "n1"), crowded("b", "n1"), crowded("f", "n1")]);
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

/// Simulates a rollout of 700 Pods of one workload over 20 nodes: runs of each Pod while it is young, when it has
/// settled, and on a later change. Returns how many Pods were read.
fn rollout(host: &mut Host) -> usize {
    let names: Vec<_> = (0..700).map(|number| format!("web-{number:03}")).collect();
    let mut read = 0;
    for wait in [0, 30, 1] {
        host.advance(Duration::from_secs(wait));
        for name in &names {
            let run = run(host, name);
            run.assert_quiet();
            read += run.pods_read();
        }
    }
    read
}

fn workload(pods: usize, nodes: usize) -> Host {
    host((0..pods).map(|number| {
        let node = format!("n{}", number % nodes);
        member(&format!("web-{number:03}"), &node).age(Duration::ZERO)
    }))
}

#[test]
fn a_rollout_of_700_pods_reads_each_only_a_few_times() {
    let mut host = workload(700, 20);
    let read = rollout(&mut host);
    assert!(read <= 3 * 700, "{read} Pods were read");
}

#[test]
fn a_large_workload_is_marked_whichever_pods_change() {
    let mut host = workload(390, 3);
    host.advance(Duration::from_secs(60));
    run(&mut host, "web-000").assert_quiet().assert_outcome(Outcome::requeue_after(Duration::from_secs(10)));
    // The Pods on two of three nodes are deleted, among them the one that judges. The others' runs leave the
    // judgement to one Pod.
    for number in (0..390).filter(|number| number % 3 != 2) {
        let name = format!("web-{number:03}");
        host.remove_pod("shop", &name);
        run(&mut host, &name).assert_quiet();
    }
    host.advance(Duration::from_secs(10));
    let first = run(&mut host, "web-000");
    first.assert_events(["Crowded"]);
    let mut marked = first.writes().len();
    for _ in 0..6 {
        host.advance(Duration::from_secs(1));
        marked += run(&mut host, "web-000").assert_events([]).writes().len();
    }
    assert_eq!(marked, 130, "all that are left");
}

#[test]
fn the_duty_of_an_absent_judge_is_taken_by_the_next_changed_pod() {
    let mut host = workload(150, 1);
    host.advance(Duration::from_secs(60));
    // The Event counts as a write.
    assert_eq!(run(&mut host, "web-000").assert_events(["Crowded"]).writes().len(), 19);
    run(&mut host, "web-001").assert_quiet().assert_outcome(Outcome::settled());
    host.advance(Duration::from_secs(12));
    assert_eq!(run(&mut host, "web-001").writes().len(), 20);
}

#[test]
fn an_unchanged_large_workload_is_judged_once_more_and_then_not() {
    let mut host = workload(150, 3);
    host.advance(Duration::from_secs(60));
    let pause = Duration::from_secs(10);
    assert_eq!(run(&mut host, "web-000").assert_outcome(Outcome::requeue_after(pause)).pods_read(), 150);
    host.advance(pause);
    assert_eq!(run(&mut host, "web-000").assert_outcome(Outcome::settled()).pods_read(), 150);
    // A change is judged at once again.
    assert_eq!(run(&mut host, "web-001").pods_read(), 150);
}
