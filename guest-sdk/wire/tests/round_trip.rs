//! Pod to record to Kubernetes JSON and back, over generated Pods and over ten in the form of a real API server.
//!
//! Generated Pods only contain what JSON can represent; `podium_wire::json` documents what it cannot.

#![expect(clippy::disallowed_methods, reason = "tests read files of their own")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, path::Path};

use podium_wire::{
    Condition, ConditionStatus, Container, ContainerState, ContainerStatus, Header, Lifecycle, Owner, Pod, Port,
    Record, RestartPolicy, Section, SectionBytes, SectionSet, Spec, Status, Timestamp, Toleration, Volume,
    json::{JsonError, decode, decode_value, render},
};
use proptest::{
    collection::{btree_map, vec},
    option::of,
    prelude::*,
};
use serde_json::{Value, json};

/// 9999-12-30T22:00:00Z, the last second that jiff can represent.
const LAST_SECOND: i64 = 253_402_207_200;

fn open(pod: &Pod, sections: SectionSet) -> Record {
    Record::open(SectionBytes::encode(pod).unwrap().record(&pod.header, sections).unwrap()).unwrap()
}

fn minimal() -> Value {
    json!({"metadata": {"namespace": "shop", "name": "cart-0", "uid": "u1", "resourceVersion": "7"}})
}

fn with(path: &str, value: Value) -> Value {
    let mut pod = minimal();
    let mut at = &mut pod;
    for key in path.split('.') {
        at = &mut at[key];
    }
    *at = value;
    pod
}

fn given() -> impl Strategy<Value = String> {
    ".{1,8}"
}

fn any_text() -> impl Strategy<Value = String> {
    ".{0,8}"
}

fn texts() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map(any_text(), any_text(), 0..3)
}

fn time() -> impl Strategy<Value = Timestamp> {
    (0..LAST_SECOND).prop_map(|seconds| Timestamp(seconds * 1000))
}

fn header() -> impl Strategy<Value = Header> {
    (given(), given(), given(), given(), any::<i64>(), time()).prop_map(
        |(namespace, name, uid, resource_version, generation, created)| Header {
            namespace,
            name,
            uid,
            resource_version,
            generation,
            created,
        },
    )
}

fn owner() -> impl Strategy<Value = Owner> {
    (any_text(), any_text(), any_text(), any_text(), any::<bool>(), any::<bool>()).prop_map(
        |(api_version, kind, name, uid, controller, block_owner_deletion)| Owner {
            api_version,
            kind,
            name,
            uid,
            controller,
            block_owner_deletion,
        },
    )
}

fn lifecycle() -> impl Strategy<Value = Lifecycle> {
    (of(time()), any::<Option<i64>>(), vec(any_text(), 0..3)).prop_map(
        |(deletion_timestamp, deletion_grace_period_seconds, finalizers)| Lifecycle {
            deletion_timestamp,
            deletion_grace_period_seconds,
            finalizers,
        },
    )
}

fn toleration() -> impl Strategy<Value = Toleration> {
    (of(given()), of(given()), of(given()), of(given()), any::<Option<i64>>()).prop_map(
        |(key, operator, value, effect, toleration_seconds)| Toleration {
            key,
            operator,
            value,
            effect,
            toleration_seconds,
        },
    )
}

fn volume() -> impl Strategy<Value = Volume> {
    let kind = any_text().prop_filter("a volume kind is a key besides name", |kind| kind != "name");
    (any_text(), kind).prop_map(|(name, kind)| Volume { name, kind })
}

fn port() -> impl Strategy<Value = Port> {
    (of(given()), any::<i32>(), of(1..i32::MAX), of(given()))
        .prop_map(|(name, container_port, host_port, protocol)| Port { name, container_port, host_port, protocol })
}

fn containers() -> impl Strategy<Value = Vec<Container>> {
    let container =
        (any_text(), any_text(), of(given()), of(given()), texts(), texts(), vec(port(), 0..3), vec(any_text(), 0..3))
            .prop_map(|(name, image, image_pull_policy, restart_policy, requests, limits, ports, env_names)| {
                Container { name, image, image_pull_policy, restart_policy, requests, limits, ports, env_names }
            });
    vec(container, 0..3)
}

fn spec() -> impl Strategy<Value = Spec> {
    let policies = [RestartPolicy::Always, RestartPolicy::OnFailure, RestartPolicy::Never];
    let scalars = (
        of(given()),
        of(given()),
        prop::sample::select(policies.to_vec()),
        of(given()),
        any::<Option<i32>>(),
        of(given()),
        any::<bool>(),
        any::<Option<i64>>(),
        any::<Option<i64>>(),
        of(given()),
    );
    let lists = (
        texts(),
        vec(toleration(), 0..3),
        vec(any_text(), 0..3),
        vec(volume(), 0..3),
        containers(),
        containers(),
        containers(),
    );
    (scalars, lists).prop_map(|(scalars, lists)| Spec {
        node_name: scalars.0,
        service_account_name: scalars.1,
        restart_policy: scalars.2,
        scheduler_name: scalars.3,
        priority: scalars.4,
        priority_class_name: scalars.5,
        host_network: scalars.6,
        termination_grace_period_seconds: scalars.7,
        active_deadline_seconds: scalars.8,
        runtime_class_name: scalars.9,
        node_selector: lists.0,
        tolerations: lists.1,
        scheduling_gates: lists.2,
        volumes: lists.3,
        init_containers: lists.4,
        containers: lists.5,
        ephemeral_containers: lists.6,
    })
}

fn condition() -> impl Strategy<Value = Condition> {
    let statuses = [ConditionStatus::True, ConditionStatus::False, ConditionStatus::Unknown];
    (any_text(), prop::sample::select(statuses.to_vec()), of(given()), of(given()), of(time())).prop_map(
        |(condition_type, status, reason, message, last_transition_time)| Condition {
            condition_type,
            status,
            reason,
            message,
            last_transition_time,
        },
    )
}

fn state() -> impl Strategy<Value = ContainerState> {
    let terminated = (any::<i32>(), of(1..i32::MAX), of(given()), of(given()), of(time()), of(time())).prop_map(
        |(exit_code, signal, reason, message, started_at, finished_at)| ContainerState::Terminated {
            exit_code,
            signal,
            reason,
            message,
            started_at,
            finished_at,
        },
    );
    prop_oneof![
        Just(ContainerState::Unknown),
        (of(given()), of(given())).prop_map(|(reason, message)| ContainerState::Waiting { reason, message }),
        of(time()).prop_map(|started_at| ContainerState::Running { started_at }),
        terminated,
    ]
}

fn container_statuses() -> impl Strategy<Value = Vec<ContainerStatus>> {
    let status = (
        any_text(),
        any::<bool>(),
        any::<Option<bool>>(),
        any::<i32>(),
        any_text(),
        any_text(),
        of(given()),
        state(),
        state(),
    )
        .prop_map(|(name, ready, started, restart_count, image, image_id, container_id, state, last_state)| {
            ContainerStatus { name, ready, started, restart_count, image, image_id, container_id, state, last_state }
        });
    vec(status, 0..3)
}

fn status() -> impl Strategy<Value = Status> {
    let scalars = (
        any_text(),
        of(given()),
        of(given()),
        of(given()),
        of(given()),
        vec(any_text(), 0..3),
        of(time()),
        of(given()),
    );
    let lists = (vec(condition(), 0..3), container_statuses(), container_statuses(), container_statuses());
    (scalars, lists).prop_map(|(scalars, lists)| Status {
        phase: scalars.0,
        reason: scalars.1,
        message: scalars.2,
        qos_class: scalars.3,
        host_ip: scalars.4,
        pod_ips: scalars.5,
        start_time: scalars.6,
        nominated_node_name: scalars.7,
        conditions: lists.0,
        init_container_statuses: lists.1,
        container_statuses: lists.2,
        ephemeral_container_statuses: lists.3,
    })
}

fn pod() -> impl Strategy<Value = Pod> {
    (header(), texts(), texts(), vec(owner(), 0..3), lifecycle(), spec(), status()).prop_map(
        |(header, labels, annotations, owners, lifecycle, spec, status)| Pod {
            header,
            labels,
            annotations,
            owners,
            lifecycle,
            spec,
            status,
            full: String::new(),
        },
    )
}

/// Returns the part of a Pod that a record with these sections contains.
fn only(mut pod: Pod, sections: SectionSet) -> Pod {
    for section in Section::ALL.into_iter().filter(|section| !sections.contains(*section)) {
        match section {
            Section::Labels => pod.labels.clear(),
            Section::Annotations => pod.annotations.clear(),
            Section::Owners => pod.owners.clear(),
            Section::Lifecycle => pod.lifecycle = Lifecycle::default(),
            Section::Spec => pod.spec = Spec::default(),
            Section::Status => pod.status = Status::default(),
            Section::Full => pod.full.clear(),
        }
    }
    pod
}

proptest! {
    #[test]
    fn a_pod_is_the_same_after_record_and_json(pod in pod()) {
        let json = render(&open(&pod, SectionSet::ALL)).unwrap();
        prop_assert_eq!(&decode(json.to_string().as_bytes()).unwrap(), &pod);
        prop_assert_eq!(&decode_value(&json).unwrap(), &pod);
    }

    #[test]
    fn a_record_with_some_sections_renders_those_and_no_others(
        pod in pod(),
        chosen in prop::sample::subsequence(Section::ALL.to_vec(), 0..=Section::COUNT),
    ) {
        let sections = chosen.into_iter().collect::<SectionSet>();
        let json = render(&open(&pod, sections)).unwrap();
        prop_assert_eq!(json.get("spec").is_some(), sections.contains(Section::Spec));
        prop_assert_eq!(json.get("status").is_some(), sections.contains(Section::Status));
        prop_assert_eq!(decode_value(&json).unwrap(), only(pod, sections));
    }

    #[test]
    fn any_millisecond_that_jiff_holds_is_the_same_after_text(milliseconds in -LAST_SECOND * 1000..LAST_SECOND * 1000) {
        prop_assert_eq!(Timestamp(milliseconds).to_string().parse(), Ok(Timestamp(milliseconds)));
    }

    #[test]
    fn arbitrary_text_in_place_of_a_pod_is_an_error(text in ".*") {
        prop_assert!(decode(text.as_bytes()).is_err());
    }
}

#[test]
fn every_pod_of_an_api_server_survives_a_round_trip() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../host/encoding/src/testing/pods");
    let files = std::fs::read_dir(&folder).unwrap();
    let mut count = 0;
    for path in files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "json")) {
        let json = std::fs::read(&path).unwrap();
        let pod = decode(&json).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(!pod.spec.containers.is_empty(), "{}", path.display());
        assert!(!pod.status.phase.is_empty(), "{}", path.display());
        assert!(pod.spec.volumes.iter().all(|volume| !volume.kind.is_empty()), "{}", path.display());
        assert_eq!(decode_value(&serde_json::from_slice(&json).unwrap()).unwrap(), pod, "{}", path.display());
        assert_eq!(decode_value(&render(&open(&pod, SectionSet::ALL)).unwrap()).unwrap(), pod, "{}", path.display());
        count += 1;
    }
    assert_eq!(count, 10, "Pods in {}", folder.display());
}

#[test]
fn a_rendered_pod_has_the_kubernetes_shape_and_no_empty_fields() {
    let json = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "shop", "name": "cart-0", "uid": "u1", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2026-01-02T03:04:05Z", "labels": {"app": ""},
            "deletionTimestamp": "2026-01-02T03:04:05.067Z", "deletionGracePeriodSeconds": 0, "finalizers": ["f"],
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "cart", "uid": "u0", "controller": true}
            ]
        },
        "spec": {
            "restartPolicy": "Never", "priority": 0, "nodeName": "n1", "hostNetwork": true,
            "volumes": [{"name": "config", "configMap": {}}], "schedulingGates": [{"name": "g"}],
            "containers": [{
                "name": "cart", "image": "cart:1", "env": [{"name": "TOKEN"}], "ports": [{"containerPort": 80}],
                "resources": {"requests": {"cpu": "500m"}}
            }]
        },
        "status": {
            "phase": "Running", "hostIP": "10.0.0.1", "podIP": "10.1.0.1", "qosClass": "Burstable",
            "podIPs": [{"ip": "10.1.0.1"}, {"ip": "fd00::1"}],
            "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [{
                "name": "cart", "ready": false, "restartCount": 3, "image": "cart:1", "imageID": "sha256:1",
                "containerID": "containerd://1", "state": {"running": {}},
                "lastState": {"terminated": {"exitCode": 0, "finishedAt": "2026-01-02T03:04:05Z"}}
            }]
        }
    });
    assert_eq!(render(&open(&decode_value(&json).unwrap(), SectionSet::ALL)).unwrap(), json);
}

#[test]
fn the_content_of_volumes_and_variables_is_not_kept() {
    let pod = with(
        "spec",
        json!({
            "volumes": [{"configMap": null, "projected": {"sources": ["hush"]}, "name": "v"}],
            "containers": [{"name": "c", "env": [{"name": "TOKEN", "value": "hush"}], "command": ["hush"]}]
        }),
    );
    let pod = decode(pod.to_string().as_bytes()).unwrap();
    assert_eq!(pod.spec.volumes, [Volume { name: "v".into(), kind: "projected".into() }]);
    assert_eq!(pod.spec.containers[0].env_names, ["TOKEN"]);
    assert!(!format!("{pod:?}").contains("hush"));
}

#[test]
fn null_means_absent_for_every_field_but_the_required_ones() {
    let pod = json!({
        "kind": null,
        "metadata": {
            "namespace": "shop", "name": "cart-0", "uid": "u1", "resourceVersion": "7", "creationTimestamp": null,
            "labels": null, "ownerReferences": null, "deletionGracePeriodSeconds": null, "finalizers": null
        },
        "spec": {"nodeName": null, "hostNetwork": null, "containers": null, "volumes": null, "restartPolicy": null},
        "status": {"conditions": null, "podIPs": null, "startTime": null}
    });
    assert_eq!(decode_value(&pod), decode_value(&minimal()));
    let nulls = json!({"waiting": null, "running": {"startedAt": null}});
    let pod = decode_value(&with("status.containerStatuses", json!([{"state": nulls, "lastState": null}]))).unwrap();
    assert_eq!(pod.status.container_statuses[0].state, ContainerState::Running { started_at: None });
    assert_eq!(pod.status.container_statuses[0].last_state, ContainerState::Unknown);
}

#[test]
fn an_empty_text_means_absent() {
    assert_eq!(decode_value(&with("spec.nodeName", json!(""))), decode_value(&minimal()));
}

#[test]
fn a_pod_of_an_old_server_has_its_one_address() {
    assert_eq!(decode_value(&with("status.podIP", json!("10.1.0.1"))).unwrap().status.pod_ips, ["10.1.0.1"]);
}

#[test]
fn an_unknown_or_absent_condition_status_is_unknown() {
    let conditions = json!([{"type": "a", "status": "Maybe"}, {"type": "b"}, {"type": "c", "status": "True"}]);
    let pod = decode_value(&with("status.conditions", conditions)).unwrap();
    let statuses = pod.status.conditions.iter().map(|condition| condition.status).collect::<Vec<_>>();
    assert_eq!(statuses, [ConditionStatus::Unknown, ConditionStatus::Unknown, ConditionStatus::True]);
}

#[test]
fn a_missing_identity_is_an_error_that_names_the_field() {
    for field in ["metadata.namespace", "metadata.name", "metadata.uid", "metadata.resourceVersion"] {
        for nothing in [Value::Null, json!("")] {
            assert_eq!(decode_value(&with(field, nothing)), Err(JsonError::Missing(field)));
        }
        let mut pod = minimal();
        pod["metadata"].as_object_mut().unwrap().remove(field.trim_start_matches("metadata."));
        assert_eq!(decode_value(&pod), Err(JsonError::Missing(field)));
    }
    assert!(matches!(decode(b"{}"), Err(JsonError::Missing(_))));
}

#[test]
fn a_malformed_time_or_policy_is_an_error_that_names_the_field() {
    let state = |state: &str, field: &str| json!([{"state": {state: {field: "noon"}}}]);
    for (path, value, named) in [
        ("metadata.creationTimestamp", json!("noon"), "metadata.creationTimestamp"),
        ("metadata.deletionTimestamp", json!("noon"), "metadata.deletionTimestamp"),
        ("status.startTime", json!("noon"), "status.startTime"),
        ("status.conditions", json!([{"lastTransitionTime": "noon"}]), "status.conditions[].lastTransitionTime"),
        ("status.containerStatuses", state("running", "startedAt"), "running.startedAt of a container status"),
        ("status.containerStatuses", state("terminated", "finishedAt"), "terminated.finishedAt of a container status"),
        ("spec.restartPolicy", json!("noon"), "spec.restartPolicy"),
    ] {
        let error = JsonError::BadValue { field: named, value: "noon".into() };
        assert_eq!(decode_value(&with(path, value)), Err(error));
    }
}

#[test]
fn hostile_json_is_an_error() {
    let nested = format!("{}{}", r#"{"metadata":{"labels":"#.repeat(1 << 16), "}".repeat(1 << 17));
    let ignored = format!(r#"{{"other":{}"#, "[".repeat(1 << 20));
    let twice = r#"{"metadata":{"name":"a","name":"b","namespace":"n","uid":"u","resourceVersion":"1"}}"#;
    let trailing = format!("{} {{}}", minimal());
    let long = with("metadata.creationTimestamp", json!("9".repeat(1 << 20))).to_string();
    let wrong = with("metadata.generation", json!("ü".repeat(1 << 20))).to_string();
    for text in ["", "null", "[]", "{", "\"Pod\"", &nested, &ignored, twice, &trailing, &long, &wrong] {
        let error = decode(text.as_bytes()).expect_err("hostile JSON decodes");
        assert!(error.to_string().chars().count() < 400, "the message repeats its input");
    }
    assert!(matches!(decode(b"{\"metadata\":{\"name\":\"\xff\"}}"), Err(JsonError::Malformed(_))));
    for (path, value) in [
        ("metadata", json!("text")),
        ("metadata.generation", json!(1e300)),
        ("metadata.labels", json!({"a": 1})),
        ("spec.priority", json!(1_u64 << 40)),
        ("spec.volumes", json!(["text"])),
        ("spec.containers", json!({})),
        ("status.podIPs", json!(["10.0.0.1"])),
    ] {
        assert!(matches!(decode_value(&with(path, value)), Err(JsonError::Malformed(_))), "{path}");
    }
}

#[test]
fn every_truncation_of_a_pod_is_an_error() {
    let json = minimal().to_string();
    for end in 0..json.len() {
        assert!(matches!(decode(&json.as_bytes()[..end]), Err(JsonError::Malformed(_))), "cut at {end}");
    }
}

#[test]
fn times_are_utc_to_the_second_or_to_the_millisecond() {
    assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00Z");
    assert_eq!(Timestamp(1_500).to_string(), "1970-01-01T00:00:01.500Z");
    assert_eq!("1970-01-01T01:00:01.5006+01:00".parse(), Ok(Timestamp(1_500)));
    for text in ["1970-01-01T00:00:00", "", "soon"] {
        let error = text.parse::<Timestamp>().unwrap_err().to_string();
        assert_eq!(error, format!("{text:?} is no time, such as 2026-01-31T08:00:00Z"));
    }
}

#[test]
fn an_impossible_time_renders_as_the_nearest_possible_one() {
    assert_eq!(Timestamp(i64::MAX).to_string(), "9999-12-30T22:00:00.999Z");
    assert!(Timestamp(i64::MIN).to_string().starts_with("-009999-"));
}
