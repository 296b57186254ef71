//! The plugin with its own configuration.

use image_policy::{CONDITION, reconcile};
use podium_sdk::{
    Condition, ConditionStatus, json,
    testing::{Host, PodBuilder, Write, pod},
};

fn host(pod: PodBuilder) -> Host {
    Host::with_pods([pod]).configured_by(include_str!("../plugin.yaml"))
}

fn web(image: &str) -> PodBuilder {
    pod("shop", "web").phase("Running").container("nginx", image).limit("memory", "64Mi")
}

#[test]
fn a_mutable_image_causes_one_condition_and_one_event() {
    let mut host = host(web("nginx:latest"));
    let broken = Condition::new(CONDITION, ConditionStatus::False)
        .because("MutableImage", "image nginx:latest of container nginx has a tag that can move");
    host.reconcile(reconcile, "shop", "web")
        .assert_writes([Write::set_condition("shop/web", &broken)])
        .assert_events(["MutableImage"]);
    host.reconcile(reconcile, "shop", "web").assert_quiet();
    host.restart();
    host.reconcile(reconcile, "shop", "web").assert_quiet();
}

#[test]
fn missing_limits_are_named_by_container_and_resource() {
    let both = pod("shop", "web").container("a", "nginx:1").limit("memory", "1Gi").container("b", "nginx");
    let mut host = host(both).config(json!({ "requiredLimits": ["cpu", "memory"] }));
    host.reconcile(reconcile, "shop", "web").assert_events(["MutableImageAndMissingLimits"]);
    let message = host.pod("shop", "web").unwrap().status.conditions[0].message.clone().unwrap();
    assert!(message.contains("container a has no limit of cpu;"), "{message}");
    assert!(message.contains("container b has no limit of cpu and memory"), "{message}");
}

#[test]
fn a_pod_that_keeps_the_policy_costs_no_write() {
    host(web("nginx:1.27")).reconcile(reconcile, "shop", "web").assert_quiet();
}

#[test]
fn a_compliant_pod_gets_its_condition_once_and_no_event() {
    let broken = Condition::new(CONDITION, ConditionStatus::False).because("MutableImage", "");
    let mut host = host(web("nginx:1.27").condition(broken));
    let run = host.reconcile(reconcile, "shop", "web");
    assert_eq!((run.writes().len(), run.events().len()), (1, 0));
    host.reconcile(reconcile, "shop", "web").assert_quiet();
}

#[test]
fn finished_pods_are_left_alone() {
    host(web("nginx").phase("Succeeded")).reconcile(reconcile, "shop", "web").assert_quiet();
}

#[test]
fn a_misspelt_field_of_the_configuration_is_terminal_and_named() {
    let mut host = host(web("nginx")).config(json!({ "requireDigests": true }));
    let run = host.reconcile(reconcile, "shop", "web");
    let error = run.result().as_ref().unwrap_err();
    assert!(error.is_terminal() && error.message().contains("requireDigests"), "{error}");
}
