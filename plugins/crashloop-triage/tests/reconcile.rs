//! The plugin with its own configuration.

use std::time::Duration;

use crashloop_triage::{DIAGNOSIS, reconcile};
use podium_sdk::{
    ContainerState, ContainerStatus, Outcome, Timestamp, json,
    testing::{Host, NOW, PodBuilder, Run, Write, pod},
};

fn host(pod: PodBuilder) -> Host {
    Host::with_pods([pod]).configured_by(include_str!("../plugin.yaml"))
}

fn run(host: &mut Host) -> Run {
    host.reconcile(reconcile, "shop", "web")
}

fn ended(exit_code: i32, reason: &str) -> ContainerState {
    ContainerState::Terminated {
        exit_code,
        signal: None,
        reason: Some(reason.to_owned()),
        message: None,
        started_at: None,
        finished_at: None,
    }
}

fn web(restarts: i32, state: ContainerState, last_state: ContainerState) -> PodBuilder {
    let status = ContainerStatus {
        name: "nginx".to_owned(),
        restart_count: restarts,
        state,
        last_state,
        ..ContainerStatus::default()
    };
    pod("shop", "web").phase("Running").container_status(status)
}

fn backing_off(restarts: i32, exit_code: i32, reason: &str) -> PodBuilder {
    let waiting = ContainerState::Waiting { reason: Some("CrashLoopBackOff".to_owned()), message: None };
    web(restarts, waiting, ended(exit_code, reason))
}

fn running(restarts: i32, since: Timestamp, exit_code: i32, reason: &str) -> PodBuilder {
    web(restarts, ContainerState::Running { started_at: Some(since) }, ended(exit_code, reason))
}

fn annotated(value: &str) -> Write {
    Write::set_annotation("shop/web", DIAGNOSIS, value)
}

/// Replaces the Pod with its next state, and keeps its annotations.
fn moves_on(host: &mut Host, next: PodBuilder) {
    let annotations = host.pod("shop", "web").map(|pod| pod.annotations).unwrap_or_default();
    host.put_pod(next.with(|pod| pod.annotations = annotations));
}

#[test]
fn a_crash_loop_is_diagnosed_once() {
    let mut host = host(backing_off(2, 1, "Error"));
    run(&mut host).assert_quiet();
    moves_on(&mut host, backing_off(3, 1, "Error"));
    run(&mut host).assert_writes([annotated("nginx=Error")]).assert_events(["CrashLoopDiagnosed"]);
    for restarts in 4..9 {
        moves_on(&mut host, running(restarts, NOW, 2, "Error"));
        run(&mut host).assert_quiet();
        moves_on(&mut host, backing_off(restarts, 2, "Error"));
        run(&mut host).assert_quiet();
    }
    host.restart();
    run(&mut host).assert_quiet();
}

#[test]
fn a_diagnosis_never_improves_while_the_pod_crashes() {
    let mut host = host(backing_off(3, 1, "Error"));
    run(&mut host).assert_writes([annotated("nginx=Error")]);
    moves_on(&mut host, backing_off(4, 137, "OOMKilled"));
    run(&mut host).assert_writes([annotated("nginx=OOMKilled")]).assert_events(["CrashLoopDiagnosed"]);
    moves_on(&mut host, backing_off(5, 1, "Error"));
    run(&mut host).assert_quiet();
}

#[test]
fn a_kill_for_memory_is_reported_the_first_time() {
    let mut host = host(running(1, NOW, 137, "OOMKilled"));
    run(&mut host)
        .assert_writes([annotated("nginx=OOMKilled")])
        .assert_outcome(Outcome::requeue_after(Duration::from_secs(600)));
}

#[test]
fn a_container_that_runs_long_enough_has_recovered() {
    let mut host = host(running(3, NOW, 1, "Error").annotation(DIAGNOSIS, "nginx=Error"));
    run(&mut host).assert_quiet().assert_outcome(Outcome::requeue_after(Duration::from_secs(600)));
    host.restart();
    host.advance(Duration::from_secs(600));
    run(&mut host).assert_writes([Write::remove_annotation("shop/web", DIAGNOSIS)]).assert_events([]);
    run(&mut host).assert_quiet().assert_outcome(Outcome::settled());
}

#[test]
fn a_container_between_crashes_counts_by_recent_restarts() {
    let mut host = host(running(50, NOW, 1, "Error"));
    run(&mut host).assert_quiet();
    moves_on(&mut host, running(52, NOW, 1, "Error"));
    run(&mut host).assert_quiet();
    moves_on(&mut host, running(53, NOW, 1, "Error"));
    run(&mut host).assert_writes([annotated("nginx=Error")]);
}

#[test]
fn restarts_of_an_earlier_window_do_not_count() {
    let mut host = host(running(50, NOW, 1, "Error"));
    run(&mut host).assert_quiet();
    host.advance(Duration::from_secs(3_600));
    moves_on(&mut host, running(52, NOW + Duration::from_secs(3_600), 1, "Error"));
    run(&mut host).assert_quiet();
    moves_on(&mut host, running(54, NOW + Duration::from_secs(3_600), 1, "Error"));
    run(&mut host).assert_quiet();
}

#[test]
fn thresholds_come_from_the_configuration() {
    let mut host = host(backing_off(3, 1, "Error")).config(json!({ "threshold": 10 }));
    run(&mut host).assert_quiet();
    moves_on(&mut host, backing_off(10, 1, "Error"));
    run(&mut host).assert_writes([annotated("nginx=Error")]);
}

#[test]
fn finished_terminating_and_healthy_pods_are_not_written() {
    for alone in [
        backing_off(9, 1, "Error").phase("Failed"),
        backing_off(9, 1, "Error").terminating(NOW),
        pod("shop", "web").phase("Running").running_since("nginx", NOW, 0),
    ] {
        run(&mut host(alone)).assert_quiet();
    }
    let mut host = host(backing_off(3, 1, "Error"));
    host.remove_pod("shop", "web");
    run(&mut host).assert_quiet();
}

#[test]
fn a_value_that_is_no_diagnosis_is_removed() {
    let mut host = host(pod("shop", "web").phase("Running").annotation(DIAGNOSIS, "whatever"));
    run(&mut host).assert_writes([Write::remove_annotation("shop/web", DIAGNOSIS)]);
    run(&mut host).assert_quiet();
}
