//! Tests of Pods with values that no other Pod has: they add only the bytes of these values, share everything else,
//! and are restored as decoded.

use proptest::prelude::*;

use super::*;
use crate::testing::pod_json;

/// Reads the object as the next state of `held`, and compares it with the decoder's output.
fn read(pool: &SkeletonPool, scratch: &mut Scratch, object: &Value, held: Option<&Packed>) -> Packed {
    let json = written(object);
    let read = pool.read(json.as_bytes(), scratch, |_, _, _| held).unwrap();
    same_as_decoded(&read, json.as_bytes());
    let identity = PodIdentity { name: read.name, uid: read.uid, revision: read.revision };
    let back: Value = serde_json::from_slice(&read.packed.json(identity)).unwrap();
    assert_eq!(back.to_string(), without_managed_fields(json.as_bytes()));
    read.packed
}

/// Sets a value that no other Pod has, and returns its length in JSON.
type Change = fn(&mut Value, u64) -> usize;

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

const CHANGES: &[(&str, Change)] = &[
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
            let without = own_bytes(&pool.read(written(&object).as_bytes(), &mut scratch, none).unwrap().packed);
            let bytes = change(&mut object, own);
            let packed = read(&pool, &mut scratch, &object, None);
            // The first ones are stored without generalisation.
            assert!(own < 20 || own_bytes(&packed) <= without + bytes + 8, "{what}: {without} and {bytes}, {packed:?}");
            kept.push(packed);
        }
        assert!(pool.skeletons() < FRAGMENTS + 6, "{what}: {} parts", pool.skeletons());
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
        assert!(pool.skeletons() < FRAGMENTS + 6, "{what}: {} parts after the events", pool.skeletons());
    }
}

/// Returns the annotation of OVN-Kubernetes: a gateway that the Pods of a node share, and an address of each Pod.
fn pod_networks(own: u64) -> String {
    let (node, pod) = (own % 7, own + 2);
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
        let without = pool.read(written(&object).as_bytes(), &mut scratch, none).unwrap().packed.own_bytes().len();
        object["metadata"]["annotations"]["k8s.ovn.org/pod-networks"] = pod_networks(own).into();
        let packed = read(&pool, &mut scratch, &object, None);
        // Two addresses of the Pod, three of its gateway, and a MAC address, each with a one-byte header.
        let most = without + 5 * 5 + 7 + 2;
        assert!(own < 20 || packed.own_bytes().len() <= most, "{own}: {} bytes", packed.own_bytes().len() - without);
        kept.push(packed);
    }
    assert!(pool.skeletons() < FRAGMENTS + 8, "{} skeletons", pool.skeletons());
    // Another form of the text is stored as a whole, at once and for all Pods that have it.
    for own in 0..50 {
        let mut object = pod_json(1, own, "Running");
        object["metadata"]["annotations"]["k8s.ovn.org/pod-networks"] =
            format!("{{ {} }}", "x ".repeat(own as usize)).into();
        kept.push(read(&pool, &mut scratch, &object, None));
    }
    assert!(pool.skeletons() < FRAGMENTS + 11, "{} skeletons", pool.skeletons());
}

#[test]
fn only_the_suffix_of_a_generated_value_is_stored() {
    let ((pool, mut scratch), (other_pool, mut other_scratch)) = (pool(), pool());
    let suffix = |own: u64| format!("{:05x}", own * 7_919 % 0x5_ffff + 0xa_0000);
    let mut kept = Vec::new();
    for own in 0..200 {
        let mut object = pod_json(1, own, "Running");
        let without = read(&other_pool, &mut other_scratch, &object, None).own_bytes().len();
        let (volume, tier) = (format!("istio-envoy-{}", suffix(own)), format!("value-{:02}", own * 7 % 30));
        object["metadata"]["annotations"]["note"] = json!({"volumes": [volume]}).to_string().into();
        object["metadata"]["labels"]["tier"] = tier.into();
        object["spec"]["containers"][0]["volumeMounts"] = json!([{"name": volume, "mountPath": "/etc/istio"}]);
        let packed = read(&pool, &mut scratch, &object, None);
        // A suffix of five bytes in two places and two digits of a label, each with a header of one byte.
        let most = without + 2 * 6 + 3;
        assert!(own < 20 || packed.own_bytes().len() <= most, "{own}: {} bytes", packed.own_bytes().len() - without);
        kept.push(packed);
    }
    assert!(pool.skeletons() < FRAGMENTS + 8, "{} skeletons", pool.skeletons());
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
    assert_eq!(pool.skeletons(), FRAGMENTS);
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
    assert!(!first.shape().is_superseded());
    let second = read(&pool, &mut scratch, &annotated(1, "Running"), None);
    assert!(first.shape().is_superseded() && !second.shape().is_superseded());
    let again = read(&pool, &mut scratch, &annotated(0, "Running"), Some(&first));
    assert!(Arc::ptr_eq(again.skeleton(Fragment::Object), second.skeleton(Fragment::Object)));
    assert!(again.changed_from(&first, "", "").is_empty(), "it is the same Pod");
    first = again;
    assert_eq!(pool.skeletons(), FRAGMENTS);
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
        let (generation, observed) = (own * own * own, own * own * own / 2);
        kept.push(read(&pool, &mut scratch, &object(own, generation.into(), observed.into()), None));
    }
    assert_eq!(pool.skeletons(), FRAGMENTS);
    // One condition of an earlier generation.
    let mut lagging = object(7, 9.into(), 9.into());
    lagging["status"]["conditions"][1]["observedGeneration"] = 8.into();
    let lagging = read(&pool, &mut scratch, &lagging, Some(&kept[7]));
    assert_eq!(pool.skeletons(), FRAGMENTS + 1);
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
    let (one, other) = (&kept[18], &kept[19]);
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
    assert_eq!(pool.skeletons(), FRAGMENTS + 2);
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
    let (mut kept, mut undivided) = (Vec::new(), 0);
    for own in 0..400 {
        let mut object = pod_json(1, own, "Running");
        object["metadata"]["namespace"] = "hostile".into();
        object["spec"][format!("later-{own}")] = json!({"number": own, "text": "x".repeat(200_000)});
        let json = written(&object);
        match pool.read(json.as_bytes(), &mut scratch, none) {
            Ok(read) => {
                same_as_decoded(&read, json.as_bytes());
                kept.push(read.packed);
            }
            Err(EncodeError::Unusual(_)) => undivided += 1,
            Err(error) => panic!("{error}"),
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
    assert!(matches!(pool.read(json.as_bytes(), &mut scratch, none), Err(EncodeError::Json(_))));
}

#[test]
fn a_member_name_is_never_generalised_however_it_is_written() {
    let (pool, mut scratch) = pool();
    let mut kept = Vec::new();
    for own in 0..4 {
        let json = written(&pod_json(1, own, "Running"));
        // With a space after it, a member name looks like a value; the next Pod could have `nodeName` here.
        let json = json.replace(r#""hostname":"#, &format!(r#""hostname{own}" :"#));
        let read = pool.read(json.as_bytes(), &mut scratch, none).unwrap();
        same_as_decoded(&read, json.as_bytes());
        assert!(!read.packed.skeleton(Fragment::Spec).is_generalised);
        kept.push(read.packed);
    }
}

#[test]
fn a_value_that_makes_a_section_too_long_is_an_error() {
    let (pool, mut scratch) = pool();
    let annotated = |own: u64, length: usize| {
        let mut object = pod_json(1, own, "Running");
        object["metadata"]["annotations"]["note"] = format!("{own}{}", "x".repeat(length)).into();
        written(&object)
    };
    let kept: Vec<_> =
        (0..4).map(|own| pool.read(annotated(own, 10).as_bytes(), &mut scratch, none).unwrap().packed).collect();
    assert!(kept[3].skeleton(Fragment::Object).is_generalised);
    let long = annotated(5, 5 << 20);
    let Err(EncodeError::Unusual(pod)) = pool.read(long.as_bytes(), &mut scratch, none) else { panic!() };
    assert!(Packed::unshared(&pod, long.as_bytes(), &Prune::NOTHING).is_err());
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
        let kept: Vec<_> =
            (0..6).map(|own| pool.read(short(own).as_bytes(), &mut scratch, none).unwrap().packed).collect();
        assert!(kept[5].skeleton(Fragment::Object).is_generalised);
        let long = annotated(7, &"!x".repeat(500_000));
        assert!(SectionBytes::encode(&podium_wire::json::decode(long.as_bytes()).unwrap()).is_err());
        assert!(pool.read(long.as_bytes(), &mut scratch, none).is_err());
    }
}

#[test]
fn values_that_are_no_json_are_not_restored() {
    let (pool, mut scratch) = pool();
    let annotated = |own: u64, note: &str| {
        let mut object = pod_json(1, own, "Running");
        object["metadata"]["annotations"]["note"] = note.into();
        written(&object)
    };
    let kept: Vec<_> = ["one", "two", "a \"third\" one"]
        .into_iter()
        .enumerate()
        .map(|(own, note)| pool.read(annotated(own as u64, note).as_bytes(), &mut scratch, none).unwrap().packed)
        .collect();
    let (packed, json) = (&kept[2], annotated(2, "a \"third\" one"));
    let object: Value = serde_json::from_str(&json).unwrap();
    let (name, uid) = (object["metadata"]["name"].as_str().unwrap(), object["metadata"]["uid"].as_str().unwrap());
    let identity = PodIdentity { name, uid, revision: 1_002 };
    assert!(Packed::open(Arc::clone(packed.shape()), packed.own_bytes(), identity).is_some());
    let own = packed.own_bytes();
    let at = own.windows(9).position(|bytes| bytes == br#"\"third\""#).unwrap();
    let mut forged = own.to_vec();
    forged[at..at + 9].copy_from_slice(br#"","x":"yz"#);
    assert!(Packed::open(Arc::clone(packed.shape()), &forged, identity).is_none());
    let texts = packed.shape().keys().unwrap().map(|(_, text)| text.to_vec());
    let texts = texts.each_ref().map(|text| &**text);
    assert!(SkeletonPool::new(8).restore(texts, own, identity).is_some());
    assert!(SkeletonPool::new(8).restore(texts, &forged, identity).is_none());
    // A text with a placeholder where the decoder reads the string is refused too.
    let status = String::from_utf8(texts[2].to_vec()).unwrap();
    let forged_status = status.replace("\"status\":\"True\"", "\"status\":\"\u{0}\u{f}\"");
    assert_ne!(status, forged_status);
    assert!(SkeletonPool::new(8).restore([texts[0], texts[1], forged_status.as_bytes()], own, identity).is_none());
}

/// Returns texts that often differ only in words, among escapes and placeholders.
fn words() -> impl Strategy<Value = String> {
    let word =
        prop::sample::select(&["10.0.0.1", "10.0.0.2", "a", "b", "x-1", "web-1-5d9c7b8f-x", "0a:58:0a:80:02:0e"][..]);
    let separator = prop::sample::select(&["\":\"", "\n", "\u{1}", " é ", "\\", "/"][..]);
    prop::collection::vec((word, separator), 3..6).prop_map(|all| {
        all.into_iter().map(|(word, separator)| format!("{word}{separator}")).collect::<String>() + "the rest is shared"
    })
}

/// Places of strings in a Pod.
const POINTERS: &[&str] = &[
    "/metadata/annotations/note",
    "/spec/containers/0/env/0/value",
    "/spec/hostname",
    "/status/podIP",
    "/metadata/labels/app",
    "/spec/containers/0/image",
    "/status/containerStatuses/0/image",
    "/metadata/ownerReferences/0/name",
    "/spec/volumes/0/name",
];

/// Generates strings of characters that JSON escapes, of words, and such as placeholders stand for.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a\"\\\\\u{0}é\u{1f600}]{0,4}",
        words(),
        Just("10.0.0.1".to_owned()),
        Just("2026-01-01T00:00:00Z".to_owned()),
        Just("web-1-5d9c7b8f-x".to_owned()),
    ]
}

proptest! {
    // PROPTEST_CASES increases it.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases))]

    #[test]
    fn pods_with_unique_values_equal_the_decoders_output(
        pods in prop::collection::vec(
            (0..2_usize, 0..4_u64, prop::collection::vec((0..CHANGES.len(), 0..6_u64), 0..4)),
            2..14,
        ),
        texts in prop::collection::vec((0..14_usize, prop::sample::select(POINTERS), text()), 0..8),
    ) {
        let (pool, mut scratch) = pool();
        let mut states: Vec<Packed> = Vec::new();
        for (at, (workload, own, changes)) in pods.iter().enumerate() {
            let mut object = pod_json(*workload, *own, "Running");
            for (change, own) in changes {
                CHANGES[*change].1(&mut object, *own);
            }
            for (_, pointer, text) in texts.iter().filter(|(of, ..)| *of == at) {
                if let Some(value) = object.pointer_mut(pointer) {
                    *value = text.as_str().into();
                }
            }
            (object["metadata"]["name"], object["metadata"]["uid"]) = ("web-1-5d9c7b8f-x".into(), "u".into());
            let held = states.last().filter(|_| at % 2 == 1).cloned();
            states.push(read(&pool, &mut scratch, &object, held.as_ref()));
        }
        let identity = PodIdentity { name: "web-1-5d9c7b8f-x", uid: "u", revision: 0 };
        for one in &states {
            for other in &states {
                let differs = |at: &Section| one.section(identity, *at) != other.section(identity, *at);
                let differ = Section::ALL.into_iter().filter(differs);
                let expected = differ.fold(SectionSet::EMPTY, SectionSet::with);
                prop_assert_eq!(one.changed_from(other, identity.name, identity.uid), expected);
            }
        }
    }
}
