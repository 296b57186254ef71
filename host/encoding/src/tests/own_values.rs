//! Tests of Pods with values that no other Pod has: they add only the bytes of these values, share everything else,
//! and are restored as decoded.

use super::*;
use crate::testing::pod_json;

/// Reads the object as the next state of `held`, and compares it with the decoder's output.
fn read(pool: &Pool, scratch: &mut Scratch, object: &Value, held: Option<&Packed>) -> Packed {
    super::read(pool, scratch, &written(object), held)
}

/// Sets a value that no other Pod has, and returns its length in JSON.
pub(super) type Change = fn(&mut Value, u64) -> usize;

fn set(object: &mut Value, pointer: &str, text: String) -> usize {
    let length = serde_json::to_string(&text).unwrap().len() - 2;
    *object.pointer_mut(pointer).unwrap() = text.into();
    length
}

fn network_status(own: u64) -> String {
    let ip = format!("10.0.{}.{}", own / 250, own % 250);
    let mac = format!("0a:58:0a:{:02x}:{:02x}:07", own / 256, own % 256);
    let network = json!([{"name": "net1", "interface": "eth0", "ips": [ip], "mac": mac}]);
    serde_json::to_string_pretty(&network).unwrap()
}

pub(super) const CHANGES: &[(&str, Change)] = &[
    ("an annotation", |object, own| {
        set(object, "/metadata/annotations/note", format!("what {own} says \u{e9}\n{}", "x".repeat(own as usize % 40)))
    }),
    ("a network's annotation", |object, own| set(object, "/metadata/annotations/note", network_status(own))),
    ("another network's annotation", |object, own| set(object, "/metadata/annotations/note", pod_networks(own))),
    ("an environment variable", |object, own| {
        set(object, "/spec/containers/0/env/0/value", format!("token-{}", own * 7_919))
    }),
    ("a label", |object, own| set(object, "/metadata/labels/app", format!("app-{own}"))),
    ("two addresses", |object, own| {
        let address = |at: u64| format!("fd00:10:{at:x}::{own:x}");
        object["status"]["podIPs"] = json!([{"ip": object["status"]["podIP"]}, {"ip": ""}]);
        object["status"]["hostIPs"] = json!([{"ip": object["status"]["hostIP"]}, {"ip": address(own % 17)}]);
        set(object, "/status/podIPs/1/ip", address(99)) + address(own % 17).len()
    }),
    ("a message", |object, own| {
        object["status"]["containerStatuses"][0]["state"] =
            json!({"waiting": {"reason": "ImagePullBackOff", "message": ""}});
        set(object, "/status/containerStatuses/0/state/waiting/message", format!("Back-off: \"{own}\""))
    }),
];

#[test]
fn a_unique_value_costs_its_bytes_and_the_rest_is_shared() {
    let plain = |own| pod_json(1, own, "Running");
    let own_bytes =
        |packed: &Packed| Fragment::ALL.into_iter().map(|fragment| packed.own(fragment).len()).sum::<usize>();
    for (what, change) in CHANGES {
        let (pool, mut scratch) = pool();
        let mut kept = Vec::new();
        for own in 0..200 {
            let mut object = plain(own);
            let without =
                own_bytes(&pool.read(&PodJson::new(written(&object).as_bytes()), None, &mut scratch).unwrap().packed);
            let bytes = change(&mut object, own);
            let packed = read(&pool, &mut scratch, &object, None);
            // The first ones are stored without generalisation.
            assert!(own < 20 || own_bytes(&packed) <= without + bytes + 8, "{what}: {without} and {bytes}, {packed:?}");
            kept.push(packed);
        }
        assert!(pool.shared_texts() < FRAGMENTS + 6, "{what}: {} parts", pool.shared_texts());
        // A later state of each.
        for (own, before) in kept.iter_mut().enumerate() {
            let mut object = plain(own as u64);
            object["metadata"]["resourceVersion"] = "99999".into();
            change(&mut object, own as u64 + 1_000);
            let packed = read(&pool, &mut scratch, &object, Some(before));
            let changed = packed.changed_from(before, object["metadata"]["name"].as_str().unwrap(), "");
            assert!(changed.contains(Section::Full), "{what}");
            *before = packed;
        }
        assert!(pool.shared_texts() < FRAGMENTS + 6, "{what}: {} parts after the events", pool.shared_texts());
    }
}

/// Returns the annotation of OVN-Kubernetes: a gateway that the Pods of a node share, and an address of each Pod.
fn pod_networks(own: u64) -> String {
    let node = own % 7;
    let pod = own + 2;
    let mac = format!("0a:58:0a:80:{node:02x}:{pod:02x}");
    json!({"default": {
        "ip_addresses": [format!("10.128.{node}.{pod}/23")], "mac_address": mac, "role": "primary",
        "gateway_ips": [format!("10.128.{node}.1")],
        "routes": [{"dest": "10.128.0.0/14", "nextHop": format!("10.128.{node}.1")}],
        "ip_address": format!("10.128.{node}.{pod}/23"), "gateway_ip": format!("10.128.{node}.1"),
    }})
    .to_string()
}

#[test]
fn only_differing_words_of_json_in_an_annotation_are_stored() {
    let (pool, mut scratch) = pool();
    // Only Pods that still exist are learned from.
    let mut kept = Vec::new();
    for own in 0..200 {
        let mut object = pod_json(1, own, "Running");
        let without =
            pool.read(&PodJson::new(written(&object).as_bytes()), None, &mut scratch).unwrap().packed.own_bytes().len();
        object["metadata"]["annotations"]["k8s.ovn.org/pod-networks"] = pod_networks(own).into();
        let packed = read(&pool, &mut scratch, &object, None);
        // Two addresses of the Pod, three of its gateway, and a MAC address, each with a one-byte header.
        let most = without + 5 * 5 + 7 + 2;
        assert!(own < 20 || packed.own_bytes().len() <= most, "{own}: {} bytes", packed.own_bytes().len() - without);
        kept.push(packed);
    }
    assert!(pool.shared_texts() < FRAGMENTS + 8, "{} skeletons", pool.shared_texts());
    // Another form of the text is stored as a whole, at once and for all Pods that have it.
    for own in 0..50 {
        let mut object = pod_json(1, own, "Running");
        object["metadata"]["annotations"]["k8s.ovn.org/pod-networks"] =
            format!("{{ {} }}", "x ".repeat(own as usize)).into();
        kept.push(read(&pool, &mut scratch, &object, None));
    }
    assert!(pool.shared_texts() < FRAGMENTS + 11, "{} skeletons", pool.shared_texts());
}

#[test]
fn only_the_suffix_of_a_generated_value_is_stored() {
    let ((pool, mut scratch), (other_pool, mut other_scratch)) = (pool(), pool());
    let suffix = |own: u64| format!("{:05x}", own * 7_919 % 0x5_ffff + 0xa_0000);
    let mut kept = Vec::new();
    for own in 0..200 {
        let mut object = pod_json(1, own, "Running");
        let without = read(&other_pool, &mut other_scratch, &object, None).own_bytes().len();
        let volume = format!("istio-envoy-{}", suffix(own));
        let tier = format!("value-{:02}", own * 7 % 30);
        object["metadata"]["annotations"]["note"] = json!({"volumes": [volume]}).to_string().into();
        object["metadata"]["labels"]["tier"] = tier.into();
        object["spec"]["containers"][0]["volumeMounts"] = json!([{"name": volume, "mountPath": "/etc/istio"}]);
        let packed = read(&pool, &mut scratch, &object, None);
        // A suffix of five bytes in two places and two digits of a label, each with a header of one byte.
        let most = without + 2 * 6 + 3;
        assert!(own < 20 || packed.own_bytes().len() <= most, "{own}: {} bytes", packed.own_bytes().len() - without);
        kept.push(packed);
    }
    assert!(pool.shared_texts() < FRAGMENTS + 8, "{} skeletons", pool.shared_texts());
}

#[test]
fn an_annotation_that_each_event_sets_is_recognised() {
    let (pool, mut scratch) = pool();
    let mut kept: Vec<_> = (0..50).map(|own| read(&pool, &mut scratch, &pod_json(1, own, "Running"), None)).collect();
    for event in 0..3 {
        for (own, before) in kept.iter_mut().enumerate() {
            let mut object = pod_json(1, own as u64, "Running");
            object["metadata"]["annotations"]["seen"] = format!("{event} of {own}").into();
            *before = read(&pool, &mut scratch, &object, Some(before));
            // After three Pods the structure and the value's differences are known.
            let was_cut = !scratch.drafts[Fragment::Object].text.is_empty();
            assert_eq!(was_cut, own < [3, 2, 0][event], "event {event} of {own}");
        }
    }
    drop(scratch);
    assert_eq!(pool.shared_texts(), FRAGMENTS);
}

#[test]
fn the_first_pod_of_a_workload_is_encoded_again_later() {
    let (pool, mut scratch) = pool();
    let annotated = |own: u64, phase: &str| {
        let mut object = pod_json(1, own, phase);
        object["metadata"]["annotations"]["note"] = format!("a note of {own}").into();
        object
    };
    let mut first = read(&pool, &mut scratch, &annotated(0, "Running"), None);
    assert!(!first.shape.is_superseded());
    let second = read(&pool, &mut scratch, &annotated(1, "Running"), None);
    assert!(first.shape.is_superseded() && !second.shape.is_superseded());
    let again = read(&pool, &mut scratch, &annotated(0, "Running"), Some(&first));
    assert!(Arc::ptr_eq(again.skeleton(Fragment::Object), second.skeleton(Fragment::Object)));
    assert!(again.changed_from(&first, "", "").is_empty(), "it is the same Pod");
    first = again;
    drop(scratch);
    assert_eq!(pool.shared_texts(), FRAGMENTS);
    drop((first, second));
}

#[test]
fn generalised_positions_apply_to_the_next_status() {
    let (pool, mut scratch) = pool();
    let object = |own: u64, phase: &str, ready: bool| {
        let mut object = pod_json(1, own, phase);
        object["status"]["podIPs"] = json!([{"ip": object["status"]["podIP"]}, {"ip": format!("fd00:10:1::{own:x}")}]);
        if !ready {
            object["status"]["conditions"] =
                json!([{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}]);
        }
        object
    };
    let kept: Vec<_> = (0..9).map(|own| read(&pool, &mut scratch, &object(own, "Running", true), None)).collect();
    // The first Pod in the other status has no skeleton of its own.
    let first = read(&pool, &mut scratch, &object(0, "Running", false), Some(&kept[0]));
    let second = read(&pool, &mut scratch, &object(1, "Running", false), Some(&kept[1]));
    assert!(Arc::ptr_eq(first.skeleton(Fragment::Status), second.skeleton(Fragment::Status)));
    // A Pod of a workload for which nothing was learned has no part of this either.
    let mut other = object(0, "Running", true);
    other["metadata"]["generateName"] = "other-".into();
    other["metadata"]["namespace"] = "another".into();
    let other = read(&pool, &mut scratch, &other, None);
    assert!(!other.skeleton(Fragment::Status).is_generalised);
}

#[test]
fn pods_of_any_generation_share_their_skeletons() {
    let (pool, mut scratch) = pool();
    let object = |own: u64, generation: Value, observed: Value| {
        let mut object = pod_json(1, own, "Running");
        object["metadata"]["generation"] = generation;
        object["status"]["observedGeneration"] = observed.clone();
        for condition in object["status"]["conditions"].as_array_mut().unwrap() {
            condition["observedGeneration"] = observed.clone();
        }
        object
    };
    let mut kept: Vec<Packed> = Vec::new();
    for own in 0..40 {
        let generation = own * own * own;
        let observed = own * own * own / 2;
        kept.push(read(&pool, &mut scratch, &object(own, generation.into(), observed.into()), None));
    }
    assert_eq!(pool.shared_texts(), FRAGMENTS);
    // One condition of an earlier generation.
    let mut lagging = object(7, 9.into(), 9.into());
    lagging["status"]["conditions"][1]["observedGeneration"] = 8.into();
    let lagging = read(&pool, &mut scratch, &lagging, Some(&kept[7]));
    assert_eq!(pool.shared_texts(), FRAGMENTS + 1);
    assert_eq!(lagging.changed_from(&kept[7], "", ""), SectionSet::EMPTY.with(Section::Full));
    // Numbers that are no placeholders.
    for generation in [i64::MAX, i64::MIN, -1, 0x6d5a_0000, i64::from(i32::MAX) + 1] {
        kept.push(read(&pool, &mut scratch, &object(1, generation.into(), generation.into()), None));
    }
}

#[test]
fn a_value_that_is_repeated_takes_one_byte_more() {
    let (pool, mut scratch) = pool();
    let object = |own: u64| {
        let mut object = pod_json(1, own, "Running");
        let name = format!("workload-socket-{}", 10_007 * (own + 1));
        object["spec"]["volumes"] = json!([{"name": name, "emptyDir": {}}]);
        let mounts = |path: &str| json!({"name": name, "mountPath": path});
        object["spec"]["containers"][0]["volumeMounts"] = (0..4).map(|at| mounts(&format!("/{at}"))).collect();
        object
    };
    let kept: Vec<_> = (0..20).map(|own| read(&pool, &mut scratch, &object(own), None)).collect();
    let own = |packed: &Packed| packed.own(Fragment::Spec).len();
    let without: Vec<_> = (0..20)
        .map(|own| {
            let mut object = object(own);
            object["spec"]["containers"][0]["volumeMounts"] = json!([]);
            read(&pool, &mut scratch, &object, None)
        })
        .collect();
    assert_eq!(own(&kept[19]), own(&without[19]) + 4);
    let one = &kept[18];
    let other = &kept[19];
    assert!(one.changed_from(other, "", "").contains(Section::Spec));
}

#[test]
fn a_new_value_of_a_rollout_stays_shared() {
    let (pool, mut scratch) = pool();
    let mut kept = Vec::new();
    for image in ["registry.example/app:1", "registry.example/app:2", "registry.example/app:3"] {
        for own in 0..40 {
            let mut object = pod_json(1, own, "Running");
            object["spec"]["containers"][0]["image"] = image.into();
            kept.push(read(&pool, &mut scratch, &object, None));
        }
    }
    assert!(kept.iter().all(|packed| !packed.skeleton(Fragment::Spec).is_generalised));
    assert_eq!(pool.shared_texts(), FRAGMENTS + 2);
}

#[test]
fn generalising_in_one_namespace_does_not_affect_another() {
    let (pool, mut scratch) = pool();
    let mut of = |namespace: &str, own: u64, value: &str| {
        let mut object = pod_json(1, own, "Running");
        object["metadata"]["namespace"] = namespace.into();
        object["spec"]["containers"][0]["env"][0]["value"] = value.into();
        read(&pool, &mut scratch, &object, None)
    };
    let shared = of("shop", 1, "for all");
    let hostile: Vec<_> = (0..50).map(|own| of("hostile", own, &format!("value {own}"))).collect();
    for own in 2..20 {
        let packed = of("shop", own, "for all");
        assert!(Arc::ptr_eq(packed.skeleton(Fragment::Spec), shared.skeleton(Fragment::Spec)), "{packed:?} {shared:?}");
    }
    assert!(
        hostile[2..]
            .iter()
            .all(|packed| Arc::ptr_eq(packed.skeleton(Fragment::Spec), hostile[2].skeleton(Fragment::Spec)))
    );
}

#[test]
fn a_namespace_of_many_structures_stays_within_its_limit() {
    let (pool, mut scratch) = pool();
    let mut kept = Vec::new();
    let mut undivided = 0;
    for own in 0..400 {
        let mut object = pod_json(1, own, "Running");
        object["metadata"]["namespace"] = "hostile".into();
        object["spec"][format!("later-{own}")] = json!({"number": own, "text": "x".repeat(200_000)});
        let json = written(&object);
        let read = pool.read(&PodJson::new(json.as_bytes()), None, &mut scratch).unwrap();
        match read.packed.shape.is_whole() {
            true => undivided += 1,
            false => kept.push(read.packed),
        }
    }
    assert!((100..200).contains(&kept.len()) && undivided == 400 - kept.len(), "{} and {undivided}", kept.len());
    // Another namespace has its own limit, and this one's is free again once its Pods are gone.
    read(&pool, &mut scratch, &pod_json(1, 1, "Running"), None);
    drop(kept);
    let mut object = pod_json(1, 401, "Running");
    object["metadata"]["namespace"] = "hostile".into();
    read(&pool, &mut scratch, &object, None);
}

#[test]
fn strings_that_the_decoder_reads_are_never_generalised() {
    let (pool, mut scratch) = pool();
    let mut kept = Vec::new();
    for own in 0..20 {
        let mut object = pod_json(1, own, "Running");
        object["status"]["conditions"][0]["status"] = ["True", "False", "Unknown"][own as usize % 3].into();
        object["spec"]["restartPolicy"] = ["Always", "OnFailure", "Never"][own as usize % 3].into();
        kept.push(read(&pool, &mut scratch, &object, None));
    }
    let mut object = pod_json(1, 30, "Running");
    object["spec"]["restartPolicy"] = "odd".into();
    let json = written(&object);
    assert!(matches!(pool.read(&PodJson::new(json.as_bytes()), None, &mut scratch), Err(ReadError::Json(_))));
}

#[test]
fn a_value_that_makes_a_section_too_long_is_an_error() {
    let (pool, mut scratch) = pool();
    let annotated = |own: u64, length: usize| {
        let mut object = pod_json(1, own, "Running");
        object["metadata"]["annotations"]["note"] = format!("{own}{}", "x".repeat(length)).into();
        written(&object)
    };
    let kept: Vec<_> = (0..4)
        .map(|own| pool.read(&PodJson::new(annotated(own, 10).as_bytes()), None, &mut scratch).unwrap().packed)
        .collect();
    assert!(kept[3].skeleton(Fragment::Object).is_generalised);
    let long = annotated(5, 5 << 20);
    let read = pool.read(&PodJson::new(long.as_bytes()), None, &mut scratch);
    assert!(matches!(read, Err(ReadError::Codec(_))), "{read:?}");
    assert!(Packed::unshared(long.as_bytes(), &Prune::NOTHING).is_err());
}

#[test]
fn values_that_are_short_when_stored_make_no_section_too_long() {
    for (keys, literal) in [(&["a", "b", "c", "d", "e"][..], 0), (&["a"][..], 3_900_000)] {
        let (pool, mut scratch) = pool();
        let literal = "~".repeat(literal);
        let annotated = |own: u64, value: &str| {
            let mut object = pod_json(1, own, "Running");
            object["metadata"]["annotations"]["literal"] = literal.as_str().into();
            keys.iter().for_each(|key| object["metadata"]["annotations"][key] = value.into());
            written(&object)
        };
        let short = |own: u64| annotated(own, &format!("{own}!"));
        let kept: Vec<_> = (0..6)
            .map(|own| pool.read(&PodJson::new(short(own).as_bytes()), None, &mut scratch).unwrap().packed)
            .collect();
        assert!(kept[5].skeleton(Fragment::Object).is_generalised);
        let long = annotated(7, &"!x".repeat(500_000));
        assert!(SectionBytes::encode(&podium_wire::json::decode(long.as_bytes()).unwrap()).is_err());
        assert!(pool.read(&PodJson::new(long.as_bytes()), None, &mut scratch).is_err());
    }
}
