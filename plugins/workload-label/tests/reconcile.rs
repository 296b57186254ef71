//! The plugin under its own configuration.

use podium_sdk::testing::{Host, NOW, PodBuilder, Write, pod};
use workload_label::{LABEL, reconcile};

fn host(pod: PodBuilder) -> Host {
    Host::with_pods([pod]).configured_by(include_str!("../plugin.yaml"))
}

#[test]
fn a_pod_is_labelled_once_with_its_deployment() {
    let pod = pod("shop", "cart-7d9f8-x2").owned_by("ReplicaSet", "cart-7d9f8").label("pod-template-hash", "7d9f8");
    let mut host = host(pod);
    host.reconcile(reconcile, "shop", "cart-7d9f8-x2").assert_writes([Write::set_label(
        "shop/cart-7d9f8-x2",
        LABEL,
        "cart",
    )]);
    host.restart();
    host.reconcile(reconcile, "shop", "cart-7d9f8-x2").assert_quiet();
}

#[test]
fn a_changed_value_is_restored() {
    let mut host = host(pod("shop", "db-0").owned_by("StatefulSet", "db").label(LABEL, "other"));
    host.reconcile(reconcile, "shop", "db-0").assert_writes([Write::set_label("shop/db-0", LABEL, "db")]);
}

#[test]
fn the_longest_workload_name_becomes_a_valid_label() {
    let mut host = host(pod("shop", "x").owned_by("StatefulSet", &"a".repeat(253)));
    assert_eq!(host.reconcile(reconcile, "shop", "x").writes().len(), 1);
}

#[test]
fn pods_without_a_workload_and_pods_that_go_are_left_alone() {
    for alone in [
        pod("shop", "x").label(LABEL, "stays"),
        pod("shop", "x").owned_by("Node", "node-1"),
        pod("shop", "x").owned_by("Job", "report").terminating(NOW),
    ] {
        host(alone).reconcile(reconcile, "shop", "x").assert_quiet();
    }
    let mut host = host(pod("shop", "x").owned_by("StatefulSet", "x"));
    host.remove_pod("shop", "x");
    host.reconcile(reconcile, "shop", "x").assert_quiet();
}
