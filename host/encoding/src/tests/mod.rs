//! The parts that Pods share, and how a state is found. `property.rs` tests that every Pod comes out as it was read.

mod hostile;
mod own_values;
mod property;
mod unshared;

use std::{
    collections::HashMap,
    hash::BuildHasher,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use foldhash::quality::FixedState;
use podium_sync::{Weak, downgrade};
use podium_vocabulary::Prune;
use podium_wire::{Section, SectionBytes, SectionSet};
use serde_json::{Value, json};

use crate::{
    candidates::Candidates,
    fragment::{Fragment, PerFragment},
    learned::{Learned, Owner},
    pool::MAX_BYTES_OF_ONE_USER,
    scan::Extent,
    skeleton::{Skeleton, Usage},
    structure::{Positions, Structure},
    testing::{pod_json as pod, written},
    *,
};

pub(super) fn pool() -> (Pool, Scratch) {
    (Pool::new(7), Scratch::default())
}

/// Returns the sections that differ if this section does: itself and the full object.
fn of_the_whole_and(section: Section) -> SectionSet {
    SectionSet::EMPTY.with(section).with(Section::Full)
}

/// Compares a Pod that was read with the decoder's output.
fn same_as_decoded(read: &Read<'_>, json: &[u8]) {
    testing::same_as_decoded(read, &podium_wire::json::decode(json).unwrap());
}

fn identity_of<'a>(read: &'a Read<'_>) -> PodIdentity<'a> {
    PodIdentity { name: &read.name, uid: &read.uid, revision: read.revision.0 }
}

/// Reads a Pod that shares text, as the next state of `held`.
fn read(pool: &Pool, scratch: &mut Scratch, json: &str, held: Option<&Packed>) -> Packed {
    let read = pool.read(&PodJson::new(json.as_bytes()), held, scratch).unwrap();
    same_as_decoded(&read, json.as_bytes());
    assert!(!read.packed.shape.is_whole());
    read.packed
}

/// Encodes a Pod again from its stored form, if that shares more of it.
fn renewed(pool: &Pool, scratch: &mut Scratch, packed: &Packed, identity: PodIdentity<'_>) -> Option<Packed> {
    let mut bytes = Vec::new();
    let shared = packed.store(identity, &mut bytes);
    pool.renewed(&Stored::open(shared, &bytes), scratch)
}

#[test]
fn pods_of_one_workload_share_skeletons_without_a_difference() {
    let (pool, mut scratch) = pool();
    let mut kept = Vec::new();
    let mut own_bytes = 0;
    for own in 0..200 {
        let json = written(&pod(1, own, "Running"));
        let read = pool.read(&PodJson::new(json.as_bytes()), None, &mut scratch).unwrap();
        same_as_decoded(&read, json.as_bytes());
        own_bytes += Fragment::ALL.into_iter().map(|fragment| read.packed.own(fragment).len()).sum::<usize>();
        kept.push(read.packed);
    }
    assert_eq!(pool.shared_texts(), FRAGMENTS);
    assert!(own_bytes / 200 < 100, "{} bytes a Pod", own_bytes / 200);
    assert!(kept.iter().all(|packed| Arc::ptr_eq(&packed.shape, &kept[0].shape)));
    drop((kept, scratch));
    assert_eq!(pool.shared_texts(), 0, "parts outlive their Pods");
}

/// Returns values that networks, StatefulSets, CronJobs and the kubelet write to only one Pod.
pub(super) fn of_its_own(own: u64) -> Value {
    let mut object = pod(1, own, "Running");
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
    let address = object["status"]["podIP"].as_str().unwrap().to_owned();
    let digest = object["status"]["containerStatuses"][0]["containerID"].as_str().unwrap()[13..].to_owned();
    object["metadata"]["annotations"] = json!({
        "cni.example/containerID": digest,
        "cni.example/podIP": format!("{address}/32"),
        "cni.example/no": format!("{address}/"),
    });
    object["status"]["containerStatuses"][0]["state"] = json!({"waiting": {
        "reason": "CrashLoopBackOff",
        "message": format!("back-off 5m0s restarting failed container=app pod={name}_shop({uid}), {name}-0 too"),
    }});
    object
}

#[test]
fn sections_reported_as_common_have_equal_bytes_for_all_pods() {
    let (pool, mut scratch) = pool();
    let mut read =
        |object: &Value| pool.read(&PodJson::new(written(object).as_bytes()), None, &mut scratch).unwrap().packed;
    let one = read(&pod(1, 1, "Running"));
    let other = read(&pod(1, 2, "Running"));
    assert!(one.has_in_common(&other, Section::Labels) && one.has_in_common(&other, Section::Owners));
    // Each of them contains a different time.
    assert!(!one.has_in_common(&other, Section::Annotations) && !one.has_in_common(&other, Section::Full));
    let mut object = pod(1, 2, "Running");
    object["metadata"]["ownerReferences"][0]["uid"] = "00000000-0000-4000-8000-000000000000".into();
    let owned_by_another = read(&object);
    assert!(one.has_in_common(&owned_by_another, Section::Labels));
    assert!(!one.has_in_common(&owned_by_another, Section::Owners));
    // The labels of a StatefulSet's Pods contain the name.
    let mut object = pod(1, 1, "Running");
    let mut named = |own: u64| {
        let like = pod(1, own, "Running");
        let name = like["metadata"]["name"].clone();
        object["metadata"]["uid"] = like["metadata"]["uid"].clone();
        (object["metadata"]["name"], object["metadata"]["labels"]["pod-name"]) = (name.clone(), name);
        read(&object)
    };
    let _unshared = named(1);
    let one = named(2);
    let other = named(3);
    assert!(Arc::ptr_eq(one.skeleton(Fragment::Object), other.skeleton(Fragment::Object)));
    assert!(!one.has_in_common(&other, Section::Labels) && one.has_in_common(&other, Section::Owners));
}

#[test]
fn only_the_domain_of_a_clouds_nodes_is_shared() {
    let parts_and_own = |nodes: &dyn Fn(u64) -> String| {
        let (pool, mut scratch) = pool();
        let mut kept = Vec::new();
        for own in 0..9 {
            let mut object = pod(1, own, "Running");
            let node = nodes(own);
            object["spec"]["nodeName"] = node.as_str().into();
            object["spec"]["zone"]["nodeAffinity"]["values"] = json!([node, "eu-west-1.compute.internal"]);
            let json = object.to_string();
            let read = pool.read(&PodJson::new(json.as_bytes()), None, &mut scratch).unwrap();
            same_as_decoded(&read, json.as_bytes());
            kept.push(read.packed);
        }
        (pool.shared_texts(), kept[0].own(Fragment::Spec).len())
    };
    let volume = 5;
    let of_cloud = |own: u64| format!("ip-10-0-{own}-7.eu-west-1.compute.internal");
    // A length of 0 and the address.
    assert_eq!(parts_and_own(&of_cloud), (FRAGMENTS, volume + 1 + 4));
    let of_zone = |own: u64| format!("worker-{own}.eu-west-1.compute.internal");
    assert_eq!(parts_and_own(&of_zone), (FRAGMENTS, volume + 1 + "worker-0".len()));
    let of_company = |own: u64| format!("node-{own}.rack-{own}.example.com");
    assert_eq!(parts_and_own(&of_company), (FRAGMENTS, volume + 1 + "node-0.rack-0.example.com".len()));
    assert_eq!(parts_and_own(&|_| ".internal".to_owned()), (FRAGMENTS, volume));
}

#[test]
fn a_status_that_a_neighbour_had_is_not_scanned() {
    let (pool, mut scratch) = pool();
    let mut kept = Vec::new();
    for (own, phase) in ["Running", "Pending", "Succeeded"].into_iter().enumerate() {
        let json = written(&pod(1, own as u64, phase));
        kept.push(pool.read(&PodJson::new(json.as_bytes()), None, &mut scratch).unwrap().packed);
    }
    // No Pod changed from the first of these to the last.
    let json = written(&pod(1, 0, "Succeeded"));
    let head = scan::head(json.as_bytes());
    let namespace = pool.hasher.hash_one(head.as_ref().unwrap().namespace);
    let likely = Candidates::like(Arc::clone(&kept[0].shape), namespace);
    let scanned = scan::cut(json.as_bytes(), head, &likely, &mut scratch, Extent::All, &Prune::NOTHING).unwrap();
    let status = scanned.known[Fragment::Status].as_ref().unwrap();
    assert!(Arc::ptr_eq(status, kept[2].skeleton(Fragment::Status)));
}

#[test]
fn values_that_are_not_of_the_shape_are_not_packed() {
    let (pool, mut scratch) = pool();
    let json = written(&pod(1, 0, "Running"));
    let read = pool.read(&PodJson::new(json.as_bytes()), None, &mut scratch).unwrap();
    let identity = identity_of(&read);
    let all = PerFragment::from_fn(|fragment| read.packed.own(fragment));
    let packed = |own: PerFragment<&[u8]>| Packed::new(Arc::clone(&read.packed.shape), own, identity);
    assert_eq!(packed(all).unwrap().own_bytes(), read.packed.own_bytes());
    for fragment in Fragment::ALL.into_iter().filter(|fragment| !all[*fragment].is_empty()) {
        let more = [all[fragment], &[0]].concat();
        let mut short = all;
        let mut long = all;
        short[fragment] = &all[fragment][..all[fragment].len() - 1];
        long[fragment] = &more;
        assert!(packed(short).is_none() && packed(long).is_none(), "{fragment:?}");
    }
}

#[test]
fn an_unchanged_spec_is_not_read_again_and_a_changed_one_is() {
    let (pool, mut scratch) = pool();
    let mut object = pod(1, 3, "Pending");
    let first = pool.read(&PodJson::new(written(&object).as_bytes()), None, &mut scratch).unwrap().packed;
    object["status"]["phase"] = "Running".into();
    let json = written(&object);
    let second = pool.read(&PodJson::new(json.as_bytes()), Some(&first), &mut scratch).unwrap();
    assert!(scratch.drafts[Fragment::Spec].text.is_empty(), "the spec was scanned again");
    assert!(scratch.drafts[Fragment::Object].text.is_empty(), "the object around it was scanned again");
    assert!(!scratch.drafts[Fragment::Status].text.is_empty());
    same_as_decoded(&second, json.as_bytes());
    let name = second.name.to_string();
    let uid = second.uid.to_string();
    assert_eq!(second.packed.changed_from(&first, &name, &uid), of_the_whole_and(Section::Status));
    object["spec"]["containers"][0]["image"] = "registry.example/app:2".into();
    let json = written(&object);
    let third = pool.read(&PodJson::new(json.as_bytes()), Some(&second.packed), &mut scratch).unwrap();
    same_as_decoded(&third, json.as_bytes());
    assert_eq!(third.packed.changed_from(&second.packed, &name, &uid), of_the_whole_and(Section::Spec));
}

#[test]
fn pruned_annotations_are_not_stored_and_not_a_change() {
    const KEYS: [&str; 2] = ["kubectl.kubernetes.io/last-applied-configuration", "a"];
    let mut pool = Pool::new(7);
    pool.prune = Prune::annotations(KEYS);
    let mut checked = testing::Checked::new(pool);
    let text = |value: &str| serde_json::to_string(value).unwrap();
    let json = |annotations: &str, spaced: bool| {
        let space = if spaced { " " } else { "" };
        format!(
            concat!(
                r#"{{{}"metadata":{{"name":"web-abcde","namespace":"shop","uid":"u","resourceVersion":"5","#,
                r#""annotations":{{{}}},"labels":{{"a":"kept"}}}},"spec":{{"a":"kept"}},"status":{{}}}}"#,
            ),
            space, annotations
        )
    };
    let last = |value: &str| format!("{}:{}", text(KEYS[0]), text(value));
    let cases = [
        (last(r#"{"spec":{"env":"secret"}}"#), String::new()),
        (format!(r#""a":"secret",{}"#, last("secret")), String::new()),
        (format!(r#"{},"b":"10.0.0.1""#, last("secret")), r#""b":"10.0.0.1""#.to_owned()),
        (format!(r#""b":"x",{},"c":"y","a":"secret""#, last("secret")), r#""b":"x","c":"y""#.to_owned()),
        (r#""b":"x","a":"secret""#.to_owned(), r#""b":"x""#.to_owned()),
    ];
    for (with, without) in cases {
        for spaced in [false, true] {
            let mut keep = |json: String| checked.read(json.as_bytes(), false).unwrap();
            let pruned = keep(json(&with, spaced));
            let plain = keep(json(&without, spaced));
            let identity = PodIdentity { name: "web-abcde", uid: "u", revision: 5 };
            for section in Section::ALL {
                let here = pruned.section(identity, section);
                let there = plain.section(identity, section);
                assert_eq!(here, there, "{} of {with}", section.name());
                assert!(!String::from_utf8_lossy(&here).contains("secret"));
            }
            assert_eq!(pruned.changed_from(&plain, "web-abcde", "u"), SectionSet::EMPTY, "{with}");
            let labels: podium_wire::Labels = podium_wire::decode(&pruned.section(identity, Section::Labels)).unwrap();
            assert_eq!(labels["a"], "kept");
        }
    }
}
