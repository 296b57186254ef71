//! Tests of fragments that are stored with a text of their own: when they are, when not any more, and that they equal
//! the decoder's output.

use proptest::prelude::*;

use super::*;
use crate::{testing::pod_json, unshared};

fn identity(object: &Value) -> PodIdentity<'_> {
    let text = |field: &str| object["metadata"][field].as_str().unwrap();
    PodIdentity { name: text("name"), uid: text("uid"), revision: text("resourceVersion").parse().unwrap() }
}

fn read(pool: &Pool, scratch: &mut Scratch, object: &Value, held: Option<&Packed>) -> Packed {
    super::read(pool, scratch, &written(object), held)
}

/// Returns a Pod with a structure of this number.
fn pod(own: u64, structure: u64) -> Value {
    let mut object = pod_json(1, own, "Running");
    for at in 0..structure {
        object["metadata"]["annotations"][format!("note-{at}")] = "a note".into();
        object["spec"]["containers"][0]["env"].as_array_mut().unwrap().push(json!({"name": format!("E{at}")}));
    }
    object
}

fn is_unshared(packed: &Packed) -> [bool; FRAGMENTS] {
    Fragment::ALL.map(|fragment| packed.skeleton(fragment).is_unshared)
}

#[test]
fn a_structure_that_one_pod_has_takes_a_part_of_its_text() {
    let (pool, mut scratch) = pool();
    let kept: Vec<_> = (0..100).map(|own| read(&pool, &mut scratch, &pod(own, own), None)).collect();
    assert_eq!(is_unshared(&kept[0]), [false; FRAGMENTS], "the first is the dictionary");
    for packed in &kept[1..] {
        assert_eq!(is_unshared(packed), [true, true, false]);
        assert!(Arc::ptr_eq(&packed.shape, &kept[1].shape));
    }
    assert_eq!(pool.shared_texts(), FRAGMENTS);
    let text = kept[50].own_text(Fragment::Spec).unwrap().text.len();
    assert!(text > 1_200 && kept[50].own(Fragment::Spec).len() < text / 2, "{}", kept[50].own(Fragment::Spec).len());
}

#[test]
fn the_second_pod_of_a_structure_makes_it_shared() {
    let (pool, mut scratch) = pool();
    let _dictionary = read(&pool, &mut scratch, &pod(0, 0), None);
    let first = read(&pool, &mut scratch, &pod(1, 5), None);
    assert_eq!(is_unshared(&first), [true, true, false]);
    // The same Pod again is no second one.
    let again = read(&pool, &mut scratch, &pod(1, 5), None);
    assert_eq!((is_unshared(&again), first.shape.is_superseded()), ([true, true, false], false));
    let second = read(&pool, &mut scratch, &pod(2, 5), None);
    assert_eq!(is_unshared(&second), [false; FRAGMENTS]);
    assert!(first.shape.is_superseded());
    let object = pod(1, 5);
    let renewed = renewed(&pool, &mut scratch, &first, identity(&object)).unwrap();
    assert!(!renewed.shape.is_superseded() && Arc::ptr_eq(&renewed.shape, &second.shape));
    assert!(renewed.changed_from(&first, identity(&pod(1, 5)).name, identity(&pod(1, 5)).uid).is_empty());
}

#[test]
fn a_structure_that_was_forgotten_stays_unshared_until_it_is_seen_twice() {
    let (pool, mut scratch) = pool();
    let mut kept: Vec<_> = (0..60).map(|own| read(&pool, &mut scratch, &pod(own, own), None)).collect();
    kept.push(read(&pool, &mut scratch, &pod(100, 1), None));
    assert_eq!(is_unshared(kept.last().unwrap()), [true, true, false], "32 structures are remembered");
    kept.push(read(&pool, &mut scratch, &pod(101, 1), None));
    assert_eq!(is_unshared(kept.last().unwrap()), [false; FRAGMENTS]);
}

#[test]
fn an_event_keeps_an_unshared_fragment_that_it_does_not_change() {
    let (pool, mut scratch) = pool();
    let _dictionary = read(&pool, &mut scratch, &pod(0, 0), None);
    let mut object = pod(1, 5);
    let first = read(&pool, &mut scratch, &object, None);
    object["metadata"]["resourceVersion"] = "77777".into();
    object["status"]["phase"] = "Failed".into();
    let second = read(&pool, &mut scratch, &object, Some(&first));
    let changed = |now: &Packed, before: &Packed| now.changed_from(before, identity(&pod(1, 5)).name, "u");
    assert_eq!(changed(&second, &first), SectionSet::EMPTY.with(Section::Status).with(Section::Full));
    for fragment in [Fragment::Object, Fragment::Spec] {
        assert!(scratch.drafts[fragment].text.is_empty(), "{fragment:?} was scanned");
        assert_eq!(second.own(fragment), first.own(fragment));
        assert!(Arc::ptr_eq(second.skeleton(fragment), first.skeleton(fragment)));
    }
    // Another value of a placeholder, another text, and a shared structure.
    object["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"] = "2026-03-09T09:09:09Z".into();
    let third = read(&pool, &mut scratch, &object, Some(&second));
    assert_eq!(changed(&third, &second), SectionSet::EMPTY.with(Section::Annotations).with(Section::Full));
    object["metadata"]["labels"]["app"] = "other".into();
    let fourth = read(&pool, &mut scratch, &object, Some(&third));
    assert_eq!(changed(&fourth, &third), SectionSet::EMPTY.with(Section::Labels).with(Section::Full));
    assert_eq!((is_unshared(&third), is_unshared(&fourth)), ([true, true, false], [true, true, false]));
    let plain = read(&pool, &mut scratch, &pod(1, 0), Some(&fourth));
    assert_eq!(is_unshared(&plain), [false; FRAGMENTS]);
    let identity = identity(&object);
    let differ = Section::ALL.into_iter().filter(|at| plain.section(identity, *at) != fourth.section(identity, *at));
    let expected = differ.fold(SectionSet::EMPTY, SectionSet::with);
    assert_eq!(changed(&plain, &fourth), expected);
    assert_eq!(changed(&fourth, &plain), expected);
    assert!(!fourth.has_in_common(&third, Section::Owners), "nothing is known without decoding");
}

#[test]
fn a_state_that_each_pod_has_for_a_moment_is_learned_once() {
    let (pool, mut scratch) = pool();
    let states = |own: u64| {
        let mut created = pod_json(1, own, "Pending");
        created["spec"].as_object_mut().unwrap().remove("nodeName");
        let mut labelled = pod_json(1, own, "Running");
        labelled["metadata"]["labels"]["team"] = "shop".into();
        let mut deleted = labelled.clone();
        deleted["metadata"]["deletionTimestamp"] = "2026-03-09T09:09:09Z".into();
        deleted["metadata"]["deletionGracePeriodSeconds"] = 30.into();
        [created, pod_json(1, own, "Pending"), pod_json(1, own, "Running"), labelled, deleted]
    };
    let mut learned: [Weak<Shape>; 5] = Default::default();
    for own in 0..10 {
        let mut held: Option<Packed> = None;
        for (at, state) in states(own).iter().enumerate() {
            let packed = read(&pool, &mut scratch, state, held.as_ref());
            if own >= 3 {
                assert_eq!(is_unshared(&packed), [false; FRAGMENTS], "state {at} of Pod {own}");
                let before = learned[at].upgrade().expect("the shape is kept from Pod to Pod");
                assert!(Arc::ptr_eq(&before, &packed.shape), "state {at} of Pod {own}");
            }
            learned[at] = downgrade(&packed.shape);
            held = Some(packed);
        }
    }
}

#[test]
fn a_new_pod_is_expected_to_be_like_the_latest_new_pod_of_its_workload() {
    let (pool, mut scratch) = pool();
    let created = |workload, own| {
        let mut created = pod_json(workload, own, "Pending");
        created["spec"].as_object_mut().unwrap().remove("nodeName");
        created
    };
    let mut running = Vec::new();
    // As in a list, so that at first a new Pod is one that runs.
    for own in 0..4 {
        for workload in [1, 2] {
            running.push(read(&pool, &mut scratch, &pod_json(workload, own, "Running"), None));
        }
    }
    for own in 10..15 {
        let firsts = [1, 2].map(|workload| {
            let first = read(&pool, &mut scratch, &created(workload, own), None);
            let is_scanned = !scratch.drafts[Fragment::Object].text.is_empty();
            assert!(own < 12 || !is_scanned, "workload {workload}, Pod {own} is not expected");
            first
        });
        // Later states of other Pods of the workload do not matter.
        read(&pool, &mut scratch, &pod_json(1, 0, "Pending"), Some(&running[0]));
        read(&pool, &mut scratch, &pod_json(1, 0, "Running"), Some(&running[0]));
        for (workload, first) in [1, 2].into_iter().zip(&firsts) {
            let prefix = created(workload, own)["metadata"]["generateName"].as_str().unwrap().to_owned();
            let like = scratch.recent.like_new(Some(pool.workload("shop", &prefix))).unwrap();
            assert!(Arc::ptr_eq(&like, &first.shape), "workload {workload}, Pod {own}");
        }
        let latest = scratch.recent.like_new(Some(pool.workload("bank", "elsewhere-"))).unwrap();
        assert!(!firsts.iter().any(|first| Arc::ptr_eq(&latest, &first.shape)));
    }
}

#[test]
fn the_latest_shapes_are_kept_within_their_bytes() {
    let (pool, mut scratch) = pool();
    let large = |own: u64| {
        let mut object = pod(own, 0);
        object["metadata"]["namespace"] = format!("shop-{own}").into();
        object["spec"]["containers"][0]["args"] = json!(vec!["--an-argument-of-a-container"; 20_000]);
        object
    };
    let shapes: Vec<_> = (0..9).map(|own| downgrade(&read(&pool, &mut scratch, &large(own), None).shape)).collect();
    let kept: Vec<_> = shapes.iter().filter_map(Weak::upgrade).collect();
    assert!((1..6).contains(&kept.len()), "{} are kept", kept.len());
    let used: usize = (0..9).map(|own| pool.table.lock().usage(&format!("shop-{own}")).load(Relaxed)).sum();
    drop((kept, scratch));
    assert!(used > 0 && shapes.iter().all(|shape| shape.strong_count() == 0));
}

#[test]
fn a_dictionary_is_freed_with_its_last_pod_and_counts_for_its_namespace() {
    let (pool, mut scratch) = pool();
    let first = read(&pool, &mut scratch, &pod(0, 0), None);
    let unshared = read(&pool, &mut scratch, &pod(1, 5), None);
    let skeletons = [Fragment::Object, Fragment::Spec].map(|at| downgrade(unshared.skeleton(at)));
    let used = || pool.table.lock().usage("shop").load(Relaxed);
    let of_the_first: usize = first.shape.skeletons.iter().filter_map(|(_, skeleton)| skeleton.charged_bytes()).sum();
    let of_both = |at: &Weak<Skeleton>| at.upgrade().and_then(|skeleton| skeleton.charged_bytes()).unwrap();
    assert_eq!(used() - skeletons.iter().map(of_both).sum::<usize>(), of_the_first);
    drop(first);
    // The text of the first Pod is needed although the Pod is gone.
    let object = pod(1, 5);
    assert_eq!(
        unshared.json(identity(&object)),
        read(&pool, &mut scratch, &object, Some(&unshared)).json(identity(&object))
    );
    drop(unshared);
    assert!(used() > 0, "the scratch keeps the latest shapes");
    scratch = Scratch::default();
    assert!(skeletons.iter().all(|skeleton| skeleton.strong_count() == 0));
    assert_eq!(used(), 0);
    // Without a dictionary, the next Pod makes skeletons.
    assert_eq!(is_unshared(&read(&pool, &mut scratch, &pod(2, 6), None)), [false; FRAGMENTS]);
}

#[test]
fn a_namespace_at_its_limit_has_no_new_dictionary() {
    let (pool, mut scratch) = pool();
    let _first = read(&pool, &mut scratch, &pod(0, 0), None);
    pool.table.lock().usage("shop").store(MAX_BYTES_OF_ONE_USER, Relaxed);
    let json = written(&pod(1, 5));
    assert!(pool.read(&PodJson::new(json.as_bytes()), None, &mut scratch).unwrap().packed.shape.is_whole());
    pool.table.lock().usage("shop").store(0, Relaxed);
    assert_eq!(is_unshared(&read(&pool, &mut scratch, &pod(1, 5), None)), [true, true, false]);
}

#[test]
fn a_long_text_is_not_compressed() {
    let (pool, mut scratch) = pool();
    let mut object = pod(0, 0);
    let _first = read(&pool, &mut scratch, &object, None);
    object["spec"]["containers"][0]["args"] = json!(vec!["x".repeat(20); unshared::LONGEST / 20]);
    assert_eq!(is_unshared(&read(&pool, &mut scratch, &object, None)), [false; FRAGMENTS]);
}

proptest! {
    // PROPTEST_CASES increases it.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(256)))]

    #[test]
    fn stored_bytes_that_were_damaged_are_refused_or_read(
        text in "[a-z{}\":,\u{0}\u{1}\u{10}]{0,80}",
        values in prop::collection::vec(any::<u8>(), 0..10),
        dictionary in "[a-z{}\":,]{0,80}",
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 0..6),
    ) {
        let heads = [
            unshared::Head::Object { created: -5, generation: 3 },
            unshared::Head::Spec { node: Some("node-1") },
            unshared::Head::Status { phase: "Running" },
        ];
        for (fragment, head) in Fragment::ALL.into_iter().zip(heads) {
            let mut stored = unshared::stored(head, text.as_bytes(), dictionary.as_bytes(), &values);
            prop_assert_eq!(unshared::head(fragment, &stored), Some(head));
            if let Some(own) = unshared::OwnText::open(fragment, &stored, dictionary.as_bytes(), Vec::new()) {
                prop_assert_eq!((&own.text[..], own.values()), (text.as_bytes(), &values[..]));
            }
            for (at, byte, how) in &changes {
                let at = at.index(stored.len() + 1);
                match how {
                    0 if at < stored.len() => stored[at] = *byte,
                    1 if at < stored.len() => _ = stored.remove(at),
                    _ => stored.insert(at, *byte),
                }
            }
            let _ = unshared::head(fragment, &stored);
            if let Some(own) = unshared::OwnText::open(fragment, &stored, dictionary.as_bytes(), Vec::new()) {
                prop_assert!(own.text.len() <= unshared::LONGEST.max(stored.len()));
            }
        }
    }
}
