//! The layout of a record: bytes of version 1 as they were first released, and their meaning.
//!
//! Built components read these bytes. If a section grows, its line here grows at its end and the lengths in `TABLE`
//! with it. Any other difference means that plugins must be rebuilt, and is a new version of the WIT package.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use podium_wire::{
    Condition, ConditionStatus, Container, ContainerState, ContainerStatus, Header, Lifecycle, Owner, Pod, Port,
    Record, RecordError, RestartPolicy, Section, SectionBytes, SectionSet, Spec, Status, Timestamp, Toleration, Volume,
    encode,
};

const TABLE: &str = "0101063d0000000036000000011d0000000241000000032700000004ef01000005eb010000";
const HEADER: &str = "\
    040000000000000073686f700600000000000000636172742d30020000000000000075310100000000000000370200000000000000e80300\
    0000000000";
const LABELS: &str = "\
    0200000000000000030000000000000061707004000000000000006361727404000000000000007465616d0300000000000000776562";
const ANNOTATIONS: &str = "010000000000000004000000000000006e6f7465010000000000000078";
const OWNERS: &str = "\
    01000000000000000700000000000000617070732f76310a000000000000005265706c696361536574040000000000000063617274020000\
    00000000006f310100";
const LIFECYCLE: &str = "012823000000000000011e0000000000000001000000000000000500000000000000612e622f63";
const SPEC: &str = "\
    0102000000000000006e31010200000000000000736101000000010500000000000000736368656401fbffffff0104000000000000006869\
    676801011f000000000000000120000000000000000102000000000000007263010000000000000004000000000000006469736b03000000\
    0000000073736401000000000000000101000000000000006b010500000000000000457175616c0101000000000000007601090000000000\
    00004e6f45786563757465012100000000000000010000000000000004000000000000006761746501000000000000000300000000000000\
    766f6c0800000000000000686f73745061746801000000000000000400000000000000696e69740000000000000000000106000000000000\
    00416c7761797300000000000000000000000000000000000000000000000000000000000000000100000000000000030000000000000077\
    656205000000000000006e67696e78010600000000000000416c776179730001000000000000000300000000000000637075010000000000\
    000031010000000000000006000000000000006d656d6f727903000000000000003147690100000000000000010100000000000000705000\
    0000015100000001030000000000000054435001000000000000000400000000000000484f4d450000000000000000";
const STATUS: &str = "\
    070000000000000052756e6e696e67010700000000000000457669637465640103000000000000006c6f7701090000000000000042757273\
    7461626c6501080000000000000031302e302e302e310100000000000000080000000000000031302e312e302e3101d00700000000000001\
    02000000000000006e32030000000000000001000000000000004100000000010100000000000000720103000000000000006d736701b80b\
    00000000000001000000000000004201000000010100000000000000720103000000000000006d736701b80b000000000000010000000000\
    00004302000000010100000000000000720103000000000000006d736701b80b00000000000001000000000000000400000000000000696e\
    6974000000000000000000000000000000000000000000000000000000030000008900000001090000000109000000000000004f4f4d4b69\
    6c6c65640001a00f000000000000018813000000000000010000000000000003000000000000007765620101000600000005000000000000\
    006e67696e780e000000000000006e67696e78407368613235363a3001020000000000000063310200000001701700000000000001000000\
    01100000000000000043726173684c6f6f704261636b4f66660101000000000000006d0000000000000000";

fn golden() -> Vec<u8> {
    let digits = [TABLE, HEADER, LABELS, ANNOTATIONS, OWNERS, LIFECYCLE, SPEC, STATUS].concat();
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// Adjacent fields differ, and every variant of every enum is present, except of restart policies.
fn pod() -> Pod {
    Pod {
        header: Header {
            namespace: "shop".into(),
            name: "cart-0".into(),
            uid: "u1".into(),
            resource_version: "7".into(),
            generation: 2,
            created: Timestamp(1_000),
        },
        labels: [("app".into(), "cart".into()), ("team".into(), "web".into())].into(),
        annotations: [("note".into(), "x".into())].into(),
        owners: vec![Owner {
            api_version: "apps/v1".into(),
            kind: "ReplicaSet".into(),
            name: "cart".into(),
            uid: "o1".into(),
            controller: true,
            block_owner_deletion: false,
        }],
        lifecycle: Lifecycle {
            deletion_timestamp: Some(Timestamp(9_000)),
            deletion_grace_period_seconds: Some(30),
            finalizers: vec!["a.b/c".into()],
        },
        spec: spec(),
        status: status(),
        full: String::new(),
    }
}

fn spec() -> Spec {
    let container = Container {
        name: "web".into(),
        image: "nginx".into(),
        image_pull_policy: text("Always"),
        restart_policy: None,
        requests: [("cpu".into(), "1".into())].into(),
        limits: [("memory".into(), "1Gi".into())].into(),
        ports: vec![Port { name: text("p"), container_port: 80, host_port: Some(81), protocol: text("TCP") }],
        env_names: vec!["HOME".into()],
    };
    Spec {
        node_name: text("n1"),
        service_account_name: text("sa"),
        restart_policy: RestartPolicy::OnFailure,
        scheduler_name: text("sched"),
        priority: Some(-5),
        priority_class_name: text("high"),
        host_network: true,
        termination_grace_period_seconds: Some(31),
        active_deadline_seconds: Some(32),
        runtime_class_name: text("rc"),
        node_selector: [("disk".into(), "ssd".into())].into(),
        tolerations: vec![Toleration {
            key: text("k"),
            operator: text("Equal"),
            value: text("v"),
            effect: text("NoExecute"),
            toleration_seconds: Some(33),
        }],
        scheduling_gates: vec!["gate".into()],
        volumes: vec![Volume { name: "vol".into(), kind: "hostPath".into() }],
        init_containers: vec![Container {
            name: "init".into(),
            restart_policy: text("Always"),
            ..Container::default()
        }],
        containers: vec![container],
        ephemeral_containers: vec![],
    }
}

fn status() -> Status {
    let condition = |condition_type: &str, status| Condition {
        condition_type: condition_type.into(),
        status,
        reason: text("r"),
        message: text("msg"),
        last_transition_time: Some(Timestamp(3_000)),
    };
    let named = |name: &str, state, last_state| ContainerStatus {
        name: name.into(),
        state,
        last_state,
        ..ContainerStatus::default()
    };
    let terminated = ContainerState::Terminated {
        exit_code: 137,
        signal: Some(9),
        reason: text("OOMKilled"),
        message: None,
        started_at: Some(Timestamp(4_000)),
        finished_at: Some(Timestamp(5_000)),
    };
    let waiting = ContainerState::Waiting { reason: text("CrashLoopBackOff"), message: text("m") };
    Status {
        phase: "Running".into(),
        reason: text("Evicted"),
        message: text("low"),
        qos_class: text("Burstable"),
        host_ip: text("10.0.0.1"),
        pod_ips: vec!["10.1.0.1".into()],
        start_time: Some(Timestamp(2_000)),
        nominated_node_name: text("n2"),
        conditions: vec![
            condition("A", ConditionStatus::True),
            condition("B", ConditionStatus::False),
            condition("C", ConditionStatus::Unknown),
        ],
        init_container_statuses: vec![named("init", ContainerState::Unknown, terminated)],
        container_statuses: vec![ContainerStatus {
            name: "web".into(),
            ready: true,
            started: Some(false),
            restart_count: 6,
            image: "nginx".into(),
            image_id: "nginx@sha256:0".into(),
            container_id: text("c1"),
            state: ContainerState::Running { started_at: Some(Timestamp(6_000)) },
            last_state: waiting,
        }],
        ephemeral_container_statuses: vec![],
    }
}

#[test]
fn the_first_records_of_version_1_still_open_and_mean_the_same() {
    let record = Record::open(golden()).unwrap();
    let read = Pod {
        header: record.header().clone(),
        labels: record.labels().unwrap(),
        annotations: record.annotations().unwrap(),
        owners: record.owners().unwrap(),
        lifecycle: record.lifecycle().unwrap(),
        spec: record.spec().unwrap(),
        status: record.status().unwrap(),
        full: String::new(),
    };
    assert_eq!(record.full(), Err(RecordError::NotGranted("full")));
    assert_eq!(read, pod());
}

#[test]
fn the_layout_is_that_of_the_first_release() {
    let pod = pod();
    let sections = Section::ALL.into_iter().filter(|section| *section != Section::Full).collect();
    let made = SectionBytes::encode(&pod).unwrap().record(&pod.header, sections).unwrap();
    assert_eq!(made, golden(), "built components could not read this");
}

#[test]
fn the_full_object_is_section_6_as_plain_text() {
    let pod = Pod { full: r#"{"later":1.0e3}"#.to_owned(), ..pod() };
    let made = SectionBytes::encode(&pod).unwrap().record(&pod.header, SectionSet::EMPTY.with(Section::Full)).unwrap();
    assert_eq!((made[2], made[7]), (1, 6), "one section, and its number");
    assert!(made.ends_with(pod.full.as_bytes()));
    assert_eq!(Record::open(made).unwrap().full(), Ok(&*pod.full));
}

#[test]
fn restart_policies_keep_their_numbers() {
    let policies = (RestartPolicy::Always, RestartPolicy::OnFailure, RestartPolicy::Never);
    assert_eq!(encode(&policies).unwrap(), [0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]);
}
