//! The plugin with its own configuration.

use std::time::Duration;

use pod_ttl::reconcile;
use podium_sdk::{
    ContainerState, ContainerStatus, Outcome, json,
    testing::{Host, NOW, PodBuilder, Write, pod},
};

fn host(pod: PodBuilder) -> Host {
    let config = json!({ "succeededSeconds": 600, "failedSeconds": null });
    Host::with_pods([pod]).configured_by(include_str!("../plugin.yaml")).config(config)
}

/// Returns a Pod that finished at [`NOW`].
fn finished(phase: &str) -> PodBuilder {
    pod("shop", "report").phase(phase).container_status(ContainerStatus {
        state: ContainerState::Terminated {
            exit_code: 0,
            signal: None,
            reason: None,
            message: None,
            started_at: None,
            finished_at: Some(NOW),
        },
        ..ContainerStatus::default()
    })
}

#[test]
fn a_finished_pod_rests_until_its_time_and_is_deleted_then() {
    let mut host = host(finished("Succeeded"));
    let minutes = |count: u64| Duration::from_secs(60 * count);
    host.reconcile(reconcile, "shop", "report").assert_quiet().assert_outcome(Outcome::requeue_after(minutes(10)));
    host.advance(minutes(4));
    host.reconcile(reconcile, "shop", "report").assert_quiet().assert_outcome(Outcome::requeue_after(minutes(6)));
    host.advance(minutes(6));
    host.reconcile(reconcile, "shop", "report").assert_writes([Write::delete("shop/report")]);
    host.reconcile(reconcile, "shop", "report").assert_quiet();
}

#[test]
fn running_pods_and_phases_without_a_time_to_live_are_kept() {
    for kept in [finished("Failed"), pod("shop", "report").phase("Running"), pod("shop", "report")] {
        host(kept).reconcile(reconcile, "shop", "report").assert_quiet().assert_outcome(Outcome::settled());
    }
}

#[test]
fn a_terminating_pod_is_not_deleted_again() {
    let mut host = host(finished("Succeeded").finalizer("batch.kubernetes.io/job-tracking"));
    host.advance(Duration::from_secs(3_600));
    host.reconcile(reconcile, "shop", "report").assert_writes([Write::delete("shop/report")]);
    let second = host.reconcile(reconcile, "shop", "report");
    second.assert_quiet();
    assert!(second.reports().is_empty() && second.logs().is_empty(), "nothing is even staged");
}

#[test]
fn a_pod_without_any_time_of_its_end_counts_from_its_creation() {
    let evicted = pod("shop", "report").phase("Succeeded").age(Duration::from_secs(601));
    host(evicted).reconcile(reconcile, "shop", "report").assert_writes([Write::delete("shop/report")]);
}
