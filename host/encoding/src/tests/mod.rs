//! The stored sections of a Pod must equal those of the decoder, and its JSON must be restored.

mod foreign;
mod hostile;
mod own_values;
mod unshared;
mod unusual;

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

pub(super) fn pool() -> (SkeletonPool, Scratch) {
    (SkeletonPool::new(7), Scratch::default())
}

pub(super) fn none(_: &str, _: &str, _: &str) -> Option<Packed> {
    None
}

pub(super) fn encoded() -> impl Iterator<Item = Section> {
    Section::ALL.into_iter().filter(|section| *section != Section::Full)
}

/// Returns the sections that differ if this section does: itself and the full object.
fn of_the_whole_and(section: Section) -> SectionSet {
    SectionSet::EMPTY.with(section).with(Section::Full)
}

/// Compares a Pod that was read with the decoder's output.
pub(super) fn same_as_decoded(read: &Read<'_>, json: &[u8]) {
    let decoded = podium_wire::json::decode(json).unwrap();
    let expected = SectionBytes::encode(&decoded).unwrap();
    let identity = PodIdentity { name: read.name, uid: read.uid, revision: read.revision };
    for section in encoded() {
        assert_eq!(&*read.packed.section(identity, section), expected.get(section), "{}", section.name());
    }
    let full = read.packed.section(identity, Section::Full);
    assert!(str::from_utf8(&full).is_ok());
    assert_eq!(podium_wire::json::decode(&full).unwrap(), decoded);
    let header = &decoded.header;
    assert_eq!((read.namespace, read.name, read.uid), (&*header.namespace, &*header.name, &*header.uid));
    assert_eq!(read.revision.to_string(), header.resource_version);
    assert_eq!(
        (read.packed.created(identity), read.packed.generation(identity)),
        (header.created.0, header.generation)
    );
    assert_eq!(read.packed.node(identity).as_deref(), decoded.spec.node_name.as_deref());
    assert_eq!(read.packed.phase(identity), decoded.status.phase);
}

/// Returns the expected restored object.
pub(super) fn without_managed_fields(json: &[u8]) -> String {
    let mut value: Value = serde_json::from_slice(json).unwrap();
    value["metadata"].as_object_mut().unwrap().remove("managedFields");
    value.to_string()
}

#[test]
fn pods_of_one_workload_share_skeletons_without_a_difference() {
    let (pool, mut scratch) = pool();
    let mut kept = Vec::new();
    let mut own_bytes = 0;
    for own in 0..200 {
        let json = written(&pod(1, own, "Running"));
        let read = pool.read(json.as_bytes(), &mut scratch, none).unwrap();
        same_as_decoded(&read, json.as_bytes());
        let identity = PodIdentity { name: read.name, uid: read.uid, revision: read.revision };
        let back = String::from_utf8(read.packed.json(identity)).unwrap();
        let back: Value = serde_json::from_str(&back).unwrap();
        assert_eq!(back.to_string(), without_managed_fields(json.as_bytes()));
        own_bytes += Fragment::ALL.into_iter().map(|fragment| read.packed.own(fragment).len()).sum::<usize>();
        kept.push(read.packed);
    }
    assert_eq!(pool.skeletons(), FRAGMENTS);
    assert!(own_bytes / 200 < 100, "{} bytes a Pod", own_bytes / 200);
    assert!(kept.iter().all(|packed| Arc::ptr_eq(&packed.shape, &kept[0].shape)));
    drop(kept);
    assert_eq!(pool.skeletons(), 0, "parts outlive their Pods");
}

#[test]
fn the_object_comes_back_byte_for_byte() {
    let (pool, mut scratch) = pool();
    let head = r#"{"kind":"Pod","apiVersion":"v1","#;
    let json = "{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"web-abcde\",\"namespace\":\"shop\",\
        \"uid\":\"u\",\"resourceVersion\":\"5\",\"managedFields\":[{\"a\":\"}\"}],\
        \"x\":{\"later\":[1.0e3,\"é\\n\"]}},\"later\":null,\"spec\":{\"nodeName\":\"n1\",\"b\":\"n1\"},\"status\":{}}";
    let read = pool.read(json.as_bytes(), &mut scratch, none).unwrap();
    let identity = PodIdentity { name: read.name, uid: read.uid, revision: read.revision };
    let expected = json.replace(r#""managedFields":[{"a":"}"}],"#, "");
    assert_eq!(String::from_utf8(read.packed.json(identity)).unwrap(), expected);
    // An item of a list has neither kind nor version.
    let item = json.replace(head, "{");
    let read = pool.read(item.as_bytes(), &mut scratch, none).unwrap();
    assert_eq!(String::from_utf8(read.packed.json(identity)).unwrap(), expected);
}

#[test]
fn a_spec_and_a_status_with_equal_text_are_two_skeletons() {
    let (pool, mut scratch) = pool();
    for parts in ["", r#","spec":{},"status":{}"#] {
        let identity = r#"{"metadata":{"name":"web","namespace":"shop","uid":"u","resourceVersion":"5"}"#;
        let json = format!("{identity}{parts}}}");
        let first = pool.read(json.as_bytes(), &mut scratch, none).unwrap();
        same_as_decoded(&first, json.as_bytes());
        // Now both skeletons are known.
        same_as_decoded(&pool.read(json.as_bytes(), &mut scratch, none).unwrap(), json.as_bytes());
    }
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
fn values_inside_strings_are_found() {
    let (pool, mut scratch) = pool();
    let mut kept = Vec::new();
    for own in 0..50 {
        let json = written(&of_its_own(own));
        let read = pool.read(json.as_bytes(), &mut scratch, none).unwrap();
        same_as_decoded(&read, json.as_bytes());
        let identity = PodIdentity { name: read.name, uid: read.uid, revision: read.revision };
        let back: Value = serde_json::from_slice(&read.packed.json(identity)).unwrap();
        assert_eq!(back.to_string(), without_managed_fields(json.as_bytes()));
        kept.push(read.packed);
    }
    assert_eq!(pool.skeletons(), FRAGMENTS);
}

#[test]
fn pods_of_a_stateful_set_or_a_cron_job_share_skeletons() {
    for names in [["db-0", "db-7", "db-41"], ["load-29300341-abcde", "load-29300342-0a1b2", "load-29300343-zzzzz"]] {
        let (pool, mut scratch) = pool();
        let mut kept = Vec::new();
        for name in names {
            let (owner, last) = name.rsplit_once('-').unwrap();
            // The last part of a Job's Pod name is not a number, and no label contains it.
            let index = if last.len() == 5 { "0" } else { last };
            // In the order of an API server.
            let json = format!(
                concat!(
                    "{{\"metadata\":{{\"name\":\"{name}\",\"generateName\":\"{owner}-\",\"namespace\":\"shop\",\
                    \"uid\":\"uid-of-{name}\",",
                    "\"resourceVersion\":\"7\",\"labels\":{{\"index\":\"{index}\",\"job\":\"{owner}\",\
                    \"part-of\":\"{owner}-shop-{owner}\"}},",
                    r#""ownerReferences":[{{"apiVersion":"batch/v1","kind":"Job","name":"{owner}","uid":"u"}}]}},"#,
                    r#""spec":{{"containers":[],"hostname":"{name}"}},"status":{{"message":"{owner}"}}}}"#,
                ),
                name = name,
                owner = owner,
                index = index,
            );
            let read = pool.read(json.as_bytes(), &mut scratch, none).unwrap();
            same_as_decoded(&read, json.as_bytes());
            kept.push(read.packed);
        }
        assert_eq!(pool.skeletons(), FRAGMENTS, "{names:?}");
    }
}

#[test]
fn sections_reported_as_common_have_equal_bytes_for_all_pods() {
    let (pool, mut scratch) = pool();
    let mut read = |object: &Value| pool.read(written(object).as_bytes(), &mut scratch, none).unwrap().packed;
    let (one, other) = (read(&pod(1, 1, "Running")), read(&pod(1, 2, "Running")));
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
    let (_unshared, one, other) = (named(1), named(2), named(3));
    assert!(Arc::ptr_eq(one.skeleton(Fragment::Object), other.skeleton(Fragment::Object)));
    assert!(!one.has_in_common(&other, Section::Labels) && one.has_in_common(&other, Section::Owners));
}

#[test]
fn empty_null_and_absent_fragments_are_read() {
    let (pool, mut scratch) = pool();
    let metadata = r#""metadata":{"name":"web-abcde","namespace":"shop","uid":"u","resourceVersion":"5"}"#;
    for rest in ["", r#","spec":{}"#, r#","status":{}"#, r#","spec":null,"status":null"#, r#","spec":{},"status":{}"#] {
        let json = format!("{{{metadata}{rest}}}");
        let first = pool.read(json.as_bytes(), &mut scratch, none).unwrap();
        same_as_decoded(&first, json.as_bytes());
        // Its fragments are known now, and two of them may have the same text.
        let read = pool.read(json.as_bytes(), &mut scratch, none).unwrap();
        same_as_decoded(&read, json.as_bytes());
        let identity = PodIdentity { name: read.name, uid: read.uid, revision: read.revision };
        let back = String::from_utf8(read.packed.json(identity)).unwrap();
        assert_eq!(back, json.replacen('{', r#"{"kind":"Pod","apiVersion":"v1","#, 1));
    }
}

#[test]
fn node_and_phase_are_available_without_decoding_a_section() {
    let (pool, mut scratch) = pool();
    let mut kept = Vec::new();
    for own in 0..20 {
        let mut object = pod(1, own, ["Running", "Pending", "2026-03-01T01:01:01Z", "10.0.0.1"][own as usize % 4]);
        let name = object["metadata"]["name"].clone();
        if own >= 16 {
            (object["spec"]["nodeName"], object["status"]["phase"]) = (name.clone(), name);
        }
        let json = object.to_string();
        let read = pool.read(json.as_bytes(), &mut scratch, none).unwrap();
        same_as_decoded(&read, json.as_bytes());
        kept.push(read.packed);
    }
}

#[test]
fn specs_with_a_value_after_the_nodes_name_are_shared() {
    let (pool, mut scratch) = pool();
    let mut kept = Vec::new();
    for own in 0..20 {
        let mut object = pod(1, own, "Running");
        object["spec"]["zone"]["nameservers"] = json!([format!("10.96.0.{own}")]);
        let json = object.to_string();
        let read = pool.read(json.as_bytes(), &mut scratch, none).unwrap();
        same_as_decoded(&read, json.as_bytes());
        kept.push(read.packed);
    }
    assert_eq!(pool.skeletons(), FRAGMENTS);
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
            let read = pool.read(json.as_bytes(), &mut scratch, none).unwrap();
            same_as_decoded(&read, json.as_bytes());
            kept.push(read.packed);
        }
        (pool.skeletons(), kept[0].own(Fragment::Spec).len())
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
        kept.push(pool.read(json.as_bytes(), &mut scratch, none).unwrap().packed);
    }
    // No Pod changed from the first of these to the last.
    let json = written(&pod(1, 0, "Succeeded"));
    let head = scan::head(json.as_bytes());
    let namespace = pool.hasher.hash_one(head.as_ref().unwrap().namespace);
    let likely = Candidates::like(Arc::clone(kept[0].shape()), namespace);
    let scanned = scan::cut(json.as_bytes(), head, &likely, &mut scratch, Extent::All, &Prune::NOTHING).unwrap();
    let status = scanned.known[Fragment::Status].as_ref().unwrap();
    assert!(Arc::ptr_eq(status, kept[2].skeleton(Fragment::Status)));
}

#[test]
fn values_that_are_not_of_the_shape_are_not_packed() {
    let (pool, mut scratch) = pool();
    let json = written(&pod(1, 0, "Running"));
    let read = pool.read(json.as_bytes(), &mut scratch, none).unwrap();
    let identity = PodIdentity { name: read.name, uid: read.uid, revision: read.revision };
    let all = PerFragment::from_fn(|fragment| read.packed.own(fragment));
    let packed = |own: PerFragment<&[u8]>| Packed::new(Arc::clone(read.packed.shape()), own, identity);
    assert_eq!(packed(all).unwrap().own_bytes(), read.packed.own_bytes());
    for fragment in Fragment::ALL.into_iter().filter(|fragment| !all[*fragment].is_empty()) {
        let more = [all[fragment], &[0]].concat();
        let (mut short, mut long) = (all, all);
        short[fragment] = &all[fragment][..all[fragment].len() - 1];
        long[fragment] = &more;
        assert!(packed(short).is_none() && packed(long).is_none(), "{fragment:?}");
    }
    // The bytes of another process are opened only whole.
    let own = read.packed.own_bytes();
    let open = |own: &[u8]| Packed::open(Arc::clone(read.packed.shape()), own, identity);
    assert!(open(own).is_some() && (0..own.len()).all(|end| open(&own[..end]).is_none()));
}

#[test]
fn a_text_of_any_length_comes_out_as_decoded() {
    let (pool, mut scratch) = pool();
    let mut object = pod(1, 3, "Running");
    for length in 0..150 {
        for text in ["a".repeat(length), "1".repeat(length), format!("//{}", "b".repeat(length)), "-".repeat(length)] {
            object["metadata"]["annotations"]["text"] = text.as_str().into();
            object["status"]["message"] = text.as_str().into();
            let json = written(&object);
            same_as_decoded(&pool.read(json.as_bytes(), &mut scratch, none).unwrap(), json.as_bytes());
        }
    }
}

#[test]
fn long_texts_with_many_names_equal_the_decoders_output() {
    let (pool, mut scratch) = pool();
    let mut object = pod(1, 3, "Running");
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    for times in [1, 254, 255, 256, 257, 1_000] {
        for between in ["-".to_owned(), "-".repeat(70_000 / times), "-".repeat(65_534 / times)] {
            object["status"]["message"] = format!("{between}{name}").repeat(times).into();
            let json = written(&object);
            let read = pool.read(json.as_bytes(), &mut scratch, none).unwrap();
            same_as_decoded(&read, json.as_bytes());
        }
    }
}

#[test]
fn an_unchanged_spec_is_not_read_again_and_a_changed_one_is() {
    let (pool, mut scratch) = pool();
    let mut object = pod(1, 3, "Pending");
    let first = pool.read(written(&object).as_bytes(), &mut scratch, none).unwrap().packed;
    object["status"]["phase"] = "Running".into();
    let json = written(&object);
    let second = pool.read(json.as_bytes(), &mut scratch, |_, _, _| Some(&first)).unwrap();
    assert!(scratch.drafts[Fragment::Spec].text.is_empty(), "the spec was scanned again");
    assert!(scratch.drafts[Fragment::Object].text.is_empty(), "the object around it was scanned again");
    assert!(!scratch.drafts[Fragment::Status].text.is_empty());
    same_as_decoded(&second, json.as_bytes());
    let (name, uid) = (second.name.to_owned(), second.uid.to_owned());
    assert_eq!(second.packed.changed_from(&first, &name, &uid), of_the_whole_and(Section::Status));
    object["spec"]["containers"][0]["image"] = "registry.example/app:2".into();
    let json = written(&object);
    let third = pool.read(json.as_bytes(), &mut scratch, |_, _, _| Some(&second.packed)).unwrap();
    same_as_decoded(&third, json.as_bytes());
    assert_eq!(third.packed.changed_from(&second.packed, &name, &uid), of_the_whole_and(Section::Spec));
}

#[test]
fn a_status_with_the_nodes_name_is_restored() {
    let (pool, mut scratch) = pool();
    let mut object = pod(1, 3, "Running");
    object["status"]["nominatedNodeName"] = object["spec"]["nodeName"].clone();
    let json = written(&object);
    let read = pool.read(json.as_bytes(), &mut scratch, none).unwrap();
    let back = read.packed.json(PodIdentity { name: read.name, uid: read.uid, revision: read.revision });
    let back: Value = serde_json::from_slice(&back).unwrap();
    assert_eq!(back["status"], object["status"]);
}

#[test]
fn matching_a_skeleton_skips_only_managed_fields() {
    let (pool, mut scratch) = pool();
    let json = written(&pod(1, 3, "Running"));
    let first = pool.read(json.as_bytes(), &mut scratch, none).unwrap().packed;
    for other in ["managedField", "managedFieldsX", "xanagedFields", "unmanagedFields"] {
        let json = json.replace("managedFields", other);
        let read = pool.read(json.as_bytes(), &mut scratch, |_, _, _| Some(&first)).unwrap();
        same_as_decoded(&read, json.as_bytes());
        let identity = PodIdentity { name: read.name, uid: read.uid, revision: read.revision };
        assert_eq!(String::from_utf8(read.packed.json(identity)).unwrap(), json);
    }
}

#[test]
fn managed_fields_end_at_their_closing_bracket() {
    let (pool, mut scratch) = pool();
    let object = pod(1, 3, "Running");
    let first = pool.read(written(&object).as_bytes(), &mut scratch, none).unwrap().packed;
    let expected = without_managed_fields(written(&object).as_bytes());
    // Brackets in strings and nested arrays, and a string that looks like the end followed by a spec.
    for entry in [
        json!({"manager": "a]b"}),
        json!({"manager": "]},\"spec\":{}"}),
        json!({"list": [1, [2, {"x": [3]}]]}),
        json!({"x": {"y": [4]}, "zpec": 5}),
        json!({"x": {"y": [4]}, "spec": {"containers": []}, "status": {}}),
    ] {
        let mut object = object.clone();
        object["metadata"]["managedFields"] = json!([entry, entry]);
        let json = written(&object);
        let read = pool.read(json.as_bytes(), &mut scratch, |_, _, _| Some(&first)).unwrap();
        assert!(Arc::ptr_eq(read.packed.shape(), first.shape()), "{json}");
        let identity = PodIdentity { name: read.name, uid: read.uid, revision: read.revision };
        let back: Value = serde_json::from_slice(&read.packed.json(identity)).unwrap();
        assert_eq!(back.to_string(), expected);
    }
    // A member after managedFields does not belong to them.
    let later = written(&object).replacen(r#"]},"spec":"#, r#"],"later":[7]},"spec":"#, 1);
    let read = pool.read(later.as_bytes(), &mut scratch, |_, _, _| Some(&first)).unwrap();
    let identity = PodIdentity { name: read.name, uid: read.uid, revision: read.revision };
    assert!(str::from_utf8(&read.packed.json(identity)).unwrap().contains(r#""later":[7]"#));
}

#[test]
fn sections_have_changed_where_their_bytes_differ() {
    let (pool, mut scratch) = pool();
    let states: Vec<_> = (0..40_u64)
        .map(|own| {
            let mut object = if own % 3 == 0 { pod(1, own / 2, "Running") } else { of_its_own(own / 2) };
            (object["metadata"]["name"], object["metadata"]["uid"]) = ("web-5-abcde".into(), "u".into());
            // Some differ only in one fragment or section.
            let other = pod(1, own + 7, "Running");
            match own % 5 {
                0 => object["metadata"] = states_of_one(&object),
                1 => object["spec"] = other["spec"].clone(),
                2 => object["status"] = other["status"].clone(),
                3 => object["metadata"]["ownerReferences"][0]["uid"] = other["metadata"]["uid"].clone(),
                _ => object["metadata"]["creationTimestamp"] = other["metadata"]["creationTimestamp"].clone(),
            }
            (object["metadata"]["name"], object["metadata"]["uid"]) = ("web-5-abcde".into(), "u".into());
            pool.read(written(&object).as_bytes(), &mut scratch, none).unwrap().packed
        })
        .collect();
    let identity = PodIdentity { name: "web-5-abcde", uid: "u", revision: 0 };
    let mut seen = std::collections::BTreeSet::new();
    for one in &states {
        for other in &states {
            let differ =
                Section::ALL.into_iter().filter(|at| one.section(identity, *at) != other.section(identity, *at));
            let expected = differ.fold(SectionSet::EMPTY, SectionSet::with);
            assert_eq!(one.changed_from(other, identity.name, identity.uid), expected);
            seen.insert(format!("{expected:?}"));
        }
    }
    assert!(seen.len() > 10, "{seen:?}");
}

/// Returns another object with the same metadata.
fn states_of_one(object: &Value) -> Value {
    let mut metadata = pod(1, 1, "Running")["metadata"].clone();
    metadata["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
    metadata
}

#[test]
fn fields_outside_all_sections_change_only_the_full_object() {
    let (pool, mut scratch) = pool();
    let mut object = pod(1, 3, "Running");
    let first = pool.read(written(&object).as_bytes(), &mut scratch, none).unwrap().packed;
    object["metadata"]["resourceVersion"] = "99".into();
    object["metadata"]["managedFields"][0]["time"] = "2026-04-01T00:00:00Z".into();
    let json = written(&object);
    let second = pool.read(json.as_bytes(), &mut scratch, none).unwrap();
    assert_eq!(second.packed.changed_from(&first, second.name, second.uid), SectionSet::EMPTY, "its revision");
    object["status"]["conditions"][1]["futureField"] = "2026-01-01T00:00:00Z".into();
    let json = written(&object);
    let second = pool.read(json.as_bytes(), &mut scratch, none).unwrap();
    assert_eq!(second.packed.changed_from(&first, second.name, second.uid), SectionSet::EMPTY.with(Section::Full));
}

#[test]
fn pruned_annotations_are_not_stored_and_not_a_change() {
    const KEYS: [&str; 2] = ["kubectl.kubernetes.io/last-applied-configuration", "a"];
    let pool = SkeletonPool::new(7).pruning(Prune::annotations(KEYS));
    let mut scratch = Scratch::default();
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
            let mut keep = |json: String| match pool.read(json.as_bytes(), &mut scratch, none) {
                Ok(read) if !spaced => read.packed,
                Err(EncodeError::Unusual(pod)) if spaced => {
                    Packed::unshared(&pod, json.as_bytes(), pool.prune()).unwrap()
                }
                read => panic!("{read:?}"),
            };
            let (pruned, plain) = (keep(json(&with, spaced)), keep(json(&without, spaced)));
            let identity = PodIdentity { name: "web-abcde", uid: "u", revision: 5 };
            for section in Section::ALL {
                let (here, there) = (pruned.section(identity, section), plain.section(identity, section));
                assert_eq!(here, there, "{} of {with}", section.name());
                assert!(!String::from_utf8_lossy(&here).contains("secret"));
            }
            assert_eq!(pruned.changed_from(&plain, "web-abcde", "u"), SectionSet::EMPTY, "{with}");
            let labels: podium_wire::Labels = podium_wire::decode(&pruned.section(identity, Section::Labels)).unwrap();
            assert_eq!(labels["a"], "kept");
        }
    }
}

#[test]
fn real_pods_come_out_as_decoded() {
    let (pool, mut scratch) = pool();
    let mut kept: Vec<Packed> = Vec::new();
    for (file, json) in testing::real_pods() {
        let json = &*json;
        match pool.read(json, &mut scratch, none) {
            Ok(read) => {
                same_as_decoded(&read, json);
                let identity = PodIdentity { name: read.name, uid: read.uid, revision: read.revision };
                let back: Value = serde_json::from_slice(&read.packed.json(identity)).unwrap();
                assert_eq!(back.to_string(), without_managed_fields(json));
                kept.push(read.packed);
            }
            Err(EncodeError::Json(error)) => assert!(podium_wire::json::decode(json).is_err(), "{file}: {error}"),
            Err(EncodeError::Unusual(_)) => panic!("{file} is not read"),
        }
    }
    assert!(kept.len() >= 10, "{} Pods were read", kept.len());
}
