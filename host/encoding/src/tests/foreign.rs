//! Tests with the bytes of another process, such as a checkpoint: they are refused, or are a Pod whose fields and
//! sections are the decoder's.

use super::{hostile::pod, *};
use crate::forms::put_varint;

#[test]
fn an_object_with_its_spec_twice_is_not_restored() {
    let (pool, mut scratch) = pool();
    let packed = read(&pool, &mut scratch, &pod("shop", "web-abcde", "", r#""nodeName":"n1""#, ""), None);
    let texts = texts_of(&packed).map(|text| String::from_utf8(text).unwrap());
    let identity = PodIdentity { name: "web-abcde", uid: "uid-web-abcde", revision: 5 };
    let restored = |object: &str| {
        let texts = [object, &texts[1], &texts[2]].map(str::as_bytes);
        Pool::new(8).verified(texts, packed.own_bytes(), identity)
    };
    assert!(restored(&texts[0]).is_some());
    let spec = "\"spec\":\0\u{e}\u{1},";
    assert!(texts[0].contains(spec));
    // The decoder refuses the first, and ignores a member that it does not know.
    for twice in [spec.repeat(2), format!("{}{spec}", spec.replace("spec", "later"))] {
        assert!(restored(&texts[0].replace(spec, &twice)).is_none());
    }
}

#[test]
fn times_and_counts_that_are_invalid_in_json_are_not_restored() {
    let (pool, mut scratch) = pool();
    let json = pod("shop", "web-abcde", "", "", r#""containerStatuses":[{"name":"a","restartCount":3}]"#);
    let packed = read(&pool, &mut scratch, &json, None);
    let texts = texts_of(&packed);
    let texts = texts.each_ref().map(|text| &**text);
    let identity = PodIdentity { name: "web-abcde", uid: "u", revision: 5 };
    for number in [u64::MAX, u64::MAX - 1, u64::MAX / 2, 1 << 40, (1 << 40) + 1, 1 << 62, u64::from(u32::MAX)] {
        for (of_time, of_count) in [(number, 3), (0, number)] {
            let (mut outer, mut status) = (Vec::new(), Vec::new());
            put_varint(of_time, &mut outer);
            put_varint(of_count, &mut status);
            let own = packed::joined(PerFragment([&outer, &[], &status]));
            let opened = Packed::open(Arc::clone(&packed.shape), &own, identity);
            let restored = Pool::new(8).verified(texts, &own, identity);
            for packed in opened.into_iter().chain(restored) {
                let json = packed.json(identity);
                let decoded = podium_wire::json::decode(&json).unwrap();
                assert_eq!(decoded.header.created.0, packed.created_and_generation(identity).0);
                let expected = SectionBytes::encode(&decoded).unwrap();
                assert_eq!(&*packed.section(identity, Section::Status), expected.get(Section::Status));
            }
        }
    }
}

/// The object's text with placeholders of which `generation` or `creationTimestamp` is made in another way than the
/// scanner does: the fields that are read without decoding must follow the values.
#[test]
fn fields_of_the_header_are_not_those_of_the_first_pod_with_the_text() {
    let (pool, mut scratch) = pool();
    let json = pod("shop", "web-abcde", "", "", "").replace(r#""creation"#, r#""generation":5,"creation"#);
    let packed = read(&pool, &mut scratch, &json, None);
    let [object, spec, status] = texts_of(&packed);
    let identity = PodIdentity { name: "web-abcde", uid: "uid-web-abcde", revision: 5 };
    let generation = "\"generation\":\0\u{11}";
    let time = "\"creationTimestamp\":\"\0\u{4}\"";
    // The number of the first placeholder after name, uid and revision is 3.
    for (from, to) in [
        (generation, "\"generation\":\0\u{a}"),
        (generation, "\"generation\":1\0\u{11}"),
        (generation, "\"generation\":\0\u{11}0"),
        (generation, "\"later\":\0\u{11},\"generation\":\0\u{d}\u{3}"),
        (time, "\"later\":\"\0\u{4}\",\"creationTimestamp\":\"\0\u{d}\u{4}\""),
        (generation, generation),
    ] {
        let text = String::from_utf8(object.clone()).unwrap();
        assert!(text.contains(from), "{text}");
        let text = text.replace(from, to);
        let other = Pool::new(8);
        let own = |number: u8| packed::joined(PerFragment([&[number; 2], &[], &[]])).to_vec();
        let restored = |number| other.verified([text.as_bytes(), &spec, &status], &own(number), identity);
        let first = restored(5);
        assert!(first.is_some() || from != to);
        let opened = first.as_ref().and_then(|first| Packed::open(Arc::clone(&first.shape), &own(6), identity));
        for packed in first.into_iter().chain(restored(6)).chain(opened) {
            let header = podium_wire::json::decode(&packed.json(identity)).unwrap().header;
            let expected = (header.created.0, header.generation);
            assert_eq!(packed.created_and_generation(identity), expected, "{to:?}");
        }
    }
}

/// Bytes of another process, such as an earlier version of the host.
#[test]
fn other_forms_of_equal_values_are_no_change() {
    let (pool, mut scratch) = pool();
    let json = |own: usize, text: &str| {
        let name = ["web-aaaaa", "web-bbbbb", "web-ccccc"][own];
        pod("shop", name, "", &format!(r#""containers":[{{"name":"a","args":["{text}","{text}"]}}]"#), "")
    };
    let _others = [(0, "!a"), (1, "!b")].map(|(own, text)| read(&pool, &mut scratch, &json(own, text), None));
    let packed = read(&pool, &mut scratch, &json(2, "x7k2m"), None);
    assert!(packed.skeleton(Fragment::Spec).is_generalised);
    let identity = PodIdentity { name: "web-ccccc", uid: "uid-web-ccccc", revision: 5 };
    for values in [&b"\x0ax7k2m\x0d"[..], b"\x0ax7k2m\x0ax7k2m", b"\x8a\0x7k2m\x8d\0", packed.own(Fragment::Spec)] {
        let own = packed::joined(PerFragment([packed.own(Fragment::Object), values, packed.own(Fragment::Status)]));
        let other = Packed::open(Arc::clone(&packed.shape), &own, identity).unwrap();
        assert_eq!(other.json(identity), packed.json(identity));
        for (one, other) in [(&packed, &other), (&other, &packed)] {
            assert!(one.changed_from(other, identity.name, identity.uid).is_empty(), "{values:?}");
        }
        assert_eq!(read(&pool, &mut scratch, &json(2, "x7k2m"), Some(&other)).own_bytes(), packed.own_bytes());
    }
}

/// The decoder reads a member's name: with another value, the Pod would have a node and its sections none.
#[test]
fn a_placeholder_in_place_of_a_members_name_is_not_restored() {
    let (pool, mut scratch) = pool();
    let packed = read(&pool, &mut scratch, &pod("shop", "web-abcde", "", r#""hostname":"n1""#, ""), None);
    let identity = PodIdentity { name: "web-abcde", uid: "uid-web-abcde", revision: 5 };
    let texts = texts_of(&packed);
    let restored = |spec: &[u8], values: &[u8]| {
        let own = [packed.own(Fragment::Object), values, packed.own(Fragment::Status)];
        Pool::new(8).verified([&texts[0], spec, &texts[2]], &packed::joined(PerFragment(own)), identity)
    };
    assert!(restored(&texts[1], packed.own(Fragment::Spec)).is_some());
    assert!(restored(b"{\"hostname\":\"\0\x0f\"}", b"\x04n1").is_some());
    assert!(restored(b"{\"\0\x0f\":\"n1\"}", b"\x10hostname").is_none());
}
