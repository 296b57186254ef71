//! Tests of Pods in forms that no API server writes, and of bytes that are not Pods.

use proptest::prelude::*;

use super::*;

#[test]
fn an_unshared_pod_has_its_whole_object() {
    let (pool, mut scratch) = pool();
    let mut read = |object: &Value| {
        // No API server writes spaces.
        let json = serde_json::to_vec_pretty(object).unwrap();
        match pool.read(&json, &mut scratch, none) {
            Err(EncodeError::Unusual(pod)) => Packed::unshared(&pod, &json, &Prune::NOTHING).unwrap(),
            read => panic!("{read:?}"),
        }
    };
    let mut object = pod(1, 3, "Running");
    object["spec"]["later"] = json!({"a": [1, "\u{0}é\\"]});
    let (name, uid) = ("web-1-5d9c7b8f-x", "u");
    (object["metadata"]["name"], object["metadata"]["uid"]) = (name.into(), uid.into());
    let first = read(&object);
    let full = first.section(PodIdentity { name, uid, revision: 1_003 }, Section::Full);
    let back: Value = serde_json::from_slice(&full).unwrap();
    assert_eq!(back.to_string(), without_managed_fields(object.to_string().as_bytes()));
    object["metadata"]["resourceVersion"] = "1004".into();
    object["metadata"]["managedFields"] = json!([]);
    let second = read(&object);
    assert_eq!(second.changed_from(&first, name, uid), SectionSet::EMPTY);
    object["spec"]["later"]["a"][0] = 2.into();
    assert_eq!(read(&object).changed_from(&second, name, uid), SectionSet::EMPTY.with(Section::Full));
}

#[test]
fn a_mark_in_the_text_is_no_leaf() {
    let (pool, mut scratch) = pool();
    let json = written(&pod(1, 3, "Running"));
    pool.read(json.as_bytes(), &mut scratch, none).unwrap();
    let address = "10.3.0.4";
    assert!(json.contains(address));
    let hostile = json.replacen(address, "\0\u{6}", 1);
    assert!(matches!(pool.read(hostile.as_bytes(), &mut scratch, none), Err(EncodeError::Json(_))));
}

#[test]
fn a_pod_with_values_like_sentinels_is_stored_unshared() {
    let (pool, mut scratch) = pool();
    let mut object = pod(1, 3, "Running");
    object["metadata"]["labels"]["app"] = placeholder::sentinel_text(2).into();
    object["metadata"]["annotations"]["note"] = "2096-10-02T07:06:43Z".into();
    object["status"]["containerStatuses"][0]["restartCount"] = placeholder::sentinel_count(20_004).into();
    let json = written(&object);
    let decoded = podium_wire::json::decode(json.as_bytes()).unwrap();
    match pool.read(json.as_bytes(), &mut scratch, none) {
        Err(EncodeError::Unusual(pod)) => assert_eq!(*pod, decoded),
        read => panic!("{read:?}"),
    }
    let packed = Packed::unshared(&decoded, json.as_bytes(), &Prune::NOTHING).unwrap();
    let (expected, header) = (SectionBytes::encode(&decoded).unwrap(), &decoded.header);
    let identity = PodIdentity { name: &header.name, uid: &header.uid, revision: 1_003 };
    for section in encoded() {
        assert_eq!(&*packed.section(identity, section), expected.get(section));
    }
    let full: Value = serde_json::from_slice(&packed.section(identity, Section::Full)).unwrap();
    assert_eq!(full.to_string(), without_managed_fields(json.as_bytes()));
    assert_eq!(
        (packed.created(identity), packed.node(identity).as_deref(), packed.phase(identity)),
        (header.created.0, decoded.spec.node_name.as_deref(), "Running")
    );
}

proptest! {
    // PROPTEST_CASES increases it.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(2_000)))]

    #[test]
    fn modified_bytes_never_match_against_the_decoders_output(
        own in 0..6_u64,
        rich in any::<bool>(),
        ordered in prop::bool::weighted(0.7),
        is_held in any::<bool>(),
        changes in prop::collection::vec(
            (
                any::<prop::sample::Index>(),
                prop_oneof![any::<u8>(), prop::sample::select(&b"\"\\{}[],:0\0aT-Z"[..])],
            ),
            1..4,
        ),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
        twice in prop::option::weighted(0.3, (any::<prop::sample::Index>(), any::<prop::sample::Index>())),
    ) {
        let (pool, mut scratch) = pool();
        let write = |own| {
            let object = if rich { of_its_own(own) } else { pod(1, own, "Running") };
            if ordered { written(&object) } else { object.to_string() }
        };
        let first = pool.read(write(1).as_bytes(), &mut scratch, none).unwrap().packed;
        let mut bytes = write(own).into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Some((from, to)) = twice.filter(|_| !bytes.is_empty()) {
            let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
            let (from, to) = (from.min(to), from.max(to));
            let piece = bytes[from..to].to_vec();
            bytes.splice(to..to, piece);
        }
        let read = pool.read(&bytes, &mut scratch, |_, _, _| is_held.then_some(&first));
        match (read, podium_wire::json::decode(&bytes)) {
            (Ok(read), Ok(_)) => same_as_decoded(&read, &bytes),
            (Err(EncodeError::Unusual(pod)), Ok(decoded)) => prop_assert_eq!(*pod, decoded),
            (Err(EncodeError::Json(_)), Err(_)) => {}
            // Pruned fields are not checked: the rest is a Pod.
            (Ok(read), Err(_)) => {
                let identity = PodIdentity { name: read.name, uid: read.uid, revision: read.revision };
                same_as_decoded(&read, &read.packed.json(identity));
            }
            (read, decoded) => prop_assert!(false, "{read:?} against {decoded:?}"),
        }
    }
}
