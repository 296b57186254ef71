use std::time::Duration;

use serde_json::{Value, json};

use super::server::place;
use crate::{Lease, Mark, Record, Unusable};

fn record() -> Record {
    let mark = Mark { term: 7, epoch: 2, revision: 123_456, unsettled: vec![1, u64::MAX] };
    let duration = Duration::from_secs(8);
    Record {
        holder: "podium-0_1f".to_owned(),
        term: 7,
        renewal: 42,
        duration,
        mark: Some(mark),
        shared: false,
        wanted: String::new(),
    }
}

fn json_of(record: &Record) -> Value {
    serde_json::to_value(Lease::new(record, &place(), Some("99"), "2026-01-02T03:04:05.000006Z".to_owned())).unwrap()
}

fn read(value: Value) -> Result<Record, Unusable> {
    serde_json::from_value::<Lease>(value).unwrap().record("podium/podium")
}

#[test]
fn a_lease_has_the_form_of_the_api() {
    let expected = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "podium",
            "namespace": "podium",
            "resourceVersion": "99",
            "labels": {"app.kubernetes.io/managed-by": "podium-host"},
            "annotations": {
                "podium.dev/format": "1",
                "podium.dev/shards": "16",
                "podium.dev/installation": "podium/podium",
                "podium.dev/renewal": "42",
                "podium.dev/mark": "7 2 123456 0000000000000001ffffffffffffffff",
            },
        },
        "spec": {
            "holderIdentity": "podium-0_1f",
            "leaseDurationSeconds": 8,
            "leaseTransitions": 7,
            "renewTime": "2026-01-02T03:04:05.000006Z",
        },
    });
    assert_eq!(json_of(&record()), expected);
    assert_eq!(read(expected), Ok(record()));
}

#[test]
fn a_released_lease_has_no_holder() {
    let released = Record { holder: String::new(), mark: None, ..record() };
    let value = json_of(&released);
    assert_eq!(value["spec"].get("holderIdentity"), None);
    assert_eq!(read(value), Ok(released));
}

#[test]
fn a_lease_of_replicas_that_share_has_another_format() {
    let shared = Record { shared: true, wanted: "podium-1_2e".to_owned(), ..record() };
    let value = json_of(&shared);
    let annotations = &value["metadata"]["annotations"];
    assert_eq!(
        (&annotations["podium.dev/format"], &annotations["podium.dev/wanted-by"]),
        (&json!("2"), &json!("podium-1_2e"))
    );
    assert_eq!(read(value), Ok(shared));
}

#[test]
fn what_is_not_of_this_installation_and_format_is_refused_with_its_place() {
    let cases = [
        ("/metadata/annotations/podium.dev~1format", json!("3"), "stop the replicas"),
        ("/metadata/annotations/podium.dev~1shards", json!("32"), "stop the replicas"),
        ("/metadata/annotations/podium.dev~1installation", json!("other/podium"), "\"other/podium\" acts"),
        ("/metadata/annotations/podium.dev~1renewal", json!("-1"), "\"-1\" in podium.dev/renewal"),
        ("/metadata/annotations", json!({}), "format \"\""),
        ("/spec/leaseTransitions", json!(-1), "\"-1\" in spec.leaseTransitions"),
        ("/spec/leaseTransitions", json!(i32::MAX), "spec.leaseTransitions"),
        ("/spec/leaseDurationSeconds", json!(0), "\"0\" in spec.leaseDurationSeconds"),
        ("/spec/leaseDurationSeconds", json!(601), "spec.leaseDurationSeconds"),
        ("/spec", json!({}), "spec.leaseDurationSeconds"),
    ];
    for (pointer, wrong, message) in cases {
        let mut value = json_of(&record());
        *value.pointer_mut(pointer).unwrap() = wrong;
        let error = read(value).unwrap_err().to_string();
        assert!(error.contains(message), "{pointer}: {error}");
        assert!(error.contains("delete the Lease"), "the next step: {error}");
    }
}

#[test]
fn a_mark_that_cannot_be_read_is_none() {
    let sixteen = "0".repeat(16);
    let many = format!("1 2 3 {}", sixteen.repeat(Mark::MOST + 1));
    for text in ["", "1 2 3", "1 2 x ", "1 2 3 0", "1 2 3 +000000000000001", "1 2 3 ééééééé", "-1 2 3 ", many.as_str()]
    {
        assert_eq!(Mark::parse(text), None, "{text}");
    }
    let full = Mark { unsettled: vec![3; Mark::MOST], ..Mark::default() };
    assert_eq!(Mark::parse(&full.text().unwrap()), Some(full.clone()));
    let beyond = Mark { unsettled: vec![3; Mark::MOST + 1], ..full };
    assert_eq!(beyond.text(), None, "a mark that leaves deletions out would have them lost");
}
