//! Tests with hostile input: bytes that are not JSON, values that look like placeholders or sentinels, and Pods of
//! another tenant.

use proptest::prelude::*;

use super::*;
use crate::testing::pod_json;

const HEAD: &str = r#"{"kind":"Pod","apiVersion":"v1","#;

pub(super) fn pod(namespace: &str, name: &str, annotations: &str, spec: &str, status: &str) -> String {
    format!(
        "{HEAD}\"metadata\":{{\"name\":\"{name}\",\"generateName\":\"web-\",\"namespace\":\"{namespace}\",\
        \"uid\":\"uid-{name}\",\"resourceVersion\":\"5\",\"creationTimestamp\":\"2026-03-01T01:01:01Z\",\
        \"annotations\":{{{annotations}}}}},\"spec\":{{{spec}}},\"status\":{{{status}}}}}"
    )
}

#[test]
fn a_pod_encoded_again_is_the_only_one_with_its_skeletons() {
    let (pool, mut scratch) = pool();
    let json = |name: &str, args: &str, message: &str| {
        let spec = format!(r#""containers":[{{"name":"a","args":[{args}]}}]"#);
        pod("shop", name, "", &spec, &format!(r#""message":"{message}""#))
    };
    let of_the_first = json("web-aaaaa", r#""a""#, "one");
    let mut first = read(&pool, &mut scratch, &of_the_first, None);
    let _second = read(&pool, &mut scratch, &json("web-bbbbb", r#""a","b""#, "two"), None);
    assert!(first.shape.is_superseded());
    let identity = PodIdentity { name: "web-aaaaa", uid: "uid-web-aaaaa", revision: 5 };
    first = renewed(&pool, &mut scratch, &first, identity).unwrap();
    assert!(renewed(&pool, &mut scratch, &first, identity).is_none());
    assert!(!first.shape.is_superseded());
    assert!(first.shape.skeletons[Fragment::Spec].has_one_user());
}

#[test]
fn the_number_of_generalised_strings_of_a_structure_is_bounded() {
    let (pool, mut scratch) = pool();
    let json = |name: &str, at: usize| {
        let args: Vec<_> = (0..12_000).map(|arg| format!("\"{at}{}\"", arg % 7)).collect();
        pod("shop", name, "", &format!(r#""containers":[{{"name":"a","args":[{}]}}]"#, args.join(",")), "")
    };
    let mut kept = Vec::new();
    for (at, name) in ["web-aaaaa", "web-bbbbb", "web-ccccc"].into_iter().enumerate() {
        kept.push(read(&pool, &mut scratch, &json(name, at), None));
    }
    let spec = kept[2].skeleton(Fragment::Spec);
    assert!(spec.is_generalised && spec.placeholders() < 3_000, "{}", spec.placeholders());
}

#[test]
fn skeletons_count_towards_their_namespace_while_it_has_pods() {
    let (pool, mut scratch) = pool();
    let json = |name: &str, number: usize, value: &str| {
        // Each number is another structure.
        let notes: Vec<_> = (0..=number).map(|at| format!(r#""note-{at}":"{value}-{at} for all""#)).collect();
        pod("shop", name, &notes.join(","), "", "")
    };
    let mut kept = Vec::new();
    for number in 0..12 {
        for (name, value) in [("web-aaaaa", "one"), ("web-bbbbb", "two"), ("web-ccccc", "three")] {
            kept.push(read(&pool, &mut scratch, &json(name, number, value), None));
        }
    }
    let used = |pool: &Pool| pool.table.lock().usage("shop").load(Relaxed);
    let learned = pool.table.lock().learned.size();
    let skeletons =
        pool.table.lock().skeletons.0.iter().flat_map(HashMap::values).filter_map(Weak::upgrade).collect::<Vec<_>>();
    let mut unshared: Vec<_> = kept.iter().map(|packed| packed.skeleton(Fragment::Object)).collect();
    unshared.retain(|skeleton| skeleton.is_unshared);
    unshared.dedup_by_key(|skeleton| Arc::as_ptr(skeleton));
    assert_eq!(unshared.len(), 11, "the first Pod of each structure except the workload's first");
    let all = skeletons.iter().chain(unshared);
    let of_one_user = all.filter_map(|skeleton| skeleton.charged_bytes()).sum::<usize>();
    drop(skeletons);
    assert!(learned >= 12 * size_of::<(usize, structure::Own)>(), "{learned}");
    assert_eq!(used(&pool), learned + of_one_user);
    drop(kept);
    scratch = Scratch::default();
    // Entries are removed when there are many.
    for number in 0..400 {
        read(&pool, &mut scratch, &pod("bank", "web-aaaaa", "", "", &format!(r#""{number}":"a""#)), None);
    }
    let learned = pool.table.lock().learned.size();
    assert_eq!((learned, used(&pool)), (0, 0));
}

#[test]
fn a_namespace_at_its_limit_learns_nothing() {
    let structure = |key: &str| Structure::new(Fragment::Object, key.as_bytes(), &FixedState::with_seed(1)).unwrap();
    let structure = structure(r#"{"metadata":{"annotations":{"a":"b"}}}"#);
    let (pool, mut scratch) = pool();
    let packed = read(&pool, &mut scratch, &pod("shop", "web-aaaaa", "", "", ""), None);
    let skeleton = packed.skeleton(Fragment::Object);
    let mut positions = Positions::default();
    positions.set(0, structure::Own::Whole);
    let owner = Owner { workload: 1, namespace: 2 };
    for (used, learns) in [(0, true), (MAX_BYTES_OF_ONE_USER - 1, false)] {
        let usage = Usage::default();
        usage.store(used, Relaxed);
        let mut learned = Learned::new(FixedState::with_seed(1));
        assert_eq!(learned.generalise(1, &positions, &usage), learns);
        assert_eq!(!learned.recall(1, owner, &structure).0.is_empty(), learns);
        learned.record_skeleton(2, owner, skeleton, &structure, &positions, &usage);
        assert_eq!(!learned.recall(2, owner, &structure).0.is_empty(), learns);
        assert!(learned.size() + used <= MAX_BYTES_OF_ONE_USER.max(1) && usage.load(Relaxed) == used + learned.size());
    }
}

#[test]
fn deeply_nested_json_has_no_structure_and_is_decoded() {
    let deep = |depth: usize| format!(r#"{{"later":{}"a"{}}}"#, "[".repeat(depth), "]".repeat(depth));
    let structure = |depth| Structure::new(Fragment::Spec, deep(depth).as_bytes(), &FixedState::with_seed(1));
    assert!(structure(100).is_some() && structure(200).is_none());
    let (pool, mut scratch) = pool();
    let deep = deep(200);
    let spec = deep.strip_prefix('{').and_then(|deep| deep.strip_suffix('}')).unwrap();
    read(&pool, &mut scratch, &pod("shop", "web-abcde", "", spec, ""), None);
}

#[test]
fn a_superseded_skeleton_is_not_used_by_another_namespace() {
    let (pool, mut scratch) = pool();
    let mut of = |namespace: &str, name: &str, value: &str| {
        let spec = format!(r#""containers":[{{"name":"a","image":"i","env":[{{"name":"A","value":"{value}"}}]}}]"#);
        read(&pool, &mut scratch, &pod(namespace, name, "", &spec, ""), None)
    };
    let _kept = [of("hostile", "web-aaaaa", "for all"), of("hostile", "web-bbbbb", "own")];
    let shop = [of("shop", "web-aaaaa", "for all"), of("shop", "web-bbbbb", "for all")];
    for packed in &shop {
        assert!(!packed.shape.is_superseded());
    }
    assert!(Arc::ptr_eq(shop[0].skeleton(Fragment::Spec), shop[1].skeleton(Fragment::Spec)));
}

#[test]
fn transitions_of_another_namespace_generalise_no_pod_here() {
    let (pool, mut scratch) = pool();
    let names = ["web-aaaaa", "web-bbbbb", "web-ccccc", "web-ddddd"];
    let state = |namespace: &str, name: &str, message: &str| {
        pod(namespace, name, "", "", &format!(r#""phase":"Pending","message":"{message}""#))
    };
    let hostile = names.map(|name| read(&pool, &mut scratch, &state("hostile", name, "wait"), None));
    let _later: Vec<_> = names
        .into_iter()
        .zip(&hostile)
        .map(|(name, held)| {
            read(&pool, &mut scratch, &state("hostile", name, &format!("now {}", &name[6..])), Some(held))
        })
        .collect();
    let shop = read(&pool, &mut scratch, &state("shop", "web-aaaaa", "wait"), None);
    assert!(!shop.skeleton(Fragment::Status).is_generalised);
    let shop = read(&pool, &mut scratch, &state("shop", "web-aaaaa", "ready"), Some(&shop));
    assert!(!shop.skeleton(Fragment::Status).is_generalised);
}

#[test]
fn concurrent_generalisation_yields_the_decoders_output() {
    let pool = Pool::new(7);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let pool = &pool;
            scope.spawn(move || {
                let mut scratch = Scratch::default();
                let mut kept: Vec<Option<Packed>> = vec![None; 24];
                let mut state = thread + 1;
                for step in 0..1_500_u64 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let own = (state >> 33) % 24;
                    let mut object = pod_json(1, own, "Running");
                    let text = match (state >> 40) % 5 {
                        0 => format!("see {own} of the rest that is shared {}", step / 100),
                        1 => format!("see {own} of the rest that is shared"),
                        2 => "see a of the rest that is shared".to_owned(),
                        3 => format!("other {own}"),
                        _ => String::new(),
                    };
                    object["metadata"]["annotations"]["note"] = text.clone().into();
                    object["spec"]["containers"][0]["env"][0]["value"] = text.clone().into();
                    object["status"]["message"] = text.into();
                    object["metadata"]["namespace"] = ["shop", "other"][(thread % 2) as usize].into();
                    let json = written(&object);
                    let held = kept[own as usize].take();
                    let read = pool.read(&PodJson::new(json.as_bytes()), held.as_ref(), &mut scratch).unwrap();
                    same_as_decoded(&read, json.as_bytes());
                    if step % 3 != 0 {
                        kept[own as usize] = Some(read.packed);
                    }
                }
            });
        }
    });
}

pub(super) fn contents() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "b",
        "0x",
        "10.0.0.1",
        "10.0.0.2",
        "web-abcde",
        "web-fghij",
        "uid-web-abcde",
        "node-1",
        "0a:58:0a:80:02:0e",
        "fd00:10:128:2::1a2b",
        "0a1b2c3d4e5f6071",
        "A",
        "\\u0041",
        "\\u00e9",
        "\\u0000",
        "\\ud83d\\ude00",
        "\\n",
        "\\\"",
        "\\\\",
        "\\/",
        "\\u003c",
        "é",
        "\u{1f600}",
        " ",
        "-",
        ".",
        ":",
        "_",
        "/",
        "{",
        "}",
        "},",
        "],",
        ",",
        "\\u002d",
        "\u{7f}",
        "~placeholder-of-pod~00003",
        "~placeholder-of-pod~00004",
        "~placeholder-of-pod~10000",
        "~placeholder-of-pod~20001",
        "2096-10-02T07:06:43Z",
        "2026-01-01T00:00:00Z",
        "kube-api-access-abcde",
        "%NZm",
        "//",
        "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9",
        " the rest is shared ",
        "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9",
    ]);
    let words = prop::sample::select(vec!["a", "b", "A", "web-abcde", "10.0.0.1", "7"]);
    let words = prop::collection::vec(words, 4);
    let three = prop::collection::vec(piece.clone(), 3);
    let addresses = prop::collection::vec(prop::sample::select(vec!["a", "b", "10.0.0.1"]), 2);
    let repeated = prop::sample::select(vec!["a ", "web-abcde ", "é", "\\n", "10.0.0.1 "]);
    let times = prop::sample::select(vec![90, 127, 128, 129, 260, 3_000, 7_000]);
    let end = prop::sample::select(vec!["x", "y z"]);
    prop_oneof![
        4 => prop::collection::vec(piece, 0..5).prop_map(|all| all.concat()),
        4 => words.prop_map(|all| format!(r"{}\u0041{} - {}é{} the rest is shared", all[0], all[1], all[2], all[3])),
        3 => three.prop_map(|all| format!("the rest is shared {} and {} and {}", all[0], all[1], all[2])),
        2 => addresses.prop_map(|all| format!(r#"{{\"ip\":\"{}\",\"gateway\":[\"{}\"]}}"#, all[0], all[1])),
        1 => (repeated, times, end).prop_map(|(piece, times, end)| piece.repeat(times) + end),
    ]
}
